"""A quadruped that follows velocity commands, set up as is usual for training legged robots.

Commands change within an episode and grow with success; observations are noisy; actions arrive late; every robot has
masses, a centre of mass, motors and feet of its own, and is pushed now and then.

    PYTHONPATH=examples torch_mjenvs train --env quadruped.task:TorchQuadruped-v0 --actor 128,128 --critic 128,128

Letters: v, w are the trunk's velocities in its own frame; "heading" is that frame turned upright.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any, ClassVar

import gymnasium

from torch_mjenvs import Control, Outcome, Task, World
from torch_mjenvs.scalar import (
    Mask,
    Random,
    Scalar,
    absolute,
    cos,
    exp,
    logical_and,
    logical_or,
    maximum,
    minimum,
    select,
    sin,
    sqrt,
)


@dataclass(frozen=True, kw_only=True)
class Quadruped(Task):
    """Follow a commanded velocity. Observation 48: linear and angular velocity of the trunk in its own frame, the
    direction of gravity there, the command (forward, left, turn), the joints, their speeds, and the last action. Action
    12: targets of the joints, in rad, relative to standing.
    """

    default_camera_config: ClassVar = {"distance": 2.0, "elevation": -15.0}
    max_episode_steps: ClassVar[int] = 1000  # 20 s

    xml_file: str = str(Path(__file__).with_name("quadruped.xml"))
    frame_skip: int = 4
    top_speed: float = 1.0  # m/s, each of forward and sideways
    top_turn: float = 1.0  # rad/s
    latency: float = 1.0  # the most, in steps; each episode has its own
    push: float = 150.0  # N, for one step, 5 s apart on average
    noise: float = 1.0  # 0: what is seen is exact
    spread: float = 1.0  # of the robots; 0: all are the model
    curriculum: bool = True

    # robots that differ

    def randomize(self, m: Any, rng: Random) -> dict[str, Any]:
        if self.spread == 0:
            return {}

        def by(low: float, high: float) -> Scalar:
            return 1.0 + self.spread * rng.uniform(low, high)

        grip = by(-0.4, 0.4)
        strength = [by(-0.15, 0.15) for _ in range(m.nu)]
        mass = [by(-0.15, 0.15) for _ in range(m.nbody)]
        trunk = [x + self.spread * rng.uniform(-0.03, 0.03) for x in m.body_ipos[1]]
        return {
            "geom_friction": [[grip * row[0], *row[1:]] for row in m.geom_friction],
            "body_mass": [x * scale for x, scale in zip(m.body_mass, mass, strict=True)],
            "body_inertia": [[x * scale for x in row] for row, scale in zip(m.body_inertia, mass, strict=True)],
            "body_ipos": [m.body_ipos[0], trunk, *m.body_ipos[2:]],
            "actuator_gainprm": _scaled(m.actuator_gainprm, strength),
            "actuator_biasprm": _scaled(m.actuator_biasprm, strength),
        }

    # what is remembered

    def memory(self, m: Any) -> dict[str, Any]:
        first = 0.3 if self.curriculum else 1.0
        return {
            "level": first,  # commands go up to this share of the top speeds
            "command": [0.0] * 3,
            "action": [0.0] * m.nu,  # the last one
            "latency": 0.0,
            "steps": 0.0,
            "followed": 0.0,  # how well the command was followed, summed over steps so far
        }

    def begin(self, m: Any, world: World) -> dict[str, Any]:
        last = world.memory
        well = logical_and(last["steps"] > 250.0, last["followed"] > 0.6 * last["steps"])
        level = minimum(select(well, last["level"] + 0.1, last["level"]), 1.0)
        latency = self.latency * world.rng.uniform()
        return {"level": level, "command": self.draw_command(world.rng, level), "latency": latency}

    def draw_command(self, rng: Random, level: Scalar) -> list[Scalar]:
        """Forward, left and turn; one in ten is to stand."""
        going = select(rng.uniform() < 0.9, level, 0.0)
        top = [self.top_speed, self.top_speed, self.top_turn]
        return [going * rng.uniform(-x, x) for x in top]

    def remember(self, m: Any, before: World, action: list, after: World) -> dict[str, Any]:
        old = before.memory
        new = self.draw_command(after.rng, old["level"])
        changes = after.rng.uniform() < 1 / 250
        return {
            "command": [select(changes, x, y) for x, y in zip(new, old["command"], strict=True)],
            "action": action,
            "steps": old["steps"] + 1.0,
            "followed": old["followed"] + exp(-_squared(self.missed(after, old["command"])[:2]) / 0.1),
        }

    # what acts

    def control(self, m: Any, world: World, action: list) -> Control:
        share = world.memory["latency"]  # the share of this step during which the last action still acts
        target = [x + share * (last - x) for x, last in zip(action, world.memory["action"], strict=True)]
        angle, pushed = world.rng.uniform(0.0, 6.2831853), world.rng.uniform() < 1 / 250
        force = select(pushed, self.push * world.rng.uniform(), 0.0)
        return Control(target, xfrc_applied={"trunk": [force * cos(angle), force * sin(angle), 0.0, 0.0, 0.0, 0.0]})

    # what is seen

    def reset(self, m: Any, rng: Random) -> tuple[list, list]:
        yaw = rng.uniform(-3.1415927, 3.1415927)
        root = [*m.qpos0[:3], cos(0.5 * yaw), 0.0, 0.0, sin(0.5 * yaw)]
        joints = [rng.uniform(-0.1, 0.1) for _ in range(m.nu)]
        return root + joints, [rng.uniform(-0.2, 0.2) for _ in range(m.nv)]

    def observe(self, m: Any, world: World) -> list:
        def noisy(values: list, size: float) -> list:
            return [x + self.noise * world.rng.uniform(-size, size) for x in values] if self.noise else values

        frame = _frame(world.qpos[3:7])
        return [
            *noisy(_seen(frame, world.qvel[:3]), 0.1),
            *noisy(world.qvel[3:6], 0.2),
            *noisy([-x for x in frame[2]], 0.05),
            *world.memory["command"],
            *noisy(world.qpos[7:], 0.02),
            *noisy([0.05 * x for x in world.qvel[6:]], 0.075),
            *world.memory["action"],
        ]

    # what it is worth

    def missed(self, world: World, command: list) -> list[Scalar]:
        """The command less the velocity: forward, left, turn."""
        frame = _frame(world.qpos[3:7])
        ahead = [frame[0][0], frame[1][0]]
        length = maximum(sqrt(_squared(ahead)), 1e-3)
        x, y = (a / length for a in ahead)
        vx, vy = world.qvel[:2]
        return [command[0] - (x * vx + y * vy), command[1] - (x * vy - y * vx), command[2] - world.qvel[5]]

    def fell(self, world: World) -> Mask:
        upright = _frame(world.qpos[3:7])[2][2]
        return logical_or(upright < 0.5, world.qpos[2] < 0.15)

    def outcome(self, m: Any, before: World, action: list, after: World) -> Outcome:
        wrong = self.missed(after, before.memory["command"])
        off = _squared(wrong[:2])
        frame = _frame(after.qpos[3:7])
        jerk = [x - y for x, y in zip(action, before.memory["action"], strict=True)]
        terms = {
            "follow": 1.0 * exp(-off / 0.1),
            "turn": 0.5 * exp(-wrong[2] * wrong[2] / 0.25),
            "bounce": -1.0 * after.qvel[2] * after.qvel[2],
            "wobble": -0.03 * _squared(after.qvel[3:5]),
            "tilt": -1.0 * _squared(frame[2][:2]),
            "jerk": -0.01 * _squared(jerk),
            "action": -0.01 * _squared(action),
            "torque": -2e-4 * _squared(after.data.qfrc_actuator[6:]),
        }
        errors = {"speed_error": sqrt(off), "turn_error": absolute(wrong[2])}
        return Outcome(
            terms, {"fell": self.fell(after)}, errors | {"level": before.memory["level"]}, scale=self.dt(m),
            clip=(0.0, inf), metrics=errors,
        )  # fmt: skip


def _frame(quat: list) -> list[list]:
    """The rotation matrix of a unit quaternion: rows are the world's axes in the body's frame."""
    w, x, y, z = quat
    return [
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
    ]


def _seen(frame: list[list], v: list) -> list:
    """A vector of the world in the body's frame."""
    return [frame[0][k] * v[0] + frame[1][k] * v[1] + frame[2][k] * v[2] for k in range(3)]


def _squared(x: list) -> Scalar:
    return sum((y * y for y in x), 0.0)


def _scaled(rows: Any, by: list) -> list[list]:
    return [[scale * x for x in row] for row, scale in zip(rows, by, strict=True)]


gymnasium.register(
    "TorchQuadruped-v0",
    entry_point="torch_mjenvs.envs.single_env:TorchEnv",
    vector_entry_point="torch_mjenvs.envs.vector_env:TorchVectorEnv",
    max_episode_steps=Quadruped.max_episode_steps,
    kwargs={"task": Quadruped},
)
