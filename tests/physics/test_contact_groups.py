"""Pairs that are handled by one loop (`constraints/batch/`), where Humanoid does not
take them: parallel capsules, which touch twice, friction, bodies of different trees, and too few pairs for a loop.
"""

from __future__ import annotations

from dataclasses import replace

import mujoco
import numpy as np
import oracle
import pytest
import torch

from torch_mjenvs.compiler import tiles
from torch_mjenvs.compiler.control import unroll_limit, unrolling
from torch_mjenvs.physics import load
from torch_mjenvs.physics.collision.colliders import NEVER
from torch_mjenvs.physics.collision.primitive import ball_colliders
from torch_mjenvs.physics.collision.shapes import COLLIDERS, Collider
from torch_mjenvs.physics.constraints.batch import contact_groups, pair_batch
from torch_mjenvs.physics.constraints.batch.pair_batch import batch_pairs, divided
from torch_mjenvs.physics.constraints.batch.pool_blocks import layout_of
from torch_mjenvs.physics.constraints.softening import contact_bound
from torch_mjenvs.physics.dynamics.inertia import dof_columns
from torch_mjenvs.physics.model.enums import GeomType
from torch_mjenvs.physics.model.model import Model
from torch_mjenvs.physics.model.precision import DOUBLE, PRECISIONS, SINGLE
from torch_mjenvs.physics.pipeline import derive
from torch_mjenvs.physics.simulation import Simulation

ROD = """
<body pos="0 {y} 0">
  <joint type="slide" axis="0 1 0" damping="1"/><joint type="hinge" axis="0 1 0"/>
  <geom type="capsule" fromto="-.3 0 0 .3 0 0" size=".05" condim="1"/>
</body>"""


def rods(n: int) -> mujoco.MjModel:
    """Rods side by side that overlap a little, on a floating ball."""
    bodies = "".join(ROD.format(y=0.0985 * k) for k in range(n))
    model = mujoco.MjModel.from_xml_string(f"""
        <mujoco><option integrator="RK4" timestep="0.002"/><default><geom solimp=".9 .95 .001"/></default>
        <worldbody><body pos="0 0 2"><freejoint/><geom type="sphere" size=".05" pos="0 -2 0" condim="1"/>
        {bodies}</body></worldbody></mujoco>""")
    model.opt.solver, model.opt.tolerance, model.opt.iterations = mujoco.mjtSolver.mjSOL_NEWTON, 0, 100
    return model


@pytest.mark.parametrize(("n", "looped"), [(5, True), (3, False)])
def test_parallel_capsules(n, looped):
    model = rods(n)
    assert bool(batch_pairs(load(model), DOUBLE)) == looped
    generator = torch.Generator().manual_seed(0)
    sim = Simulation(model, 8, dtype=torch.float64)
    qvel = 0.1 * torch.randn(8, model.nv, generator=generator, device="cpu").double()
    sim.qpos[4:, 8::2] += (0.01 * torch.randn(4, n, generator=generator, device="cpu").double()).to(
        sim.device
    )  # not parallel: one touch
    sim.qvel.copy_(qvel)
    qpos = sim.qpos.clone()
    sim.step()
    twice = 0
    for world in range(8):
        data = mujoco.MjData(model)
        data.qpos[:], data.qvel[:] = qpos[world].cpu(), qvel[world].cpu()
        mujoco.mj_forward(model, data)
        pairs = [tuple(contact.geom) for contact in data.contact]
        assert pairs
        twice += len(pairs) - len(set(pairs))
        mujoco.mj_step(model, data)
        np.testing.assert_allclose(sim.qvel[world].cpu().numpy(), data.qvel, rtol=1e-11, atol=1e-12)
        np.testing.assert_allclose(sim.qpos[world].cpu().numpy(), data.qpos, rtol=1e-12, atol=1e-13)
    assert twice >= 4


SHAPES = ('type="capsule" size=".08 .1"', 'size=".1"', 'type="capsule" size=".06 .15" euler="40 20 0"')

ZONES = ("box", "ellipsoid", "capsule")


