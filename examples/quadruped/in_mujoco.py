"""Runs a policy in MuJoCo C itself, with robots, noise, latency, commands and pushes drawn the same way.

    python examples/quadruped/in_mujoco.py runs/quadruped.task-TorchQuadruped-v0-0
    python examples/quadruped/in_mujoco.py runs/quadruped.task-TorchQuadruped-v0-0 --film quadruped.mp4

The functions of a task also work on plain numbers, and then draw what an environment of that seed draws. So `Robot`
is a world of the task whose physics is MuJoCo's own.
"""

from __future__ import annotations

import argparse
import copy
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

if sys.platform == "linux" and "DISPLAY" not in os.environ:
    os.environ.setdefault("MUJOCO_GL", "egl")  # before MuJoCo is imported

import mujoco
import numpy as np
import torch
from tqdm import trange

sys.path.insert(0, str(Path(__file__).parents[1]))
from quadruped.task import Quadruped

from torch_mjenvs import World
from torch_mjenvs.commands.play import SHADOW, writer
from torch_mjenvs.physics import load
from torch_mjenvs.policy import Policy
from torch_mjenvs.scalar import Random

RESET, BEGIN, PARAMETERS = 0, -1, -2  # streams of random numbers, beside those of an episode's steps: 1, 2, ...


class Robot:
    """World `number` of an environment of this seed, but in MuJoCo C. Actions and observations are lists of floats."""

    def __init__(self, task: Quadruped, seed: int, number: int):
        self.task, self.key, self.episode = task, (seed, number), -1
        self.nominal = task.load()
        self.memory = task.memory(load(self.nominal))

    def reset(self) -> list[float]:
        """A new episode, of a robot with parameters of its own. Returns the observation."""
        task = self.task
        self.episode, self.elapsed = self.episode + 1, 0
        self.model = edited(self.nominal, task.randomize(load(self.nominal), self._random(PARAMETERS)))
        self.data, self.m = mujoco.MjData(self.model), load(self.model)
        self.data.qpos[:], self.data.qvel[:] = task.reset(self.m, self._random(RESET))
        world = self._world(self._random(BEGIN))
        self.memory = world.memory = task.memory(self.m) | task.begin(self.m, world)
        return task.observe(self.m, world)

    def step(self, action: list[float]) -> tuple[list[float], dict[str, Any], bool]:
        """Returns the observation, info, and whether the robot fell."""
        task, m = self.task, self.m
        self.elapsed += 1
        rng = self._random(self.elapsed)
        before = self._world(rng)
        control = task.control(m, before, action)
        self.data.ctrl[:] = control.ctrl
        for body, force in control.xfrc_applied.items():
            self.data.body(body).xfrc_applied[:] = force
        mujoco.mj_step(self.model, self.data, task.frame_skip)
        after = self._world(rng)
        self.memory = after.memory = self.memory | task.remember(m, before, action, after)
        outcome = task.outcome(m, before, action, after)
        return task.observe(m, after), outcome.info, any(outcome.terminated.values())

    def _random(self, what: int) -> Random:
        return Random(*self.key, self.episode, 0, what)

    def _world(self, rng: Random) -> World:
        return World(self.data.qpos.tolist(), self.data.qvel.tolist(), self.memory, self.data, rng)


def edited(model: mujoco.MjModel, parameters: dict[str, Any]) -> mujoco.MjModel:
    """A copy with other parameters, and all that MuJoCo derives from them."""
    out = copy.deepcopy(model)
    for name, values in parameters.items():
        getattr(out, name)[:] = values
    mujoco.mj_setConst(out, mujoco.MjData(out))
    return out


def main(arguments: Sequence[str] | None = None) -> None:
    p = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    p.add_argument("run", help="the folder of a run, or its policy.pt")
    p.add_argument("--robots", type=int, default=50)
    p.add_argument("--seconds", type=float, default=20.0, help="of each robot's time")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--film", type=Path, help="a film of the first robot, .mp4 or .gif")
    args = p.parse_args(arguments)
    policy, task = Policy.load(args.run), Quadruped(curriculum=False)
    robots = [Robot(task, args.seed, number) for number in range(args.robots)]
    steps = round(args.seconds / task.dt(load(robots[0].nominal)))
    errors, fallen = np.zeros((steps, len(robots))), np.zeros(len(robots), int)
    film = Film(args.film, robots[0]) if args.film else None
    observations = [robot.reset() for robot in robots]
    for step in trange(steps, unit=" steps"):
        actions = policy(torch.tensor(observations)).tolist()
        for k, (robot, action) in enumerate(zip(robots, actions, strict=True)):
            observations[k], info, fell = robot.step(action)
            errors[step, k] = info["speed_error"]
            if fell:
                fallen[k] += 1
                observations[k] = robot.reset()
        if film:
            film.add()
    if film:
        film.close()
    print(
        f"in MuJoCo C: mean error of the planar velocity {errors.mean():.3f} m/s "
        f"(of the middle robot {np.median(errors.mean(0)):.3f}, of the worst {errors.mean(0).max():.3f}); "
        f"{fallen.sum()} falls of {len(robots)} robots in {args.seconds:g} s each"
    )


class Film:
    """What the camera that goes along with a robot sees, 25 pictures a second."""

    def __init__(self, path: Path, robot: Robot):
        robot.nominal.vis.quality.shadowsize = SHADOW
        self.robot, self.renderer, self.steps = robot, mujoco.Renderer(robot.nominal, 480, 640), 0
        self.writer = writer(path, 0.04)

    def add(self) -> None:
        """The robot as it is now; every second step is shown."""
        self.steps += 1
        if self.steps % 2 == 0:
            self.renderer.update_scene(self.robot.data, "track")
            self.writer.append_data(self.renderer.render())

    def close(self) -> None:
        self.writer.close()
        self.renderer.close()


if __name__ == "__main__":
    main()
