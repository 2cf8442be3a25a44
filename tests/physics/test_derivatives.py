"""Simulation.linearize: against centred differences of our own step, and of MuJoCo's (mjd_transitionFD)."""

from __future__ import annotations

from typing import Any

import mujoco
import numpy as np
import oracle
import pytest
import torch

from torch_mjenvs.physics import UnsupportedModel
from torch_mjenvs.physics.constraints.batch.pair_batch import batch_pairs
from torch_mjenvs.physics.simulation import Simulation
from torch_mjenvs.physics.simulation_kernels import precision_of

# Of differences. Rounding spoils those by small steps, curvature those by large ones, a kink those that reach over it.
# So all of them are taken, and the best counts: the error of a wrong derivative would be there at every step.
STEPS = (1e-7, 1e-6, 1e-5)
EULER, RK4, IMPLICIT, IMPLICITFAST = range(4)

LIMBS = "".join(
    f"""<body pos="{0.095 * k - 0.2} {0.03 * k} 0"><joint name="j{k}" type="hinge" axis="0 1 {k % 2}" damping="0.05"/>
    <geom type="capsule" size="0.05" fromto="0 0 0 0 0.02 -0.3"/></body>"""
    for k in range(5)
)
ALIKE = """
<mujoco>
  <option cone="{cone}" integrator="{integrator}"/>
  <worldbody>
    <geom type="plane" size="5 5 1"/>
    <body pos="0 0 0.5">
      <joint type="slide" axis="1 0 0"/><joint type="slide" axis="0 0 1"/><joint type="hinge" axis="0 1 0"/>
      <geom type="sphere" size="0.05"/>{limbs}
    </body>
  </worldbody>
  <actuator><motor joint="j1" gear="0.3"/><motor joint="j2" gear="0.3"/></actuator>
</mujoco>
"""

ON_FLOOR = """
<mujoco>
  <asset><mesh name="m" vertex="0 0 -.1 .1 0 .1 -.1 .1 .1 -.1 -.1 .1 .05 -.1 0"/></asset>
  <worldbody>
    <geom type="{floor}" size="5 5 1" pos="0 0 {floor_z}"/>
    <body pos="0 0 0.12"><freejoint/><geom {geom}/></body>
  </worldbody>
</mujoco>
"""

LEG = """
<mujoco>
  <option cone="{cone}" integrator="{integrator}"/>
  <worldbody>
    <geom type="plane" size="5 5 1" friction="0.8"/>
    <body pos="0 0 0.33">
      <joint type="slide" axis="1 0 0"/><joint type="slide" axis="0 0 1"/><joint type="hinge" axis="0 1 0"/>
      <geom type="box" size="0.1 0.05 0.05"/><site name="trunk"/>
      <body pos="0 0 -0.05">
        <joint name="knee" type="hinge" axis="0 1 0" range="-40 40" limited="true" damping="0.1" frictionloss="0.05"
          armature="0.01"/>
        <geom type="capsule" size="0.03" fromto="0 0 0 0 0 -0.25"/><site name="foot" pos="0 0 -0.25" size="0.05"/>
      </body>
    </body>
  </worldbody>
  <actuator><motor name="knee" joint="knee" gear="2"/></actuator>
  <sensor>
    <touch name="touch" site="foot"/><accelerometer site="trunk"/><gyro site="trunk"/>
    <framequat objtype="site" objname="trunk"/><jointpos joint="knee"/><actuatorfrc actuator="knee"/><clock/>
  </sensor>
</mujoco>
"""
VARIED = (
    "body_mass", "body_inertia", "body_ipos", "body_pos", "dof_armature", "dof_damping", "jnt_range",
    "actuator_gear", "geom_friction",
)  # fmt: skip

States = list[torch.Tensor]  # qpos, qvel, ctrl, act, (n, ...) each

