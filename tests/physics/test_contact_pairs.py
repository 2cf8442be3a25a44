"""Pairs of geoms that a model names itself (`<contact><pair>`) against MuJoCo C."""

from __future__ import annotations

import mujoco
import numpy as np
import oracle
import pytest
import torch

from torch_mjenvs.physics import load
from torch_mjenvs.physics.pipeline import derive
from torch_mjenvs.physics.simulation import Simulation

PAIRS = """
  <exclude body1="torso" body2="world"/>
  <pair geom1="torso" geom2="floor" condim="3" friction=".4 .4" solref="-900 -20" solimp=".5 .99 .1 .4 3"/>
  <pair geom1="leg" geom2="torso" condim="1" margin=".02" gap=".01"/>
  <pair geom1="floor" geom2="leg" margin=".05" friction="2 2" solref=".03 .7"/>
  <pair geom1="leg" geom2="floor" condim="1"/>
  <pair geom1="ball" geom2="leg" condim="3" friction=".3 .3" margin=".1"/>
  <pair geom1="ball" geom2="floor" condim="3" friction="1 1" solreffriction=".1 1"/>
  <pair geom1="post" geom2="floor"/>
  <pair geom1="torso" geom2="pack"/>
"""


def model(option: str = "", pairs: str = PAIRS) -> mujoco.MjModel:
    """A floating body with a leg, whose contacts are named; a ball of high priority; two spheres that touch anyhow."""
    return oracle.sharpen(
        mujoco.MjModel.from_xml_string(f"""<mujoco><option timestep=".002" impratio="2" {option}/>
        <worldbody><geom name="floor" type="plane" size="5 5 1"/><geom name="post" size=".05" pos="2 0 0"/>
        <body name="torso" pos="0 0 .15"><freejoint/><geom name="torso" type="capsule" size=".1 .2" euler="0 80 0"/>
          <body><geom name="pack" size=".1"/></body>
          <body pos=".2 0 0"><joint axis="0 1 0"/>
            <geom name="leg" type="capsule" fromto="0 0 0 .2 0 -.1" size=".05" contype="0" conaffinity="0"/></body>
          </body>
        <body pos=".35 0 .15"><freejoint/><geom name="ball" size=".1" priority="3" condim="1" friction="3"/></body>
        <body pos="0 .1 .3"><freejoint/><geom name="other" size=".1" condim="3"/></body>
        </worldbody><contact>{pairs}</contact></mujoco>""")
    )


def test_accelerations_and_forces():
    mjm = model()
    m, touched = load(mjm), set()
    for qpos, qvel in oracle.scattered(mjm, 40, 0.05):
        d = oracle.forward(mjm, qpos, qvel, np.zeros(0))
        ours = derive(m, qpos.tolist(), qvel.tolist(), None, [])
        for name in ("qacc", "qfrc_constraint"):
            want = getattr(d, name)
            np.testing.assert_allclose(getattr(ours, name), want, rtol=0, atol=1e-11 * np.abs(want).max(initial=1))
        found = [(*map(lambda g: mjm.geom(g).name, c.geom), c.dim) for c in d.contact if c.efc_address >= 0]
        touched |= {(*sorted(geoms), dim) for *geoms, dim in found}
    assert touched >= {
        ("floor", "torso", 3), ("leg", "torso", 1), ("floor", "leg", 3), ("floor", "leg", 1), ("ball", "leg", 3),
        ("ball", "floor", 3), ("other", "torso", 3),
    }  # fmt: skip


def test_stiffness_and_reference_of_a_pair():
    """Of one contact alone: `efc_D` and `efc_aref`."""
    xml = """<mujoco><worldbody><geom name="a" type="plane" size="1 1 1"/><body pos="0 0 .11"><freejoint/>
      <geom name="b" size=".1" priority="1"/></body></worldbody>
      <contact><pair geom1="b" geom2="a" condim="3" margin=".05" friction=".7 .7"
      solref=".03 .7" solimp=".5 .99 .1 .4 3"/></contact></mujoco>"""
    mjm = oracle.sharpen(mujoco.MjModel.from_xml_string(xml))
    qvel = np.array([1.0, 2, -3, 0.1, 0.2, 0.3])
    d = oracle.forward(mjm, mjm.qpos0, qvel, np.zeros(0))
    ours = derive(load(mjm), mjm.qpos0.tolist(), qvel.tolist(), None, [])
    (contact,) = ours.constraints[0].contacts
    np.testing.assert_allclose([contact.cone.D] * 4, d.efc_D, rtol=1e-12)
    np.testing.assert_allclose([-row[0] for row in contact.cone.rows(contact.y0)], d.efc_aref, rtol=1e-12)


@pytest.mark.parametrize("integrator", ["Euler", "RK4"])
def test_trajectories_of_100_steps(integrator):
    mjm = model(f'integrator="{integrator}"')
    oracle.compare_steps(Simulation(mjm, 4, dtype=torch.float64), mjm, oracle.scattered(mjm, 4, 0.05), 100)


@pytest.mark.parametrize("flag", ["contact", "constraint"])
def test_switched_off_they_are_not_there(flag):
    assert not load(model(f'/><option><flag {flag}="disable"/></option><option timestep=".002"')).pairs


def test_contacts_are_counted_in_the_gap_far_off_and_of_geoms_that_are_welded_together():
    mjm = mujoco.MjModel.from_xml_string("""<mujoco><worldbody><body pos="0 0 1"><freejoint/>
        <geom name="a" type="capsule" size=".1 .2" gap=".5"/><geom name="b" size=".1" pos=".15 0 0"/></body>
        <body pos=".6 0 1"><freejoint/><geom type="capsule" size=".1 .2"/></body></worldbody>
        <contact><pair geom1="a" geom2="b"/></contact></mujoco>""")
    d = mujoco.MjData(mjm)
    mujoco.mj_forward(mjm, d)
    assert derive(load(mjm), d.qpos.tolist(), d.qvel.tolist(), None, []).ncon == d.ncon == 3
