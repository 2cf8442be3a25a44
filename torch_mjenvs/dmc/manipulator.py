"""Manipulator, after dm_control/suite/manipulator.py."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import mujoco

from ..envs.tasks.base import Outcome, Shown, Start, World
from ..physics.model.model import Model
from ..rewards import tolerance
from ..scalar import Random, Scalar, atan2, cos, log1p, maximum, select, sin, while_any
from ..vectors import add, rotate
from .base import DMControlTask, distance
from .models import compiled, parse, remove

ARM = ("arm_root", "arm_shoulder", "arm_elbow", "arm_wrist", "finger", "fingertip", "thumb", "thumbtip")
PROPS = ("ball", "target_ball", "cup", "peg", "target_peg", "slot")
TOUCH = ("palm_touch", "finger_touch", "thumb_touch", "fingertip_touch", "thumbtip_touch")
IN_HAND, IN_TARGET = 0.1, 0.1  # how probable it is that an episode begins with the object there
CLOSE = 0.01  # m


@dataclass(frozen=True, kw_only=True)
class Arm(DMControlTask):
    """A planar arm with a hand, which `Manipulator` and `Stacker` share."""

    def draw_arm(self, m: Model, rng: Random, qpos: list[Scalar]) -> None:
        """Put the joints of the arm at random, with finger and thumb alike."""
        for name in ARM:
            limits = m.joint(name).range if m.joint(name).limited[0] else (-math.pi, math.pi)
            qpos[m.joint(name).qpos] = [rng.uniform(*limits)]
        qpos[m.joint("finger").qpos] = qpos[m.joint("thumb").qpos]

    def arm(self, m: Model, world: World, touch: Sequence[str]) -> dict[str, Any]:
        """Return what is observed of the arm itself."""
        angles = [world.qpos[m.joint(name).qpos][0] for name in ARM]
        return {
            "arm_pos": [[sin(x), cos(x)] for x in angles],
            "arm_vel": [world.qvel[m.joint(name).qvel][0] for name in ARM],
            "touch": [log1p(world.data.sensordata[m.sensor(name)][0]) for name in touch],
        }


def pose(m: Model, world: World, name: str) -> list[Scalar]:
    """Return place and orientation of a body in the plane: x, z, qw, qy."""
    place, quat = world.data.xpos[m.body(name)], world.data.xquat[m.body(name)]
    return [place[0], place[2], quat[0], quat[2]]


def close(away: Scalar) -> Scalar:
    """Return 1 for distances up to CLOSE, and less beyond."""
    return tolerance(away, (0.0, CLOSE), CLOSE * 2)


@dataclass(frozen=True, kw_only=True)
class Manipulator(Arm):
    """Bring a ball, or with `use_peg` a peg, to a target.

    Observation: arm_pos (8, 2), arm_vel, touch and, where `fully_observable`, hand_pos, object_pos, object_vel,
    target_pos. The target's place and orientation (x, z, qw, qy) are the memory "target".
    """

    xml_file: str = "manipulator.xml"
    frame_skip: int = 10
    use_peg: bool = False
    fully_observable: bool = True

    tilt: ClassVar[float] = math.pi  # the largest angle of a target

    @property
    def held(self) -> str:
        """The name of the object."""
        return "peg" if self.use_peg else "ball"

    def load(self) -> mujoco.MjModel:
        mjcf = parse(self.xml_file)
        kept = {self.held, f"target_{self.held}", *self.receptacles()}
        remove(mjcf, "body", [name for name in PROPS if name not in kept])
        return compiled(mjcf)

    def receptacles(self) -> list[str]:
        """Return the names of what the object is put into."""
        return []

    def pictured(self, mjm: mujoco.MjModel, memory: Mapping[str, Any]) -> Shown:
        (x, z, w, y), body = memory["target"], mjm.body(f"target_{self.held}").id
        return {"body_pos": {(body, 0): x, (body, 2): z}, "body_quat": {(body, 0): w, (body, 2): y}}

    def parameters(self, m: Model, target: list[Scalar]) -> dict[str, Any]:
        """Return the model's parameters that go with a target."""
        return {}

    def memory(self, m: Model) -> dict[str, Scalar | list[Scalar]]:
        return {"target": [0.0, 0.0, 1.0, 0.0]}

    def reset(self, m: Model, rng: Random, world: World) -> Start:
        """Draw until nothing touches anything. An attempt that draws no speed for the object keeps that of the attempt
        before.
        """
        draws, joints = rng.fork(), [m.joint(f"{self.held}_{axis}") for axis in "xzy"]

        def attempt(i: Scalar, speed: Scalar) -> dict[str, Any]:
            r = draws(i)
            qpos: list[Scalar] = list(m.qpos0)
            self.draw_arm(m, r, qpos)
            x, z, angle = r.uniform(-0.4, 0.4), r.uniform(0.1, 0.4), r.uniform(-self.tilt, self.tilt)
            target = [x, z, cos(angle / 2.0), sin(angle / 2.0)]
            d, grasp = world.at(qpos).data, m.site("grasp")
            frame = d.site_xmat[grasp]
            in_hand = [d.site_xpos[grasp][0], d.site_xpos[grasp][2], math.pi - atan2(frame[6], frame[0])]
            free = [r.uniform(-0.5, 0.5), r.uniform(0.0, 0.7), r.uniform(0.0, 2 * math.pi)]
            which, fast = r.uniform(), r.uniform(-5.0, 5.0)
            for joint, *places in zip(joints, in_hand, [x, z, angle], free, strict=True):
                first, second, third = places
                place = select(which < IN_HAND, first, select(which < IN_HAND + IN_TARGET, second, third))
                qpos[joint.qpos] = [place]
            speed = select(which < IN_HAND + IN_TARGET, speed, fast)
            ncon = world.at(qpos, parameters=self.parameters(m, target)).data.ncon
            return {"i": i + 1.0, "qpos": qpos, "speed": speed, "target": target, "ncon": ncon}

        found = while_any(
            lambda c: c["ncon"] > 0.5, lambda c: attempt(c["i"], c["speed"]), attempt(0.0, 0.0), 10_000
        )  # fmt: skip
        qvel: list[Scalar] = [0.0] * m.nv
        qvel[joints[0].qvel] = [found["speed"]]
        target = found["target"]
        return Start(found["qpos"], qvel, memory={"target": target}, parameters=self.parameters(m, target))

    def observe(self, m: Model, world: World) -> dict[str, Any]:
        found = self.arm(m, world, TOUCH)
        if not self.fully_observable:
            return found
        joints = [m.joint(f"{self.held}_{axis}") for axis in "xzy"]
        return found | {
            "hand_pos": pose(m, world, "hand"),
            "object_pos": pose(m, world, self.held),
            "object_vel": [x for joint in joints for x in world.qvel[joint.qvel]],
            "target_pos": world.memory["target"],
        }

    def away(self, m: Model, world: World, name: str) -> Scalar:
        """Return how far a site of the object is from that of the target."""
        (x, z, w, y), place = world.memory["target"], m.body(f"target_{self.held}").pos
        wanted = add([x, place[1], z], rotate([w, 0.0, y, 0.0], m.site(f"target_{name}").pos))
        return distance(world.data.site_xpos[m.site(name)], wanted)

    def outcome(self, m: Model, before: World, action: list[Scalar], after: World) -> Outcome:
        if not self.use_peg:
            return Outcome(close(self.away(m, after, "ball")))
        place = after.data.site_xpos
        holds = [close(distance(place[m.site(f"peg_{name}")], place[m.site(name)])) for name in ("grasp", "pinch")]
        bringing = (close(self.away(m, after, "peg")) + close(self.away(m, after, "peg_tip"))) / 2.0
        return Outcome(maximum(bringing, (holds[0] + holds[1]) / 2.0 / 3.0))


@dataclass(frozen=True, kw_only=True)
class ManipulatorInsert(Manipulator):
    """Put a ball into a cup or, with `use_peg`, a peg into a slot. Observation: as of `Manipulator`."""

    tilt: ClassVar[float] = math.pi / 3

    @property
    def reset_parameters(self) -> dict[str, list[str]]:  # type: ignore[override]
        return {name: [f"target_{self.held}", *self.receptacles()] for name in ("body_pos", "body_quat")}

    def receptacles(self) -> list[str]:
        return ["slot" if self.use_peg else "cup"]

    def parameters(self, m: Model, target: list[Scalar]) -> dict[str, Any]:
        x, z, w, y = target
        pos: list[list[Scalar]] = [list(row) for row in m.body_pos]
        quat: list[list[Scalar]] = [list(row) for row in m.body_quat]
        for body in (m.body(name) for name in [f"target_{self.held}", *self.receptacles()]):
            pos[body] = [x, pos[body][1], z]
            quat[body] = [w, quat[body][1], y, quat[body][3]]
        return {"body_pos": pos, "body_quat": quat}
