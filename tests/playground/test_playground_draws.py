"""Numbers and distributions of the joystick tasks against Playground's: configurations, resets, commands, models."""

from __future__ import annotations

import dataclasses
import importlib
from typing import Any

import numpy as np
import playground_oracle as theirs
import pytest
import torch
from scipy import stats

from torch_mjenvs import TorchVectorEnv
from torch_mjenvs import playground as ours
from torch_mjenvs.playground import TASKS, BerkeleyHumanoidJoystick, G1Joystick, Go1Joystick, SpotJoystick
from torch_mjenvs.playground.biped import Biped
from torch_mjenvs.playground.go1 import KEPT
from torch_mjenvs.playground.joystick import Joystick

pytestmark = pytest.mark.cpu
flax = pytest.importorskip("flax")
jax, QUADRUPED = theirs.jax, ours.quadruped
KINDS = pytest.mark.parametrize("kind", TASKS.values(), ids=lambda kind: kind.robot)
MANY = 1000  # worlds, and draws of Playground's


@KINDS
def test_all_numbers_are_playgrounds(kind: type[Joystick]) -> None:
    task, config = kind(), theirs.module_of(kind.robot).default_config()
    assert task.rewards == dict(config.reward_config.scales)
    assert task.tracking_sigma == config.reward_config.tracking_sigma
    assert task.max_foot_height == config.reward_config.max_foot_height
    assert task.action_scale == config.action_scale and task.max_episode_steps == config.episode_length
    assert task.timestep == config.sim_dt and task.frame_skip * task.timestep == pytest.approx(config.ctrl_dt)
    spot = isinstance(task, SpotJoystick)
    scales = dict((config.obs_noise if spot else config.noise_config).scales)
    widths = dict(task.noise_widths)
    if isinstance(task, SpotJoystick):
        widths |= {"joint_pos": task.joint_noise, "feet_pos": widths["feet_pos"][0]}
    if isinstance(task, BerkeleyHumanoidJoystick):
        legs = [scales.pop(f"{x}_pos") for x in ("hip", "kfe", "ffe", "faa")]
        scales["joint_pos"] = [legs[0]] * 3 + legs[1:]
        assert widths["joint_pos"][:6] == widths["joint_pos"][6:]
        widths["joint_pos"] = widths["joint_pos"][:6]
    assert {x: [*y] if isinstance(y, (list, tuple)) else y for x, y in scales.items()} == widths
    if isinstance(task, Biped):
        assert task.target_height == config.reward_config.base_height_target
        assert task.pushed == config.push_config.enable
        assert (*config.push_config.interval_range,) == ours.biped.WAIT
        assert (*config.push_config.magnitude_range,) == ours.biped.KICK
    else:
        assert (task.Kp, task.Kd, task.pushed) == (config.Kp, config.Kd, config.pert_config.enable)
        named = config.pert_config.kick_wait_times, config.pert_config.kick_durations, config.pert_config.velocity_kick
        assert tuple(map(tuple, named)) == (QUADRUPED.WAIT, QUADRUPED.SECONDS, QUADRUPED.KICK)
    if isinstance(task, Go1Joystick):
        assert (task.fastest, KEPT) == ((*config.command_config.a,), (*config.command_config.b,))
    else:
        bounds = config.command_config if spot else config
        fastest = [bounds.lin_vel_x, bounds.lin_vel_y, bounds.ang_vel_yaw]
        assert [[-x, x] for x in task.fastest] == [[*x] for x in fastest]
    if isinstance(task, G1Joystick):
        assert task.max_contact_force == config.reward_config.max_contact_force


def alike(ours: np.ndarray, playgrounds: np.ndarray, what: str) -> None:
    """Columns (N, k) of draws are of one distribution each, by Kolmogorov and Smirnov; what never varies is equal."""
    assert ours.shape[1:] == playgrounds.shape[1:], what
    for i in range(ours.shape[1]):
        a, b = ours[:, i], playgrounds[:, i]
        if np.ptp(b) < 1e-9:
            np.testing.assert_allclose(a, b[0], rtol=0, atol=1e-6, err_msg=f"{what} {i}")
        else:
            assert stats.ks_2samp(a, b).pvalue > 1e-4, f"{what} {i}"


