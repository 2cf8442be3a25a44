"""The integrators `implicit` and `implicitfast` against MuJoCo C."""

from __future__ import annotations

import mujoco
import numpy as np
import oracle
import pytest
import torch

from torch_mjenvs.physics import State, load, step
from torch_mjenvs.physics.columns import vary
from torch_mjenvs.physics.simulation import Simulation

BOTH = pytest.mark.parametrize("integrator", ["implicitfast", "implicit"])


def model(integrator: str, fluid: str = 'density="30" viscosity=".2" wind="1 2 -1"') -> mujoco.MjModel:
    """All forces that depend on velocities, across branches and trees, three of them held in ranges.

    Free bodies alone, with a part welded on, and with limbs; one that slides along all axes, whose inertia is diagonal.
    """
    loose = 'contype="0" conaffinity="0"'
    return oracle.sharpen(
        mujoco.MjModel.from_xml_string(f"""<mujoco><option timestep=".01" integrator="{integrator}" {fluid}/>
        <worldbody><geom type="plane" size="9 9 1"/><site name="w" pos="0 0 2"/>
        <body pos="0 0 .5"><freejoint/><geom size=".1"/><site name="a" pos="0 .1 0"/>
          <body pos=".2 0 0"><joint name="h" axis="0 1 0" damping=".3" actuatorfrcrange="-3 3"/>
            <geom type="capsule" size=".08 .1" pos=".2 0 0"/><site name="b" pos=".3 0 .1"/>
            <body pos=".4 0 0"><joint name="k" axis="0 1 1"/><geom size=".06" pos=".1 0 0"/>
              <site name="c" pos=".1 .1 0"/></body></body>
          <body pos="-.2 0 0"><joint name="l" type="ball" damping=".2"/>
            <geom type="capsule" size=".05 .1" pos="-.2 0 0"/><site name="e" pos="-.3 0 .1"/></body></body>
        <body pos="2 0 1"><joint name="s" type="slide" axis="1 0 0"/><joint type="slide" axis="0 1 0"/>
          <joint type="slide" axis="0 0 1" damping="4"/><geom type="box" size=".1 .2 .3" euler="10 20 30" {loose}/>
          <site name="f" pos=".1 0 0"/></body>
        <body pos="0 2 1"><freejoint name="free"/><geom type="box" size=".1 .2 .3" pos=".1 .1 .1" {loose}/>
          <site name="g" pos=".1 .3 0"/></body>
        <body pos="0 3 .3"><freejoint/><geom type="box" size=".1 .2 .3" pos=".1 .1 .1" {loose}/>
          <body><geom size=".1" pos="0 0 -.3"/></body></body>
        </worldbody><tendon>
        <fixed name="fx" damping=".7" actuatorfrcrange="-9 9"><joint joint="h" coef="1.5"/><joint joint="k" coef="-1"/>
          <joint joint="s" coef="2"/></fixed>
        <spatial damping="1.7"><site site="w"/><site site="a"/><pulley divisor="2"/><site site="b"/>
          <site site="e"/><site site="c"/></spatial>
        <spatial name="sq" damping="3"><site site="f"/><site site="c"/><site site="g"/></spatial>
        </tendon><actuator>
        <general joint="h" gaintype="affine" gainprm="1 2 -3" biastype="affine" biasprm="0 -1 -2" ctrlrange="-.2 .2"/>
        <general jointinparent="h" biastype="affine" biasprm="0 0 -1.3"/>
        <general tendon="sq" gaintype="affine" gainprm="1 2 -1" biastype="affine" biasprm="0 -1 -2" forcerange="-3 3"/>
        <general tendon="fx" biastype="affine" biasprm="0 -1 -2"/>
        <general tendon="fx" biastype="affine" biasprm="0 -2 -1"/>
        <damper joint="k" kv="2" ctrlrange="0 1"/>
        <general site="a" gear="1 2 3 .4 .5 .6" biastype="affine" biasprm="0 0 -.2"/>
        <general joint="free" gear="1 2 3 .4 .5 .6" biastype="affine" biasprm="0 0 -.2"/>
        <general joint="l" gear="1 2 3" biastype="affine" biasprm="0 0 -.2"/>
        </actuator></mujoco>""")
    )


def states(mjm: mujoco.MjModel, n: int) -> list[tuple[np.ndarray, ...]]:
    """The second half fast."""
    rng = np.random.default_rng(1)
    return [(*state, rng.normal(0, 1, mjm.nu)) for state in oracle.scattered(mjm, n, 0.3, (0.5, 4.0))]


