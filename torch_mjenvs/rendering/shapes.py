"""Shapes as cameras see them: where a pixel's ray enters each kind, and where it can be in the picture.

As OpenGL draws it, a shape is seen from outside only; from within it is invisible. Only planes are seen from both
sides. So all that a pixel needs is where its ray enters. Once per picture, all kinds but capsules are brought into axes
in which their size is 1: `Kind.numbers` has what a pixel needs, and `Kind.enter` is what it computes with them.

start   the camera in the shape's own axes     turn   a matrix from the camera's axes to the shape's
way     a pixel's ray in the shape's own axes; depth is counted in its lengths
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..compiler.scalar import (
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
from ..physics.algebra.spatial import Vec, column, dot, sub, transpose
from ..physics.model.enums import GeomType

NOWHERE = 1e10  # the depth of a ray that does not enter; mjMAXVAL
TINY = 1e-15  # mjMINVAL

Enter = Callable[[Vec, Vec], Scalar]
Touch = Callable[[Vec, Vec, Scalar], tuple[list[Scalar], list[Scalar], Vec]]
Numbers = Callable[[Vec, Vec, Vec], list[Scalar]]
Points = Callable[[Vec], list[tuple[Vec, Scalar]]]


@dataclass(frozen=True)
class Kind:
    """A kind of shape, as `count` numbers that a picture keeps of it.

    `numbers(size, start, turn)` gives them, `enter(numbers, way)` the depth at which a ray of the camera's axes enters,
    and `balls(size)` the centres and radii of balls that bound it, in its own axes; None: it may be anywhere.
    `touch(numbers, way, depth)` gives what colours need of the point at that depth: where it is in axes in which the
    shape is a unit one (a plane's are its own), what is perpendicular to it there, and the matrix to these axes.
    """

    count: int
    numbers: Numbers
    enter: Enter
    balls: Points | None
    touch: Touch


def turned(turn: Vec, way: Vec) -> list[Scalar]:
    """Turn a pixel's way (x, y, -1)."""
    return [turn[3 * k] * way[0] + turn[3 * k + 1] * way[1] - turn[3 * k + 2] for k in range(3)]


def _scaled(sizes: Vec, start: Vec, turn: Vec) -> tuple[list[Scalar], list[Scalar]]:
    """Start and turn in axes in which the shape is of size 1."""
    over = [1.0 / x for x in sizes]
    return [x * s for x, s in zip(start, over, strict=True)], [turn[k] * over[k // 3] for k in range(9)]


def _first(a: Scalar, b: Scalar, c: Scalar) -> tuple[Mask, Scalar]:
    """Solve a x² + 2 b x + c = 0: a mask of where it has roots, and the lesser one, which is any number if a = 0."""
    square = b * b - a * c
    return square >= 0.0, (-b - sqrt(maximum(square, 0.0))) / maximum(a, TINY)


def _plane_numbers(size: Vec, start: Vec, turn: Vec) -> list[Scalar]:
    halves = [select(x > 0.0, x, NOWHERE) for x in size[:2]]
    return [*start, *turn, *halves, *(1.0 / x for x in halves)]


def _enter_plane(n: Vec, way: Vec) -> Scalar:
    start, width, height = n[:3], *n[12:14]
    v = turned(n[3:12], way)
    crosses = absolute(v[2]) > TINY
    x = -1.0 * start[2] / select(crosses, v[2], 1.0)
    inside = [absolute(start[k] + x * v[k]) <= size for k, size in ((0, width), (1, height))]
    return select(logical_and(crosses, *inside), x, NOWHERE)


def point_at(n: Vec, way: Vec, depth: Scalar) -> list[Scalar]:
    """Return where a ray is at a depth, of a shape whose numbers begin with start and turn."""
    return [x + depth * y for x, y in zip(n[:3], turned(n[3:12], way), strict=True)]


def _touch_plane(n: Vec, way: Vec, depth: Scalar) -> tuple[list[Scalar], list[Scalar], Vec]:
    return point_at(n, way, depth), [0.0, 0.0, 1.0], n[3:12]


def _sphere_numbers(size: Vec, start: Vec, turn: Vec) -> list[Scalar]:
    seen = [dot(column(turn, k), start) for k in range(3)]  # in the camera's axes, as its rays
    unit, unit_turn = _scaled([size[0]] * 3, start, turn)
    return [*seen, dot(start, start) - size[0] * size[0], *unit, *unit_turn]


def _touch_sphere(n: Vec, way: Vec, depth: Scalar) -> tuple[list[Scalar], list[Scalar], Vec]:
    at = point_at(n[4:], way, depth)
    return at, at, n[7:16]


def _enter_sphere(n: Vec, way: Vec) -> Scalar:
    across = way[0] * way[0] + way[1] * way[1] + 1.0
    real, x = _first(across, n[0] * way[0] + n[1] * way[1] - n[2], n[3])
    return select(logical_and(real, n[3] > 0.0), x, NOWHERE)


def _ellipsoid_numbers(size: Vec, start: Vec, turn: Vec) -> list[Scalar]:
    start, turn = _scaled(size, start, turn)
    return [*start, *turn, dot(start, start) - 1.0]


def _enter_ellipsoid(n: Vec, way: Vec) -> Scalar:
    v = turned(n[3:12], way)
    real, x = _first(dot(v, v), dot(n[:3], v), n[12])
    return select(logical_and(real, n[12] > 0.0), x, NOWHERE)


def _touch_ellipsoid(n: Vec, way: Vec, depth: Scalar) -> tuple[list[Scalar], list[Scalar], Vec]:
    at = point_at(n, way, depth)
    return at, at, n[3:12]


def _capsule_numbers(size: Vec, start: Vec, turn: Vec) -> list[Scalar]:
    square, half = size[0] * size[0], size[1]
    ends = [start[2] - half, start[2] + half]
    round_ = dot(start[:2], start[:2]) - square
    return [*start, *turn, half, round_, *(round_ + end * end for end in ends), 1.0 / size[0], 1.0 / half]


def _touch_capsule(n: Vec, way: Vec, depth: Scalar) -> tuple[list[Scalar], list[Scalar], Vec]:
    """The unit capsule is a cylinder of radius and half-length 1 between two unit half-spheres."""
    at, half = point_at(n, way, depth), n[12]
    on_axis = clip(at[2], -1.0 * half, half)
    beyond = at[2] - on_axis
    unit = [at[0] * n[16], at[1] * n[16], on_axis * n[17] + beyond * n[16]]
    return unit, [at[0], at[1], beyond], n[3:12]


def _enter_capsule(n: Vec, way: Vec) -> Scalar:
    """A ray first enters the endless cylinder of the same radius: on the capsule's side, or beyond the end that it then
    meets.
    """
    start, half, round_ = n[:3], n[12], n[13]
    v = turned(n[3:12], way)
    flat, b = dot(v[:2], v[:2]), dot(v[:2], start[:2])
    real, x = _first(flat, b, round_)
    inside = round_ <= 0.0  # the camera is in the endless cylinder: then the end is the one on its side
    height = select(inside, start[2], start[2] + x * v[2])
    upper = height > 0.0
    end = start[2] - select(upper, half, -1.0 * half)
    outside = select(upper, n[14], n[15])
    met, cap = _first(flat + v[2] * v[2], b + end * v[2], outside)
    on_side = logical_and(absolute(height) <= half, logical_not(inside))
    beyond = logical_and(met, absolute(height) > half, outside > 0.0)
    return select(logical_and(real, on_side), x, select(logical_and(real, beyond), cap, NOWHERE))


def _cylinder_numbers(size: Vec, start: Vec, turn: Vec) -> list[Scalar]:
    start, turn = _scaled([size[0], size[0], size[1]], start, turn)
    return [*start, *turn, dot(start[:2], start[:2]) - 1.0]


def _between(start: Scalar, way: Scalar) -> tuple[Scalar, Scalar]:
    """Return the depths at which a ray enters and leaves the range from -1 to 1 of one coordinate."""
    crosses = absolute(way) > TINY
    over = 1.0 / select(crosses, way, 1.0)
    middle, reach = -1.0 * start * over, absolute(over)
    within = absolute(start) < 1.0
    enters = select(crosses, middle - reach, select(within, -NOWHERE, NOWHERE))
    return enters, select(crosses, middle + reach, select(within, NOWHERE, -NOWHERE))


def _enter_cylinder(n: Vec, way: Vec) -> Scalar:
    start, round_ = n[:3], n[12]
    v = turned(n[3:12], way)
    flat, b = dot(v[:2], v[:2]), dot(v[:2], start[:2])
    square = b * b - flat * round_
    root, over = sqrt(maximum(square, 0.0)), 1.0 / maximum(flat, TINY)
    enters, leaves = _between(start[2], v[2])
    stands = flat <= TINY  # the ray is along the axis
    enters = maximum(enters, select(stands, -NOWHERE, (-b - root) * over))
    leaves = minimum(leaves, select(stands, NOWHERE, (root - b) * over))
    real = select(stands, round_ <= 0.0, square >= 0.0)
    return select(logical_and(real, enters <= leaves, enters > 0.0), enters, NOWHERE)


def _touch_cylinder(n: Vec, way: Vec, depth: Scalar) -> tuple[list[Scalar], list[Scalar], Vec]:
    at = point_at(n, way, depth)
    side = at[0] * at[0] + at[1] * at[1] >= at[2] * at[2]
    out = [select(side, at[0], 0.0), select(side, at[1], 0.0), select(side, 0.0, at[2])]
    return at, out, n[3:12]


def _box_numbers(size: Vec, start: Vec, turn: Vec) -> list[Scalar]:
    start, turn = _scaled(size, start, turn)
    return [*start, *turn]


def _enter_box(n: Vec, way: Vec) -> Scalar:
    v = turned(n[3:12], way)
    sides = [_between(x, y) for x, y in zip(n[:3], v, strict=True)]
    enters = maximum(maximum(sides[0][0], sides[1][0]), sides[2][0])
    leaves = minimum(minimum(sides[0][1], sides[1][1]), sides[2][1])
    return select(logical_and(enters <= leaves, enters > 0.0), enters, NOWHERE)


def _touch_box(n: Vec, way: Vec, depth: Scalar) -> tuple[list[Scalar], list[Scalar], Vec]:
    at = point_at(n, way, depth)
    size = [absolute(x) for x in at]
    along_x = logical_and(size[0] >= size[1], size[0] >= size[2])
    along_y = logical_and(logical_not(along_x), size[1] >= size[2])
    along_z = logical_not(logical_or(along_x, along_y))
    return at, [select(side, x, 0.0) for side, x in zip((along_x, along_y, along_z), at, strict=True)], n[3:12]


# bounds


def corners(low: Vec, high: Vec) -> list[tuple[Vec, Scalar]]:
    """The corners of a box, as balls of no size."""
    return [([x, y, z], 0.0) for x in (low[0], high[0]) for y in (low[1], high[1]) for z in (low[2], high[2])]


def _box_balls(sizes: Vec) -> list[tuple[Vec, Scalar]]:
    return corners([-1.0 * x for x in sizes], sizes)


# Plain tuples, the fields of a `Kind`: from their contents `compiler.source` tells whether cached code is still right.
KINDS: dict[int, tuple[int, Numbers, Enter, Points | None, Touch]] = {
    GeomType.PLANE: (16, _plane_numbers, _enter_plane, None, _touch_plane),
    GeomType.SPHERE: (16, _sphere_numbers, _enter_sphere, lambda size: [([0.0] * 3, size[0])], _touch_sphere),
    GeomType.CAPSULE: (
        18,
        _capsule_numbers,
        _enter_capsule,
        lambda size: [([0.0, 0.0, s * size[1]], size[0]) for s in (-1.0, 1.0)],
        _touch_capsule,
    ),
    GeomType.ELLIPSOID: (13, _ellipsoid_numbers, _enter_ellipsoid, _box_balls, _touch_ellipsoid),
    GeomType.CYLINDER: (
        13,
        _cylinder_numbers,
        _enter_cylinder,
        lambda size: _box_balls([size[0], size[0], size[1]]),
        _touch_cylinder,
    ),
    GeomType.BOX: (12, _box_numbers, _enter_box, _box_balls, _touch_box),
}

EVERYWHERE = (-NOWHERE, NOWHERE, -NOWHERE, NOWHERE)


def bounds(balls: list[tuple[Vec, Scalar]] | None, start: Vec, turn: Vec, near: float) -> list[Scalar]:
    """Return where in the picture a shape can be, in tangents: least and greatest x, then y, with a margin for
    rounding.

    The shape is within the convex hull of the balls. If one of them reaches the camera's plane, the shape may be
    anywhere; if all are behind the camera, it is nowhere: then the least is above the greatest.
    """
    if balls is None:
        return list(EVERYWHERE)
    low: list[Scalar] = [NOWHERE, NOWHERE]
    high: list[Scalar] = [-NOWHERE, -NOWHERE]
    ahead: Mask = False
    anywhere: Mask = False
    for centre, radius in balls:
        seen = _turn_back(turn, sub(centre, start))
        depth = -1.0 * seen[2]
        ahead = logical_or(ahead, depth + radius > near)
        clear = depth - 1.01 * radius > near
        anywhere = logical_or(anywhere, logical_not(clear))
        square = select(clear, depth * depth - radius * radius, 1.0)
        for k in (0, 1):
            reach = radius * sqrt(maximum(square + seen[k] * seen[k], 0.0))
            ends = [(seen[k] * depth - reach) / square, (seen[k] * depth + reach) / square]
            pad = 1e-4 * (1.0 + absolute(ends[0]) + absolute(ends[1]))
            low[k], high[k] = minimum(low[k], ends[0] - pad), maximum(high[k], ends[1] + pad)
    out: list[Scalar] = []
    for k in (0, 1):
        out += [select(anywhere, -NOWHERE, low[k]), select(anywhere, NOWHERE, high[k])]
    return [select(ahead, out[0], NOWHERE), *out[1:]]


def union(bounds: list[list[Scalar]]) -> list[Scalar]:
    """Return the bounds of all of these together, except those that are nowhere or NaN."""
    out: list[Scalar] = [NOWHERE, -NOWHERE, NOWHERE, -NOWHERE]
    for sides in bounds:
        there = sides[0] <= sides[1]
        for k, grow in enumerate((minimum, maximum, minimum, maximum)):
            out[k] = select(there, grow(out[k], sides[k]), out[k])
    return out


def _turn_back(turn: Vec, x: Vec) -> list[Scalar]:
    """Turn a vector from the shape's own axes into the camera's."""
    back = transpose(turn)
    return [dot(back[3 * k : 3 * k + 3], x) for k in range(3)]


def flat_bounds(balls: list[tuple[Vec, Scalar]] | None, place: Vec, turn: Vec) -> list[Scalar]:
    """Return where a shape can be as seen from very far away: least and greatest x, then y, metres.

    place: the shape's position in the viewer's axes. turn: from these to the shape's own.
    """
    if balls is None:
        return list(EVERYWHERE)
    low: list[Scalar] = [NOWHERE, NOWHERE]
    high: list[Scalar] = [-NOWHERE, -NOWHERE]
    for centre, radius in balls:
        at = [x + y for x, y in zip(place, _turn_back(turn, centre), strict=True)]
        for k in (0, 1):
            pad = 1e-4 * (1.0 + absolute(at[k]))
            low[k], high[k] = minimum(low[k], at[k] - radius - pad), maximum(high[k], at[k] + radius + pad)
    return [low[0], high[0], low[1], high[1]]