FREE = """
<mujoco>
  <option cone="{cone}" integrator="{integrator}"/>
  <worldbody>
    <geom type="plane" size="5 5 1"/>
    <body pos="0 0 0.09"><freejoint/><geom type="sphere" size="0.1"/>
      <body pos="0.2 0 0"><joint type="ball" damping="0.1"/>
        <geom type="capsule" size="0.05 0.1" contype="0" conaffinity="0"/></body>
    </body>
    <body pos="0.1 0 0.3"><freejoint/><geom type="sphere" size="0.12" condim="4"/></body>
    <body pos="1 0 1"><joint name="slide" type="slide" frictionloss="0.3" stiffness="5"/>
      <joint name="hinge" type="hinge" axis="0 1 0" limited="true" range="-10 10"/>
      <geom type="capsule" size="0.05 0.1" contype="0" conaffinity="0"/></body>
  </worldbody>
  <tendon><fixed name="both"><joint joint="slide" coef="1"/><joint joint="hinge" coef="0.5"/></fixed></tendon>
  <actuator>
    <motor joint="hinge" ctrlrange="-1 1" ctrllimited="true"/>
    <general joint="slide" dyntype="filter" dynprm="0.05" gainprm="2"/>
    <position tendon="both" kp="3"/>
  </actuator>
</mujoco>
"""


def near_contact(mjm: mujoco.MjModel, n: int) -> States:
    """States along rollouts under random controls, in which robots touch the floor, each other and their limits."""
    rng, d, found = np.random.default_rng(0), mujoco.MjData(mjm), []
    while len(found) < n:
        mujoco.mj_resetData(mjm, d)
        d.qvel[:] = rng.normal(0, 0.3, mjm.nv)
        for k in range(250):
            if k % 10 == 0:
                d.ctrl[:] = rng.uniform(-0.9, 0.9, mjm.nu)
            mujoco.mj_step(mjm, d)
            if k > 30 and rng.random() < 0.08:
                found.append([x.copy() for x in (d.qpos, d.qvel, d.ctrl, d.act)])
    return [torch.tensor(np.stack(x)) for x in zip(*found[:n], strict=True)]


def differences(mjm: mujoco.MjModel, sim: Simulation, states: States, h: float) -> np.ndarray:
    """(A, B) side by side by centred differences of our own step."""
    return between(mjm, sim, states, h, -h)


def one_sided(mjm: mujoco.MjModel, sim: Simulation, states: States, h: float) -> np.ndarray:
    """(A, B) side by side by differences of our own step on one side, that of the sign of h."""
    return between(mjm, sim, states, h, 0.0)


def between(mjm: mujoco.MjModel, sim: Simulation, states: States, one: float, other: float) -> np.ndarray:
    """(A, B) side by side by differences of our own step, from two changes of each number that it starts from."""
    columns = []
    for c in range(2 * mjm.nv + mjm.na + mjm.nu):
        (q1, v1, a1), (q0, v0, a0) = (stepped(mjm, sim, states, c, eps) for eps in (one, other))
        turned = np.zeros_like(v0)
        for out, after, before in zip(turned, q1, q0, strict=True):
            mujoco.mj_differentiatePos(mjm, out, 1.0, before, after)
        columns.append(np.concatenate([turned, v1 - v0, a1 - a0], axis=1) / (one - other))
    return np.stack(columns, axis=2)


def stepped(mjm: mujoco.MjModel, sim: Simulation, states: States, c: int, eps: float) -> list[np.ndarray]:
    """qpos, qvel and act after a step from states of which one number was changed."""
    qpos, qvel, ctrl, act = states
    change = np.zeros(2 * mjm.nv + mjm.na + mjm.nu)
    change[c] = eps
    moved = qpos.cpu().numpy().copy()
    for q in moved:
        mujoco.mj_integratePos(mjm, q, change[: mjm.nv], 1.0)
    of_v, of_act, of_ctrl = np.split(change[mjm.nv :], [mjm.nv, mjm.nv + mjm.na])
    put(sim, [torch.tensor(moved), qvel + torch.tensor(of_v), ctrl + torch.tensor(of_ctrl), act + torch.tensor(of_act)])
    sim.step()
    return [x.cpu().numpy().copy() for x in (sim.qpos, sim.qvel, sim.act if mjm.na else act)]


def best_differences(mjm: mujoco.MjModel, sim: Simulation, states: States) -> list[np.ndarray]:
    """Differences by several steps, and by Richardson's extrapolation of two of them, in which curvature cancels."""
    found = {h: differences(mjm, sim, states, h) for h in (*STEPS, *(2 * h for h in STEPS[1:]), 5e-5, 1e-4)}
    return [*found.values(), *((4 * found[h] - found[2 * h]) / 3 for h in found if 2 * h in found)]


