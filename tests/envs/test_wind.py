"""Quadrotors in a wind that tasks change, and pushes in every substep: drag of rotors, and of turning.

Oracle: the same in NumPy around MuJoCo C, whose `opt.wind` and `xfrc_applied` are written into.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import kernels
import mujoco
import numpy as np
import oracle
import pytest
import torch
from ptx import Machine

from torch_mjenvs import Control, Outcome, Start, Task, TorchEnv, TorchVectorEnv, Uniform
from torch_mjenvs.compiler import cuda
from torch_mjenvs.physics import UnsupportedModel
from torch_mjenvs.physics.simulation import Simulation
from torch_mjenvs.scalar import select
from torch_mjenvs.vectors import rotate, rotate_inverse, scale

XML = """<mujoco><option timestep="0.004" density="1.2" viscosity="2e-5" wind="1 0 0" integrator="{integrator}"/>
<worldbody><geom type="plane" size="5 5 .1"/>
  <body name="drone" pos="0 0 .2"><freejoint/>
    <inertial pos=".002 0 0" mass=".03" diaginertia="2e-5 3e-5 4e-5"/>
    <geom type="ellipsoid" size=".06 .05 .02" fluidshape="{shape}"/><site name="imu"/>
    <site name="r1" pos=".03 -.03 0"/><site name="r2" pos="-.03 -.03 0"/>
    <site name="r3" pos="-.03 .03 0"/><site name="r4" pos=".03 .03 0"/>
    <body pos="0 0 -.02"><joint type="ball" damping="1e-5"/><geom name="load" type="capsule" size=".005"
      fromto="0 0 0 0 0 -.1" mass=".004"/></body></body></worldbody>
<default><general ctrlrange="0 1" dyntype="filterexact" dynprm=".03" gainprm=".16"/></default>
<actuator><general site="r1" gear="0 0 1 0 0 -.006"/><general site="r2" gear="0 0 1 0 0 .006"/>
  <general site="r3" gear="0 0 1 0 0 -.006"/><general site="r4" gear="0 0 1 0 0 .006"/></actuator>
