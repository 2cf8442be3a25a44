"""The path of a tendon round a sphere or a cylinder. mju_wrap.

All takes place in a plane in which the geom is a circle about 0: that of both endpoints and the sphere's centre, or
that across the cylinder's axis, along which the tendon climbs evenly. There the tendon is the shortest path that turns
about the centre as the polyline from one endpoint by way of the side site to the other does: by more than half a turn,
if need be. Without a side site it takes the shorter way. It does not touch the circle if the straight line turns by as
much and clears the circle. A side site inside the geom makes it pass through the inside instead.

e an endpoint in the plane   l its distance from the centre   r radius   p an endpoint in space
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ....compiler.control import while_any
from ....compiler.implicit import follows, held
from ....compiler.scalar import (
    Mask,
    Scalar,
    absolute,
    atan2,
    cos,
    logical_and,
    logical_not,
    logical_or,
    maximum,
    minimum,
    select,
    sin,
    sqrt,
)
from ...algebra.spatial import MINVAL, Vec, add_scaled, choose, cross, dot, norm, normalize, scale, sub

TOLERANCE, ITERATIONS = 1e-6, 20  # of MuJoCo's search for the point that a tendon inside touches


@dataclass(frozen=True)
class Wrap:
    """A tendon's path round a geom.

    on: whether it touches the geom, from point `first` to point `last`. length: of the tendon between these.
    """

    on: Mask
    length: Scalar
    first: list[Scalar]
    last: list[Scalar]


def wrap(p0: Vec, p1: Vec, side: Vec | None, radius: Scalar, sphere: bool) -> Wrap:
    """Return a tendon's path round a geom between two endpoints, all in the geom's frame. mju_wrap."""
    axes = _plane(p0, p1) if sphere else ([1.0, 0.0, 0.0], [0.0, 1.0, 0.0])

    def flat(p: Vec) -> list[Scalar]:
        return [dot(p, axis) for axis in axes]

    e0, e1 = flat(p0), flat(p1)
    outer = _outside(e0, e1, flat(side) if side is not None else None, radius)
    if side is not None:
        within = norm(side) < radius
        if within is not False:
            outer = _either(within, _inside(e0, e1, radius), outer)
    first, last = ([x * a + y * b for a, b in zip(*axes, strict=True)] for x, y in (outer.first, outer.last))
    on = logical_and(outer.on, norm(p0) >= MINVAL, norm(p1) >= MINVAL, radius >= MINVAL)
    if sphere:
        return Wrap(on, outer.length, first, last)
    before, after = (norm(sub(p[:2], q[:2])) for p, q in ((p0, first), (p1, last)))
    climb = (p1[2] - p0[2]) / maximum(before + outer.length + after, MINVAL)
    first[2], last[2] = p0[2] + climb * before, p0[2] + climb * (before + outer.length)
    return Wrap(on, norm([outer.length, last[2] - first[2]]), first, last)


def _plane(p0: Vec, p1: Vec) -> tuple[list[Scalar], list[Scalar]]:
    """Return two axes of the plane of the endpoints and the centre; the first points to p0.

    If all are on one line, the plane is as far from a coordinate plane as in MuJoCo.
    """
    axis, normal = normalize(p0, [1.0, 0.0, 0.0]), cross(p0, p1)
    x, y, z = (absolute(a) for a in axis)
    most_y, most_z = logical_and(y > x, y > z), logical_and(z > x, z > y)
    other = [select(logical_or(most_y, most_z), 1.0, 0.0), select(most_y, 0.0, 1.0), select(most_z, 0.0, 1.0)]
    normal = normalize(normal, normalize(cross(axis, other), [1.0, 0.0, 0.0]))
    return axis, normalize(cross(normal, axis), [1.0, 0.0, 0.0])


def _either(mask: Mask, a: Wrap, b: Wrap) -> Wrap:
    if mask is True:
        return a
    on = logical_or(logical_and(mask, a.on), logical_and(logical_not(mask), b.on))
    return Wrap(on, select(mask, a.length, b.length), choose(mask, a.first, b.first), choose(mask, a.last, b.last))


def _outside(e0: Vec, e1: Vec, side: Vec | None, r: Scalar) -> Wrap:
    turn = _angle(e0, e1)
    if side is not None:
        side = normalize(side, [1.0, 0.0])
        turn = _angle(e0, side) + _angle(side, e1)
    sense, roots = select(turn < 0.0, -1.0, 1.0), [sqrt(maximum(dot(e, e) - r * r, 0.0)) for e in (e0, e1)]
    arc = absolute(turn) - atan2(roots[0], r) - atan2(roots[1], r)  # each of the straight parts turns by that much

    def touched(e: Vec, along: Scalar) -> list[Scalar]:
        """Return the point where the tangent from e touches the circle."""
        return scale(add_scaled(scale(e, r), [-e[1], e[0]], along), r / maximum(dot(e, e), MINVAL))

    on = logical_and(arc >= 0.0, norm(e0) >= r, norm(e1) >= r)
    return Wrap(on, r * maximum(arc, 0.0), touched(e0, sense * roots[0]), touched(e1, -(sense * roots[1])))


def _inside(e0: Vec, e1: Vec, r: Scalar) -> Wrap:
    """Return the path that touches the circle from inside in one point, at which it is reflected."""
    l0, l1 = norm(e0), norm(e1)
    a, b = (minimum(r / maximum(x, MINVAL), 1.0) for x in (l0, l1))
    apart = sub(e1, e0)
    nearest = -dot(apart, e0) / maximum(dot(apart, apart), MINVAL)
    between = logical_and(nearest > 0.0, nearest < 1.0)
    crosses = logical_and(between, norm(add_scaled(e0, apart, nearest)) <= r)
    on = logical_and(l0 > r, l1 > r, logical_not(crosses))
    turn = _angle(e0, e1)

    def residual(angle: Scalar) -> Scalar:
        """Return by how much the two straight parts together turn too much.

        angle: between the tendon and the circle's normal.
        """
        return _arcsin(a * sin(angle)) + _arcsin(b * sin(angle)) - 2.0 * angle + absolute(turn)

    def slope(angle: Scalar) -> Scalar:
        s, c = sin(angle), cos(angle)
        return a * c / sqrt(1.0 - (a * s) * (a * s)) + b * c / sqrt(1.0 - (b * s) * (b * s)) - 2.0

    def search(carry: list[Any]) -> list[Any]:
        angle, f = carry
        angle = angle - f / slope(angle)
        return [angle, residual(angle)]

    def onwards(at: Scalar) -> list[Scalar]:  # one more step, whose derivative is that of the solution
        return [at - residual(at) * held(1.0 / slope(at))]

    start = residual(0.5 * math.pi)
    angle, f = while_any(
        lambda c: logical_and(on, start <= 0.0, absolute(c[1]) > TOLERANCE),
        search,
        [0.5 * math.pi, start],
        ITERATIONS,
    )
    ended = angle
    (angle,) = follows([angle], lambda: [a, b, turn], lambda: onwards(held(ended)))
    apart_enough = dot(e0, e1) <= (1.0 - MINVAL) * l0 * l1  # to be seen from the centre in two directions
    found = logical_and(start <= 0.0, absolute(f) <= TOLERANCE, apart_enough)
    anticlockwise = turn > 0.0
    e, share = choose(anticlockwise, e0, e1), select(anticlockwise, a, b)
    by = angle - _arcsin(share * sin(angle))
    x, y = normalize(e, [1.0, 0.0])
    point = [cos(by) * x - sin(by) * y, sin(by) * x + cos(by) * y]
    middle = normalize([e0[0] + e1[0], e0[1] + e1[1]], [1.0, 0.0])
    point = scale(choose(found, point, middle), r)
    return Wrap(on, 0.0, point, list(point))


def _angle(a: Vec, b: Vec) -> Scalar:
    """Return the angle from a to b, anticlockwise, in radians; half a turn is positive."""
    across = a[0] * b[1] - a[1] * b[0]
    angle = atan2(absolute(across), dot(a, b))
    return select(across < 0.0, -angle, angle)


def _arcsin(x: Scalar) -> Scalar:
    return atan2(x, sqrt(maximum(1.0 - x * x, 0.0)))
