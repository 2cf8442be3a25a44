"""Contacts in loops where what they are made of varies from world to world: each world as its own model in MuJoCo."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from operator import itemgetter

import mujoco
import numpy as np
import oracle
import pytest
import random_params
import torch
from test_many_boxes import ground, in_lists, robot, walked

from torch_mjenvs.compiler.scalar import select
from torch_mjenvs.physics import Simulation, load
from torch_mjenvs.physics.collision.contact_param import contact_param
from torch_mjenvs.physics.columns import Columns
from torch_mjenvs.physics.constraints.batch.pair_batch import PairBatch, batch_pairs, divided
from torch_mjenvs.physics.constraints.batch.pair_numbers import PairNumbers
from torch_mjenvs.physics.constraints.batch.varied_numbers import constant
from torch_mjenvs.physics.constraints.contact_row import row_param
from torch_mjenvs.physics.constraints.softening import contact_bound, usual_bound
from torch_mjenvs.physics.kernel_request import KernelRequest
from torch_mjenvs.physics.model.precision import DOUBLE, PRECISIONS, SINGLE
from torch_mjenvs.physics.simulation_kernels import program

BATCHES = "torch_mjenvs.physics.constraints.batch.pair_batch"
OF_CONTACTS = ("geom_friction", "geom_solref", "geom_solimp", "geom_margin", "pair_friction", "body_mass")
SURFACES = (
    'solmix="3"', "", 'priority="1" solref=".03 .8"', 'solmix="0"', 'gap=".01"', 'solref="-900 -40"', 'priority="1"',
)  # fmt: skip


def balls(option: str, condim: int, held: bool = False) -> mujoco.MjModel:
    """Balls in a heap, with surfaces of all kinds; three may be on axles, which hold their centres."""
    bodies = "".join(
        f"""<body pos="{0.13 * (k % 3)} {0.12 * (k // 3)} {0.1 + 0.02 * k}">
        {'<joint axis="0 1 0"/>' if held and k < 3 else "<freejoint/>"}
        <geom name="g{k}" size=".09" margin=".01" mass="{1 + k}" {SURFACES[k]}/></body>"""
        for k in range(7)
    )
    own = 'solreffriction=".1 1"' if "elliptic" in option else ""
    pairs = f"""<pair geom1="g3" geom2="g4" condim="{condim}" friction=".5 .7 .02 .01 .03" margin=".02"/>
        <pair geom1="g0" geom2="g1" condim="{condim}" solref="-800 -50" {own}/>"""
    return oracle.sharpen(
        mujoco.MjModel.from_xml_string(f"""<mujoco><option timestep=".002" impratio="2" {option}/>
        <default><geom condim="{condim}" friction=".6 .02 .01"/></default>
        <worldbody>{bodies}</worldbody><contact>{pairs}</contact></mujoco>""")
    )


def put(sim: Simulation, states: Sequence[Sequence[np.ndarray]]) -> None:
    for k, (qpos, qvel) in enumerate(states):
        sim.qpos[k], sim.qvel[k] = torch.from_numpy(qpos), torch.from_numpy(qvel)


def beside_mujoco(model: mujoco.MjModel, vary: Sequence[str], states: Sequence[Sequence[np.ndarray]]) -> None:
    """A step of worlds whose parameters are drawn."""
    rng = np.random.default_rng(0)
    sim = Simulation(model, len(states), dtype=torch.float64, vary=vary, outputs=("qacc",))
    put(sim, states)
    sim.set_params({name: np.array([random_params.draw(model, name, rng) for _ in states]) for name in vary})
    sim.step()
    for k, (qpos, qvel) in enumerate(states):
        want = oracle.forward(sim.model_of(k), qpos, qvel, np.zeros(0)).qacc
        np.testing.assert_allclose(sim.qacc[k].cpu().numpy(), want, rtol=0, atol=1e-9 * np.abs(want).max())


@pytest.mark.parametrize("among", ["batches", "slots"])
@pytest.mark.parametrize(("condim", "cone"), [(1, "pyramidal"), (3, "pyramidal"), (6, "pyramidal"), (4, "elliptic")])
def test_all_that_contacts_are_made_of_varies(condim, cone, among, monkeypatch):
    """With geoms of higher priority, unequal weights, both formats of solref, and pairs with numbers of their own."""
    model = balls(f'cone="{cone}"', condim)
    if among == "slots":
        monkeypatch.setattr(f"{BATCHES}.VERY_MANY", 2), monkeypatch.setattr(f"{BATCHES}.MANY", 2)
    batches, pools = divided(load(model), DOUBLE)
    pairs = [p for pairs in (*batches, *(x for pool in pools for x in pool)) for p in pairs]
    assert bool(pools) == (among == "slots") and len(pairs) == 21 and sum(p.ipair >= 0 for p in pairs) == 2
    beside_mujoco(model, OF_CONTACTS, oracle.scattered(model, 12, 0.03, (0.5,)))


@pytest.mark.filterwarnings("ignore:the centre of mass")
@pytest.mark.parametrize("varied", [*OF_CONTACTS, OF_CONTACTS])
@pytest.mark.parametrize(("condim", "cone"), [(1, "pyramidal"), (3, "pyramidal"), (6, "pyramidal"), (4, "elliptic")])
def test_each_number_is_that_of_the_pair_by_itself(condim, cone, varied):
    """By the tables and arrays of a batch, beside what contacts that are written out are made of."""
    model, rng = balls(f'cone="{cone}"', condim, held=True), np.random.default_rng(0)
    model.geom_solimp[:, :2] = model.pair_solimp[:, :2] = 0.998
    m = load(model)
    columns = Columns(m, (varied,) if isinstance(varied, str) else varied)
    draws = [[random_params.draw(model, name, rng).ravel() for name in columns.names] for _ in range(20)]
    drawn = list(torch.tensor(np.array([np.hstack(x) for x in draws]).T, device="cpu"))
    world, repeats = columns.world(drawn, columns.derive(drawn)), []
    numbers = PairNumbers.of(world, PairBatch.of(m, list(m.pairs)), SINGLE)
    for k, p in enumerate(m.pairs):
        param, row, bound = contact_param(world, p), row_param(world, p), contact_bound(world, p, SINGLE)
        repeats.append(select(bound.needs_refinement, 1.0, 0.0))
        want = [row.margin, row.margin + param.gap, *row.solimp, row.k, *row.damping, row.invweight]
        want += [*param.friction[: condim - 1], bound.give, bound.slip, repeats[-1]]
        ours = [numbers.margin, numbers.looked_at, *numbers.solimp, numbers.k, *numbers.damping, numbers.invweight]
        ours += [*numbers.friction, numbers.give or constant(0.0), numbers.slip or constant(0.0), numbers.repeated]
        for number, x in zip(ours, want, strict=True):
            np.testing.assert_allclose(number(itemgetter(k)), x, rtol=1e-12, atol=0)
        assert numbers.repeats is None or numbers.repeats[k] == repeats[-1]
    if "geom_solimp" in columns.names and condim > 1:
        assert any(0 < np.mean(np.asarray(x)) < 1 for x in repeats), "worlds do not differ"


@pytest.mark.parametrize("name", OF_CONTACTS)
def test_one_of_these_varies(name):
    beside_mujoco(model := balls("", 3), (name,), oracle.scattered(model, 6, 0.03, (0.5,)))


@pytest.mark.filterwarnings("ignore:the centre of mass")
@pytest.mark.parametrize("among", ["batches", "slots"])
@pytest.mark.parametrize(
    ("condim", "cone", "varied"),
    [
        (3, "pyramidal", ("body_mass",)),
        (4, "pyramidal", ("body_mass",)),
        (6, "pyramidal", ("geom_friction", "geom_solimp", "body_mass")),
        (4, "elliptic", ("geom_friction", "pair_friction")),
        (3, "elliptic", ("body_mass",)),
    ],
)
def test_softened_as_if_written_out(condim, cone, varied, among, monkeypatch):
    """How stiff contacts may be in float32, and where Newton steps are repeated. The centres of some balls are held."""
    model = balls(f'cone="{cone}"', condim, held=True)
    model.geom_solimp[:, :2] = model.pair_solimp[:, :2] = 0.998
    monkeypatch.setitem(PRECISIONS, "float64", replace(SINGLE, tolerance=DOUBLE.tolerance))
    rng, states = np.random.default_rng(0), oracle.scattered(model, 16, 0.03, (0.5,))
    draws = {name: [random_params.draw(model, name, rng) for _ in states] for name in varied}
    for x in draws.get("geom_solimp", ()):
        x[:, :2] = 1 - rng.uniform(0.0005, 0.05, (len(x), 1))
    found = []
    for few in (2, 1000):
        monkeypatch.setattr(f"{BATCHES}.FEWEST", few)
        if among == "slots":
            monkeypatch.setattr(f"{BATCHES}.VERY_MANY", few), monkeypatch.setattr(f"{BATCHES}.MANY", few)
        sim = Simulation(model, 16, dtype=torch.float64, vary=varied, outputs=("qacc", "qfrc_constraint"))
        put(sim, states)
        sim.set_params({name: np.array(x) for name, x in draws.items()})
        sim.step()
        found.append(sim)
    for name in ("qacc", "qfrc_constraint"):
        ours, theirs = (getattr(sim, name) for sim in found)
        assert (ours - theirs).abs().max() < 1e-9 * ours.abs().max()
    bounds = [usual_bound(load(model), p, SINGLE) for p in load(model).pairs]
    assert {x.fixed for x in bounds} == {True, False} and not any(x.bound.spring for x in bounds)
    off = 0
    for k, (qpos, qvel) in enumerate(states):
        want = oracle.forward(found[0].model_of(k), qpos, qvel, np.zeros(0)).qacc
        off += np.abs(found[0].qacc[k].cpu().numpy() - want).max() > 1e-6 * np.abs(want).max()
    assert off > 4, "nothing was softened"


@pytest.mark.parametrize("option", ["", 'cone="elliptic"'])
def test_surfaces_of_a_robot_and_of_hundreds_of_boxes_vary(option):
    """Each world finds those of the boxes that are near."""
    model = robot(option, ground(150, 1.2, 'type="sphere" size=".09"'))
    model.geom_priority[::5], model.geom_solmix[::7] = 1, 3
    assert in_lists(model) > 1000
    vary = ("geom_friction", "geom_solref", "geom_solimp", "body_mass")
    beside_mujoco(model, vary, walked(model, 8))


@pytest.mark.parametrize("varied", [("geom_friction",), ("geom_solref", "geom_solimp", "body_mass")])
def test_gradients_are_those_of_contacts_that_are_written_out(varied, monkeypatch):
    """Of states and of what varies, with a geom that decides alone."""
    ball = """<body pos="{} .03 {}"><joint type="slide" axis="0 0 1"/><joint type="slide" axis="1 .3 0"/>
        <joint axis="0 1 0"/><geom size=".09" mass="2" {}/></body>"""
    bodies = "".join(ball.format(0.12 * (k % 2), 0.08 * k, 'priority="1"' * (k == 2)) for k in range(4))
    model = oracle.sharpen(mujoco.MjModel.from_xml_string(f"<mujoco><worldbody>{bodies}</worldbody></mujoco>"))
    states, rng, found = oracle.scattered(model, 8, 0.02, (0.5,)), np.random.default_rng(0), []
    drawn = {name: torch.tensor(np.array([random_params.draw(model, name, rng) for _ in states])) for name in varied}
    for few in (2, 1000):
        monkeypatch.setattr(f"{BATCHES}.FEWEST", few)
        assert bool(batch_pairs(load(model), DOUBLE)) == (few == 2)
        sim = Simulation(model, len(states), dtype=torch.float64, vary=varied)
        put(sim, states)
        params = {name: x.to(sim.device).requires_grad_() for name, x in drawn.items()}
        given = [x.clone().requires_grad_() for x in (sim.qpos, sim.qvel)]
        _, qvel, *_ = sim.transition(*given, params=params)
        total = (qvel * torch.arange(1.0, 1 + model.nv, device=sim.device)).sum()
        found.append(torch.autograd.grad(total, [*given, *params.values()]))
    for ours, theirs in zip(*found, strict=True):
        assert theirs.any() and (ours - theirs).abs().max() < 1e-10 * theirs.abs().max()


def grown(model: mujoco.MjModel, vary: str) -> int:
    """How many operations more a step takes if a parameter varies."""
    m = load(model)
    few, more = (program(KernelRequest(m, vary=x), "float32").count_ops().total() for x in ((), (vary,)))
    return more - few


@pytest.mark.parametrize("vary", ["geom_friction", "geom_solref", "geom_solimp"])
def test_code_does_not_grow_with_the_pairs(vary):
    """But a little with the geoms, whether pairs are in batches, in slots or in lists of near ones."""
    for make, few, many in ((spheres, 12, 20), (spheres, 32, 40), (paved, 60, 120)):
        one, two = make(few), make(many)
        pairs, geoms = len(load(two).pairs) - len(load(one).pairs), two.ngeom - one.ngeom
        assert grown(two, vary) - grown(one, vary) < 3 * geoms < pairs / 2


def spheres(n: int) -> mujoco.MjModel:
    body = '<body pos="0 0 {}"><freejoint/><geom size=".1"/></body>'
    bodies = "".join(body.format(k) for k in range(n))
    return mujoco.MjModel.from_xml_string(f"<mujoco><worldbody>{bodies}</worldbody></mujoco>")


def paved(n: int) -> mujoco.MjModel:
    return robot("", ground(n, 1.2, 'type="sphere" size=".09"'))