def transition_fd(mjm: mujoco.MjModel, states: States, h: float) -> np.ndarray:
    """(A, B) side by side by MuJoCo's own centred differences."""
    n, d, found = 2 * mjm.nv + mjm.na, mujoco.MjData(mjm), []
    for qpos, qvel, ctrl, act in zip(*states, strict=True):
        mujoco.mj_resetData(mjm, d)
        d.qpos[:], d.qvel[:], d.ctrl[:] = qpos, qvel, ctrl
        d.act[:] = act
        A, B = np.zeros((n, n)), np.zeros((n, mjm.nu))
        mujoco.mjd_transitionFD(mjm, d, h, True, A, B, None, None)
        found.append(np.concatenate([A, B], axis=1))
    return np.stack(found)


def share_equal(got: np.ndarray, *wants: np.ndarray, bound: float = 1e-6) -> float:
    """The share of the states in which every column is as one of these is, to the bound times the column's scale."""
    errors = [np.abs(got - want).max(1) / (1e-3 + np.abs(want).max(1)) for want in wants]
    return float((np.min(errors, axis=0).max(1) <= bound).mean())


def put(sim: Simulation, states: States) -> None:
    for name, x in zip(("qpos", "qvel", "ctrl", "act"), states, strict=True):
        if x.shape[1]:
            getattr(sim, name).copy_(x)


def of(mjm: mujoco.MjModel, n: int, **option: Any) -> tuple[mujoco.MjModel, Simulation, States]:
    for name, x in option.items():
        setattr(mjm.opt, name, x)
    oracle.sharpen(mjm)
    sim, states = Simulation(mjm, n, dtype=torch.float64), near_contact(mjm, n)
    put(sim, states)
    return mjm, sim, states


def asset(name: str) -> mujoco.MjModel:
    return mujoco.MjModel.from_xml_path(str(oracle.ASSETS / f"{name}.xml"))


def check(mjm: mujoco.MjModel, sim: Simulation, states: States) -> None:
    got = torch.cat(sim.linearize()[:2], dim=-1).numpy()
    assert np.isfinite(got).all()
    assert share_equal(got, *best_differences(mjm, sim, states)) >= 0.98
    if mjm.opt.integrator != RK4:  # of which MuJoCo has no derivatives
        assert share_equal(got, *(transition_fd(mjm, states, h) for h in STEPS)) >= 0.98


@pytest.mark.cpu
@pytest.mark.parametrize(
    "name", ["inverted_pendulum", "inverted_double_pendulum", "reacher", "swimmer", "hopper", "walker2d_v5"]
)
def test_derivatives_of_tasks_models_are_those_of_centred_differences(name):
    check(*of(asset(name), 64))


@pytest.mark.cpu
@pytest.mark.parametrize(
    "option",
    [{}, {"cone": mujoco.mjtCone.mjCONE_ELLIPTIC}, {"integrator": IMPLICITFAST}, {"integrator": IMPLICIT}],
    ids=str,
)
def test_derivatives_of_the_half_cheetah_are_mujocos_under_every_cone_and_integrator(option):
    mjm, sim, states = of(asset("half_cheetah"), 64, **option)
    touching = [oracle.forward(mjm, *(x.numpy() for x in state)).ncon > 0 for state in zip(*states[:3], strict=True)]
    assert np.mean(touching) > 0.25
    check(mjm, sim, states)


@pytest.mark.cpu
@pytest.mark.parametrize(
    ("cone", "integrator"),
    [("pyramidal", "Euler"), ("elliptic", "Euler"), pytest.param("elliptic", "RK4", marks=pytest.mark.slow)],
)
def test_derivatives_of_quaternions_activations_friction_loss_and_two_bodies_that_touch(
    cone, integrator, quickly_compiled
):
    check(*of(mujoco.MjModel.from_xml_string(FREE.format(cone=cone, integrator=integrator)), 48))


