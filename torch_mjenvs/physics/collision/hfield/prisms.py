"""The prisms that a height field consists of: a triangle of its surface, down to the base."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any

from ....compiler.control import choose_all, when_any
from ....compiler.implicit import for_derivatives
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
    select,
    sqrt,
)
from ...algebra.spatial import (
    MINVAL,
    Vec,
    add,
    add_scaled,
    choose,
    column,
    cross,
    dot,
    is_zero,
    mat_vec,
    norm,
    scale,
    sub,
    zeros,
)
from ..colliders import SLACK, Geom
from ..convex.closed_form import PICKED, picked
from ..convex.cornered import polish_prism
from ..convex.deepest import deepest, deepest_corners
from ..convex.hull import Hull
from ..convex.nearest import nearest_corners

SOMEWHERE: list[Vec] = [[0.0, 0.0, 0.0], [0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]  # in place of tops where there are none


class Prism:
    """A prism of a height field, in the role of a `Hull` for the search of nearest and deepest points.

    local: where it is seen from, in the field's own frame.
    """

    def __init__(self, tops: list[list[Scalar]], bottom: Scalar, local: Vec = (0.0, 0.0, 0.0)):
        self.tops, self.bottom, self.local, self.skin, self.radii = tops, bottom, local, 0.0, zeros(3)
        x, y, height = (sum(top[k] for top in tops) for k in range(3))
        self.centre = scale([x, y, 0.5 * (height + 3.0 * bottom)], 1.0 / 3.0)

    def furthest(self, n: Vec, skin: Scalar = 0.0) -> list[Scalar]:
        """Return the furthest point in direction n, a unit vector, with a skin of this thickness."""
        up = n[2] >= 0.0
        corners = [[x, y, select(up, z, self.bottom)] for x, y, z in self.tops]
        out, far = corners[0], dot(corners[0], n)
        for corner in corners[1:]:
            further = dot(corner, n)
            out, far = choose(further > far, corner, out), maximum(further, far)
        return [x + y * skin for x, y in zip(out, n, strict=True)]

    def seen(self, p: Vec) -> list[Scalar]:
        """Return the point p in the field's own frame (3)."""
        return add(p, self.local)

    def corner(self, n: Vec, skin: Scalar = 0.0) -> list[Scalar]:
        """Return the furthest point in direction n, and the number that MuJoCo has for all corners of a prism."""
        return [*self.furthest(n, skin), 0.0]


def is_apart(prism: Prism, hull: Hull, margin: Scalar) -> Mask:
    """Return where the top of the prism, or a face of the box around a shape, separates the two: a mask of worlds.

    This is far cheaper than the search for their nearest points. The shape's centre is the origin. The mask is False
    for meshes, as their vertices are in tables.
    """
    half = [x + r + hull.skin for x, r in zip(hull.box, hull.radii, strict=True)]
    margin = margin + SLACK * sum(half)
    n = cross(sub(prism.tops[1], prism.tops[0]), sub(prism.tops[2], prism.tops[0]))
    up = select(n[2] > 0.0, 1.0, -1.0)  # the corners go round it one way or the other
    lowest = margin * sum(absolute(x) for x in n)
    for axis, x in zip(hull.axes, half, strict=True):
        lowest = lowest + absolute(dot(axis, n)) * x
    found = [up * dot(n, prism.tops[0]) < -lowest]
    for axis, x in zip(hull.axes, half, strict=True):
        flat = [dot(axis[:2], top[:2]) for top in prism.tops]
        tops = [y + axis[2] * top[2] for y, top in zip(flat, prism.tops, strict=True)]
        bottom = axis[2] * prism.bottom
        low = minimum(_least(tops), _least(flat) + bottom)
        high = maximum(_greatest(tops), _greatest(flat) + bottom)
        found += [low > x + margin, high < -(x + margin)]
    apart = logical_or(*found)
    return apart if is_zero(hull.cells.side) else logical_and(apart, hull.cells.side < 0.5)


def _least(values: list[Scalar]) -> Scalar:
    return functools.reduce(minimum, values)


def _greatest(values: list[Scalar]) -> Scalar:
    return functools.reduce(maximum, values)


def touch_core(prism: Any, hull: Hull, margin: Scalar) -> list[Scalar]:
    """Find the spot of a prism and a shape that is a core with a skin: a sphere, a capsule, a box or a mesh.

    Where the core is in the prism, the shape is as deep as the core and its skin.
    """

    def deep(_: Any) -> list[Any]:
        (dist, *place), corners = deepest_corners(prism, core, 0.0)
        return [[dist - hull.skin, *add_scaled(place[:3], place[3:], -0.5 * hull.skin), *place[3:]], corners]

    core = copy.copy(hull)
    core.skin = 0.0
    apart, *known = nearest_corners(prism, hull, margin)
    spot, corners = when_any(logical_not(apart), deep, known)
    return [*spot, *for_derivatives(lambda: picked(prism, hull, apart, corners))]


def touch_round(prism: Any, hull: Hull, margin: Scalar) -> list[Scalar]:
    """Find the spot of a prism and an ellipsoid or a cylinder, to rounding."""
    corners = [*prism.tops, *([x, y, prism.bottom] for x, y, _ in prism.tops)]
    return polish_prism(hull, corners, deepest(prism, hull, margin), margin)