def heap(
    n: int, condim: int, one_tree: bool, cone: str = "pyramidal", actuators: str = "", gap: float = 0
) -> mujoco.MjModel:
    """Bodies in a heap: free ones of different weight on a floor, or limbs of one that floats."""
    joints = (
        "<freejoint/>" if not one_tree else '<joint type="slide" axis="0 0 1"/><joint axis="1 .5 0" pos="0 0 -.1"/>'
    )
    bodies = "".join(
        f"""<body name="b{k}"
        pos="{0.12 * (k % 2)} {0.11 * (k // 2 % 2)} {0.15 + 0.06 * k}" euler="0 {30 * k} 0">{joints}
        <geom {SHAPES[k % 3]} condim="{condim}" friction="{0.3 + 0.2 * k} .02 .01" mass="{1 + k}"
        margin=".01" gap="{gap}"/><site name="s{k}" type="{ZONES[k % 3]}" size=".08 .05 .1" pos=".05 0 .04"/></body>"""
        for k in range(n)
    )
    sensors = "".join(f'<touch site="s{k}"/>' for k in range(n))
    trunk = f'<body pos="0 0 .1"><freejoint/><geom size=".02" contype="0" conaffinity="0" mass="3"/>{bodies}</body>'
    floor = '<geom type="plane" size="5 5 1" pos="0 0 -.1"/>'
    return oracle.sharpen(
        mujoco.MjModel.from_xml_string(f"""<mujoco><option timestep=".002" impratio="2" cone="{cone}"/>
        <worldbody>{floor}{trunk if one_tree else bodies}</worldbody><sensor>{sensors}</sensor>
        <actuator>{actuators}</actuator></mujoco>""")
    )


def scattered(model: mujoco.MjModel, n: int) -> list[tuple[np.ndarray, np.ndarray]]:
    return oracle.scattered(model, n, 0.05, (0.5,))


@pytest.mark.parametrize(
    ("condim", "one_tree", "cone"),
    [
        (3, False, "pyramidal"),
        (1, False, "pyramidal"),
        (1, True, "pyramidal"),
        (3, True, "pyramidal"),
        (4, False, "pyramidal"),
        (6, True, "pyramidal"),
        (3, True, "elliptic"),
        (6, False, "elliptic"),
    ],
)
def test_many_pairs_with_friction_or_of_different_trees(condim, one_tree, cone):
    """Forces, accelerations and wrenches of loops over pairs of bodies that move by themselves, and what touch sensors
    feel of them.
    """
    model = heap(5, condim, one_tree, cone)
    m, among, felt = load(model), 0, 0
    (pairs,) = batch_pairs(m, DOUBLE)
    assert len(pairs) == 10
    for qpos, qvel in scattered(model, 12):
        d = oracle.forward(model, qpos, qvel, np.zeros(0))
        mujoco.mj_rnePostConstraint(model, d)
        ours = derive(m, qpos.tolist(), qvel.tolist(), None, [])
        among += sum(all(model.geom_bodyid[c.geom] > 0) for c in d.contact)
        felt += sum(x > 0 for x in d.sensordata)
        for name in ("qacc", "qfrc_constraint", "cfrc_ext", "sensordata"):
            want = getattr(d, name)
            np.testing.assert_allclose(getattr(ours, name), want, rtol=0, atol=1e-11 * np.abs(want).max(), err_msg=name)
    assert among > 20 and 10 < felt < 55


def test_hard_contacts_share_a_loop(monkeypatch):
    """Rounding of float32 shows in them, so the Newton step that lands is repeated in the worlds where one acts."""
    model = heap(5, 3, False)
    model.geom_solimp[:, :2] = 0.9965
    m, states = load(model), scattered(model, 24)
    (pairs,) = batch_pairs(m, SINGLE)
    assert len(pairs) == 10 and all(contact_bound(m, pair, SINGLE).needs_refinement is True for pair in pairs)
    want = np.array([oracle.forward(model, qpos, qvel, np.zeros(0)).qacc for qpos, qvel in states])

    def error() -> np.ndarray:
        sim = Simulation(model, len(states), dtype=torch.float32, outputs=("qacc",))
        for k, (qpos, qvel) in enumerate(states):
            sim.qpos[k], sim.qvel[k] = torch.as_tensor(qpos).to(sim.qpos), torch.as_tensor(qvel).to(sim.qvel)
        sim.step()
        return np.abs(sim.qacc.double().cpu().numpy() - want).max(1) / np.abs(want).max(1)

    repeated = error()
    monkeypatch.setattr(contact_groups, "refined_in_loop", lambda *_: [])
    once = error()
    assert repeated.max() < 5e-6 < once.max() and np.median(repeated) < 0.5 * np.median(once)


