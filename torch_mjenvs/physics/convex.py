"""Where two convex shapes touch: what MuJoCo's native collider (mjc_ccd) finds, by the points that are furthest.

All is said of the difference C of two shapes, the points a - b of a in the first and b in the second: they overlap
where the origin is in C, by as much as it is from C's surface. All that is known of C is its furthest point in a given
direction (`Hull.furthest`).

Spheres and capsules are a point or a segment with a round skin. Where these cores are apart, `nearest` finds the point
of C nearest to the origin. Else, and of shapes without skins, `deepest` finds the face of C nearest to the origin.

a, b points of the two shapes   w = a - b   x the point of C that is sought   n unit vector from the first to the second
"""

from __future__ import annotations

from typing import Any

from ..compiler.control import count_while, when_any, while_any
from ..compiler.rooms import Room, number
from ..compiler.scalar import (
    Mask,
    Scalar,
    absolute,
    logical_and,
    logical_not,
    logical_or,
    maximum,
    select,
    sqrt,
)
from .colliders import NEVER, Found, Geom, Place, make_frame
from .patches import find_patch
from .spatial import MINVAL, Vec, add, add_scaled, choose, column, cross, dot, is_zero, norm, scale, sub, zeros

TOLERANCE = 1e-6  # metres: ccd_tolerance
STEPS = 35  # ccd_iterations: how many points are added to C's polytope at the most
GAP = 1e-12  # of the squared distance: what may be between the nearest point and the bound from below
ABOVE = 1e-10  # metres: what is less above a face does not see it
SPOT = 7  # dist, point, normal


class Hull:
    """A geom as its furthest points: the corner of a box plus the furthest point of an ellipsoid, plus a skin."""

    def __init__(self, geom: Geom):
        self.axes = [column(geom.mat, k) for k in range(3)]
        self.centre = geom.centre
        self.box = [geom.size[k] for k in ("box_x", "box_y", "box_z")]
        self.radii = [geom.size[k] for k in ("radius_x", "radius_y", "radius_z")]
        self.skin = geom.size["skin"]

    def furthest(self, n: Vec, skin: Scalar = 0.0) -> list[Scalar]:
        """In direction n, a unit vector, with a skin of this thickness."""
        local = [dot(axis, n) for axis in self.axes]
        reach = [x * r for x, r in zip(local, self.radii, strict=True)]
        length = maximum(norm(reach), MINVAL)
        out = add_scaled(self.centre, n, skin)
        for axis, x, half, r, part in zip(self.axes, local, self.box, self.radii, reach, strict=True):
            corner = half if is_zero(half) else select(x >= 0.0, half, -half)
            out = add_scaled(out, axis, corner + (0.0 if is_zero(r) else r * part / length))
        return out


def find_convex(one: Geom, two: Geom, several: Mask) -> Found:
    """Two shapes without skins."""
    spot = deepest(Hull(one), Hull(two), one.margin)
    return [(spot[0], spot)]


def find_flat(one: Geom, two: Geom, several: Mask) -> Found:
    """The same where both have flat parts: up to four contacts."""
    first, second = Hull(one), Hull(two)
    spots = find_patch(first, second, deepest(first, second, one.margin), one.margin, several)
    return [(spot[0], spot) for spot in spots]


def find_round(one: Geom, two: Geom, several: Mask) -> Found:
    """Two shapes of which one is a sphere or a capsule."""
    first, second = Hull(one), Hull(two)
    apart, spot = nearest(first, second, one.margin)
    spot = when_any(logical_not(apart), lambda _: deepest(first, second, one.margin), spot)
    return [(spot[0], spot)]


def place_convex(one: Geom, two: Geom, spot: list) -> Place:
    """As it was found."""
    return spot[0], spot[1:4], make_frame(spot[4:], None)


# cores that are apart


def nearest(one: Hull, two: Hull, margin: Scalar) -> tuple[Mask, list[Scalar]]:
    """Whether the cores are apart, and then the spot: where they are nearest (the GJK algorithm).

    x is in a triangle of points of C. A point of C that is further towards the origin takes the place of one of them.
    """

    def further(x: list) -> list[Scalar]:
        """w and a of C's furthest point towards the origin from x."""
        n = scale(x, -1.0 / maximum(norm(x), MINVAL))
        a = one.furthest(n)
        return sub(a, two.furthest(scale(n, -1.0))) + a

    reach = one.skin + two.skin + margin  # what is further away does not touch
    first = further(sub(one.centre, two.centre))
    start = {"points": [first] * 3, "x": first[:3], "a": first[3:], "square": dot(first[:3], first[:3]), "go": True}
    start["go"] = start["square"] > TOLERANCE * TOLERANCE

    def step(c: dict) -> dict:
        s = further(c["x"])
        bound = dot(c["x"], s[:3])
        open_ = logical_and(c["square"] - bound > c["square"] * GAP, bound < reach * sqrt(c["square"]))
        best = _nearest_with(s, c["points"])
        better = logical_and(open_, best["square"] < c["square"])
        new = {key: _pick(better, best[key], c[key]) for key in ("points", "x", "a", "square")}
        return new | {"go": logical_and(better, new["square"] > TOLERANCE * TOLERANCE)}

    c = while_any(lambda c: c["go"], step, start, 2 * STEPS)
    x, a, distance = c["x"], c["a"], sqrt(c["square"])
    n = scale(x, -1.0 / maximum(distance, MINVAL))
    apart = logical_and(distance > TOLERANCE, dot(x, further(x)[:3]) > 0.0)
    dist = distance - (one.skin + two.skin)
    point = add_scaled(a, n, one.skin + 0.5 * dist)
    return apart, [dist, *point, *n]


