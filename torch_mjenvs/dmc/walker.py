"""Walker, after dm_control/suite/walker.py."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ..envs.tasks.base import Outcome, World
from ..physics.model.model import Model
from ..rewards import tolerance
from ..scalar import Random, Scalar
from .base import DMControlTask, random_joints


@dataclass(frozen=True, kw_only=True)
class Walker(DMControlTask):
    """Walk at `speed` (m/s), or stand where that is 0. Observation: orientations, height, velocity."""

    xml_file: str = "walker.xml"
    frame_skip: int = 10
    speed: float = 1.0

    def reset(self, m: Model, rng: Random) -> tuple[list[Scalar], list[Scalar]]:
        return random_joints(m, rng), [0.0] * m.nv

    def observe(self, m: Model, world: World) -> dict[str, Any]:
        d = world.data
        orientations = [x for mat in d.xmat[1:] for x in (mat[0], mat[2])]
        return {"orientations": orientations, "height": d.xpos[m.body("torso")][2], "velocity": world.qvel}

    def outcome(self, m: Model, before: World, action: list[Scalar], after: World) -> Outcome:
        d, torso = after.data, m.body("torso")
        standing = tolerance(d.xpos[torso][2], (1.2, math.inf), 0.6)
        stand = (3.0 * standing + (1.0 + d.xmat[torso][8]) / 2.0) / 4.0
        if self.speed == 0:
            return Outcome(stand)
        speed = d.sensordata[m.sensor("torso_subtreelinvel")][0]
        move = tolerance(speed, (self.speed, math.inf), self.speed / 2, "linear", 0.5)
        return Outcome(stand * (5.0 * move + 1.0) / 6.0)