@pytest.mark.cpu
@pytest.mark.parametrize(("cone", "integrator"), [("pyramidal", "Euler"), ("elliptic", "RK4")])
def test_derivatives_of_many_pairs_that_share_a_loop_are_those_of_centred_differences(cone, integrator):
    xml = ALIKE.format(cone=cone, integrator=integrator, limbs=LIMBS)
    mjm, sim, states = of(mujoco.MjModel.from_xml_string(xml), 32)
    (pairs,) = batch_pairs(sim.model, precision_of(torch.float64))
    assert len(pairs) == 10
    both_move = [g > 0 for state in zip(*states[:3], strict=True) for g in touching(mjm, state)]
    assert np.mean(both_move) > 0.5
    check(mjm, sim, states)


def touching(mjm: mujoco.MjModel, state: States) -> list[int]:
    """The first geom of each contact; the floor is geom 0."""
    return [c.geom1 for c in oracle.forward(mjm, *(x.numpy() for x in state)).contact]


@pytest.mark.cpu
@pytest.mark.parametrize(
    ("geom", "floor"),
    [
        ('type="box" size="0.1 0.08 0.06"', "plane"),
        ('type="cylinder" size="0.1 0.08"', "plane"),
        ('type="ellipsoid" size="0.1 0.08 0.06"', "plane"),
        ('type="mesh" mesh="m"', "plane"),
        ('type="box" size="0.1 0.08 0.06"', "box"),
    ],
)
def test_derivatives_of_bodies_that_touch_the_world_in_many_points_are_those_of_centred_differences(
    geom, floor, quickly_compiled
):
    xml = ON_FLOOR.format(geom=geom, floor=floor, floor_z=-1.0 * (floor == "box"))
    mjm, sim, states = of(mujoco.MjModel.from_xml_string(xml), 48)
    turns = np.random.default_rng(0).normal(0, 0.03, (48, 3))  # those at rest lie flat, where derivatives have kinks
    for qpos, turn in zip(states[0].numpy(), turns, strict=True):
        mujoco.mju_quatIntegrate(qpos[3:], turn, 1.0)
    put(sim, states)
    assert np.mean([len(touching(mjm, state)) > 0 for state in zip(*states[:3], strict=True)]) > 0.5
    check(mjm, sim, states)


@pytest.mark.cpu
@pytest.mark.slow
def test_derivatives_of_the_humanoid_are_those_of_centred_differences():
    mjm, sim, states = of(asset("humanoid"), 64)
    selfs = [any(touching(mjm, state)) for state in zip(*states[:3], strict=True)]
    assert np.mean(selfs) > 0.2
    check(mjm, sim, states)


def leg(n: int, cone: str, integrator: str) -> tuple[mujoco.MjModel, Simulation, States]:
    mjm = oracle.sharpen(mujoco.MjModel.from_xml_string(LEG.format(cone=cone, integrator=integrator)))
    sim = Simulation(mjm, n, dtype=torch.float64, vary=VARIED, outputs=("sensordata", "xpos"))
    states = near_contact(mjm, n)
    put(sim, states)
    return mjm, sim, states


@pytest.mark.cpu
@pytest.mark.parametrize(("cone", "integrator"), [("pyramidal", "Euler"), ("elliptic", "RK4")])
def test_derivatives_by_parameters_follow_what_is_derived_from_them_too(cone, integrator):
    _, sim, states = leg(32, cone, integrator)
    for name, x in sim.params.items():
        if name != "body_pos":  # of the root, whose foot would leave the floor
            x.add_(0.01)  # so that none is at the end of what makes sense
    got = sim.linearize(params=VARIED).P
    wants = [params_differences(sim, states, h) for h in STEPS]
    assert got.shape == wants[0].shape
    assert share_equal(got.numpy(), *wants) >= 0.98
    put(sim, states)
    for name in VARIED:
        assert sim.linearize(params=name).P.abs().amax() > 0
    mass = sim.linearize(params=("body_mass",)).P
    torch.testing.assert_close(mass, got[..., : mass.shape[-1]])


def params_differences(sim: Simulation, states: States, h: float) -> np.ndarray:
    """P by centred differences of our own step."""
    columns = []
    for x in sim.params.values():
        flat = x.reshape(sim.num_worlds, -1)
        for k in range(flat.shape[1]):
            ends = []
            for eps in (h, -h):
                old, moved = x.clone(), flat.clone()
                moved[:, k] += eps
                x.copy_(moved.view_as(x))
                put(sim, states)
                sim.step()
                ends.append((sim.qpos.clone(), sim.qvel.clone()))
                x.copy_(old)
            (q1, v1), (q0, v0) = ends
            columns.append(torch.cat([q1 - q0, v1 - v0], dim=1).numpy() / (2 * h))
    return np.stack(columns, axis=2)


