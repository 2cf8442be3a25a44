"""Playground's Go1JoystickFlatTerrain and Go1JoystickRoughTerrain: Unitree's quadruped."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from ..envs.tasks.base import World, squared
from ..physics.algebra.spatial import sum_of
from ..physics.model.model import Model
from ..scalar import Mask, Random, Scalar, exp, round, select
from ..vectors import norm, sub
from .joystick import Weights, as_number
from .quadruped import Quadruped
from .randomization import centre_of_mass, dynamics, floor_friction

KEPT = (0.9, 0.25, 0.5)  # how often each part of a new command is not 0


@dataclass(frozen=True, kw_only=True)
class Go1Joystick(Quadruped):
    """Unitree's Go1 follows a commanded velocity."""

    robot: ClassVar[str] = "go1"
    scenes: ClassVar[dict[str, str]] = {
        "flat": "scene_mjx_feetonly_flat_terrain.xml",
        "rough": "scene_mjx_feetonly_rough_terrain.xml",
    }
    trunk: ClassVar[str] = "trunk"
    feet: ClassVar[tuple[str, ...]] = ("FR", "FL", "RR", "RL")
    soles: ClassVar[tuple[str, ...]] = feet
    noise_widths: ClassVar[dict[str, Any]] = {
        "linvel": 0.1, "gyro": 0.2, "gravity": 0.05, "joint_pos": 0.03, "joint_vel": 1.5,
    }  # fmt: skip

    Kp: float = 35.0
    Kd: float = 0.5
    fastest: tuple[float, float, float] = (1.5, 0.8, 1.2)
    rewards: Weights = field(hash=False, default_factory=lambda: {
        "tracking_lin_vel": 1.0, "tracking_ang_vel": 0.5, "lin_vel_z": -0.5, "ang_vel_xy": -0.05,
        "orientation": -5.0, "dof_pos_limits": -1.0, "pose": 0.5, "termination": -1.0, "stand_still": -1.0,
        "torques": -0.0002, "action_rate": -0.01, "energy": -0.001, "feet_clearance": -2.0,
        "feet_height": -0.2, "feet_slip": -0.1, "feet_air_time": 0.1,
    })  # fmt: skip

    def randomize(self, m: Model, rng: Random) -> dict[str, Any]:
        """Draw the floor's friction, and the parameters in which robots differ."""
        if not self.randomized:
            return {}
        return floor_friction(m, rng) | dynamics(m, rng, self.trunk) | centre_of_mass(m, rng, self.trunk)

    def command(self, m: Model, rng: Random, memory: dict[str, Any] | None) -> dict[str, Any]:
        """Change the command after 5 s on average, each part half of the time. A part that changes is often 0."""
        steps, drawn = round(rng.exponential(5.0) / self.dt(m)), [rng.uniform(-x, x) for x in self.fastest]
        if memory is None:
            return {"command": drawn, "steps": steps}
        left = memory["steps"] - 1.0
        changed = [
            select((left <= 0.0) & (rng.uniform() < 0.5), new * as_number(rng.uniform() < kept), old)
            for new, kept, old in zip(drawn, KEPT, memory["command"], strict=True)
        ]
        return {"command": changed, "steps": select(left <= 0.0, steps, left)}

    def observe(self, m: Model, world: World) -> dict[str, Any]:
        """Return what the policy sees, and what a critic sees beside it."""
        memory, sensor = world.memory, lambda name: self.sensor(m, world, name)
        body = {"linvel": sensor("local_linvel"), "gyro": sensor("gyro"), "gravity": self.gravity(m, world)}
        joints = {"joint_pos": self.offsets(m, world), "joint_vel": list(world.qvel[6:])}
        privileged = {
            "gyro": body["gyro"], "accelerometer": sensor("accelerometer"), "gravity": body["gravity"],
            "linvel": body["linvel"], "angvel": sensor("global_angvel"), **joints,
            "actuator_force": list(world.data.actuator_force), "contact": memory["last_contact"],
            "feet_vel": self.foot_velocities(m, world), "air_time": memory["air"], **self.pushes(world),
        }  # fmt: skip
        policy = body | joints | {"last_action": memory["last_action"], "command": memory["seen_command"]}
        return {"policy": policy, "privileged": privileged}

    def ends(self, m: Model, after: World) -> dict[str, Mask]:
        """Return where the robot lies on its back."""
        return {"fell": self.sensor(m, after, "upvector")[2] < 0.0}

    def terms(self, m: Model, before: World, action: list[Scalar], after: World) -> dict[str, Scalar]:
        """Return the terms of the reward."""
        pose = [w * x * x for w, x in zip((1.0, 1.0, 0.1) * 4, self.offsets(m, after), strict=True)]
        return super().terms(m, before, action, after) | {
            "dof_pos_limits": self.beyond(m, after, [(0.95 * low, 0.95 * high) for low, high in m.jnt_range[1:]]),
            "pose": exp(-sum_of(pose)),
            "action_rate": squared(sub(action, before.memory["action"])),
            "feet_slip": as_number(norm(before.memory["command"]) > 0.01) * self.slip(m, after),
        }
