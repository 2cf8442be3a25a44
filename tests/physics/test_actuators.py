"""Actuators beside MuJoCo, on Python floats: what random models (`random_mjcf`) draw too rarely."""

from __future__ import annotations

import mujoco
import numpy as np
import oracle
import pytest

from torch_mjenvs.physics import State, load, step

ROBOT = """<mujoco><option integrator="{integrator}" timestep=".004"/><worldbody><site name="w" pos="0 0 1"/>
    <body><freejoint name="free"/><geom size=".2" pos="0 .1 0"/><site name="a" pos=".1 .2 .3"/>
      <body pos=".5 0 0"><joint name="ball" type="ball" pos="0 .1 0" damping=".1"/><geom size=".15" pos=".2 0 0"/>
        <site name="b" pos=".1 -.2 .3"/><site name="turned" pos=".1 .4 .2" quat="1 .3 .2 .1"/>
        <body pos=".5 0 0"><joint name="hinge" axis="1 2 3" damping=".2" actuatorfrcrange="-.5 .8"/>
          <geom size=".1" pos=".2 .1 0"/><site name="c" pos=".3 0 0"/></body></body></body></worldbody>
    <tendon><spatial name="spatial"><site site="w"/><site site="a"/><site site="b"/><pulley divisor="2"/>
      <site site="c"/><site site="a"/></spatial><fixed name="fixed"><joint joint="hinge" coef="-2"/></fixed>
      <fixed name="limited" actuatorfrcrange="-.3 .5"><joint joint="hinge" coef="1.5"/></fixed></tendon>
    <actuator>{actuator}</actuator></mujoco>"""
LAW = 'gaintype="affine" gainprm="1 -.5 .2" biastype="affine" biasprm=".3 -2 -.1"'
ACTUATORS = {
    "position servo of a ball": '<position joint="ball" kp="3" kv=".1" gear=".3 1 -.5"/>',
    "position servo of a ball in the parent": '<position jointinparent="ball" kp="3" gear="2 0 1"/>',
    "no servo of a ball": '<general joint="ball" gainprm="3" biastype="affine" biasprm="0 -2" gear="2 0 1"/>',
    "affine gain on a ball": f'<general joint="ball" gear="1 1 0" {LAW}/>',
    "free": f'<general joint="free" gear="1 2 3 .4 .5 .6" {LAW}/>',
    "free in the parent": f'<general jointinparent="free" gear="1 2 3 .4 .5 .6" {LAW}/>',
    "servo of a hinge": '<position joint="hinge" kp="2" dampratio="1" gear="2"/>',
    "velocity": '<velocity joint="hinge" kv=".3"/><velocity joint="free" kv=".2" gear="0 0 1 0 0 0"/>',
    "damper": '<damper joint="hinge" kv=".3" ctrlrange="0 1"/>',
    "site": f'<general site="turned" gear="1 2 3 .4 .5 .6" {LAW}/><motor site="w" gear="1 2 3 4 5 6"/>',
    "site seen from another": f"""<general site="turned" refsite="a" gear="1 2 3 .4 .5 .6" {LAW}/>
        <general site="c" refsite="turned" gear="1 0 2" {LAW}/>""",
    "site seen from the world": f"""<position site="c" refsite="w" gear="0 0 0 1 2 -.5" kp="2"/>
        <general site="w" refsite="b" gear="1 2 0 1" {LAW}/>""",
    "rotational servo of a site": '<position site="c" refsite="turned" gear="0 0 0 1 2 -.5" kp="2" kv=".1"/>',
    "slider-crank": f"""<general cranksite="c" slidersite="a" cranklength="1.9" gear="-2" {LAW}/>
        <general cranksite="c" slidersite="b" cranklength=".1" {LAW}/>""",
    "slider-crank of the world": f"""<general cranksite="a" slidersite="w" cranklength="2.5" {LAW}/>
        <general cranksite="w" slidersite="c" cranklength="2" {LAW}/>""",
    "tendons": f'<general tendon="spatial" {LAW}/><position tendon="fixed" kp="2" forcerange="-.4 .7"/>',
    "two on a limited tendon": '<motor tendon="limited"/><position tendon="limited" kp="2" gear="1.5"/>',
    "ranges of two on a limited tendon": """<motor tendon="limited" forcerange="-.1 .2"/>
        <position tendon="limited" kp="2" gear="1.5"/>""",
    "two on a limited joint": '<motor joint="hinge"/><position joint="hinge" ctrlrange="-1 1"/>',
}


