"""How deep a box is in a prism of a height field, as MuJoCo finds it.

MuJoCo knows a box's corners by numbers, but a prism's not. Where it should see that a point of C's polytope was found
again, it takes any point with the same corner of the box for it. So it may stop at a face that is inside of C: mostly
the depth is too small, and the normal another one. What it gets depends on where it starts: hence `enclosing`. With a
margin it goes on to the end.
"""

from __future__ import annotations

from typing import Any

from ..compiler.control import count_while, when_any
from ..compiler.rooms import Room, number
from ..compiler.scalar import Mask, Scalar, absolute, logical_not, logical_or, maximum, select
from .colliders import NEVER
from .deepest import _close, _lesser, _plane, _see, _shares, deepest
from .enclosing import enclose
from .hull import Hull
from .prisms import touch_core
from .spatial import add_scaled, dot, scale, sub, zeros

MOST = 4 + 8  # points: of those that are added, no two have the same corner of the box


def touch_box(prism: Any, box: Hull, margin: Scalar) -> list[Scalar]:
    """The spot of a prism and a box."""
    never = [NEVER, *zeros(6)]
    exactly = margin > 0.0
    spot = when_any(exactly, lambda _: touch_core(prism, box, margin), never)
    return when_any(logical_not(exactly), lambda _: _touch(prism, box), spot)


def _touch(prism: Any, box: Hull) -> list[Scalar]:
    def furthest(n: list) -> list[Scalar]:
        """w, a, and the number of the box's corner."""
        a, back = prism.furthest(n), scale(n, -1.0)
        bits = [select(dot(axis, back) >= 0.0, float(1 << k), 0.0) for k, axis in enumerate(box.axes)]
        return [*sub(a, box.furthest(back)), *a, sum(bits)]

    apart, lost, corners = enclose(furthest, sub(prism.centre, box.centre))
    spot = when_any(
        logical_not(logical_or(apart, lost)), lambda _: _deepest_known(furthest, corners), [NEVER, *zeros(6)]
    )
    return when_any(lost, lambda _: deepest(prism, box, 0.0), spot)


def _deepest_known(furthest: Any, corners: list[list[Scalar]]) -> list[Scalar]:
    """The face nearest to the origin when a corner of the box comes again."""
    sides = [
        [*map(float, abc), *_plane(*(corners[v][:3] for v in abc))]
        for abc in ((0, 1, 2), (0, 2, 3), (0, 3, 1), (1, 3, 2))
    ]
    points, faces = Room(MOST, 7, corners), Room(2 * MOST, 7, sides)
    edges, seen = Room(3 * faces.shape.rows, 2), Room(faces.shape.rows, 1)

    def step(i: Any, c: dict) -> dict:
        face, depth = count_while(
            lambda k, f: number(k) < c["faces"],
            lambda k, f: _lesser([number(k), *faces.at(k, [6])], f),
            [0.0, 1e10],
            faces.shape.rows,
        )
        abc, n = faces.at(face, range(3)), faces.at(face, range(3, 6))
        new = furthest(n)

        def look(k: Any, known: Mask) -> Mask:
            (corner,) = points.at(k, [6])
            return logical_or(known, absolute(corner - new[6]) < 0.5)

        go = logical_not(count_while(lambda k, _: number(k) < c["points"], look, False, MOST))
        count = _see(faces, edges, seen, c["faces"], new[:3], go)
        made = _close(points, faces, edges, seen, c, count, new[:3])
        points.put(c["points"], new, go)
        return {
            "go": go,
            "abc": abc,
            "n": n,
            "depth": depth,
            "points": c["points"] + select(go, 1.0, 0.0),
            "faces": c["faces"] + maximum(made - count, 0.0),
        }

    start = {"go": True, "abc": zeros(3), "n": zeros(3), "depth": 0.0, "points": 4.0, "faces": 4.0}
    c = count_while(lambda i, c: c["go"], step, start, MOST - 4, [points, faces, edges, seen])
    x = scale(c["n"], c["depth"])
    at = [points.at(k, range(6)) for k in c["abc"]]
    shares = _shares([p[:3] for p in at], x)
    a = [dot(shares, [p[k] for p in at]) for k in (3, 4, 5)]
    return [-c["depth"], *add_scaled(a, x, -0.5), *c["n"]]
