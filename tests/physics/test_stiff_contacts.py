"""Contacts that are stiffer than rounding bears (`constraints/softening.py`): no friction, or a fixed centre of mass.

MuJoCo's problem is right but for rounding, so the oracle solves it at 50 digits.
"""

from __future__ import annotations

import mujoco
import numpy as np
import oracle
import pytest
import torch

from torch_mjenvs import TASKS
from torch_mjenvs.physics import load
from torch_mjenvs.physics.constraints.batch.pair_batch import batch_pairs
from torch_mjenvs.physics.constraints.cones.pyramid import Pyramid
from torch_mjenvs.physics.constraints.cones.spring_pyramid import SpringPyramid
from torch_mjenvs.physics.constraints.invweight import geom_invweight0
from torch_mjenvs.physics.constraints.softening import contact_bound
from torch_mjenvs.physics.model.precision import PRECISIONS
from torch_mjenvs.physics.pipeline import derive
from torch_mjenvs.physics.simulation import Simulation
from torch_mjenvs.physics.simulation_kernels import precision_of

F32, F64 = torch.float32, torch.float64


def world(bodies: str, friction: float | str, condim: int = 3, option: str = 'timestep=".002"') -> mujoco.MjModel:
    return oracle.sharpen(
        mujoco.MjModel.from_xml_string(f"""<mujoco><option {option}/>
        <default><geom friction="{friction}" condim="{condim}"/></default>
        <worldbody><geom type="plane" size="5 5 1"/>{bodies}</worldbody></mujoco>""")
    )


CAPSULE = '<body pos="0 0 {z}" euler="{turn} 0"><freejoint/><geom type="capsule" size=".05 .2"/></body>'
STACK = "".join(
    f'<body pos="{x} {y} {z}"><freejoint/><geom type="{kind}" size=".1 .05"/></body>'
    for kind, x, y, z in [("capsule", 0, 0, 0.2), ("sphere", 0.05, 0.04, 0.41)]
)


def rod(joint: str, x: float, turn: str, aside: float = 0) -> str:
    """A rod that turns about its middle, low enough to touch the floor, and what hangs on it."""
    ends = f"{aside - 0.2} 0 0 {aside + 0.2} 0 0"
    return f"""<body pos="{x} 0 .15" euler="{turn}"><joint type="{joint}" axis="0 1 .3"/>
        <geom type="capsule" fromto="{ends}" size=".05"/>
        <body pos=".1 0 .05"><joint axis="1 .5 0"/><geom size=".04" pos="0 .05 .1" contype="0" conaffinity="0"/></body>
        </body>"""


def qacc_at(model: mujoco.MjModel, states: list, dtype: torch.dtype, compiled: bool) -> np.ndarray:
    """By a kernel, or with Python's floats or torch tensors, which compiles nothing."""
    if not compiled:
        m = load(model)
        if dtype == F64:
            return np.array([derive(m, qpos.tolist(), qvel.tolist(), None, []).qacc for qpos, qvel in states])
        qpos, qvel = (list(torch.tensor(np.array(x), dtype=dtype).T) for x in zip(*states, strict=True))
        return torch.stack(derive(m, qpos, qvel, None, [], precision_of(dtype)).qacc, 1).double().cpu().numpy()
    sim = Simulation(model, len(states), dtype=dtype, outputs=("qacc",))
    sim.qpos.copy_(torch.tensor(np.array([qpos for qpos, _ in states])))
    sim.qvel.copy_(torch.tensor(np.array([qvel for _, qvel in states])))
    sim.step()  # which leaves those of where it began
    return sim.qacc.double().cpu().numpy()


def check(model: mujoco.MjModel, states: list, dtype: torch.dtype, compiled: bool = False) -> None:
    """Within 3e-8 of the largest acceleration, in float32 5e-3: what softening does, and float32 itself."""
    states = [tuple(x.astype(np.float32).astype(float) for x in state) for state in states]
    exact = np.array([oracle.exact_qacc(model, oracle.forward(model, *s, np.zeros(0))) for s in states])
    error = np.abs(qacc_at(model, states, dtype, compiled) - exact).max(1) / (1 + np.abs(exact).max(1))
    assert error.max() < (3e-8 if dtype == F64 else 5e-3)


def falling(model: mujoco.MjModel, n: int) -> list:
    """States along a fall."""
    rng, d, out = np.random.default_rng(0), mujoco.MjData(model), []
    d.qvel[:] = rng.normal(0, 0.5, model.nv)
    for _ in range(n):
        for _ in range(int(rng.integers(20, 100))):
            mujoco.mj_step(model, d)
        out.append((d.qpos.copy(), d.qvel.copy()))
    assert d.ncon
    return out