@pytest.mark.slow
@KINDS
def test_episodes_begin_as_playgrounds(kind: type[Joystick]) -> None:
    playground = theirs.joystick(kind.robot, "flat", {})
    env = TorchVectorEnv(kind(randomized=False, pushed=True), MANY, device="cpu", dtype=torch.float64)
    env.reset(seed=0)
    states = [theirs.reset(playground, seed) for seed in range(250)]
    alike(env.qpos.numpy(), np.array([x.data.qpos for x in states]), "qpos")
    alike(env.qvel.numpy(), np.array([x.data.qvel for x in states]), "qvel")
    memory = env.engine.memory
    same = {"command": "command", "phase_dt": "phase_step", "push_interval_steps": "kick_every"}
    same |= {"steps_until_next_pert": "push_wait", "pert_duration_seconds": "push_seconds", "pert_mag": "push_kick"}
    same |= {"steps_until_next_cmd": "steps"} if kind is Go1Joystick else {"step": "steps"}
    for theirs_name, name in same.items():
        if theirs_name in states[0].info:
            ours = memory[name].numpy().reshape(MANY, -1)
            alike(ours, np.array([np.ravel(x.info[theirs_name]) for x in states]), name)


@pytest.mark.slow
@KINDS
def test_commands_change_as_playgrounds(kind: type[Joystick]) -> None:
    playground = theirs.joystick(kind.robot, "flat", {})
    env = TorchVectorEnv(kind(randomized=False), MANY, device="cpu", dtype=torch.float64)
    env.reset(seed=0)
    memory, keys = env.engine.memory, jax.random.split(jax.random.PRNGKey(0), MANY)
    memory["command"][:] = 0.5
    memory["steps"][:] = 1.0 if kind is Go1Joystick else 500.0
    old = [theirs.jp.full(3, 0.5)] if kind is Go1Joystick else []
    env.step(torch.zeros(MANY, playground.mj_model.nu))
    want = np.array(jax.vmap(lambda key: playground.sample_command(key, *old))(keys))
    alike(memory["command"].numpy(), want, "command")
    assert [(memory["command"][:, i] == 0.0).double().mean().item() for i in range(3)] == pytest.approx(
        (want == 0.0).mean(0), abs=0.06
    )


@flax.struct.dataclass
class Randomized:
    """The fields of mjx.Model that Playground randomises."""

    nbody: int
    geom_friction: Any
    pair_friction: Any
    body_ipos: Any
    body_mass: Any
    qpos0: Any
    dof_frictionloss: Any
    dof_armature: Any

    def tree_replace(self, fields: dict[str, Any]) -> Randomized:
        return self.replace(**fields)  # type: ignore[attr-defined]


@pytest.mark.slow
@pytest.mark.parametrize("kind", [x for x in TASKS.values() if x is not SpotJoystick], ids=lambda kind: kind.robot)
def test_models_vary_as_playgrounds(kind: type[Joystick]) -> None:
    model = kind().load()
    fields = {x.name: getattr(model, x.name) for x in dataclasses.fields(Randomized)}
    held = Randomized(**{x: y if x == "nbody" else theirs.jp.array(y) for x, y in fields.items()})
    drawn, axes = randomizer(kind)(held, jax.random.split(jax.random.PRNGKey(0), MANY))
    names = [x for x in fields if getattr(axes, x) == 0 and x != "nbody"]
    env = TorchVectorEnv(kind(), MANY, device="cpu", dtype=torch.float64)
    env.reset(seed=0)
    assert {*env.params} == {*names}
    for name in names:
        alike(env.params[name].reshape(MANY, -1).numpy(), np.array(getattr(drawn, name)).reshape(MANY, -1), name)


def randomizer(kind: type[Joystick]) -> Any:
    return importlib.import_module(f"{theirs.PLACE}.{kind.robot}.randomize").domain_randomize
