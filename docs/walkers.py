"""Draws docs/walkers.gif: the policies of Playground's robots that come with the package, in MuJoCo C.

python docs/walkers.py

Robots, commands, noise and pushes are those that a task draws. The text says what the robot is commanded.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from pathlib import Path

if sys.platform == "linux" and "DISPLAY" not in os.environ:
    os.environ.setdefault("MUJOCO_GL", "egl")  # before MuJoCo is imported

import mujoco
import numpy as np
import torch
from policies import titled, write

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.playground import InMujoco, layout, shipped, task_of
from torch_mjenvs import Policy, pretrained
from torch_mjenvs.commands.play import SHADOW

FILM = Path(__file__).with_name("walkers.gif")
WIDTH, HEIGHT = 256, 192  # of each, in pixels
EVERY, BEFORE = 3, 50  # steps from one picture to the next, and before the first


def main(arguments: list[str] | None = None) -> None:
    p = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    p.add_argument("--out", type=Path, default=FILM)
    p.add_argument("--seconds", type=float, default=4.0)
    p.add_argument("--seed", type=int, default=7)
    p.add_argument("--menagerie", default="", help="a checkout of MuJoCo Menagerie, for the robots' meshes")
    args = p.parse_args(arguments)
    count = round(args.seconds / (0.02 * EVERY))
    films = [pictures(pretrained(name), count, args.seed, args.menagerie) for name in shipped()]
    write(args.out, [np.concatenate(row, axis=1) for row in zip(*films, strict=True)], 1 / (0.02 * EVERY))
    print(f"{args.out}: {', '.join(shipped())}; {args.out.stat().st_size / 1e6:.1f} MB")


def pictures(policy: Policy, count: int, seed: int, menagerie: str) -> Iterator[np.ndarray]:
    """What the camera that goes along with the robot sees."""
    task = task_of(policy, menagerie=menagerie)
    robot = InMujoco(task, layout(task), seed, 0)
    robot.model.vis.quality.shadowsize = SHADOW
    if task.terrain == "rough":  # rough scenes are dark
        robot.model.vis.headlight.ambient[:] = 0.7
    renderer, size = mujoco.Renderer(robot.model, HEIGHT, WIDTH), policy.sizes[0]
    for step in range(BEFORE + EVERY * count):
        (action,) = policy(torch.tensor([robot.obs[:size]], dtype=torch.float32)).tolist()
        robot.step(action)
        if step >= BEFORE and (step - BEFORE) % EVERY == 0:
            renderer.update_scene(robot.data, "track")
            forward, left, turn = (x + 0.0 for x in robot.memory["seen_command"])
            command = f"{forward:+.1f}, {left:+.1f} m/s, {turn:+.1f} rad/s"
            yield titled(renderer.render(), f"{task.robot}, {task.terrain}: {command}")
    renderer.close()


if __name__ == "__main__":
    main()
