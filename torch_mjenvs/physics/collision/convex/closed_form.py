"""Where two shapes with corners touch, in closed form from the corners and faces that the search picked.

It is for derivatives. If there are any, a spot has more numbers than dist, point and normal: those that tell what was
picked. They are held constant, so the derivatives are those of the smooth piece in which the shapes are.

Letters are as in `convex`: w = a - b points of C   x the point of C that is sought   n unit vector from the first shape
to the second
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....compiler.implicit import follows, held
from ....compiler.scalar import Mask, Scalar, absolute, logical_and, logical_or, maximum, select
from ...algebra.spatial import MINVAL, Vec, add_scaled, choose, column, cross, dot, is_zero, norm, scale, sub, zeros
from ..colliders import NEVER, Geom
from .hull import Hull
from .patches import AT

SPOT = 7  # dist, point, normal
# After them: of how many points of C (1 to 3) x is a mean, or 4 if x is on the plane of three; then three points each
# of a and b, in the axes of their hulls.
PICKED = 19

Corner = Callable[[Any], list[Scalar]]
Wall = tuple[list[Scalar], list[Scalar]]  # the plane upright on a face through one of its sides: its normal and a point


def picked(one: Any, two: Hull, apart: Mask, corners: list[list[Scalar]]) -> list[Scalar]:
    """Return the `PICKED` numbers of two hulls. corners: three points of C, each with its a.

    Where the hulls' cores are apart (mask), x is a mean of the three, some of which may be equal.
    """
    twice = _same(corners[1], corners[2])
    count = select(twice, select(_same(corners[0], corners[1]), 1.0, 2.0), 3.0)
    a, b = ([hull.seen(p) for p in points] for hull, points in (
        (one, [p[3:6] for p in corners]), (two, [sub(p[3:6], p[:3]) for p in corners])
    ))  # fmt: skip
    return [select(apart, count, 4.0), *(x for p in (*a, *b) for x in p)]


def spot_by(one: Geom, two: Geom, spot: list[Scalar]) -> list[Scalar]:
    """Return dist, point and normal of a spot, with the derivatives that follow from what was picked."""

    def formula() -> list[Scalar]:
        first, second, kept = Hull(one), Hull(two), kept_of(spot)
        return _on_patch(first, second, spot_of(first, second, kept[:PICKED]), kept[PICKED:])

    return follows(spot[:SPOT], lambda: [*moving(Hull(one)), *moving(Hull(two))], formula)


def kept_of(spot: list[Scalar]) -> list[Scalar]:
    """Return a spot's numbers after dist, point and normal, held constant; 0 where there is no contact, since they are
    unspecified there.
    """
    return [held(select(spot[0] < NEVER, x, 0.0)) for x in spot[SPOT:]]


class Fixed:
    """A geom in the role of a `Hull` of which nothing is known but where its own frame is: a height field."""

    def __init__(self, geom: Geom):
        self.centre, self.axes = geom.centre, [column(geom.mat, k) for k in range(3)]
        self.box, self.skin = zeros(3), 0.0


def moving(hull: Hull | Fixed) -> list[Scalar]:
    """List the numbers of a hull from which its corners follow."""
    return [*hull.centre, *(x for axis in hull.axes for x in axis), *hull.box, hull.skin]


def spot_of(one: Hull | Fixed, two: Hull, picks: list[Scalar]) -> list[Scalar]:
    """Compute dist, point and normal from what was picked."""
    count, *flat = picks
    a, b = ([_at(hull, flat[k : k + 3]) for k in places] for hull, places in ((one, (0, 3, 6)), (two, (9, 12, 15))))
    w = [sub(x, y) for x, y in zip(a, b, strict=True)]
    u, v = sub(w[1], w[0]), sub(w[2], w[0])

    def mean(shares: Vec) -> list[Scalar]:
        return add_scaled(add_scaled(a[0], sub(a[1], a[0]), shares[0]), sub(a[2], a[0]), shares[1])

    n, area = _unit(cross(u, v))
    depth = dot(n, w[0])
    x = scale(n, depth)
    shares = [_over(dot(cross(p, q), n), area) for p, q in ((sub(x, w[0]), v), (u, sub(x, w[0])))]
    point = add_scaled(add_scaled(mean(shares), x, -0.5), n, 0.5 * (one.skin - two.skin))
    deep = [-depth - (one.skin + two.skin), *point, *n]
    shares = _nearest_shares(w, count)
    x = add_scaled(add_scaled(w[0], u, shares[0]), v, shares[1])
    n, distance = _unit(scale(x, -1.0))
    dist = distance - (one.skin + two.skin)
    return choose(count > 3.5, deep, [dist, *add_scaled(mean(shares), n, one.skin + 0.5 * dist), *n])


def _at(hull: Hull | Fixed, x: Vec) -> list[Scalar]:
    """Return the hull's corner at x in its axes. It moves with the hull and, if that is a box, with its size."""
    out = list(hull.centre)
    for axis, y, half in zip(hull.axes, x, hull.box, strict=True):
        end = 0.0 if is_zero(half) else select(y >= 0.0, half, -half)
        out = add_scaled(out, axis, held(y - end) + end)
    return out


