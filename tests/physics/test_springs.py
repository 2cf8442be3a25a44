"""Springs and dampers whose stiffness is a polynomial, against MuJoCo C."""

from __future__ import annotations

import mujoco
import numpy as np
import oracle
import pytest
import torch

from torch_mjenvs.physics import State, load, step
from torch_mjenvs.physics.columns import vary
from torch_mjenvs.physics.simulation import Simulation


def model(option: str) -> mujoco.MjModel:
    """A polynomial at each kind of joint and of tendon, of one or two higher coefficients, also negative ones."""
    return oracle.sharpen(
        mujoco.MjModel.from_xml_string(f"""<mujoco><compiler angle="radian"/>
        <option timestep=".004" {option}/><worldbody><site name="post" pos="0 0 .6"/>
        <body name="trunk" pos="0 0 .25"><joint type="free" stiffness="30 -20 50" damping=".05 .01"/>
          <geom type="capsule" size=".05 .2" euler="0 80 0"/><site name="back" pos="-.2 0 .1"/>
          <body pos=".2 0 0"><joint name="a" axis="0 1 0" stiffness="3 -5 20" springref=".1" damping=".1 .03 .01"/>
            <geom type="capsule" fromto="0 0 0 .2 0 -.1" size=".04"/>
            <body pos=".2 0 -.1"><joint type="ball" stiffness="0 2 3" damping="0 .002"/>
              <geom type="capsule" fromto="0 0 0 .1 0 -.1" size=".03"/><site name="toe" pos=".1 0 -.1"/></body></body>
        </body>
        <body pos="1 0 .3"><joint name="s" type="slide" axis="0 0 1" stiffness="100 0 900" damping="0 0 4"/>
          <geom size=".1"/><site name="tip" pos="0 .1 .1"/></body></worldbody>
        <tendon><fixed stiffness="5 10" damping=".02 .01 .003" springlength="-.02 .05">
            <joint joint="a" coef="1"/><joint joint="s" coef="-2"/></fixed>
          <spatial stiffness="0 30 -5" damping="0 3" springlength=".1 .3"><site site="post"/><site site="back"/>
          </spatial>
          <spatial stiffness="9"><site site="tip"/><site site="toe"/></spatial></tendon></mujoco>""")
    )


def test_the_model_has_polynomials():
    m = load(model(""))
    assert all(any(map(any, getattr(m, f"{x}poly"))) for x in ("jnt_stiffness", "tendon_stiffness"))
    assert all(any(map(any, getattr(m, f"{x}poly"))) for x in ("dof_damping", "tendon_damping"))


NO_DAMP = '><flag eulerdamp="disable"/></option><option'
NO_SPRING = '><flag spring="disable"/></option><option'
NO_DAMPER = '><flag damper="disable"/></option><option'
OPTIONS = ["", NO_DAMP, NO_SPRING, NO_DAMPER, *(f'integrator="{x}"' for x in ("RK4", "implicit", "implicitfast"))]


@pytest.mark.parametrize("option", OPTIONS)
def test_steps_are_mujocos(option):
    """Euler is implicit in dampers of joints, and the implicit integrators also in those of tendons."""
    mjm = model(option)
    m, d = load(mjm), mujoco.MjData(mjm)
    for qpos, qvel in oracle.scattered(mjm, 2, 0.3, (1.0, 5.0)):
        state = State(qpos.tolist(), qvel.tolist(), [0.0] * mjm.nv)
        d.qpos[:], d.qvel[:] = qpos, qvel
        for _ in range(10):
            state = step(m, state, [])
            mujoco.mj_step(mjm, d)
        np.testing.assert_allclose(state.qpos, d.qpos, rtol=0, atol=1e-11)
        np.testing.assert_allclose(state.qvel, d.qvel, rtol=0, atol=1e-10)


def test_in_a_kernel_the_first_coefficient_may_vary():
    mjm = model('integrator="implicitfast"')
    states = oracle.scattered(mjm, 3, 0.3, (1.0,))
    sim = Simulation(mjm, 3, dtype=torch.float64, vary=("jnt_stiffness", "dof_damping"))
    share = torch.tensor([0.0, 1.0, 2.5], dtype=torch.float64)
    for name in sim.vary:
        sim.params[name].mul_(share[:, None])
    for k, (qpos, qvel) in enumerate(states):
        sim.qpos[k], sim.qvel[k] = torch.tensor(qpos), torch.tensor(qvel)
    sim.step(5)
    for k, (qpos, qvel) in enumerate(states):
        own = model('integrator="implicitfast"')
        own.jnt_stiffness[:] *= share[k].item()
        own.dof_damping[:] *= share[k].item()
        d = mujoco.MjData(own)
        d.qpos[:], d.qvel[:] = qpos, qvel
        mujoco.mj_step(own, d, 5)
        np.testing.assert_allclose(sim.qvel[k].cpu(), d.qvel, rtol=0, atol=1e-10)


def test_per_world_damping_without_a_first_coefficient_is_implicit_too():
    """Where a world has no damping but that of higher order, Euler is implicit all the same."""
    mjm = model("")
    m = load(mjm)
    world = vary(m, {"dof_damping": [0.0] * mjm.nv})
    mjm.dof_damping[:] = 0.0
    d = mujoco.MjData(mjm)
    ((qpos, qvel),) = oracle.scattered(mjm, 1, 0.3, (3.0,))
    d.qpos[:], d.qvel[:] = qpos, qvel
    mujoco.mj_step(mjm, d)
    ours = step(world, State(qpos.tolist(), qvel.tolist(), [0.0] * mjm.nv), [])
    np.testing.assert_allclose(ours.qvel, d.qvel, rtol=0, atol=1e-11)
