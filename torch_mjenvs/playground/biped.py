"""The base of Playground's humanoids: a gait to keep, kicks of the trunk, and most terms of the reward."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from ..envs.tasks.base import Control, World, squared
from ..physics.algebra.spatial import sum_of
from ..physics.model.model import Model
from ..scalar import Mask, Random, Scalar, absolute, cos, exp, fmod, minimum, round, select, sin
from ..vectors import norm, sub
from .joystick import Joystick, absolute_sum

WAIT, KICK = (5.0, 10.0), (0.1, 2.0)  # of kicks: seconds between them, and their speed in m/s
GAIT = (1.25, 1.5)  # steps of each foot a second


@dataclass(frozen=True, kw_only=True)
class Biped(Joystick):
    """A humanoid follows a commanded velocity, which changes every 10 s, in a gait of its own frequency."""

    pelvis: ClassVar[str] = ""  # the endings of the names of the pelvis's and the torso's sensors
    torso: ClassVar[str] = ""
    imu: ClassVar[str] = "imu"  # the site
    hips: ClassVar[tuple[str, ...]]  # joints
    knees: ClassVar[tuple[str, ...]]

    frame_skip: int = 10
    timestep: float = 0.002
    pushed: bool = True
    target_height: float = 0.5

    def reset(self, m: Model, rng: Random) -> tuple[list[Scalar], list[Scalar]]:
        """Place the robot as `Joystick` does, with each joint's angle scaled by a factor from 0.5 to 1.5."""
        qpos, qvel = super().reset(m, rng)
        return qpos[:7] + [x * rng.uniform(0.5, 1.5) for x in qpos[7:]], qvel

    def command(self, m: Model, rng: Random, memory: dict[str, Any] | None) -> dict[str, Any]:
        """Return a command that changes every 10 s."""
        return self.command_for(500, rng, memory)

    def memory(self, m: Model) -> dict[str, Any]:
        """Declare the phases of the feet in the gait, in the next step and as seen in the last, and the next kick."""
        phase = {"phase": [0.0, math.pi], "seen_phase": [0.0, math.pi], "phase_step": 0.0}
        return super().memory(m) | phase | {"kick_every": 0.0, "kick_in": 0.0}

    def begin(self, m: Model, world: World) -> dict[str, Any]:
        """Draw the first command, the gait's frequency, and how often the trunk is kicked."""
        first = super().begin(m, world)
        every = round(world.rng.uniform(*WAIT) / self.dt(m))
        step = 2.0 * math.pi * self.dt(m) * world.rng.uniform(*GAIT)
        return first | {"phase_step": step, "kick_every": every, "kick_in": every}

    def control(self, m: Model, world: World, action: list[Scalar]) -> list[Scalar] | Control:
        """Return the targets of the joints' actuators (rad), and a kick from any side (m/s)."""
        if not self.pushed:
            return self.targets(m, action)
        angle, speed = world.rng.uniform(0.0, 2.0 * math.pi), world.rng.uniform(*KICK)
        kick = select(world.memory["kick_in"] <= 1.0, speed, 0.0)
        return Control(self.targets(m, action), qvel=[kick * cos(angle), kick * sin(angle)] + [0.0] * (m.nv - 2))

    def remember(self, m: Model, before: World, action: list[Scalar], after: World) -> dict[str, Any]:
        """Remember what all robots remember, and advance the gait."""
        old = before.memory
        later = [fmod(x + old["phase_step"] + math.pi, 2.0 * math.pi) - math.pi for x in old["phase"]]
        kick_in = select(old["kick_in"] <= 1.0, old["kick_every"], old["kick_in"] - 1.0)
        counted = {"phase": later, "seen_phase": old["phase"], "kick_in": kick_in}
        return super().remember(m, before, action, after) | counted

    def observe(self, m: Model, world: World) -> dict[str, Any]:
        """Return what the policy sees, and what a critic sees beside it."""
        memory, sensor = world.memory, lambda name: self.sensor(m, world, name + self.pelvis)
        body = {"linvel": sensor("local_linvel"), "gyro": sensor("gyro"), "gravity": self.gravity(m, world, self.imu)}
        joints = {"joint_pos": self.offsets(m, world), "joint_vel": list(world.qvel[6:])}
        phase = [cos(x) for x in memory["seen_phase"]] + [sin(x) for x in memory["seen_phase"]]
        policy = body | {"command": memory["seen_command"]} | joints
        privileged = {
            "gyro": body["gyro"], "accelerometer": sensor("accelerometer"), "gravity": body["gravity"],
            "linvel": body["linvel"], "angvel": sensor("global_angvel"), **joints, "height": world.qpos[2],
            "actuator_force": list(world.data.actuator_force), "contact": self.contact(m, world),
            "feet_vel": self.foot_velocities(m, world), "air_time": memory["air"],
        }  # fmt: skip
        return {"policy": policy | {"last_action": memory["last_action"], "phase": phase}, "privileged": privileged}

    def upright(self, m: Model, world: World) -> list[Scalar]:
        """Return the torso's upward axis in the world."""
        return self.sensor(m, world, f"upvector{self.torso}")

    def ends(self, m: Model, after: World) -> dict[str, Mask]:
        """Return where the robot is upside down."""
        return {"fell": self.upright(m, after)[2] < 0.0}

    def terms(self, m: Model, before: World, action: list[Scalar], after: World) -> dict[str, Scalar]:
        """Return the terms that humanoids have in common."""
        command, offsets, forces = before.memory["command"], self.offsets(m, after), after.data.actuator_force
        sensor, new = lambda name: self.sensor(m, after, name), after.memory
        velocity, turning = sensor(f"global_linvel{self.pelvis}"), sensor(f"global_angvel{self.torso}")
        lands = zip(new["air"], self.landings(before, after), strict=True)
        height = after.qpos[2] - self.target_height
        tracking = self.tracking(command, sensor(self.linvel), sensor(self.gyro))
        return tracking | self.swing(m, before, after) | {
            "lin_vel_z": velocity[2] * velocity[2], "ang_vel_xy": squared(turning[:2]),
            "base_height": height * height, "torques": absolute_sum(forces),
            "action_rate": squared(sub(action, before.memory["action"])),
            "energy": sum_of([absolute(v * f) for v, f in zip(after.qvel[6:], forces, strict=True)]),
            "feet_slip": norm(velocity[:2]) * sum_of(new["contact"]),
            "feet_air_time": sum_of([minimum((t - 0.2) * x, 0.3) for t, x in lands]),
            "feet_phase": self.gait(m, before, after), "alive": 1.0,
            "joint_deviation_knee": absolute_sum(self.of(m, offsets, self.knees)),
            "dof_pos_limits": self.beyond(m, after, [soft(*bounds) for bounds in m.jnt_range[1:]]),
        }  # fmt: skip

    def gait(self, m: Model, before: World, after: World) -> Scalar:
        """Return how well the feet keep to their heights in the gait: 1 at best."""
        heights = [self.foot(m, after, name)[2] for name in self.feet]
        wanted = [swing_height(x, self.max_foot_height) for x in before.memory["phase"]]
        return exp(-squared(sub(heights, wanted)) / 0.01)

    def of(self, m: Model, values: Sequence[Scalar], joints: Sequence[str]) -> list[Scalar]:
        """Return the values of these joints, from those of all joints but the free one."""
        return [values[m.joint(name).qposadr[0] - 7] for name in joints]


def soft(low: Scalar, high: Scalar) -> tuple[Scalar, Scalar]:
    """Return the middle 95 % of a range."""
    middle, half = 0.5 * (low + high), 0.475 * (high - low)
    return middle - half, middle + half


def swing_height(phase: Scalar, height: float) -> Scalar:
    """Return how high a foot is at a phase of the gait (rad, from -pi): up to `height` at 0, and down, smoothly."""
    x = (phase + math.pi) / math.pi
    up, down = (y * y * (3.0 - 2.0 * y) for y in (x, x - 1.0))
    return height * select(x <= 1.0, up, 1.0 - down)
