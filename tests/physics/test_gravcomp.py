"""Gravity compensation against MuJoCo C; per world, too."""

from __future__ import annotations

import mujoco
import numpy as np
import oracle
import pytest
import torch

from torch_mjenvs.physics import State, load, step
from torch_mjenvs.physics.pipeline import derive
from torch_mjenvs.physics.simulation import Simulation


def model(option: str = "") -> mujoco.MjModel:
    return oracle.sharpen(
        mujoco.MjModel.from_xml_string(f"""<mujoco><option timestep=".002" gravity="1 -2 -9" {option}/><worldbody>
        <geom type="plane" size="5 5 1"/>
        <body pos="0 0 .5" gravcomp=".3"><freejoint/><geom type="capsule" size=".1 .2"/>
          <body pos=".2 0 0" gravcomp="2"><joint type="ball" pos=".1 0 0" damping=".1"/><geom size=".1" pos="0 .1 0"/>
            <body pos=".1 .1 0" gravcomp="1"><geom size=".08"/></body></body></body>
        <body pos="2 0 1"><joint axis="0 1 0"/><geom size=".1" pos=".3 0 0"/></body>
        <body pos="3 0 1" gravcomp="1"><geom size=".1"/></body></worldbody></mujoco>""")
    )


NO_PASSIVE = '/><option><flag spring="disable" damper="disable"/></option><option'
NO_GRAVITY = '/><option><flag gravity="disable"/></option><option'


@pytest.mark.parametrize("option", ["", 'integrator="RK4"', NO_PASSIVE, NO_GRAVITY])
def test_it_is_mujocos_over_200_steps(option: str) -> None:
    mjm, names = model(option), ("qpos", "qvel", "qfrc_gravcomp", "qfrc_passive", "qacc")
    sim = Simulation(mjm, 2, dtype=torch.float64, outputs=names[2:])
    theirs = oracle.compare_steps(sim, mjm, oracle.scattered(mjm, 2, 0.0), 200, names=names)
    lifted = max(np.abs(d.qfrc_gravcomp).max() for d in theirs)
    assert (lifted > 1) == ("flag" not in option)


def test_each_world_has_its_own() -> None:
    """In the last two worlds negative ones alone, which MuJoCo does not apply, and one beside a positive one."""
    mjm, names = model(), ("qfrc_gravcomp", "qacc")
    share = np.array([[0, 0.1, 0.2, 0.3, 0.9, 0], [0, 1, 0, 2, 0, 1], [0, -1, 0, -0.3, 0, 0], [0, -1, 0, 0.3, 0, 0]])
    sim = Simulation(mjm, len(share), dtype=torch.float64, outputs=names, vary=("body_gravcomp",))
    sim.params["body_gravcomp"].copy_(torch.tensor(share))
    sim.forward()
    for k in range(len(share)):
        mjm.body_gravcomp[:] = share[k]
        d = mujoco.MjData(mjm)
        mujoco.mj_setConst(mjm, d)
        mujoco.mj_forward(mjm, d)
        for name in names:
            np.testing.assert_allclose(getattr(sim, name)[k].cpu(), getattr(d, name), rtol=0, atol=1e-10)


def test_where_nothing_is_lifted_derivatives_are_those_of_more() -> None:
    sim = Simulation(model(), 2, dtype=torch.float64, vary=("body_gravcomp",))
    share = sim.params["body_gravcomp"]
    share.copy_(torch.tensor([[0.0] * 6, [0.1] * 6]))  # the force is linear in it
    nothing, some = sim.linearize(params=("body_gravcomp",)).P
    torch.testing.assert_close(nothing[model().nv :], some[model().nv :], rtol=0, atol=1e-12)
    start, stepped = sim.state_dict(), []
    for more in (0.0, 1e-6):
        sim.load_state_dict(start)
        share[0, 1:] = more
        sim.step()
        stepped.append(sim.qvel[0].clone())
    slope = (stepped[1] - stepped[0]) / 1e-6
    torch.testing.assert_close(nothing[model().nv :, 1:].sum(1), slope, rtol=0, atol=1e-6)
    assert slope.abs().max() > 0.01


