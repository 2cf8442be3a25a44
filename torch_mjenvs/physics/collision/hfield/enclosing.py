"""Four points of C around the origin, where two convex shapes overlap: those that MuJoCo's gjk and gjkIntersect find.

Which ones they are matters where what follows stops early (see `field_corners`). Words and letters are as in `convex`.
A point is w and whatever else `furthest` gives.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....compiler.control import choose_all, while_any
from ....compiler.scalar import Mask, Scalar, logical_and, logical_not, logical_or, maximum, select
from ...algebra.spatial import MINVAL, choose, cross, dot, norm, scale, sub

STEPS = 35  # ccd_iterations

Point = list[Scalar]
Furthest = Callable[[list[Scalar]], Point]


def enclose(furthest: Furthest, x: list[Scalar]) -> tuple[Mask, Mask, list[Point]]:
    """Find two masks, and four points of C around the origin, of which the first three are a face that looks away from
    the last one.

    The first mask is of the worlds where C turned out to be apart from the origin, the second of those where neither
    this nor such points were found. x is any point of C.
    """
    apart, lost, points = _spread(furthest, x)
    apart, lost, points = _surround(furthest, apart, lost, points)
    a, b, c, d = points
    turned = dot(cross(sub(b[:3], a[:3]), sub(c[:3], a[:3])), sub(d[:3], a[:3])) > 0.0
    return apart, lost, [a, choose(turned, c, b), choose(turned, b, c), d]


def _spread(furthest: Furthest, x: list[Scalar]) -> tuple[Mask, Mask, list[Point]]:
    """Find both masks of `enclose`, and four points of C that may or may not be around the origin.

    Each point is the furthest towards the origin from the point that is nearest to it among the means of the points
    before. Those that this mean does not need are dropped.
    """
    first = _towards(furthest, x)
    apart = dot(x, first[:3]) > 0.0
    second = _towards(furthest, first[:3])  # of one point and another, the mean nearest to the origin is on the way
    kept, points, at = _of_two(first, second)
    there = logical_or(apart, dot(first[:3], second[:3]) > 0.0)

    def step(c: dict[str, Any]) -> dict[str, Any]:
        new = _towards(furthest, c["x"])
        apart = dot(c["x"], new[:3]) > 0.0
        full = c["count"] > 2.5
        p, q, _ = c["points"]
        one, two = _of_two(p, new), _of_three(p, q, new)
        kept, points, at = choose_all(c["count"] < 1.5, one, two)
        there = logical_or(apart, full)
        return {
            "go": logical_not(there),
            "apart": apart,
            "count": select(there, c["count"], kept),
            "points": [choose(there, p, q) for p, q in zip(c["points"], points, strict=True)],
            "last": new,
            "x": choose(there, c["x"], at),
        }

    start = {"apart": there, "count": kept, "points": points, "last": second, "x": at, "go": logical_not(there)}
    c = while_any(lambda c: c["go"], step, start, STEPS - 1)
    return c["apart"], c["go"], [*c["points"], c["last"]]


def _towards(furthest: Furthest, x: list[Scalar]) -> Point:
    """Return the furthest point of C from x on, towards the origin."""
    return furthest(scale(x, -1.0 / maximum(norm(x), MINVAL)))


def _of_two(p: Point, q: Point) -> list[Any]:
    """Return the mean of two points nearest to the origin: how many it needs, these (filled up to 3), and the mean."""
    way = sub(q[:3], p[:3])
    share = -dot(p[:3], way) / maximum(dot(way, way), MINVAL * MINVAL)
    between = logical_and(share > 0.0, share < 1.0)
    at = choose(between, [x + y * share for x, y in zip(p[:3], way, strict=True)], q[:3])
    return [select(between, 2.0, 1.0), [choose(between, p, q), q, q], at]


def _of_three(p: Point, q: Point, r: Point) -> list[Any]:
    """Return the mean of three points nearest to the origin, in the form of `_of_two`."""
    n = cross(sub(q[:3], p[:3]), sub(r[:3], p[:3]))
    square = maximum(dot(n, n), MINVAL * MINVAL)
    at = scale(n, dot(n, p[:3]) / square)
    shares = [dot(cross(sub(b[:3], at), sub(c[:3], at)), n) / square for b, c in ((q, r), (r, p), (p, q))]
    inside = logical_and(*(share > 0.0 for share in shares))
    best: Any = [1e10, [1.0, [p, p, p], p[:3]]]
    for share, (b, c) in zip(shares, ((q, r), (p, r), (p, q)), strict=True):
        found = _of_two(b, c)
        far = dot(found[2], found[2])
        best = choose_all(logical_and(share <= 0.0, far < best[0]), [far, found], best)
    return choose_all(inside, [3.0, [p, q, r], at], best[1])


def _surround(furthest: Furthest, apart: Mask, lost: Mask, points: list[Point]) -> tuple[Mask, Mask, list[Point]]:
    """Find both masks and the points of `enclose`, starting from those of `_spread`.

    The origin is furthest outside of one of the four sides. The point opposite this side makes way for the furthest
    point of C in front of it.
    """

    def sides(points: list[Point]) -> list[list[Scalar]]:
        """Return for each point how far the others' plane is from the origin, and its normal away from the point."""
        out = []
        for k in range(4):
            a, b, c = (points[j][:3] for j in range(4) if j != k)
            n = cross(sub(b, a), sub(c, a))
            away = select(dot(n, sub(a, points[k][:3])) < 0.0, -1.0, 1.0)
            n = scale(n, away / maximum(norm(n), MINVAL))
            out.append([dot(n, a), *n])
        return out

    def step(c: dict[str, Any]) -> dict[str, Any]:
        found = [[*side, float(k)] for k, side in enumerate(sides(c["points"]))]
        least = found[0]
        for side in found[1:]:
            least = choose(side[0] < least[0], side, least)
        inside = least[0] > 0.0
        new = furthest(least[1:4])
        apart = logical_and(logical_not(inside), dot(least[1:4], new[:3]) < 0.0)
        go = logical_not(logical_or(inside, apart))
        moved = [logical_and(go, least[4] > k - 0.5, least[4] < k + 0.5) for k in range(4)]
        return {
            "go": go,
            "apart": apart,
            "points": [choose(mask, new, p) for mask, p in zip(moved, c["points"], strict=True)],
        }

    start = {"go": logical_not(logical_or(apart, lost)), "apart": apart, "points": points}
    c = while_any(lambda c: c["go"], step, start, STEPS)
    return c["apart"], logical_or(lost, c["go"]), c["points"]
