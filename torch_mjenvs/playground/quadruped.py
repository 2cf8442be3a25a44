"""The base of Playground's quadrupeds: gains, pushes of the trunk, and most terms of the reward."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import mujoco

from ..envs.tasks.base import Control, World, squared
from ..feet import contacts, slip
from ..physics.algebra.spatial import sum_of
from ..physics.model.model import Model
from ..scalar import Scalar, absolute, cos, logical_and, logical_not, round, select, sin, sqrt
from ..vectors import norm
from .joystick import Joystick, absolute_sum, as_number

# Of pushes: seconds until one, seconds that it lasts, and its strength in m/s.
WAIT, SECONDS, KICK = (1.0, 3.0), (0.05, 0.2), (0.0, 3.0)


@dataclass(frozen=True, kw_only=True)
class Quadruped(Joystick):
    """A quadruped follows a commanded velocity. Kp, Kd: gains of its joints (N m/rad, N m s/rad)."""

    trunk: ClassVar[str]
    soles: ClassVar[tuple[str, ...]]

    Kp: float
    Kd: float

    def load(self) -> mujoco.MjModel:
        """Load the scene, and set the joints' gains."""
        m = super().load()
        m.dof_damping[6:], m.actuator_gainprm[:, 0], m.actuator_biasprm[:, 1] = self.Kd, self.Kp, -self.Kp
        return m

    def memory(self, m: Model) -> dict[str, Any]:
        """Declare when pushes come, how long they last, how strong they are, and the counters of steps until and in
        them.
        """
        if not self.pushed:
            return super().memory(m)
        names = "push_wait", "push_seconds", "push_kick", "push_steps", "since_push"
        return super().memory(m) | dict.fromkeys(names, 0.0) | {"push_direction": [0.0] * 2, "push": [0.0] * 3}

    def begin(self, m: Model, world: World) -> dict[str, Any]:
        """Draw the first command, and the pushes of the episode."""
        first = super().begin(m, world)
        if not self.pushed:
            return first
        wait, seconds, kick = (world.rng.uniform(*bounds) for bounds in (WAIT, SECONDS, KICK))
        return first | {"push_wait": round(wait / self.dt(m)), "push_seconds": seconds, "push_kick": kick}

    def push(self, m: Model, world: World) -> list[Scalar]:
        """Return the force on the trunk in the step that begins (N)."""
        memory, mass = world.memory, m.body_subtreemass[m.body(self.trunk)]
        phase = math.pi * (memory["push_steps"] * self.dt(m) / memory["push_seconds"])
        force = 0.5 * sin(phase) * mass * memory["push_kick"] / memory["push_seconds"]
        under_way = memory["since_push"] >= memory["push_wait"]
        return [select(under_way, force * x, 0.0) for x in memory["push_direction"]] + [0.0]

    def control(self, m: Model, world: World, action: list[Scalar]) -> list[Scalar] | Control:
        """Return the targets of the joints' actuators (rad), and a push."""
        targets = self.targets(m, action)
        if not self.pushed:
            return targets
        return Control(targets, xfrc_applied={self.trunk: [*self.push(m, world), 0.0, 0.0, 0.0]})

    def remember(self, m: Model, before: World, action: list[Scalar], after: World) -> dict[str, Any]:
        """Remember what all robots remember, and count the steps of a push or until it; its side is drawn when it
        begins.
        """
        new = super().remember(m, before, action, after)
        if not self.pushed:
            return new
        old, steps, since = before.memory, before.memory["push_steps"], before.memory["since_push"]
        under_way, over = since >= old["push_wait"], steps >= round(old["push_seconds"] / self.dt(m))
        begins = logical_and(logical_not(under_way), since + 1.0 >= old["push_wait"])
        angle = after.rng.uniform(0.0, 2.0 * math.pi)
        sides = zip([cos(angle), sin(angle)], old["push_direction"], strict=True)
        return new | {
            "push": self.push(m, before),
            "since_push": select(under_way, select(over, 0.0, since), since + 1.0),
            "push_steps": select(under_way, steps + 1.0, select(begins, 0.0, steps)),
            "push_direction": [select(begins, x, y) for x, y in sides],
        }

    def pushes(self, world: World) -> dict[str, Any]:
        """Return what a critic sees of pushes."""
        if not self.pushed:
            return {"push": [0.0] * 3, "pushed": 0.0}
        memory = world.memory
        return {"push": memory["push"], "pushed": as_number(memory["since_push"] >= memory["push_wait"])}

    def terms(self, m: Model, before: World, action: list[Scalar], after: World) -> dict[str, Scalar]:
        """Return the terms that quadrupeds have in common."""
        command, offsets, forces = before.memory["command"], self.offsets(m, after), after.data.actuator_force
        told, swing = as_number(norm(command) > 0.01), self.swing(m, before, after)
        lift, turn = self.sensor(m, after, "global_linvel")[2], self.sensor(m, after, "global_angvel")
        lands = zip(after.memory["air"], self.landings(before, after), strict=True)
        return self.tracking(command, self.sensor(m, after, self.linvel), self.sensor(m, after, self.gyro)) | {
            "lin_vel_z": lift * lift, "ang_vel_xy": squared(turn[:2]),
            "orientation": squared(self.sensor(m, after, "upvector")[:2]),
            "stand_still": (1.0 - told) * absolute_sum(offsets),
            "torques": sqrt(squared(forces)) + absolute_sum(forces),
            "energy": sum_of([absolute(v * f) for v, f in zip(after.qvel[6:], forces, strict=True)]),
            "feet_clearance": swing["feet_clearance"], "feet_height": told * swing["feet_height"],
            "feet_air_time": told * sum_of([(t - 0.1) * x for t, x in lands]),
        }  # fmt: skip

    def slip(self, m: Model, after: World) -> Scalar:
        """Return the squared horizontal speeds of the feet that touch the ground, summed (m2/s2)."""
        return squared(slip(self.foot_velocities(m, after), contacts(after.memory["contact"])))
