"""Where Newton's method starts: fewer iterations in models of long steps, the same end."""

from __future__ import annotations

import sys
from pathlib import Path

import mujoco
import numpy as np
import oracle
import pytest

from torch_mjenvs.physics import load
from torch_mjenvs.physics.model.data import Data
from torch_mjenvs.physics.model.model import Model
from torch_mjenvs.physics.model.precision import DOUBLE
from torch_mjenvs.physics.pipeline import forward
from torch_mjenvs.physics.solver import warmstart

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
from quadruped.task import Quadruped

ROBOTS, STEPS, HOLD = 6, 12, 4
GIVEN = ("qpos", "qvel", "ctrl", "qacc_warmstart")


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
                given = {x: getattr(d, x).tolist() for x in GIVEN}
                mujoco.mj_forward(mjm, d)
                out.append({**given, "qacc": d.qacc.copy(), "nefc": d.nefc})
                d.qacc_warmstart[:] = given["qacc_warmstart"]
            mujoco.mj_step(mjm, d)
    return out


def solved(m: Model, state: dict) -> Data:
    """Ours at a state."""
    d = Data(m, **{x: state[x] for x in GIVEN}, act=[], precision=DOUBLE)
    forward(d)
    return d


@pytest.mark.parametrize("cone", ["pyramidal", "elliptic"])
def test_fewer_iterations_to_the_same_accelerations(monkeypatch, cone):
    mjm = quadruped(cone)
    states = [state for state in fallen(mjm) if state["nefc"]]
    assert len(states) > 30
    m, want, count = load(mjm), np.array([x["qacc"] for x in states]), {}
    for most in (0.0, warmstart.MOST):
        monkeypatch.setattr(warmstart, "MOST", most)
        found = [solved(m, state) for state in states]
        count[most] = sum(d.solver_niter for d in found)
        np.testing.assert_allclose([d.qacc for d in found], want, rtol=0, atol=1e-9 * np.abs(want).max())
    assert count[warmstart.MOST] < 0.85 * count[0.0], count


def test_a_world_that_moves_starts_on_the_way_to_no_constraints():
    mjm = quadruped()
    state = fallen(mjm)[0]
    m = load(mjm)
    d, theirs = solved(m, state), oracle.forward(mjm, state["qpos"], state["qvel"], state["ctrl"])
    before, inertia = np.array(state["qacc_warmstart"]), oracle.field(mjm, theirs, "M")
    free = np.linalg.solve(inertia + m.timestep * np.diag(m.dof_damping), theirs.qfrc_smooth)
    share = 0.005 * 2 / (0.95 * 0.02)  # of a step; dmax and time constant are MuJoCo's defaults
    assert warmstart.share_of_the_way(m) == pytest.approx(share)
    np.testing.assert_allclose(warmstart.start(m, d), before + share * (free - before), rtol=1e-9, atol=1e-7)
    d.qacc_warmstart = (0.01 * before).tolist()
    assert warmstart.start(m, d) == d.qacc_warmstart  # it is at rest


@pytest.mark.parametrize(
    ("option", "contact", "share"),
    [
        ('timestep="0.001"', "enable", 0.0),
        ('timestep="0.002"', "enable", 0.004 / 0.019),
        ('timestep="0.002" integrator="RK4"', "enable", 0.0),
        ('timestep="0.01"', "enable", 0.6),
        ('timestep="0.01" integrator="RK4"', "enable", 0.01 / 0.019),
        ('timestep="0.01"', "disable", 0.0),
    ],
)
def test_how_far_it_starts(option, contact, share):
    xml = f"""<mujoco><option {option}><flag contact="{contact}"/></option><worldbody><geom type="plane" size="1 1 1"/>
        <body pos="0 0 .1"><freejoint/><geom size=".1"/></body></worldbody></mujoco>"""
    m = load(mujoco.MjModel.from_xml_string(xml))
    assert warmstart.share_of_the_way(m) == pytest.approx(share)