@pytest.mark.cpu
def test_derivatives_of_sensors_are_mujocos_and_of_other_outputs_those_of_differences():
    mjm, sim, states = leg(32, "pyramidal", "Euler")
    found = sim.linearize(outputs=("sensordata", "xpos"))
    ns, n = mjm.nsensordata, 2 * mjm.nv
    wants = []
    for h in STEPS:
        rows = []
        for qpos, qvel, ctrl, _ in zip(*states, strict=True):
            d = mujoco.MjData(mjm)
            d.qpos[:], d.qvel[:], d.ctrl[:] = qpos, qvel, ctrl
            A, B, C, D = (np.zeros(x) for x in ((n, n), (n, mjm.nu), (ns, n), (ns, mjm.nu)))
            mujoco.mjd_transitionFD(mjm, d, h, True, A, B, C, D)
            rows.append(np.concatenate([C, D], axis=1))
        wants.append(np.stack(rows))
    got = torch.cat([found.C, found.D], dim=-1).numpy()
    assert share_equal(got[:, :ns], *wants) >= 0.98
    assert (np.abs(got[:, : sim.model.sensor("touch").stop]) > 1).any()  # some touch
    sim.forward()
    before = sim.xpos.clone().flatten(1)
    direction = torch.linspace(-1, 1, mjm.nv, dtype=torch.float64)
    sim.qpos.add_(1e-7 * direction)  # positions of this model are numbers
    sim.forward()
    change = (sim.xpos.flatten(1) - before) / 1e-7
    torch.testing.assert_close(found.C[:, ns:, : mjm.nv] @ direction, change, rtol=1e-5, atol=1e-5)


@pytest.mark.cpu
def test_several_steps_have_the_parameters_and_outputs_of_all_of_them_chained():
    _, sim, _ = leg(4, "pyramidal", "Euler")
    got = sim.linearize(nstep=2, params=VARIED, outputs="sensordata")
    first = sim.linearize(params=VARIED, outputs="sensordata")
    sim.step()
    second = sim.linearize(params=VARIED, outputs="sensordata")
    torch.testing.assert_close(got.P, second.A @ first.P + second.P)
    torch.testing.assert_close(got.C, second.C @ first.A)
    torch.testing.assert_close(got.D, second.C @ first.B + second.D)
    plain = sim.linearize()
    assert plain.P.shape == (4, 8, 0) and plain.C.shape == (4, 0, 8) and plain.D.shape == (4, 0, 1)
    with pytest.raises(ValueError, match="'body_quat' does not vary in this Simulation"):
        sim.linearize(params=("body_quat",))
    with pytest.raises(ValueError, match="unknown outputs"):
        sim.linearize(outputs=("xposs",))


@pytest.mark.cpu
@pytest.mark.slow
@pytest.mark.parametrize("integrator", [EULER, RK4])
def test_derivatives_of_the_ant_are_those_of_centred_differences(integrator):
    check(*of(asset("ant"), 64, integrator=integrator))


