"""Damping and armature that actuators give the joints and tendons that they drive, against MuJoCo C."""

from __future__ import annotations

import mujoco
import numpy as np
import oracle
import pytest

from torch_mjenvs.physics import State, load, step
from torch_mjenvs.physics.columns import vary
from torch_mjenvs.physics.pipeline import derive


def model(option: str = "", more: str = "") -> mujoco.MjModel:
    """By one actuator, by several, by one of two; to joints of three types, and to tendons that have some of their own
    or none.
    """
    return oracle.sharpen(
        mujoco.MjModel.from_xml_string(f"""<mujoco><option timestep=".004" {option}/><worldbody>
        <geom type="plane" size="5 5 1"/><site name="post" pos="0 0 .6"/>
        <body pos="0 0 .3"><joint name="ball" type="ball" damping=".01"/><geom type="capsule" size=".05 .2"/>
          <site name="back" pos="-.2 0 .1"/>
          <body pos=".2 0 0"><joint name="a" axis="0 1 0" range="-20 30" armature=".01"/>
            <geom type="capsule" fromto="0 0 0 .2 0 -.1" size=".04"/>
            <body pos=".2 0 -.1"><joint name="b" axis="1 0 1"/><joint name="c" axis="1 0 0"/>
              <geom type="capsule" fromto="0 0 0 .1 0 -.1" size=".03"/><site name="toe" pos=".1 0 -.1"/></body></body>
        </body>
        <body pos="1 0 .3"><joint name="s" type="slide" axis="0 0 1"/><geom size=".1"/></body></worldbody>
        <tendon><fixed name="f" armature=".05" limited="true" range="-.1 .1"><joint joint="a" coef="1"/>
            <joint joint="s" coef="-2"/></fixed>
          <spatial name="r" damping=".1"><site site="post"/><site site="back"/></spatial>
          <spatial name="q"><site site="post"/><site site="toe"/></spatial></tendon>
        <actuator><motor joint="ball" gear="1 .5 0" damping=".02 .01" armature=".03"/>
          <position joint="a" kp="3" gear="-2" damping=".01 .02 .01" armature=".004"/><motor joint="a"/>
          <motor jointinparent="a" gear=".5" damping=".1" armature=".02"/>
          <motor joint="c" gear="3" armature=".002"/><motor joint="b" damping=".05"/>
          <motor tendon="f" gear="2" armature=".01" damping=".02"/><motor tendon="r" armature=".1" damping="0 .3"/>
          <motor tendon="q" gear=".5" armature=".05"/></actuator>{more}</mujoco>""")
    )


NO_DAMPER = '><flag damper="disable"/></option><option'


@pytest.mark.parametrize("option", ["", NO_DAMPER, 'integrator="implicit"', 'integrator="implicitfast"'])
def test_forces_inertia_and_steps_are_mujocos(option):
    mjm = model(option)
    m, d, constrained = load(mjm), mujoco.MjData(mjm), 0
    np.testing.assert_allclose(m.body_invweight0, mjm.body_invweight0)
    for qpos, qvel in oracle.scattered(mjm, 6, 0.3, (0.5, 4.0)):
        d.qpos[:], d.qvel[:], d.ctrl[:] = qpos, qvel, 0.4
        mujoco.mj_forward(mjm, d)
        ours = derive(m, qpos.tolist(), qvel.tolist(), None, [0.4] * mjm.nu)
        for name in ("qfrc_passive", "qfrc_bias", "qacc"):
            want = getattr(d, name)
            np.testing.assert_allclose(getattr(ours, name), want, rtol=0, atol=1e-11 * np.abs(want).max(), err_msg=name)
        for i, row in enumerate(ours.M):
            want = oracle.field(mjm, d, "M")[i, : i + 1]
            np.testing.assert_allclose([row.get(j, 0.0) for j in range(i + 1)], want, rtol=0, atol=1e-13)
        constrained += d.nefc > 0
        state = State(qpos.tolist(), qvel.tolist(), [0.0] * mjm.nv)
        for _ in range(3):
            state = step(m, state, [0.4] * mjm.nu)
            mujoco.mj_step(mjm, d)
        np.testing.assert_allclose(state.qvel, d.qvel, rtol=0, atol=1e-10 * np.abs(d.qvel).max())
    assert constrained > 2


def test_they_follow_a_gear_that_varies():
    """And with them what mj_setConst derives from inertia."""
    mjm = model()
    gear = mjm.actuator_gear * np.random.default_rng(0).uniform(0.3, 2, (mjm.nu, 1))
    world = vary(load(mjm), {"actuator_gear": gear.tolist()})
    mjm.actuator_gear[:] = gear
    d = mujoco.MjData(mjm)
    mujoco.mj_setConst(mjm, d)
    np.testing.assert_allclose(world.dof_invweight0, mjm.dof_invweight0, rtol=1e-10)
    ((qpos, qvel),) = oracle.scattered(mjm, 1, 0.3, (3.0,))
    d.qpos[:], d.qvel[:] = qpos, qvel
    mujoco.mj_step(mjm, d)
    after = step(world, State(qpos.tolist(), qvel.tolist(), [0.0] * mjm.nv), [0.0] * mjm.nu)
    np.testing.assert_allclose(after.qvel, d.qvel, rtol=0, atol=1e-10 * np.abs(d.qvel).max())


def test_hinges_that_would_cancel_are_apart_by_the_armature_of_an_actuator():
    twice = '<joint name="h" axis="0 1 0"/><joint axis="0 1 0"/>'
    xml = f"""<mujoco><worldbody><body>{twice}<geom size=".1" pos=".2 0 0"/></body></worldbody>
        <actuator><motor joint="h" gear="2" armature=".1"/></actuator></mujoco>"""
    m, d = load(xml), oracle.forward(mujoco.MjModel.from_xml_string(xml), np.zeros(2), np.zeros(2), np.ones(1))
    np.testing.assert_allclose(derive(m, [0.0, 0.0], [0.0, 0.0], None, [1.0]).qacc, d.qacc, rtol=1e-10)
