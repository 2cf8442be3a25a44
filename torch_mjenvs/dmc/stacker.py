"""Stacker, after dm_control/suite/stacker.py."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import mujoco

from ..envs.tasks.base import Outcome, Shown, World
from ..physics.model.model import Model
from ..rewards import tolerance
from ..scalar import Random, Scalar, minimum
from .base import distance, moved
from .manipulator import CLOSE, Arm, pose
from .models import compiled, parse, remove

MOST = 4


@dataclass(frozen=True, kw_only=True)
class Stacker(Arm):
    """Stack boxes up to a target, `num_boxes` of them, at most 4.

    Observation: arm_pos (8, 2), arm_vel, touch and, where `fully_observable`, hand_pos, box_pos (num_boxes, 4),
    box_vel, target_pos. The target's place (x, z) is the memory "target".
    """

    xml_file: str = "stacker.xml"
    frame_skip: int = 10
    num_boxes: int = 2
    fully_observable: bool = True

    def load(self) -> mujoco.MjModel:
        mjcf = parse(self.xml_file)
        remove(mjcf, "body", [f"box{k}" for k in range(self.num_boxes, MOST)])
        return compiled(mjcf)

    def pictured(self, mjm: mujoco.MjModel, memory: Mapping[str, Any]) -> Shown:
        return {"body_pos": moved(mjm.body("target").id, (0, 2), memory["target"])}

    def memory(self, m: Model) -> dict[str, Scalar | list[Scalar]]:
        return {"target": [0.0, 0.0]}

    def begin(self, m: Model, world: World) -> dict[str, Scalar | list[Scalar]]:
        height = 2.0 * world.rng.integers(0, self.num_boxes) + 1.0
        return {"target": [world.rng.uniform(-0.37, 0.37), m.geom("target").size[0] * height]}

    def reset(self, m: Model, rng: Random, world: World) -> tuple[list[Scalar], list[Scalar]]:
        def draw(r: Random) -> list[Scalar]:
            qpos: list[Scalar] = list(m.qpos0)
            self.draw_arm(m, r, qpos)
            for k in range(self.num_boxes):
                for axis, ends in (("x", (0.1, 0.3)), ("z", (0.0, 0.7)), ("y", (0.0, 2 * math.pi))):
                    qpos[m.joint(f"box{k}_{axis}").qpos] = [r.uniform(*ends)]
            return qpos

        return rng.draw_until(draw, lambda qpos: world.at(qpos).data.ncon < 0.5), [0.0] * m.nv

    def observe(self, m: Model, world: World) -> dict[str, Any]:
        found = self.arm(m, world, m.sensor_names)
        if not self.fully_observable:
            return found
        boxes = [f"box{k}" for k in range(self.num_boxes)]
        joints = [m.joint(f"{name}_{axis}") for name in boxes for axis in "xyz"]
        return found | {
            "hand_pos": pose(m, world, "hand"),
            "box_pos": [pose(m, world, name) for name in boxes],
            "box_vel": [x for joint in joints for x in world.qvel[joint.qvel]],
            "target_pos": world.memory["target"],
        }

    def outcome(self, m: Model, before: World, action: list[Scalar], after: World) -> Outcome:
        place, (x, z) = after.data.site_xpos, after.memory["target"]
        target = [x, m.body("target").pos[1], z]
        boxes = [distance(place[m.site(f"box{k}")], target) for k in range(self.num_boxes)]
        near = tolerance(functools.reduce(minimum, boxes), margin=2 * m.geom("target").size[0])
        return Outcome(near * tolerance(distance(place[m.site("grasp")], target), (0.1, math.inf), CLOSE))
