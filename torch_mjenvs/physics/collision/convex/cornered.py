"""Finds to rounding where an ellipsoid or a cylinder touches a shape with nothing but corners, from where a search ended.

Only few corners count there: those of the search's last face. C, the difference of the round shape and these corners,
reaches least far along the normal of one of its smooth parts. These are

    a face of the corners       the normal is the face's
    an edge, or a corner        Newton's method turns the normal about the edge, or any way
    an end of a cylinder        it is the axis
    a side of a cylinder and an edge     it is at right angles to both
    a side of a cylinder and a corner    Newton's method turns it about the axis

All are tried. If the whole shape has a corner that reaches further along the best normal, it takes the place of one of
the corners, and all is tried again.

All is seen in the round shape's axes, from its centre.

n unit vector from the round shape to the other   p corner of the other   z the cylinder's axis
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ....compiler.arrays import Array, Table
from ....compiler.control import count_while, repeat, when_any
from ....compiler.scalar import Mask, Scalar, absolute, clip, logical_and, logical_not, logical_or, maximum, select
from ...algebra.spatial import MINVAL, Vec, add_scaled, choose, cross, dot, is_zero, norm, scale, sub, unit, zeros
from .hull import Hull

ROUNDS = 8  # one or two mostly suffice
STEPS = 4  # of Newton's method
FARTHEST = 0.1  # radians: the most that a step turns
BESIDE = 0.98  # cosine of the most that n may be off the search's normal
CLOSE = 1e-5  # metres: two corners that are this near are one
WORSE = 1e-6  # metres: MuJoCo's tolerance; a contact that is found to be this much deeper is another one
SHORT = 1e-12  # metres, and the square of a sine: an edge that is shorter, or a face that is narrower, is none
Z = [0.0, 0.0, 1.0]


@dataclass(frozen=True)
class _Round:
    """An ellipsoid with these radii or, where half is not 0, a cylinder of this length."""

    radii: Vec
    half: Scalar

    def bulge(self, n: Vec) -> list[Scalar]:
        """Return the ellipsoid's furthest point along n."""
        local = [x * r for x, r in zip(n, self.radii, strict=True)]
        length = maximum(norm(local), MINVAL)
        return [x * r / length for x, r in zip(local, self.radii, strict=True)]

    def reach(self, n: Vec) -> Scalar:
        """Return how far the shape reaches along n."""
        return norm([x * r for x, r in zip(n, self.radii, strict=True)]) + self.half * absolute(n[2])

    def turned(self, n: Vec, axis: Vec, p: Vec, end: Scalar) -> list[Scalar]:
        """Return n at right angles to `axis` along which the shape and the corner p reach least far, nearby.

        end: which of a cylinder's ends is furthest along n, 1 or -1, or 0 where n is across its axis.
        """
        n = unit(add_scaled(n, axis, -dot(axis, n)))
        for _ in range(STEPS):
            t = cross(axis, n)
            w, far = self._difference(n, p, end)
            bend = self._bend(n, t, far) - dot(w, n)
            turn = clip(-dot(w, t) / maximum(absolute(bend), MINVAL), -FARTHEST, FARTHEST)
            n = unit(add_scaled(n, t, turn))
        return n

    def free(self, n: Vec, p: Vec, end: Scalar) -> list[Scalar]:
        """Return n along which the shape and the corner p reach least far, nearby."""
        for _ in range(STEPS):
            steep = absolute(n[0]) < 0.7
            first = unit(cross([select(steep, 1.0, 0.0), select(steep, 0.0, 1.0), 0.0], n))
            second = cross(n, first)
            w, far = self._difference(n, p, end)
            depth = dot(w, n)
            x, y = dot(w, first), dot(w, second)
            a, c = (self._bend(n, t, far) - depth for t in (first, second))
            b = self._bend(n, first, far, second)
            area = a * c - b * b
            over = 1.0 / select(absolute(area) < MINVAL, MINVAL, area)
            turns = [clip(k * over, -FARTHEST, FARTHEST) for k in (b * y - c * x, b * x - a * y)]
            n = unit(add_scaled(add_scaled(n, first, turns[0]), second, turns[1]))
        return list(n)

    def _difference(self, n: Vec, p: Vec, end: Scalar) -> tuple[list[Scalar], Vec]:
        far = self.bulge(n)
        return sub(add_scaled(far, Z, end * self.half), p), far

    def _bend(self, n: Vec, t: Vec, far: Vec, u: Vec | None = None) -> Scalar:
        """Return how fast the ellipsoid's furthest point `far` moves along u if n turns towards t."""
        u = u or t
        squares = [r * r for r in self.radii]
        both = sum(x * y * s for x, y, s in zip(t, u, squares, strict=True))
        return (both - dot(far, t) * dot(far, u)) / maximum(dot(far, n), MINVAL)