def _nearest_shares(w: list[list[Scalar]], count: Scalar) -> list[Scalar]:
    """Return the shares of the second and third of three points in the point nearest to the origin that they span."""
    u, v = sub(w[1], w[0]), sub(w[2], w[0])
    uu, uv, vv, along_u, along_v = dot(u, u), dot(u, v), dot(v, v), -dot(u, w[0]), -dot(v, w[0])
    area = uu * vv - uv * uv
    shares = [_over(along_u * vv - along_v * uv, area), _over(along_v * uu - along_u * uv, area)]
    return choose(count > 2.5, shares, [select(count > 1.5, _over(along_u, uu), 0.0), 0.0])


def _same(p: list[Scalar], q: list[Scalar]) -> Mask:
    return logical_and(*(absolute(x - y) <= 0.0 for x, y in zip(p[:3], q[:3], strict=True)))


def _over(x: Scalar, y: Scalar) -> Scalar:
    """Return x / y; 0 where y is 0."""
    nothing = absolute(y) < MINVAL * MINVAL
    return select(nothing, 0.0, x / select(nothing, 1.0, y))


def _unit(x: Vec) -> tuple[list[Scalar], Scalar]:
    length = norm(x)
    return scale(x, 1.0 / maximum(length, MINVAL)), length


def _on_patch(one: Hull, two: Hull, alone: list[Scalar], known: list[Scalar]) -> list[Scalar]:
    """Compute the spot of a corner of a patch. Where there is no patch, return `alone`, from which it was sought."""
    on, faces, face, other, *flat = known
    on_two, sides, n, solids = on > 1.5, flat[6:], alone[4:], one.solids
    normals = [hull.turned(solids.faces[face, :3]) for hull in (one, two)]
    normal, others = choose(on_two, normals[1], normals[0]), two.turned(solids.faces[other, :3])
    corners = [_corners_of(hull, face) for hull in (one, two)]

    def corner(j: Any) -> list[Scalar]:
        return choose(on_two, corners[1](j), corners[0](j))

    is_face = faces > 0.5
    start = corner(0.0)
    lean = select(is_face, -dot(normal, others), 1.0)
    outwards = choose(is_face, scale(others, -1.0), normal)
    towards = choose(on_two, scale(outwards, -1.0), outwards)
    of, (before, after) = _corners_of(two, other), sides
    walls = [
        _choose_wall(k > AT - 0.5, _wall(corner, solids.faces[face, 4], normal, k - AT),
                     _wall(of, solids.faces[other, 4], others, k))
        for k in (before, after)
    ]  # fmt: skip
    ends = [
        choose(on_two, *(_end(hull, x, out, k) for hull, out in ((one, n), (two, scale(n, -1.0)))))
        for k, x in enumerate((flat[:3], flat[3:6]))
    ]
    beyond = [k > AT - 0.5 for k in (before, after)]
    through = _through(ends, _choose_wall(beyond[0], walls[0], walls[1]))
    end = choose(after > 0.5, ends[1], ends[0])
    p = choose(is_face, _meeting([(others, of(0.0)), *walls]), choose(logical_or(*beyond), through, end))
    height = dot(sub(p, start), normal)
    dist = height * lean
    spot = [dist, *add_scaled(add_scaled(p, normal, -height), outwards, 0.5 * dist), *towards]
    return choose(on > 0.5, spot, alone)


def _corners_of(hull: Hull, face: Scalar) -> Corner:
    """Return the corners of a face, from 0."""
    first = hull.solids.faces[face, 3]
    return lambda j: hull.vertex(hull.solids.rims[first + j])


def _end(hull: Hull, x: Vec, out: Vec, k: int) -> list[Scalar]:
    """Return an end of a hull's edge, at x in the hull's axes. The edge of a capsule is its axis, moved outwards."""
    flat = _at(hull, x)
    if is_zero(hull.skin):
        return flat
    axis = hull.axes[2]
    across = add_scaled(out, axis, -dot(axis, out))
    side = add_scaled(add_scaled(hull.centre, across, hull.skin), axis, hull.box[2] if k else -hull.box[2])
    return choose(hull.skin > 0.0, side, flat)


def _wall(corner: Corner, count: Scalar, n: Vec, j: Scalar) -> Wall:
    """Return the wall on the j-th side of a face, which stands along the face's normal."""
    a, b = corner(j), corner(select(j + 1.5 < count, j + 1.0, 0.0))
    return _unit(cross(sub(b, a), n))[0], a


def _choose_wall(mask: Mask, one: Wall, two: Wall) -> Wall:
    return choose(mask, one[0], two[0]), choose(mask, one[1], two[1])


def _meeting(planes: list[Wall]) -> list[Scalar]:
    """Return the point where three planes meet."""
    heights, (a, b, c) = [dot(n, p) for n, p in planes], (n for n, _ in planes)
    ways = [cross(b, c), cross(c, a), cross(a, b)]
    volume = dot(a, ways[0])
    return [_over(dot(heights, [way[k] for way in ways]), volume) for k in range(3)]


def _through(ends: list[list[Scalar]], wall: Wall) -> list[Scalar]:
    """Return the point where an edge goes through a wall."""
    (n, p), way = wall, sub(ends[1], ends[0])
    return add_scaled(ends[0], way, _over(dot(n, sub(p, ends[0])), dot(n, way)))
