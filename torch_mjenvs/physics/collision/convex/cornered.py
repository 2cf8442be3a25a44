"""Finds to rounding where an ellipsoid or a cylinder touches a shape with corners alone: a mesh, or a field's prism.

A search has ended nearby. Only few corners count there. C, the difference of the round shape and these, reaches least
far along the normal of one of its smooth parts. These are

    a face of the corners                  the normal is the face's
    an edge, or a corner                   Newton's method turns the normal about the edge, or any way
    an end of a cylinder                   it is the axis
    a cylinder's side, and an edge         it is at right angles to both
    a cylinder's side, and a corner        it goes from the axis to the corner

All are tried. If the whole shape has a corner that reaches further along the best normal, that takes the place of the
corner that counts least, and all are tried again.

All is seen in the round shape's axes, from its centre.

n unit vector from the round shape to the other   p corner of the other   z the cylinder's axis
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ....compiler.arrays import Array, Table
from ....compiler.control import count_while, when_any
from ....compiler.scalar import (
    Mask,
    Scalar,
    absolute,
    clip,
    logical_and,
    logical_not,
    logical_or,
    maximum,
    minimum,
    number,
    select,
)
from ...algebra.spatial import MINVAL, Vec, add, add_scaled, choose, cross, dot, is_zero, norm, scale, sub, unit, zeros
from .hull import Hull

ROUNDS = 8  # of looking for a corner that reaches further; one to three mostly suffice
STEPS, LAST = 2, 3  # of Newton's method: for all that are tried, and from the best
FARTHEST = 0.1  # radians: the most that a step turns
BESIDE = 0.02  # 1 less the cosine of the most that n may be off the search's normal, at first ...
NARROWS = 0.06  # ... and by what it is multiplied where n turned out to be none of the whole shape's
FLAT = 3e-6  # sine of an angle up to which an end lies flat, or on a corner: the search is exact there
LEVEL = 0.1  # cosine of an angle to the cylinder's axis from which on it is clear which end counts
CLOSE = 1e-5  # metres: two corners that are this near are one
WORSE = 1e-6  # metres: MuJoCo's tolerance; a contact that is found to be this much deeper is another one
SHORT = 1e-12  # metres, square metres, or a squared sine: less is nothing
NOWHERE = 1e10  # metres
Z = [0.0, 0.0, 1.0]
SEARCHED, ROUND, CORNER = -1.0, 0.0, 1.0  # what tells where a spot is: the search, the round shape, the other one


@dataclass(frozen=True)
class _Round:
    """An ellipsoid with these radii or, where half is not 0, a cylinder of this length."""

    radii: Vec
    half: Scalar

    def bulge(self, n: Vec) -> list[Scalar]:
        """Return the ellipsoid's furthest point along n."""
        local = [x * r for x, r in zip(n, self.radii, strict=True)]
        inverse = 1.0 / maximum(norm(local), MINVAL)
        return [x * r * inverse for x, r in zip(local, self.radii, strict=True)]

    def reach(self, n: Vec) -> Scalar:
        """Return how far the shape reaches along n."""
        return norm([x * r for x, r in zip(n, self.radii, strict=True)]) + self.half * absolute(n[2])

    def about(self, axis: Vec, n: Vec, p: Vec, end: Scalar, steps: int) -> list[Scalar]:
        """Return n at right angles to `axis` along which the shape and the corner p reach least far, nearby.

        end: which of a cylinder's ends is furthest along n: 1 or -1.
        """
        n = unit(add_scaled(n, axis, -dot(axis, n)))
        for _ in range(steps):
            t = cross(axis, n)
            w, bulge = self._furthest(n, p, end)
            bend = self._bend(bulge, n, t, t) - dot(w, n)
            turn = clip(-dot(w, t) / maximum(absolute(bend), MINVAL), -FARTHEST, FARTHEST)
            n = unit(add_scaled(n, t, turn))
        return n

    def any_way(self, n: Vec, p: Vec, end: Scalar, steps: int) -> list[Scalar]:
        """Return n along which the shape and the corner p reach least far, nearby."""
        for _ in range(steps):
            steep = absolute(n[0]) < 0.7
            t = unit(cross([select(steep, 1.0, 0.0), select(steep, 0.0, 1.0), 0.0], n))
            u = cross(n, t)
            w, bulge = self._furthest(n, p, end)
            depth, x, y = dot(w, n), dot(w, t), dot(w, u)
            a, c = (self._bend(bulge, n, k, k) - depth for k in (t, u))
            b = self._bend(bulge, n, t, u)
            area = a * c - b * b
            over = 1.0 / select(absolute(area) < MINVAL, MINVAL, area)
            turn, other = (clip(k * over, -FARTHEST, FARTHEST) for k in (b * y - c * x, b * x - a * y))
            n = unit(add_scaled(add_scaled(n, t, turn), u, other))
        return list(n)

    def _furthest(self, n: Vec, p: Vec, end: Scalar) -> tuple[list[Scalar], list[Scalar]]:
        """Return the furthest point of C along n, and the ellipsoid's."""
        bulge = self.bulge(n)
        return sub(add_scaled(bulge, Z, end * self.half), p), bulge

    def _bend(self, bulge: Vec, n: Vec, t: Vec, u: Vec) -> Scalar:
        """Return how fast the ellipsoid's furthest point along n moves along u if n turns towards t."""
        both = sum(x * y * r * r for x, y, r in zip(t, u, self.radii, strict=True))
        return (both - dot(bulge, t) * dot(bulge, u)) / maximum(dot(bulge, n), MINVAL)