@pytest.mark.parametrize("dtype", [F32, F64])
@pytest.mark.parametrize("friction", [0, 1e-4, 1e-3, 1e-2])
def test_accelerations_with_next_to_no_friction(friction, dtype):
    """Between a floor and two bodies, and between these; 0 is mjMINMU, 1e-5."""
    model = world(STACK, friction)
    check(model, falling(model, 6), dtype, compiled=friction == 0)


@pytest.mark.parametrize("dtype", [F32, F64])
@pytest.mark.parametrize(
    ("friction", "condim", "option"),
    [
        ("0 .005 .0001", 4, ""),  # against spinning much more than against sliding
        ("1 .5 .1", 6, ""),  # ... and more than a ball of this size needs
        ("0", 3, 'cone="elliptic"'),
        ("0 .005 .0001", 6, 'cone="elliptic"'),
        ("1 .5 .1", 6, 'cone="elliptic"'),
        ("1", 3, 'cone="elliptic" impratio="1e4"'),
    ],
)
def test_accelerations_with_frictions_of_all_sizes(friction, condim, option, dtype):
    model = world(STACK, friction, condim, f'timestep=".002" {option}')
    check(model, falling(model, 6), dtype)


@pytest.mark.parametrize("dtype", [F32, F64])
@pytest.mark.parametrize(("friction", "condim"), [(0.5, 3), (1, 1), (0, 3)])
def test_accelerations_of_bodies_that_turn_about_their_centre_of_mass(friction, condim, dtype):
    """Their body_invweight0, from which MuJoCo computes D, is (nearly) 0."""
    rods = [rod("hinge", 0, "10 20 0"), rod("hinge", 1, "0 -20 40"), rod("ball", 2, "0 20 0")]
    rods += [rod("hinge", 3, "30 20 0", 1e-7), rod("hinge", 4, "0 0 0", 0.02)]
    model, rng = world("".join(rods), friction, condim), np.random.default_rng(0)
    assert min(model.body_invweight0[1:6:2, 0]) < 1e-15
    states = []
    for _ in range(6):
        qpos = model.qpos0.copy()
        mujoco.mj_integratePos(model, qpos, rng.normal(0, 0.3, model.nv), 1.0)
        states.append((qpos, rng.normal(0, 1, model.nv)))
    assert sum(oracle.forward(model, *s, np.zeros(0)).ncon for s in states) > 6
    check(model, states, dtype)


@pytest.mark.parametrize(("aside", "dtype"), [(1e-5, F32), (1e-4, F32), (1e-5, F64)])
def test_accelerations_of_a_body_that_turns_about_nearly_its_centre_of_mass(aside, dtype):
    model, rng = world(rod("hinge", 0, "10 20 0", aside), 1, condim=1), np.random.default_rng(0)
    check(model, [(rng.normal(0, 0.3, 2), rng.normal(0, 1, 2)) for _ in range(12)], dtype)


@pytest.mark.parametrize("dtype", [F32, F64])
def test_two_bodies_that_turn_about_their_centres_of_mass_touch(dtype):
    """A batch: the loop over these pairs finds in a table how stiff they may be."""
    rods = "".join(rod("hinge", 0.42 * i, f"0 {20 * (-1) ** i} {4 * i}") for i in range(5))
    model = world(f'<body pos="0 0 2">{rods}</body>', 1, condim=1)
    assert model.npair == 0 and len(batch_pairs(load(model), precision_of(dtype))) == 1
    rng = np.random.default_rng(1)
    states = [(rng.normal(0, 0.3, 10), rng.normal(0, 1, 10)) for _ in range(6)]
    assert sum(oracle.forward(model, *s, np.zeros(0)).ncon for s in states) > 4
    check(model, states, dtype)


