"""Dog, after dm_control/suite/dog.py."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import mujoco

from ..envs.tasks.base import Outcome, Start, World
from ..physics.model.enums import JointType
from ..physics.model.model import Model
from ..physics.pipeline import derive
from ..rewards import tolerance
from ..scalar import Random, Scalar, cos, select, sin, sqrt
from ..vectors import add, cross, sub
from .base import DMControlTask, distance, seen_from
from .models import compiled, parse, remove

WALLS = ("wall_px", "wall_nx", "wall_py", "wall_ny")
UPRIGHT = math.cos(math.radians(30))  # the least z component of the axis of a part of the body that is upright
HIGH = 0.9  # the least share of its height at qpos0 at which the dog stands


@dataclass(frozen=True, kw_only=True)
class Dog(DMControlTask):
    """Move at `speed` (m/s), or stand where that is 0.

    Observation: joint_angles, joint_velocites (dm_control's spelling), torso_pelvis_height, z_projection,
    torso_com_velocity, inertial_sensors, foot_forces, touch_sensors, actuator_state.
    """

    seconds: ClassVar[float] = 15.0

    xml_file: str = "dog.xml"
    frame_skip: int = 3
    speed: float = 1.0

    def load(self) -> mujoco.MjModel:
        mjcf = self.on_floor((self.speed or 1.0) * self.seconds)  # as far as it gets
        remove(mjcf, "body", ["ball"])
        remove(mjcf, "geom", ["target", *WALLS])
        remove(mjcf, "camera", ["ball", "head"])
        return compiled(mjcf, "dog_assets")

    def on_floor(self, size: float) -> Any:
        """Return the model as XML, on a floor of this size, metres."""
        mjcf = parse(self.xml_file)
        floor = mjcf.find(".//geom[@name='floor']")
        if floor is None:
            raise ValueError(f"{self.xml_file} has no geom 'floor'")
        floor.set("size", f"{size:g} {size:g} .1")
        return mjcf

    def reset(self, m: Model, rng: Random, world: World) -> Start:
        qpos, qvel = list[Scalar](m.qpos0), list[Scalar]([0.0] * m.nv)
        azimuth = rng.uniform(0.0, 2 * math.pi)
        qpos[m.joint("root").qpos.start + 3 : m.joint("root").qpos.stop] = [
            cos(azimuth / 2.0), 0.0, 0.0, sin(azimuth / 2.0),
        ]  # fmt: skip
        for v in (0, 1, 5):
            qvel[v] = 2.0 * rng.normal()
        return Start(qpos, qvel, act=[rng.uniform(*ends) for ends in m.actuator_ctrlrange])

    def observe(self, m: Model, world: World) -> dict[str, Any]:
        d, hinges = world.data, [m.joint(j) for j, kind in enumerate(m.jnt_type) if kind == JointType.HINGE]
        return {
            "joint_angles": [world.qpos[j.qpos][0] for j in hinges],
            "joint_velocites": [world.qvel[j.qvel][0] for j in hinges],
            "torso_pelvis_height": self.heights(m, world),
            "z_projection": [x for name in ("skull", "torso", "pelvis") for x in d.xmat[m.body(name)][6:]],
            "torso_com_velocity": self.velocity(m, world),
            "inertial_sensors": sensed(m, world, "accelerometer", "velocimeter", "gyro"),
            "foot_forces": sensed(m, world, "foot_L", "foot_R", "hand_L", "hand_R"),
            "touch_sensors": sensed(m, world, "palm_L", "palm_R", "sole_L", "sole_R"),
            "actuator_state": world.act,
        }

    def heights(self, m: Model, world: World) -> list[Scalar]:
        """Return the heights of torso and pelvis."""
        return [world.data.xpos[m.body(name)][2] for name in ("torso", "pelvis")]

    def velocity(self, m: Model, world: World) -> list[Scalar]:
        """Return the velocity of the centre of mass (3), in the axes of the torso."""
        return seen_from(world.data.xmat[m.body("torso")], world.data.sensordata[m.sensor("torso_linvel")])

    def standing(self, m: Model, world: World) -> Scalar:
        """Return how well the dog stands: high enough, upright, on its feet."""
        usual = derive(m, list(m.qpos0), [0.0] * m.nv, None, [0.0] * m.nu, act=[0.0] * m.na)
        out: Scalar = 1.0
        for height, name in zip(self.heights(m, world), ("torso", "pelvis"), strict=True):
            enough = HIGH * usual.xpos[m.body(name)][2]
            out = out * tolerance(height, (enough, math.inf), enough)
        for name in ("skull", "torso", "pelvis"):
            up = world.data.xmat[m.body(name)][8]
            out = out * tolerance(up, (UPRIGHT, math.inf), UPRIGHT + 1.0, "linear", 0.0)
        weight = -m.gravity[2] * m.body("torso").subtreemass[0]
        touch = sum(sensed(m, world, "palm_L", "palm_R", "sole_L", "sole_R"), 0.0)
        return out * tolerance(touch, (weight, math.inf), weight, "linear", 0.9)

    def outcome(self, m: Model, before: World, action: list[Scalar], after: World) -> Outcome:
        stand = self.standing(m, after)
        if self.speed == 0:
            return Outcome(stand)
        ahead = self.velocity(m, after)[0]
        move = tolerance(ahead, (self.speed, 2 * self.speed), max(1.0, self.speed), "linear", 0.0)
        return Outcome(stand * (4.0 * move + 1.0) / 5.0)


@dataclass(frozen=True, kw_only=True)
class DogFetch(Dog):
    """Bring a thrown ball to the middle of a court. Observation: as of `Dog`, and ball_state, target_position."""

    def load(self) -> mujoco.MjModel:
        return compiled(self.on_floor(10.0), "dog_assets")

    def reset(self, m: Model, rng: Random, world: World) -> Start:
        """Begin an episode as `Dog` does, with a ball that flies towards the middle, and up."""
        start, ball = super().reset(m, rng, world), m.joint("ball_root")
        reach, azimuth = 0.75 * m.geom("floor").size[0], rng.uniform(0.0, 2 * math.pi)
        qpos, qvel = [*start.qpos], [*start.qvel]
        qpos[ball.qpos.start : ball.qpos.start + 3] = [reach * sin(azimuth), reach * cos(azimuth), 0.05]
        up, speed = sqrt(2.0 * -m.gravity[2] * rng.uniform(0.0, 3.0)), rng.uniform(0.0, 5.0)
        inwards = [-sin(azimuth) + 0.05 * rng.normal(), -cos(azimuth) + 0.05 * rng.normal()]
        qvel[ball.qvel.start : ball.qvel.start + 3] = [*(speed * x for x in inwards), up]
        return replace(start, qpos=qpos, qvel=qvel)

    def observe(self, m: Model, world: World) -> dict[str, Any]:
        d, head = world.data, m.site("head")
        mat, place = d.site_xmat[head], d.site_xpos[head]
        body = m.site("head").bodyid[0]
        turning, moving = d.cvel[body][:3], d.cvel[body][3:]
        velocity = add(moving, cross(turning, sub(place, d.subtree_com[m.body_rootid[body]])))
        ball = world.qvel[m.joint("ball_root").qvel][:3]
        vectors = [sub(d.geom_xpos[m.geom("ball")], place), sub(ball, velocity)]
        return super().observe(m, world) | {
            "ball_state": [x for vector in vectors for x in seen_from(mat, vector)],
            "target_position": seen_from(mat, sub(d.geom_xpos[m.geom("target")], place)),
        }

    def outcome(self, m: Model, before: World, action: list[Scalar], after: World) -> Outcome:
        d, floor, radius = after.data, m.geom("floor").size[0], m.geom("target").size[0]
        ball, sites = d.geom_xpos[m.geom("ball")], [m.site(name) for name in ("upper_bite", "lower_bite")]
        from_mouth = 0.5 * sum((distance(ball, d.site_xpos[site]) for site in sites), 0.0)
        from_target = distance(ball, d.geom_xpos[m.geom("target")])
        reach = (6.0 * tolerance(from_mouth, (0.0, sites[0].size[0]), 2.0, "reciprocal") + 1.0) / 7.0
        bring = (tolerance(from_target, (0.0, radius), floor, "reciprocal") + 1.0) / 2.0
        return Outcome(self.standing(m, after) * select(from_target < 2.0 * radius, 1.0, reach) * bring)


def sensed(m: Model, world: World, *names: str) -> list[Scalar]:
    """Return what these sensors measure."""
    return [x for name in names for x in world.data.sensordata[m.sensor(name)]]
