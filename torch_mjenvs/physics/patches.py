"""Where flat parts of two convex shapes lie on each other: up to four contacts, as by MuJoCo's multiccd.

A face is a rectangle, or a disc, which is taken for a polygon of 16 corners; an edge is one of a box, or the line of a
cylinder or capsule that is furthest out. Two faces that nearly look at each other, or an edge and a face, touch
where the one cut off at the sides of the other is below its plane. Of more than four such corners four are
taken that are far apart.

n unit vector from the first shape to the second   out outwards   k axis that is normal to a face, or along an edge
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..compiler.control import count_while, when_any
from ..compiler.rooms import Room, number
from ..compiler.scalar import Mask, Scalar, absolute, logical_and, logical_not, logical_or, lookup, maximum, select
from .colliders import NEVER
from .spatial import MINVAL, Vec, add_scaled, choose, cross, dot, norm, scale, sub, zeros

MOST = 4
ROUND = 16  # corners for a disc
ROOM = 2 * ROUND + 2  # corners of a polygon that has been cut off
LOOKS_AT = 0.996  # mjFACE_TOL: cosine from which on two faces look at each other
LIES_ON = 0.0888  # mjEDGE_TOL: sine up to which an edge lies on a face


@dataclass
class Part:
    """A face or an edge. there: whether there is one. corners: 4 or 16 of a face, 2 of an edge.

    Corners are at +-half[0] across[0] +-half[1] across[1] from the middle; of a disc, all around at the radius.
    """

    there: Mask
    corners: Scalar
    normal: list[Scalar]
    middle: list[Scalar]
    across: list[list[Scalar]]
    half: list[Scalar]
    radius: Scalar
    around: list[list[Scalar]]

    def corner(self, j: Any) -> list[Scalar]:
        """Corner j, from 0, of a face seen from outside with the clock."""
        out = self.middle
        for axis, half, signs in zip(self.across, self.half, _SQUARE, strict=True):
            out = add_scaled(out, axis, half * lookup(signs, j))
        for axis, shares in zip(self.around, _CIRCLE, strict=True):
            out = add_scaled(out, axis, self.radius * lookup(shares, j))
        return out


_ANGLES = [2 * math.pi * j / ROUND for j in range(ROUND)] + [0.0]
_SQUARE = ([1.0, 1.0, -1.0, -1.0] + [0.0] * (ROUND - 3), [1.0, -1.0, -1.0, 1.0] + [0.0] * (ROUND - 3))
# Of each axis' faces: the two axes across, and their signs for the face that looks along the axis, and against it. So
# corners come in MuJoCo's order.
_SIDES = (
    ((1, 2), (1.0, 1.0), (1.0, -1.0)),
    ((2, 0), (-1.0, -1.0), (1.0, -1.0)),
    ((1, 0), (1.0, -1.0), (1.0, 1.0)),
)
_CIRCLE = ([math.cos(x) for x in _ANGLES], [math.sin(x) for x in _ANGLES])


def find_patch(one: Any, two: Any, spot: list, margin: Scalar, several: Mask) -> list[list[Scalar]]:
    """The spots of two hulls that touch at a spot: that one alone, or, where there may be several, up to four."""
    n = spot[4:]
    faces = face_of(one, n), face_of(two, scale(n, -1.0))
    both = logical_and(faces[0].there, faces[1].there, dot(faces[0].normal, faces[1].normal) < -LOOKS_AT)
    edges = edge_of(one, n, faces[1].normal), edge_of(two, scale(n, -1.0), faces[0].normal)
    first = logical_and(edges[0].there, faces[1].there, logical_not(both))
    second = logical_and(edges[1].there, faces[0].there, logical_not(logical_or(both, first)))
    whole = logical_and(several, spot[0] < margin, logical_or(both, first, second))
    alone = [spot, *([NEVER, *zeros(6)] for _ in range(MOST - 1))]

    def patch(carry: list) -> list:
        at = choose_part(first, faces[1], faces[0])
        of = choose_part(both, faces[1], choose_part(first, edges[0], edges[1]))
        outwards = choose(both, scale(faces[1].normal, -1.0), at.normal)  # of `at`
        towards = choose(first, scale(outwards, -1.0), outwards)
        spots = []
        for corner, dist, there in _cut_off(at, of, outwards, margin):
            spots.append([select(there, dist, NEVER), *add_scaled(corner, outwards, -0.5 * dist), *towards])
        some = spots[0][0] < margin
        return [choose(some, new, old) for new, old in zip(spots, carry, strict=True)]

    return when_any(whole, patch, alone)


def choose_part(mask: Mask, a: Part, b: Part) -> Part:
    return Part(
        select(mask, a.there, b.there),
        select(mask, a.corners, b.corners),
        choose(mask, a.normal, b.normal),
        choose(mask, a.middle, b.middle),
        [choose(mask, x, y) for x, y in zip(a.across, b.across, strict=True)],
        choose(mask, a.half, b.half),
        select(mask, a.radius, b.radius),
        [choose(mask, x, y) for x, y in zip(a.around, b.around, strict=True)],
    )


def face_of(hull: Any, out: Vec) -> Part:
    """The flat face of a hull that looks along `out`."""
    local = [dot(axis, out) for axis in hull.axes]
    flat = [logical_and(r <= 0.0, hull.skin <= 0.0) for r in hull.radii]
    steep = [select(is_flat, absolute(x), 0.0) for is_flat, x in zip(flat, local, strict=True)]
    part = None
    for k, sides in enumerate(_SIDES):
        positive = local[k] >= 0.0
        sign = select(positive, 1.0, -1.0)
        normal, (i, j) = scale(hull.axes[k], sign), sides[0]
        across = [
            [select(positive, p * a, q * b) for a, b in zip(hull.axes[m], hull.axes[m], strict=True)]
            for m, p, q in ((i, sides[1][0], sides[2][0]), (j, sides[1][1], sides[2][1]))
        ]
        face = Part(
            steep[k] > LOOKS_AT,
            select(hull.radii[i] > 0.0, float(ROUND), 4.0),
            normal,
            add_scaled(hull.centre, normal, hull.box[k]),
            across,
            [hull.box[i], hull.box[j]],
            hull.radii[i],
            [hull.axes[0], scale(hull.axes[1], -sign)],
        )
        part = face if part is None else choose_part(face.there, face, part)
    assert part
    return part


def edge_of(hull: Any, out: Vec, face: Vec) -> Part:
    """The edge of a hull that is furthest along `out`, if it lies on a face that has this normal."""
    part = None
    for k in (0, 1, 2):
        axis = hull.axes[k]
        lies = logical_and(absolute(dot(axis, face)) < LIES_ON, hull.radii[k] <= 0.0, hull.box[k] > 0.0)
        level = add_scaled(out, axis, -dot(axis, out))
        level = scale(level, 1.0 / maximum(norm(level), MINVAL))
        corner = hull.furthest(level, hull.skin)
        middle = add_scaled(corner, axis, dot(sub(hull.centre, corner), axis))
        edge = Part(lies, 2.0, list(face), middle, [zeros(3), axis], [0.0, hull.box[k]], 0.0, [zeros(3)] * 2)
        part = edge if part is None else choose_part(edge.there, edge, part)
    assert part
    return part


def _cut_off(at: Part, of: Part, outwards: list, margin: Scalar) -> list[tuple[list, Scalar, Mask]]:
    """The corners of a part cut off at a face's sides: up to four, how far above it, and whether they are there."""
    rows, slant = Room(2 * ROOM, 3), dot(outwards, at.normal)

    def above(p: list) -> Scalar:
        return dot(sub(p, at.middle), at.normal) / slant

    def fill(j: Any, c: Scalar) -> Scalar:
        rows.put(number(j), of.corner(j))
        return c

    count_while(lambda j, c: number(j) < of.corners, fill, 0.0, ROUND, [rows])

    def cut(e: Any, c: dict) -> dict:
        a = at.corner(e)
        b = choose(number(e) + 1.5 < at.corners, at.corner(e + 1), at.corner(0))
        inwards = cross(sub(b, a), outwards)
        inwards = scale(inwards, 1.0 / maximum(norm(inwards), MINVAL))

        def side(i: Any, made: Scalar) -> Scalar:
            k = number(i)
            p = rows.at(c["from"] + k, range(3))
            q = rows.at(c["from"] + select(k + 1.5 < c["count"], k + 1.0, 0.0), range(3))
            high_p, high_q = dot(sub(p, a), inwards), dot(sub(q, a), inwards)
            in_p, in_q = high_p > -MINVAL, high_q > -MINVAL
            crosses = logical_or(logical_and(in_p, logical_not(in_q)), logical_and(in_q, logical_not(in_p)))
            share = high_p / select(crosses, high_p - high_q, 1.0)
            crosses = logical_and(crosses, share >= 0.0, share <= 1.0)
            rows.put(c["to"] + made, add_scaled(p, sub(q, p), share), crosses)
            made = made + select(crosses, 1.0, 0.0)
            rows.put(c["to"] + made, q, in_q)
            return made + select(in_q, 1.0, 0.0)

        made = count_while(lambda i, _: number(i) < c["count"], side, 0.0, ROOM, [rows])
        return {"from": c["to"], "to": c["from"], "count": made}

    start = {"from": 0.0, "to": float(ROOM), "count": of.corners}
    c = count_while(lambda e, c: number(e) < at.corners, cut, start, ROUND, [rows])

    def below(i: Any, kept: Scalar) -> Scalar:
        p = rows.at(c["from"] + number(i), range(3))
        low = above(p) <= margin
        rows.put(c["to"] + kept, p, low)
        return kept + select(low, 1.0, 0.0)

    count = count_while(lambda i, _: number(i) < c["count"], below, 0.0, ROOM, [rows])
    base, edge = c["to"], of.corners < 2.5
    most = select(edge, 2.0, float(MOST))
    places = [float(k) for k in range(MOST)]
    places = when_any(count > most + 0.5, lambda _: _far_apart(rows, base, count, edge), places)
    out = []
    for k, place in enumerate(places):
        p = rows.at(base + place, range(3))
        out.append((p, above(p), logical_and(k + 0.5 < count, k + 0.5 < most)))
    return out


