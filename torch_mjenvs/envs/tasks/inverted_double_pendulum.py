"""InvertedDoublePendulum, after gymnasium/envs/mujoco/inverted_double_pendulum_v5.py."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...physics.model.model import Model
from ...scalar import Random, Scalar, clip, cos, select, sin
from .base import Outcome, Task, World, uniform_noise


@dataclass(frozen=True, kw_only=True)
class InvertedDoublePendulum(Task):
    """Balance two poles, one upon the other, on a cart. Action 1 in [-1, 1]. Ends when the tip is at height 1 m or
    below.

    Observation 9: the cart's place, sines and cosines of the two angles, and, clipped to [-10, 10], qvel and the force
    of constraints on the cart. That force and the place of the tip are of the step's last evaluation (see
    `World.data`).
    """

    default_camera_config: ClassVar = {}  # its file defines one, and does not use it
    reward_threshold: ClassVar = 9100.0

    xml_file: str = "inverted_double_pendulum.xml"
    frame_skip: int = 5
    healthy_reward: float = 10.0
    reset_noise_scale: float = 0.1

    def reset(self, m: Model, rng: Random) -> tuple[list[Scalar], list[Scalar]]:
        qpos = uniform_noise(m.qpos0, rng, self.reset_noise_scale)
        return qpos, [self.reset_noise_scale * rng.normal() for _ in range(m.nv)]

    def observe(self, m: Model, world: World) -> list[Scalar]:
        angles = world.qpos[1:]
        moving = world.qvel + world.data.qfrc_constraint[:1]
        turned = [sin(x) for x in angles] + [cos(x) for x in angles]
        return world.qpos[:1] + turned + [clip(x, -10.0, 10.0) for x in moving]

    def outcome(self, m: Model, before: World, action: list[Scalar], after: World) -> Outcome:
        x, _, y = after.data.site_xpos[0]
        terminated = y <= 1.0
        v1, v2 = after.qvel[1:3]
        distance = 0.01 * x * x + (y - 2.0) * (y - 2.0)
        velocity = 1e-3 * v1 * v1 + 5e-3 * v2 * v2
        survive = select(terminated, 0.0, float(self.healthy_reward))
        info = {"reward_survive": survive, "distance_penalty": -distance, "velocity_penalty": -velocity}
        return Outcome(survive - distance - velocity, terminated, info)
