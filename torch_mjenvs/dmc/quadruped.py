"""Quadruped, after dm_control/suite/quadruped.py; without escape, whose terrain differs from episode to episode."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import mujoco

from ..envs.tasks.base import Outcome, World
from ..physics.model.enums import JointType, SensorType
from ..physics.model.model import Model
from ..rewards import tolerance
from ..scalar import Random, Scalar, cos, sin, while_any
from ..vectors import norm, sub
from .base import DMControlTask, arcsinh, seen_from, unit
from .models import compiled, parse, remove

WALLS = ("wall_px", "wall_py", "wall_nx", "wall_ny")


@dataclass(frozen=True, kw_only=True)
class Quadruped(DMControlTask):
    """Walk at `speed` (m/s). Observation: egocentric_state, torso_velocity, torso_upright, imu, force_torque."""

    xml_file: str = "quadruped.xml"
    frame_skip: int = 4
    speed: float = 0.5

    def load(self) -> mujoco.MjModel:
        mjcf, size = parse(self.xml_file), 20 * self.speed  # as far as it gets in 20 s
        floor = mjcf.find(".//geom[@name='floor']")
        if floor is None:
            raise ValueError(f"{self.xml_file} has no geom 'floor'")
        floor.set("size", f"{size} {size} .5")
        remove(mjcf, "geom", [*WALLS, "terrain"])
        remove(mjcf, "body", ["ball"])
        remove(mjcf, "site", ["target"])
        return without_rangefinders(mjcf)

    def reset(self, m: Model, rng: Random, world: World) -> tuple[list[Scalar], list[Scalar]]:
        turned = unit([rng.normal() for _ in range(4)])
        return lifted(m, world, [0.0, 0.0], turned), [0.0] * m.nv

    def observe(self, m: Model, world: World) -> dict[str, Any]:
        joints = [m.joint(j) for j, kind in enumerate(m.jnt_type) if kind == JointType.HINGE]
        state = [x for j in joints for x in world.qpos[j.qpos]] + [x for j in joints for x in world.qvel[j.qvel]]
        return {
            "egocentric_state": state + world.act,
            "torso_velocity": world.data.sensordata[m.sensor("velocimeter")],
            "torso_upright": world.data.xmat[m.body("torso")][8],
            "imu": sensed(m, world, SensorType.GYRO, SensorType.ACCELEROMETER),
            "force_torque": [arcsinh(x) for x in sensed(m, world, SensorType.FORCE, SensorType.TORQUE)],
        }

    def upright(self, m: Model, world: World) -> Scalar:
        """Return how upright the torso is: 1 if it is, and 0 upside down."""
        return tolerance(world.data.xmat[m.body("torso")][8], (1.0, math.inf), 2.0, "linear", 0.0)

    def outcome(self, m: Model, before: World, action: list[Scalar], after: World) -> Outcome:
        speed = after.data.sensordata[m.sensor("velocimeter")][0]
        move = tolerance(speed, (self.speed, math.inf), self.speed, "linear", 0.5)
        return Outcome(self.upright(m, after) * move)


@dataclass(frozen=True, kw_only=True)
class QuadrupedFetch(Quadruped):
    """Bring a ball to the middle of a court. Observation: as of `Quadruped`, and ball_state, target_position."""

    def load(self) -> mujoco.MjModel:
        mjcf = parse(self.xml_file)
        remove(mjcf, "geom", ["terrain"])
        return without_rangefinders(mjcf)

    def reset(self, m: Model, rng: Random, world: World) -> tuple[list[Scalar], list[Scalar]]:
        azimuth, reach = rng.uniform(0.0, 2 * math.pi), 0.9 * m.geom("floor").size[0]
        place, ball = ([rng.uniform(-reach, reach) for _ in range(2)] for _ in range(2))
        qpos = lifted(m, world, place, [cos(azimuth / 2.0), 0.0, 0.0, sin(azimuth / 2.0)])
        qvel: list[Scalar] = [0.0] * m.nv
        qpos[m.joint("ball_root").qpos] = [*ball, 2.0, *m.joint("ball_root").qpos0[3:]]
        at = m.joint("ball_root").qvel.start
        qvel[at : at + 2] = [5.0 * rng.normal() for _ in range(2)]
        return qpos, qvel

    def observe(self, m: Model, world: World) -> dict[str, Any]:
        place, torso = world.data.xpos, m.body("torso")
        ball, own = world.qvel[m.joint("ball_root").qvel], world.qvel[m.joint("root").qvel]
        vectors = [sub(place[m.body("ball")], place[torso]), sub(ball[:3], own[:3]), ball[3:]]
        to_target = sub(world.data.site_xpos[m.site("target")], place[torso])
        mat = world.data.xmat[torso]
        return super().observe(m, world) | {
            "ball_state": [x for vector in vectors for x in seen_from(mat, vector)],
            "target_position": seen_from(mat, to_target),
        }

    def outcome(self, m: Model, before: World, action: list[Scalar], after: World) -> Outcome:
        site, ball = after.data.site_xpos, after.data.xpos[m.body("ball")]
        arena = m.geom("floor").size[0] * math.sqrt(2)

        def near(name: str, radius: Scalar) -> Scalar:
            return tolerance(norm(sub(site[m.site(name)][:2], ball[:2])), (0.0, radius), arena, "linear", 0.0)

        reach = near("workspace", m.site("workspace").size[0] + m.geom("ball").size[0])
        fetch = near("target", m.site("target").size[0])
        return Outcome(self.upright(m, after) * (reach * (0.5 + 0.5 * fetch)))


def without_rangefinders(mjcf: Any) -> mujoco.MjModel:
    """Compile the model without the sensors that only escape reads."""
    sensors = mjcf.find("sensor")
    for sensor in sensors.findall("rangefinder"):
        sensors.remove(sensor)
    return compiled(mjcf)


def sensed(m: Model, world: World, *kinds: int) -> list[Scalar]:
    """Return what all sensors of these kinds measure, in the model's order."""
    of_kind = [name for name, kind in zip(m.sensor_names, m.sensor_type, strict=True) if kind in kinds]
    return [x for name in of_kind for x in world.data.sensordata[m.sensor(name)]]


def lifted(m: Model, world: World, place: list[Scalar], turned: list[Scalar]) -> list[Scalar]:
    """Return qpos with the robot at a place (x, y) and turned, as low as it touches nothing, to 1 cm."""

    def at(z: Scalar) -> list[Scalar]:
        qpos: list[Scalar] = list(m.qpos0)
        qpos[m.joint("root").qpos] = [*place, z, *turned]
        return qpos

    return at(while_any(lambda z: world.at(at(z)).data.ncon > 0.5, lambda z: z + 0.01, 0.0, 10_000))
