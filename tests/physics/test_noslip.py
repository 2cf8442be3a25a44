"""noslip (`physics/solver/noslip.py`) against MuJoCo C, at noslip_tolerance 0: MuJoCo then does all its sweeps."""

from __future__ import annotations

import mujoco
import numpy as np
import oracle
import pytest
import torch

from torch_mjenvs.physics import load
from torch_mjenvs.physics.constraints.batch import pair_batch
from torch_mjenvs.physics.kernel_request import KernelRequest
from torch_mjenvs.physics.model.precision import PRECISIONS
from torch_mjenvs.physics.pipeline import derive
from torch_mjenvs.physics.simulation import Simulation
from torch_mjenvs.physics.simulation_kernels import program

OUTPUTS = ("qacc", "qfrc_constraint", "cfrc_ext")


def model(sweeps: int, cone: str, condim: int, option: str = "") -> mujoco.MjModel:
    """A heap on the floor: a rod with a limb whose joint rubs, as its tendon does, and two balls."""
    surface = f'friction=".4 .02 .01" condim="{condim}"'
    return oracle.sharpen(
        mujoco.MjModel.from_xml_string(f"""<mujoco>
        <option timestep=".003" noslip_iterations="{sweeps}" noslip_tolerance="0" cone="{cone}" {option}/>
        <default><geom {surface}/></default><worldbody><geom type="plane" size="5 5 1"/><site name="post" pos="0 1 1"/>
        <body pos="0 0 .098"><freejoint/><geom type="capsule" size=".1 .2" euler="90 0 0"/>
          <site name="back" pos="0 0 .1"/>
          <body pos="0 .2 .1"><joint axis="1 0 0" frictionloss="1.5" damping=".1"/>
            <geom name="limb" type="capsule" size=".06" fromto="0 0 0 0 .3 -.1"/>
            <site name="tip" pos="0 .3 -.1"/></body></body>
        <body pos=".05 0 .28"><freejoint/><geom name="ball" size=".1"/></body>
        <body pos=".1 .18 .27"><freejoint/><geom size=".09" condim="1"/></body></worldbody>
        <tendon><spatial frictionloss=".5"><site site="back"/><site site="tip"/><site site="post"/></spatial></tendon>
        <contact><pair geom1="limb" geom2="ball" condim="{condim}"/></contact></mujoco>""")
    )


def close(got: object, want: np.ndarray, tolerance: float, what: str) -> None:
    bound = tolerance * max(1.0, np.max(np.abs(want)))
    np.testing.assert_allclose(got, want, rtol=0, atol=bound, err_msg=what)


@pytest.mark.parametrize("condim", [3, 4, 6])
@pytest.mark.parametrize("cone", ["pyramidal", "elliptic"])
@pytest.mark.parametrize("sweeps", [1, 20])
def test_accelerations_and_forces(sweeps, cone, condim):
    mjm, plain, rng = model(sweeps, cone, condim), model(0, cone, condim), np.random.default_rng(0)
    m, d, touched, changed = load(mjm), mujoco.MjData(plain), 0, 0.0
    for _ in range(8):
        mujoco.mj_step(plain, d, 5)
        d.qvel[:] += rng.normal(0, 0.1, mjm.nv)
        want, without = (oracle.forward(x, d.qpos, d.qvel, np.zeros(0)) for x in (mjm, plain))
        mujoco.mj_rnePostConstraint(mjm, want)
        ours = derive(m, d.qpos.tolist(), d.qvel.tolist(), None, [])
        for name in OUTPUTS:
            close(getattr(ours, name), getattr(want, name), 1e-9, name)
        touched, changed = touched + want.ncon, max(changed, np.max(np.abs(want.qacc - without.qacc)))
    undone = cone == "elliptic" and condim == 6  # MuJoCo finds most of its changes to be worse than none
    assert touched > 10 and (changed > 0.1 or undone)