class _Best:
    """The best of the normals that were tried.

    row: how far C reaches along it, n, what tells where the spot is, and a point: of the spot, on a corner or an edge,
    or the corner to go on from. Then the end, and the edge that n is at right angles to; 0 where it may turn any way.
    """

    def __init__(self, shape: _Round, points: list[list[Scalar]], near: list[Scalar], row: list[Scalar]):
        self.shape, self.points, self.near, self.row = shape, points, near[:3], row
        self.beside = near[3]

    def lowest(self, n: Vec) -> Scalar:
        """Return how far along n the corner is that is furthest against it."""
        return functools.reduce(minimum, (dot(p, n) for p in self.points))

    def reach(self, n: Vec) -> Scalar:
        """Return how far C reaches along n."""
        return self.shape.reach(n) - self.lowest(n)

    def try_(self, n: Vec, known: Mask, kind: float, at: Vec, end: Scalar = 0.0, axis: Vec = (0.0, 0.0, 0.0)) -> None:
        """Make this the best, if C reaches less far along n, and n is `known` to be a direction, and nearby."""
        reach = self.reach(n)
        better = logical_and(known, dot(n, self.near) > 1.0 - self.beside, reach < self.row[0])
        self.row = choose(better, [reach, *n, kind, *at, end, *axis], self.row)

    def towards(self, n: Vec) -> list[Scalar]:
        """Return n or -n, whichever is nearer to the search's normal, as a unit vector."""
        return scale(n, select(dot(n, self.near) > 0.0, 1.0, -1.0) / maximum(norm(n), MINVAL))


def _best(
    shape: _Round,
    points: list[list[Scalar]],
    around: list[Scalar],
    edges: Sequence[tuple[int, int]],
    some: Scalar,
    faces: Sequence[tuple[int, int, int]],
    apart: bool,
) -> list[Scalar]:
    """Return the best normal of all, in the form of `_Best.row` up to the point. around: the search's
    normal, and how far n may be off it. some: how many of the edges to try. apart: the shapes may also be apart.
    """
    near = around[:3]
    is_long, is_full = not is_zero(shape.half), not is_zero(shape.radii[2])
    best = _Best(shape, points, around, [NOWHERE, *near, SEARCHED, *zeros(7)])
    end = select(near[2] > 0.0, 1.0, -1.0)
    unclear = logical_and(absolute(near[2]) < LEVEL, shape.half > 0.0)
    if is_long:
        n = scale(Z, end)
        lowest = points[0]
        for p in points[1:]:
            lowest = choose(end * p[2] < end * lowest[2], p, lowest)
        best.try_(n, shape.half > 0.0, CORNER, lowest)
    for corners in faces:
        p, q, r = (points[x] for x in corners)
        n = cross(sub(q, p), sub(r, p))
        best.try_(best.towards(n), dot(n, n) > SHORT * SHORT, ROUND, zeros(3))
    rows, (firsts, seconds) = Array.fixed(points), (Table([edge[k] for edge in edges]) for k in range(2))

    def of_edge(m: Any, row: list[Scalar]) -> list[Scalar]:
        best = _Best(shape, points, around, row)
        p, q = (rows[x[m], :] for x in (firsts, seconds))
        way = sub(q, p)
        length = norm(way)
        axis, there = scale(way, 1.0 / maximum(length, MINVAL)), length > SHORT
        best.try_(shape.about(axis, near, p, end, STEPS), there, ROUND, p, end, axis)
        if is_long:

            def other(row: list[Scalar]) -> list[Scalar]:
                best = _Best(shape, points, around, row)
                best.try_(shape.about(axis, near, p, -end, STEPS), there, ROUND, p, -end, axis)
                n = cross(axis, Z)
                square = dot(n, n)
                n = best.towards(n)
                across = cross(Z, n)
                share = -dot(across, p) / select(square > SHORT, dot(across, axis), 1.0)
                first = dot(p, n) < best.lowest(n) + WORSE  # of parallel edges
                best.try_(n, logical_and(there, square > SHORT, first), CORNER, add_scaled(p, axis, share))
                return best.row

            best.row = when_any(unclear, other, best.row)
        return best.row

    best.row = count_while(lambda m, _: number(m) < some, of_edge, best.row, len(edges))
    for p in points:
        if is_long:
            across = [p[0], p[1], 0.0]
            square = dot(across, across)
            best.try_(best.towards(across), logical_and(unclear, square > SHORT), CORNER, p)
        if is_full or apart:
            best.try_(shape.any_way(near, p, end, STEPS), True, ROUND, p, end)
    last = best.row
    at, end, axis = last[5:8], last[8], last[9:12]
    bent = shape.about(axis, last[1:4], at, end, LAST)
    if is_full or apart:
        bent = choose(dot(axis, axis) > 0.5, bent, shape.any_way(last[1:4], at, end, LAST))
    refined = logical_and(absolute(last[4]) < 0.5, absolute(end) > 0.5, best.reach(bent) < last[0] + WORSE)
    n = choose(refined, bent, last[1:4])
    return [best.reach(n), *n, *last[4:8]]