@pytest.mark.parametrize("slots", [False, True])
@pytest.mark.parametrize("cone", ["pyramidal", "elliptic"])
def test_many_pairs_with_friction_where_masses_vary(cone, slots, quickly_compiled, monkeypatch):
    """Then the stiffness of their rows is no constant: what bodies weigh, and the share that friction has."""
    model = heap(5, 3, True, cone)
    if slots:
        monkeypatch.setattr(POOLED, 2)
    oracle.compare_steps(Simulation(model, 6, dtype=torch.float64, vary="body_mass"), model, scattered(model, 6), 3)


@pytest.mark.parametrize(("condim", "cone"), [(3, "pyramidal"), (6, "pyramidal"), (4, "elliptic")])
def test_frictions_that_vary_soften_contacts_in_loops_as_those_written_out(condim, cone, monkeypatch):
    """In batches, and in slots: each world's own friction decides how stiff its contacts are, and where Newton steps
    are repeated.
    """
    model = heap(5, condim, False, cone)
    model.geom_solimp[:, :2], model.geom_friction[:] = 0.998, [0.6, 0.05, 0.05]
    monkeypatch.setitem(PRECISIONS, "float64", replace(SINGLE, tolerance=DOUBLE.tolerance))  # float32's bounds
    states, rng = scattered(model, 16), np.random.default_rng(0)
    frictions = np.exp(rng.uniform(np.log(0.02), np.log(1.5), (16, model.ngeom, 3)))
    found = []
    for few, pooled in ((1000, 1000), (2, 1000), (2, 2)):
        monkeypatch.setattr("torch_mjenvs.physics.constraints.batch.pair_batch.FEWEST", few)
        monkeypatch.setattr(POOLED, pooled)
        sim = Simulation(model, 16, dtype=torch.float64, vary="geom_friction", outputs=("qacc", "qfrc_constraint"))
        for k, (qpos, qvel) in enumerate(states):
            sim.qpos[k], sim.qvel[k] = torch.from_numpy(qpos), torch.from_numpy(qvel)
        sim.set_params({"geom_friction": frictions})
        sim.step()
        found.append(sim)
    for name in ("qacc", "qfrc_constraint"):
        written, *looped = (getattr(sim, name) for sim in found)
        assert all((x - written).abs().max() < 1e-9 * written.abs().max() for x in looped)
    m, softened = load(model), 0
    for k, (qpos, qvel) in enumerate(states):
        model.geom_friction[:] = frictions[k]
        want = oracle.forward(model, qpos, qvel, np.zeros(0)).qacc
        off = np.abs(found[0].qacc[k].cpu().numpy() - want).max() / np.abs(want).max()
        softened += off > 1e-6
    assert softened > 4 and not any(contact_bound(m, p, SINGLE).spring for p in m.pairs)


@pytest.mark.parametrize("slots", [False, True])
@pytest.mark.parametrize(("condim", "cone"), [(3, "pyramidal"), (4, "elliptic")])
def test_many_pairs_where_frictions_vary(condim, cone, slots, monkeypatch):
    model, rng = heap(5, condim, True, cone), np.random.default_rng(0)
    if slots:
        monkeypatch.setattr(POOLED, 2)
    states, frictions = scattered(model, 8), rng.uniform(0.3, 1.5, (8, model.ngeom, 3))
    sim = Simulation(model, 8, dtype=torch.float64, vary="geom_friction", outputs=("qacc",))
    for k, (qpos, qvel) in enumerate(states):
        sim.qpos[k], sim.qvel[k] = torch.from_numpy(qpos), torch.from_numpy(qvel)
    sim.set_params({"geom_friction": frictions})
    sim.step()
    for k, (qpos, qvel) in enumerate(states):
        model.geom_friction[:] = frictions[k]
        want = oracle.forward(model, qpos, qvel, np.zeros(0)).qacc
        assert np.abs(sim.qacc[k].cpu().numpy() - want).max() < 1e-9 * np.abs(want).max()


