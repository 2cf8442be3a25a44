"""Finds the depth of a box or a mesh in a prism of a height field as MuJoCo does.

MuJoCo numbers the corners of boxes and meshes, but not those of a prism. When it checks whether it has found a point of
C's polytope again, any point with the same corner of the box passes for it. So it may stop at a face that is inside of
C: mostly the depth is then too small, and the normal another one. The result depends on where it starts, hence
`enclosing`. With a margin it goes on to the end.

Robots with box-shaped feet walk on such ground: MuJoCo Playground's Berkeley Humanoid and Unitree G1 on rough terrain.
"""

from __future__ import annotations

from typing import Any

from ....compiler.control import when_any
from ....compiler.implicit import for_derivatives
from ....compiler.scalar import Scalar, logical_not, logical_or
from ...algebra.spatial import sub, zeros
from ..colliders import NEVER
from ..convex.closed_form import PICKED, picked
from ..convex.deepest import deepest_corners, deepest_from
from ..convex.hull import Hull, difference
from .enclosing import enclose
from .prisms import touch_core


def touch_cornered(prism: Any, hull: Hull, margin: Scalar) -> list[Scalar]:
    """Find the spot of a prism and a box or mesh."""
    never = [NEVER, *zeros(6), *for_derivatives(lambda: zeros(PICKED))]
    exactly = margin > 0.0
    spot = when_any(exactly, lambda _: touch_core(prism, hull, margin), never)
    return when_any(logical_not(exactly), lambda _: _touch(prism, hull), spot)


def _touch(prism: Any, hull: Hull) -> list[Scalar]:
    start = sub(prism.centre, hull.centre)
    never = [[NEVER, *zeros(6)], [zeros(6)] * 3]
    apart, lost, points = enclose(lambda n: difference(prism, hull, n, [0.0, 0.0], True), start)

    def around(_: Any) -> list[Any]:
        spot, corners = deepest_from(prism, hull, points)
        return [spot, [p[:6] for p in corners]]

    found = when_any(logical_not(logical_or(apart, lost)), around, never)
    spot, corners = when_any(lost, lambda _: list(deepest_corners(prism, hull, 0.0)), found)
    return [*spot, *for_derivatives(lambda: picked(prism, hull, False, corners))]
