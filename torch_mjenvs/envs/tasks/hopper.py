"""Hopper, after gymnasium/envs/mujoco/hopper_v5.py."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...scalar import Mask, logical_and
from .base import World, within
from .walker2d import Walker2d


@dataclass(frozen=True, kw_only=True)
class Hopper(Walker2d):
    """Hop forward. Observation 11: qpos without x, qvel clipped to [-10, 10]. Action 3 in [-1, 1].

    Observation and reward are Walker2d's; a healthy hopper's state also lies within `healthy_state_range`.
    """

    default_camera_config: ClassVar = Walker2d.default_camera_config | {"distance": 3.0}
    reward_threshold: ClassVar = 3800.0

    xml_file: str = "hopper.xml"
    healthy_z_range: tuple[float, float] = (0.7, float("inf"))
    healthy_angle_range: tuple[float, float] = (-0.2, 0.2)
    healthy_state_range: tuple[float, float] = (-100.0, 100.0)

    def healthy(self, world: World) -> Mask:
        state = [*world.qpos, *world.qvel][2:]
        sane = (within(x, self.healthy_state_range) for x in state)
        return logical_and(super().healthy(world), *sane)
