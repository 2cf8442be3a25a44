"""A convex shape as its furthest point in any direction, which is all that GJK and EPA know of it."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from ....compiler.scalar import Scalar, maximum, select
from ...algebra.spatial import MINVAL, Vec, add_scaled, column, dot, is_zero, norm, scale, sub
from ..colliders import Geom
from ..solids import Cells, furthest_vertex


class Hull:
    """A geom as its furthest points: the corner of a box or the vertex of a mesh, plus the furthest point of an
    ellipsoid, plus a skin.
    """

    def __init__(self, geom: Geom):
        size = geom.size
        self.axes = [column(geom.mat, k) for k in range(3)]
        self.centre = geom.centre
        self.box = [size[k] for k in ("box_x", "box_y", "box_z")]
        self.radii = [size[k] for k in ("radius_x", "radius_y", "radius_z")]
        self.skin = size["skin"]
        self.cells = Cells(size["cells"], size["side"])
        self.solids = geom.solids
        self.epsilon = geom.epsilon

    @property
    def parts(self) -> list[Any]:
        """All that describes the hull except for where it is, as a carry of loops."""
        return [self.axes, self.box, self.radii, self.skin, list(self.cells)]

    def with_parts(self, parts: list[Any]) -> Hull:
        """Return a hull of other parts."""
        other = copy.copy(self)
        other.axes, other.box, other.radii, other.skin, cells = parts
        other.cells = Cells(*cells)
        return other

    def furthest(self, n: Vec, skin: Scalar = 0.0) -> list[Scalar]:
        """Return the furthest point in direction n, a unit vector, with a skin of this thickness."""
        return self.corner(n, skin)[:3]

    def corner(self, n: Vec, skin: Scalar = 0.0) -> list[Scalar]:
        """Return the furthest point in direction n, and the number of its corner or vertex (see `solids`)."""
        local = [dot(axis, n) for axis in self.axes]
        reach = [x * r for x, r in zip(local, self.radii, strict=True)]
        length = maximum(norm(reach), MINVAL)
        vertex = [0.0] * 4 if is_zero(self.cells.side) else furthest_vertex(self.solids, self.cells, local)
        known = vertex[3]
        out = add_scaled(self.centre, n, skin)
        bits: Scalar = 0.0
        for k, (axis, x, half) in enumerate(zip(self.axes, local, self.box, strict=True)):
            at = vertex[k]
            if not is_zero(half):
                at = at + select(x >= 0.0, half, -half)
                bits = bits + select(x >= 0.0, select(half > 0.0, float(1 << k), 0.0), 0.0)
            if not is_zero(self.radii[k]):
                at = at + self.radii[k] * reach[k] / length
            out = add_scaled(out, axis, at)
        return [*out, known if is_zero(bits) else select(self.cells.side > 0.0, known, bits)]

    def turned(self, x: Vec) -> list[Scalar]:
        """Return a vector in the hull's axes as it is in the world's (3)."""
        return [dot([axis[k] for axis in self.axes], x) for k in range(3)]

    def vertex(self, v: Scalar) -> list[Scalar]:
        """Return the position of the corner or vertex of this number (3)."""
        out = list(self.centre)
        for axis, at, half in zip(self.axes, self.solids.vertices[v], self.box, strict=True):
            out = add_scaled(out, axis, select(self.cells.side > 0.0, at, at * half))
        return out

    def seen(self, p: Vec) -> list[Scalar]:
        """Return the point p as seen from the centre, in the hull's axes (3)."""
        return [dot(axis, sub(p, self.centre)) for axis in self.axes]


def difference(one: Hull, two: Hull, n: Vec, skins: Sequence[Scalar], numbered: bool) -> list[Scalar]:
    """Return the furthest point of the difference of two shapes along n, and the point of the first that it comes from.

    If `numbered`, the numbers of both corners follow.
    """
    ends = (one, n, skins[0]), (two, scale(n, -1.0), skins[1])
    a, b = (hull.corner(out, skin) if numbered else hull.furthest(out, skin) for hull, out, skin in ends)
    return [*sub(a[:3], b[:3]), *a[:3], *a[3:], *b[3:]]
