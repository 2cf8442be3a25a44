"""Surfaces that move while their geoms do not, such as conveyor belts and turntables: `surfacevel`."""

from __future__ import annotations

from ...compiler.scalar import Scalar
from ..algebra.spatial import Vec, add, cross, dot, is_zero, mat_vec, scale, sub
from ..model.data import Data
from ..model.model import Model, Pair


def surfaces_move(m: Model, pair: Pair) -> bool:
    """Return whether the surface of either geom of a pair moves."""
    return not all(is_zero(x) for g in (pair.geom1, pair.geom2) for x in m.geom_surfacevel[g])


def with_surfaces(
    m: Model, d: Data, pair: Pair, velocity: list[Scalar], arms: tuple[Vec, Vec], frame: list[list[Scalar]]
) -> list[Scalar]:
    """Return the velocity along each axis of a contact with that of the surfaces, which changes neither the normal's
    nor that of rolling.

    arms: the contact's point from the origins of both bodies' trees. mj_addSurfaceVel.
    """
    if len(velocity) == 1 or not surfaces_move(m, pair):
        return velocity
    out = list(velocity)
    for sign, g, arm in ((-1.0, pair.geom1, arms[0]), (1.0, pair.geom2, arms[1])):
        moving = m.geom_surfacevel[g]
        if all(map(is_zero, moving)):
            continue
        straight, turning = (scale(mat_vec(d.geom_xmat[g], x), sign) for x in (moving[:3], moving[3:]))
        there = add(straight, cross(turning, sub(arm, d.geom_xrel[g])))
        along = [dot(frame[1], there), dot(frame[2], there), dot(frame[0], turning)]
        out[1:4] = [x + y for x, y in zip(out[1:4], along, strict=False)]
    return out
