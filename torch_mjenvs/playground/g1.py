"""Playground's G1JoystickFlatTerrain and G1JoystickRoughTerrain: Unitree's humanoid."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar

from ..envs.tasks.base import World, squared
from ..physics.algebra.spatial import sum_of
from ..physics.model.model import Model
from ..scalar import Mask, Random, Scalar, absolute, maximum, select
from ..vectors import norm, sub
from .biped import Biped
from .joystick import Weights, absolute_sum, as_number
from .randomization import dynamics, pair_friction

SIDES = ("left", "right")


@dataclass(frozen=True, kw_only=True)
class G1Joystick(Biped):
    """Unitree's G1 follows a commanded velocity."""

    robot: ClassVar[str] = "g1"
    scenes: ClassVar[dict[str, str]] = {
        "flat": "scene_mjx_feetonly_flat_terrain.xml",
        "rough": "scene_mjx_feetonly_rough_terrain.xml",
    }
    pose: ClassVar[str] = "knees_bent"
    feet: ClassVar[tuple[str, ...]] = ("left_foot", "right_foot")
    soles: ClassVar[tuple[str, ...]] = feet
    pelvis: ClassVar[str] = "_pelvis"
    torso: ClassVar[str] = "_torso"
    imu: ClassVar[str] = "imu_in_pelvis"
    linvel: ClassVar[str] = "local_linvel_pelvis"
    gyro: ClassVar[str] = "gyro_pelvis"
    hips: ClassVar[tuple[str, ...]] = tuple(f"{side}_hip_{x}_joint" for side in SIDES for x in ("roll", "yaw"))
    knees: ClassVar[tuple[str, ...]] = tuple(f"{side}_knee_joint" for side in SIDES)
    noise_widths: ClassVar[dict[str, Any]] = {
        "linvel": 0.1, "gyro": 0.2, "gravity": 0.05, "joint_pos": 0.03, "joint_vel": 1.5,
    }  # fmt: skip

    max_foot_height: float = 0.15
    max_contact_force: float = 500.0
    fastest: tuple[float, float, float] = (1.0, 0.5, 1.0)
    reward_clip: tuple[float, float] = (-math.inf, math.inf)
    rewards: Weights = field(hash=False, default_factory=lambda: {
        "tracking_lin_vel": 1.0, "tracking_ang_vel": 0.75, "lin_vel_z": 0.0, "ang_vel_xy": -0.15,
        "orientation": -2.0, "base_height": 0.0, "torques": 0.0, "action_rate": 0.0, "energy": 0.0,
        "dof_acc": 0.0, "feet_clearance": 0.0, "feet_air_time": 2.0, "feet_slip": -0.25, "feet_height": 0.0,
        "feet_phase": 1.0, "alive": 0.0, "stand_still": -1.0, "termination": -100.0, "collision": -0.1,
        "contact_force": -0.01, "joint_deviation_knee": -0.1, "joint_deviation_hip": -0.25,
        "dof_pos_limits": -1.0, "pose": -0.1,
    })  # fmt: skip

    def randomize(self, m: Model, rng: Random) -> dict[str, Any]:
        """Draw the friction of the feet, and the parameters in which robots differ."""
        return pair_friction(m, rng, 2) | dynamics(m, rng, "torso_link", (0.5, 2.0)) if self.randomized else {}

    def ends(self, m: Model, after: World) -> dict[str, Mask]:
        """Return where the robot is upside down, or its legs cross."""
        crossed = [
            self.touch(m, after, f"{one}_found")
            for one in ("right_foot_left_foot", "left_foot_right_shin", "right_foot_left_shin")
        ]
        return super().ends(m, after) | {"legs_crossed": crossed[0] | crossed[1] | crossed[2]}

    def gait(self, m: Model, before: World, after: World) -> Scalar:
        """Return how well the feet keep to their heights in the gait, while the robot moves or is told to."""
        velocity, turning = (self.sensor(m, after, f"global_{x}_pelvis") for x in ("linvel", "angvel"))
        moves = (norm(velocity[:2]) > 0.1) | (absolute(turning[2]) > 0.1) | (norm(before.memory["command"]) > 0.01)
        return as_number(moves) * super().gait(m, before, after)

    def terms(self, m: Model, before: World, action: list[Scalar], after: World) -> dict[str, Scalar]:
        """Return the terms of the reward."""
        command, offsets = before.memory["command"], self.offsets(m, after)
        # Playground's arrays (4, 1) and (4,) broadcast to this, not to a weight each.
        hips = select(command[1] > 0.1, 2.0, 4.0)
        lifts = [self.sensor(m, after, f"global_linvel{part}")[2] for part in (self.pelvis, self.torso)]
        forces = [self.sensor(m, after, f"{foot}_force")[2] for foot in self.feet]
        hands = [self.touch(m, after, f"{side}_hand_{side}_thigh_found") for side in SIDES]
        return super().terms(m, before, action, after) | {
            "lin_vel_z": squared(lifts), "orientation": squared(sub(self.upright(m, after), (0.073, 0.0, 1.0))),
            "dof_acc": squared(after.data.qacc[6:]), "pose": squared(offsets),
            "stand_still": as_number(norm(command) < 0.01) * absolute_sum(offsets),
            "collision": as_number(hands[0] | hands[1]),
            "contact_force": sum_of([maximum(absolute(f) - self.max_contact_force, 0.0) for f in forces]),
            "joint_deviation_hip": hips * absolute_sum(self.of(m, offsets, self.hips)),
        }  # fmt: skip
