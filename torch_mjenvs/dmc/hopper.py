"""Hopper, after dm_control/suite/hopper.py."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ..envs.tasks.base import Outcome, World
from ..physics.model.model import Model
from ..rewards import tolerance
from ..scalar import Random, Scalar, log1p
from .base import DMControlTask, random_joints, small_control


@dataclass(frozen=True, kw_only=True)
class Hopper(DMControlTask):
    """Stand on one leg or, with `hopping`, hop forward. Observation: position (without x), velocity, touch."""

    xml_file: str = "hopper.xml"
    frame_skip: int = 4
    hopping: bool = False

    def reset(self, m: Model, rng: Random) -> tuple[list[Scalar], list[Scalar]]:
        return random_joints(m, rng), [0.0] * m.nv

    def observe(self, m: Model, world: World) -> dict[str, Any]:
        touch = [log1p(world.data.sensordata[m.sensor(name)][0]) for name in ("touch_toe", "touch_heel")]
        return {"position": world.qpos[1:], "velocity": world.qvel, "touch": touch}

    def outcome(self, m: Model, before: World, action: list[Scalar], after: World) -> Outcome:
        d = after.data
        height = d.xipos[m.body("torso")][2] - d.xipos[m.body("foot")][2]
        standing = tolerance(height, (0.6, 2.0))
        if not self.hopping:
            return Outcome(standing * (small_control(action) + 4.0) / 5.0)
        speed = d.sensordata[m.sensor("torso_subtreelinvel")][0]
        return Outcome(standing * tolerance(speed, (2.0, math.inf), 1.0, "linear", 0.5))
