"""The robots in MuJoCo C that `benchmarks.playground` scores are those of an environment: same draws, same steps."""

from __future__ import annotations

import importlib.util

import numpy as np
import oracle
import pytest
import torch

from benchmarks import playground as benchmark
from torch_mjenvs import TorchVectorEnv, pretrained
from torch_mjenvs.playground import G1Joystick, Go1Joystick
from torch_mjenvs.playground.joystick import Joystick

pytestmark = [
    pytest.mark.cpu,
    pytest.mark.skipif(
        importlib.util.find_spec("mujoco_playground") is None, reason="the extra playground is not installed"
    ),
]
SEED, WORLDS, STEPS = 5, 2, 12


@pytest.mark.parametrize(
    "task", [Go1Joystick(pushed=True), pytest.param(G1Joystick(), marks=pytest.mark.slow)], ids=lambda x: x.robot
)
def test_a_robot_in_mujoco_draws_and_steps_as_in_an_environment(task: Joystick) -> None:
    """Noise, robots, states, commands and pushes included; its solver is run to the end, as ours is."""
    env = TorchVectorEnv(task, WORLDS, dtype=torch.float64, device="cpu")
    seen = env.engine.layout.observation
    robots = [benchmark.InMujoco(task, seen, SEED, k) for k in range(WORLDS)]
    for robot in robots:
        oracle.sharpen(robot.model)
    obs, _ = env.reset(seed=SEED)
    rng = np.random.default_rng(0)
    assert not np.allclose(robots[0].model.body_mass, robots[1].model.body_mass)
    for step in range(STEPS + 1):
        for k, robot in enumerate(robots):
            want = np.concatenate([x[k].numpy().ravel() for x in obs["policy"].values()])
            np.testing.assert_allclose(robot.obs[: want.size], want, rtol=0, atol=1e-8, err_msg=f"step {step}")
        action = rng.uniform(-1, 1, (WORLDS, env.single_action_space.shape[0]))
        for robot, x in zip(robots, action.tolist(), strict=True):
            robot.step(x)
        obs, *_, info = env.step(torch.tensor(action))
        for name in benchmark.ERRORS:
            means = [np.mean([x[name] for x in robot.errors]) for robot in robots]
            np.testing.assert_allclose(means, info[f"episode_mean/{name}"], rtol=1e-8)


def test_who_leaves_rough_ground_is_not_said_to_fall() -> None:
    flat, rough = (Go1Joystick(terrain=x).load() for x in ("flat", "rough"))
    for x, y, end in ((10.1, 0.0, "edge"), (3.0, -9.9, "edge"), (9.5, 9.5, "fell")):
        assert benchmark.end_of(rough, [x, y, 0.0]) == end
    assert benchmark.end_of(flat, [30.0, 0.0, 0.0]) == "fell"


@pytest.mark.parametrize("name", benchmark.shipped())
def test_a_policy_of_the_package_follows_commands_in_mujoco(name: str) -> None:
    """For 6 s, of which the first second does not count: most stay up, and commands are followed."""
    policy = pretrained(name)
    task = benchmark.task_of(policy, pushed=False)
    seen = benchmark.layout(task)
    robots = [benchmark.InMujoco(task, seen, SEED, k) for k in range(4)]
    for robot in robots:
        oracle.sharpen(robot.model)
    for _ in range(300):
        actions = policy(torch.tensor([robot.obs[: policy.sizes[0]] for robot in robots], dtype=torch.float32))
        for robot, action in zip(robots, actions.tolist(), strict=True):
            robot.step(action)
    assert sum(robot.ended is not None for robot in robots) <= 1
    assert max(np.linalg.norm(robot.memory["command"]) for robot in robots) > 0.5
    errors = [np.mean([x["linear_error"] for x in robot.errors[50:]]) for robot in robots]
    assert np.median(errors) < 0.25, errors