@pytest.mark.parametrize("control", [0.4, 20.0])
@pytest.mark.parametrize("integrator", ["Euler", "RK4"])
@pytest.mark.parametrize("case", ACTUATORS)
def test_actuators_move_a_robot_as_in_mujoco(case, integrator, control):
    """Also where a set point is several turns away: on a ball, a position servo takes the nearest."""
    assert np.any(moved(ROBOT.format(integrator=integrator, actuator=ACTUATORS[case]), control).qfrc_actuator)


@pytest.mark.parametrize("integrator", ["Euler", "implicit"])
def test_actuators_that_are_switched_off_have_no_force(integrator):
    xml = ROBOT.replace('timestep=".004"/>', 'timestep=".004"><flag actuation="disable"/></option>')
    actuators = "".join(x for name, x in ACTUATORS.items() if "limited tendon" not in name)
    xml = xml.replace("-.5 .8", ".2 .8").format(integrator=integrator, actuator=actuators)
    assert not np.any(moved(xml, 1.0).qfrc_actuator)


def moved(xml: str, control: float) -> mujoco.MjData:
    """20 steps of both, compared."""
    mjm = mujoco.MjModel.from_xml_string(xml)
    m, d, rng = load(oracle.sharpen(mjm)), mujoco.MjData(mjm), np.random.default_rng(0)
    mujoco.mj_integratePos(mjm, d.qpos, rng.normal(0, 0.5, mjm.nv), 1.0)
    d.qvel[:], d.ctrl[:] = rng.normal(0, 1, mjm.nv), control * np.resize([1, -1], mjm.nu)
    state = State(d.qpos.tolist(), d.qvel.tolist(), [0.0] * m.nv)
    for _ in range(20):
        state = step(m, state, d.ctrl.tolist())
        mujoco.mj_step(mjm, d)
    mujoco.mj_rnePostConstraint(mjm, d)
    for got, want in ((state.qpos, d.qpos), (state.qvel, d.qvel), (state.last.cfrc_ext, d.cfrc_ext)):
        np.testing.assert_allclose(np.array(got, float), want, rtol=0, atol=1e-11 * max(1, np.max(np.abs(want))))
    return d


STICKY = """<mujoco><option integrator="{integrator}" timestep=".004" cone="{cone}"/><worldbody>
    <geom type="plane" size="5 5 .1" gap=".02"/>
    <body name="ball" pos="0 0 .19"><freejoint/><geom name="core" size=".2" gap=".05"/>
      <body pos="-.25 0 .1"><geom name="knob" size=".07"/></body>
      <body name="box" pos=".3 0 0"><joint axis="0 1 0"/>
        <geom type="box" size=".1 .1 .2" condim="4" gap=".02"/></body></body>
    <body pos="0 .35 .21"><joint type="ball"/><geom type="capsule" size=".1 .1" gap=".03"/></body></worldbody>
    <contact><pair geom1="core" geom2="knob" margin=".1"/></contact>
    <actuator><adhesion body="ball" ctrlrange="0 3" gain="2"/><adhesion body="world" ctrlrange="0 3" gain="2"/>
      <general body="box" gear="7" gainprm="1" biastype="affine" biasprm=".2 1 -3"/></actuator></mujoco>"""


@pytest.mark.parametrize("cone", ["pyramidal", "elliptic"])
@pytest.mark.parametrize("integrator", ["Euler", "RK4", "implicit"])
def test_sticky_bodies_pull_at_all_that_they_touch_also_in_the_gap(integrator, cone):
    """Contacts without dofs of their own do not count; those of the world do, and the gear does not."""
    mjm = mujoco.MjModel.from_xml_string(STICKY.format(integrator=integrator, cone=cone))
    m, d, rng = load(oracle.sharpen(mjm)), mujoco.MjData(mjm), np.random.default_rng(0)
    d.qvel[:], d.ctrl[:] = rng.normal(size=mjm.nv), (1, 0.7, 0.5)
    state, acting, gaps = State(d.qpos.tolist(), d.qvel.tolist(), [0.0] * m.nv), set(), 0
    for _ in range(40):
        state = step(m, state, d.ctrl.tolist())
        mujoco.mj_step(mjm, d)
        acting.add(sum(d.contact.exclude == 0))
        gaps += sum(d.contact.exclude == 1)
        np.testing.assert_allclose(state.qpos, d.qpos, rtol=0, atol=1e-12)
        np.testing.assert_allclose(state.qvel, d.qvel, rtol=0, atol=1e-12)
        assert np.any(d.qfrc_actuator)
    assert len(acting) > 2 and gaps > 10