@pytest.mark.parametrize("one_tree", [False, True])
def test_bodies_stick_to_many_others(one_tree):
    """Pulls at contacts that share a loop, and at those in the gap, which are looked at one by one."""
    model = heap(5, 3, one_tree, actuators='<adhesion body="b1" ctrlrange="0 1" gain="20"/>', gap=0.05)
    m, several, gaps = load(model), 0, 0
    assert len(batch_pairs(m, DOUBLE)) == 1
    for qpos, qvel in scattered(model, 12):
        d = oracle.forward(model, qpos, qvel, np.ones(1))
        ours = derive(m, qpos.tolist(), qvel.tolist(), None, [1.0])
        touching = np.any(model.geom_bodyid[d.contact.geom] == model.body("b1").id, axis=1)
        several += sum(touching & (d.contact.exclude == 0)) > 1
        gaps += sum(touching & (d.contact.exclude == 1))
        for name in ("qacc", "qfrc_actuator", "actuator_velocity"):
            want = getattr(d, name)
            np.testing.assert_allclose(getattr(ours, name), want, rtol=0, atol=1e-11 * np.abs(want).max(), err_msg=name)
    assert several > 3 and gaps > 3


def test_a_heap_that_sticks_moves_as_in_mujoco():
    model = heap(5, 3, one_tree=False, actuators='<adhesion body="b1" ctrlrange="0 1" gain="20"/>', gap=0.05)
    states = [(*state, np.ones(1)) for state in scattered(model, 3)]
    sim = Simulation(model, 3, dtype=torch.float64, outputs=("qfrc_actuator",))
    theirs = oracle.compare_steps(sim, model, states, 20, bound=1e-10, names=("qpos", "qvel", "qfrc_actuator"))
    assert all(np.any(d.qfrc_actuator) for d in theirs)


def test_a_heap_of_free_bodies_moves_as_in_mujoco():
    model = heap(5, 3, one_tree=False)
    states = scattered(model, 3)
    exact, single = (
        Simulation(model, 3, dtype=dtype, outputs=("sensordata",)) for dtype in (torch.float64, torch.float32)
    )
    oracle.compare_steps(exact, model, states, 40, bound=1e-10, names=("qpos", "qvel", "sensordata"))
    for k, (qpos, qvel) in enumerate(states):
        single.qpos[k], single.qvel[k] = torch.tensor(qpos), torch.tensor(qvel)
    single.step(40)
    assert (single.qpos.double() - exact.qpos).abs().max() < 2e-4


def mixed(one: str, two: str) -> mujoco.MjModel:
    """Three bodies of each of two shapes, which touch none of their own."""
    bodies = "".join(
        f"""<body pos="{0.14 * (k % 2)} {0.12 * (k // 2 % 2)} {0.1 * k}" euler="{20 * k} {40 * k} 0"><freejoint/>
        <geom {shape} contype="{bit}" conaffinity="{3 - bit}" condim="{1 + 2 * (k % 2 == 0)}" mass="{1 + k}"/></body>"""
        for k, (shape, bit) in enumerate(((one, 1), (two, 2)) * 3)
    )
    xml = f'<mujoco><option timestep=".002"/><compiler angle="degree"/><worldbody>{bodies}</worldbody></mujoco>'
    return oracle.sharpen(mujoco.MjModel.from_xml_string(xml))


BALL, BAR = 'size=".1"', 'type="capsule" size=".06 .1"'
BLOCK, DRUM = 'type="box" size=".1 .06 .08"', 'type="cylinder" size=".08 .07"'


BALL_BLOCK = ball_colliders.find_sphere_box, ball_colliders.place_ball_box


def third(ball, block):
    """The contact of a ball and a block, after two that never act."""
    (contact,) = ball_colliders.find_sphere_box(ball, block)
    return [(NEVER, contact[1]), (NEVER, contact[1]), contact]


def enter(monkeypatch, collider: Collider, few: int) -> Model:
    """Balls and blocks in a model loaded with this collider for them; `few` pairs are enough for a loop."""
    monkeypatch.setattr("torch_mjenvs.physics.constraints.batch.pair_batch.FEWEST", few)
    monkeypatch.setitem(COLLIDERS, (GeomType.SPHERE, GeomType.BOX), replace(collider, loop=collider))
    return load(mixed(BALL, BLOCK))


def check_mixed(m: Model) -> None:
    model = mixed(BALL, BLOCK)
    touched = 0
    for qpos, qvel in scattered(model, 6):
        d = oracle.forward(model, qpos, qvel, np.zeros(0))
        touched += d.ncon
        ours = derive(m, qpos.tolist(), qvel.tolist(), None, [])
        np.testing.assert_allclose(ours.qacc, d.qacc, rtol=0, atol=1e-11 * np.abs(d.qacc).max())
    assert touched > 6


