"""Limits, friction loss and armature of tendons, and limits of ball joints, against MuJoCo C."""

from __future__ import annotations

import mujoco
import numpy as np
import oracle
import pytest
import random_params
import torch

from torch_mjenvs.physics import load
from torch_mjenvs.physics.columns import vary
from torch_mjenvs.physics.constraints.friction import FrictionLoss
from torch_mjenvs.physics.constraints.limits import Limit
from torch_mjenvs.physics.model.enums import TrnType
from torch_mjenvs.physics.pipeline import derive
from torch_mjenvs.physics.simulation import Simulation

SOFT = 'solreflimit=".03 .7" solimplimit=".5 .99 .1 .4 3" solreffriction=".02 .5" solimpfriction=".6 .6 .1"'
DIRECT = 'solreflimit="-400 -30" solimplimit=".8 .8 .001" solreffriction="-1 -20"'
SENSED = ("pos", "vel", "frc")
HARD = 'solimplimit=".9999 .9999 .001" solimpfriction=".9999 .9999 .001"'


def model(option: str = "", how: str = SOFT) -> mujoco.MjModel:
    """A floating body with limbs, one of them on a ball joint, and an arm; tendons within each and between both."""
    return oracle.sharpen(
        mujoco.MjModel.from_xml_string(f"""<mujoco><compiler angle="radian"/><option timestep=".002" {option}/>
        <worldbody><geom type="plane" size="5 5 1"/><site name="post" pos="0 0 .6"/><site name="nail"/>
        <body name="trunk" pos="0 0 .25"><joint type="free"/><geom type="capsule" size=".05 .2" euler="0 80 0"/>
          <site name="back" pos="-.2 0 .1"/>
          <body pos=".2 0 0"><joint name="a" axis="0 1 0" range="-.2 .2" limited="true"/>
            <geom type="capsule" fromto="0 0 0 .2 0 -.1" size=".04"/><site name="knee" pos=".1 .05 0"/>
            <body pos=".2 0 -.1"><joint name="b" type="ball" range="0 .3" limited="true" margin=".05" {how}/>
              <geom type="capsule" fromto="0 0 0 .1 0 -.1" size=".03"/><site name="toe" pos=".1 0 -.1"/></body></body>
          <body pos="-.2 0 0"><joint name="c" axis="0 1 0"/>
            <geom type="capsule" fromto="0 0 0 -.2 0 -.1" size=".04"/></body></body>
        <body name="arm" pos="1 0 .3"><joint name="s" type="slide" axis="0 0 1"/>
          <joint name="d" axis="1 0 0"/><geom size=".1" pos="0 .05 0"/><site name="tip" pos="0 .1 .1"/></body>
        </worldbody><tendon>
          <fixed name="wide" limited="true" range="-.1 .2" frictionloss="2" {how}><joint joint="a" coef="1"/>
            <joint joint="c" coef="-.7"/></fixed>
          <fixed name="narrow" limited="true" range="-.02 .01" margin=".05" {how}><joint joint="s" coef="2"/></fixed>
          <fixed name="rub" frictionloss="6"><joint joint="d" coef="1"/><joint joint="a" coef="1"/></fixed>
          <spatial name="rope" limited="true" range=".4 .75" {how}><site site="back"/><site site="post"/>
            <pulley divisor="2"/><site site="knee"/><site site="toe"/></spatial>
          <spatial name="between" limited="true" range="0 .62" margin=".01" frictionloss="20" {how}><site site="tip"/>
            <site site="toe"/></spatial>
          <spatial name="still" limited="true" range=".1 .2" frictionloss="1"><site site="post"/><site site="nail"/>
          </spatial>
        </tendon><sensor>
          {"".join(f'<tendonlimit{x} tendon="{t}"/>' for x in SENSED for t in ("wide", "narrow", "rope"))}
          <jointlimitpos joint="b"/><jointlimitvel joint="b"/><jointlimitfrc joint="b"/><jointlimitpos joint="a"/>
          <tendonlimitfrc tendon="between"/></sensor></mujoco>""")
    )


