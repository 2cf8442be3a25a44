"""Where Newton's method starts: fewer iterations in models of long steps, the same end."""

from __future__ import annotations

import sys
from pathlib import Path

import mujoco
import numpy as np
import oracle
import pytest

from torch_mjenvs.physics import load, warmstart
from torch_mjenvs.physics.data import Data
from torch_mjenvs.physics.precision import DOUBLE
from torch_mjenvs.physics.step import forward

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
from quadruped.task import Quadruped

ROBOTS, STEPS, HOLD = 6, 12, 4


def quadruped(cone: str = "pyramidal") -> mujoco.MjModel:
    mjm = Quadruped().load()
    if cone == "elliptic":
        mjm.opt.cone = mujoco.mjtCone.mjCONE_ELLIPTIC
    return oracle.sharpen(mjm)


def fallen(mjm: mujoco.MjModel) -> list[dict]:
    """States along MuJoCo's rollouts under random controls, with its warm starts and accelerations."""
    rng, out = np.random.default_rng(0), []
    low, high = mjm.actuator_ctrlrange.T
    for _ in range(ROBOTS):
        d = mujoco.MjData(mjm)
        d.qpos[2] = 0.3
        for step in range(150):
            if step % HOLD == 0:
                d.ctrl[:] = rng.uniform(low, high)
            if step >= 150 - STEPS:
                given = {x: getattr(d, x).tolist() for x in ("qpos", "qvel", "ctrl", "qacc_warmstart")}
                mujoco.mj_forward(mjm, d)
                out.append({**given, "qacc": d.qacc.copy(), "nefc": d.nefc})
                d.qacc_warmstart[:] = given["qacc_warmstart"]
            mujoco.mj_step(mjm, d)
    return out


def solved(mjm: mujoco.MjModel, states: list[dict]) -> tuple[float, np.ndarray]:
    """Iterations on average, and accelerations."""
    m, count, qacc = load(mjm), 0.0, []
    for state in states:
        given = {x: state[x] for x in ("qpos", "qvel", "ctrl", "qacc_warmstart")}
        d = Data(**given, act=[], precision=DOUBLE)
        forward(m, d)
        count += d.solver_niter / len(states)
        qacc.append(d.qacc)
    return count, np.array(qacc)


@pytest.mark.parametrize("cone", ["pyramidal", "elliptic"])
def test_fewer_iterations_to_the_same_accelerations(monkeypatch, cone):
    mjm = quadruped(cone)
    states = [state for state in fallen(mjm) if state["nefc"]]
    assert len(states) > 30
    want, count = np.array([x["qacc"] for x in states]), {}
    for most in (0.0, warmstart.MOST):
        monkeypatch.setattr(warmstart, "MOST", most)
        count[most], qacc = solved(mjm, states)
        np.testing.assert_allclose(qacc, want, rtol=0, atol=1e-9 * np.abs(want).max())
    assert count[warmstart.MOST] < 0.85 * count[0.0], count


def test_a_world_that_moves_starts_on_the_way_to_no_constraints():
    mjm = quadruped()
    state = fallen(mjm)[0]
    m = load(mjm)
    d = Data(**{x: state[x] for x in ("qpos", "qvel", "ctrl", "qacc_warmstart")}, act=[], precision=DOUBLE)
    forward(m, d)
    before, inertia = np.array(state["qacc_warmstart"]), np.zeros((m.nv, m.nv))
    for i, row in enumerate(d.M):
        for j, x in row.items():
            inertia[i, j] = inertia[j, i] = x
    free = np.linalg.solve(inertia + m.timestep * np.diag(m.dof_damping), d.qfrc_smooth)
    share = 0.005 * 2 / (0.95 * 0.02)  # of a step; dmax and time constant are MuJoCo's defaults
    assert warmstart.share_of_the_way(m) == pytest.approx(share)
    np.testing.assert_allclose(warmstart.start(m, d), before + share * (free - before), rtol=1e-9, atol=1e-7)
    d.qacc_warmstart = (0.01 * before).tolist()
    assert warmstart.start(m, d) == d.qacc_warmstart  # it is at rest


@pytest.mark.parametrize(
    ("option", "share"),
    [
        ('timestep="0.001"', 0.0),
        ('timestep="0.002"', 0.004 / 0.019),
        ('timestep="0.002" integrator="RK4"', 0.0),
        ('timestep="0.01"', 0.6),
        ('timestep="0.01" integrator="RK4"', 0.01 / 0.019),
        ('timestep="0.01"><flag contact="disable"/></option', 0.0),
    ],
)
def test_how_far_it_starts(option, share):
    end = "" if option.endswith("option") else "/"
    xml = f"""<mujoco><option {option}{end}><worldbody><geom type="plane" size="1 1 1"/><body pos="0 0 .1"><freejoint/>
        <geom size=".1"/></body></worldbody></mujoco>"""
    m = load(mujoco.MjModel.from_xml_string(xml))
    assert warmstart.share_of_the_way(m) == pytest.approx(share)