@pytest.mark.parametrize("few", [2, 100], ids=["in a loop", "alone"])
@pytest.mark.parametrize(("ncon", "find"), [(1, BALL_BLOCK[0]), (3, third)])
def test_an_entry_of_colliders_needs_only_its_functions(ncon, find, few, monkeypatch):
    m = enter(monkeypatch, Collider(ncon, find, BALL_BLOCK[1]), few)
    assert bool(batch_pairs(m, DOUBLE)) == (few == 2)
    check_mixed(m)


@pytest.mark.parametrize("few", [2, 100], ids=["in a loop", "alone"])
def test_a_collider_that_is_wrongly_entered_is_named(few, monkeypatch):
    m = enter(monkeypatch, Collider(1, *BALL_BLOCK, axial=True), few)
    with pytest.raises(TypeError, match=r"find_sphere_box .*: remove axial=True there"):
        check_mixed(m)
    m = enter(monkeypatch, Collider(2, *BALL_BLOCK), few)
    with pytest.raises(ValueError, match="find_sphere_box gives 1 contacts, its entry in COLLIDERS says ncon=2"):
        check_mixed(m)


@pytest.mark.parametrize(("one", "two", "bound"), [(BALL, BLOCK, 1e-11), (BALL, DRUM, 1e-11), (BAR, BLOCK, 1e-11)])
def test_many_pairs_of_balls_and_other_shapes(one, two, bound, monkeypatch):
    monkeypatch.setattr("torch_mjenvs.physics.constraints.batch.pair_batch.FEWEST", 2)
    model = mixed(one, two)
    m, among = load(model), 0
    assert sum(map(len, batch_pairs(m, DOUBLE))) == 9
    for qpos, qvel in scattered(model, 12):
        d = oracle.forward(model, qpos, qvel, np.zeros(0))
        ours = derive(m, qpos.tolist(), qvel.tolist(), None, [])
        among += d.ncon
        for name in ("qacc", "qfrc_constraint"):
            want = getattr(d, name)
            np.testing.assert_allclose(getattr(ours, name), want, rtol=0, atol=bound * (1 + np.abs(want).max()))
    assert among > 20


def test_many_capsules_and_cylinders_are_as_few_of_them(monkeypatch):
    """With MuJoCo's they agree less well where they are deep in each other."""
    model = mixed(BAR, DRUM)
    m, fewest = load(model), "torch_mjenvs.physics.constraints.batch.pair_batch.FEWEST"
    for qpos, qvel in scattered(model, 6):
        found = []
        for few in (2, 100):
            monkeypatch.setattr(fewest, few)
            assert bool(batch_pairs(m, DOUBLE)) == (few == 2)
            found.append(np.array(derive(m, qpos.tolist(), qvel.tolist(), None, []).qacc))
        np.testing.assert_allclose(*found, rtol=0, atol=1e-9 * np.abs(found[0]).max())


def test_a_heap_of_balls_and_boxes_moves_as_in_mujoco(monkeypatch):
    monkeypatch.setattr("torch_mjenvs.physics.constraints.batch.pair_batch.FEWEST", 2)
    model = mixed(BALL, BLOCK)
    oracle.compare_steps(Simulation(model, 3, dtype=torch.float64), model, scattered(model, 3), 10)


POOLED = "torch_mjenvs.physics.constraints.batch.pair_batch.VERY_MANY"
CONES, SWEPT = 'cone="elliptic"', 'noslip_iterations="4" noslip_tolerance="0"'
LOOPED = "torch_mjenvs.physics.constraints.batch.pair_tables.IN_LOOP"


def crowd(option: str, surface: str, other: str = 'condim="1"') -> mujoco.MjModel:
    """A chain and free bodies of many shapes above a floor and on a step, two of them with another surface.

    What would be found by GJK, as MuJoCo finds it within 1e-6, touches the floor alone.
    """
    alone = 'contype="2" conaffinity="2"'
    shapes = (
        'type="capsule" size=".08 .12"', 'size=".1"', 'type="box" size=".1 .08 .06"',
        f'type="ellipsoid" size=".1 .12 .08" {alone}', f'type="cylinder" size=".08 .1" {alone}',
        f'type="box" size=".07 .1 .08" {other}', f'size=".09" {other}',
    )  # fmt: skip
    free = "".join(
        f'<body pos="{0.22 * (k % 3)} {0.2 * (k % 2)} {0.12 + 0.1 * k}" euler="{20 * k} {35 * k} 0"><freejoint/>'
        f"<geom {shape}/></body>"
        for k, shape in enumerate(shapes)
    )
    rod = '<geom type="capsule" fromto="0 0 0 0 .2 0" size=".05"/>'
    chain = f'<body pos="0 .2 0"><joint axis="1 0 0" damping=".1"/>{rod}'
    return oracle.sharpen(
        mujoco.MjModel.from_xml_string(f"""<mujoco><option timestep=".002" {option}/>
        <default><geom {surface}/></default><worldbody>
        <geom type="plane" size="5 5 1" contype="3" conaffinity="3"/>
        <geom type="box" size=".3 .3 .05" pos=".6 0 .05"/>{free}
        <body pos="-.3 0 .1"><freejoint/><geom type="capsule" size=".06 .1"/>{chain}{chain}{chain}</body></body></body>
        </body></worldbody></mujoco>""")
    )


