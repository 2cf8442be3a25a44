"""Playground's SpotFlatTerrainJoystick: Boston Dynamics' quadruped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from ..envs.tasks.base import World, squared
from ..physics.model.model import Model
from ..scalar import Mask, Random, Scalar, clip, exp
from ..vectors import norm, sub
from .joystick import Weights, as_number
from .quadruped import Quadruped

HISTORY = 3  # steps


@dataclass(frozen=True, kw_only=True)
class SpotJoystick(Quadruped):
    """Boston Dynamics' Spot follows a commanded velocity, which changes every 4 s."""

    robot: ClassVar[str] = "spot"
    scenes: ClassVar[dict[str, str]] = {"flat": "scene_mjx_feetonly_flat_terrain.xml"}
    trunk: ClassVar[str] = "body"
    feet: ClassVar[tuple[str, ...]] = ("FL", "FR", "HL", "HR")
    soles: ClassVar[tuple[str, ...]] = feet
    noise_widths: ClassVar[dict[str, Any]] = {
        "gyro": 0.1, "gravity": 0.03, "feet_pos": [[0.01, 0.005, 0.02]] * 4,
    }  # fmt: skip
    joint_noise: ClassVar[float] = 0.05

    Kp: float = 300.0
    Kd: float = 1.0
    action_scale: float = 0.3
    max_foot_height: float = 0.12
    rewards: Weights = field(hash=False, default_factory=lambda: {
        "tracking_lin_vel": 1.5, "tracking_ang_vel": 0.8, "lin_vel_z": -2.0, "ang_vel_xy": -0.05,
        "orientation": -5.0, "termination": -1.0, "posture": 1.0, "torques": -0.0002, "action_rate": -0.01,
        "energy": -0.001, "feet_slip": -0.1, "feet_clearance": -2.0, "feet_height": -0.1,
        "feet_air_time": 0.1,
    })  # fmt: skip

    def reset(self, m: Model, rng: Random) -> tuple[list[Scalar], list[Scalar]]:
        """Place the robot in its pose, at rest."""
        return list(m.key(self.pose).qpos), [0.0] * m.nv

    def command(self, m: Model, rng: Random, memory: dict[str, Any] | None) -> dict[str, Any]:
        """Return a command that changes every 4 s."""
        return self.command_for(200, rng, memory)

    def targets(self, m: Model, action: Sequence[Scalar]) -> list[Scalar]:
        """Return the targets of the joints' actuators for an action, within their limits (rad)."""
        ranges = zip(super().targets(m, action), m.actuator_ctrlrange, strict=True)
        return [clip(x, low, high) for x, (low, high) in ranges]

    def memory(self, m: Model) -> dict[str, Any]:
        """Declare the joints' angles as measured, and by how much they missed their targets, the last first (rad)."""
        return super().memory(m) | {"measured": [0.0] * m.nu, "missed": [0.0] * (HISTORY * m.nu)}

    def begin(self, m: Model, world: World) -> dict[str, Any]:
        """Measure the joints for the first time."""
        measured, earlier = self.measured(m, world), [0.0] * ((HISTORY - 1) * m.nu)
        return super().begin(m, world) | {"measured": measured, "missed": measured + earlier}

    def remember(self, m: Model, before: World, action: list[Scalar], after: World) -> dict[str, Any]:
        """Measure the joints."""
        measured, old = self.measured(m, after), before.memory["missed"]
        missed = sub(measured, self.targets(m, action)) + old[: -m.nu]
        return super().remember(m, before, action, after) | {"measured": measured, "missed": missed}

    def measured(self, m: Model, world: World) -> list[Scalar]:
        """Return the joints' angles with noise (rad)."""
        width = self.noise_level * self.joint_noise
        return [x + world.rng.uniform(-width, width) for x in world.qpos[7:]] if width else world.qpos[7:]

    def observe(self, m: Model, world: World) -> dict[str, Any]:
        """Return what the policy sees, and what a critic sees beside it."""
        memory, sensor = world.memory, lambda name: self.sensor(m, world, name)
        body = {"gyro": sensor("gyro"), "gravity": sensor("upvector")}
        feet = [sensor(f"{name}_pos") for name in self.feet]
        policy = body | {
            "joint_pos": sub(memory["measured"], self.angles(m)), "missed": memory["missed"], "feet_pos": feet,
            "last_action": memory["last_action"], "command": memory["seen_command"],
        }  # fmt: skip
        privileged = {
            "gyro": body["gyro"], "accelerometer": sensor("accelerometer"), "gravity": body["gravity"],
            "linvel": sensor("local_linvel"), "angvel": sensor("global_angvel"),
            "joint_pos": self.offsets(m, world), "feet_pos": feet, "joint_vel": list(world.qvel[6:]),
            "actuator_force": list(world.data.actuator_force), "contact": memory["last_contact"],
            "feet_vel": self.foot_velocities(m, world), "air_time": memory["air"], "push": self.pushes(world)["push"],
        }  # fmt: skip
        return {"policy": policy, "privileged": privileged}

    def ends(self, m: Model, after: World) -> dict[str, Mask]:
        """Return where the trunk leans too far."""
        return {"fell": self.sensor(m, after, "upvector")[2] < 0.85}

    def terms(self, m: Model, before: World, action: list[Scalar], after: World) -> dict[str, Scalar]:
        """Return the terms of the reward."""
        last, earlier, offsets = before.memory["action"], before.memory["last_action"], self.offsets(m, after)
        bends = [a - 2.0 * x + y for a, x, y in zip(action, last, earlier, strict=True)]
        stays = as_number(norm(before.memory["command"]) < 0.01)
        common = super().terms(m, before, action, after)
        del common["stand_still"]
        return common | {
            "posture": exp(-10.0 * stays * squared(offsets)),
            "action_rate": squared(sub(action, last)) + squared(bends),
            "feet_slip": self.slip(m, after),
        }
