"""Where an ellipsoid touches a sphere, capsule, cylinder, box or another ellipsoid: the normal solves an equation.

The search for such a contact ends near the normal n. Newton's method goes on from there until rounding.

Of all directions n is the one along which C, the difference of both shapes, reaches least far. How far it reaches is
smooth in n but where n is level with a face's edge: at right angles to an axis along which the other shape is straight.
There the furthest point of C may be anywhere along the edge. If at the solution it is within the edge, n stays level
with it; else it is at one of the edge's ends. So each straight axis is at one end, at the other, or level, as in an
active set method. The round rim of a cylinder's end has such a kink, too, where n is the cylinder's axis.

Letters are as in `convex`. w the furthest point of C along n   sides of each axis: 1, -1, or 0 where n is level
t tangents, across n
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ....compiler.control import count_while, when_any
from ....compiler.implicit import held
from ....compiler.scalar import Mask, Scalar, absolute, clip, logical_and, logical_or, maximum, select
from ...algebra.spatial import MINVAL, Vec, add, add_scaled, choose, cross, dot, is_zero, norm, scale, sub
from ..colliders import NEVER, Geom
from .hull import Hull

STEPS = 12  # from what the search is known to, to rounding; three or four do in most cases
FARTHEST = 0.3  # that a step turns the normal, radians
NEARLY = 0.03  # to begin with, n is level with an edge if its cosine along it is less
LEVEL = 1e-6  # n is level with an edge, or along a cylinder, to rounding
ENOUGH = 1e-8  # radians: after a turn that is smaller only rounding is left
SETTLED = 1e-3  # radians: after a turn that is smaller it is known where along the edge the furthest point is
ALONG = 0.9  # cosine to an end's normal from which on the end is tried
WORSE = 1e-6  # metres: MuJoCo's tolerance; a contact that is found to be this much deeper is another one


class _Feature(NamedTuple):
    """Where C is furthest along n. sides: of each straight axis. flat: on the end of a cylinder."""

    sides: list[Scalar]
    flat: Mask


class _Shapes(NamedTuple):
    """Two shapes and what is straight of one of them: its axes, and half of their lengths."""

    one: Hull
    two: Hull
    axes: list[Vec]
    halves: list[Scalar]
    rim: Mask  # the second shape has a rim

    @property
    def apart(self) -> list[Scalar]:
        return sub(self.one.centre, self.two.centre)


def polish(one: Geom, two: Geom, spot: list[Scalar]) -> list[Scalar]:
    """Return the spot of two such shapes to rounding, from where a search found it to be."""
    s = _shapes(one, two)

    def better(_: Any) -> list[Scalar]:
        n, at = _solved(s, spot[4:])
        along = [dot(axis, n) for axis in s.axes]
        reached = [absolute(x - side * absolute(x)) < LEVEL for x, side in zip(along, at.sides, strict=True)]
        found = _spot(s, n, at)
        return choose(logical_and(*reached, found[0] > spot[0] - WORSE), found, spot)

    return when_any(spot[0] < one.margin + WORSE, better, spot)


def round_spot(one: Geom, two: Geom, spot: list[Scalar]) -> list[Scalar]:
    """Return the spot of two such shapes that `polish` left, with the derivative of the solution."""
    s, acts = _shapes(one, two), spot[0] < NEVER
    n = choose(acts, [held(x) for x in spot[4:]], [0.0, 0.0, 1.0])
    along = [dot(axis, n) for axis in s.axes]
    sides = [select(absolute(x) < LEVEL, 0.0, select(x > 0.0, 1.0, -1.0)) for x in along]
    flat = logical_and(s.rim, absolute(absolute(dot(s.two.axes[2], n)) - 1.0) < LEVEL * LEVEL)
    at = _Feature(sides, flat)
    dist, *where = _spot(s, _step(s, _levelled(s, n, at), at, last=True)[0], at)
    return [select(acts, dist, NEVER), *where]


def _shapes(one: Geom, two: Geom) -> _Shapes:
    first, second = Hull(one), Hull(two)
    hull = first if any(not is_zero(x) for x in first.box) else second
    straight = [k for k in range(3) if not is_zero(hull.box[k])]
    rim = logical_and(second.radii[0] > 0.0, second.radii[2] <= 0.0)
    return _Shapes(first, second, [hull.axes[k] for k in straight], [hull.box[k] for k in straight], rim)


def _solved(s: _Shapes, n: list[Scalar]) -> tuple[list[Scalar], _Feature]:
    """Return the normal to rounding, and where C is furthest along it. n: what it is nearly."""
    sides = []
    for axis, half in zip(s.axes, s.halves, strict=True):
        along = dot(axis, n)
        level = logical_and(absolute(along) < NEARLY, half > 0.0)
        sides.append(select(level, 0.0, select(along >= 0.0, 1.0, -1.0)))
    flat = _lies_flat(s, n, sides)

    def step(_: Any, c: dict[str, Any]) -> dict[str, Any]:
        at = _Feature(c["sides"], flat)
        old = _levelled(s, c["n"], at)
        n, turned = _step(s, old, at, last=False)
        w = _furthest(s, old, at)
        new, moved = [], []
        for axis, half, side in zip(s.axes, s.halves, c["sides"], strict=True):
            along, slid = dot(axis, n), -dot(axis, w)
            leaves = select(turned > SETTLED, 0.0, select(slid > half, 1.0, select(slid < -half, -1.0, 0.0)))
            crosses = logical_and(along * side < 0.0, half > 0.0)
            new.append(select(absolute(side) < 0.5, leaves, select(crosses, 0.0, side)))
            moved.append(absolute(new[-1] - side) > 0.5)
        changed = logical_or(*moved)
        shrinks = logical_or(turned > SETTLED, turned < 0.5 * c["turned"])
        go = logical_or(changed, logical_and(shrinks, turned > ENOUGH))
        return {"n": n, "sides": new, "turned": select(changed, NEVER, turned), "go": go}

    start = {"n": list(n), "sides": sides, "turned": NEVER, "go": True}
    c = count_while(lambda i, c: c["go"], step, start, STEPS)
    return c["n"], _Feature(c["sides"], flat)


def _lies_flat(s: _Shapes, n: Vec, sides: list[Scalar]) -> Mask:
    """Mask: the cylinder touches with an end, so that n is its axis."""
    if s.rim is False:
        return False
    axis, radius = s.two.axes[2], s.two.radii[0]
    along = dot(axis, n)
    level = scale(axis, select(along >= 0.0, 1.0, -1.0))
    w = add(_corner(s, sides), _end(s.one, level))
    beside = add_scaled(w, axis, -dot(axis, w))
    return logical_and(s.rim, absolute(along) > ALONG, dot(beside, beside) <= radius * radius)


def _spot(s: _Shapes, n: list[Scalar], at: _Feature) -> list[Scalar]:
    """Compute dist, point and normal."""
    w = _furthest(s, n, at)
    dist = -dot(n, w) - (s.one.skin + s.two.skin)
    a = add(s.one.centre, _end(s.one, n))
    if any(not is_zero(x) for x in s.one.box):
        for axis, half, side in zip(s.axes, s.halves, at.sides, strict=True):
            a = add_scaled(a, axis, select(absolute(side) < 0.5, -dot(axis, w), _place(side, half)))
    # half way between the surfaces along n
    return [dist, *add_scaled(a, n, s.one.skin + 0.5 * dist), *n]


def _step(s: _Shapes, n: list[Scalar], at: _Feature, last: bool) -> tuple[list[Scalar], Scalar]:
    """Make a step of Newton's method; returns by how much n turned, too.

    last: its own derivative is to be that of the solution.
    """
    steep = absolute(n[0]) < 0.7
    first = _unit(cross([select(steep, 1.0, 0.0), select(steep, 0.0, 1.0), 0.0], n))
    held_back: Scalar = 0.0  # along how many directions n cannot turn
    for axis, side in zip(s.axes, at.sides, strict=True):
        level = absolute(side) < 0.5
        first = choose(level, cross(axis, n), first)
        held_back = held_back + select(level, 1.0, 0.0)
    tangents = [first, cross(n, first)]
    w = _furthest(s, n, at)
    depth = dot(n, w)
    bend = [_bend(s, n, t) for t in tangents]
    (p, q), (_, r) = [
        [dot(u, y) - (depth if u is t else 0.0) for u in tangents] for t, y in zip(tangents, bend, strict=True)
    ]
    slope = [dot(t, w) for t in tangents]
    if last:
        p, q, r = (held(x) for x in (p, q, r))
    area = p * r - q * q
    free, single = held_back < 0.5, held_back < 1.5
    turns = [
        select(free, _over(q * slope[1] - r * slope[0], area), select(single, -_over(slope[0], p), 0.0)),
        select(free, _over(q * slope[0] - p * slope[1], area), 0.0),
    ]
    if not last:
        turns = [clip(x, -FARTHEST, FARTHEST) for x in turns]
    turned = n
    for t, turn in zip(tangents, turns, strict=True):
        turned = add_scaled(turned, t, turn)
    turned = _unit(turned)
    if at.flat is not False:
        axis = s.two.axes[2]
        turned = choose(at.flat, scale(axis, select(dot(axis, n) >= 0.0, 1.0, -1.0)), turned)
    return turned, norm(sub(turned, n))


def _levelled(s: _Shapes, n: Vec, at: _Feature) -> list[Scalar]:
    """Return n at right angles to the axes that it is level with."""
    for axis, side in zip(s.axes, at.sides, strict=True):
        n = choose(absolute(side) < 0.5, add_scaled(n, axis, -dot(axis, n)), n)
    return _unit(n)


def _furthest(s: _Shapes, n: Vec, at: _Feature) -> list[Scalar]:
    """The furthest point of C along n, in the middle of edges and ends that n is level with, without skins."""
    end = _end(s.two, n)  # the one against n is taken off
    return add(_corner(s, at.sides), add(_end(s.one, n), choose(at.flat, [0.0, 0.0, 0.0], end)))


def _corner(s: _Shapes, sides: list[Scalar]) -> list[Scalar]:
    """What is not round of the furthest point of C."""
    w = s.apart
    for axis, half, side in zip(s.axes, s.halves, sides, strict=True):
        w = add_scaled(w, axis, _place(side, half))
    return w


def _place(side: Scalar, half: Scalar) -> Scalar:
    """Where on a straight axis a side is."""
    return select(side > 0.5, half, select(side < -0.5, -half, 0.0))


def _end(hull: Hull, n: Vec) -> list[Scalar]:
    """The point of an ellipsoid that is furthest along n, from its centre."""
    if all(map(is_zero, hull.radii)):
        return [0.0, 0.0, 0.0]
    local = hull_reach(hull, n)
    length = maximum(norm(local), MINVAL)
    return hull.turned([x * r / length for x, r in zip(local, hull.radii, strict=True)])


def hull_reach(hull: Hull, n: Vec) -> list[Scalar]:
    """The direction n in the hull's axes, each times the radius there."""
    return [dot(axis, n) * r for axis, r in zip(hull.axes, hull.radii, strict=True)]


def _bend(s: _Shapes, n: Vec, t: Vec) -> list[Scalar]:
    """How fast the furthest point of C changes where n turns towards t."""
    total: list[Scalar] = [0.0, 0.0, 0.0]
    for hull in (s.one, s.two):
        if all(map(is_zero, hull.radii)):
            continue
        at, way = hull_reach(hull, n), hull_reach(hull, t)
        length = maximum(norm(at), MINVAL)
        share = dot(at, way) / (length * length)
        moved = [(y - x * share) * r / length for x, y, r in zip(at, way, hull.radii, strict=True)]
        total = add(total, hull.turned(moved))
    return total


def _over(x: Scalar, y: Scalar) -> Scalar:
    """x / y; 0 where y is."""
    nothing: Mask = absolute(y) < MINVAL
    return select(nothing, 0.0, x / select(nothing, 1.0, y))


def _unit(x: Vec) -> list[Scalar]:
    return scale(x, 1.0 / maximum(norm(x), MINVAL))
