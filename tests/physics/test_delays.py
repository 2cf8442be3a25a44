"""Delays of actuators, delays and intervals of sensors, against MuJoCo C: in steps, simulations and environments."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import mujoco
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode

from torch_mjenvs import Outcome, Task, TorchEnv, TorchVectorEnv, World
from torch_mjenvs.physics import load
from torch_mjenvs.physics.loading.history import history_from, history_to
from torch_mjenvs.physics.model.model import Model, UnsupportedModel
from torch_mjenvs.physics.simulation import Simulation
from torch_mjenvs.scalar import Random, Scalar

STEP = 0.0078125  # times are exact: where they round, MuJoCo reads a sample too late (see docs/limits.md)

ACTUATORS = (
    '<motor joint="{j}" gear="3" ctrlrange="-.8 .8" {late}/>',
    '<position joint="{j}" kp="20" dampratio="1" {late}/>',
    '<general joint="{j}" gaintype="affine" gainprm="2 .3 .4" {late}/>',
    '<general joint="{j}" dyntype="filterexact" dynprm=".05" gainprm="5" actlimited="true" actrange="-1 1" {late}/>',
    '<general joint="{j}" dyntype="integrator" gainprm="5" biastype="affine" biasprm="0 -5" actearly="true" {late}/>',
    '<muscle tendon="t" range=".2 2" {late}/>',
    '<motor tendon="t" forcerange="-1 1" group="3" {late}/>',
    '<velocity joint="{j}" kv="2" {late}/>',
)
SENSORS = (
    '<jointpos joint="s" {late}/>',
    '<gyro site="q" {late}/>',
    '<framequat objtype="site" objname="q" {late}/>',
    '<accelerometer site="q" cutoff="5" {late}/>',
    '<touch site="zone" {late}/>',
    '<actuatorfrc actuator="a0" {late}/>',
    '<framelinvel objtype="site" objname="p" reftype="site" refname="q" {late}/>',
    '<tendonpos tendon="t" {late}/>',
    "<clock {late}/>",
)
OUTPUTS = ("sensordata", "actuator_force", "act_dot")
MODEL = """<mujoco><option timestep="{h}" integrator="{integrator}" actuatorgroupdisable="3"/><worldbody>
  <geom type="plane" size="5 5 1"/><site name="o" pos="0 0 1.2"/>
  <body pos="0 0 .3"><joint name="s" type="slide" axis="1 0 0" damping="1"/>
    <joint name="z" type="slide" axis="0 0 1" damping="1"/>
    <geom type="capsule" size=".1 .2"/><site name="p" pos=".1 .2 .3"/><site name="zone" size=".5"/>
    <body pos=".4 0 0"><joint name="h" axis="0 1 0" damping=".1"/>
      <geom size=".12" pos=".1 0 .1"/><site name="q" pos=".2 .1 .1"/></body></body></worldbody>
  <tendon><spatial name="t" range="0 3"><site site="o"/><site site="p"/><site site="q"/></spatial></tendon>
  <actuator>{actuators}</actuator><sensor>{sensors}</sensor></mujoco>"""


def late(rng: np.random.Generator, sensor: bool, integrator: str) -> str:
    """Attributes that delay an actuator or a sensor somehow, or not at all."""
    h = STEP
    n, whole = int(rng.integers(1, 9)), rng.random() < 0.3
    out = f'nsample="{n}" interp="{rng.choice(["zoh", "linear", "cubic"])}"'
    delay = int(rng.integers(1, n + 3)) if whole else rng.uniform(0.05, n + 2)
    if rng.random() < 0.8 and not (sensor and integrator == "RK4"):
        out += f' delay="{float(delay * h)!r}"'
    if sensor and rng.random() < 0.6:
        period = float(rng.integers(1, 6)) if rng.random() < 0.3 else rng.uniform(1.0, 6.0)
        phase = rng.choice([0.0, -0.3 * period, -0.9 * period])
        out += f' interval="{float(period * h)!r} {float(phase * h)!r}"'
    return out


def model(seed: int, integrator: str) -> mujoco.MjModel:
    rng = np.random.default_rng(seed)

    def all_of(kinds: tuple[str, ...], sensors: bool) -> str:
        joints = rng.choice(["s", "z", "h"], len(kinds))
        given = [x.format(j=j, late=late(rng, sensors, integrator)) for x, j in zip(kinds, joints, strict=True)]
        return "".join(x.replace(" ", f' name="{"as"[sensors]}{k}" ', 1) for k, x in enumerate(given))

    actuators, sensors = all_of(ACTUATORS, False), all_of(SENSORS, True)
    mjm = mujoco.MjModel.from_xml_string(
        MODEL.format(h=STEP, integrator=integrator, actuators=actuators, sensors=sensors)
    )
    mjm.opt.tolerance, mjm.opt.iterations = 1e-15, 200
    return mjm


def moving(mjm: mujoco.MjModel, seed: int) -> mujoco.MjData:
    """A state with a history."""
    rng, d = np.random.default_rng(seed), mujoco.MjData(mjm)
    d.qvel[:] = rng.normal(0, 1, mjm.nv)
    for _ in range(int(rng.integers(0, 30))):
        d.ctrl[:] = rng.normal(0, 1, mjm.nu)
        mujoco.mj_step(mjm, d)
    return d


@pytest.mark.parametrize("integrator", ["Euler", "implicitfast", "implicit", "RK4"])
@pytest.mark.parametrize("seed", range(3))
def test_delays_are_those_of_mujoco(seed: int, integrator: str) -> None:
    mjm = model(seed, integrator)
    rng, m, n, touched = np.random.default_rng(seed), load(mjm), 3, 0
    theirs = [moving(mjm, k) for k in range(n)]
    sim = Simulation(mjm, n, dtype=torch.float64, outputs=OUTPUTS)
    for name in ("qpos", "qvel", "act", "time"):
        getattr(sim, name).copy_(torch.tensor(np.stack([getattr(d, name) for d in theirs])))
    sim.history.copy_(torch.tensor([history_from(m, mjm, d) for d in theirs], dtype=torch.float64))
    for _ in range(60):
        ctrl = rng.normal(0, 1, (n, mjm.nu))
        sim.ctrl.copy_(torch.tensor(ctrl))
        sim.step()
        for k, d in enumerate(theirs):
            d.ctrl[:] = ctrl[k]
            mujoco.mj_step(mjm, d)
            for name in ("qpos", "qvel", "act", *OUTPUTS):
                want = getattr(d, name)
                atol = 1e-10 * (1 + np.abs(want).max())
                np.testing.assert_allclose(getattr(sim, name)[k].cpu(), want, rtol=0, atol=atol, err_msg=name)
            ours = sim.history[k].cpu().numpy()
            np.testing.assert_allclose(ours, history_from(m, mjm, d), rtol=0, atol=1e-8)
            touched += d.ncon > 0
        sim.forward()
        for k, d in enumerate(theirs):
            d = copy.copy(d)
            mujoco.mj_forward(mjm, d)
            np.testing.assert_allclose(sim.sensordata[k].cpu(), d.sensordata, rtol=0, atol=1e-9)
    assert touched > 50
    sim.reset(torch.tensor([True, False, False]))
    first = history_from(m, mjm, mujoco.MjData(mjm))
    np.testing.assert_array_equal(sim.history[0].cpu(), first)
    assert not np.allclose(sim.history[1].cpu(), first)


PUSHED = """<mujoco><option timestep=".01"/><worldbody><body>
    <joint name="j" type="slide" axis="1 0 0"/><geom size=".1"/></body></worldbody>
    <actuator><motor name="m" joint="j" ctrlrange="-9e3 9e3" {late}/></actuator>
    <sensor>{sensors}</sensor></mujoco>"""


def test_a_delay_of_whole_steps_is_that_many_steps() -> None:
    """Where times round MuJoCo reads at times the sample before; see docs/limits.md."""
    sensors = '<actuatorfrc actuator="m" nsample="9" interval=".03"/>'
    mjm = mujoco.MjModel.from_xml_string(PUSHED.format(late='delay=".04" nsample="10"', sensors=sensors))
    outputs, d = ("actuator_force", "sensordata"), mujoco.MjData(mjm)
    sims = [Simulation(mjm, 1, dtype=dtype, outputs=outputs) for dtype in (torch.float32, torch.float64)]
    theirs = 0
    for k in range(4000):
        d.ctrl[:] = k
        mujoco.mj_step(mjm, d)
        theirs += int(d.actuator_force[0]) == max(0, k - 4)
        for sim in sims:
            sim.ctrl[:] = k
            sim.step()
            assert float(sim.actuator_force[0, 0]) == max(0, k - 4)
            assert float(sim.sensordata[0, 0]) == max(0, k // 3 * 3 - 4)
    assert 2000 < theirs < 3900


@dataclass(frozen=True)
class Pushed(Task):
    """A mass that is pushed late, and sees late and seldom where it is. It begins anew where it has come too far."""

    xml_file: str = ""
    frame_skip: int = 3

    def load(self) -> mujoco.MjModel:
        late = f'delay="{2.5 * STEP}" nsample="4" interp="linear"'
        sensors = f"""<jointpos joint="j" nsample="5" interp="cubic" delay="{3.2 * STEP}" interval="{1.7183 * STEP}"/>
            <jointvel joint="j" nsample="1" interval="{2 * STEP}"/>"""
        return mujoco.MjModel.from_xml_string(PUSHED.format(late=late, sensors=sensors).replace(".01", str(STEP), 1))

    def reset(self, m: Model, rng: Random) -> tuple[list[Scalar], list[Scalar]]:
        return [0.0], [0.0]

    def observe(self, m: Model, world: World) -> list[Scalar]:
        return [*world.qpos, *world.qvel, *world.data.sensordata]

    def outcome(self, m: Model, before: World, action: list[Scalar], after: World) -> Outcome:
        return Outcome(reward=1.0, terminated=after.qpos[0] > 0.3)


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_an_environment_is_late_until_its_episode_ends(mode: str) -> None:
    """The next one begins as if nothing had been."""
    env = TorchVectorEnv(Pushed(), 2, dtype="float64", autoreset_mode=AutoresetMode(mode))
    mjm = Pushed().load()
    d, ended, episodes, rng = mujoco.MjData(mjm), False, 0, np.random.default_rng(0)
    env.reset(seed=0)
    for _ in range(150):
        action = rng.uniform(0, 9)
        obs, _, terminated, _, info = env.step(torch.full((2, 1), action, dtype=torch.float64))
        if ended and mode == "NextStep":
            mujoco.mj_resetData(mjm, d)
            mujoco.mj_forward(mjm, d)
        else:
            d.ctrl[:] = action
            mujoco.mj_step(mjm, d, 3)
        ended = bool(terminated[0])
        episodes += ended
        if ended and mode == "SameStep":
            final = info["final_obs"][1].cpu()
            np.testing.assert_allclose(final, [*d.qpos, *d.qvel, *d.sensordata], rtol=0, atol=1e-11)
            mujoco.mj_resetData(mjm, d)
            mujoco.mj_forward(mjm, d)
        np.testing.assert_allclose(obs[1].cpu(), [*d.qpos, *d.qvel, *d.sensordata], rtol=0, atol=1e-11)
    kept = env.engine.view("kept")[1].cpu()
    np.testing.assert_allclose(kept, history_from(env.engine.model, mjm, d), rtol=0, atol=1e-9)
    assert episodes > 2


@dataclass(frozen=True)
class Bent(Pushed):
    """The same of an arm on springs that yield, of a joint and a tendon, whose delayed sensor is of all forces."""

    frame_skip: int = 1

    def load(self) -> mujoco.MjModel:
        return mujoco.MjModel.from_xml_string(f"""<mujoco><option timestep="{STEP}"/><worldbody>
            <site name="a" pos="0 0 1"/>
            <body><joint name="j" axis="0 1 0" stiffness="5" springyield=".02"/><geom size=".1" pos=".3 0 0"/>
              <site name="b" pos=".3 0 0"/></body></worldbody>
            <tendon><spatial stiffness="5" springyield=".01"><site site="a"/><site site="b"/></spatial></tendon>
            <actuator><motor joint="j" delay="{3 * STEP}" nsample="8"/></actuator>
            <sensor><torque site="b" delay="{2 * STEP}" nsample="4"/></sensor></mujoco>""")

    def outcome(self, m: Model, before: World, action: list[Scalar], after: World) -> Outcome:
        return Outcome(reward=1.0)


@pytest.mark.parametrize("frame_skip", [1, 3])
def test_springs_that_yield_and_delays_are_kept_apart(frame_skip: int) -> None:
    env, mjm = TorchVectorEnv(Bent(frame_skip=frame_skip), 2, dtype="float64"), Bent().load()
    d = mujoco.MjData(mjm)
    env.reset(seed=0)
    for k in range(20):
        obs, *_ = env.step(torch.full((2, 1), 0.1 * k, dtype=torch.float64))
        d.ctrl[:] = 0.1 * k
        mujoco.mj_step(mjm, d, frame_skip)
        np.testing.assert_allclose(obs[1].cpu(), [*d.qpos, *d.qvel, *d.sensordata], rtol=0, atol=1e-11)
    assert np.abs(d.plastic).max() > 0.1 and np.abs(d.sensordata).max() > 0.1


def test_an_environment_shows_its_history_in_mjdata() -> None:
    env, mjm = TorchEnv(Pushed(), dtype="float64", device=torch.get_default_device()), Pushed().load()
    d = mujoco.MjData(mjm)
    env.reset(seed=0)
    for k in range(5):
        env.step(np.array([1.0 + k]))
        d.ctrl[:] = 1.0 + k
        mujoco.mj_step(mjm, d, 3)
    mujoco.mj_forward(mjm, d)
    for name in ("qpos", "sensordata", "actuator_force"):
        np.testing.assert_allclose(getattr(env.data, name), getattr(d, name), rtol=0, atol=1e-8)
    back = history_from(env.engine.model, mjm, env.data)
    np.testing.assert_allclose(back, history_from(env.engine.model, mjm, d), rtol=0, atol=1e-8)


def test_a_history_goes_to_mjdata_and_back() -> None:
    mjm = model(0, "Euler")
    m, d = load(mjm), moving(mjm, 3)
    there = history_from(m, mjm, d)
    copied = copy.copy(d)
    copied.history[:] = history_to(m, mjm, np.array(there), d.time)
    np.testing.assert_allclose(history_from(m, mjm, copied), there, rtol=0, atol=1e-8)
    mujoco.mj_step(mjm, d), mujoco.mj_step(mjm, copied)
    np.testing.assert_allclose(copied.qpos, d.qpos, rtol=0, atol=1e-10)
    np.testing.assert_allclose(copied.sensordata, d.sensordata, rtol=0, atol=1e-6)


REFUSED = {
    "under integrator 'RK4'": ("RK4", '<jointpos name="x" joint="j" nsample="3" delay=".02"/>'),
    "an interval shorter than a time step": ("Euler", '<jointpos name="x" joint="j" nsample="3" interval=".005"/>'),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_not_there_is_refused_where_it_is_read(what: str) -> None:
    integrator, sensor = REFUSED[what]
    xml = PUSHED.format(late="", sensors=sensor).replace("<option ", f'<option integrator="{integrator}" ')
    with pytest.raises(UnsupportedModel, match=f"'x' .*{what}"):
        Simulation(xml, 1, outputs=("sensordata",))
    Simulation(xml, 1).step()


def test_derivatives_are_refused() -> None:
    sim = Simulation(PUSHED.format(late='delay=".02" nsample="2"', sensors=""), 1)
    with pytest.raises(UnsupportedModel, match="delays of actuators or sensors"):
        sim.linearize()
    with pytest.raises(UnsupportedModel, match="delays of actuators or sensors"):
        sim.transition()
    with pytest.raises(AttributeError, match="no actuator or sensor of the model has a delay"):
        _ = Simulation(PUSHED.format(late="", sensors=""), 1).history