@pytest.mark.parametrize("friction", [0, 1e-3])
def test_trajectories_of_a_capsule_on_a_slippery_floor(friction):
    """2,000 steps: float64 with MuJoCo's, float32 with float64's, and what friction cannot take it keeps."""
    model = world(CAPSULE.format(z=0.2, turn="20 60"), friction)
    sims = {dtype: Simulation(model, 4, dtype=dtype) for dtype in (F32, F64)}
    qvel = torch.tensor(np.random.default_rng(0).normal(0, 0.3, (4, 6)), dtype=F32, device="cpu")
    d = mujoco.MjData(model)
    d.qvel[:] = qvel[0]
    for sim in sims.values():
        sim.qvel.copy_(qvel)
        sim.step(2000)
    for _ in range(2000):
        mujoco.mj_step(model, d)
    assert np.abs(sims[F64].qpos[0].cpu().numpy() - d.qpos).max() < 1e-8
    assert (sims[F32].qpos.double() - sims[F64].qpos).abs().max() < 1e-3
    lost = (sims[F32].qvel[:, :2].cpu() - qvel[:, :2]).norm(dim=1)
    weight = float(np.abs(model.opt.gravity[2])) * 2000 * model.opt.timestep
    assert lost.max() < 1.5 * max(friction, 1e-5) * weight + 1e-4  # landing adds to the normal's force


def test_on_a_gentle_slope_friction_holds():
    """It creeps down as slowly as in MuJoCo, where friction is a damping: softer tangents let it slide."""
    feet = "".join(f'<geom size=".05" pos="{x} {y} -.1"/>' for x in (-0.3, 0.3) for y in (-0.2, 0.2))
    slope = 'timestep=".002" gravity=".0049 0 -9.81"'
    model = world(f'<body pos="0 0 .15"><freejoint/>{feet}</body>', 1e-3, option=slope)
    sim, d = Simulation(model, 1), mujoco.MjData(model)
    sim.step(1000)
    for _ in range(1000):
        mujoco.mj_step(model, d)
    assert sim.qvel[0, 0].item() == pytest.approx(d.qvel[0], rel=0.01)
    assert 0 < d.qvel[0] < 2e-6


@pytest.mark.slow
@pytest.mark.parametrize("friction", [0, 1e-3])
def test_a_humanoid_without_friction_falls_and_lies_still(friction):
    model = mujoco.MjModel.from_xml_path(str(oracle.ASSETS / "humanoid.xml"))
    model.geom_friction[:] = friction
    sims = {dtype: Simulation(oracle.sharpen(model), 4, dtype=dtype) for dtype in (F32, F64)}
    qvel = torch.tensor(np.random.default_rng(0).normal(0, 0.5, (4, model.nv)), dtype=F32)
    for sim in sims.values():
        sim.qvel.copy_(qvel)
        sim.step(2000)
        height, speed = sim.qpos[:, 2], sim.qvel[:, 2:].abs()
        assert height.min() > 0.05 and height.max() < 0.3 and speed.max() < 1
    d = mujoco.MjData(model)
    d.qvel[:] = qvel[0]
    for _ in range(2000):
        mujoco.mj_step(model, d)
    assert np.abs(sims[F64].qpos[0].cpu().numpy() - d.qpos).max() < 1e-7
    assert (sims[F32].qpos.double() - sims[F64].qpos).abs().max(1)[0].median() < 1e-2


# -- The algebra -------------------------------------------------------------------------------------------------------


def residuals(n: int, condim: int) -> list[list[float]]:
    rng = np.random.default_rng(0)
    normal = 0.02 if condim == 3 else 0.06
    return [(rng.normal(0, 1, condim) * [normal, 1, *rng.choice([0, 0.1, 1], condim - 2)]).tolist() for _ in range(n)]


FRICTIONS = [[0.02, 0.02], [0.02, 0.03, 0.01, 0.004, 0.03]]


