"""Carts that name their observations, for the tests of names, groups, noise and histories."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from torch_mjenvs import Normal, Outcome, Task
from torch_mjenvs.scalar import absolute


@dataclass(frozen=True)
class Named(Task):
    """Gymnasium's pendulum on a cart: names in no alphabetical order, of all shapes, with noise and histories."""

    max_episode_steps: ClassVar[int] = 12
    noise: ClassVar[dict[str, Any]] = {"speeds": [0.0, 0.1], "angle": Normal(0.02), "table": 0}
    history: ClassVar[dict[str, int]] = {"angle": 3, "table": 2, "speeds": 0}

    xml_file: str = "inverted_pendulum.xml"
    frame_skip: int = 2

    def reset(self, m, rng):
        return [rng.uniform(-0.1, 0.1) for _ in range(m.nq)], [0.0] * m.nv

    def named(self, world):
        x, angle = world.qpos
        return {"speeds": list(world.qvel), "angle": angle, "table": [[x, angle], [x * angle, world.rng.uniform()]]}

    def observe(self, m, world):
        return self.named(world)

    def outcome(self, m, before, action, after):
        return Outcome(-absolute(after.qpos[0]), absolute(after.qpos[1]) > 0.3)


@dataclass(frozen=True)
class Grouped(Named):
    """The same, and in a second group the truth, which the policy does not see."""

    def observe(self, m, world):
        return {"policy": self.named(world), "privileged": {"speeds": list(world.qvel), "angle": world.qpos[1]}}


SHAPES = {"speeds": (2,), "angle": (3,), "table": (2, 2, 2)}  # of what a policy sees, in the task's order
TRUTH = {"speeds": (2,), "angle": ()}
WIDTH, TRUE_WIDTH = 13, 3
