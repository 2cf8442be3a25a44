"""Friction loss of joints (`constraints/friction.py`) against MuJoCo C."""

from __future__ import annotations

import mujoco
import numpy as np
import oracle
import pytest
import torch

from torch_mjenvs.physics import load
from torch_mjenvs.physics.columns import vary
from torch_mjenvs.physics.pipeline import derive
from torch_mjenvs.physics.simulation import Simulation

STICKS, SLIDES = mujoco.mjtConstraintState.mjCNSTRSTATE_QUADRATIC, {
    mujoco.mjtConstraintState.mjCNSTRSTATE_LINEARNEG, mujoco.mjtConstraintState.mjCNSTRSTATE_LINEARPOS,
}  # fmt: skip
SOFT = 'solreffriction=".03 .7" solimpfriction=".5 .99 .1 .4 3"'
DIRECT = 'solreffriction="-400 -30" solimpfriction=".8 .8 .001"'
HARD = 'solimpfriction=".9999 .9999 .001"'


def model(option: str = "", how: str = SOFT, arm: str = "2") -> mujoco.MjModel:
    """A floating body with limbs, one of them limited and one that follows it, and an arm; all near the floor."""
    return oracle.sharpen(
        mujoco.MjModel.from_xml_string(f"""<mujoco><compiler angle="radian"/><option timestep=".002" {option}/>
        <worldbody><geom type="plane" size="5 5 1"/>
        <body pos="0 0 .25"><joint type="free" frictionloss=".3"/><geom type="capsule" size=".05 .2" euler="0 80 0"/>
          <body pos=".2 0 0"><joint name="a" axis="0 1 0" range="-.2 .2" limited="true" frictionloss="1" {how}/>
            <geom type="capsule" fromto="0 0 0 .2 0 -.1" size=".04"/>
            <body pos=".2 0 -.1"><joint name="b" type="ball" frictionloss=".05" {DIRECT}/>
              <geom type="capsule" fromto="0 0 0 .1 0 -.1" size=".03"/></body></body>
          <body pos="-.2 0 0"><joint name="c" axis="0 1 0"/>
            <geom type="capsule" fromto="0 0 0 -.2 0 -.1" size=".04"/></body></body>
        <body pos="1 0 .2"><joint name="s" type="slide" axis="0 0 1" frictionloss="{arm}" {how}/>
          <joint name="d" axis="1 0 0" frictionloss=".5"/><geom size=".1" pos="0 .05 0"/></body>
        </worldbody><equality><joint joint1="a" joint2="c"/></equality></mujoco>""")
    )


def states(mjm: mujoco.MjModel, n: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Half of them next to at rest."""
    return oracle.scattered(mjm, n, speeds=(1.0, 0.01))


@pytest.mark.parametrize("how", ["", SOFT, DIRECT, HARD])
def test_accelerations_and_forces(how):
    mjm = model(how=how, arm="200")
    m, found, touched, limited = load(mjm), set(), 0, 0
    for qpos, qvel in states(mjm, 30):
        d = oracle.forward(mjm, qpos, qvel, np.zeros(0))
        ours = derive(m, qpos.tolist(), qvel.tolist(), None, [])
        here = slice(d.ne, d.ne + d.nf)
        rows = ours.constraints[here]
        np.testing.assert_allclose([c.D for c in rows], d.efc_D[here], rtol=1e-12)
        np.testing.assert_allclose([-c.y0 for c in rows], d.efc_aref[here], rtol=1e-11, atol=1e-12)
        force = [c.force(ours.qacc) for c in rows]
        np.testing.assert_allclose(force, d.efc_force[here], rtol=0, atol=1e-11 * np.abs(d.efc_force).max())
        np.testing.assert_allclose(ours.qacc, d.qacc, rtol=0, atol=1e-12 * np.abs(d.qacc).max())
        want = d.qfrc_constraint
        rounding = np.finfo(float).eps * (d.efc_D[here] * np.abs(d.efc_aref[here])).max()  # of a row that sticks
        np.testing.assert_allclose(ours.qfrc_constraint, want, rtol=0, atol=1e-12 * np.abs(want).max() + 4 * rounding)
        found |= set(d.efc_state[here].tolist())
        touched, limited = touched + (d.ncon > 0), limited + d.nl
    assert d.nf == 12 and found == {int(STICKS), *map(int, SLIDES)} and touched > 5 and limited > 2


@pytest.mark.parametrize("integrator", ["Euler", "RK4"])
def test_trajectories_of_200_steps(integrator):
    mjm = model(f'integrator="{integrator}"')
    oracle.compare_steps(Simulation(mjm, 4, dtype=torch.float64), mjm, states(mjm, 4), 200)


@pytest.mark.parametrize("how", [SOFT, HARD])
def test_it_holds_in_float32(how):
    """One step of accelerations, in which joints stick and slide; the hardest rows repeat their step."""
    mjm = model(how=how, arm="200")
    oracle.compare_float32(Simulation(mjm, 30, outputs=("qacc",)), mjm, states(mjm, 30))


@pytest.mark.parametrize("flag", ["frictionloss", "constraint"])
def test_switched_off_it_is_as_if_it_were_not_there(flag):
    mjm = model(f'/><option><flag {flag}="disable"/></option><option timestep=".002"')
    m = load(mjm)
    assert not any(m.dof_frictionloss)
    ((qpos, qvel),) = states(mjm, 1)
    want = oracle.forward(mjm, qpos, qvel, np.zeros(0)).qacc
    np.testing.assert_allclose(
        derive(m, qpos.tolist(), qvel.tolist(), None, []).qacc, want, rtol=0, atol=1e-12 * np.abs(want).max()
    )
    with pytest.raises(ValueError, match="a disable flag of the model switches off"):
        Simulation(mjm, 1, vary=("dof_frictionloss",))


def test_it_varies_from_world_to_world_where_the_model_has_any():
    mjm = model()
    m, rng = load(mjm), np.random.default_rng(0)
    for qpos, qvel in states(mjm, 10):
        own = model()
        own.dof_frictionloss[:] *= rng.uniform(0, 2, mjm.nv) * (rng.random(mjm.nv) < 0.7)
        want = oracle.forward(own, qpos, qvel, np.zeros(0)).qacc
        world = vary(m, {"dof_frictionloss": own.dof_frictionloss.tolist()})
        got = derive(world, qpos.tolist(), qvel.tolist(), None, []).qacc
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-12 * np.abs(want).max())
    sim = Simulation(mjm, 1, vary=("dof_frictionloss",))
    free = sim.params["dof_frictionloss"].clone()
    free[:, mjm.joint("c").dofadr[0]] = 0.1
    with pytest.raises(ValueError, match="dof_frictionloss of world 0 makes no sense: dofs without any"):
        sim.set_params({"dof_frictionloss": free})


def test_on_plain_numbers_friction_that_has_nothing_to_oppose_leaves_a_joint_at_rest():
    """There the solver's line search divides 0 by 0, which Python's floats refuse."""
    m = load("""<mujoco><option gravity="0 0 0"/><worldbody><body><joint frictionloss="1"/><geom size=".1"/></body>
        </worldbody></mujoco>""")
    assert derive(m, [0.0], [0.0], None, []).qacc == [0.0]