def _nearest_with(s: list, points: list) -> dict[str, Any]:
    """The point nearest to the origin of the triangles of s and two of three points, if it is not on a side without s:
    what it is, and the three points of which it is a mean.
    """
    best: dict[str, Any] = {"points": [s, s, s], "x": s[:3], "a": s[3:], "square": dot(s[:3], s[:3])}

    def offer(there: Mask, others: list, shares: list) -> None:
        at = list(s)
        for p, share in zip(others, shares, strict=True):
            at = [x + (y - z) * share for x, y, z in zip(at, p, s, strict=True)]
        square = dot(at[:3], at[:3])
        nearer = logical_and(there, square < best["square"])
        new = {"points": [s, others[0], others[-1]], "x": at[:3], "a": at[3:], "square": square}
        for key, x in new.items():
            best[key] = _pick(nearer, x, best[key])

    ways = [sub(p[:3], s[:3]) for p in points]
    along = [-dot(way, s[:3]) for way in ways]
    squares = [dot(way, way) for way in ways]
    for p, t, square in zip(points, along, squares, strict=True):
        there = logical_and(t > 0.0, t < square)
        offer(there, [p], [t / select(there, square, 1.0)])
    for i, j in ((0, 1), (0, 2), (1, 2)):
        between = dot(ways[i], ways[j])
        area = squares[i] * squares[j] - between * between
        u, v = along[i] * squares[j] - along[j] * between, along[j] * squares[i] - along[i] * between
        there = logical_and(area > MINVAL * squares[i] * squares[j], u > 0.0, v > 0.0, u + v < area)
        safe = select(there, area, 1.0)
        offer(there, [points[i], points[j]], [u / safe, v / safe])
    return best


def _pick(mask: Mask, new: Any, old: Any) -> Any:
    if isinstance(new, list):
        return [_pick(mask, x, y) for x, y in zip(new, old, strict=True)]
    return select(mask, new, old)


# shapes that overlap


def deepest(one: Hull, two: Hull, margin: Scalar) -> list[Scalar]:
    """The spot where the origin is nearest to the surface of C, if it is inside (the EPA algorithm).

    C's polytope is a list of points and one of faces. In each step the face nearest to the origin is looked at: if C is
    hardly further in that direction, the face is on C's surface. Else the furthest point becomes one of the polytope's,
    and new faces from it take the place of those that it sees. The origin may be outside of the polytope: then a face
    that is seen from there is the nearest, its distance being negative. Where the origin is beyond C's furthest point,
    it is outside of C.
    """
    skins = [hull.skin + 0.5 * margin for hull in (one, two)]

    def furthest(n: list) -> list[Scalar]:
        """w and a."""
        a = one.furthest(n, skins[0])
        return sub(a, two.furthest(scale(n, -1.0), skins[1])) + a

    corners = _tetrahedron(furthest, sub(two.centre, one.centre))
    sides = [
        [*map(float, abc), *_plane(*(corners[v][:3] for v in abc))]
        for abc in ((0, 1, 2), (0, 2, 3), (0, 3, 1), (1, 3, 2))
    ]
    points, faces = Room(4 + STEPS, 6, corners), Room(4 + 2 * STEPS, 7, sides)
    edges, seen = Room(3 * faces.shape.rows, 2), Room(faces.shape.rows, 1)

    def step(i: Any, c: dict) -> dict:
        face, depth = count_while(
            lambda k, f: number(k) < c["faces"],
            lambda k, f: _lesser([number(k), *faces.at(k, [6])], f),
            [0.0, 1e10],
            faces.shape.rows,
        )
        abc, n = faces.at(face, range(3)), faces.at(face, range(3, 6))
        new = furthest(n)
        further = dot(n, new[:3])
        outside, close = further < 0.0, further - depth < TOLERANCE
        go = logical_not(logical_or(outside, close))
        count = _see(faces, edges, seen, c["faces"], new[:3], go)
        made = _close(points, faces, edges, seen, c, count, new[:3])
        points.put(c["points"], new, go)
        return {
            "go": go,
            "inside": logical_not(outside),
            "abc": abc,
            "n": n,
            "depth": depth,
            "points": c["points"] + select(go, 1.0, 0.0),
            "faces": c["faces"] + maximum(made - count, 0.0),
        }

    start = {
        "go": True,
        "inside": False,
        "abc": zeros(3),
        "n": zeros(3),
        "depth": 0.0,
        "points": 4.0,
        "faces": 4.0,
    }
    c = count_while(lambda i, c: c["go"], step, start, STEPS, [points, faces, edges, seen])
    x = scale(c["n"], c["depth"])
    at = [points.at(k, range(6)) for k in c["abc"]]
    shares = _shares([p[:3] for p in at], x)
    a = [dot(shares, [p[k] for p in at]) for k in (3, 4, 5)]
    dist = select(c["inside"], margin - c["depth"], NEVER)
    return [dist, *add_scaled(a, x, -0.5), *c["n"]]


