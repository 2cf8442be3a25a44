"""Where two shapes with corners touch, in closed form from the corners and faces that the search picked.

It is for derivatives, and recorded where these are asked for. What the search picked, and the numbers by which it is
known, is held constant: so the derivatives are those of the piece in which the shapes are.

Letters are as in `convex`: w = a - b points of C   x the point of C that is sought   n unit vector from the first shape
to the second
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....compiler.control import count_while
from ....compiler.implicit import held
from ....compiler.scalar import Mask, Scalar, absolute, logical_and, maximum, number, select
from ...algebra.spatial import MINVAL, Vec, add_scaled, choose, cross, dot, norm, scale, sub, zeros
from .hull import Hull
from .patches import MOST, Patch

AT = 1000.0  # added to the number of a side of the face on which all is seen

Corner = Callable[[Any], list[Scalar]]
Walls = Callable[[Any], tuple[list[Scalar], list[Scalar]]]  # normal and a point of what stands on the j-th side


def given_of(hull: Hull) -> list[Scalar]:
    """List what a hull's corners follow from."""
    return [*hull.centre, *(x for axis in hull.axes for x in axis), *hull.box, hull.skin]


def spots_of(one: Hull, two: Hull, apart: Mask, corners: list[list[Scalar]], patch: Patch) -> list[list[Scalar]]:
    """Compute the four spots of two hulls: dist, point and normal of each.

    apart: the cores are. corners: the three points of C, with a, of which x is a mean or, where cores overlap, on whose
    plane it is.
    """
    alone = spot_of(one, two, apart, corners)
    found = [alone, *(zeros(7) for _ in range(MOST - 1))]
    if patch.some is False:
        return found
    return [choose(patch.some, new, old) for new, old in zip(_on_patch(one, two, alone[4:], patch), found, strict=True)]


def spot_of(one: Hull, two: Hull, apart: Mask, corners: list[list[Scalar]]) -> list[Scalar]:
    """Compute the spot of two hulls: dist, point and normal."""
    a = [one.carried(p[3:6]) for p in corners]
    w = [sub(x, two.carried(sub(p[3:6], p[:3]))) for x, p in zip(a, corners, strict=True)]
    u, v = sub(w[1], w[0]), sub(w[2], w[0])

    def at(shares: Vec) -> list[Scalar]:
        return add_scaled(add_scaled(a[0], sub(a[1], a[0]), shares[0]), sub(a[2], a[0]), shares[1])

    n, length = _unit(cross(u, v))
    depth = dot(n, w[0])
    x = scale(n, depth)
    whole = length * length
    shares = [_over(dot(cross(p, q), n) * length, whole) for p, q in ((sub(x, w[0]), v), (u, sub(x, w[0])))]
    point = add_scaled(add_scaled(at(shares), x, -0.5), n, 0.5 * (one.skin - two.skin))
    deep = [-depth - (one.skin + two.skin), *point, *n]
    if apart is False:
        return deep
    shares = _nearest_shares(w, _same(corners[0], corners[1]), _same(corners[1], corners[2]))
    x = add_scaled(add_scaled(w[0], u, shares[0]), v, shares[1])
    n, distance = _unit(scale(x, -1.0))
    dist = distance - (one.skin + two.skin)
    return choose(apart, [dist, *add_scaled(at(shares), n, one.skin + 0.5 * dist), *n], deep)


def _nearest_shares(w: list[list[Scalar]], single: Mask, twice: Mask) -> list[Scalar]:
    """The shares of the second and third of three points in the point nearest to the origin on what they span.

    twice: the last two are the same; single: the first two are, and there is just one.
    """
    u, v = sub(w[1], w[0]), sub(w[2], w[0])
    uu, uv, vv, along_u, along_v = dot(u, u), dot(u, v), dot(v, v), -dot(u, w[0]), -dot(v, w[0])
    area = uu * vv - uv * uv
    shares = [_over(along_u * vv - along_v * uv, area), _over(along_v * uu - along_u * uv, area)]
    shares = choose(twice, [_over(along_u, uu), 0.0], shares)
    return choose(logical_and(single, twice), [0.0, 0.0], shares)


def _same(p: list[Scalar], q: list[Scalar]) -> Mask:
    return logical_and(*(absolute(x - y) <= 0.0 for x, y in zip(p[:3], q[:3], strict=True)))


def _over(x: Scalar, y: Scalar) -> Scalar:
    """x / y; 0 where y is."""
    nothing = absolute(y) < MINVAL * MINVAL
    return select(nothing, 0.0, x / select(nothing, 1.0, y))


def _unit(x: Vec) -> tuple[list[Scalar], Scalar]:
    length = norm(x)
    return scale(x, 1.0 / maximum(length, MINVAL)), length


