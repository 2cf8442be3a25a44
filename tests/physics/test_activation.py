"""Actuators with a state of their own, and muscles, beside MuJoCo."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass

import mujoco
import numpy as np
import oracle
import pytest
import torch
from test_actuators import ROBOT

from torch_mjenvs import Outcome, Task, TorchEnv, TorchVectorEnv
from torch_mjenvs.physics import Simulation, State, load, step, vary
from torch_mjenvs.physics.dynamics.actuators.muscle import muscle_bias, muscle_gain, muscle_rate
from torch_mjenvs.physics.pipeline import derive
from torch_mjenvs.physics.step import left_by_step
from torch_mjenvs.scalar import Random, absolute

HERE = torch.get_default_device()
MUSCLE = 'gaintype="muscle" biastype="muscle" gainprm="{0}" biasprm="{0}"'.format(".6 1.2 -1 2 .4 1.7 1.4 1.2 1.3")
AFFINE = 'biastype="affine" biasprm=".3 -2 -.1"'
ACTUATORS = {
    "integrator": '<intvelocity joint="hinge" kp="3" kv=".1" actrange="-.3 .4" gear="2"/>',
    "integrator on a ball": '<intvelocity joint="ball" kp="3" gear="3 1 -.5" actrange="-9 9"/>',
    "integrator on a ball, no servo": f'<general joint="ball" gear="3 1 0" dyntype="integrator" {AFFINE}/>',
    "integrator of a rotation": '<intvelocity site="c" refsite="turned" gear="0 0 0 3 1 -.5" kp="2" actrange="-9 9"/>',
    "filter": '<cylinder joint="hinge" timeconst=".03" area="2" bias=".1 -.2 -.3"/>',
    "exact filter": f'<general tendon="fixed" dyntype="filterexact" dynprm=".01" actrange="-.2 .3" {AFFINE}/>',
    "filter faster than a step": '<general joint="hinge" dyntype="filterexact" dynprm="1e-3"/>',
    "slow servo of a ball": '<position joint="ball" kp="3" timeconst=".05" gear=".3 1 -.5"/>',
    "early servo of a ball": """<general joint="ball" dyntype="filterexact" dynprm=".05" actearly="true" gainprm="2"
        biastype="affine" biasprm="0 -2" gear="1 2 0"/>""",
    "muscle's pace on a ball": """<general joint="ball" dyntype="muscle" dynprm=".05 .1" gainprm="2"
        biastype="affine" biasprm="0 -2" gear="1 2 0"/>""",
    "early": f"""<general joint="hinge" dyntype="integrator" actearly="true" actrange="-.2 .1" {AFFINE}/>
        <general joint="hinge" dyntype="filterexact" dynprm=".02" actearly="true" gaintype="affine" gainprm="1 2 3"/>
        <position joint="ball" kp="1"/><general joint="ball" dyntype="filter" dynprm=".1" actearly="true"/>""",
    "damper": '<damper joint="hinge" kv=".3" ctrlrange="0 1"/><intvelocity joint="hinge" kp="1" actrange="-1 1"/>',
    "muscle": '<muscle tendon="spatial" lengthrange=".5 2" force="3"/><muscle joint="hinge" lengthrange="-1 2"/>',
    "smooth muscle": '<muscle joint="hinge" lengthrange="-1 1" tausmooth=".5" scale="20" timeconst=".02 .05"/>',
    "muscle without dynamics": f'<general tendon="fixed" lengthrange="-.4 .5" {MUSCLE}/>',
    "muscle of an early filter": f"""<general tendon="fixed" lengthrange="-.4 .5" {MUSCLE} forcerange="-3 0"
        dyntype="filter" dynprm=".1" actearly="true"/>""",
    "groups": """<motor joint="hinge" group="3" forcerange=".1 1"/><intvelocity joint="hinge" kp="2" group="3"
        actrange=".1 .2"/><motor joint="hinge"/><cylinder joint="hinge" timeconst=".1" group="2"/>""",
}


def robot(actuators: str, integrator: str = "Euler", more: str = "") -> mujoco.MjModel:
    xml = ROBOT.format(integrator=integrator, actuator=actuators).replace("<option ", f"<option {more} ")
    return oracle.sharpen(mujoco.MjModel.from_xml_string(xml))


RATES = ("early", "muscle", "muscle of an early filter", "groups")  # of forces by velocities
INTEGRATED = [(case, how) for case in ACTUATORS for how in ("Euler", "RK4", *["implicit"] * (case in RATES))]


@pytest.mark.parametrize(("case", "integrator"), INTEGRATED)
def test_activations_and_what_they_move_are_mujocos(case, integrator):
    """For 30 steps, with act_dot and forces as a step leaves them; controls change, and are beyond ranges."""
    mjm = robot(ACTUATORS[case], integrator, 'actuatorgroupdisable="3"' if case == "groups" else "")
    m, d, rng = load(mjm), mujoco.MjData(mjm), np.random.default_rng(0)
    mujoco.mj_integratePos(mjm, d.qpos, rng.normal(0, 0.5, mjm.nv), 1.0)
    d.qvel[:], d.act[:] = rng.normal(0, 1, mjm.nv), rng.uniform(-0.2, 1.2, mjm.na)
    state, moved = State(d.qpos.tolist(), d.qvel.tolist(), [0.0] * m.nv, d.act.tolist()), 0.0
    for k in range(30):
        if k % 10 == 0:
            d.ctrl[:] = (0.3, 8.0, 8.0)[k // 10] * rng.uniform(-1, 1, mjm.nu)
        state = step(m, state, d.ctrl.tolist())
        mujoco.mj_step(mjm, d)
        moved += np.abs(d.act_dot).sum()
    ours = left_by_step(m, state, d.ctrl.tolist())
    assert moved or not mjm.na
    assert np.any(d.actuator_force)
    for got, want in (
        (state.qpos, d.qpos), (state.qvel, d.qvel), (state.act, d.act), (ours.act_dot, d.act_dot),
        (ours.actuator_force, d.actuator_force), (ours.qfrc_actuator, d.qfrc_actuator),
        (ours.actuator_length, d.actuator_length), (ours.actuator_velocity, d.actuator_velocity),
    ):  # fmt: skip
        np.testing.assert_allclose(np.array(got, float), want, rtol=0, atol=1e-11 * max(1, np.abs(want).max(initial=0)))


@pytest.mark.parametrize("sign", [1, -1])
def test_a_runge_kutta_step_holds_set_points_to_the_turn_nearest_to_the_lengths_at_its_start(sign):
    """While the ball turns by half a turn from its set point, and a little over."""
    mjm = robot('<intvelocity joint="ball" kp="3" gear="3 1 -.5"/>', "RK4")
    m, half, wrapped = load(mjm), math.pi * math.sqrt(10.25), []
    for before in np.linspace(-0.09, 0.09, 10):
        d = mujoco.MjData(mjm)
        mujoco.mju_axisAngle2Quat(d.qpos[7:11], np.array([0.6, 0, 0.8]), 0.3)
        d.qvel[6:9] = 5.0
        mujoco.mj_forward(mjm, d)
        d.act[0] = target = d.actuator_length[0] + sign * (half - before)
        state = step(m, State(d.qpos.tolist(), d.qvel.tolist(), [0.0] * m.nv, d.act.tolist()), [0.0] * m.nu)
        mujoco.mj_step(mjm, d)
        np.testing.assert_allclose(state.act, d.act, rtol=0, atol=1e-12)
        ours = left_by_step(m, state, [0.0] * m.nu)
        np.testing.assert_allclose(ours.actuator_length, d.actuator_length, rtol=0, atol=1e-12)
        mujoco.mj_forward(mjm, d)
        wrapped.append((abs(d.act[0] - target) > 1, abs(target - d.actuator_length[0]) > half))
    assert {(True, True), (False, False)} < set(wrapped)  # and one where start and end differ


def test_without_actuation_nothing_acts_and_activations_stay():
    mjm = robot(ACTUATORS["integrator"] + '<motor joint="hinge" forcerange="1 2"/>')
    mjm.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_ACTUATION
    m, d = load(mjm), mujoco.MjData(mjm)
    d.act[:], d.ctrl[:], d.qvel[:] = 5.0, 1.0, 0.1
    state = State(d.qpos.tolist(), d.qvel.tolist(), [0.0] * m.nv, [5.0])
    for _ in range(5):
        state = step(m, state, d.ctrl.tolist())
        mujoco.mj_step(mjm, d)
    np.testing.assert_allclose(state.qvel, d.qvel, rtol=0, atol=1e-12)
    ours = left_by_step(m, state, d.ctrl.tolist())
    assert ours.actuator_velocity == d.actuator_velocity.tolist() == [0.0, 0.0]
    assert state.act == d.act.tolist() == [5.0] and ours.actuator_force == d.actuator_force.tolist() == [0.0, 0.0]
    with pytest.raises(ValueError, match="actuator_gainprm cannot vary: a disable flag"):
        vary(m, {"actuator_gainprm": m.actuator_gainprm})


def test_curves_of_muscles_are_mujocos():
    """At all lengths, velocities, controls and activations, with parameters that leave pieces out, too."""
    mjm = robot('<muscle joint="hinge" lengthrange="-1 1"/>')
    rng, seen = np.random.default_rng(0), set()
    for _ in range(400):
        prm = rng.uniform([0.3, 0.9, -2, 1, 0.2, 1.2, 0.5, 0.5, 1.0], [0.8, 1.6, 5, 300, 0.9, 1.9, 2, 2, 1.6])
        prm[8] = rng.choice([1.0, prm[8]])
        low, high = np.sort(rng.normal(0, 1, 2))
        mjm.actuator_gainprm[0, :9] = mjm.actuator_biasprm[0, :9] = prm
        mjm.actuator_lengthrange[0], mjm.actuator_acc0[0] = (low, high), rng.uniform(0.1, 3)
        m, length, velocity = load(mjm), float(rng.uniform(low - 0.5, high + 1)), float(rng.normal(0, 3))
        rest = mjm.actuator_lengthrange[0], mjm.actuator_acc0[0], prm
        want = mujoco.mju_muscleGain(length, velocity, *rest), mujoco.mju_muscleBias(length, *rest)
        moving = m.actuator_gainprm[0], length, velocity
        got = muscle_gain(m, 0, *moving), muscle_bias(m, 0, *moving)
        np.testing.assert_allclose(got, want, rtol=1e-11, atol=1e-11)
        seen |= {(want[0] != 0, want[1] != 0)}
        times = [*rng.uniform(0.001, 0.1, 2), rng.choice([0.0, rng.uniform(0, 2)])]
        ctrl, act = rng.uniform(-0.5, 1.5, 2).tolist()
        np.testing.assert_allclose(
            muscle_rate(ctrl, act, [float(x) for x in times]),
            mujoco.mju_muscleDynamics(ctrl, act, np.array(times)),
            rtol=1e-12,
        )
    assert len(seen) == 4


def test_a_wrong_number_of_activations_is_refused():
    m = load(robot(ACTUATORS["early"]))
    still = [0.0] * m.nv
    with pytest.raises(ValueError, match="act has 0 entries, and the model 3 activations"):
        step(m, State(list(m.qpos0), still, still), [0.0] * m.nu)
    with pytest.raises(ValueError, match="act has 2 entries"):
        derive(m, list(m.qpos0), still, None, [0.0] * m.nu, act=[0.0, 0.0])


# in kernels

ARM = """<mujoco><option timestep=".005" integrator="{integrator}"/><worldbody>
    <geom type="plane" size="5 5 1"/>
    <body pos="0 0 .5"><joint name="a" axis="0 1 0" damping=".2" range="-100 100"/>
      <geom type="capsule" fromto="0 0 0 0 0 -.3" size=".05"/>
      <body pos="0 0 -.3"><joint name="b" axis="0 1 0" damping=".1" range="-90 90"/>
        <geom type="capsule" fromto="0 0 0 0 0 -.25" size=".04"/><site name="tip" pos="0 0 -.25"/></body></body>
    </worldbody>
    <tendon><fixed name="t"><joint joint="a" coef=".04"/><joint joint="b" coef="-.03"/></fixed></tendon>
    <actuator><muscle name="flexor" joint="a" lengthrange="-2 2" gear="1.3" scale="4"/>
      <intvelocity name="knee" joint="b" kp="4" kv=".1" actrange="-1 1" ctrlrange="-2 2"/>
      <motor joint="a" gear="2" ctrlrange="-1 1"/>
      <general tendon="t" dyntype="filterexact" dynprm=".05" gainprm="30" ctrlrange="-1 1" actearly="true"/></actuator>
    <sensor><actuatorfrc actuator="flexor"/><accelerometer site="tip"/></sensor></mujoco>"""
OUTPUTS = ("act_dot", "actuator_force", "qfrc_actuator", "sensordata")
VARY = ("actuator_dynprm", "actuator_actrange", "body_mass", "actuator_gear", "actuator_gainprm")


def arm(integrator: str = "Euler") -> mujoco.MjModel:
    return oracle.sharpen(mujoco.MjModel.from_xml_string(ARM.format(integrator=integrator)))


@pytest.mark.parametrize("integrator", ["Euler", "RK4"])
def test_kernels_step_activations_as_mujoco(integrator):
    """200 steps of six worlds at the ends of their controls, parameters of the actuators and masses their own."""
    mjm, n, rng = arm(integrator), 6, np.random.default_rng(1)
    sim = Simulation(mjm, n, dtype=torch.float64, outputs=OUTPUTS, vary=VARY)
    theirs = []
    for k in range(n):
        own = copy.copy(mjm)
        for name in VARY:
            x = getattr(own, name)
            x *= rng.uniform(0.7, 1.4, x.shape)
            sim.params[name][k] = torch.tensor(x)
        mujoco.mj_setConst(own, mujoco.MjData(own))
        d = mujoco.MjData(own)
        d.qpos[:], d.qvel[:], d.act[:] = rng.normal(0, 0.4, 2), rng.normal(0, 1, 2), rng.uniform(0, 1, 3)
        for name in ("qpos", "qvel", "act"):
            getattr(sim, name)[k] = torch.tensor(getattr(d, name))
        theirs.append((own, d))
    touching = 0
    for _ in range(20):
        for k, (_, d) in enumerate(theirs):
            d.ctrl[:] = rng.choice([-3.0, -0.2, 0.7, 3.0], mjm.nu)
            sim.ctrl[k] = torch.tensor(d.ctrl)
        sim.step(10)
        for k, (own, d) in enumerate(theirs):
            mujoco.mj_step(own, d, 10)
            touching += d.nefc > 0
            for name in ("qpos", "qvel", "act", *OUTPUTS):
                want = getattr(d, name)
                bound = 1e-9 * max(1.0, np.abs(want).max())
                np.testing.assert_allclose(getattr(sim, name)[k].cpu(), want, rtol=0, atol=bound, err_msg=name)
    assert touching > 20
    sim.reset(torch.tensor([True] + [False] * (n - 1), device=HERE))
    assert (sim.act[0] == 0).all() and (sim.act[1:] != 0).any(1).all()
    sim.reset()
    assert not sim.act.any()


def test_float32_stays_near_float64():
    sims = [Simulation(arm(), 32, dtype=dtype) for dtype in (torch.float32, torch.float64)]
    start = torch.rand(32, 3, generator=torch.Generator("cpu").manual_seed(0), dtype=torch.float64, device="cpu")
    for sim in sims:
        sim.act.copy_(start)
        sim.ctrl.copy_(torch.linspace(-1, 1, 32, device=HERE)[:, None])
        sim.step(60)
    torch.testing.assert_close(sims[0].act, sims[1].act.float(), rtol=0, atol=1e-5)
    torch.testing.assert_close(sims[0].qpos, sims[1].qpos.float(), rtol=0, atol=1e-4)


def test_models_without_activations_have_no_act():
    sim = Simulation(oracle.asset("hopper"), 2)
    with pytest.raises(AttributeError, match="no actuator of the model has an activation"):
        _ = sim.act
    assert "act" not in sim._buffers


# in environments


@dataclass(frozen=True)
class Reach(Task):
    """The arm above; it sees its activations, and fails where it bends far."""

    xml_file: str = ""
    frame_skip: int = 3

    def load(self):
        return arm()

    def reset(self, m, rng):
        return [rng.uniform(-0.3, 0.3) for _ in range(m.nq)], [0.0] * m.nv

    def observe(self, m, world):
        return [*world.qpos, *world.qvel, *world.act, *world.data.act_dot]

    def outcome(self, m, before, action, after):
        return Outcome(after.act[0] - before.act[0], absolute(after.qpos[0]) > 1.0, {"act": after.data.act[1]})


class ReachWithin(Reach):
    """Bounded in all its actions, as TorchRL wants them: one motor of the arm has no limits."""

    def action_space(self, m):
        return [-2.0] * m.nu, [2.0] * m.nu


class Beside:
    """One world of it in MuJoCo C."""

    def __init__(self, world: int):
        self.model = arm()
        self.data, self.world, self.episode = mujoco.MjData(self.model), world, -1

    def reset(self) -> list:
        mujoco.mj_resetData(self.model, self.data)
        self.episode += 1
        rng = Random(7, self.world, self.episode, 0, 0)
        self.data.qpos[:] = [rng.uniform(-0.3, 0.3) for _ in range(2)]
        mujoco.mj_forward(self.model, self.data)
        return self.seen()

    def step(self, action: np.ndarray) -> tuple[list, float, bool]:
        self.data.ctrl[:], before = action, self.data.act[0]
        mujoco.mj_step(self.model, self.data, 3)
        return self.seen(), self.data.act[0] - before, abs(self.data.qpos[0]) > 1.0

    def seen(self) -> list:
        return [*self.data.qpos, *self.data.qvel, *self.data.act, *self.data.act_dot]


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_an_environment_carries_activations_through_episodes(mode):
    """80 steps, episodes that end, beside MuJoCo; from the middle on also by a copy that loaded the state."""
    n = 3
    make = lambda: TorchVectorEnv(Reach(), n, dtype=torch.float64, autoreset_mode=mode, max_episode_steps=30)  # noqa: E731
    env, other = make(), make()
    theirs, waiting, ended = [Beside(k) for k in range(n)], [False] * n, 0
    obs, _ = env.reset(seed=7)
    np.testing.assert_allclose(obs.cpu(), [w.reset() for w in theirs], atol=1e-12)
    rng, elapsed = np.random.default_rng(0), [0] * n
    for t in range(80):
        action = rng.uniform(-1, 2, (n, 4))
        obs, reward, terminated, truncated, info = env.step(torch.tensor(action, device=HERE))
        if t == 40:
            other.load_state_dict(env.state_dict())
        if t > 40:
            again, *_ = other.step(torch.tensor(action, device=HERE))
            assert torch.equal(again, obs) and torch.equal(other.act, env.act)
        for k, world in enumerate(theirs):
            if waiting[k]:
                seen, gain, over = world.reset(), 0.0, False
                elapsed[k] = 0
            else:
                seen, gain, over = world.step(action[k])
                elapsed[k] += 1
            assert bool(terminated[k]) == over and bool(truncated[k]) == (elapsed[k] >= 30)
            np.testing.assert_allclose(float(reward[k]), gain, atol=1e-9)
            over = over or elapsed[k] >= 30
            ended += over
            if over and mode == "SameStep":
                np.testing.assert_allclose(info["final_obs"][k].cpu(), seen, rtol=0, atol=1e-8)
                seen, over, elapsed[k] = world.reset(), False, 0
            waiting[k] = over
            np.testing.assert_allclose(obs[k].cpu(), seen, rtol=0, atol=1e-8)
    assert ended > 3


def test_activations_are_set_with_a_state():
    env = TorchVectorEnv(Reach(), 3, dtype=torch.float64)
    env.reset(seed=0)
    qpos, qvel = torch.zeros(3, 2, device=HERE), torch.zeros(3, 2, device=HERE)
    act = torch.tensor([[0.1, 0.2, 0.3]] * 3, device=HERE)
    env.set_state(qpos, qvel, act=act)
    assert torch.equal(env.obs[:, 4:7], act.double()) and torch.equal(env.act, act.double())
    env.set_state(qpos, qvel, mask=torch.tensor([True, False, False], device=HERE))
    assert not env.act[0].any() and torch.equal(env.act[1:], act[1:].double())
    with pytest.raises(ValueError, match=r"act must be of shape \(3, 3\)"):
        env.set_state(qpos, qvel, act=act[:, :2])
    env.act[1] = float("nan")
    _, _, terminated, _, info = env.step(torch.zeros(3, 4, device=HERE))
    assert info["bad_state"].tolist() == [False, True, False] and terminated[1] and env.act.isfinite().all()


@pytest.mark.cpu  # where one world for NumPy is, unless asked otherwise
def test_one_world_shows_its_activations():
    env = TorchEnv(Reach())
    env.reset(seed=0)
    env.set_state(np.zeros(2), np.zeros(2), np.array([0.5, 0.1, 0.2]))
    assert env.act.tolist() == env.data.act.tolist() == [0.5, 0.1, 0.2]
    env.step(np.ones(4))
    np.testing.assert_array_equal(env.data.act, env.act)
    assert env.act[0] > 0.5
    with pytest.raises(AttributeError, match="no actuator of the model"):
        _ = TorchEnv("Hopper").act


def test_torchrl_keeps_activations_in_its_state():
    torchrl = pytest.importorskip("torch_mjenvs.envs.torchrl")
    env = torchrl.TorchRLEnv(ReachWithin(), 3, dtype=torch.float64)
    env.set_seed(0)
    data = env.reset()
    for _ in range(4):
        data["action"] = torch.ones(3, 4, dtype=torch.float64, device=HERE)
        data = env.step(data)["next"]
    state = env.get_state()
    assert state["act"].shape == (3, 3) and state["act"].any()
    first = env.step(data.set("action", torch.zeros(3, 4, dtype=torch.float64, device=HERE)))["next", "observation"]
    back = env.reset(state, set_state=True)
    assert torch.equal(env.engine.act, state["act"])
    second = env.step(back.set("action", torch.zeros(3, 4, dtype=torch.float64, device=HERE)))["next", "observation"]
    assert torch.equal(first, second)
    plain = env.reset(state.select("qpos", "qvel"), set_state=True)
    assert not env.engine.act.any() and not plain["observation"][:, 4:7].any()