def by_actuators(option: str = "", motor: str = '<velocity joint="knee" kv="2"/>') -> mujoco.MjModel:
    """Where gravity compensation counts as the force of actuators: within a joint's range of these, and beyond it."""
    return oracle.sharpen(
        mujoco.MjModel.from_xml_string(f"""<mujoco><option timestep=".002" {option}/><worldbody>
        <body pos="0 0 .5" gravcomp="1"><joint type="ball" actuatorgravcomp="true"/><geom type="capsule" size=".1 .2"/>
          <body pos=".2 0 0" gravcomp=".7"><joint name="knee" axis="0 1 0" actuatorgravcomp="true"
              actuatorfrcrange="-4.5 5"/><geom size=".1" pos=".1 0 0"/>
            <body pos=".2 0 0" gravcomp=".5"><joint axis="0 1 0" damping=".1"/><geom size=".08" pos=".1 0 0"/></body>
          </body></body></worldbody>
        <actuator>{motor}</actuator><sensor><jointactuatorfrc joint="knee"/></sensor></mujoco>""")
    )


IMPLICIT = 'integrator="implicitfast"'
NO_ACTUATION = '/><option><flag actuation="disable"/></option><option'


@pytest.mark.parametrize(
    ("option", "motor"),
    [("", None), (IMPLICIT, None), ("", ""), (NO_ACTUATION, None), (NO_PASSIVE, None)],
    ids=["plain", "implicitfast", "no motors", "no actuation", "no passive forces"],
)
def test_it_counts_as_the_force_of_actuators_where_it_is_said(option: str, motor: str | None) -> None:
    """In a model without actuators, or where they are off, MuJoCo has none of it at all."""
    mjm = by_actuators(option) if motor is None else by_actuators(option, motor)
    m, d, clipped, acts = load(mjm), mujoco.MjData(mjm), 0, motor is None and option != NO_ACTUATION
    names = ("qfrc_gravcomp", "qfrc_passive", "qfrc_actuator", "qacc", "sensordata")
    for qpos, qvel in oracle.scattered(mjm, 6, 0.5, (0.5, 2.0)):
        d.qpos[:], d.qvel[:], d.ctrl[:] = qpos, qvel, 0.3
        ours = derive(m, qpos.tolist(), qvel.tolist(), None, [0.3] * mjm.nu)
        mujoco.mj_forward(mjm, d)
        clipped += d.qfrc_actuator[3] in (-4.5, 5.0)
        for name in names:
            want = getattr(d, name)
            np.testing.assert_allclose(getattr(ours, name), want, rtol=0, atol=1e-10, err_msg=name)
        assert bool(d.qfrc_actuator.any()) == acts
        after = step(m, State(qpos.tolist(), qvel.tolist(), [0.0] * mjm.nv), [0.3] * mjm.nu)
        mujoco.mj_step(mjm, d)
        np.testing.assert_allclose(after.qvel, d.qvel, rtol=0, atol=1e-11)
    assert not acts or 0 < clipped < 6


@pytest.mark.parametrize(("first", "second", "acts"), [(-5, 0, False), (-5, 1, True), (1e-12, -5, True)])
def test_where_no_body_is_lifted_none_is_pulled_down_either(first: float, second: float, acts: bool) -> None:
    """MuJoCo passes over gravity compensation where its compiler found no body with a positive share."""
    mjm = mujoco.MjModel.from_xml_string(f"""<mujoco><worldbody>
        <body gravcomp="{first}"><joint axis="0 1 0"/><geom size=".1" pos=".2 0 0"/>
          <body gravcomp="{second}"><geom size=".1" pos=".3 0 0"/></body></body></worldbody></mujoco>""")
    d = mujoco.MjData(mjm)
    mujoco.mj_forward(mjm, d)
    found = derive(load(mjm), [0.0], [0.0], None, [])
    np.testing.assert_allclose(found.qfrc_gravcomp, d.qfrc_gravcomp, rtol=0, atol=1e-12)
    assert acts == bool(d.qfrc_gravcomp.any())
