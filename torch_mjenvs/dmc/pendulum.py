"""Pendulum, after dm_control/suite/pendulum.py."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ..envs.tasks.base import Outcome, World
from ..physics.model.model import Model
from ..rewards import tolerance
from ..scalar import Random, Scalar
from .base import DMControlTask

UPRIGHT = math.cos(math.radians(8))


@dataclass(frozen=True, kw_only=True)
class Pendulum(DMControlTask):
    """Swing up a pole by a motor too weak to lift it. Observation: orientation (cosine and sine), velocity."""

    xml_file: str = "pendulum.xml"
    frame_skip: int = 1

    def reset(self, m: Model, rng: Random) -> tuple[list[Scalar], list[Scalar]]:
        return [rng.uniform(-math.pi, math.pi)], [0.0]

    def observe(self, m: Model, world: World) -> dict[str, Any]:
        mat = world.data.xmat[m.body("pole")]
        return {"orientation": [mat[8], mat[2]], "velocity": world.qvel}

    def outcome(self, m: Model, before: World, action: list[Scalar], after: World) -> Outcome:
        return Outcome(tolerance(after.data.xmat[m.body("pole")][8], (UPRIGHT, 1.0)))