<sensor><gyro name="gyro" site="imu"/><accelerometer name="acc" site="imu"/></sensor></mujoco>"""
GUST = [0.01, -0.02, 0.03, 1e-4, 0.0, 2e-4]  # N, N m: held for a step
DRAG = 0.02  # N s/m, along the drone's axes


@dataclass(frozen=True)
class Flying(Task):
    """The first numbers of an action change the wind, the last is the thrust. Rotors have drag in every substep."""

    inputs = ("wind",)
    xml_file: str = ""
    frame_skip: int = 3
    integrator: str = "implicitfast"
    shape: str = "ellipsoid"
    calm: bool = False  # whether the action has an effect on the wind

    def load(self) -> mujoco.MjModel:
        xml = XML.format(integrator=self.integrator, shape=self.shape)
        return oracle.sharpen(mujoco.MjModel.from_xml_string(xml))

    def action_space(self, m: Any) -> tuple[list[float], list[float]]:
        return [-1.0] * 4, [1.0] * 4

    def reset(self, m: Any, rng: Any) -> Start:
        qpos = [*m.qpos0[:2], rng.uniform(0.13, 0.3), *m.qpos0[3:]]
        velocities = [rng.uniform(-0.5, 0.5) for _ in range(m.nv)]
        return Start(qpos, velocities, [0.5] * 4, wind=[rng.uniform(-2.0, 2.0), rng.uniform(-2.0, 2.0), 0.0])

    def control(self, m: Any, world: Any, action: list[Any]) -> Control:
        wind = None if self.calm else [w + a for w, a in zip(world.data.wind, action, strict=False)]
        return Control([action[3]], xfrc_applied={"drone": GUST}, wind=wind)

    def substep_control(self, m: Any, world: Any, targets: list[Any]) -> Control:
        turn = world.qpos[3:7]
        drag = rotate(turn, [-DRAG * v for v in rotate_inverse(turn, world.qvel[:3])[:2]] + [0.0])
        gyro = world.data.sensordata[m.sensor("gyro")]
        force = [0.0] * 6 + [1e-5 * w for w in world.qvel[6:]]
        swirl = {} if self.calm else {"wind": [*world.data.wind[:2], world.data.wind[2] + 0.1]}
        ctrl = [0.5 + 0.2 * targets[0] + 0.01 * k * gyro[0] for k in (1, -1, 1, -1)]
        return Control(ctrl, force, {"drone": [*drag, *scale(gyro, -1e-5)]}, **swirl)

    def observe(self, m: Any, world: Any) -> list[Any]:
        seen = [*world.qpos, *world.qvel, *world.act, *world.data.sensordata[m.sensor("acc")]]
        return [*seen, *world.data.qfrc_fluid, *world.data.wind]

    def outcome(self, m: Any, before: Any, action: list[Any], after: Any) -> Outcome:
        return Outcome(after.qpos[2])


def in_mujoco(mjm: mujoco.MjModel, d: mujoco.MjData, action: np.ndarray) -> None:
    """What `Flying` does in a step."""
    mjm.opt.wind[:] += action[:3]
    body, rotation = mjm.body("drone").id, np.zeros(9)
    for _ in range(3):
        mujoco.mj_forward(mjm, d)
        gyro = d.sensor("gyro").data.copy()
        mujoco.mju_quat2Mat(rotation, d.qpos[3:7])
        axes = rotation.reshape(3, 3)
        d.xfrc_applied[body] = GUST
        d.xfrc_applied[body, :3] += axes @ (-DRAG * (axes.T @ d.qvel[:3]) * [1, 1, 0])
        d.xfrc_applied[body, 3:] -= 1e-5 * gyro
        d.qfrc_applied[6:] = 1e-5 * d.qvel[6:]
        d.ctrl[:] = 0.5 + 0.2 * action[3] + 0.01 * gyro[0] * np.array([1, -1, 1, -1])
        mjm.opt.wind[2] += 0.1
        mujoco.mj_step(mjm, d)


@pytest.mark.parametrize(
    ("integrator", "shape", "data"),
    [
        ("Euler", "ellipsoid", "fresh"),
        ("RK4", "none", "gymnasium"),
        ("RK4", "ellipsoid", "fresh"),
        ("implicit", "ellipsoid", "forward"),
        ("implicitfast", "none", "forward"),
        ("implicitfast", "ellipsoid", "gymnasium"),
    ],
)
def test_steps_are_those_of_a_loop_around_mujoco(integrator: str, shape: str, data: str) -> None:
    n, blown, contacts = 3, 0.0, 0
    task = type("In", (Flying,), {"data": data})(integrator=integrator, shape=shape)
    env = TorchVectorEnv(task, n, dtype=torch.float64, autoreset_mode="Disabled")
    obs = env.reset(seed=0)[0].cpu().numpy()
    models, rng = [task.load() for _ in range(n)], np.random.default_rng(0)
    for k, mjm in enumerate(models):
        mjm.opt.wind[:] = obs[k, -3:]
    assert len({tuple(row) for row in obs[:, -3:]}) == n
    for _ in range(40):
        actions = rng.uniform(-1, 1, (n, 4)) - [0.0, 0.0, 0.3, 1.0]
        state, seen = obs, env.step(torch.from_numpy(actions).to(env.device))[0].cpu().numpy()
        for k, mjm in enumerate(models):
            d = mujoco.MjData(mjm)
            d.qpos[:], d.qvel[:], d.act[:] = np.split(state[k, : mjm.nq + mjm.nv + 4], [mjm.nq, mjm.nq + mjm.nv])
            in_mujoco(mjm, d, actions[k])
            want = [*d.qpos, *d.qvel, *d.act]
            np.testing.assert_allclose(seen[k, : len(want)], want, rtol=0, atol=1e-11)
            if data == "forward":
                mujoco.mj_forward(mjm, d)
            acc = d.sensor("acc").data.copy()
            if data == "fresh":
                mujoco.mj_step1(mjm, d)
            want = [*acc, *d.qfrc_fluid, *mjm.opt.wind]
            np.testing.assert_allclose(seen[k, -len(want) :], want, rtol=1e-10, atol=1e-10)
            blown, contacts = max(blown, np.abs(mjm.opt.wind).max()), contacts + d.ncon
        obs = seen
    assert blown > 5 and contacts > 5


@pytest.mark.skipif(torch.get_default_device().type != "cpu", reason="on a GPU all other tests run this code itself")
def test_the_code_for_a_gpu_gives_the_same_bits() -> None:
    """A step and its reset, by the interpreter of PTX."""
    env = TorchVectorEnv(Flying(), 16, autoreset_mode="SameStep", max_episode_steps=4)
    env.reset(seed=0)
    engine = env.engine
    program = engine._episode.program("step", "float32")
    for turn in range(4):
        env.engine.action.copy_(torch.from_numpy(np.random.default_rng(turn).uniform(-1, 1, (16, 4))))
        ours, theirs = ({name: x.clone() for name, x in engine.buffers.items()} for _ in range(2))
        kernels.build(program).bind(ours)()
        Machine(cuda.assembly(program)).launch([theirs[b.name] for b in program.buffers], 16)
        for name, x in ours.items():
            assert x.numpy().tobytes() == theirs[name].numpy().tobytes(), name
        env.step(env.engine.action.clone())


def test_the_wind_is_part_of_the_state_and_of_the_model_of_a_world() -> None:
    env = TorchVectorEnv(Flying(), 3, autoreset_mode="SameStep", max_episode_steps=4)
    assert env.model_of(2).opt.wind.tolist() == [1.0, 0.0, 0.0]  # the model's, until there is an episode
    env.reset(seed=1)
    for _ in range(2):
        obs = env.step(torch.full((3, 4), 0.25, device=env.device))[0]
    for k in range(3):
        assert env.model_of(k).opt.wind.tolist() == pytest.approx(obs[k, -3:].tolist(), abs=0)
    other = TorchVectorEnv(Flying(), 3, autoreset_mode="SameStep", max_episode_steps=4)
    other.load_state_dict(env.state_dict())
    for _ in range(3):  # into the next episode
        expected = env.step(torch.zeros(3, 4, device=env.device))[0]
        assert torch.equal(other.step(torch.zeros(3, 4, device=env.device))[0], expected)
    single = TorchEnv(Flying(), dtype=torch.float64)
    single.reset(seed=1)
    seen = single.step(np.array([0.5, 0.0, 0.0, 0.0]))[0]
    data = single.data
    np.testing.assert_array_equal(single.unwrapped.engine.model_of(0).opt.wind, seen[-3:])
    mjm = single.unwrapped.engine.model_of(0)
    want = mujoco.MjData(mjm)
    want.qpos[:], want.qvel[:] = data.qpos, data.qvel
    mujoco.mj_forward(mjm, want)
    np.testing.assert_array_equal(data.qfrc_fluid, want.qfrc_fluid)


def test_an_episode_begins_with_the_wind_that_is_drawn() -> None:
    """By `randomize`; what `control` sets takes its place."""

    @dataclass(frozen=True)
    class Drawn(Flying):
        def reset(self, m: Any, rng: Any) -> Start:
            return Start(m.qpos0, [0.0] * m.nv)

    env = TorchVectorEnv(Drawn(), 4, randomize={"wind": Uniform(-3.0, 3.0)}, autoreset_mode="SameStep")
    obs = env.reset(seed=0)[0]
    drawn = env.params["wind"].clone()
    assert torch.equal(obs[:, -3:], drawn) and drawn.unique().numel() == 12
    obs = env.step(torch.ones(4, 4, device=env.device))[0]
    rise = torch.tensor([1.0, 1.0, 1.3], device=env.device)
    torch.testing.assert_close(obs[:, -3:], drawn + rise, rtol=0, atol=1e-5)
    assert torch.equal(env.params["wind"], drawn)


def test_other_states_are_looked_at_in_any_wind() -> None:
    @dataclass(frozen=True)
    class Looking(Flying):
        def observe(self, m: Any, world: Any) -> list[Any]:
            still = world.at(world.qpos, world.qvel, wind=[0.0, 0.0, 0.0])
            return [*still.data.wind, *still.data.qfrc_fluid[:3], *world.data.wind, *world.data.qfrc_fluid[:3]]

    env = TorchVectorEnv(Looking(), 3, dtype=torch.float64)
    seen = env.reset(seed=0)[0]
    assert (seen[:, :3] == 0).all() and (seen[:, 6:8] != 0).all() and (seen[:, 9:11] != seen[:, 3:5]).all()


def test_winds_and_pushes_that_are_not_finite_end_their_world_alone() -> None:
    @dataclass(frozen=True)
    class Careless(Flying):
        def substep_control(self, m: Any, world: Any, targets: list[Any]) -> Control:
            much = [select(targets[0] > 0.9, 1e30, 0.0)] * 3
            return Control([0.5] * 4, xfrc_applied={"drone": much * 2}, wind=much)

    env = TorchVectorEnv(Careless(), 2, autoreset_mode="SameStep")
    env.reset(seed=0)
    action = torch.zeros(2, 4, device=env.device)
    env.step(action)
    action[1, 3] = 1.0
    obs, _, terminated, _, info = env.step(action)
    assert info["bad_state"].tolist() == terminated.tolist() == [False, True]
    assert obs.isfinite().all() and info["final_obs"].isfinite().all()


WRONG = {
    "not named": ({"inputs": ()}, {"wind": [0.0] * 3}, "wind: the task's `inputs` does not name it"),
    "too few": ({}, {"wind": [0.0] * 2}, "gave 2 numbers for wind, and the model has 3"),
    "no body": ({}, {"xfrc_applied": {"dron": GUST}}, "there is no body 'dron'"),
    "a kick": ({}, {"qvel": [0.0] * 9}, "gave qvel, which `control` gives"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_does_not_fit_is_refused(what: str) -> None:
    changes, given, said = WRONG[what]
    members = {"substep_control": lambda self, m, world, targets: Control([0.0] * 4, **given), **changes}
    with pytest.raises(ValueError, match=said):
        TorchVectorEnv(type("Wrong", (Flying,), members)(calm=True), 1)


def test_substeps_that_push_only_sometimes_are_refused() -> None:
    calls = []

    @dataclass(frozen=True)
    class Fickle(Flying):
        def substep_control(self, m: Any, world: Any, targets: list[Any]) -> Control:
            calls.append(m)  # twice for the layout, and then for the kernel
            return Control([0.5] * 4, xfrc_applied={"drone": GUST} if len(calls) < 3 else {})

    with pytest.raises(ValueError, match=r"pushes with \[\], and with \['xfrc_applied'\] before: always the same"):
        TorchVectorEnv(Fickle(), 1)


def test_pushes_may_depend_on_whether_a_parameter_varies() -> None:
    @dataclass(frozen=True)
    class Known(Flying):
        def substep_control(self, m: Any, world: Any, targets: list[Any]) -> Control:
            known = isinstance(m.body_mass[1], float)  # a number only where nothing varies
            return Control([0.5] * 4, xfrc_applied={"drone": GUST} if known else {})

    for randomize, pushes in (({}, ("xfrc_applied",)), ({"body_mass": (0.5, 2.0)}, ())):
        assert TorchVectorEnv(Known(), 1, randomize=randomize).engine.layout.substep_pushes == pushes


def still() -> mujoco.MjModel:
    mjm = Flying().load()
    mjm.opt.density = mjm.opt.viscosity = 0.0
    return mjm


def test_a_wind_without_air_is_refused() -> None:
    task = type("Vacuum", (Flying,), {"load": lambda self: still()})(calm=True)
    said = "wind has no use: the model has neither density nor viscosity"
    with pytest.raises(ValueError, match=said):
        TorchVectorEnv(task, 1)
    TorchVectorEnv(task, 1, randomize={"density": Uniform(1.0, 1.3)})
    with pytest.raises(ValueError, match=said):
        TorchVectorEnv(type("Calm", (type(task),), {"inputs": (), "observe": lambda self, m, world: world.qpos,
            "reset": lambda self, m, rng: (m.qpos0, [0.0] * m.nv)})(calm=True), 1,
            randomize={"wind": Uniform(-1.0, 1.0)})  # fmt: skip
    with pytest.raises(ValueError, match=said):
        Simulation(still(), 1, inputs=("wind",))
    Simulation(still(), 1, inputs=("wind",), vary=("density",))


def test_gradients_are_refused_by_name() -> None:
    members = {"substep_control": Task.substep_control, "control": lambda self, m, world, action: Control(action)}
    env = TorchVectorEnv(type("Plain", (Flying,), members)(), 2, autoreset_mode="Disabled")
    env.reset(seed=0)
    action = torch.zeros(2, 4, device=env.device, requires_grad=True)
    after = env.engine.transition(env.engine.state_dict(), action)
    with pytest.raises(UnsupportedModel, match="what the task keeps in wind"):
        after["obs"].sum().backward()


@pytest.mark.parametrize("integrator", ["Euler", "RK4", "implicit", "implicitfast"])
def test_a_simulations_wind_is_an_input(integrator: str) -> None:
    """Beside MuJoCo C in another wind every ten steps; a reset sets it to the world's own, if that varies."""
    mjm = Flying(integrator=integrator).load()
    sim = Simulation(
        mjm, 3, dtype=torch.float64, inputs=("wind",), vary=("wind",), outputs=("qfrc_fluid", "sensordata")
    )
    assert sim.wind.tolist() == [[1.0, 0.0, 0.0]] * 3
    rng = np.random.default_rng(0)
    worlds = [(copy.copy(mjm), mujoco.MjData(mjm)) for _ in range(3)]
    for _ in range(5):
        for k, (own, _) in enumerate(worlds):
            own.opt.wind[:] = rng.normal(0, 3, 3)
            sim.wind[k] = torch.from_numpy(own.opt.wind)
        sim.step(10)
        for k, (own, d) in enumerate(worlds):
            mujoco.mj_step(own, d, 10)
            for name in ("qpos", "qvel", "qfrc_fluid", "sensordata"):
                np.testing.assert_allclose(getattr(sim, name)[k].cpu(), getattr(d, name), rtol=1e-10, atol=1e-10)
            np.testing.assert_array_equal(sim.model_of(k).opt.wind, own.opt.wind)
    sim.params["wind"][1] = torch.tensor([4.0, 5.0, 6.0])
    sim.reset(torch.tensor([False, True, True], device=sim.device))
    assert sim.wind[1:].tolist() == [[4.0, 5.0, 6.0], [1.0, 0.0, 0.0]]
    assert sim.wind[0].tolist() == worlds[0][0].opt.wind.tolist()


def test_derivatives_are_those_in_the_present_wind() -> None:
    """A of `linearize`, beside central differences of MuJoCo C's steps."""
    mjm = Flying().load()
    sim = Simulation(mjm, 1, dtype=torch.float64, inputs=("wind",))
    sim.qpos[:, 2], sim.wind[:] = 1.0, torch.tensor([3.0, -2.0, 1.0])
    mjm.opt.wind[:] = [3.0, -2.0, 1.0]
    d = mujoco.MjData(mjm)
    d.qpos[2] = 1.0
    want = np.zeros((2 * mjm.nv + mjm.na,) * 2)
    mujoco.mjd_transitionFD(mjm, d, 1e-6, True, want, None, None, None)
    np.testing.assert_allclose(sim.linearize().A[0].cpu(), want, rtol=0, atol=1e-6)
