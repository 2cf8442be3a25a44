"""Finds to rounding where an ellipsoid or a cylinder touches any shape but a mesh: the normal solves an equation.

The search for such a contact ends near the normal n. Newton's method goes on from there.

Of all directions n is the one along which C, the difference of both shapes, reaches least far. How far it reaches is
smooth in n except where n is level with an edge, at right angles to an axis along which a shape is straight. There the
furthest point of C may be anywhere along the edge. If at the solution it is within the edge, n stays level with it; if
not, it is at one of the edge's ends. So each straight axis is at one end, at the other, or level, as in an active set
method. The rim of a cylinder's end has such a kink, too, where n is the cylinder's axis: there the end lies flat.

Letters are as in `convex`. w the furthest point of C along n   t tangents, across n
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from ....compiler.control import count_while, when_any
from ....compiler.implicit import held
from ....compiler.scalar import (
    Mask,
    Scalar,
    absolute,
    clip,
    logical_and,
    logical_not,
    logical_or,
    maximum,
    select,
)
from ...algebra.spatial import MINVAL, Vec, add, add_scaled, choose, cross, dot, is_zero, norm, scale, sub, unit, zeros
from ..colliders import NEVER, Geom
from .hull import Hull

STEPS = 12  # from the search's tolerance down to rounding; three or four usually suffice
SETTLING = 2  # ... from a normal that is nearly right
FARTHEST = 0.3  # radians: the most that a step turns the normal
NEARLY = 0.03  # to begin with, n is level with an edge if its cosine along it is less
LEVEL = 1e-6  # n is level with an edge, or along a cylinder, to rounding
ENOUGH = 1e-8  # radians: after a turn that is smaller only rounding is left
ROUNDING = 1e-5  # radians: smaller turns that no longer shrink are rounding; float32's are as large as this
SETTLED = 1e-3  # radians: after a turn that is smaller it is known where along the edge the furthest point is
ALONG = 0.9  # cosine to an end's normal from which on the end is tried
PARALLEL = 1e-11  # the square of a sine below which two edges are one
WORSE = 1e-6  # metres: MuJoCo's tolerance; a contact that is found to be this much deeper is another one


class _Edge(NamedTuple):
    """An axis along which a shape is straight. half: of its length, metres."""

    axis: Vec
    half: Scalar
    of_one: bool  # of the first shape


class _Feature(NamedTuple):
    """Where C is furthest along n.

    sides: for each edge, the end, 1 or -1, or 0 where n is level with the edge. flats: by shape, the mask of the worlds
    where an end of the cylinder lies flat.
    """

    sides: list[Scalar]
    flats: list[Mask]


@dataclass(frozen=True)
class _Shapes:
    """Two shapes. rims: by shape, the mask of the worlds where it is a cylinder."""

    one: Hull
    two: Hull
    edges: list[_Edge]
    rims: list[Mask]

    @staticmethod
    def of(one: Geom, two: Geom) -> _Shapes:
        hulls = [Hull(one), Hull(two)]
        edges = [
            _Edge(hull.axes[k], half, hull is hulls[0])
            for hull in hulls
            for k, half in enumerate(hull.box)
            if not is_zero(half)
        ]
        rims = [logical_and(hull.radii[0] > 0.0, hull.radii[2] <= 0.0) for hull in hulls]
        return _Shapes(hulls[0], hulls[1], edges, rims)

    @property
    def hulls(self) -> list[Hull]:
        return [self.one, self.two]


class _Levels:
    """The edges that n is level with, of which at most two count.

    n: made exactly level with them. free: it is level with none, so that it can turn any way; fixed: with two, so that
    it cannot turn; alike: with two that are parallel, which count as one.
    """

    def __init__(self, s: _Shapes, n: Vec, sides: list[Scalar]):
        first: list[Scalar] = zeros(3)
        second: list[Scalar] = zeros(3)
        count: Scalar = 0.0
        self.lengths: list[Scalar] = [0.0, 0.0]
        self.ranks: list[Scalar] = []  # of each edge: 1 or 2 among those, 0 if it is none of them
        for edge, side in zip(s.edges, sides, strict=True):
            level = absolute(side) < 0.5
            count = count + select(level, 1.0, 0.0)
            rank = select(level, count, 0.0)
            first = choose(absolute(rank - 1.0) < 0.5, edge.axis, first)
            second = choose(absolute(rank - 2.0) < 0.5, edge.axis, second)
            self.lengths = [
                select(absolute(rank - k) < 0.5, edge.half, length)
                for k, length in zip((1.0, 2.0), self.lengths, strict=True)
            ]
            self.ranks.append(rank)
        self.first, self.second, self.free = first, second, count < 0.5
        over = cross(first, second)
        square, two = dot(over, over), count > 1.5
        self.fixed = logical_and(two, square > PARALLEL)
        self.alike = logical_and(two, logical_not(square > PARALLEL))
        along = unit(add_scaled(n, first, -dot(first, n)))
        upright = scale(over, select(dot(over, n) >= 0.0, 1.0, -1.0) / maximum(norm(over), MINVAL))
        self.n = choose(self.fixed, upright, along) if s.edges else unit(n)

    def slid(self, w: Vec) -> tuple[list[Scalar], list[Scalar]]:
        """Return how far w has to move along each of the edges to be along n, and how far it may."""
        one, two, cosine = -dot(self.first, w), -dot(self.second, w), dot(self.first, self.second)
        square = select(self.fixed, 1.0 - cosine * cosine, 1.0)
        moves = (one - select(self.fixed, cosine, 0.0) * two) / square
        other = select(self.fixed, (two - cosine * one) / square, select(cosine < 0.0, -moves, moves))
        both = self.lengths[0] + self.lengths[1]
        slid, room = [], []
        for rank in self.ranks:
            is_second = rank > 1.5
            slid.append(select(is_second, other, moves))
            room.append(select(self.alike, both, select(is_second, self.lengths[1], self.lengths[0])))
        return slid, room


def polish(one: Geom, two: Geom, spot: list[Scalar]) -> list[Scalar]:
    """Return the spot of two such shapes to rounding, from where a search found it to be."""
    s = _Shapes.of(one, two)

    def better(_: Any) -> list[Scalar]:
        n, at = _solved(s, spot[4:])
        along = [dot(edge.axis, n) for edge in s.edges]
        reached = [absolute(x - side * absolute(x)) < LEVEL for x, side in zip(along, at.sides, strict=True)]
        for hull, flat in zip(s.hulls, at.flats, strict=True):  # ends of both cylinders may have looked flat
            reached.append(logical_or(logical_not(flat), absolute(dot(hull.axes[2], n)) > 1.0 - LEVEL))
        found = _spot(s, n, at)
        return choose(logical_and(*reached, found[0] > spot[0] - WORSE), found, spot)

    return when_any(spot[0] < one.margin + WORSE, better, spot)


def polished_spot(one: Geom, two: Geom, spot: list[Scalar]) -> list[Scalar]:
    """Return the spot of two such shapes that `polish` left, with the derivative of the solution."""
    s, acts = _Shapes.of(one, two), spot[0] < NEVER
    n = choose(acts, [held(x) for x in spot[4:]], [0.0, 0.0, 1.0])
    sides = _sides(s, n)
    flats = [
        logical_and(rim, absolute(absolute(dot(hull.axes[2], n)) - 1.0) < LEVEL * LEVEL)
        for hull, rim in zip(s.hulls, s.rims, strict=True)
    ]
    at = _Feature(sides, flats)
    levels = _Levels(s, n, sides)
    dist, *where = _spot(s, _step(s, levels, at, _furthest(s, levels.n, at), last=True)[0], at)
    return [select(acts, dist, NEVER), *where]


def settled(one: Geom, two: Geom, n: list[Scalar], exact: Mask, flats: list[Mask]) -> list[Scalar]:
    """Return the spot of two such shapes to rounding, from a normal that is level with the edges that count to rounding
    and nearly right, or `exact`. flats: by shape, the mask of the worlds where an end of the cylinder lies flat.
    """
    s = _Shapes.of(one, two)
    at = _Feature(_sides(s, n), flats)
    for _ in range(SETTLING):
        levels = _Levels(s, n, at.sides)
        n = choose(exact, n, _step(s, levels, at, _furthest(s, levels.n, at), last=False)[0])
    return _spot(s, n, at)


def spot_along(
    one: Geom, two: Geom, depth: Scalar, n: list[Scalar], flats: list[Mask], sides: list[Scalar]
) -> list[Scalar]:
    """Return the spot of two such shapes whose normal is known to rounding. flats, sides: as in `_Feature`."""
    return [-depth, *_spot(_Shapes.of(one, two), n, _Feature(sides, flats))[1:]]


def _solved(s: _Shapes, n: list[Scalar]) -> tuple[list[Scalar], _Feature]:
    """Return the normal to rounding, and where C is furthest along it. n: an approximate normal."""
    sides = _first_sides(s, n)
    flats = [_lies_flat(s, k, n, sides) for k in range(2)]

    def step(_: Any, c: dict[str, Any]) -> dict[str, Any]:
        at, levels = _Feature(c["sides"], flats), _Levels(s, c["n"], c["sides"])
        w = _furthest(s, levels.n, at)
        n, turned = _step(s, levels, at, w, last=False)
        slid, room = levels.slid(w)
        beyond = [absolute(x) - most for x, most in zip(slid, room, strict=True)]
        furthest: Scalar = 0.0
        for out in beyond:
            furthest = maximum(furthest, out)  # one edge leaves at a time
        new, moved = [], []
        for edge, side, x, out in zip(s.edges, at.sides, slid, beyond, strict=True):
            goes = logical_and(turned <= SETTLED, out > 0.0, out >= furthest)
            leaves = select(goes, select(x > 0.0, 1.0, -1.0), 0.0)
            crosses = logical_and(dot(edge.axis, n) * side < 0.0, edge.half > 0.0)
            new.append(select(absolute(side) < 0.5, leaves, select(crosses, 0.0, side)))
            moved.append(absolute(new[-1] - side) > 0.5)
        changed = logical_or(*moved)
        shrinks = logical_or(turned > ROUNDING, turned < 0.5 * c["turned"])
        go = logical_or(changed, logical_and(shrinks, turned > ENOUGH))
        return {"n": n, "sides": new, "turned": select(changed, NEVER, turned), "go": go}

    start = {"n": list(n), "sides": sides, "turned": NEVER, "go": True}
    c = count_while(lambda i, c: c["go"], step, start, STEPS)
    return c["n"], _Feature(c["sides"], flats)


def _sides(s: _Shapes, n: list[Scalar]) -> list[Scalar]:
    """Return the sides of a normal that is level with an edge to rounding, or not at all."""
    along = [dot(edge.axis, n) for edge in s.edges]
    return [select(absolute(x) < LEVEL, 0.0, select(x > 0.0, 1.0, -1.0)) for x in along]


def _first_sides(s: _Shapes, n: list[Scalar]) -> list[Scalar]:
    """Return the sides to begin with: n may be level with up to two edges."""
    along = [dot(edge.axis, n) for edge in s.edges]
    cosines = [select(edge.half > 0.0, absolute(x), 1.0) for edge, x in zip(s.edges, along, strict=True)]
    nearer: list[Scalar] = [  # how many edges n is nearer to being level with
        sum(select(other < cosine, 1.0, 0.0) for other in cosines) for cosine in cosines
    ]

    def sides(most: Scalar) -> list[Scalar]:
        level = [logical_and(cosine < NEARLY, k < most - 0.5) for cosine, k in zip(cosines, nearer, strict=True)]
        return [select(yes, 0.0, select(x >= 0.0, 1.0, -1.0)) for yes, x in zip(level, along, strict=True)]

    if len(s.edges) < 2:
        return sides(1.0)
    # Two edges that are almost parallel, as where a can stands beside a box, may cross far from n.
    strays = norm(sub(_Levels(s, n, sides(2.0)).n, n)) > 2 * NEARLY
    return sides(select(strays, 1.0, 2.0))


def _lies_flat(s: _Shapes, k: int, n: Vec, sides: list[Scalar]) -> Mask:
    """Return where an end of shape k, a cylinder, touches the other in one point, so that n is the cylinder's axis."""
    if s.rims[k] is False:
        return False
    hull, other = s.hulls[k], s.hulls[1 - k]
    axis, radius = hull.axes[2], hull.radii[0]
    along = dot(axis, n)
    level = scale(axis, select(along >= 0.0, 1.0, -1.0))
    w = add(_corner(s, sides), _end(other, level))
    beside = add_scaled(w, axis, -dot(axis, w))
    pointed = [absolute(x) > 0.5 for edge, x in zip(s.edges, sides, strict=True) if edge.of_one != (k == 0)]
    return logical_and(s.rims[k], absolute(along) > ALONG, dot(beside, beside) <= radius * radius, *pointed)