def touch_ball(prism: Prism, hull: Hull) -> list[Scalar]:
    """Find the spot of a prism and a sphere, whose centre is the origin: `touch_core`, worked out."""
    gap, n = _from_origin(prism, when_any)
    dist = gap - hull.skin

    def corners() -> list[Scalar]:
        seen = [prism.seen(p) for p in (*prism.tops, [0.0, 0.0, prism.bottom])]
        return [0.0, *(x for p in seen for x in p), *zeros(PICKED - 13)]

    return [dist, *scale(n, -0.5 * (gap + hull.skin)), *n, *for_derivatives(corners)]


def ball_spot(field: Geom, ball: Geom, picks: list[Scalar]) -> list[Scalar]:
    """Compute dist, point and normal of a sphere on a prism whose corners were picked."""
    hull, axes = Hull(ball), [column(field.mat, k) for k in range(3)]
    local = [dot(axis, sub(ball.centre, field.centre)) for axis in axes]
    tops, bottom = [picks[k : k + 3] for k in (1, 4, 7)], picks[12] - local[2]
    n = cross(sub(tops[1], tops[0]), sub(tops[2], tops[0]))
    nothing = dot(n, n) < MINVAL * MINVAL
    tops = [choose(nothing, any_, top) for any_, top in zip(SOMEWHERE, tops, strict=True)]
    tops = [sub(top, local) for top in tops]
    gap, n = _from_origin(Prism(tops, bottom, local), lambda mask, body, carry: choose_all(mask, body(carry), carry))
    at, way = (mat_vec(field.mat, scale(n, x)) for x in (-0.5 * (gap + hull.skin), 1.0))
    return [gap - hull.skin, *add(ball.centre, at), *way]


def _from_origin(prism: Prism, where: Callable[..., Any]) -> tuple[Scalar, list[Scalar]]:
    """Return how far the origin is out of a prism, and the unit vector there from the prism's nearest point.

    Inside it is the least distance to a face, negative. Outside, let h be the point of the prism's outline, seen from
    above, that is nearest to the origin. If the prism at h reaches from below the origin to above it, the nearest point
    is level with the origin; if it is all above the origin, the nearest point is at its bottom; if it is all below,
    somewhere on its top.

    where: `when_any`, or a function that does the same without a block.
    """
    sides = [_Side(u, v) for u, v in zip(prism.tops, [*prism.tops[1:], prism.tops[0]], strict=True)]
    a, b, c = prism.tops
    n = cross(sub(b, a), sub(c, a))
    turn = select(n[2] > 0.0, 1.0, -1.0)  # the corners go round it one way or the other
    n = scale(n, turn)
    rise = dot(n, a)
    foot = scale(n, rise / dot(n, n))  # of the top's plane
    over = logical_and(*(side.out(foot, turn) <= 0.0 for side in sides))
    among = logical_and(*(side.out([0.0, 0.0], turn) <= 0.0 for side in sides))

    beside, on_edge = sides[0].nearest(2), sides[0].nearest(3)
    for side in sides[1:]:
        beside, on_edge = (_nearer(x, side.nearest(k), k) for x, k in ((beside, 2), (on_edge, 3)))
    top = select(among, rise / n[2], beside[2])
    flat = choose(among, [0.0, 0.0], beside[:2])
    nearest = choose(top < 0.0, choose(over, foot, on_edge), [*flat, maximum(prism.bottom, 0.0)])
    inside = logical_and(among, top >= 0.0, prism.bottom <= 0.0)
    gap = norm(nearest)
    outside = [gap, *scale(nearest, -1.0 / maximum(gap, MINVAL))]

    def deep(_: Any) -> list[Scalar]:
        length = norm(n)
        best = [-rise / length, *scale(n, 1.0 / length)]
        for face in ([prism.bottom, 0.0, 0.0, -1.0], *(side.face(turn) for side in sides)):
            best = choose(face[0] > best[0], face, best)
        return best

    gap, *way = where(inside, deep, outside)
    return gap, way


class _Side:
    """A side of a prism, below the edge from the corner u to the corner v of its top."""

    def __init__(self, u: list[Scalar], v: list[Scalar]):
        self.u, self.edge = u, sub(v, u)

    def out(self, p: list[Scalar], turn: Scalar) -> Scalar:
        """Return how far a point is out of the side, seen from above, in units of the edge's length."""
        return turn * (self.edge[1] * (p[0] - self.u[0]) - self.edge[0] * (p[1] - self.u[1]))

    def face(self, turn: Scalar) -> list[Scalar]:
        """Return how far the origin is out of the side, and the side's normal."""
        over = turn / sqrt(dot(self.edge[:2], self.edge[:2]))
        n = [self.edge[1] * over, -self.edge[0] * over]
        return [-dot(n, self.u[:2]), *n, 0.0]

    def nearest(self, k: int) -> list[Scalar]:
        """Return the point of the edge that is nearest to the origin: in space (k = 3), or seen from above (2)."""
        share = -dot(self.edge[:k], self.u[:k]) / dot(self.edge[:k], self.edge[:k])
        return add_scaled(self.u, self.edge, clip(share, 0.0, 1.0))


def _nearer(p: list[Scalar], q: list[Scalar], k: int) -> list[Scalar]:
    """Return the one of two points that is nearer to the origin, by their first k coordinates."""
    return choose(dot(q[:k], q[:k]) < dot(p[:k], p[:k]), q, p)
