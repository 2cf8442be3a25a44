"""Playground's BerkeleyHumanoidJoystickFlatTerrain and ...RoughTerrain: Berkeley's humanoid, which has only legs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from ..envs.tasks.base import World, squared
from ..physics.algebra.spatial import sum_of
from ..physics.model.model import Model
from ..scalar import Random, Scalar, absolute
from ..vectors import norm
from .biped import Biped
from .joystick import Weights, absolute_sum, as_number
from .randomization import dynamics, floor_friction

LEG = (0.03, 0.03, 0.03, 0.05, 0.08, 0.03)  # noise of a leg's angles (rad)
WEIGHTS = (1.0, 1.0, 0.01, 0.01, 1.0, 1.0) * 2  # of the joints' deviations from the pose


@dataclass(frozen=True, kw_only=True)
class BerkeleyHumanoidJoystick(Biped):
    """The Berkeley Humanoid follows a commanded velocity."""

    robot: ClassVar[str] = "berkeley_humanoid"
    scenes: ClassVar[dict[str, str]] = {
        "flat": "scene_mjx_feetonly_flat_terrain.xml",
        "rough": "scene_mjx_feetonly_rough_terrain.xml",
    }
    feet: ClassVar[tuple[str, ...]] = ("l_foot", "r_foot")
    soles: ClassVar[tuple[str, ...]] = ("l_foot1", "r_foot1")
    hips: ClassVar[tuple[str, ...]] = tuple(f"{side}_{x}" for side in ("LL", "LR") for x in ("HR", "HAA"))
    knees: ClassVar[tuple[str, ...]] = tuple(f"{side}_KFE" for side in ("LL", "LR"))
    noise_widths: ClassVar[dict[str, Any]] = {
        "linvel": 0.1, "gyro": 0.2, "gravity": 0.05, "joint_pos": [*LEG, *LEG], "joint_vel": 1.5,
    }  # fmt: skip

    tracking_sigma: float = 0.5
    fastest: tuple[float, float, float] = (1.0, 1.0, 1.0)
    rewards: Weights = field(hash=False, default_factory=lambda: {
        "tracking_lin_vel": 1.0, "tracking_ang_vel": 0.5, "lin_vel_z": 0.0, "ang_vel_xy": -0.15,
        "orientation": -1.0, "base_height": 0.0, "torques": -2.5e-5, "action_rate": -0.01, "energy": 0.0,
        "feet_clearance": 0.0, "feet_air_time": 2.0, "feet_slip": -0.25, "feet_height": 0.0,
        "feet_phase": 1.0, "stand_still": 0.0, "alive": 0.0, "termination": -1.0,
        "joint_deviation_knee": -0.1, "joint_deviation_hip": -0.25, "dof_pos_limits": -1.0, "pose": -1.0,
    })  # fmt: skip

    def randomize(self, m: Model, rng: Random) -> dict[str, Any]:
        """Draw the floor's friction, and the parameters in which robots differ."""
        return floor_friction(m, rng) | dynamics(m, rng, "torso") if self.randomized else {}

    def terms(self, m: Model, before: World, action: list[Scalar], after: World) -> dict[str, Scalar]:
        """Return the terms of the reward."""
        command, offsets = before.memory["command"], self.offsets(m, after)
        told, common = as_number(norm(command) > 0.1), super().terms(m, before, action, after)
        return common | {
            "orientation": squared(self.upright(m, after)[:2]),
            "feet_air_time": told * common["feet_air_time"],
            "stand_still": as_number(norm(command) < 0.1) * absolute_sum(offsets),
            "joint_deviation_hip": as_number(absolute(command[1]) > 0.1) * absolute_sum(self.of(m, offsets, self.hips)),
            "pose": sum_of([w * x * x for w, x in zip(WEIGHTS, offsets, strict=True)]),
        }
