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
    for share in (0.0, warmstart.SHARE):
        monkeypatch.setattr(warmstart, "SHARE", share)
        count[share], qacc = solved(mjm, states)
        np.testing.assert_allclose(qacc, want, rtol=0, atol=1e-9 * np.abs(want).max())
    assert count[warmstart.SHARE] < 0.85 * count[0.0], count


def test_short_steps_start_from_the_step_before():
    mjm = quadruped()
    state = fallen(mjm)[0]
    started = {}
    for timestep in (0.002, 0.005):
        mjm.opt.timestep = timestep
        m = load(mjm)
        d = Data(**{x: state[x] for x in ("qpos", "qvel", "ctrl", "qacc_warmstart")}, act=[], precision=DOUBLE)
        forward(m, d)
        started[timestep] = np.array(warmstart.start(m, d))
        inertia = np.zeros((m.nv, m.nv))
        for i, row in enumerate(d.M):
            for j, x in row.items():
                inertia[i, j] = inertia[j, i] = x
        free = np.linalg.solve(inertia + timestep * np.diag(m.dof_damping), d.qfrc_smooth)
        between = (1 - warmstart.SHARE) * np.array(state["qacc_warmstart"]) + warmstart.SHARE * free
        want = state["qacc_warmstart"] if timestep == 0.002 else between
        np.testing.assert_allclose(started[timestep], want, rtol=1e-9, atol=1e-9 * np.abs(want).max())
    assert np.abs(started[0.002] - started[0.005]).max() > 1
