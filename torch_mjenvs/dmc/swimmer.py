"""Swimmer, after dm_control/suite/swimmer.py."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree

import mujoco

from ..envs.tasks.base import Outcome, Shown, World
from ..physics.model.model import Model
from ..rewards import tolerance
from ..scalar import Random, Scalar, select
from ..vectors import norm, sub
from .base import DMControlTask, moved, random_joints, seen_from
from .models import compiled, parse


@dataclass(frozen=True, kw_only=True)
class Swimmer(DMControlTask):
    """Swim to a target with a chain of `num_links` links. Observation: joints, to_target, body_velocities.

    Where the target is, in world axes, is the memory "target" (2).
    """

    xml_file: str = "swimmer.xml"
    frame_skip: int = 15
    num_links: int = 6

    def load(self) -> mujoco.MjModel:
        mjcf, n = parse(self.xml_file), self.num_links
        if n < 3:
            raise ValueError(f"num_links must be at least 3, not {n}")
        head = mjcf.find("./worldbody/body")
        if head is None:
            raise ValueError(f"{self.xml_file} has no body")
        parent, new = head, ElementTree.SubElement
        actuator, sensor = new(mjcf, "actuator"), new(mjcf, "sensor")
        for i in range(n - 1):
            parent = new(parent, "body", name=f"segment_{i}", pos="0 .1 0")
            for kind in ("visual", "inertial"):
                new(parent, "geom", {"class": kind, "name": f"{kind}_{i}"})
            new(parent, "site", name=f"site_{i}")
            new(parent, "joint", name=f"joint_{i}", range=f"{-360.0 / n} {360.0 / n}")
            new(actuator, "motor", name=f"motor_{i}", joint=f"joint_{i}")
            new(sensor, "velocimeter", name=f"velocimeter_{i}", site=f"site_{i}")
            new(sensor, "gyro", name=f"gyro_{i}", site=f"site_{i}")
        for camera in head.findall("camera"):
            if camera.get("mode") == "trackcom":
                camera.set("pos", " ".join(str(float(x) * (n / 6.0)) for x in camera.get("pos", "").split()))
        return compiled(mjcf)

    def pictured(self, mjm: mujoco.MjModel, memory: Mapping[str, Any]) -> Shown:
        target, light = mjm.geom("target").id, mjm.light("target_light").id
        places = {"geom_pos": target, "light_pos": light}
        return {name: moved(number, (0, 1), memory["target"]) for name, number in places.items()}

    def reset(self, m: Model, rng: Random) -> tuple[list[Scalar], list[Scalar]]:
        return random_joints(m, rng), [0.0] * m.nv

    def memory(self, m: Model) -> dict[str, Scalar | list[Scalar]]:
        return {"target": [0.0, 0.0]}

    def begin(self, m: Model, world: World) -> dict[str, Scalar | list[Scalar]]:
        reach = select(world.rng.uniform() < 0.2, 0.3, 2.0)
        return {"target": [reach * world.rng.uniform(-1.0, 1.0) for _ in range(2)]}

    def to_target(self, m: Model, world: World) -> list[Scalar]:
        """Return the vector from the nose to the target (2), in the axes of the head."""
        d, target = world.data, m.geom("target")
        way = sub([*world.memory["target"], d.geom_xpos[target][2]], d.geom_xpos[m.geom("nose")])
        return seen_from(d.xmat[m.body("head")], way)[:2]

    def observe(self, m: Model, world: World) -> dict[str, Any]:
        sensed, links = world.data.sensordata, range(self.num_links - 1)
        names = [("head_vel", "head_gyro"), *((f"velocimeter_{i}", f"gyro_{i}") for i in links)]
        velocities = [(sensed[m.sensor(v)], sensed[m.sensor(w)]) for v, w in names]
        return {
            "joints": world.qpos[3:],
            "to_target": self.to_target(m, world),
            "body_velocities": [x for v, w in velocities for x in (v[0], v[1], w[2])],
        }

    def outcome(self, m: Model, before: World, action: list[Scalar], after: World) -> Outcome:
        size = m.geom("target").size[0]
        return Outcome(tolerance(norm(self.to_target(m, after)), (0.0, size), 5.0 * size, "long_tail"))
