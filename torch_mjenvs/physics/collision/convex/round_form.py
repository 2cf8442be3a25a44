"""Where an ellipsoid touches a sphere, a capsule or another ellipsoid, for derivatives: the normal solves an equation.

w(n) is the furthest point of C along n. It is the point that is sought where it is along n itself: w(n) = -dist n. The
search ends near that n. Newton's method goes on from there, until rounding; the last of its steps has the derivative of
the solution.

Letters are as in `convex`. a the axis of a capsule   s where on it the capsule touches   t tangents, across n
"""

from __future__ import annotations

from ....compiler.implicit import held
from ....compiler.scalar import Mask, Scalar, absolute, logical_and, maximum, minimum, select
from ...algebra.spatial import (
    MINVAL,
    Vec,
    add,
    add_scaled,
    choose,
    cross,
    dot,
    is_zero,
    norm,
    scale,
    sub,
)
from ..colliders import NEVER, Geom
from .hull import Hull

STEPS = 6  # from what the search is known to, 1e-3, to rounding
FARTHEST = 0.3  # that a step turns the normal, radians
ALIKE = 0.999  # cosine between normals of which one may be what the search ended near


def are_round(one: Geom, two: Geom) -> bool:
    """True if the second is known to be an ellipsoid, and the first one, too, or a sphere or capsule."""
    if not (one.size.keys() >= {"box_x", "skin"} and two.size.keys() >= {"box_x", "skin"}):
        return False
    flat = [is_zero(geom.size[name]) for geom in (one, two) for name in ("side", "box_x", "box_y")]
    radii = [[is_zero(geom.size[f"radius_{axis}"]) for axis in "xyz"] for geom in (one, two)]
    rod = all(radii[0]) or (is_zero(one.size["box_z"]) and not any(radii[0]))
    return all(flat) and is_zero(two.size["box_z"]) and not any(radii[1]) and rod


def round_spot(one: Geom, two: Geom, spot: list[Scalar]) -> list[Scalar]:
    """Return the spot of two such shapes, to rounding."""
    acts = spot[0] < NEVER
    near = choose(acts, [held(x) for x in spot[4:]], [0.0, 0.0, 1.0])
    dist, *where = _spot(Hull(one), Hull(two), near)
    return [select(acts, dist, NEVER), *where]


def _spot(one: Hull, two: Hull, n: list[Scalar]) -> list[Scalar]:
    """Compute dist, point and normal. n: nearly the normal."""
    apart, axis, reach = sub(one.centre, two.centre), one.axes[2], one.box[2]
    end: Scalar = 0.0 if is_zero(reach) else select(dot(axis, n) >= 0.0, reach, -reach)
    corner = add_scaled(apart, axis, end)
    at_end, s = _solved(one, two, corner, n, None), end
    if not is_zero(reach):
        level = _unit(add_scaled(n, axis, -dot(axis, n)))
        beside = _solved(one, two, apart, level, axis)
        along = -dot(axis, add(apart, _furthest(one, two, beside)))
        on_side = logical_and(absolute(along) <= reach, dot(beside, n) > ALIKE)
        at_end, s = choose(on_side, beside, at_end), select(on_side, along, end)
    n = at_end
    x = add(add_scaled(apart, axis, s), _furthest(one, two, n))
    dist = -dot(n, x) - (one.skin + two.skin)
    a = add(add_scaled(one.centre, axis, s), _end(one, n))
    # the surfaces along n, and half way between them
    return [dist, *add_scaled(a, n, one.skin + 0.5 * dist), *n]


def _solved(one: Hull, two: Hull, corner: Vec, n: list[Scalar], across: Vec | None) -> list[Scalar]:
    """Return the n from which the furthest point w(n) is along n. corner: w without what is round.

    across: n is held across this axis, along which w does not count. One step has derivatives, after some without.
    """
    for _ in range(STEPS):
        n = [held(x) for x in _step(one, two, corner, n, across, False)]
    return _step(one, two, corner, n, across, True)


def _step(
    one: Hull, two: Hull, corner: Vec, n: list[Scalar], across: Vec | None, last: bool
) -> list[Scalar]:
    """Make a step of Newton's method. last: its own derivative is to be that of the solution."""
    if across is not None:
        n = _unit(add_scaled(n, across, -dot(across, n)))
        tangents = [cross(across, n)]
    else:
        steep = absolute(n[0]) < 0.7
        first = _unit(cross([select(steep, 1.0, 0.0), select(steep, 0.0, 1.0), 0.0], n))
        tangents = [first, cross(n, first)]
    w = add(corner, _furthest(one, two, n))
    depth = dot(n, w)
    bend = [_bend(one, two, n, t) for t in tangents]
    matrix = [[dot(u, y) - (depth if u is t else 0.0) for u in tangents] for t, y in zip(tangents, bend, strict=True)]
    slope = [dot(t, w) for t in tangents]
    if last:
        matrix = [[held(x) for x in row] for row in matrix]
    if len(tangents) == 1:
        turns = [-_over(slope[0], matrix[0][0])]
    else:
        (p, q), (_, r) = matrix
        area = p * r - q * q
        turns = [_over(q * slope[1] - r * slope[0], area), _over(q * slope[0] - p * slope[1], area)]
    if not last:
        turns = [maximum(minimum(x, FARTHEST), -FARTHEST) for x in turns]
    for t, turn in zip(tangents, turns, strict=True):
        n = add_scaled(n, t, turn)
    return _unit(n)


def _furthest(one: Hull, two: Hull, n: Vec) -> list[Scalar]:
    """What is round of the furthest point of C along n."""
    return add(_end(one, n), _end(two, n))  # of the second, the one against n counts, and is taken off


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


def _bend(one: Hull, two: Hull, n: Vec, t: Vec) -> list[Scalar]:
    """How fast the furthest point of C changes where n turns towards t."""
    total: list[Scalar] = [0.0, 0.0, 0.0]
    for hull in (one, two):
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
