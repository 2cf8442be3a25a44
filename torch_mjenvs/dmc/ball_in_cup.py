"""Ball in cup, after dm_control/suite/ball_in_cup.py."""

from __future__ import annotations

from dataclasses import dataclass

from ..envs.tasks.base import Outcome, World
from ..physics.model.model import Model
from ..scalar import Random, Scalar, absolute, select
from .base import DMControlTask


@dataclass(frozen=True, kw_only=True)
class BallInCup(DMControlTask):
    """Swing up a ball on a string and catch it in the cup. Observation: position, velocity."""

    xml_file: str = "ball_in_cup.xml"
    frame_skip: int = 10

    def reset(self, m: Model, rng: Random, world: World) -> tuple[list[Scalar], list[Scalar]]:
        def draw(r: Random) -> list[Scalar]:
            return [*m.qpos0[:2], r.uniform(-0.2, 0.2), r.uniform(0.2, 0.5)]

        return rng.draw_until(draw, lambda qpos: world.at(qpos).data.ncon < 0.5), [0.0] * m.nv

    def outcome(self, m: Model, before: World, action: list[Scalar], after: World) -> Outcome:
        d, target = after.data, m.site("target")
        place, ball, size = d.site_xpos[target], d.xpos[m.body("ball")], m.geom("ball").size[0]
        x, z = (absolute(place[k] - ball[k]) < target.size[k] - size for k in (0, 2))
        return Outcome(select(x & z, 1.0, 0.0))
