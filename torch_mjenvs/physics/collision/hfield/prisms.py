"""The prisms that a height field consists of: a triangle of its surface, down to the base."""

from __future__ import annotations

import copy
from typing import Any

from ....compiler.control import when_any
from ....compiler.scalar import Scalar, logical_not, maximum, select
from ...algebra.spatial import Vec, add_scaled, choose, dot, scale, zeros
from ..convex.deepest import deepest
from ..convex.hull import Hull
from ..convex.nearest import nearest


class Prism:
    """A prism of a height field, in the role of a `Hull` for the search of nearest and deepest points."""

    def __init__(self, tops: list[list[Scalar]], bottom: Scalar):
        self.tops, self.bottom, self.skin, self.radii = tops, bottom, 0.0, zeros(3)
        x, y, height = (sum(top[k] for top in tops) for k in range(3))
        self.centre = scale([x, y, 0.5 * (height + 3.0 * bottom)], 1.0 / 3.0)

    def furthest(self, n: Vec, skin: Scalar = 0.0) -> list[Scalar]:
        """The furthest point in direction n, a unit vector, with a skin of this thickness."""
        up = n[2] >= 0.0
        corners = [[x, y, select(up, z, self.bottom)] for x, y, z in self.tops]
        out, far = corners[0], dot(corners[0], n)
        for corner in corners[1:]:
            further = dot(corner, n)
            out, far = choose(further > far, corner, out), maximum(further, far)
        return [x + y * skin for x, y in zip(out, n, strict=True)]

    def corner(self, n: Vec, skin: Scalar = 0.0) -> list[Scalar]:
        """The furthest point in direction n, and the number that MuJoCo has for all corners of a prism."""
        return [*self.furthest(n, skin), 0.0]


def touch_core(prism: Any, hull: Hull, margin: Scalar) -> list[Scalar]:
    """Find the spot of a prism and a shape that is a core with a skin: a sphere, a capsule, a box or a mesh.

    Where the core is in the prism, the shape is as deep as the core and its skin.
    """

    def deep(_: Any) -> list[Scalar]:
        dist, *place = deepest(prism, core, 0.0)
        return [dist - hull.skin, *add_scaled(place[:3], place[3:], -0.5 * hull.skin), *place[3:]]

    core = copy.copy(hull)
    core.skin = 0.0
    apart, spot = nearest(prism, hull, margin)
    return when_any(logical_not(apart), deep, spot)