def test_nothing_is_changed_and_several_steps_are_those_of_one_chained():
    _, sim, _ = of(asset("half_cheetah"), 4)
    before = [x.clone() for x in (sim.qpos, sim.qvel, sim.ctrl, sim.qacc_warmstart)]
    A, B, *_ = sim.linearize(nstep=3)
    assert all(map(torch.equal, before, (sim.qpos, sim.qvel, sim.ctrl, sim.qacc_warmstart)))
    by_hand_A, by_hand_B = torch.eye(18, dtype=torch.float64), torch.zeros(18, 6, dtype=torch.float64)
    for _ in range(3):
        one = sim.linearize()
        by_hand_A, by_hand_B = one.A @ by_hand_A, one.A @ by_hand_B + one.B
        sim.step()
    torch.testing.assert_close(A, by_hand_A, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(B, by_hand_B, rtol=1e-9, atol=1e-9)


def test_states_given_have_leading_dimensions_of_their_own_and_the_worlds_stand_in_for_what_is_not_given():
    _, sim, (qpos, qvel, ctrl, _) = of(asset("half_cheetah"), 4)
    own = sim.linearize()
    knots = sim.linearize(qpos=torch.stack([qpos, qpos + 0.01]))
    assert knots.A.shape == (2, 4, 18, 18) and knots.B.shape == (2, 4, 18, 6)
    torch.testing.assert_close(knots.A[0], own.A, rtol=1e-9, atol=1e-9)
    one = sim.linearize(qpos[1], qvel[1].tolist(), ctrl[1].cpu().numpy())
    assert one.A.shape == (18, 18)
    torch.testing.assert_close(one.A, own.A[1], rtol=1e-8, atol=1e-8)
    with pytest.raises(ValueError, match=r"qvel must be of shape \(\.\.\., 9\)"):
        sim.linearize(qvel=qvel[:, :5])
    with pytest.raises(ValueError, match="cannot be broadcast"):
        sim.linearize(qpos[:3], qvel)
    with pytest.raises(ValueError, match="no actuator of the model has an activation"):
        sim.linearize(act=torch.zeros(4, 0))


@pytest.mark.parametrize("name", ["half_cheetah", "hopper"])
def test_derivatives_at_rest_and_just_touching_are_numbers(name):
    mjm = asset(name)
    sim = Simulation(mjm, 16, dtype=torch.float64)
    sim.qpos[:, 1] += torch.linspace(-0.2, 0.2, 16).to(sim.qpos)
    A, B, *_ = sim.linearize()
    assert A.isfinite().all() and B.isfinite().all()
    sim.step(500)
    assert all(x.isfinite().all() for x in sim.linearize())


def test_a_control_at_the_end_of_its_range_has_the_derivative_from_inside_and_none_beyond():
    _, sim, (qpos, qvel, ctrl, _) = of(asset("half_cheetah"), 4)
    ctrl[:, 0], ctrl[:, 1], ctrl[:, 2], ctrl[:, 3] = 1.0, -1.0, 1.5, -1.5
    inside = torch.zeros_like(ctrl)
    B = sim.linearize(qpos, qvel, ctrl).B
    assert (B[..., :2].abs().amax(1) > 1e-3).all() and (B[..., 2:4] == 0).all()
    assert (sim.linearize(qpos, qvel, inside).B[..., 2:4].abs().amax(1) > 1e-3).all()


def test_float32_is_float64_to_its_rounding():
    mjm, sim, states = of(asset("half_cheetah"), 64)
    exact = torch.cat(sim.linearize()[:2], dim=-1)
    single = Simulation(mjm, 64, dtype=torch.float32)
    put(single, [x.float() for x in states])
    got = torch.cat(single.linearize()[:2], dim=-1)
    assert got.dtype == torch.float32 and got.isfinite().all()
    assert share_equal(got.double().cpu().numpy(), exact.cpu().numpy(), bound=1e-3) >= 0.95


def test_what_has_no_derivatives_is_refused_by_name():
    mjm = asset("half_cheetah")
    mjm.opt.noslip_iterations = 2
    sim = Simulation(mjm, 1)
    with pytest.raises(UnsupportedModel, match="noslip_iterations=2"):
        sim.linearize()


@pytest.mark.parametrize("integrator", ["implicit", "implicitfast"])
def test_at_rest_drag_that_grows_with_speed_has_the_derivative_of_centred_differences(integrator):
    """There the integrator's damping, a coefficient times |speed|, has a kink."""
    mjm = mujoco.MjModel.from_xml_string(f"""
        <mujoco><option integrator="{integrator}"/><worldbody>
          <body><joint axis="0 1 0" damping="0.05 0.5"/><geom type="sphere" size="0.05" pos="0.1 0 0"/></body>
        </worldbody></mujoco>""")
    sim = Simulation(mjm, 1, dtype=torch.float64)
    states = [torch.zeros(1, n, dtype=torch.float64) for n in (1, 1, 0, 0)]
    expected = torch.tensor(differences(mjm, sim, states, 1e-6))
    torch.testing.assert_close(sim.linearize(*states[:2]).A, expected, rtol=0, atol=1e-6)
    qpos, qvel = (x.requires_grad_() for x in states[:2])
    slope = torch.autograd.grad(sim.transition(qpos, qvel).qvel.sum(), qvel)[0]
    torch.testing.assert_close(slope, expected[:, 1, 1:], rtol=0, atol=1e-6)
