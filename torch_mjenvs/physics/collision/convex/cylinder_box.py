"""Finds how deep a cylinder and a box are in each other: the way out is one of a few directions, which are all tried.

C, the difference of both shapes, reaches least far along the normal of one of its smooth parts. These are

    faces of the box, an end of the cylinder   the normal is an axis
    an edge of the box and the cylinder's side   it is at right angles to both axes
    a corner of the box and the side             it is at right angles to the cylinder's axis
    an edge of the box and a rim                 it is at right angles to the edge

Of the last kind there is one for each choice of the edge and of the sides that the other axes are at; Newton's method
turns the normal about the edge. No direction in which C reaches less far than at the answer is left out, so the shapes
are apart if it is negative.

All is seen in the box's axes, from its centre.

n unit vector from the cylinder to the box   u its cosine to the cylinder's axis
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

from ....compiler.arrays import Table
from ....compiler.control import repeat
from ....compiler.scalar import Mask, Scalar, absolute, clip, logical_and, maximum, select, sqrt
from ...algebra.spatial import MINVAL, Vec, add, add_scaled, choose, cross, dot, norm, scale, unit
from .hull import Hull

STEPS = 4  # of Newton's method; `settled` makes two more
FARTHEST = 0.8  # radians: the most that a step turns
LEVEL = 1e-6  # the cosine of an angle that is a right angle to rounding
EXACT, END, NEAR = 0.0, 1.0, 4.0  # kinds of n: in closed form, also of an end of the cylinder, by Newton's method
AXES = ([1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0])


@dataclass(frozen=True)
class _Pair:
    """centre, axis: the cylinder's. half: of its length. sides: the box's, halved."""

    centre: Vec
    axis: Vec
    radius: Scalar
    half: Scalar
    sides: Vec

    def reach(self, n: Vec) -> Scalar:
        """Return how far C reaches along n."""
        ends, rim = self.half * absolute(dot(self.axis, n)), self.radius * norm(cross(self.axis, n))
        return dot(self.centre, n) + ends + rim + dot(self.sides, [absolute(x) for x in n])


def way_out(cylinder: Hull, box: Hull) -> tuple[list[Scalar], Mask, list[Mask]]:
    """Return n, whether it is exact or only near enough for `settled`, and for each shape whether an end lies flat."""
    centre, axis = box.seen(cylinder.centre), [dot(x, cylinder.axes[2]) for x in box.axes]
    pair = _Pair(centre, axis, cylinder.radii[0], cylinder.box[2], box.box)
    ways = [scale(n, select(dot(n, centre) > 0.0, -1.0, 1.0)) for n in (*AXES, axis)]
    best = [pair.reach(ways[0]), *ways[0], EXACT]
    for n, kind in zip(ways[1:], (EXACT, EXACT, END), strict=True):
        best = _better(pair, n, True, best, kind)
    for edge in AXES:
        n = cross(edge, axis)
        length = norm(n)
        n = scale(n, select(dot(n, centre) > 0.0, -1.0, 1.0) / maximum(length, MINVAL))
        best = _better(pair, n, length > LEVEL, best)

    signs = list(itertools.product((-1.0, 1.0), repeat=3))
    columns = [Table([row[k] for row in signs]) for k in range(3)]

    def each(i: Any, best: list[Scalar]) -> list[Scalar]:
        at = [column[i] for column in columns]
        corner = add(centre, [s * x for s, x in zip(at, pair.sides, strict=True)])
        beside = add_scaled(corner, axis, -dot(corner, axis))
        length = norm(beside)
        best = _better(pair, scale(beside, -1.0 / maximum(length, MINVAL)), length > LEVEL, best)
        for k in range(3):
            best = _better(pair, *_about(pair, k, at), best, NEAR)
        return best

    _, *n, kind = repeat(len(signs), each, best)
    return box.turned(n), kind < 0.5 * NEAR, [logical_and(kind > 0.5 * END, kind < 0.5 * NEAR), False]


def corners_of(hull: Hull, n: Vec) -> list[Scalar]:
    """Return the numbers of three corners of a cylinder or box that are furthest along n; of an edge or a corner some
    are the same.
    """
    first: Scalar = 0.0
    flips: list[Scalar] = []
    for k, (axis, half) in enumerate(zip(hull.axes, hull.box, strict=True)):
        x, bit = dot(axis, n), select(half > 0.0, float(1 << k), 0.0)
        first = first + select(x >= 0.0, bit, 0.0)
        flips.append(select(absolute(x) < LEVEL, select(x >= 0.0, -bit, bit), 0.0))
    one = two = first
    for flip in flips:  # the first that is level, and the last
        one = select(absolute(one - first) < 0.5, one + flip, one)
        two = select(absolute(flip) > 0.5, first + flip, two)
    return [first, one, two]


def _better(pair: _Pair, n: Vec, known: Mask, best: list[Scalar], kind: float = 0.0) -> list[Scalar]:
    """Return [reach, *n, kind], if C reaches less far along n than `best` does and n is `known` to be a direction."""
    reach = select(known, pair.reach(n), best[0])
    return choose(reach < best[0], [reach, *n, kind], best)


def _about(pair: _Pair, k: int, signs: list[Scalar]) -> tuple[list[Scalar], Mask]:
    """Return n at right angles to the box's axis k along which an edge and a rim reach least far, and whether there is
    one: at the ends of an ellipse that is a line n is the cylinder's axis, or at right angles to it.

    Seen along that axis the rim is an ellipse, and the edge with the rim's centre a point: the way out goes to the
    point of the ellipse that is nearest to the origin.

    signs: of the sides that the two other axes are at and, in place of k, that of u.
    """
    i, j = (k + 1) % 3, (k + 2) % 3
    a = [pair.axis[i], pair.axis[j]]
    tilt = norm(a)
    # along the ellipse's shorter axis, whose half is `narrow`; any axis of a circle
    small = choose(tilt > LEVEL, scale(a, 1.0 / maximum(tilt, LEVEL)), [1.0, 0.0])
    large, wide = [-small[1], small[0]], pair.radius
    narrow = wide * absolute(pair.axis[k])
    end = signs[k] * pair.half
    centre = [pair.centre[v] + signs[v] * pair.sides[v] + end * pair.axis[v] for v in (i, j)]
    x, y = narrow * dot(small, centre), wide * dot(large, centre)
    at = nearest_on_ellipse(x, y, narrow, wide, signs[k], STEPS)
    n = add(scale(small, wide * at[0]), scale(large, narrow * at[1]))
    length = norm(n)
    out: list[Scalar] = [0.0, 0.0, 0.0]
    out[i], out[j] = scale(n, 1.0 / maximum(length, MINVAL))
    return out, length > LEVEL * wide


def nearest_on_ellipse(
    x: Scalar, y: Scalar, narrow: Scalar, wide: Scalar, side: Scalar, steps: int
) -> tuple[Scalar, Scalar]:
    """Return the cosine and sine at which an ellipse is nearest to the origin, by Newton's method.

    x, y: its centre, along the axes whose halves are `narrow` and `wide`, each times its half. side: 1 or -1, the half
    of the ellipse in which the method starts.
    """
    square = wide * wide - narrow * narrow
    sine = clip(-y / maximum(square, MINVAL), -1.0, 1.0)  # where a flat ellipse is nearest
    at = [side * sqrt(1.0 - sine * sine), sine]
    for _ in range(steps):
        c, s = at
        slope = c * y - s * x + square * c * s
        bend = -(c * x + s * y) + square * (c * c - s * s)
        turn = clip(-slope / maximum(absolute(bend), MINVAL), -FARTHEST, FARTHEST)
        at = unit([c - turn * s, s + turn * c])
    return at[0], at[1]
