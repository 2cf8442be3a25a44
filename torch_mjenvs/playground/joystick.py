"""Legged robots that follow a commanded velocity: what MuJoCo Playground's joystick tasks have in common.

The rules are Playground's: commands, noise, rewards, randomisation, pushes and terminations. The terms of the reward
have Playground's names. docs/playground.md says what differs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import mujoco

from ..envs.tasks.base import Outcome, Task, World, squared
from ..feet import contacts, touchdown
from ..physics.algebra.spatial import sum_of
from ..physics.model.model import Model
from ..scalar import Mask, Random, Scalar, absolute, exp, maximum, select, sqrt
from ..vectors import dot, from_axis_angle, multiply, norm, sub
from .scenes import scene

Weights = dict[str, float]
Vector = Sequence[Scalar]


@dataclass(frozen=True, kw_only=True)
class Joystick(Task):
    """Follow a command: forward and sideways velocity (m/s) and turning rate (rad/s), which changes now and then.

    An action moves the targets of the joints' position actuators by `action_scale` radians from the robot's pose. The
    group `policy` of the observation has noise; `privileged` has what only a critic sees.

    terrain: "flat", or "rough" where the robot has such a scene. fastest: the bounds of commands (m/s, m/s, rad/s).
    rewards: the weight of each term. randomized: whether friction, masses and joints differ from episode to episode, as
    in Playground's training. pushed: whether the robot is pushed. menagerie: a checkout of MuJoCo Menagerie, for
    pictures alone.
    """

    robot: ClassVar[str]
    scenes: ClassVar[dict[str, str]]
    pose: ClassVar[str] = "home"  # the keyframe
    feet: ClassVar[tuple[str, ...]]  # sites, and sensors are named after them
    soles: ClassVar[tuple[str, ...]]  # geoms, and sensors of their contacts with the floor are named after them
    noise_widths: ClassVar[dict[str, Any]]  # of what the policy sees
    max_episode_steps: ClassVar[int] = 1000
    default_camera_config: ClassVar[dict[str, Any]] = {"distance": 2.5, "elevation": -15.0}

    xml_file: str = ""  # `terrain` chooses the file
    frame_skip: int = 5
    terrain: str = "flat"
    timestep: float = 0.004
    rewards: Weights = field(hash=False, default_factory=dict)
    reward_clip: tuple[float, float] = (0.0, 10000.0)
    fastest: tuple[float, float, float] = (1.0, 0.8, 1.0)
    tracking_sigma: float = 0.25
    max_foot_height: float = 0.1
    action_scale: float = 0.5
    noise_level: float = 1.0
    randomized: bool = True
    pushed: bool = False
    menagerie: str = ""

    @property
    def noise(self) -> dict[str, Any]:
        """The half-widths of the noise on what the policy sees."""
        found: dict[str, Any] = scaled(self.noise_widths, self.noise_level)
        return found

    # what a robot's class defines

    def command(self, m: Model, rng: Random, memory: dict[str, Any] | None) -> dict[str, Any]:
        """Return the `command` and the `steps` that time it: of a new episode (memory None), or after a step."""
        raise NotImplementedError

    def terms(self, m: Model, before: World, action: list[Scalar], after: World) -> dict[str, Scalar]:
        """Return the terms of the reward, except for `termination`."""
        raise NotImplementedError

    def ends(self, m: Model, after: World) -> dict[str, Mask]:
        """Return what ends the episode, by name."""
        raise NotImplementedError

    # an episode

    def load(self) -> mujoco.MjModel:
        """Load Playground's scene. Raises MissingExtra if Playground is not installed."""
        if self.terrain not in self.scenes:
            raise ValueError(f"terrain must be one of {sorted(self.scenes)}, not {self.terrain!r}")
        model = scene(self.robot, self.scenes[self.terrain], self.menagerie).compile()
        model.opt.timestep = self.timestep
        return model

    def reset(self, m: Model, rng: Random) -> tuple[list[Scalar], list[Scalar]]:
        """Place the robot in its pose, up to half a metre from the middle, turned and moving at random."""
        qpos: list[Scalar] = list(m.key(self.pose).qpos)
        qpos[:2] = [x + rng.uniform(-0.5, 0.5) for x in qpos[:2]]
        qpos[3:7] = multiply(qpos[3:7], from_axis_angle([0.0, 0.0, 1.0], rng.uniform(-3.14, 3.14)))
        return qpos, [rng.uniform(-0.5, 0.5) for _ in range(6)] + [0.0] * (m.nv - 6)

    def memory(self, m: Model) -> dict[str, Any]:
        """Declare the command, the last actions, and what the feet did.

        `command` is in force in the next step, `seen_command` was in the last. `air` says how long each foot was off
        the ground (s) and `peak` how high (m), the last step included; for a foot in `contact` both then begin anew.
        """
        each = [0.0] * len(self.feet)
        return {
            "command": [0.0] * 3, "seen_command": [0.0] * 3, "steps": 0.0,
            "action": [0.0] * m.nu, "last_action": [0.0] * m.nu,
            "air": each, "peak": each, "contact": each, "last_contact": each,
        }  # fmt: skip

    def command_for(self, steps: int, rng: Random, memory: dict[str, Any] | None) -> dict[str, Any]:
        """Return a command that changes after this number of steps."""
        drawn = draw_or_stop(rng, self.fastest)
        if memory is None:
            return {"command": drawn, "steps": 0.0}
        over = memory["steps"] + 1.0 > float(steps)
        kept = [select(over, new, old) for new, old in zip(drawn, memory["command"], strict=True)]
        return {"command": kept, "steps": select(over, 0.0, memory["steps"] + 1.0)}

    def begin(self, m: Model, world: World) -> dict[str, Any]:
        """Draw the first command."""
        new = self.command(m, world.rng, None)
        return new | {"seen_command": new["command"]}

    def action_space(self, m: Model) -> tuple[list[float], list[float]]:
        """Return -1 and 1 for each joint."""
        return [-1.0] * m.nu, [1.0] * m.nu

    def control(self, m: Model, world: World, action: list[Scalar]) -> Any:
        """Return the targets of the joints' actuators (rad)."""
        return self.targets(m, action)

    def targets(self, m: Model, action: Vector) -> list[Scalar]:
        """Return the targets of the joints' actuators for an action (rad)."""
        return [angle + self.action_scale * x for angle, x in zip(self.angles(m), action, strict=True)]

    def remember(self, m: Model, before: World, action: list[Scalar], after: World) -> dict[str, Any]:
        """Remember the action and what the feet did, and change the command when it is due."""
        old, heights = before.memory, [self.foot(m, after, name)[2] for name in self.feet]
        up = [1.0 - x for x in old["contact"]]
        return self.command(m, after.rng, old) | {
            "seen_command": old["command"],
            "action": action, "last_action": old["action"],
            "air": [t * x + self.dt(m) for t, x in zip(old["air"], up, strict=True)],
            "peak": [maximum(h * x, z) for h, x, z in zip(old["peak"], up, heights, strict=True)],
            "contact": self.contact(m, after),
            "last_contact": old["contact"],
        }  # fmt: skip

    def outcome(self, m: Model, before: World, action: list[Scalar], after: World) -> Outcome:
        """Return the reward's terms, what ended the episode, and by how much the robot misses its command."""
        ends = self.ends(m, after)
        ended: Mask = False
        for end in ends.values():
            ended = end | ended
        terms = self.terms(m, before, action, after) | {"termination": as_number(ended)}
        velocity, command = self.sensor(m, after, self.linvel), before.memory["command"]
        errors = {
            "linear_error": norm(sub(command[:2], velocity[:2])),
            "angular_error": absolute(command[2] - self.sensor(m, after, self.gyro)[2]),
        }
        return Outcome(terms, ends, weights=self.rewards, scale=self.dt(m), clip=self.reward_clip, metrics=errors)

    # what is read off a world

    linvel: ClassVar[str] = "local_linvel"  # names of sensors
    gyro: ClassVar[str] = "gyro"

    def angles(self, m: Model) -> list[Scalar]:
        """Return the joints' angles in the robot's pose (rad)."""
        return m.key(self.pose).qpos[7:]

    def offsets(self, m: Model, world: World) -> list[Scalar]:
        """Return by how much the joints are off the robot's pose (rad)."""
        return sub(world.qpos[7:], self.angles(m))

    def sensor(self, m: Model, world: World, name: str) -> list[Scalar]:
        """Return what a sensor gives."""
        return list(world.data.sensordata[m.sensor(name)])

    def touch(self, m: Model, world: World, name: str) -> Mask:
        """Return whether a contact sensor has found something."""
        return self.sensor(m, world, name)[0] > 0.0

    def contact(self, m: Model, world: World) -> list[Scalar]:
        """Return 1 for each foot that touches the floor, else 0."""
        return [as_number(self.touch(m, world, f"{sole}_floor_found")) for sole in self.soles]

    def foot(self, m: Model, world: World, name: str) -> list[Scalar]:
        """Return where a foot is in the world (m)."""
        return list(world.data.site_xpos[m.site(name)])

    def gravity(self, m: Model, world: World, site: str = "imu") -> list[Scalar]:
        """Return the direction of gravity in the axes of a site of the robot."""
        return [-x for x in world.data.site_xmat[m.site(site)][6:9]]

    def foot_velocities(self, m: Model, world: World) -> list[list[Scalar]]:
        """Return the velocities of the feet in the world (m/s)."""
        return [self.sensor(m, world, f"{name}_global_linvel") for name in self.feet]

    def landings(self, before: World, after: World) -> list[Scalar]:
        """Return 1 for each foot that lands in this step, else 0."""
        old = before.memory
        up = [t * (1.0 - x) for t, x in zip(old["air"], old["contact"], strict=True)]
        return [as_number(x) for x in touchdown(up, contacts(after.memory["contact"]))]

    # terms that all robots have

    def tracking(self, command: Vector, linvel: Vector, gyro: Vector) -> dict[str, Scalar]:
        """Return how well the robot follows its command: 1 at best."""
        turn = command[2] - gyro[2]
        return {
            "tracking_lin_vel": exp(-squared(sub(command[:2], linvel[:2])) / self.tracking_sigma),
            "tracking_ang_vel": exp(-turn * turn / self.tracking_sigma),
        }

    def swing(self, m: Model, before: World, after: World) -> dict[str, Scalar]:
        """Return how far feet are off their height while they move, and where they were highest when they land."""
        heights = [absolute(self.foot(m, after, name)[2] - self.max_foot_height) for name in self.feet]
        speeds = [norm(v[:2]) for v in self.foot_velocities(m, after)]
        over = [x / self.max_foot_height - 1.0 for x in after.memory["peak"]]
        return {
            "feet_clearance": dot(heights, [sqrt(x) for x in speeds]),
            "feet_height": dot([x * x for x in over], self.landings(before, after)),
        }

    def beyond(self, m: Model, world: World, bounds: Sequence[Sequence[Scalar]]) -> Scalar:
        """Return by how much joints are beyond these bounds, in all (rad)."""
        outside = [
            maximum(low - x, 0.0) + maximum(x - high, 0.0)
            for x, (low, high) in zip(world.qpos[7:], bounds, strict=True)
        ]
        return sum_of(outside)


def as_number(mask: Mask) -> Scalar:
    """Return 1 where the mask is true, else 0."""
    return select(mask, 1.0, 0.0)


def absolute_sum(x: Vector) -> Scalar:
    """Return the sum of absolute values."""
    return sum_of([absolute(y) for y in x])


def draw_or_stop(rng: Random, fastest: Sequence[float]) -> list[Scalar]:
    """Draw a command; one in ten is to stand still."""
    drawn, moves = [rng.uniform(-x, x) for x in fastest], as_number(rng.uniform() >= 0.1)
    return [moves * x for x in drawn]


def scaled(widths: Any, level: float) -> Any:
    """Return the half-widths of noise, a number, lists or a dict of them, times a level."""
    if isinstance(widths, dict):
        return {name: scaled(x, level) for name, x in widths.items()}
    return [scaled(x, level) for x in widths] if isinstance(widths, list) else level * widths
