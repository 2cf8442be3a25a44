"""Finds where two convex shapes are nearest if their cores are apart: the GJK algorithm.

Words and letters are as in `convex`.
"""

from __future__ import annotations

from typing import Any

from ....compiler.control import choose_all, while_any
from ....compiler.scalar import Mask, Scalar, logical_and, maximum, select, sqrt
from ...algebra.spatial import MINVAL, add_scaled, dot, norm, scale, sub
from .hull import Hull, difference

TOLERANCE = 1e-6  # metres: ccd_tolerance
STEPS = 70
GAP = 1e-12  # share of the squared distance that may remain between the nearest point and the bound from below


def nearest(one: Hull, two: Hull, margin: Scalar) -> tuple[Mask, list[Scalar]]:
    """Find the spot where two shapes are nearest: a mask of the worlds where their cores are apart, and the spot there.

    x is in a triangle of points of C. A point of C that is further towards the origin takes the place of one of them.
    """
    apart, spot, _ = nearest_corners(one, two, margin)
    return apart, spot


def nearest_corners(one: Hull, two: Hull, margin: Scalar) -> tuple[Mask, list[Scalar], list[list[Scalar]]]:
    """Find mask and spot as `nearest` does, and the triangle's corners: w and a.

    If fewer than three define the nearest point, some corners are equal.
    """
    return _nearest(one, two, margin, False)


def nearest_face(one: Hull, two: Hull, margin: Scalar) -> tuple[Mask, list[Scalar], list[list[Scalar]]]:
    """Find mask and spot as `nearest` does, and the triangle's corners: w, a and the numbers of both shapes' corners.

    If fewer than three define the nearest point, some corners are equal.
    """
    return _nearest(one, two, margin, True)


def _nearest(one: Hull, two: Hull, margin: Scalar, numbered: bool) -> tuple[Mask, list[Scalar], list[list[Scalar]]]:
    def further(x: list[Scalar]) -> list[Scalar]:
        """Return the point w of C furthest in the direction from x to the origin, its a and, if `numbered`, both
        corners' numbers.
        """
        n = scale(x, -1.0 / maximum(norm(x), MINVAL))
        return difference(one, two, n, [0.0, 0.0], numbered)

    reach = one.skin + two.skin + margin  # what is further away does not touch
    first = further(sub(one.centre, two.centre))
    square = dot(first[:3], first[:3])
    start = {"points": [first] * 3, "x": first[:3], "a": first[3:6], "square": square}
    start["go"] = square > TOLERANCE * TOLERANCE

    def step(c: dict[str, Any]) -> dict[str, Any]:
        s = further(c["x"])
        bound = dot(c["x"], s[:3])
        open_ = logical_and(c["square"] - bound > c["square"] * GAP, bound < reach * sqrt(c["square"]))
        best = _nearest_with(s, c["points"])
        better = logical_and(open_, best["square"] < c["square"])
        new = {key: choose_all(better, best[key], c[key]) for key in ("points", "x", "a", "square")}
        return new | {"go": logical_and(better, new["square"] > TOLERANCE * TOLERANCE)}

    c = while_any(lambda c: c["go"], step, start, STEPS)
    x, a, distance = c["x"], c["a"], sqrt(c["square"])
    n = scale(x, -1.0 / maximum(distance, MINVAL))
    apart = logical_and(distance > TOLERANCE, dot(x, further(x)[:3]) > 0.0)
    dist = distance - (one.skin + two.skin)
    point = add_scaled(a, n, one.skin + 0.5 * dist)
    return apart, [dist, *point, *n], c["points"]


def _nearest_with(s: list[Scalar], points: list[list[Scalar]]) -> dict[str, Any]:
    """Find the point nearest to the origin on the triangles of s and two of three points, if it is not on a side
    without s.

    Return the point, and the three points of which it is a mean.
    """
    best: dict[str, Any] = {"points": [s, s, s], "x": s[:3], "a": s[3:6], "square": dot(s[:3], s[:3])}

    def offer(there: Mask, others: list[list[Scalar]], shares: list[Scalar]) -> None:
        at = list(s)
        for p, share in zip(others, shares, strict=True):
            at = [x + (y - z) * share for x, y, z in zip(at, p, s, strict=True)]
        square = dot(at[:3], at[:3])
        nearer = logical_and(there, square < best["square"])
        new = {"points": [s, others[0], others[-1]], "x": at[:3], "a": at[3:6], "square": square}
        for key, x in new.items():
            best[key] = choose_all(nearer, x, best[key])

    ways = [sub(p[:3], s[:3]) for p in points]
    along = [-dot(way, s[:3]) for way in ways]
    squares = [dot(way, way) for way in ways]
    for p, t, square in zip(points, along, squares, strict=True):
        there = logical_and(t > 0.0, t < square)
        offer(there, [p], [t / select(there, square, 1.0)])
    for i, j in ((0, 1), (0, 2), (1, 2)):
        between = dot(ways[i], ways[j])
        area = squares[i] * squares[j] - between * between
        u, v = along[i] * squares[j] - along[j] * between, along[j] * squares[i] - along[i] * between
        there = logical_and(area > MINVAL * squares[i] * squares[j], u > 0.0, v > 0.0, u + v < area)
        safe = select(there, area, 1.0)
        offer(there, [points[i], points[j]], [u / safe, v / safe])
    return best
