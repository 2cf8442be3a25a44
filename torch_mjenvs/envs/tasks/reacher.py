"""Reacher, after gymnasium/envs/mujoco/reacher_v5.py."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from ...physics.algebra.spatial import norm, scale, sub
from ...physics.model.model import Model
from ...scalar import Random, Scalar, cos, sin, sqrt
from .base import Outcome, Task, World, squared, uniform_noise

GOAL_RADIUS = 0.2


@dataclass(frozen=True, kw_only=True)
class Reacher(Task):
    """Bring a fingertip to a target. Action 2 in [-1, 1]. Never ends early; truncated after 50 steps.

    Observation 10: cosines and sines of the two angles, the target's place, the angles' rates, and the vector from the
    target to the fingertip. That vector, and the reward computed from it, are of the step's last evaluation (see
    `World.data`).
    """

    max_episode_steps: ClassVar[int] = 50
    default_camera_config: ClassVar = {"trackbodyid": 0}
    reward_threshold: ClassVar = -3.75

    xml_file: str = "reacher.xml"
    frame_skip: int = 2
    reward_dist_weight: float = 1
    reward_control_weight: float = 1

    def reset(self, m: Model, rng: Random) -> tuple[list[Scalar], list[Scalar]]:
        """Return a state with the target uniform in a disc.

        Gymnasium draws targets from a square until one lies in the disc; here one draw suffices, with the same
        distribution.
        """
        qpos = uniform_noise(m.qpos0[:-2], rng, 0.1)
        radius, angle = GOAL_RADIUS * sqrt(rng.uniform()), rng.uniform(-math.pi, math.pi)
        qvel = uniform_noise((0.0,) * (m.nv - 2), rng, 0.005)
        return qpos + scale([cos(angle), sin(angle)], radius), qvel + [0.0, 0.0]

    def way(self, m: Model, world: World) -> list[Scalar]:
        """Return the vector from the target to the fingertip (m)."""
        fingertip, target = (world.data.xpos[m.body_names.index(name)] for name in ("fingertip", "target"))
        return sub(fingertip, target)

    def observe(self, m: Model, world: World) -> list[Scalar]:
        angles = world.qpos[:2]
        turned = [cos(x) for x in angles] + [sin(x) for x in angles]
        return turned + world.qpos[2:] + world.qvel[:2] + self.way(m, world)[:2]

    def outcome(self, m: Model, before: World, action: list[Scalar], after: World) -> Outcome:
        dist = -norm(self.way(m, after)) * self.reward_dist_weight
        ctrl = -squared(action) * self.reward_control_weight
        return Outcome(dist + ctrl, False, {"reward_dist": dist, "reward_ctrl": ctrl})
