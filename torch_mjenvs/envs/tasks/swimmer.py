"""Swimmer, after gymnasium/envs/mujoco/swimmer_v5.py."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...physics.model.model import Model
from ...scalar import Random, Scalar
from .ant import planar_position
from .base import Outcome, Task, World, squared, uniform_noise


@dataclass(frozen=True, kw_only=True)
class Swimmer(Task):
    """Swim forward against the drag of the water. Action 2 in [-1, 1]. Never ends early.

    Observation 8: qpos without x and y, qvel.
    """

    reward_threshold: ClassVar = 360.0

    xml_file: str = "swimmer.xml"
    frame_skip: int = 4
    forward_reward_weight: float = 1.0
    ctrl_cost_weight: float = 1e-4
    reset_noise_scale: float = 0.1
    exclude_current_positions_from_observation: bool = True

    def reset(self, m: Model, rng: Random) -> tuple[list[Scalar], list[Scalar]]:
        qpos = uniform_noise(m.qpos0, rng, self.reset_noise_scale)
        return qpos, uniform_noise((0.0,) * m.nv, rng, self.reset_noise_scale)

    def observe(self, m: Model, world: World) -> list[Scalar]:
        return world.qpos[2 * self.exclude_current_positions_from_observation :] + world.qvel

    def outcome(self, m: Model, before: World, action: list[Scalar], after: World) -> Outcome:
        x_velocity, y_velocity = ((after.qpos[k] - before.qpos[k]) / self.dt(m) for k in range(2))
        forward = self.forward_reward_weight * x_velocity
        ctrl_cost = self.ctrl_cost_weight * squared(action)
        info = self.reset_info(m, after) | {
            "x_velocity": x_velocity,
            "y_velocity": y_velocity,
            "reward_forward": forward,
            "reward_ctrl": -ctrl_cost,
        }
        return Outcome(forward - ctrl_cost, False, info)

    def reset_info(self, m: Model, world: World) -> dict[str, Scalar | list[Scalar]]:
        return planar_position(world)