def _on_patch(one: Hull, two: Hull, n: Vec, patch: Patch) -> list[list[Scalar]]:
    """Compute the spots of a patch. n: the normal of the spot from which it was found."""
    solids, (face, other) = one.solids, (held(patch.face), held(patch.other))
    at, normal = _face(one, face), one.turned(solids.faces[face, :3])
    of, others = _face(two, other), two.turned(solids.faces[other, :3])
    seconds, of_two = two.turned(solids.faces[face, :3]), _face(two, face)
    normal = choose(patch.on_two, seconds, normal)
    first, count = solids.faces[face, 3:]

    def corner(j: Any) -> list[Scalar]:
        return choose(patch.on_two, of_two(j), at(j))

    ends = [
        choose(patch.on_two, x, y)
        for x, y in zip(_edge(one, patch.ends, n), _edge(two, patch.ends, scale(n, -1.0)), strict=True)
    ]
    walls = _walls(corner, count, normal)
    faces, _ = solids.faces[other, 3:], None
    walls_of = _walls(of, faces[1], others)
    start, most = corner(0.0), solids.most_corners
    lean = select(patch.faces, -dot(normal, others), 1.0)
    outwards = choose(patch.faces, scale(others, -1.0), normal)
    towards = choose(patch.on_two, scale(outwards, -1.0), outwards)
    found = []
    for p in patch.corners:
        cut = _corner_of_faces(p, walls, count, walls_of, faces[1], others, most)
        p = choose(patch.faces, cut, _corner_of_edge(p, ends, walls, count, most))
        height = dot(sub(p, start), normal)
        dist = height * lean
        found.append([dist, *add_scaled(add_scaled(p, normal, -height), outwards, 0.5 * dist), *towards])
    return found


def _face(hull: Hull, face: Scalar) -> Corner:
    """The corners of a face, from 0."""
    solids = hull.solids
    first = solids.faces[face, 3]
    return lambda j: hull.vertex(solids.rims[first + j])


def _edge(hull: Hull, ends: list[list[Scalar]], out: Vec) -> list[list[Scalar]]:
    """Both ends of an edge of a hull. That of a capsule is its axis, moved outwards."""
    flat = [hull.carried(p) for p in ends]
    if is_sharp(hull):
        return flat
    axis, half = hull.axes[2], hull.box[2]
    across = add_scaled(out, axis, -dot(axis, out))
    side = add_scaled(hull.centre, across, hull.skin)
    sides = [add_scaled(side, axis, -half), add_scaled(side, axis, half)]
    return [choose(hull.skin > 0.0, x, y) for x, y in zip(sides, flat, strict=True)]


def is_sharp(hull: Hull) -> bool:
    """True if a hull is known to have no skin."""
    return isinstance(hull.skin, float) and hull.skin == 0.0


def _walls(corner: Corner, count: Scalar, n: Vec) -> Walls:
    """What stands on the sides of a face, along its normal."""

    def wall(j: Any) -> tuple[list[Scalar], list[Scalar]]:
        a, b = corner(j), corner(select(j + 1.5 < count, j + 1.0, 0.0))
        return _unit(cross(sub(b, a), n))[0], a

    return wall


def _off(wall: tuple[list[Scalar], list[Scalar]], p: Vec) -> Scalar:
    """How far a point is from a wall."""
    return absolute(dot(wall[0], sub(p, wall[1])))


def _two_nearest(best: list[Scalar], walls: Walls, count: Scalar, p: Vec, offset: float, most: int) -> list[Scalar]:
    """Put the walls nearest to a point among the best two: distance and number of each."""

    def look(j: Any, best: list[Scalar]) -> list[Scalar]:
        off, k = _off(walls(number(j)), p), number(j) + offset
        return choose(off < best[0], [off, k, *best[:2]], choose(off < best[2], [*best[:2], off, k], best))

    return count_while(lambda j, _: number(j) < count, look, best, most)


def _corner_of_faces(
    p: Vec, walls: Walls, count: Scalar, walls_of: Walls, count_of: Scalar, n: Vec, most: int
) -> list[Scalar]:
    """The corner p of a face of normal n that was cut off at the walls of another: where two walls meet its plane."""
    best = _two_nearest([1e10, 0.0, 1e10, 0.0], walls_of, count_of, p, 0.0, most)
    _, one, _, two = _two_nearest(best, walls, count, p, AT, most)
    planes = [(n, walls_of(0.0)[1])]
    for k in (held(one), held(two)):
        (g, a), (h, b) = walls_of(k), walls(k - AT)
        planes.append((choose(k > 0.5 * AT, h, g), choose(k > 0.5 * AT, b, a)))
    heights = [dot(g, a) for g, a in planes]
    (n0, _), (n1, _), (n2, _) = planes
    ways = [cross(n1, n2), cross(n2, n0), cross(n0, n1)]
    volume = dot(n0, ways[0])
    return [_over(dot(heights, [way[k] for way in ways]), volume) for k in range(3)]


def _corner_of_edge(p: Vec, ends: list[list[Scalar]], walls: Walls, count: Scalar, most: int) -> list[Scalar]:
    """The point p of an edge that was cut off at walls: an end, or where it goes through a wall."""
    off = [norm(sub(p, end)) for end in ends]
    best = choose(off[0] < off[1], [off[0], 0.0], [off[1], 1.0])
    _, k, _, _ = _two_nearest([*best, 1e10, 0.0], walls, count, p, AT, most)
    k = held(k)
    g, a = walls(k - AT)
    way = sub(ends[1], ends[0])
    through = add_scaled(ends[0], way, _over(dot(g, sub(a, ends[0])), dot(g, way)))
    return choose(k > 0.5 * AT, through, choose(k > 0.5, ends[1], ends[0]))
