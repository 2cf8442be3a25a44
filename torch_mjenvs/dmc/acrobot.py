"""Acrobot, after dm_control/suite/acrobot.py."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ..envs.tasks.base import Outcome, World
from ..physics.model.model import Model
from ..rewards import tolerance
from ..scalar import Random, Scalar
from .base import DMControlTask, distance


@dataclass(frozen=True, kw_only=True)
class Acrobot(DMControlTask):
    """Swing up two poles by a motor in the elbow. Observation: orientations (sines, then cosines), velocity."""

    xml_file: str = "acrobot.xml"
    frame_skip: int = 1
    sparse: bool = False

    def reset(self, m: Model, rng: Random) -> tuple[list[Scalar], list[Scalar]]:
        return [rng.uniform(-math.pi, math.pi) for _ in range(2)], [0.0] * m.nv

    def observe(self, m: Model, world: World) -> dict[str, Any]:
        arms = [world.data.xmat[m.body(name)] for name in ("upper_arm", "lower_arm")]
        return {"orientations": [mat[k] for k in (2, 8) for mat in arms], "velocity": world.qvel}

    def outcome(self, m: Model, before: World, action: list[Scalar], after: World) -> Outcome:
        place = after.data.site_xpos
        away = distance(place[m.site("target")], place[m.site("tip")])
        return Outcome(tolerance(away, (0.0, m.site("target").size[0]), 0.0 if self.sparse else 1.0))