def states(mjm: mujoco.MjModel, n: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Half of them next to at rest."""
    return oracle.scattered(mjm, n, speeds=(1.0, 0.01))


@pytest.mark.parametrize("how", [SOFT, DIRECT, HARD])
def test_accelerations_and_forces(how):
    """Rows in MuJoCo's order; of each tendon slack and taut, at either end, sticking and sliding."""
    mjm = model(how=how)
    m, met = load(mjm), set()
    for qpos, qvel in states(mjm, 40):
        d = oracle.forward(mjm, qpos, qvel, np.zeros(0))
        mujoco.mj_rnePostConstraint(mjm, d)
        ours = derive(m, qpos.tolist(), qvel.tolist(), None, [])
        rubs = [c for c in ours.constraints if isinstance(c, FrictionLoss)]
        limits = [c for c in ours.constraints if isinstance(c, Limit)]
        limits = [c for c in limits if c.distance < 0]
        assert (len(rubs), len(limits)) == (d.nf, d.nl)
        here = slice(d.nf + d.nl)
        np.testing.assert_allclose([c.D for c in rubs + limits], d.efc_D[here], rtol=1e-10)
        np.testing.assert_allclose([-c.y0 for c in rubs + limits], d.efc_aref[here], rtol=1e-9, atol=1e-10)
        for name in ("qacc", "qfrc_constraint", "cfrc_ext", "sensordata"):
            want = getattr(d, name)
            scale = max(1.0, np.abs(want).max())
            np.testing.assert_allclose(getattr(ours, name), want, rtol=0, atol=1e-10 * scale, err_msg=name)
        met |= {(*c.of, float(c.sign)) for c in limits if c.force(ours.qacc) > 0}
        along = {t: c for c in rubs for t, row in enumerate(ours.ten_J) if row is c.jacobian}
        met |= {(t, bool(abs(c.force(ours.qacc)) < c.law.most)) for t, c in along.items()}
    ends = {(TrnType.TENDON, t, sign) for t in (0, 1, 3) for sign in (1.0, -1.0)} | {(TrnType.TENDON, 4, -1.0)}
    assert ends <= met and {(TrnType.JOINT, 1, -1.0), (TrnType.JOINT, 2, 1.0)} <= met
    assert {(t, sticks) for t in (0, 2, 4) for sticks in (True, False)} <= met


@pytest.mark.parametrize("integrator", ["Euler", pytest.param("RK4", marks=pytest.mark.slow)])
def test_trajectories_of_200_steps(integrator):
    mjm = model(f'integrator="{integrator}"')
    sim = Simulation(mjm, 4, dtype=torch.float64, outputs=("cfrc_ext",))
    oracle.compare_steps(sim, mjm, states(mjm, 4), 200, names=("qpos", "qvel", "cfrc_ext"))


@pytest.mark.parametrize("how", [pytest.param(SOFT, marks=pytest.mark.slow), HARD])
def test_it_holds_in_float32(how):
    """One step of accelerations; the hardest rows repeat their step."""
    mjm = model(how=how)
    oracle.compare_float32(Simulation(mjm, 30, outputs=("qacc",)), mjm, states(mjm, 30))


@pytest.mark.parametrize("flag", ["limit", "frictionloss", "constraint"])
def test_switched_off_they_are_as_if_they_were_not_there(flag):
    mjm = model(f'/><option><flag {flag}="disable"/></option><option timestep=".002"')
    m = load(mjm)
    for qpos, qvel in states(mjm, 3):
        want = oracle.forward(mjm, qpos, qvel, np.zeros(0)).qacc
        got = derive(m, qpos.tolist(), qvel.tolist(), None, []).qacc
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-11 * np.abs(want).max())


def test_they_vary_from_world_to_world():
    """With masses, on which the inverse weights of tendons depend."""
    mjm = model()
    m, rng = load(mjm), np.random.default_rng(0)
    names = ("tendon_range", "jnt_range", "tendon_frictionloss", "body_mass", "wrap_prm")
    for qpos, qvel in states(mjm, 10):
        values = {name: random_params.draw(mjm, name, rng) for name in names}
        own = random_params.edited(mjm, values)
        world = vary(m, {name: x.tolist() for name, x in values.items()})
        np.testing.assert_allclose(world.tendon_invweight0[:5], own.tendon_invweight0[:5], rtol=1e-10)
        want = oracle.forward(own, qpos, qvel, np.zeros(0)).qacc
        got = derive(world, qpos.tolist(), qvel.tolist(), None, []).qacc
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-10 * np.abs(want).max())
    sim = Simulation(mjm, 1, vary=("tendon_frictionloss", "tendon_range"))
    rope = mjm.tendon("rope").id
    bad = {name: x.clone() for name, x in sim.params.items()}
    bad["tendon_frictionloss"][:, rope] = 0.1
    with pytest.raises(ValueError, match="tendon_frictionloss of world 0 makes no sense: tendons without any"):
        sim.set_params({"tendon_frictionloss": bad["tendon_frictionloss"]})
    bad["tendon_range"][:, rope] = torch.tensor([0.7, 0.5])
    with pytest.raises(ValueError, match="tendon_range of world 0 makes no sense: a range in use begins"):
        sim.set_params({"tendon_range": bad["tendon_range"]})