def _far_apart(rows: Room, base: Scalar, count: Scalar, edge: Mask) -> list[Scalar]:
    """Four corners of a convex polygon far apart: the first, the furthest from it, the furthest from the line between
    them, and the one that adds most to this triangle. Of an edge, which may have its ends twice, the first two.
    """
    first = rows.at(base, range(3))

    def furthest(measure: Callable[[list], Scalar]) -> Scalar:
        def look(i: Any, c: list) -> list:
            x = measure(rows.at(base + number(i), range(3)))
            return choose(x > c[1], [number(i), x], c)

        return count_while(lambda i, _: number(i) < count, look, [0.0, 0.0], ROOM)[0]

    opposite = furthest(lambda p: dot(sub(p, first), sub(p, first)))
    way = sub(rows.at(base + opposite, range(3)), first)

    def aside(p: list) -> list[Scalar]:
        return sub(p, add_scaled(first, way, dot(sub(p, first), way) / maximum(dot(way, way), MINVAL)))

    one = furthest(lambda p: dot(aside(p), aside(p)))
    triangle = [first, rows.at(base + one, range(3)), rows.at(base + opposite, range(3))]
    sides = [(triangle[k], sub(triangle[(k + 1) % 3], triangle[k])) for k in range(3)]
    up = cross(sides[0][1], sides[1][1])

    def added(p: list) -> Scalar:
        gains = [dot(cross(sub(p, start), side), up) for start, side in sides]
        return maximum(maximum(gains[0], gains[1]), gains[2])

    other = furthest(added)
    return [0.0, select(edge, opposite, one), opposite, other]
