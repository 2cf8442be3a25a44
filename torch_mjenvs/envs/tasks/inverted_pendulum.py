"""InvertedPendulum, after gymnasium/envs/mujoco/inverted_pendulum_v5.py."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...physics.model.model import Model
from ...scalar import Random, Scalar, absolute, select
from .base import Outcome, Task, World, uniform_noise

MAX_ANGLE = 0.2  # radians


@dataclass(frozen=True, kw_only=True)
class InvertedPendulum(Task):
    """Balance a pole on a cart. Observation 4: qpos, qvel. Action 1 in [-3, 3]. Ends beyond an angle of 0.2 rad."""

    default_camera_config: ClassVar = {"trackbodyid": 0, "distance": 2.04}
    reward_threshold: ClassVar = 950.0

    xml_file: str = "inverted_pendulum.xml"
    frame_skip: int = 2
    reset_noise_scale: float = 0.01

    def reset(self, m: Model, rng: Random) -> tuple[list[Scalar], list[Scalar]]:
        qpos = uniform_noise(m.qpos0, rng, self.reset_noise_scale)
        return qpos, uniform_noise((0.0,) * m.nv, rng, self.reset_noise_scale)

    def observe(self, m: Model, world: World) -> list[Scalar]:
        return world.qpos + world.qvel

    def outcome(self, m: Model, before: World, action: list[Scalar], after: World) -> Outcome:
        terminated = absolute(after.qpos[1]) > MAX_ANGLE
        reward = select(terminated, 0.0, 1.0)
        return Outcome(reward, terminated, {"reward_survive": reward})