STRING = """<mujoco><option timestep=".002"/><worldbody>
    <body><joint type="slide" axis="1 0 0"/><joint type="slide" axis="0 0 1"/><joint axis="0 1 0"/><geom size=".1"/>
      <site name="a"/></body>
    <body pos="0 1 0"><joint type="slide" axis="1 0 0"/><joint axis="0 1 0"/><geom size=".1" pos=".1 0 0"/>
      <site name="b"/></body>
    </worldbody><tendon><spatial limited="true" range="0 1.02" {}><site site="a"/><site site="b"/></spatial></tendon>
    </mujoco>"""


@pytest.mark.parametrize("friction", ["", 'frictionloss="3"'])
def test_a_string_that_does_not_stretch_at_first(friction):
    """As bodies leave qpos0: MuJoCo takes its inverse weight for 0, and the rows for endlessly hard ones."""
    mjm = oracle.sharpen(mujoco.MjModel.from_xml_string(STRING.format(friction)))
    m, taut = load(mjm), 0
    assert mjm.tendon_invweight0[0] < 1e-15
    for qpos, qvel in states(mjm, 20):
        d = oracle.forward(mjm, qpos, qvel, np.zeros(0))
        got = derive(m, qpos.tolist(), qvel.tolist(), None, []).qacc
        np.testing.assert_allclose(got, d.qacc, rtol=0, atol=1e-7 * np.abs(d.qacc).max())
        taut += d.nl
    assert taut > 5


ARMED = """<mujoco><option timestep=".002" integrator="{}"/><worldbody><site name="post" pos="0 0 1"/>
    <body pos="0 0 .5"><freejoint/><geom size=".1" pos=".1 0 0"/><site name="back" pos="-.1 0 .1"/>
      <body pos=".2 0 0"><joint name="a" axis="0 1 0"/><geom size=".05 .1" type="capsule"/>
        <site name="knee" pos="0 .1 0"/>
        <body pos=".2 0 0"><joint name="b" type="ball"/><joint type="slide"/><geom size=".05" pos=".1 0 0"/>
          <site name="toe" pos=".1 0 .1"/></body></body>
      <body pos="-.2 0 0"><joint name="c" axis="0 1 0"/><geom size=".05" pos="-.1 0 0"/>
        <site name="tail" pos="-.2 0 0"/></body></body>
    <body pos="1 0 0"><joint name="s" type="slide" axis="0 0 1"/><geom size=".1"/><site name="tip"/></body>
    </worldbody><tendon>
      <fixed armature=".03"><joint joint="a" coef="2"/><joint joint="c" coef="1"/><joint joint="s" coef="1"/></fixed>
      <spatial armature=".05"><site site="post"/><site site="back"/><pulley divisor="2"/><site site="knee"/>
        <site site="toe"/><pulley divisor="3"/><site site="tail"/><site site="toe"/></spatial>
      <spatial armature=".1" limited="true" range="0 .9"><site site="tip"/><site site="back"/></spatial>
      <spatial armature=".2"><site site="post"/><site site="tip"/></spatial></tendon></mujoco>"""