@BOTH
@pytest.mark.parametrize("fluid", ["", 'density="30" viscosity=".2" wind="1 2 -1"', 'viscosity="1"'])
def test_a_step_is_mujocos(integrator: str, fluid: str) -> None:
    """On Python floats, 20 states; forces are clamped in some, and in all it matters that the step is implicit."""
    mjm = model(integrator, fluid)
    m, clamped, touched = load(mjm), np.zeros(3, int), 0
    for qpos, qvel, ctrl in states(mjm, 20):
        d = mujoco.MjData(mjm)
        d.qpos[:], d.qvel[:], d.ctrl[:] = qpos, qvel, ctrl
        mujoco.mj_step(mjm, d)
        ours = step(m, State(qpos.tolist(), qvel.tolist(), [0.0] * m.nv), ctrl.tolist())
        np.testing.assert_allclose(ours.qvel, d.qvel, rtol=0, atol=1e-12 * np.abs(d.qvel).max())
        np.testing.assert_allclose(ours.qpos, d.qpos, rtol=0, atol=1e-12 * np.abs(d.qpos).max())
        implicitly = np.abs(d.qvel - qvel - mjm.opt.timestep * d.qacc)
        assert np.sum(implicitly > 1e-4) > 10
        touched += d.ncon > 0
        on_joint, on_tendon = d.qfrc_actuator[mjm.joint("h").dofadr[0]], d.actuator_force[3] + d.actuator_force[4]
        clamped += [abs(d.actuator_force[2]) == 3, abs(on_joint) == 3, abs(on_tendon) > 9 - 1e-9]
    assert np.all(clamped > 3) and np.all(clamped < 18) and touched > 3


@BOTH
def test_a_hundred_steps_are_mujocos(integrator: str) -> None:
    mjm = model(integrator)
    sim = Simulation(mjm, 4, dtype=torch.float64)
    oracle.compare_steps(sim, mjm, states(mjm, 4), 20, 5, bound=1e-8)


@BOTH
def test_what_varies_from_world_to_world_is_damped_as_in_its_own_model(integrator: str) -> None:
    mjm, rng = model(integrator), np.random.default_rng(0)
    m = load(mjm)
    for qpos, qvel, ctrl in states(mjm, 4):
        own = model(integrator)
        own.dof_damping[:] *= rng.uniform(0, 2, mjm.nv)
        own.actuator_biasprm[:, 2] *= rng.uniform(0, 2, mjm.nu)
        own.opt.density, own.opt.wind[:] = rng.uniform(0, 50), rng.normal(0, 1, 3)
        d = mujoco.MjData(own)
        d.qpos[:], d.qvel[:], d.ctrl[:] = qpos, qvel, ctrl
        mujoco.mj_step(own, d)
        names = ("dof_damping", "actuator_biasprm")
        values = {name: torch.tensor(getattr(own, name))[None] for name in names}
        values |= {
            "density": torch.tensor([own.opt.density], dtype=torch.float64),
            "wind": torch.tensor(own.opt.wind)[None],
        }
        given = [[torch.tensor([x]) for x in xs] for xs in (qpos, qvel, np.zeros(m.nv), ctrl)]
        ours = step(vary(m, values), State(*given[:3]), given[3])
        np.testing.assert_allclose(torch.cat(ours.qvel).cpu(), d.qvel, rtol=0, atol=1e-12 * np.abs(d.qvel).max())


@pytest.mark.parametrize("damping", [10.0, 1e4])
def test_a_tendon_however_damped_slows_as_the_implicit_rule_says(damping: float) -> None:
    """By 1 / (1 + h c / I) a step; Euler, which takes only the damping of joints implicitly, would blow up."""
    mjm = mujoco.MjModel.from_xml_string(f"""<mujoco><option timestep=".02" gravity="0 0 0" integrator="implicitfast"/>
        <worldbody><body><joint name="j"/><geom size=".1" mass="1" pos="1 0 0"/></body></worldbody>
        <tendon><fixed damping="{damping}"><joint joint="j" coef="2"/></fixed></tendon></mujoco>""")
    m, state = load(mjm), State([0.3], [2.0], [0.0])
    inertia = 1 + 0.4 * 0.1**2
    for k in range(1, 6):
        state = step(m, state, [])
        assert state.qvel[0] == pytest.approx(2 / (1 + 0.02 * 4 * damping / inertia) ** k, rel=1e-12)


@BOTH
@pytest.mark.parametrize("ends", ["-1 1", "-2 2", "-.5 .9"])
def test_what_is_held_on_a_tendon_is_judged_when_the_actuators_own_ranges_have_had_their_say(integrator, ends):
    """Two actuators ask for more than a tendon takes; where one may give but little, the other slows implicitly."""
    mjm = mujoco.MjModel.from_xml_string(f"""<mujoco><option timestep=".01" integrator="{integrator}"/>
        <worldbody><body><joint name="j" type="slide"/><geom size=".1" mass="1"/></body></worldbody>
        <tendon><fixed name="t" actuatorfrcrange="{ends}"><joint joint="j" coef="1"/></fixed></tendon>
        <actuator><general tendon="t" biastype="affine" biasprm="0 0 -1"/>
          <general tendon="t" biastype="affine" biasprm="0 0 -3" forcerange="-.3 .3"/></actuator></mujoco>""")
    rng, held = np.random.default_rng(0), 0
    states = [(np.zeros(1), rng.normal(0, 0.3, 1), rng.normal(0, 2, 2)) for _ in range(40)]
    oracle.compare_steps(Simulation(mjm, 40, dtype=torch.float64), mjm, states, 1, bound=1e-13)
    for state in states:
        d = oracle.forward(mjm, *state)
        asked, given = np.sum(state[2] - [1, 3] * state[1]), np.sum(d.actuator_force)
        low, high = mjm.tendon_actfrcrange[0]
        held += not low < asked < high and low + 1e-6 < given < high - 1e-6
    assert held > 3