def test_tiles_of_a_hessian_hold_dofs_of_several_trees(monkeypatch):
    """Of the kitchen's 29 dofs, blocks that end with each tree would be 17, and take 3 times as many products."""
    m = load(crowd("", 'condim="3"'))
    by_trees, found = tiles.Blocks.of(dof_columns(m)), layout_of(m, m.pairs).blocks
    assert (m.nv, found.count, by_trees.count) == (51, 14, 45)
    monkeypatch.setattr("torch_mjenvs.compiler.tiles.blocks.pays", lambda *_: True)
    assert layout_of(m, m.pairs).blocks == by_trees  # those of M, to which they are added


def test_contacts_that_noslip_sweeps_share_slots_sooner(monkeypatch):
    """No batch takes them, so that they would be written out: Adroit's hand has 103 to 279 pairs."""
    monkeypatch.setitem(pair_batch.MANY_SWEPT, "elliptic", 54)

    def pooled(option: str) -> bool:
        return bool(divided(load(crowd(option, 'condim="3"')), DOUBLE)[1])

    assert [pooled(option) for option in (CONES, SWEPT, f"{CONES} {SWEPT}")] == [False, False, True]
    monkeypatch.setitem(pair_batch.MANY_SWEPT, "pyramidal", 54)
    assert pooled(SWEPT)


ROCK = '<mesh name="rock" vertex="-.05 -.05 -.05 .05 -.05 -.05 0 .06 -.05 0 0 .07 .01 .02 .06 -.04 .03 .05"/>'


@pytest.mark.parametrize("cone", ["pyramidal", "elliptic"])
def test_meshes_that_noslip_sweeps_share_slots(cone):
    """As those of SO-101's arm: written out, each pair would be 12,000 lines of code."""

    def rocks(n: int) -> mujoco.MjModel:
        bodies = "".join(
            f'''<body pos="{0.03 * (k % 2)} {0.02 * (k // 2)} {0.1 + 0.12 * k}"><freejoint/>
            <geom type="mesh" mesh="rock" friction="{0.3 + 0.2 * k}"/></body>'''
            for k in range(n)
        )
        return mujoco.MjModel.from_xml_string(f"""<mujoco><asset>{ROCK}</asset>
        <option cone="{cone}" noslip_iterations="3" noslip_tolerance="0"/>
        <worldbody><geom type="plane" size="5 5 1"/>{bodies}</worldbody></mujoco>""")

    few, model = (oracle.sharpen(rocks(n)) for n in (4, 5))
    assert [bool(divided(load(x), DOUBLE)[1]) for x in (few, model)] == [False, True]  # 6 and 10 pairs of meshes
    sim, d, touched = Simulation(model, 1, dtype=torch.float64), mujoco.MjData(model), 0
    for k in range(60):
        mujoco.mj_step(model, d, 5)
        touched += d.ncon >= 4
        sim.qpos[0], sim.qvel[0], sim.qacc_warmstart[0] = map(torch.from_numpy, (d.qpos, d.qvel, d.qacc_warmstart))
        sim.step()
        ahead = mujoco.MjData(model)
        ahead.qpos[:], ahead.qvel[:], ahead.qacc_warmstart[:] = d.qpos, d.qvel, d.qacc_warmstart
        mujoco.mj_step(model, ahead)
        assert np.abs(sim.qvel[0].cpu().numpy() - ahead.qvel).max() < 1e-8, k
    assert touched > 20


