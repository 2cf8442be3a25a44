"""Walker2d, after gymnasium/envs/mujoco/walker2d_v5.py."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...physics.model.model import Model
from ...scalar import Mask, Random, Scalar, clip, logical_and, logical_not, select
from .base import Outcome, Task, World, squared, uniform_noise, within


@dataclass(frozen=True, kw_only=True)
class Walker2d(Task):
    """Walk forward on two legs. Observation 17: qpos without x, qvel clipped to [-10, 10]. Action 6 in [-1, 1]."""

    default_camera_config: ClassVar = {
        "trackbodyid": 2,
        "distance": 4.0,
        "lookat": (0.0, 0.0, 1.15),
        "elevation": -20.0,
    }

    xml_file: str = "walker2d_v5.xml"
    frame_skip: int = 4
    forward_reward_weight: float = 1.0
    ctrl_cost_weight: float = 1e-3
    healthy_reward: float = 1.0
    terminate_when_unhealthy: bool = True
    healthy_z_range: tuple[float, float] = (0.8, 2.0)
    healthy_angle_range: tuple[float, float] = (-1.0, 1.0)
    reset_noise_scale: float = 5e-3
    exclude_current_positions_from_observation: bool = True

    def reset(self, m: Model, rng: Random) -> tuple[list[Scalar], list[Scalar]]:
        qpos = uniform_noise(m.qpos0, rng, self.reset_noise_scale)
        return qpos, uniform_noise((0.0,) * m.nv, rng, self.reset_noise_scale)

    def observe(self, m: Model, world: World) -> list[Scalar]:
        qvel = [clip(v, -10.0, 10.0) for v in world.qvel]
        return world.qpos[int(self.exclude_current_positions_from_observation) :] + qvel

    def healthy(self, world: World) -> Mask:
        return logical_and(
            within(world.qpos[1], self.healthy_z_range),
            within(world.qpos[2], self.healthy_angle_range),
        )

    def outcome(self, m: Model, before: World, action: list[Scalar], after: World) -> Outcome:
        healthy = self.healthy(after)
        x_velocity = (after.qpos[0] - before.qpos[0]) / self.dt(m)
        forward = self.forward_reward_weight * x_velocity
        survive = select(healthy, float(self.healthy_reward), 0.0)
        ctrl_cost = self.ctrl_cost_weight * squared(action)
        info = {
            "x_position": after.qpos[0],
            "z_distance_from_origin": after.qpos[1] - m.qpos0[1],
            "x_velocity": x_velocity,
            "reward_forward": forward,
            "reward_ctrl": -ctrl_cost,
            "reward_survive": survive,
        }
        terminated = logical_and(logical_not(healthy), self.terminate_when_unhealthy)
        return Outcome(forward + survive - ctrl_cost, terminated, info)

    def reset_info(self, m: Model, world: World) -> dict[str, Scalar | list[Scalar]]:
        return {
            "x_position": world.qpos[0],
            "z_distance_from_origin": world.qpos[1] - m.qpos0[1],
        }
