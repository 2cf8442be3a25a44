"""Simulation against mj_step and mj_forward: states, accelerations, constraint forces and every output.

The bounds are relative to the largest entry of a field over all states, or to 1.
"""

from __future__ import annotations

import copy
import functools
import pickle

import mujoco
import numpy as np
import oracle
import pytest
import torch

from torch_mjenvs.physics import State, load, step
from torch_mjenvs.physics.model.model import UnsupportedModel
from torch_mjenvs.physics.model.precision import DOUBLE, SINGLE
from torch_mjenvs.physics.pipeline import OF_SENSORS, derive
from torch_mjenvs.physics.simulation import Simulation
from torch_mjenvs.physics.simulation_kernels import OUTPUTS

MODELS = ("half_cheetah", "walker2d_v5", "hopper", "ant")
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-4}
NAMES = tuple(name for name in OUTPUTS if name not in OF_SENSORS)  # these: test_sensors.py
UNUSED = {"crb": 1}  # its first row is the world's
# Small random models that between them have every joint, geom and integrator; the first has no dof at all.
RANDOM = (
    1, 3, 8, 11, 14, 21, 25, 29, 33, 36, 118, 45, 47, 49, 51,
    54, 61, 63, 183, 70, 73, 74, 78, 79, 80, 81, 84, 90, 91, 97,
)  # fmt: skip