def test_contacts_of_many_kinds_share_slots_sooner(monkeypatch):
    """Written out, each kind would have code of its own: the Shadow hand has 76 pairs of 9 kinds."""
    kinds, alike = load(crowd("", 'condim="3"', 'condim="1"')), load(heap(14, 3, one_tree=False))
    assert (len(kinds.pairs), len(alike.pairs)) == (54, 105)
    for many, pooled in ((64, False), (54, True)):
        monkeypatch.setattr(POOLED.replace("VERY_MANY", "MANY"), many)
        assert bool(divided(kinds, DOUBLE)[1]) is pooled and not divided(alike, DOUBLE)[1]


@pytest.mark.parametrize(
    ("option", "surface", "other", "all_in_tiles"),
    [
        ("", 'condim="3"', 'condim="1"', False),
        ("", 'condim="3"', 'condim="1"', True),
        ('cone="elliptic"', 'condim="4" friction=".8 .02 .01"', 'condim="1"', False),
        (SWEPT, 'condim="6" friction=".5 .02 .01"', 'condim="1"', False),
        (SWEPT, 'condim="3"', 'condim="4" friction=".6 .02 .01"', False),
        (f"{CONES} {SWEPT}", 'condim="3"', 'condim="1"', False),
        (f"{CONES} {SWEPT}", 'condim="6" friction=".6 .02 .01"', 'condim="4"', False),
    ],
    ids=["pyramids", "M in tiles", "cones", "noslip", "noslip of two kinds", "noslip, cones", "cones of two kinds"],
)
def test_contacts_of_all_kinds_in_slots(option, surface, other, all_in_tiles, monkeypatch):
    """What makes a model's pairs too many, made few: dm_control's dog has 5,557."""
    monkeypatch.setattr(POOLED, 2)
    if all_in_tiles:
        monkeypatch.setattr("torch_mjenvs.compiler.tiles.blocks.pays", lambda *_: True)
    monkeypatch.setattr(LOOPED, 2)
    model = crowd(option, surface, other)
    assert divided(load(model), DOUBLE)[1]
    rng, data, states = np.random.default_rng(0), mujoco.MjData(model), []
    while len(states) < 8:
        mujoco.mj_step(model, data, 20)
        data.qvel[:] += rng.normal(0, 0.3, model.nv)
        if data.ncon > 5:
            states.append((data.qpos.copy(), data.qvel.copy(), data.qacc_warmstart.copy()))
    outputs = ("qacc", "qfrc_constraint", "cfrc_ext", "ncon")
    sim = Simulation(model, len(states), dtype=torch.float64, outputs=outputs)
    for k, (qpos, qvel, warmstart) in enumerate(states):
        sim.qpos[k], sim.qvel[k], sim.qacc_warmstart[k] = map(torch.tensor, (qpos, qvel, warmstart))
    sim.step()
    for k, (qpos, qvel, _) in enumerate(states):
        want = oracle.forward(model, qpos, qvel, np.zeros(0))
        mujoco.mj_rnePostConstraint(model, want)
        for name in outputs:
            x = np.atleast_1d(getattr(want, name))
            off = np.abs(getattr(sim, name)[k].cpu().numpy().reshape(x.shape) - x).max() / (1 + np.abs(x).max())
            assert off < 1e-9, (name, k, off)


def test_noslip_softens_contacts_in_slots_as_those_written_out(monkeypatch):
    """Each world goes through a list of its own, so that the numbers of its cones are not those of its neighbours."""
    model = heap(3, 4, False, "elliptic")
    model.opt.noslip_iterations, model.geom_solimp[:, :2] = 2, 0.998
    model.geom_friction[:, 0], model.geom_friction[:, 1] = 0.8, 0.1
    model.geom_friction[2, 1] = 0.3
    m, bounds = load(model), replace(SINGLE, tolerance=DOUBLE.tolerance)
    monkeypatch.setitem(PRECISIONS, "float64", bounds)  # float32's bounds in float64's numbers
    assert len({bool(contact_bound(m, p, SINGLE).slip) for p in m.pairs}) == 2
    found = []
    for fewest in (10, 1):
        monkeypatch.setitem(pair_batch.MANY_SWEPT, "elliptic", fewest)
        assert bool(divided(m, SINGLE)[1]) == (fewest == 1)
        sim = Simulation(model, 16, dtype=torch.float64, outputs=("qacc",))
        for k, (qpos, qvel) in enumerate(scattered(model, 16)):
            sim.qpos[k], sim.qvel[k] = torch.from_numpy(qpos), torch.from_numpy(qvel)
        sim.step()
        found.append(sim.qacc)
    assert (found[0] - found[1]).abs().max() < 1e-9 * found[0].abs().max()