class _Corners:
    """The corners that count, in the round shape's axes, and candidates for the best normal."""

    def __init__(self, shape: _Round, points: list[list[Scalar]], about: Vec, is_apart: bool):
        self.shape, self.points, self.about, self.is_apart = shape, points, about, is_apart
        self.rows = Array.fixed(points)

    def best(self, edges: Sequence[tuple[int, int]], faces: Sequence[tuple[int, int, int]]) -> list[Scalar]:
        """Return the best candidate of these edges, these faces and all corners: how far C reaches along it, n, whether
        the spot is at a corner or an edge, and where there.
        """
        shape, is_long = self.shape, not is_zero(self.shape.half)
        best: list[Scalar] = [1e10, *self.about, 0.0, *zeros(3)]
        if is_long:
            axis = scale(Z, select(self.about[2] > 0.0, 1.0, -1.0))
            best = self._better(best, axis, shape.half > 0.0, self._furthest(axis))
        for i, j, k in faces:
            p, q, r = (self.points[x] for x in (i, j, k))
            n = cross(sub(q, p), sub(r, p))
            length = norm(n)
            n = scale(n, select(dot(n, self.about) > 0.0, 1.0, -1.0) / maximum(length, MINVAL))
            best = self._better(best, n, length > SHORT, None)
        firsts, seconds = (Table([edge[k] for edge in edges]) for k in range(2))

        def of_edge(m: Any, best: list[Scalar]) -> list[Scalar]:
            p, q = (self.rows[x[m], :] for x in (firsts, seconds))
            way = sub(q, p)
            length = norm(way)
            axis, there = scale(way, 1.0 / maximum(length, MINVAL)), length > SHORT
            for end in (1.0, -1.0) if is_long else (0.0,):
                best = self._better(best, shape.turned(self.about, axis, p, end), there, None)
            if is_long:  # level with both
                n = cross(axis, Z)
                square = dot(n, n)
                n = scale(n, select(dot(n, self.about) > 0.0, 1.0, -1.0) / maximum(norm(n), MINVAL))
                across = cross(Z, n)
                share = -dot(across, p) / select(square > SHORT, dot(across, axis), 1.0)
                best = self._better(best, n, logical_and(there, square > SHORT), add_scaled(p, axis, share))
            return best

        def of_corner(m: Any, best: list[Scalar]) -> list[Scalar]:
            p = self.rows[m, :]
            if is_long:
                best = self._better(best, shape.turned(self.about, Z, p, 0.0), shape.half > 0.0, p)
            if not is_long or self.is_apart:
                for end in (1.0, -1.0) if is_long else (0.0,):
                    best = self._better(best, shape.free(self.about, p, end), True, p)
            return best

        return repeat(len(self.points), of_corner, repeat(len(edges), of_edge, best))

    def _furthest(self, n: Vec) -> list[Scalar]:
        """Return the corner that is furthest against n."""
        best = self.points[0]
        for p in self.points[1:]:
            best = choose(dot(p, n) < dot(best, n), p, best)
        return best

    def reach(self, n: Vec) -> Scalar:
        """Return how far C reaches along n."""
        low = dot(self.points[0], n)
        for p in self.points[1:]:
            low = select(dot(p, n) < low, dot(p, n), low)
        return self.shape.reach(n) - low

    def _better(self, best: list[Scalar], n: Vec, known: Mask, at: list[Scalar] | None) -> list[Scalar]:
        """Return the candidate n, if C reaches less far along it than `best` does, and it is known and nearby. at: of
        the spot, on a corner or edge.
        """
        reach = self.reach(n)
        new = [reach, *n, *([0.0, *zeros(3)] if at is None else [1.0, *at])]
        return choose(logical_and(known, dot(n, self.about) > BESIDE, reach < best[0]), new, best)


def polish_mesh(shape: Hull, mesh: Hull, spot: list[Scalar], numbers: list[Scalar], margin: Scalar) -> list[Scalar]:
    """Return the spot of an ellipsoid or a cylinder and a mesh to rounding, from where a search found it to be.

    numbers: of the mesh's three corners that touch there.
    """
    parts, edges = _Round(shape.radii, shape.box[2]), list(itertools.combinations(range(4), 2))
    faces = list(itertools.combinations(range(4), 3))
    about = [dot(axis, spot[4:]) for axis in shape.axes]
    at = [shape.seen(mesh.vertex(v)) for v in numbers]

    def polished(spot: list[Scalar]) -> list[Scalar]:
        def step(_: Any, c: dict[str, Any]) -> dict[str, Any]:
            points = c["points"]
            corners = _Corners(parts, points, about, not is_zero(margin))
            best = corners.best(edges, faces)
            n = best[1:4]
            new = shape.seen(mesh.furthest(scale(shape.turned(n), -1.0)))
            reach = parts.reach(n) - dot(new, n)
            near = [dot(sub(new, p), sub(new, p)) < CLOSE * CLOSE for p in points]
            known = logical_and(logical_or(*near), best[0] < 1e9)
            better = logical_or(reach < c["best"][0], logical_and(known, reach < c["best"][0] + WORSE))
            better = logical_and(better, best[0] < 1e9)
            # the corner that counts least makes way, or one that is as good as the new one
            worst: list[Scalar] = [-1e10, 0.0]
            for k, p in enumerate(points):
                height = dot(p, n)
                worst = choose(height > worst[0], [height, float(k)], worst)
            moved = [
                choose(absolute(worst[1] - k) < 0.5, new, p) for k, p in enumerate(points)
            ]
            return {
                "points": moved,
                "best": choose(better, [reach, *best[1:]], c["best"]),
                "go": logical_not(logical_or(known, best[0] > 1e9)),
            }

        start = {"points": [*at, at[0]], "best": [-spot[0], *about, -1.0, *zeros(3)], "go": True}
        c = count_while(lambda i, c: c["go"], step, start, ROUNDS)
        return _spot_of(shape, parts, c["best"], spot)

    return when_any(spot[0] < margin, polished, spot)


def _spot_of(shape: Hull, parts: _Round, best: list[Scalar], spot: list[Scalar]) -> list[Scalar]:
    reach, *n = best[:4]
    kind, at = best[4], best[5:]
    a = add_scaled(parts.bulge(n), Z, select(n[2] > 0.0, parts.half, -parts.half))
    at = choose(kind > 0.5, add_scaled(at, n, 0.5 * reach), add_scaled(a, n, -0.5 * reach))
    out = [x + y for x, y in zip(shape.centre, shape.turned(at), strict=True)]
    return choose(kind > -0.5, [-reach, *out, *shape.turned(n)], spot)