@functools.cache
def states(name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """qpos, qvel, ctrl, (n, ...) each."""
    n = 8 if name.startswith("random") else 24
    return tuple(np.stack(x) for x in zip(*oracle.states(name, n, seed=1), strict=True))  # type: ignore[return-value]


def simulation(name: str, dtype: torch.dtype = torch.float64, outputs: tuple[str, ...] = NAMES) -> Simulation:
    """A simulation in these states, its outputs filled with NaN."""
    qpos, qvel, ctrl = states(name)
    sim = Simulation(oracle.model(name), len(qpos), dtype=dtype, outputs=outputs)
    for x in outputs:
        getattr(sim, x).fill_(float("nan"))
    put(sim, qpos, qvel, ctrl)
    return sim


def put(sim: Simulation, qpos: np.ndarray, qvel: np.ndarray, ctrl: np.ndarray) -> None:
    for x, value in ((sim.qpos, qpos), (sim.qvel, qvel), (sim.ctrl, ctrl), (sim.qacc_warmstart, 0 * qvel)):
        x.copy_(torch.tensor(value))


def expected(name: str, stepping: bool) -> dict[str, np.ndarray]:
    """What MuJoCo C computes for these states."""
    mjm = oracle.model(name)
    out: dict[str, list] = {k: [] for k in (*NAMES, "qpos", "qvel")}
    for state in zip(*states(name), strict=True):
        d = mujoco.MjData(mjm)
        d.qpos[:], d.qvel[:], d.ctrl[:] = state
        (mujoco.mj_step if stepping else mujoco.mj_forward)(mjm, d)
        mujoco.mj_rnePostConstraint(mjm, d)
        mujoco.mj_subtreeVel(mjm, d)
        for k in out:
            out[k].append(oracle.field(mjm, d, k).copy())
    return {k: np.stack(v) for k, v in out.items()}


def error(got: torch.Tensor, want: np.ndarray) -> float:
    difference = np.abs(got.cpu().numpy().astype(np.float64).reshape(want.shape) - want)
    return float(np.max(difference, initial=0.0) / max(1.0, np.max(np.abs(want), initial=0.0)))


def compare(sim: Simulation, want: dict[str, np.ndarray], fields: tuple[str, ...], tolerance: float) -> None:
    for k in fields:
        got, wanted = getattr(sim, k), want[k]
        if skip := UNUSED.get(k, 0):
            got, wanted = got[:, skip:], wanted[:, skip:]
        e = error(got, wanted)
        assert e < tolerance, f"{k}: relative error {e:.1e}"


def test_the_states_are_worth_it():
    """On the ground, at a limit, in the air; contacts of every kind of pair."""
    limit, contact = mujoco.mjtConstraint.mjCNSTR_LIMIT_JOINT, mujoco.mjtConstraint.mjCNSTR_CONTACT_PYRAMIDAL
    pairs, kinds = set(), set()
    for name in (*MODELS, *(f"random-{s}" for s in RANDOM)):
        mjm, rows = oracle.model(name), []
        for state in zip(*states(name), strict=True):
            d = oracle.forward(mjm, *state)
            kinds |= set(d.efc_type.tolist())
            rows.append(d.nefc)
            pairs |= {tuple(mjm.geom_type[c.geom].tolist()) for c in d.contact}
        assert name not in MODELS or (min(rows) == 0 and max(rows) >= 4)
    assert kinds == {int(limit), int(contact)}
    plane, sphere, capsule = 0, 2, 3
    wanted = {(plane, sphere), (plane, capsule), (sphere, sphere), (sphere, capsule), (capsule, capsule)}
    assert wanted == pairs


@pytest.mark.parametrize("name", MODELS)
def test_steps_are_mujocos(name):
    sim, want = simulation(name), expected(name, stepping=True)
    sim.step()
    compare(sim, want, ("qpos", "qvel", *NAMES), TOLERANCE[torch.float64])


@pytest.mark.parametrize("name", MODELS)
def test_forward_is_mujocos_and_changes_no_state(name):
    sim, want = simulation(name), expected(name, stepping=False)
    before = [x.clone() for x in (sim.qpos, sim.qvel, sim.qacc_warmstart, sim.ctrl)]
    sim.forward()
    compare(sim, want, NAMES, TOLERANCE[torch.float64])
    for x, was in zip((sim.qpos, sim.qvel, sim.qacc_warmstart, sim.ctrl), before, strict=True):
        assert torch.equal(x, was)


@pytest.mark.parametrize("name", MODELS)
def test_float32_steps_are_mujocos_to_rounding(name):
    sim, want = simulation(name, torch.float32), expected(name, stepping=True)
    sim.step()
    compare(sim, want, ("qpos",), 1e-6)
    compare(sim, want, ("qvel",), 3e-5)
    sim = simulation(name, torch.float32)
    sim.forward()
    compare(sim, expected(name, stepping=False), NAMES, TOLERANCE[torch.float32])


@pytest.mark.parametrize("seed", RANDOM)
def test_forward_of_random_models(seed):
    """With Python floats, which need no compiler. Kernels of random models: test_random_models.py."""
    name = f"random-{seed}"
    m, want = load(oracle.model(name)), expected(name, stepping=False)
    found = [derive(m, q.tolist(), v.tolist(), None, u.tolist()) for q, v, u in zip(*states(name), strict=True)]
    for field in ("qacc", "qfrc_smooth", "qfrc_constraint", "cfrc_ext"):
        e = error(torch.tensor([getattr(d, field) for d in found], dtype=torch.float64), want[field])
        assert e < 1e-11, f"{field}: relative error {e:.1e}"


ARENA = """<mujoco><option timestep="0.004"/><worldbody>
    <geom type="plane" size="5 5 1" pos="{x} {y} {z}" quat="1 .05 .02 0"/>
    <body pos="{x} {y} {z}"><geom size=".1" pos="0 0 .6"/>
      <body pos=".2 0 .6"><geom size=".05" pos="0 0 .1"/>
        <body pos=".2 .1 0"><joint axis="0 1 0" pos="-.05 0 0" stiffness="3"/><joint axis="1 0 0"/>
          <geom type="capsule" fromto="0 0 0 .1 .2 -.5" size=".05"/>
          <body pos=".1 .2 -.5"><joint type="ball"/><geom type="capsule" fromto="0 0 0 .1 .2 -.1" size=".04"/></body>
        </body></body>
      <body pos="-.3 0 .7"><joint axis="1 1 0"/><geom type="capsule" fromto="0 0 0 .1 .2 -.65" size=".05"/></body>
      <body pos="0 -.3 .3"><joint type="slide" axis="1 0 0"/><geom size=".1"/>
        <body pos="0 -.2 0"><joint axis="0 0 1" damping=".1"/><geom type="capsule" size=".05 .2"/></body></body>
    </body></worldbody></mujoco>"""


def test_what_hangs_on_a_static_body_is_as_precise_anywhere():
    """In float32, whether its static root is at the world's origin or a kilometre away."""
    near = oracle.sharpen(mujoco.MjModel.from_xml_string(ARENA.format(x=0, y=0, z=0)))
    rng, d, starts = np.random.default_rng(0), mujoco.MjData(near), []
    for _ in range(16):
        mujoco.mj_resetData(near, d)
        mujoco.mj_integratePos(near, d.qpos, rng.normal(0, 0.3, near.nv), 1.0)
        d.qvel[:] = rng.normal(0, 1, near.nv)
        mujoco.mj_step(near, d, 20)
        starts.append([x.astype(np.float32) for x in (d.qpos, d.qvel)])
    touching, want = 0, []
    for qpos, qvel in starts:
        mujoco.mj_resetData(near, d)
        d.qpos[:], d.qvel[:] = qpos, qvel
        mujoco.mj_step(near, d)
        want.append(d.qvel.copy())
        touching += d.ncon > 0
    assert touching > 4
    state = [[torch.tensor(column) for column in np.stack(x).T] for x in zip(*starts, strict=True)]
    for far in (0, 3, 100, 1000):
        m = load(ARENA.format(x=far, y=-0.7 * far, z=0.2 * far))
        got = step(m, State(*state, [torch.zeros(16)] * m.nv), [], precision=SINGLE)
        assert error(torch.stack(got.qvel, 1), np.stack(want)) < 1e-5, f"{far} m away"


ARM = '<body pos="{} .4"><joint axis="{}"/><geom type="capsule" fromto="0 0 0 .3 .1 -.45" size=".05"/>{}</body>'
GROUND = '<geom size=".5" pos="-.5 0 -.45"/>'
STATIC = {
    "a static root": f'<body pos="1 .2 0">{GROUND}</body>',
    "a static body on a static root": f"""<body pos="1 .2 .3"><geom size=".1"/>
        <body pos=".1 -.1 -.3">{GROUND}</body></body>""",
    "a static root with a moving body": f'<body pos="1 .2 0">{GROUND}{ARM.format("0 0", "0 1 0", "")}</body>',
    "bodies that move on one static root": f"""<body pos="1 .2 0">{GROUND}
        {ARM.format(".1 0", "0 1 0", '<body pos=".2 0 0"><geom size=".1"/></body>')}{ARM.format(".3 .1", "1 0 0", "")}
        </body>""",
}


@pytest.mark.parametrize("case", STATIC)
def test_contact_forces_on_bodies_without_joints(case):
    """cfrc_ext of static bodies and of welded ones, about the right point, and what else is relative to a tree."""
    mjm = oracle.sharpen(
        mujoco.MjModel.from_xml_string(f"""<mujoco><worldbody>{STATIC[case]}
        <body pos=".5 .1 .12"><freejoint/><geom size=".1"/><body pos=".2 0 0"><geom size=".1"/></body></body>
        </worldbody></mujoco>""")
    )
    m, seen = load(mjm), 0
    d = mujoco.MjData(mjm)
    d.qvel[:] = np.random.default_rng(0).normal(0, 0.3, mjm.nv)
    for _ in range(8):
        mujoco.mj_step(mjm, d, 20)
        state = d.qpos.tolist(), d.qvel.tolist()
        mujoco.mj_forward(mjm, d)
        mujoco.mj_rnePostConstraint(mjm, d)
        ours = derive(m, *state, None, [])
        for name in ("cfrc_ext", "subtree_com", "cinert", "cvel", "cdof", "cdof_dot"):
            want = np.asarray(getattr(d, name))
            got = np.array(getattr(ours, name), dtype=float).reshape(want.shape)
            np.testing.assert_allclose(got, want, rtol=0, atol=1e-10 * max(1, np.max(np.abs(want))), err_msg=name)
        seen += bool(np.any(d.cfrc_ext[mjm.body_weldid == 0]))
    assert seen > 2


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_capsules_that_cross_in_one_plane(dtype):
    """Where the axes meet, their distance is only float32's rounding, whose direction must not become the normal."""
    rod = """<body><joint axis="0 1 0"/><joint type="slide" axis="1 0 0" damping="1"/>
        <geom type="capsule" size=".05" fromto="{0} 0 {1} -{0} 0 -{1}"/></body>"""
    xml = f"<mujoco><worldbody>{rod.format(0.1, 0.4)}{rod.format(0.4, 0.1)}</worldbody></mujoco>"
    mjm = oracle.sharpen(mujoco.MjModel.from_xml_string(xml))
    rng = np.random.default_rng(0)
    qpos, qvel = rng.normal(0, 0.2, (64, 4)), rng.normal(0, 1, (64, 4))
    sim, crossed = Simulation(mjm, 64, dtype=dtype), 0
    put(sim, qpos, qvel, np.zeros((64, 0)))
    sim.step(10)
    for k in range(64):
        crossed += any(c.dist < -0.0999 for c in oracle.forward(mjm, qpos[k], qvel[k], np.zeros(0)).contact)
        d = mujoco.MjData(mjm)
        d.qpos[:], d.qvel[:] = qpos[k], qvel[k]
        mujoco.mj_step(mjm, d, 10)
        assert max(error(sim.qpos[k], d.qpos), error(sim.qvel[k], d.qvel)) < 10 * TOLERANCE[dtype]
    assert crossed > 40


def integrator_of(name: str, integrator: str, damping: bool) -> mujoco.MjModel:
    mjm = oracle.sharpen(mujoco.MjModel.from_xml_path(str(oracle.ASSETS / f"{name}.xml")))
    mjm.opt.integrator = getattr(mujoco.mjtIntegrator, f"mjINT_{integrator}")
    if not damping:
        mjm.dof_damping[:] = 0
    return mjm


@pytest.mark.parametrize("damping", [True, False])
@pytest.mark.parametrize("integrator", ["EULER", "RK4"])
@pytest.mark.parametrize("name", ["hopper", "ant"])
def test_integrators_are_mujocos(name, integrator, damping):
    """... over ten steps, in which an error of the integrator would add up."""
    mjm = integrator_of(name, integrator, damping)
    qpos, qvel, ctrl = (x[:6] for x in states(name))
    sim = Simulation(mjm, len(qpos), dtype=torch.float64)
    put(sim, qpos, qvel, ctrl)
    sim.step(10)
    for k in range(len(qpos)):
        d = mujoco.MjData(mjm)
        d.qpos[:], d.qvel[:], d.ctrl[:] = qpos[k], qvel[k], ctrl[k]
        mujoco.mj_step(mjm, d, 10)
        assert error(sim.qpos[k], d.qpos) < 1e-10 and error(sim.qvel[k], d.qvel) < 1e-9


SPINNING = """<mujoco><option timestep=".01" integrator="RK4"/><worldbody>
  <body><joint type="ball"/><geom type="capsule" size=".1 .2" pos=".1 .1 .2"/></body>
  <body pos="2 0 0"><freejoint/><geom type="capsule" size=".1 .2" pos=".1 .1 .2"/></body>
</worldbody></mujoco>"""


@pytest.mark.parametrize("speed", [280, 290, 330, 620, 640, 900])
def test_more_than_half_a_turn_in_a_stage_of_runge_kutta_is_a_turn_the_shorter_way(speed):
    """MuJoCo's stages know orientations alone, which do not tell a turn from none; pi is 314 rad/s here."""
    mjm = oracle.sharpen(mujoco.MjModel.from_xml_string(SPINNING))
    sim = Simulation(mjm, 1, dtype=torch.float64)
    d = mujoco.MjData(mjm)
    d.qvel[:3] = speed * np.array([0.6, 0.8, 0])
    d.qvel[6:] = speed * np.array([0.0, 0.28, 0.96])
    sim.qvel.copy_(torch.tensor(d.qvel))
    sim.step()
    mujoco.mj_step(mjm, d)
    assert error(sim.qpos[0], d.qpos) < 1e-12 and error(sim.qvel[0], d.qvel) < 1e-10


FALLING = """<mujoco><option timestep="0.004" {option}/><worldbody><geom type="plane" size="5 5 1"/>
    <body pos="0 0 .4"><freejoint/><geom type="capsule" size=".1 .2" quat="1 .3 .2 .1"/>
      <body pos="0 .1 .2"><joint name="ball" type="ball" {ball}/><geom type="capsule" size=".05 .2"/>
        <body pos="0 0 .3"><joint name="hinge" axis="0 1 0" range="-1 .2" limited="true" {hinge}/>
          <geom size=".1" pos=".1 0 .1"/></body></body></body></worldbody></mujoco>"""


def falling(option: str = "", ball: str = "", hinge: str = "") -> mujoco.MjModel:
    return oracle.sharpen(mujoco.MjModel.from_xml_string(FALLING.format(option=option, ball=ball, hinge=hinge)))


def follow(mjm: mujoco.MjModel, ours: mujoco.MjModel, start: list, nstep: int, bound: float) -> None:
    """Our floats against MuJoCo's, from qpos `start`, over some steps."""
    m, d = load(ours), mujoco.MjData(mjm)
    d.qpos[:], d.qvel[:] = start, np.random.default_rng(0).normal(0, 1, mjm.nv)
    state = State(d.qpos.tolist(), d.qvel.tolist(), [0.0] * m.nv)
    for _ in range(nstep):
        state = step(m, state, [0.0] * m.nu)
        mujoco.mj_step(mjm, d)
    np.testing.assert_allclose(state.qpos, d.qpos, rtol=0, atol=bound * max(1, np.max(np.abs(d.qpos))))
    np.testing.assert_allclose(state.qvel, d.qvel, rtol=0, atol=bound * max(1, np.max(np.abs(d.qvel))))


@pytest.mark.parametrize("ball", ["0", "-.02", ".02"])
@pytest.mark.parametrize("hinge", ["0", "-.1", ".1"])
def test_negative_damping_is_implicit_only_beside_positive(ball, hinge):
    mjm = falling(ball=f'damping="{ball}"', hinge=f'damping="{hinge}"')
    follow(mjm, mjm, mjm.qpos0.tolist(), 5, 1e-12)


@pytest.mark.parametrize("integrator", ["Euler", "RK4"])
def test_damping_is_explicit_where_the_flag_says_so(integrator):
    flag = f'integrator="{integrator}"><flag eulerdamp="disable"/></option><option'
    mjm = falling(option=flag, ball='damping=".3"', hinge='damping=".5"')
    assert mjm.opt.disableflags
    follow(mjm, mjm, mjm.qpos0.tolist(), 30, 1e-12)


@pytest.mark.parametrize("iterations", [0, 1, 3, 100])
def test_the_search_converges_whatever_the_file_says(iterations):
    """MuJoCo stops at the file's iterations and tolerances; the solver here does not."""
    told = falling()
    told.opt.iterations = told.opt.ls_iterations = iterations
    told.opt.tolerance, told.opt.ls_tolerance = 0.1, 0.9
    follow(falling(), told, told.qpos0.tolist(), 60, 1e-9)
    assert load(told) == load(falling())


@pytest.mark.parametrize("integrator", ["Euler", "RK4"])
@pytest.mark.parametrize("size", [0.0, 1e-30, 1e-16, 1e-12, 1e-3, 1e4])
def test_quaternions_of_any_length(size, integrator):
    """MuJoCo takes one shorter than mjMINVAL for the identity, and makes all others unit quaternions, as it goes on."""
    mjm = falling(f'integrator="{integrator}"')
    start = mjm.qpos0.copy()
    start[3:7] = size * np.array([0.5, 0.1, -0.7, 0.5])
    start[7:11] = size * np.array([-0.5, 0.1, 0.7, 0.5])
    follow(mjm, mjm, start.tolist(), 1, 1e-12)
    follow(mjm, mjm, start.tolist(), 5, 1e-10)


GIMBAL = """<mujoco><option timestep="0.004" integrator="{integrator}"/><worldbody><body>
    <joint axis="1 0 0" {damping}/><joint axis="0 1 0" {damping}/><joint axis="1 0 0" {damping}/>
    <geom size=".1" pos=".3 .1 0"/></body></worldbody></mujoco>"""


@pytest.mark.parametrize("damping", ["", 'damping=".01"'])
@pytest.mark.parametrize("integrator", ["Euler", "RK4"])
def test_gimbal_lock_at_the_start(integrator, damping):
    """M is singular there to the last bit: accelerations are finite, and MuJoCo's in what they do to the body."""
    mjm = oracle.sharpen(mujoco.MjModel.from_xml_string(GIMBAL.format(integrator=integrator, damping=damping)))
    sim = Simulation(mjm, 1, dtype=torch.float64, outputs=("qacc", "qacc_smooth"))
    sim.forward()
    d = mujoco.MjData(mjm)
    mujoco.mj_forward(mjm, d)
    for got in (sim.qacc[0].cpu().numpy(), sim.qacc_smooth[0].cpu().numpy()):
        assert abs(got[1] - d.qacc[1]) < 1e-9 and abs(got[0] + got[2] - d.qacc[0] - d.qacc[2]) < 1e-9
    sim.step()
    assert sim.qpos.isfinite().all() and sim.qvel.isfinite().all()


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_a_spoilt_warm_start_is_not_kept(dtype):
    """The solution does not depend on it, so a world recovers from one that is not a number, or far out."""
    mjm = falling()
    spoilt = [0.0, float("nan"), float("inf"), -float("inf"), 1e11, 1e8]
    sim = Simulation(mjm, len(spoilt), dtype=dtype, outputs=("qacc",))
    sim.qpos[:, 2] = 0.25  # on the floor
    for k, x in enumerate(spoilt):
        sim.qacc_warmstart[k, k:] = x
    sim.forward()
    assert error(sim.qacc, sim.qacc[:1].double().cpu().numpy().repeat(len(spoilt), 0)) < 10 * TOLERANCE[dtype]
    sim.step(3)
    assert sim.qvel.isfinite().all() and sim.qacc_warmstart.isfinite().all()


def test_empty_outputs_have_mujoco_s_shapes():
    for xml in ("<mujoco/>", "<mujoco><worldbody><body><joint/><geom size='1'/></body></worldbody></mujoco>"):
        mjm = mujoco.MjModel.from_xml_string(xml)
        d = mujoco.MjData(mjm)
        sim = Simulation(mjm, 2, outputs=NAMES)
        for name in NAMES:
            assert getattr(sim, name).shape[1:] == oracle.field(mjm, d, name).shape, name
        sim.step()
        sim.forward()


WEIGHTS = {
    "stack": """<geom type="plane" size="5 5 1"/>
        <body pos="0 0 .1"><freejoint/><geom size=".1" mass="{0}"/></body>
        <body pos="0.001 0 .299"><freejoint/><geom size=".1" mass="{1}"/></body>""",
    "arm": """<body pos="0 0 2"><joint axis="0 1 0" damping=".01"/>
        <geom type="capsule" fromto="0 0 0 .3 0 0" size=".04" mass="{0}"/>
        <body pos=".3 0 0"><joint axis="0 1 0"/><joint axis="1 0 0"/>
          <geom type="capsule" fromto="0 0 0 .3 .1 0" size=".04" mass="{1}"/></body></body>""",
    "free": """<geom type="plane" size="5 5 1"/><body pos="0 0 .05"><freejoint/>
        <geom type="capsule" fromto="0 0 0 .3 0 0" size=".05" mass="{0}"/>
        <body pos=".3 0 0"><joint axis="0 1 0"/>
          <geom type="capsule" fromto="0 0 0 .3 .1 0" size=".04" mass="{1}"/></body></body>""",
}


@pytest.mark.parametrize(
    ("case", "masses", "bound32", "bound64"),
    [
        ("stack", (1, 1e6), 2e-6, 1e-13),
        ("stack", (1e6, 1), 2e-6, 1e-13),
        ("arm", (1, 1e6), 4e-6, 1e-13),
        ("arm", (1e6, 1), 4e-6, 1e-13),
        ("free", (1e4, 1), 1e-5, 1e-13),
        ("free", (1, 100), 3e-4, 1e-11),
        ("free", (1, 1e4), 0.5, 1e-8),
    ],
)
def test_heavy_on_light_and_light_on_heavy(case, masses, bound32, bound64):
    """The table in docs/limits.md."""
    mjm = oracle.sharpen(
        mujoco.MjModel.from_xml_string(f"<mujoco><worldbody>{WEIGHTS[case].format(*masses)}</worldbody></mujoco>")
    )
    d, rng, starts, want = mujoco.MjData(mjm), np.random.default_rng(0), [], []
    for _ in range(24):
        mujoco.mj_resetData(mjm, d)
        d.qvel[:] = rng.normal(0, 0.3, mjm.nv)
        mujoco.mj_step(mjm, d, int(rng.integers(0, 60)))
        starts.append([x.astype(np.float32) for x in (d.qpos, d.qvel)])
        mujoco.mj_resetData(mjm, d)
        d.qpos[:], d.qvel[:] = starts[-1]
        mujoco.mj_step(mjm, d)
        want.append(d.qvel.copy())
    m = load(mjm)
    for dtype, precision, bound in ((torch.float32, SINGLE, bound32), (torch.float64, DOUBLE, bound64)):
        qpos, qvel = ([torch.tensor(c, dtype=dtype) for c in np.stack(x).T] for x in zip(*starts, strict=True))
        got = step(m, State(qpos, qvel, [torch.zeros(24, dtype=dtype)] * m.nv), [], precision=precision)
        assert (torch.stack(got.qvel, 1).double().cpu() - torch.tensor(np.stack(want)).cpu()).abs().max() < bound


# many steps


def test_nstep_is_that_many_steps():
    one, many = simulation("hopper", outputs=("xpos",)), simulation("hopper", outputs=("xpos",))
    many.step(7)
    for _ in range(7):
        one.step()
    for x, y in zip(state_of(one), state_of(many), strict=True):
        assert torch.equal(x, y)
    assert torch.equal(one.xpos, many.xpos)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("name", MODELS)
def test_a_thousand_steps(name, dtype):
    """Under random torques: no world falls through the floor, flies off or stops being a number."""
    sim = Simulation(oracle.model(name), 64, dtype=dtype)
    generator = torch.Generator().manual_seed(0)
    for _ in range(50):
        sim.ctrl.copy_(torch.rand(sim.ctrl.shape, generator=generator, device="cpu") * 2 - 1)
        sim.step(20)
    assert sim.qpos.isfinite().all() and sim.qvel.isfinite().all()
    assert sim.qvel.abs().max() < 200
    frozen = [
        oracle.forward(oracle.model(name), *(x[k].double().cpu().numpy() for x in (sim.qpos, sim.qvel, sim.ctrl)))
        for k in range(64)
    ]
    assert min(c.dist for d in frozen for c in d.contact) > -0.1
    assert min(d.xipos[1:, 2].min() for d in frozen) > 0 and max(d.xipos[1:, 2].max() for d in frozen) < 4


def state_of(sim: Simulation) -> list[torch.Tensor]:
    return [sim.qpos, sim.qvel, sim.qacc_warmstart]


def bits(x: torch.Tensor) -> torch.Tensor:
    return x.contiguous().view(torch.int64 if x.dtype == torch.float64 else torch.int32)


STATEFUL = """
<mujoco>
  <option timestep="0.01"/>
  <worldbody>
    <geom type="plane" size="5 5 1"/>
    <body name="hand" mocap="true" pos="0 0 0.5"/>
    <body name="ball" pos="0 0 0.12"><freejoint/><geom size="0.1"/></body>
    <body pos="1 0 1">
      <joint name="a" axis="0 1 0" stiffness="9" springyield="0.05"/>
      <geom size="0.1" pos="0 0 -0.5"/>
    </body>
  </worldbody>
  <equality><weld name="grip" body1="hand" body2="ball" active="false"/></equality>
  <actuator>
    <motor joint="a" delay="0.03" nsample="5"/>
    <general joint="a" dyntype="integrator" gainprm="3" biastype="affine" biasprm="0 -3 -0.1"/>
  </actuator>
  <sensor><clock name="clock"/></sensor>
</mujoco>
"""


def test_a_loaded_state_is_continued_bit_for_bit():
    """With all that a step reads: in the same worlds, in new ones, and by worlds that take the state of others."""
    arguments = {"outputs": ("sensordata",), "vary": ("body_mass",), "inputs": ("eq_active", "xfrc_applied")}
    sim = Simulation(STATEFUL, 6, **arguments)
    rng = torch.Generator(device="cpu").manual_seed(0)

    def draw(x: torch.Tensor) -> torch.Tensor:
        return torch.rand(x.shape, generator=rng, device="cpu").to(x)

    sim.params["body_mass"].mul_(0.5 + draw(sim.params["body_mass"]))
    for x in (sim.ctrl, sim.mocap_pos, sim.xfrc_applied[:, 2:]):
        x.add_(draw(x))
    sim.eq_active[::2] = 1.0
    sim.step(30)
    assert all(x.any() for x in (sim.act, sim.plastic, sim.history, sim.time))
    state, address = sim.state_dict(), sim.qpos.data_ptr()
    sim.step(20)
    end = sim.state_dict()
    other = Simulation(STATEFUL, 6, **arguments)
    for again in (sim, other):
        again.reset()
        again.set_params({"body_mass": again.params["body_mass"] * 2.0})
        again.load_state_dict(state)
        assert all(x.equal(state[name]) for name, x in again.state_dict().items())
        again.step(20)
        assert all(x.equal(end[name]) for name, x in again.state_dict().items())
    assert sim.qpos.data_ptr() == address
    of = torch.tensor([5, 5, 0, 3, 3, 1])
    sim.load_state_dict({name: x[of] for name, x in state.items()})
    sim.step(20)
    assert all(x.equal(end[name][of]) for name, x in sim.state_dict().items())
    for wrong in ({}, state | {"qpos": state["qpos"].double()}, {name: x[:2] for name, x in state.items()}):
        before = sim.state_dict()
        with pytest.raises(ValueError, match="not the state of such a Simulation"):
            sim.load_state_dict(wrong)
        assert all(x.equal(before[name]) for name, x in sim.state_dict().items())


# a world does not see its neighbours


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("name", ["half_cheetah", "hopper"])
def test_a_world_is_the_same_anywhere(name, dtype):
    """Bit for bit: alone, at any place of any batch, on any number of threads, beside worlds that are broken."""
    chosen = [torch.tensor(x, dtype=dtype) for x in states(name)]
    n = len(chosen[0])
    want = evolve(name, dtype, chosen, torch.arange(n))
    assert all(x.isfinite().all() for x in want)
    rng = torch.Generator().manual_seed(0)
    for n_threads, worlds in ((1, 1), (1, 333), (2, 17), (3, 1000)):
        torch.set_num_threads(n_threads)
        places = torch.randint(n, (worlds,), generator=rng, device="cpu").to(chosen[0].device)
        for got, all_of in zip(evolve(name, dtype, chosen, places), want, strict=True):
            assert torch.equal(bits(got), bits(all_of[places]))
    broken = torch.randperm(n, generator=rng, device="cpu")[: n // 3].to(chosen[0].device)
    for poison in (float("nan"), float("inf"), 1e30):
        spoilt = [x.clone() for x in chosen]
        for x in spoilt:
            x[broken] = poison
        sound = torch.ones(n, dtype=torch.bool).index_fill_(0, broken, False)
        for got, all_of in zip(evolve(name, dtype, spoilt, torch.arange(n)), want, strict=True):
            assert torch.equal(bits(got[sound]), bits(all_of[sound]))


def evolve(name: str, dtype: torch.dtype, chosen: list[torch.Tensor], places: torch.Tensor) -> list[torch.Tensor]:
    sim = Simulation(oracle.model(name), len(places), dtype=dtype)
    for x, value in zip((sim.qpos, sim.qvel, sim.ctrl), chosen, strict=True):
        x.copy_(value[places])
    sim.step(5)
    return state_of(sim)


# the class itself


def test_tensors_keep_their_addresses():
    sim = simulation("hopper", outputs=("xpos", "M"))
    names = ("qpos", "qvel", "qacc_warmstart", "ctrl", "xpos", "M")
    before = {k: (getattr(sim, k), getattr(sim, k).data_ptr()) for k in names}
    sim.step(3)
    sim.forward()
    sim.reset(torch.zeros(sim.num_worlds, dtype=torch.bool))
    sim.reset()
    for k, (x, address) in before.items():
        assert getattr(sim, k) is x and x.data_ptr() == address
    mjm = oracle.model("hopper")
    assert sim.xpos.shape == (sim.num_worlds, mjm.nbody, 3) and sim.M.shape == (sim.num_worlds, mjm.nv, mjm.nv)


def test_reset_sets_the_worlds_of_a_mask():
    sim = simulation("walker2d_v5", outputs=())
    sim.step()
    mask = torch.arange(sim.num_worlds) % 3 == 0
    before = [x.clone() for x in (*state_of(sim), sim.ctrl)]
    sim.reset(mask)
    start = torch.tensor(oracle.model("walker2d_v5").qpos0)
    assert torch.equal(sim.qpos[mask], start.expand(int(mask.sum()), -1))
    for x, was in zip((*state_of(sim), sim.ctrl), before, strict=True):
        assert torch.equal(x[~mask], was[~mask])
        assert x is sim.qpos or not x[mask].any()
    sim.qpos.fill_(float("nan"))
    sim.qvel.fill_(float("nan"))
    sim.reset()
    assert torch.equal(sim.qpos, start.expand(sim.num_worlds, -1)) and not sim.qvel.any()
    for bad, error in ((mask[:-1], ValueError), (mask.float(), TypeError), (mask[:, None], ValueError)):
        with pytest.raises(error, match="mask"):
            sim.reset(bad)


def test_models_as_mjmodel_as_text_and_as_file():
    path = oracle.ASSETS / "hopper.xml"
    for model in (mujoco.MjModel.from_xml_path(str(path)), path.read_text(), path, str(path)):
        sim = Simulation(model, 3)
        sim.step()
        assert sim.qpos.dtype == torch.float32 and sim.qpos.shape == (3, 6) and sim.qpos.isfinite().all()


def test_what_simulation_refuses():
    mjm = oracle.model("hopper")
    for n in (0, -1, 1.5, True, "4"):
        with pytest.raises(ValueError, match="num_worlds"):
            Simulation(mjm, n)
    with pytest.raises(ValueError, match=r"unknown outputs \['xpsos'\].*xpos"):
        Simulation(mjm, 1, outputs=("xpos", "xpsos"))
    for dtype in (torch.float16, torch.int32, None):
        with pytest.raises(ValueError, match="float32"):
            Simulation(mjm, 1, dtype=dtype)
    with pytest.raises(ValueError, match="meta"):
        Simulation(mjm, 1, device="meta")
    sim = Simulation(mjm, 1)
    for n in (0, -3):
        with pytest.raises(ValueError, match="nstep"):
            sim.step(n)
    with pytest.raises(AttributeError, match=r"outputs=\('xpos',\)"):
        _ = sim.xpos
    with pytest.raises(AttributeError, match="nonsense"):
        _ = sim.nonsense
    with pytest.raises(ValueError, match="outputs"):
        sim.forward()
    with pytest.raises(FileNotFoundError, match="nowhere"):
        Simulation("nowhere.xml", 1)
    with pytest.raises(UnsupportedModel, match="discrete"):
        Simulation("<mujoco><option integrator='discrete'/><worldbody><body><freejoint/><geom size='1'/></body>"
                   "</worldbody></mujoco>", 1)  # fmt: skip


def test_one_output_by_name():
    sim = Simulation(oracle.model("hopper"), 2, outputs="xpos")
    sim.forward()
    assert sim.outputs == ("xpos",) and sim.xpos[0, 1, 2] == 1.25


MOVED = """<mujoco><worldbody><body mocap="true"/>
<body><joint name="j"/><geom size=".1" pos=".1 0 0"/></body></worldbody>
<actuator><general joint="j" dyntype="integrator"/></actuator></mujoco>"""


def test_what_no_step_would_read_cannot_be_set():
    sim = Simulation(MOVED, 2, outputs="xpos", inputs="xfrc_applied")
    for name in ("qpos", "act", "ctrl", "mocap_pos", "xfrc_applied", "xpos", "outputs"):
        with pytest.raises(AttributeError, match=f"write into it, as in sim.{name}"):
            setattr(sim, name, torch.zeros(2, 1))
    with pytest.raises(AttributeError, match=r"inputs=\('qfrc_applied',\)"):
        sim.qfrc_applied = torch.ones(2, 1)
    with pytest.raises(AttributeError, match="no attribute 'control'"):
        sim.control = torch.ones(2, 1)
    mine = type("Mine", (Simulation,), {"__module__": "mine"})(MOVED, 2)
    mine.control = 1
    mine.control = 2
    assert mine.control == 2
    for name in ("qpos", "xfrc_applied", "xpos"):
        with pytest.raises(AttributeError, match=name):
            setattr(mine, name, torch.zeros(2, 1))
    sim.qvel += 1.0
    sim.act += 2.0
    assert (sim.qvel == 1).all() and (sim.act == 2).all()
    with pytest.raises(AttributeError, match="no mocap bodies"):
        _ = Simulation(oracle.model("hopper"), 1).mocap_pos


@pytest.mark.parametrize("how", [copy.deepcopy, lambda sim: pickle.loads(pickle.dumps(sim))])
def test_a_copy_goes_on_from_where_its_original_is(how):
    sim = Simulation(MOVED, 3, outputs="xpos", vary="body_mass", inputs="xfrc_applied")
    sim.set_params({"body_mass": torch.tensor([0.0, 0.0, 2.0])})
    sim.qvel += torch.tensor([[1.0], [2.0], [3.0]])
    sim.xfrc_applied[:, 2, 1] = 1.0
    sim.act += 0.5
    sim.step(2)
    twin = how(sim)
    for x in (sim, twin):
        x.step(3)
    for name in ("qpos", "qvel", "act", "xpos", "xfrc_applied"):
        torch.testing.assert_close(getattr(twin, name), getattr(sim, name), rtol=0, atol=0)
    twin.qpos += 1.0
    assert (twin.qpos != sim.qpos).all()


def test_it_shows_what_it_is_and_lists_its_tensors():
    xml = "<mujoco model='ball'><worldbody><body><freejoint/><geom size='.1'/></body></worldbody></mujoco>"
    sim = Simulation(xml, 2, device="cpu", outputs=("xpos",), inputs=("xfrc_applied",))
    assert repr(sim) == "Simulation('ball', 2, device=cpu, dtype=torch.float32)"
    assert {"qpos", "xpos", "xfrc_applied", "step"} <= set(dir(sim)) and not {"act", "cvel"} & set(dir(sim))
    assert all(hasattr(sim, name) for name in dir(sim))
    for wrong, right in {"qposs": "qpos", "xfrc_aplied": "xfrc_applied", "steps": "step", "cvell": "cvel"}.items():
        with pytest.raises(AttributeError, match=f"no attribute '{wrong}'; did you mean '{right}'"):
            getattr(sim, wrong)
        with pytest.raises(AttributeError, match=f"did you mean '{right}'"):
            setattr(sim, wrong, 1.0)