@pytest.mark.parametrize("shape", ["box", "sphere", "ellipsoid", "mesh"])
@pytest.mark.parametrize("base", ['mocap="true"', ""])
def test_the_wrench_on_a_fixed_body_that_is_touched_is_about_its_own_centre(shape, base):
    """Of a body that nothing moves, and is not the world: cfrc_ext and the torque sensor on it."""
    other = 'type="mesh" mesh="rock"' if shape == "mesh" else f'type="{shape}" size=".05 .05 .05"'
    model = mujoco.MjModel.from_xml_string(f"""<mujoco>
      <asset><mesh name="rock" vertex="-.05 -.05 -.05 .05 -.05 -.05 0 .06 -.05 0 0 .07 .01 .02 .06"/></asset>
      <worldbody>
        <body name="pedestal" pos=".1 .2 .3" {base}>
          <geom type="{"mesh" if shape == "sphere" else "box"}" {'mesh="rock"' if shape == "sphere" else ""}
            size=".05 .05 .05"/><site name="s"/></body>
        <body pos=".12 .22 .39"><freejoint/><geom {other}/></body>
      </worldbody>
      <sensor><torque site="s"/><force site="s"/></sensor></mujoco>""")
    model.opt.tolerance, model.opt.ccd_tolerance = 1e-20, 1e-12
    data = mujoco.MjData(model)
    data.qpos[2] -= 0.02 if shape in ("sphere", "ellipsoid") else 0.0
    mujoco.mj_forward(model, data)
    assert data.ncon and np.abs(data.cfrc_ext[1, :3]).max() > 0.1
    ours = Simulation(model, 1, dtype=torch.float64, outputs=("cfrc_ext", "sensordata"))
    ours.qpos[0] = torch.from_numpy(data.qpos)
    ours.forward()
    tolerance = 1e-9 if shape == "box" else 1e-5  # of a normal by a search, MuJoCo's own
    scale = np.abs(data.cfrc_ext).max()
    np.testing.assert_allclose(ours.cfrc_ext[0].cpu(), data.cfrc_ext, rtol=0, atol=tolerance * scale)
    np.testing.assert_allclose(ours.sensordata[0].cpu(), data.sensordata, rtol=0, atol=tolerance * scale)


@pytest.mark.parametrize("many", ["batches", "floors", "pools"])
@pytest.mark.parametrize("cone", ["pyramidal", "elliptic"])
def test_loops_soften_what_code_written_out_for_each_pair_softens(cone, many, monkeypatch):
    """Much friction against turning is too stiff for float32; here with its bounds, in float64's numbers."""
    model = heap(7 if many == "floors" else 5, 4, False, cone)
    model.geom_friction[:, 0], model.geom_friction[:, 1] = 0.8, 0.1
    model.geom_friction[[1, 5], 1] = 0.3
    model.geom_solimp[:, :2] = 0.998
    m = load(model)
    bounds = [contact_bound(m, p, SINGLE) for p in m.pairs]
    softened = [bool(x.give or x.slip) for x in bounds]
    assert 3 < sum(softened) < len(softened) and not any(x.spring for x in bounds)
    if many == "pools":
        monkeypatch.setattr(pair_batch, "VERY_MANY", 1)
        monkeypatch.setattr(pair_batch, "MANY", 1)
    states, apart = scattered(model, 3), []
    with unrolling(0 if many == "floors" else unroll_limit()):
        batches, pools = divided(m, SINGLE)
        count = sum(map(len, batches)), sum(len(pairs) for pool in pools for pairs in pool)
        assert count == {"batches": (10, 0), "floors": (21 + 5, 0), "pools": (0, 15)}[many]
        looped = [derive(m, qpos.tolist(), qvel.tolist(), None, [], precision=SINGLE).qacc for qpos, qvel in states]
    monkeypatch.setattr(pair_batch, "_fits_tables", lambda *_: False)
    assert divided(m, SINGLE) == ([], [])
    for (qpos, qvel), found in zip(states, looped, strict=True):
        want = derive(m, qpos.tolist(), qvel.tolist(), None, [], precision=SINGLE).qacc
        np.testing.assert_allclose(found, want, rtol=0, atol=1e-9 * np.abs(want).max())
        hard = derive(m, qpos.tolist(), qvel.tolist(), None, [], precision=DOUBLE).qacc
        apart.append(np.abs(np.subtract(hard, want)).max() / np.abs(want).max())
    assert max(apart) > 1e-7  # it makes a difference
