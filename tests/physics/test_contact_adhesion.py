"""Contacts that pull (`geom/adhesion`, `pair/adhesion`) against MuJoCo C, in the gap, too, by the normal alone."""

from __future__ import annotations

import mujoco
import numpy as np
import oracle
import pytest
import torch

from torch_mjenvs.physics import load
from torch_mjenvs.physics.constraints.batch.pair_batch import batch_pairs
from torch_mjenvs.physics.model.model import UnsupportedModel
from torch_mjenvs.physics.model.precision import DOUBLE
from torch_mjenvs.physics.pipeline import derive
from torch_mjenvs.physics.simulation import Simulation

SENSORS = """<touch site="s"/><force site="t"/><torque site="t"/>
  <contact geom1="rod" num="3" data="found force dist pos normal" reduce="maxforce"/>
  <contact body1="box" data="found force torque" reduce="netforce"/>"""
FORCES = ("qacc", "qacc_smooth", "qfrc_adhesion", "qfrc_passive", "qfrc_constraint", "cfrc_ext", "sensordata")


def model(condim: int, option: str = "", flag: str = "", priority: int = 0, friction: float = 0.8) -> mujoco.MjModel:
    """A sticky floor, an arm of two sticky links and a box; the box and the second link are a pair of their own."""
    return oracle.sharpen(
        mujoco.MjModel.from_xml_string(f"""<mujoco><option timestep=".002" {option}><flag {flag}/></option><worldbody>
        <geom type="plane" size="5 5 1" adhesion="1.5" margin=".01"/>
        <body pos="0 0 .1"><freejoint/><site name="s" size=".3"/>
          <geom name="rod" type="capsule" size=".1 .2" condim="{condim}" adhesion="3" gap=".04" margin=".02"
            friction="{friction} .02 .01"/>
          <body pos=".4 0 0"><joint axis="0 1 0" stiffness="3" damping=".1"/>
            <geom name="ball" size=".12" condim="{condim}" adhesion="4" gap=".05" friction=".7 .02 .01"/></body></body>
        <body name="box" pos=".1 .1 .3"><freejoint/><site name="t"/>
          <geom name="box" type="box" size=".1 .08 .06" condim="{condim}" adhesion="2" friction=".5 .1 .1"
            priority="{priority}"/></body></worldbody>
        <contact><pair geom1="ball" geom2="box" adhesion="7" gap=".1" condim="{condim}" friction=".3 .4 .05 .02 .03"/>
        </contact><sensor>{SENSORS}</sensor></mujoco>""")
    )


def rolled(mjm: mujoco.MjModel, n: int, seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """n states (qpos, qvel) of rollouts from near qpos0."""
    rng, d, out = np.random.default_rng(seed), mujoco.MjData(mjm), []
    for k in range(n):
        if k % 5 == 0:
            mujoco.mj_resetData(mjm, d)
            mujoco.mj_integratePos(mjm, d.qpos, rng.normal(0, 0.1, mjm.nv), 1.0)
            d.qvel[:] = rng.normal(0, 1, mjm.nv)
        mujoco.mj_step(mjm, d, int(rng.integers(1, 40)))
        out.append((d.qpos.copy(), d.qvel.copy()))
    return out


CASES = [
    (condim, f'cone="{cone}" noslip_iterations="{sweeps}" noslip_tolerance="0"', "", priority, 0.8)
    for cone in ("pyramidal", "elliptic")
    for condim, sweeps, priority in ((1, 0, 0), (3, 0, 1), (4, 0, 0), (6, 0, 1), (3, 4, 0))
] + [
    (3, 'integrator="implicitfast"', "", 0, 1e-5),  # whose normal is softened by a spring
    (3, "", 'spring="disable" damper="disable"', 0, 0.8),  # all that is passive is left out, but not what rows push
]


@pytest.mark.parametrize(("condim", "option", "flag", "priority", "friction"), CASES)
def test_forces_are_those_of_mujoco(condim, option, flag, priority, friction):
    mjm = model(condim, option, flag, priority, friction)
    m, pulled, apart = load(mjm), 0, 0
    for qpos, qvel in rolled(mjm, 20, seed=condim):
        d = oracle.forward(mjm, qpos, qvel, np.zeros(0))
        mujoco.mj_rnePostConstraint(mjm, d)
        ours = derive(m, qpos.tolist(), qvel.tolist(), None, [])
        for name in FORCES:
            got, want = getattr(ours, name), getattr(d, name)
            if name == "sensordata":
                got = [x for i in range(mjm.nsensor) for x in got.of_sensor(i)]
            bound = 1e-11 * (1 + np.abs(want).max())
            np.testing.assert_allclose(got, want, rtol=0, atol=bound, err_msg=name)
        net = np.zeros(6)
        for i, c in enumerate(d.contact):
            mujoco.mj_contactForce(mjm, d, i, net)
            pulled += net[0] < 0
            apart += c.dist >= c.includemargin and c.efc_address >= 0
    assert pulled > 3 and apart > 3


@pytest.mark.parametrize("cone", ["pyramidal", "elliptic"])
def test_a_simulation_moves_as_mujoco(cone):
    mjm = model(3, f'cone="{cone}"')
    states = [(*state, np.zeros(0)) for state in rolled(mjm, 6, seed=7)]
    names = ("qpos", "qvel", "qfrc_adhesion", "cfrc_ext", "sensordata")
    sim = Simulation(mjm, len(states), dtype=torch.float64, outputs=names[2:])
    theirs = oracle.compare_steps(sim, mjm, states, 10, bound=1e-9, names=names)
    assert any(np.any(d.qfrc_adhesion) for d in theirs)


@pytest.mark.parametrize("own", ["adhesion='3' gap='.05'", "surfacevel='0 1 0 0 0 0'"])
def test_pairs_that_pull_or_whose_surface_moves_are_not_in_loops(own):
    """Pairs enough for a loop, of which those with one ball pull, or have a surface that moves."""
    gap = "gap='.05'" if "gap" in own else ""
    balls = "".join(
        f"<body pos='{0.19 * k} 0 0'><freejoint/><geom size='.1' {own if k == 2 else gap}/></body>" for k in range(6)
    )
    mjm = oracle.sharpen(mujoco.MjModel.from_xml_string(f"<mujoco><worldbody>{balls}</worldbody></mujoco>"))
    m = load(mjm)
    assert [len(pairs) for pairs in batch_pairs(m, DOUBLE)] == [10]
    for qpos, qvel in oracle.scattered(mjm, 6, 0.05):
        d = oracle.forward(mjm, qpos, qvel, np.zeros(0))
        ours = derive(m, qpos.tolist(), qvel.tolist(), None, [])
        np.testing.assert_allclose(ours.qacc, d.qacc, rtol=0, atol=1e-11 * np.abs(d.qacc).max())
        assert np.any(d.qfrc_adhesion) == ("adhesion" in own)


def test_adhesion_that_mujoco_does_not_know_of_is_refused():
    body = "<body><freejoint/><geom name='b' size='1'/></body>"
    mjm = mujoco.MjModel.from_xml_string(f"<mujoco><worldbody><geom name='a' size='1'/>{body}</worldbody></mujoco>")
    mjm.geom_adhesion[1] = 1
    with pytest.raises(UnsupportedModel, match=r"adhesion of the contact of geom 'a' and geom 'b', .*: call mujoco"):
        load(mjm)
    mujoco.mj_setConst(mjm, mujoco.MjData(mjm))
    load(mjm)
