"""Order and energy of the integrators, on models that keep their energy: pendulum chains, springs, tumbling bodies.

Most tests run the physics on Python floats, which compiles nothing. The oracle is mathematics: half the time step
divides the error of a method of order p by 2^p.
"""

from __future__ import annotations

import math

import mujoco
import numpy as np
import pytest
import torch

from torch_mjenvs.physics import Simulation, State, load, step

LINK = '<geom type="capsule" size=".05 .2" pos="0 0 -.2" quat="1 .3 .2 .1"/>'
JOINTS = {
    "hinge": f"""<body><joint axis="1 .2 0"/>{LINK}<body pos="0 0 -.5"><joint axis="0 1 .3"/>{LINK}
        <body pos=".1 0 -.5"><joint axis="1 0 1"/>{LINK}</body></body></body>""",
    "slide": f"""<body><joint type="slide" axis="1 0 .5" stiffness="40"/>{LINK}
        <body pos="0 0 -.5"><joint axis="0 1 .2" stiffness="3"/>{LINK}</body></body>""",
    "ball": f"""<body><joint type="ball"/>{LINK}
        <body pos="0 0 -.5"><joint type="ball" pos=".02 0 0" stiffness="2"/>{LINK}</body></body>""",
    "free": f"""<body><freejoint/>{LINK}<geom size=".1" pos=".3 .1 0"/>
        <body pos="0 0 -.5"><joint axis="0 1 0" stiffness="5"/>{LINK}</body></body>""",
}
JOINTS["all"] = "".join(JOINTS.values())


def model(joints: str, integrator: str, timestep: float, damping: float = 0.0) -> mujoco.MjModel:
    return mujoco.MjModel.from_xml_string(f"""<mujoco>
        <option timestep="{timestep!r}" integrator="{integrator}"><flag contact="disable" energy="enable"/></option>
        <default><joint damping="{damping}"/></default><worldbody>{JOINTS[joints]}</worldbody></mujoco>""")