def _spot(s: _Shapes, n: list[Scalar], at: _Feature) -> list[Scalar]:
    """Compute dist, point and normal."""
    w = _furthest(s, n, at)
    dist = -dot(n, w) - (s.one.skin + s.two.skin)
    slid, room = _Levels(s, n, at.sides).slid(w)
    ends = [add(s.one.centre, _end(s.one, n)), add_scaled(s.two.centre, _end(s.two, n), -1.0)]
    for edge, side, x, most in zip(s.edges, at.sides, slid, room, strict=True):
        share = x * edge.half / maximum(most, MINVAL)  # its share, where two parallel edges slide along each other
        where = select(absolute(side) < 0.5, share, _place(side, edge.half))
        k = 0 if edge.of_one else 1
        ends[k] = add_scaled(ends[k], edge.axis, where if edge.of_one else -where)
    a = choose(at.flats[0], add_scaled(ends[1], n, dot(n, w)), ends[0])
    # half way between the surfaces along n
    return [dist, *add_scaled(a, n, s.one.skin + 0.5 * dist), *n]


def _step(s: _Shapes, levels: _Levels, at: _Feature, w: Vec, last: bool) -> tuple[list[Scalar], Scalar]:
    """Make a step of Newton's method; return the new n, and by how much it turned.

    w: the furthest point. last: the step's own derivative is to be that of the solution.
    """
    n = levels.n
    steep = absolute(n[0]) < 0.7
    first = unit(cross([select(steep, 1.0, 0.0), select(steep, 0.0, 1.0), 0.0], n))
    first = choose(levels.free, first, cross(levels.first, n))
    tangents = [first, cross(n, first)]
    depth = dot(n, w)
    bend = [_bend(s, n, t) for t in tangents]
    (p, q), (_, r) = [
        [dot(u, y) - (depth if u is t else 0.0) for u in tangents] for t, y in zip(tangents, bend, strict=True)
    ]
    slope = [dot(t, w) for t in tangents]
    if last:
        p, q, r = (held(x) for x in (p, q, r))
    area = p * r - q * q
    single = select(levels.fixed, 0.0, -_over(slope[0], p))
    turns = [
        select(levels.free, _over(q * slope[1] - r * slope[0], area), single),
        select(levels.free, _over(q * slope[0] - p * slope[1], area), 0.0),
    ]
    if not last:
        turns = [clip(x, -FARTHEST, FARTHEST) for x in turns]
    turned = n
    for t, turn in zip(tangents, turns, strict=True):
        turned = add_scaled(turned, t, turn)
    turned = unit(turned)
    for hull, flat in zip(s.hulls, at.flats, strict=True):
        axis = hull.axes[2]
        turned = choose(flat, scale(axis, select(dot(axis, n) >= 0.0, 1.0, -1.0)), turned)
    return turned, norm(sub(turned, n))


