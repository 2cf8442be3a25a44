"""Humanoid and Humanoid CMU, after dm_control/suite/humanoid.py and humanoid_CMU.py."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from ..envs.tasks.base import Outcome, World
from ..physics.model.model import Model
from ..rewards import tolerance
from ..scalar import Random, Scalar
from ..vectors import norm, sub
from .base import DMControlTask, apart, mean, seen_from, small_control


@dataclass(frozen=True, kw_only=True)
class Humanoid(DMControlTask):
    """Walk at `speed` (m/s), or stand still where that is 0.

    Observation: joint_angles, head_height, extremities, torso_vertical, com_velocity, velocity; with `pure_state`,
    position and velocity.
    """

    torso: ClassVar[str] = "torso"
    # The entry of the torso's orientation that says how upright it is: the world z component of its own z axis.
    up: ClassVar[int] = 8
    limbs: ClassVar[tuple[str, ...]] = ("left_hand", "left_foot", "right_hand", "right_foot")

    xml_file: str = "humanoid.xml"
    frame_skip: int = 5
    speed: float = 1.0
    pure_state: bool = False

    def reset(self, m: Model, rng: Random, world: World) -> tuple[list[Scalar], list[Scalar]]:
        return apart(m, rng, world), [0.0] * m.nv

    def com_velocity(self, m: Model, world: World) -> list[Scalar]:
        """Return the velocity of the centre of mass (3)."""
        return world.data.sensordata[m.sensor(f"{self.torso}_subtreelinvel")]

    def observe(self, m: Model, world: World) -> dict[str, Any]:
        if self.pure_state:
            return super().observe(m, world)
        place, torso = world.data.xpos, m.body(self.torso)
        mat, limbs = world.data.xmat[torso], [place[m.body(name)] for name in self.limbs]
        return {
            "joint_angles": world.qpos[7:],
            "head_height": place[m.body("head")][2],
            "extremities": [x for limb in limbs for x in seen_from(mat, sub(limb, place[torso]))],
            "torso_vertical": mat[6:],
            "com_velocity": self.com_velocity(m, world),
            "velocity": world.qvel,
        }

    def outcome(self, m: Model, before: World, action: list[Scalar], after: World) -> Outcome:
        standing = tolerance(after.data.xpos[m.body("head")][2], (1.4, math.inf), 0.35)
        upright = tolerance(after.data.xmat[m.body(self.torso)][self.up], (0.9, math.inf), 1.9, "linear", 0.0)
        stand = (4.0 + small_control(action)) / 5.0 * standing * upright
        velocity = self.com_velocity(m, after)[:2]
        if self.speed == 0:
            return Outcome(stand * mean([tolerance(v, margin=2.0) for v in velocity]))
        move = tolerance(norm(velocity), (self.speed, math.inf), self.speed, "linear", 0.0)
        return Outcome(stand * (5.0 * move + 1.0) / 6.0)


@dataclass(frozen=True, kw_only=True)
class HumanoidCMU(Humanoid):
    """Walk at `speed` (m/s), or stand still where that is 0, with 56 joints. Observation: as of `Humanoid`."""

    torso: ClassVar[str] = "thorax"
    up: ClassVar[int] = 7  # that of its y axis
    limbs: ClassVar[tuple[str, ...]] = ("lhand", "lfoot", "rhand", "rfoot")

    xml_file: str = "humanoid_CMU.xml"
    frame_skip: int = 10