def start(mjm: mujoco.MjModel, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """A state out of balance, on the move."""
    rng = np.random.default_rng(seed)
    qpos = mujoco.MjData(mjm).qpos.copy()
    mujoco.mj_integratePos(mjm, qpos, rng.normal(0, 0.5, mjm.nv), 1.0)
    return qpos, rng.normal(0, 1, mjm.nv)


def energy(mjm: mujoco.MjModel, qpos: np.ndarray, qvel: np.ndarray) -> float:
    """Kinetic and potential energy, by MuJoCo."""
    d = mujoco.MjData(mjm)
    d.qpos[:], d.qvel[:] = qpos, qvel
    mujoco.mj_forward(mjm, d)
    return float(d.energy.sum())


def run(joints: str, integrator: str, seconds: float, count: int, damping: float = 0.0) -> tuple[np.ndarray, float]:
    """The state after so many steps, and how far the energy was from its first value at the most."""
    mjm = model(joints, integrator, seconds / count, damping)
    m = load(mjm)
    qpos, qvel = start(mjm)
    state, first, drift = State(qpos.tolist(), qvel.tolist(), [0.0] * m.nv), energy(mjm, qpos, qvel), 0.0
    for _ in range(count):
        state = step(m, state, [])
        drift = max(drift, abs(energy(mjm, state.qpos, state.qvel) - first))
    return np.array(state.qpos + state.qvel), drift


def order(coarse: float, fine: float) -> float:
    return math.log2(coarse / fine)


@pytest.mark.parametrize("joints", ["hinge", "slide", "ball", "free"])
@pytest.mark.parametrize(("integrator", "seconds", "count", "expected"), [("RK4", 0.4, 14, 4), ("Euler", 0.2, 20, 1)])
def test_half_the_step_divides_error_and_energy_drift_by_two_to_the_order(integrator, seconds, count, expected, joints):
    (a, _), (b, coarse), (c, fine) = (run(joints, integrator, seconds, k * count) for k in (1, 2, 4))
    assert order(np.linalg.norm(a - b), np.linalg.norm(b - c)) == pytest.approx(expected, abs=0.2)
    assert expected - 0.2 < order(coarse, fine) < expected + 1.3  # the energy may do better than the state


@pytest.mark.parametrize("joints", ["hinge", "slide", "ball"])
def test_euler_is_of_first_order_with_its_implicit_damping(joints):
    a, b, c = (run(joints, "Euler", 0.2, count, damping=0.5)[0] for count in (20, 40, 80))
    assert order(np.linalg.norm(a - b), np.linalg.norm(b - c)) == pytest.approx(1, abs=0.2)


@pytest.mark.parametrize("damping", [0.1, 10.0, 1e4])
def test_damping_however_strong_slows_a_wheel_as_the_implicit_rule_says(damping):
    """By 1 / (1 + h c / I) a step: explicitly, h c / I > 2 would blow up."""
    mjm = mujoco.MjModel.from_xml_string(f"""<mujoco><option timestep=".02" gravity="0 0 0"/><worldbody><body>
        <joint damping="{damping}"/><geom size=".1" mass="1" pos="1 0 0"/></body></worldbody></mujoco>""")
    m, state = load(mjm), State([0.3], [2.0], [0.0])
    inertia = 1 + 0.4 * 0.1**2
    for k in range(1, 6):
        before, state = state, step(m, state, [])
        assert state.qvel[0] == pytest.approx(2 / (1 + 0.02 * damping / inertia) ** k, rel=1e-12)
        assert state.qpos[0] == pytest.approx(before.qpos[0] + 0.02 * state.qvel[0], rel=1e-15)


def test_a_body_that_tumbles_freely_keeps_its_momentum():
    """As well as RK4 can: about a centre of mass that is not where the joint is."""
    drifts = []
    for timestep in (0.02, 0.01):
        mjm = mujoco.MjModel.from_xml_string(f"""<mujoco>
            <option timestep="{timestep}" integrator="RK4" gravity="0 0 0"/><worldbody><body>
            <freejoint/><inertial pos=".1 .2 .3" mass="2" diaginertia=".1 .25 .3"/></body></worldbody>
            </mujoco>""")
        m, d = load(mjm), mujoco.MjData(mjm)
        state = State([0.0, 0, 0, 1, 0, 0, 0], [0.3, -0.2, 0.1, 2.0, 5.0, -3.0], [0.0] * 6)
        found = []
        for _ in range(round(1 / timestep)):
            d.qpos[:], d.qvel[:] = state.qpos, state.qvel
            mujoco.mj_kinematics(mjm, d)
            mujoco.mj_comPos(mjm, d)
            mujoco.mj_comVel(mjm, d)
            mujoco.mj_subtreeVel(mjm, d)
            found.append([*d.subtree_linvel[1] * 2, *d.subtree_angmom[1]])
            state = step(m, state, [])
        drifts.append([x.max() for x in np.split(np.abs(np.array(found) - found[0]), 2, axis=1)])
    (linear, angular), (fine_linear, fine_angular) = drifts
    assert 3.8 < order(linear, fine_linear) < 5.2 and 3.8 < order(angular, fine_angular) < 5.2


def test_compiled_worlds_keep_their_energy_as_well():
    """All joints in one model, float64: with twice the steps, at least 2^4 times less drift in the median world."""
    drifts = []
    for count in (40, 80):
        mjm = model("all", "RK4", 0.4 / count)
        sim = Simulation(mjm, 16, dtype=torch.float64)
        starts = [start(mjm, seed) for seed in range(16)]
        for x, values in zip((sim.qpos, sim.qvel), zip(*starts, strict=True), strict=True):
            x.copy_(torch.tensor(np.stack(values)))
        sim.step(count)
        ends = zip(sim.qpos.cpu().numpy(), sim.qvel.cpu().numpy(), strict=True)
        drifts.append([abs(energy(mjm, *b) - energy(mjm, *a)) for a, b in zip(starts, ends, strict=True)])
    assert np.median(drifts[1]) < 1e-4 and order(*np.median(drifts, axis=1)) > 3.8