def test_an_endless_spring_changes_nothing():
    for friction in FRICTIONS:
        for y in residuals(50, len(friction) + 1):
            with_spring, without = SpringPyramid(friction, 7.0, 1e14).push(y), Pyramid(friction, 7.0).push(y)
            for x, expected in zip(with_spring, without, strict=True):
                np.testing.assert_allclose(x, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("friction", FRICTIONS)
def test_the_spring_and_the_rows_are_in_balance(friction):
    """Force and stiffness are the first and second derivative of the least energy of rows and spring together."""
    spring, row, n = 300.0, 2000.0, len(friction) + 1
    pyramid, seen = SpringPyramid(friction, row, spring), set()

    def energy(y: list[float]) -> float:
        def of(z: float) -> float:
            rows = [z + s for mu, t in zip(friction, y[1:], strict=True) for s in (mu * t, -mu * t)]
            return 0.5 * row * sum(min(0.0, e) ** 2 for e in rows) + 0.5 * spring * (z - y[0]) ** 2

        low, high = y[0] - 1, y[0] + 1
        for _ in range(100):  # (2/3)^100 is 2e-18
            a, b = low + (high - low) / 3, high - (high - low) / 3
            low, high = (low, b) if of(a) < of(b) else (a, high)
        return of(low)

    for y in residuals(240 // n, n):
        pressed = pyramid.pressed(y)
        seen.add(sum(pressed))
        force, weight = pyramid.push_of(y, pressed)
        for k in range(n):
            step = np.eye(n)[k] * 1e-5
            slope = (energy((y + step).tolist()) - energy((y - step).tolist())) / 2e-5
            assert abs(slope + force[k]) < 1e-6
            forces = [pyramid.push_of((y + x).tolist(), pressed)[0] for x in (step, -step)]
            change = [(b - a) / 2e-5 for a, b in zip(*forces, strict=True)]
            np.testing.assert_allclose(change, weight[k], atol=1e-6)
    assert seen >= {0, 1, 2, 4}


def test_how_easily_a_surface_gives_way():
    """By MuJoCo's Jacobian and inertia."""
    model = oracle.asset("ant")
    m, d = load(model), mujoco.MjData(model)
    mujoco.mj_forward(model, d)
    for g in range(1, model.ngeom):
        found, (radius, half, _), axes = [], model.geom_size[g], d.geom_xmat[g].reshape(3, 3).T
        half *= model.geom_type[g] == mujoco.mjtGeom.mjGEOM_CAPSULE
        for end in (half, -half):
            for out in (axes[0], -axes[0], axes[1], -axes[1]):
                jacobian, moved = np.zeros((3, model.nv)), np.zeros((3, model.nv))
                point = d.geom_xpos[g] + end * axes[2] + radius * out
                mujoco.mj_jac(model, d, jacobian, None, point, model.geom_bodyid[g])
                mujoco.mj_solveM(model, d, moved, jacobian)
                found.append((jacobian * moved).sum() / 3)
        assert geom_invweight0(m)[g] == pytest.approx(np.mean(found), rel=1e-12)


@pytest.mark.parametrize("dtype", [F32, F64])
def test_a_light_wheel_does_not_make_the_contact_soft(dtype):
    """Its surface gives way at a touch, but it is the car that the floor holds up."""
    wheel = '<body pos="0 {y} 0"><joint axis="0 1 0"/><geom size=".05" mass="1e-6"/></body>'
    car = '<freejoint/><geom type="capsule" size=".05 .1" mass="1" pos="0 0 .2"/>'
    model = world(f'<body pos="0 0 .0495">{car}{wheel.format(y=0.2)}{wheel.format(y=-0.2)}</body>', 1)
    m, precision = load(model), precision_of(dtype)
    assert geom_invweight0(m)[2] > 1e3 * model.body_invweight0[2, 0] > 0
    for pair in m.pairs:
        bound = contact_bound(m, pair, precision)
        assert not bound.give and not bound.spring


def test_no_task_has_such_contacts():
    """So no task pays for the softening."""
    for task in TASKS.values():
        m = load(task().load())
        for precision in PRECISIONS.values():
            assert not any(contact_bound(m, pair, precision).needs_refinement for pair in m.pairs)


def test_accelerations_of_a_light_finger():
    """Rounding of the forces of one large Newton step is 5e-12 of its acceleration, and gone by another."""
    bodies = """<body pos="0 0 .4"><joint axis="0 1 0"/><geom type="capsule" fromto="0 0 0 .3 0 0" size=".02"/>
      <body pos=".3 0 0"><joint axis="0 1 0"/><geom type="capsule" fromto="0 0 0 .2 0 -.2" size=".02"/>
      <body pos=".2 0 -.2"><joint axis="0 1 0"/><geom type="capsule" fromto="0 0 0 0 0 -.15" size=".01"/>
      <body pos="0 0 -.16"><joint axis="0 1 0"/><geom size=".01" pos=".005 0 -.03" mass="1e-4"/></body>
      </body></body></body>"""
    mjm = world(bodies, 0.7, option='timestep=".001" cone="elliptic"')
    m, touching = load(mjm), 0
    for qpos, qvel in oracle.scattered(mjm, 100, 0.2, (3.0,)):
        d = oracle.forward(mjm, qpos, qvel, np.zeros(0))
        touching += d.ncon > 0
        ours = derive(m, qpos.tolist(), qvel.tolist(), None, [])
        np.testing.assert_allclose(ours.qacc, d.qacc, rtol=0, atol=5e-13 * np.abs(d.qacc).max())
    assert touching > 40
