"""Equalities of joints and of tendons (`constraints/couplings.py`) against MuJoCo C. Those of bodies: test_welds.py."""

from __future__ import annotations

import mujoco
import numpy as np
import oracle
import pytest
import torch

from torch_mjenvs.physics import load
from torch_mjenvs.physics.constraints.equality import Equality
from torch_mjenvs.physics.pipeline import derive
from torch_mjenvs.physics.simulation import Simulation

ONE = '<joint joint1="b" polycoef=".2 0 0 0 0" solref=".03 .7" solimp=".5 .99 .1 .4 3"/>'
TWO = '<joint joint1="a" joint2="c" polycoef=".05 .8 .3 -.2 .1"/>'
OTHER_TREE = '<joint joint1="d" joint2="a" polycoef="0 -2 0 0 0" solref="-400 -30"/>'
TENDON = '<tendon tendon1="fixed" polycoef=".1 0 0 0 0"/>'
TENDONS = '<tendon tendon1="far" tendon2="fixed" polycoef=".05 .8 .3 -.2 .1" solimp=".5 .99 .1 .4 3"/>'
BETWEEN = '<tendon tendon1="near" tendon2="far" polycoef="0 -1 0 0 0"/><tendon tendon1="still"/>'
INACTIVE = '<joint joint1="s" active="false"/><weld body1="hand" active="false"/>'


def model(equalities: str, option: str = "") -> mujoco.MjModel:
    """A floating body with limbs, one of them limited, and an arm beside it; all of them near the floor."""
    return oracle.sharpen(
        mujoco.MjModel.from_xml_string(f"""<mujoco><compiler angle="radian"/><option timestep=".002" {option}/>
        <worldbody><geom type="plane" size="5 5 1"/>
        <body pos="0 0 .25"><freejoint/><geom type="capsule" size=".05 .2" euler="0 80 0"/>
          <body pos=".2 0 0"><joint name="a" axis="0 1 0" range="-.2 .2" limited="true" ref=".1"/>
            <geom type="capsule" fromto="0 0 0 .2 0 -.1" size=".04"/>
            <body name="hand" pos=".2 0 -.1"><joint name="b" axis="0 1 .2" armature=".01"/>
              <geom type="capsule" fromto="0 0 0 .1 0 -.1" size=".03"/></body></body>
          <site name="middle" pos="0 .1 0"/>
          <body pos="-.2 0 0"><joint name="c" axis="0 1 0"/><site name="left" pos="-.2 .1 0"/>
            <geom type="capsule" fromto="0 0 0 -.2 0 -.1" size=".04"/></body></body>
        <body pos="1 0 .2"><joint name="s" type="slide" axis="0 0 1"/><joint name="d" axis="1 0 0"/>
          <geom size=".1" pos="0 .05 0"/><site name="aside" pos="0 .1 0"/></body>
        <site name="here" pos=".3 .3 0"/><site name="there" pos=".3 .5 0"/></worldbody>
        <tendon><fixed name="fixed"><joint joint="a" coef="1"/><joint joint="d" coef="-.5"/></fixed>
          <spatial name="far"><site site="aside"/><site site="left"/></spatial>
          <spatial name="near"><site site="left"/><site site="middle"/><site site="here"/></spatial>
          <spatial name="still"><site site="here"/><site site="there"/></spatial></tendon>
        <equality>{equalities}</equality></mujoco>""")
    )


ALONE = [ONE, TWO, OTHER_TREE, TENDON, TENDONS, BETWEEN]


@pytest.mark.parametrize("equalities", [*ALONE, ONE + TWO + OTHER_TREE + INACTIVE])
def test_accelerations_and_forces(equalities):
    mjm = model(equalities)
    m, touched, limited = load(mjm), 0, 0
    for qpos, qvel in oracle.scattered(mjm, 30):
        d = oracle.forward(mjm, qpos, qvel, np.zeros(0))
        mujoco.mj_rnePostConstraint(mjm, d)
        ours = derive(m, qpos.tolist(), qvel.tolist(), None, [])
        rows = [row for c in ours.constraints if isinstance(c, Equality) for row in c.rows]
        np.testing.assert_allclose([c.D for c in rows], d.efc_D[: d.ne], rtol=1e-12)
        np.testing.assert_allclose([-c.y0 for c in rows], d.efc_aref[: d.ne], rtol=1e-11, atol=1e-12)
        for name in ("qacc", "qfrc_constraint", "cfrc_ext"):
            want = getattr(d, name)
            np.testing.assert_allclose(getattr(ours, name), want, rtol=0, atol=1e-12 * np.abs(want).max())
        touched, limited = touched + (d.ncon > 0), limited + d.nl
    assert d.ne == equalities.count("polycoef") == len(rows) and touched > 5 and limited > 5


@pytest.mark.parametrize("integrator", ["Euler", "RK4"])
def test_trajectories_of_200_steps(integrator):
    mjm = model(ONE + TWO + OTHER_TREE + TENDONS, f'integrator="{integrator}"')
    oracle.compare_steps(Simulation(mjm, 4, dtype=torch.float64), mjm, oracle.scattered(mjm, 4), 200)


@pytest.mark.parametrize("solimp", [".9 .95 .001", ".9999 .9999 .001"])
def test_an_equality_holds_in_float32(solimp):
    """One step of accelerations, and after a second the joint where it is to be; the hardest one repeats its step."""
    mjm = model(TWO.replace("/>", f' solimp="{solimp}"/>'))
    sim = Simulation(mjm, 30, outputs=("qacc",))
    oracle.compare_float32(sim, mjm, oracle.scattered(mjm, 30))
    sim.step(500)
    a, c = sim.qpos[:, mjm.joint("a").qposadr[0]] - 0.1, sim.qpos[:, mjm.joint("c").qposadr[0]]
    assert (a - (0.05 + 0.8 * c + 0.3 * c**2 - 0.2 * c**3 + 0.1 * c**4)).abs().max() < 0.05


@pytest.mark.parametrize("flag", ["equality", "constraint"])
def test_switched_off_it_is_as_if_it_were_not_there(flag):
    option = f'/><option><flag {flag}="disable"/></option><option timestep=".002"'
    with_it, without = (load(model(x, option)) for x in (TWO, ""))
    ((qpos, qvel),) = oracle.scattered(model(TWO), 1)
    one, other = (derive(m, qpos.tolist(), qvel.tolist(), None, []).qacc for m in (with_it, without))
    assert one == other