def _furthest(s: _Shapes, n: Vec, at: _Feature) -> list[Scalar]:
    """Return the furthest point of C along n, in the middle of edges and ends that n is level with, without skins."""
    w = _corner(s, at.sides)
    for hull, flat in zip(s.hulls, at.flats, strict=True):
        w = add(w, choose(flat, zeros(3), _end(hull, n)))  # for the second shape this takes off its end against n
    return w


def _corner(s: _Shapes, sides: list[Scalar]) -> list[Scalar]:
    """Return the furthest point of C without the share of round parts."""
    w = sub(s.one.centre, s.two.centre)
    for edge, side in zip(s.edges, sides, strict=True):
        w = add_scaled(w, edge.axis, _place(side, edge.half))
    return w


def _place(side: Scalar, half: Scalar) -> Scalar:
    """Return where on a straight axis a side is."""
    return select(side > 0.5, half, select(side < -0.5, -half, 0.0))


def _end(hull: Hull, n: Vec) -> list[Scalar]:
    """Return the point of an ellipsoid that is furthest along n, from its centre."""
    if all(map(is_zero, hull.radii)):
        return zeros(3)
    local = _reach(hull, n)
    length = maximum(norm(local), MINVAL)
    return hull.turned([x * r / length for x, r in zip(local, hull.radii, strict=True)])


def _reach(hull: Hull, n: Vec) -> list[Scalar]:
    """Return the direction n in the hull's axes, each component times the radius there."""
    return [dot(axis, n) * r for axis, r in zip(hull.axes, hull.radii, strict=True)]


def _bend(s: _Shapes, n: Vec, t: Vec) -> list[Scalar]:
    """Return how fast the furthest point of C changes if n turns towards t."""
    total = zeros(3)
    for hull in s.hulls:
        if all(map(is_zero, hull.radii)):
            continue
        at, way = _reach(hull, n), _reach(hull, t)
        length = maximum(norm(at), MINVAL)
        share = dot(at, way) / (length * length)
        moved = [(y - x * share) * r / length for x, y, r in zip(at, way, hull.radii, strict=True)]
        total = add(total, hull.turned(moved))
    return total


def _over(x: Scalar, y: Scalar) -> Scalar:
    """Return x / y; 0 where y is 0."""
    nothing: Mask = absolute(y) < MINVAL
    return select(nothing, 0.0, x / select(nothing, 1.0, y))
