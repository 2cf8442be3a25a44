"""examples/quadruped: the robot, and that its task is the same in MuJoCo C."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import oracle
import pytest
import torch

from torch_mjenvs import TorchVectorEnv

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
from quadruped.in_mujoco import Robot, edited
from quadruped.task import Quadruped

SEED, WORLDS, STEPS = 7, 3, 25


class Converged(Robot):
    def reset(self) -> list[float]:
        obs = super().reset()
        oracle.sharpen(self.model)
        return obs


def test_the_robot_has_12_joints_and_weighs_12_to_15_kg():
    m = Quadruped().load()
    assert m.nu == 12 and m.nv == 18
    assert 12 <= m.body_subtreemass[1] <= 15


def test_robots_differ_as_drawn_and_stand_in_mujoco():
    task = Quadruped(push=0.0)
    robots = [Robot(task, SEED, k) for k in range(WORLDS)]
    for robot in robots:
        robot.reset()
        fell = [robot.step([0.0] * 12)[2] for _ in range(50)]
        assert not any(fell)
    masses = {float(robot.model.body_subtreemass[1]) for robot in robots}
    assert len(masses) == WORLDS
    assert len({float(robot.model.actuator_gainprm[0, 0]) for robot in robots}) == WORLDS


def test_an_edited_model_has_what_mujoco_derives_and_the_first_stays_as_it_was():
    m = Quadruped().load()
    mass = m.body_mass * 2
    heavy = edited(m, {"body_mass": mass})
    np.testing.assert_allclose(heavy.body_subtreemass[1], 2 * m.body_subtreemass[1])
    assert m.body_mass[1] == mass[1] / 2


@pytest.mark.slow
def test_worlds_and_robots_in_mujoco_see_the_same():
    """Commands, noise, latency, pushes and the robots' parameters are drawn alike; float64."""
    task = Quadruped()
    env = TorchVectorEnv(task, WORLDS, dtype=torch.float64, device="cpu", autoreset_mode="Disabled")
    obs, _ = env.reset(seed=SEED)
    robots = [Converged(task, SEED, k) for k in range(WORLDS)]
    np.testing.assert_allclose(obs, [robot.reset() for robot in robots], atol=1e-12)
    generator = torch.Generator().manual_seed(0)
    for _ in range(STEPS):
        action = 0.2 * torch.randn(WORLDS, 12, generator=generator, dtype=torch.float64)
        obs, _, terminated, _, info = env.step(action)
        seen = [robot.step(a) for robot, a in zip(robots, action.tolist(), strict=True)]
        np.testing.assert_allclose(obs, [x[0] for x in seen], atol=1e-9)
        np.testing.assert_allclose(info["speed_error"], [x[1]["speed_error"] for x in seen], atol=1e-9)
        assert terminated.tolist() == [x[2] for x in seen] == [False] * WORLDS