@pytest.mark.parametrize(("cone", "option"), [("pyramidal", 'integrator="RK4"'), ("elliptic", "")])
def test_a_simulation_steps_as_mujoco(cone, option):
    mjm, rng = model(4, cone, 3, option), np.random.default_rng(1)
    sim, worlds = Simulation(mjm, 3, dtype=torch.float64, outputs=("qfrc_constraint", "cfrc_ext")), []
    for k in range(3):
        d = mujoco.MjData(mjm)
        d.qvel[:] = rng.normal(0, 0.3, mjm.nv)
        sim.qvel[k] = torch.tensor(d.qvel)
        worlds.append(d)
    sim.step(30)
    for k, d in enumerate(worlds):
        mujoco.mj_step(mjm, d, 30)
        mujoco.mj_rnePostConstraint(mjm, d)
        for name in ("qpos", "qvel", *sim.outputs):
            close(getattr(sim, name)[k].cpu(), getattr(d, name), 1e-8, name)


@pytest.mark.parametrize("in_slots", [False, True], ids=["written out", "in slots"])
def test_outputs_read_what_the_step_found(in_slots, monkeypatch):
    """Neither contacts nor sweeps are computed once more for them."""
    if in_slots:
        monkeypatch.setitem(pair_batch.MANY_SWEPT, "pyramidal", 1)
    m = load(model(4, "pyramidal", 3))
    assert bool(pair_batch.divided(m, PRECISIONS["float64"])[1]) == in_slots
    bare, more = (program(KernelRequest(m, names), "float64").count_ops().total() for names in ((), OUTPUTS))
    assert more < 1.2 * bare


ROLLS = 'condim="6" friction=".4 .05 .02"'

# Joints of a box. Its contacts have five axes of friction; coaxial hinges need armature to move apart. The last box can
# move along one of two axes only, and MuJoCo's bound of 1e-10 takes the other for one of its own.
JOINTS = {
    "fewer dofs than axes": '<joint type="slide" axis=".2 .1 1"/><joint type="ball"/>',
    "two hinges on a line": """<joint axis="1 0 .3" pos="0 .4 .1"/><joint axis="0 1 .1" pos=".5 0 .2" armature=".05"/>
        <joint axis="0 1 .1" pos=".5 .1 .21" armature=".05"/><joint axis=".3 .1 1" pos=".4 .3 0"/>
        <joint axis="1 1 0" pos="-.4 .3 .1"/>""",
    "it cannot roll one way": """<joint type="slide" axis="1 0 0"/><joint type="slide" axis="0 1 0"/>
        <joint type="slide" axis="0 0 1"/><joint armature=".05"/><joint pos=".1 .2 0" armature=".05"/>
        <joint axis="0 1 0"/>""",
    "it slides along one axis": '<joint type="slide" axis="0 1 -.3"/>',
}


@pytest.mark.parametrize("in_slots", [False, True], ids=["written out", "in slots"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("joints", JOINTS)
def test_friction_whose_axes_follow_from_each_other_stays_as_mujoco_leaves_it(joints, dtype, in_slots, monkeypatch):
    """A is singular there, of which only rounding says otherwise."""
    if in_slots:
        monkeypatch.setitem(pair_batch.MANY_SWEPT, "elliptic", 1)
    surface = 'friction="3" mass=".05"' if joints == "it slides along one axis" else f'{ROLLS} mass="2"'
    xml = f"""<mujoco><option noslip_iterations="2" noslip_tolerance="0" cone="elliptic"/><worldbody>
        <geom type="plane" size="5 5 1" friction="0"/>
        <body pos="0 0 .098">{JOINTS[joints]}<geom type="box" size=".15 .1 .1" euler="3 -2 10" {surface}/></body>
        </worldbody></mujoco>"""
    mjm, rng = oracle.sharpen(mujoco.MjModel.from_xml_string(xml)), np.random.default_rng(3)
    assert bool(pair_batch.divided(load(mjm), PRECISIONS["float64"])[1]) == in_slots
    sim, touching = Simulation(mjm, 16, dtype=dtype), 0
    worlds = [mujoco.MjData(mjm) for _ in range(16)]
    for k, d in enumerate(worlds):
        d.qvel[:] = rng.normal(0, 0.3, mjm.nv)
        mujoco.mj_step(mjm, d, 5 + k)
        sim.qpos[k], sim.qvel[k] = (torch.from_numpy(x).to(dtype) for x in (d.qpos, d.qvel))
    sim.step()
    for k, d in enumerate(worlds):
        mujoco.mj_step(mjm, d)
        touching += d.ncon
        close(sim.qvel[k].cpu(), d.qvel, 1e-9 if dtype == torch.float64 else 1e-4, f"world {k}")
    assert touching > 16