def polish_mesh(shape: Hull, mesh: Hull, spot: list[Scalar], numbers: list[Scalar], margin: Scalar) -> list[Scalar]:
    """Return the spot of an ellipsoid or a cylinder and a mesh to rounding, from where a search found it to be.

    numbers: of the mesh's three corners that touch there.
    """
    parts = _Round(shape.radii, shape.box[2])
    faces = list(itertools.combinations(range(4), 3))
    edges = [(1, 2), (2, 3), (1, 3), (0, 1), (0, 2), (0, 3)]  # at first corner 0 is corner 1 once more
    near = [dot(axis, spot[4:]) for axis in shape.axes]

    def step(_: Any, c: dict[str, Any]) -> dict[str, Any]:
        points = c["points"]
        reach, *best = _best(parts, points, [*near, c["beside"]], edges, c["edges"], faces, not is_zero(margin))
        n = best[:3]
        new = shape.seen(mesh.furthest(scale(shape.turned(n), -1.0)))
        further, found = parts.reach(n) - dot(new, n), reach < NOWHERE
        known = logical_or(*(_same(new, p) for p in points))
        good = select(known, c["best"][0] + WORSE, c["best"][0])
        better = logical_and(found, further < good)
        least: list[Scalar] = [-NOWHERE, 0.0]
        for k, p in enumerate(points):
            height = select(logical_or(*(_same(p, q) for q in points[k + 1 :])), NOWHERE, dot(p, n))
            least = choose(height > least[0], [height, float(k)], least)
        return {
            "points": [choose(absolute(least[1] - k) < 0.5, new, p) for k, p in enumerate(points)],
            "edges": float(len(edges)),
            "beside": select(better, 1.0, NARROWS) * c["beside"],
            "best": choose(better, [further, *best], c["best"]),
            "go": logical_and(found, logical_not(logical_and(known, better))),
        }

    def polished(spot: list[Scalar]) -> list[Scalar]:
        at = [shape.seen(mesh.vertex(v)) for v in numbers]
        best = [-spot[0], *near, SEARCHED, *zeros(3)]
        start = {"points": [at[0], *at], "edges": 3.0, "beside": BESIDE, "best": best, "go": True}
        return _spot(shape, count_while(lambda i, c: c["go"], step, start, ROUNDS)["best"], spot)

    flat = logical_and(shape.box[2] > 0.0, norm(near[:2]) < FLAT)
    return when_any(logical_and(spot[0] < margin, logical_not(flat)), polished, spot)


def polish_prism(shape: Hull, corners: list[list[Scalar]], spot: list[Scalar], margin: Scalar) -> list[Scalar]:
    """Return the spot of an ellipsoid or a cylinder and a prism of six corners to rounding, from where a search found
    it to be. Its normal is from the prism to the shape.

    corners: three, then three that are opposite to them.
    """
    parts = _Round(shape.radii, shape.box[2])
    edges = [(0, 1), (1, 2), (2, 0), (3, 4), (4, 5), (5, 3), (0, 3), (1, 4), (2, 5)]
    faces = [(0, 1, 2), (3, 4, 5), (0, 1, 3), (1, 2, 4), (2, 0, 5)]

    def polished(spot: list[Scalar]) -> list[Scalar]:
        turned = [*spot[:4], *scale(spot[4:], -1.0)]
        near = [dot(axis, turned[4:]) for axis in shape.axes]
        points = [shape.seen(p) for p in corners]
        best = _best(parts, points, [*near, BESIDE], edges, float(len(edges)), faces, not is_zero(margin))
        found = _spot(shape, best, turned)
        better = best[0] < WORSE - spot[0]
        return choose(better, [*found[:4], *scale(found[4:], -1.0)], spot)

    return when_any(spot[0] < margin, polished, spot)


def _same(p: Vec, q: Vec) -> Mask:
    way = sub(p, q)
    return dot(way, way) < CLOSE * CLOSE


def _spot(shape: Hull, best: list[Scalar], spot: list[Scalar]) -> list[Scalar]:
    """Return dist, point and normal of the best normal, or the search's spot if that is the best."""
    parts, (reach, x, y, z, kind, *at) = _Round(shape.radii, shape.box[2]), best
    n = [x, y, z]
    end = add_scaled(parts.bulge(n), Z, select(z > 0.0, parts.half, -parts.half))
    middle = choose(kind > 0.5 * CORNER, add_scaled(at, n, 0.5 * reach), add_scaled(end, n, -0.5 * reach))
    return choose(kind > 0.5 * SEARCHED, [-reach, *add(shape.centre, shape.turned(middle)), *shape.turned(n)], spot)