def test_armature_of_tendons():
    """Inertia, force, and the wrenches on bodies; between dofs of two branches MuJoCo's M has no entry."""
    mjm = oracle.sharpen(mujoco.MjModel.from_xml_string(ARMED.format("Euler")))
    m, limited = load(mjm), 0
    for qpos, qvel in states(mjm, 12):
        d = oracle.forward(mjm, qpos, qvel, np.zeros(0))
        mujoco.mj_rnePostConstraint(mjm, d)
        ours = derive(m, qpos.tolist(), qvel.tolist(), None, [])
        for name in ("qfrc_bias", "qacc", "cfrc_ext"):
            want = getattr(d, name)
            np.testing.assert_allclose(getattr(ours, name), want, rtol=0, atol=1e-11 * np.abs(want).max(), err_msg=name)
        want = oracle.field(mjm, d, "M")
        for i, row in enumerate(ours.M):
            np.testing.assert_allclose([row.get(j, 0.0) for j in range(i + 1)], want[i, : i + 1], rtol=0, atol=1e-12)
        limited += d.nl
    assert limited > 3
    rng, world = np.random.default_rng(0), {}
    for name in ("tendon_armature", "body_mass", "body_pos"):
        world[name] = random_params.draw(mjm, name, rng)
    own = random_params.edited(mjm, world)
    got = vary(m, {name: x.tolist() for name, x in world.items()})
    for name in ("tendon_invweight0", "dof_invweight0"):
        np.testing.assert_allclose(getattr(got, name)[2], getattr(own, name)[2], rtol=1e-10)
    want = oracle.forward(own, qpos, qvel, np.zeros(0)).qacc
    np.testing.assert_allclose(
        derive(got, qpos.tolist(), qvel.tolist(), None, []).qacc, want, rtol=0, atol=1e-11 * np.abs(want).max()
    )


@pytest.mark.parametrize("integrator", [pytest.param("Euler", marks=pytest.mark.slow), "RK4"])
def test_armature_of_tendons_over_200_steps(integrator):
    mjm = oracle.sharpen(mujoco.MjModel.from_xml_string(ARMED.format(integrator)))
    oracle.compare_steps(Simulation(mjm, 2, dtype=torch.float64), mjm, states(mjm, 2), 200)


def test_a_tendon_between_sites_that_nothing_moves_has_no_limit():
    """One site is of the world, and the other lies on the axis about which its body turns."""
    mjm = mujoco.MjModel.from_xml_string("""<mujoco><worldbody><site name="a" pos="1 0 0"/>
        <body><joint axis="0 0 1"/><geom size=".05" pos=".5 0 0"/><site name="b" pos="0 0 .2"/></body></worldbody>
        <tendon><spatial name="t" range=".1 .9"><site site="a"/><site site="b"/></spatial></tendon>
        <sensor><tendonlimitfrc tendon="t"/><tendonlimitpos tendon="t"/></sensor></mujoco>""")
    sim = Simulation(mjm, 2, dtype=torch.float64, outputs=("cfrc_ext", "sensordata"))
    data = oracle.compare_steps(sim, mjm, [(np.zeros(1), np.ones(1))] * 2, 1, names=("qvel", "sensordata", "cfrc_ext"))
    assert data[0].nefc == 0 and data[0].ten_length > 1


@pytest.mark.parametrize(
    ("kind", "row"),
    [
        ("fixed", 'frictionloss=".5"'),
        ("spatial", 'frictionloss=".5"'),
        ("fixed", 'range="-.1 .1" limited="true"'),
        ("spatial", 'range="0 .2" limited="true"'),
    ],
)
def test_a_tendon_is_as_stiff_as_mujocos_where_the_model_begins_in_gimbal_lock(kind: str, row: str) -> None:
    """dof_invweight0 is 1e15 there, which says nothing about another pose."""
    path = {
        "fixed": '<joint joint="a" coef="1"/><joint joint="c" coef="1"/>',
        "spatial": '<site site="w"/><site site="s"/>',
    }[kind]
    model = mujoco.MjModel.from_xml_string(f"""<mujoco><compiler angle="radian"/><worldbody>
      <site name="w" pos="0 .3 .4"/>
      <body><joint name="a" axis="0 0 1" damping=".1"/><joint axis="0 1 0" damping=".1"/>
        <joint name="c" axis="0 0 1" damping=".1"/>
        <geom type="box" size=".1 .2 .05" mass="1"/><site name="s" pos=".1 .2 .05"/></body></worldbody>
      <tendon><{kind} {row}>{path}</{kind}></tendon></mujoco>""")
    model.opt.tolerance = 1e-22
    data = mujoco.MjData(model)
    data.qpos[:], data.qvel[:] = [0.5, 0.8, -0.3], [1, 2, 1]
    mujoco.mj_forward(model, data)
    assert np.abs(data.qfrc_constraint).max() > 0.05
    ours = Simulation(model, 1, dtype=torch.float64, outputs=("qacc", "qfrc_constraint"))
    ours.qpos[0], ours.qvel[0] = torch.from_numpy(data.qpos), torch.from_numpy(data.qvel)
    ours.forward()
    np.testing.assert_allclose(ours.qfrc_constraint[0].cpu(), data.qfrc_constraint, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(ours.qacc[0].cpu(), data.qacc, rtol=1e-9, atol=1e-9)
