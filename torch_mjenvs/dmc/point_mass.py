"""Point mass, after dm_control/suite/point_mass.py."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..envs.tasks.base import Outcome, World
from ..physics.model.model import Model
from ..rewards import tolerance
from ..scalar import Random, Scalar, absolute
from ..vectors import dot
from .base import DMControlTask, distance, random_joints, small_control, unit


@dataclass(frozen=True, kw_only=True)
class PointMass(DMControlTask):
    """Move a ball in a plane to the middle. Observation: position, velocity.

    With `randomize_gains`, the two controls pull in random directions, other ones in every episode.
    """

    xml_file: str = "point_mass.xml"
    frame_skip: int = 1
    randomize_gains: bool = False

    def randomize(self, m: Model, rng: Random) -> dict[str, Any]:
        if not self.randomize_gains:
            return {}
        first = unit([rng.normal(), rng.normal()])
        second = rng.draw_until(
            lambda r: unit([r.normal(), r.normal()]), lambda x: absolute(dot(first, x)) <= 0.9
        )  # fmt: skip
        return {"wrap_prm": [*first, *second]}

    def reset(self, m: Model, rng: Random) -> tuple[list[Scalar], list[Scalar]]:
        return random_joints(m, rng), [0.0] * m.nv

    def outcome(self, m: Model, before: World, action: list[Scalar], after: World) -> Outcome:
        place, target = after.data.geom_xpos, m.geom("target")
        size = target.size[0]
        near = tolerance(distance(place[target], place[m.geom("pointmass")]), (0.0, size), size)
        return Outcome(near * (small_control(action) + 4.0) / 5.0)