def _tetrahedron(furthest: Any, direction: list) -> list[list[Scalar]]:
    """Four points of C, with a volume: each as far as it can be from what the others span."""
    n = scale(direction, 1.0 / maximum(norm(direction), MINVAL))
    n = choose(dot(direction, direction) < MINVAL, [1.0, 0.0, 0.0], n)
    p, q = furthest(n), furthest(scale(n, -1.0))
    way = sub(q[:3], p[:3])
    n = _across(way)
    r = _further(furthest, n, p)
    n = cross(way, sub(r[:3], p[:3]))
    n = scale(n, 1.0 / maximum(norm(n), MINVAL))
    s = _further(furthest, n, p)
    turned = dot(sub(s[:3], p[:3]), n) > 0.0  # the first face must look away from the last corner
    return [p, choose(turned, r, q), choose(turned, q, r), s]


def _across(way: list) -> list[Scalar]:
    """A unit vector at right angles."""
    x, y, z = (absolute(k) for k in way)
    least_x, least_y = logical_and(x <= y, x <= z), y <= z
    axis = [select(least_x, 1.0, 0.0), select(least_x, 0.0, select(least_y, 1.0, 0.0))]
    axis.append(1.0 - axis[0] - axis[1])
    n = cross(way, axis)
    return scale(n, 1.0 / maximum(norm(n), MINVAL))


def _further(furthest: Any, n: list, p: list) -> list[Scalar]:
    """The furthest point along n, or against it if that is further from the plane through p."""
    up, down = furthest(n), furthest(scale(n, -1.0))
    return choose(dot(sub(up[:3], p[:3]), n) >= -dot(sub(down[:3], p[:3]), n), up, down)


def _plane(a: list, b: list, c: list) -> list[Scalar]:
    """The unit normal of a triangle, and its distance from the origin. One without area is never near."""
    n = cross(sub(b, a), sub(c, a))
    length = norm(n)
    flat = length < MINVAL
    n = scale(n, 1.0 / select(flat, 1.0, length))
    return [*choose(flat, zeros(3), n), select(flat, 1e9, dot(n, a))]


def _lesser(new: list, old: list) -> list:
    return choose(new[1] < old[1], new, old)


def _see(faces: Room, edges: Room, seen: Room, count: Scalar, w: list, go: Mask) -> Scalar:
    """List the faces that w sees, and their edges; how many they are."""

    def look(k: Any, n: Scalar) -> Scalar:
        a, b, c, *plane = faces.at(k, range(7))
        sees = logical_and(go, dot(plane[:3], w) - plane[3] > ABOVE)
        for j, edge in enumerate(([a, b], [b, c], [c, a])):
            edges.put(3.0 * n + j, edge, sees)
        seen.put(n, [number(k)], sees)
        return n + select(sees, 1.0, 0.0)

    return count_while(lambda k, n: number(k) < count, look, 0.0, faces.shape.rows, [edges, seen])


def _close(points: Room, faces: Room, edges: Room, seen: Room, c: dict, count: Scalar, w: list) -> Scalar:
    """Put a face from w to each edge that but one face has that w sees; how many they are."""

    def close(k: Any, made: Scalar) -> Scalar:
        a, b = edges.at(k, range(2))

        def look(j: Any, inner: Mask) -> Mask:
            p, q = edges.at(j, range(2))
            return logical_or(inner, logical_and(absolute(p - b) < 0.5, absolute(q - a) < 0.5))

        inner = count_while(lambda j, _: number(j) < 3.0 * count, look, False, edges.shape.rows)
        rim = logical_not(inner)
        (again,) = seen.at(made, [0])
        where = select(made < count, again, c["faces"] + made - count)
        first, second = (points.at(v, range(3)) for v in (a, b))
        faces.put(where, [a, b, c["points"], *_plane(first, second, w)], rim)
        return made + select(rim, 1.0, 0.0)

    return count_while(lambda k, _: number(k) < 3.0 * count, close, 0.0, edges.shape.rows, [faces])


def _shares(corners: list, x: list) -> list[Scalar]:
    """Of the corners in x, a point of their plane."""
    ways = [sub(corner, x) for corner in corners]
    areas = [cross(ways[1], ways[2]), cross(ways[2], ways[0]), cross(ways[0], ways[1])]
    whole = add(add(areas[0], areas[1]), areas[2])
    square = maximum(dot(whole, whole), MINVAL * MINVAL)
    return [dot(area, whole) / square for area in areas]
