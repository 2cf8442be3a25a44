"""Finds how deep two convex shapes are in each other: the EPA algorithm. Letters are as in `convex`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ....compiler.arrays import Array
from ....compiler.control import count_while
from ....compiler.scalar import (
    Mask,
    Scalar,
    absolute,
    floor,
    logical_and,
    logical_not,
    logical_or,
    maximum,
    minimum,
    number,
    select,
)
from ...algebra.spatial import MINVAL, add, add_scaled, choose, cross, dot, norm, scale, sub, unit, zeros
from ..colliders import NEVER
from .hull import Hull, difference

TOLERANCE = 1e-6  # metres: ccd_tolerance
STEPS = 35  # ccd_iterations: how many points are added to C's polytope at the most
TETRAHEDRON = ((0, 1, 2), (0, 2, 3), (0, 3, 1), (1, 3, 2))  # its faces' corners, seen from outside
POINTS = 64.0  # more than a polytope has, so that an edge is one number
ABOVE = 1e-13  # metres: a point this little above a face counts as on it ...
LEVEL = 16.0  # ... or, where corners are known by their numbers, so many times the rounding of C's size
SETTLING = 8  # points that take the place of a corner in the end
TIE = 1e-4  # share of how far C reaches beyond the best face so far: a direction that is this little worse is as good


def deepest(one: Hull, two: Hull, margin: Scalar) -> list[Scalar]:
    """Find the spot where the origin is nearest to the surface of C, if it is inside.

    C's polytope is a list of points and a list of faces. Each step looks at the face nearest to the origin. If C
    reaches hardly further in that direction, the face is on C's surface. If not, the furthest point joins the polytope,
    and new faces from it take the place of those that it sees. The origin may be outside of the polytope: then the
    nearest face is one that is seen from there, at a negative distance. If the origin is beyond C's furthest point, it
    is outside of C.
    """
    return deepest_corners(one, two, margin)[0]


def deepest_corners(one: Hull, two: Hull, margin: Scalar) -> tuple[list[Scalar], list[list[Scalar]]]:
    """Find the spot as `deepest` does, and the face's three corners: w and a."""
    return _expand(one, two, [hull.skin + 0.5 * margin for hull in (one, two)], margin, False)


def deepest_face(one: Hull, two: Hull, margin: Scalar) -> tuple[list[Scalar], list[list[Scalar]]]:
    """Find the spot as `deepest` does, and the face's three corners: w, a and the numbers of both shapes' corners.

    If the shapes have nothing but corners, the face is exactly one of C's.
    """
    return _expand(one, two, [hull.skin + 0.5 * margin for hull in (one, two)], margin, True)


def deepest_core_face(one: Hull, two: Hull, margin: Scalar) -> tuple[list[Scalar], list[list[Scalar]]]:
    """Find spot and corners as `deepest_face` does, of cores that overlap or touch, and add skins to their depth."""
    return _expand(one, two, [0.0, 0.0], margin, True)


def deepest_from(one: Hull, two: Hull, points: list[list[Scalar]]) -> tuple[list[Scalar], list[list[Scalar]]]:
    """Find the spot and the face's corners as `deepest_corners` does, of shapes with nothing but corners.

    It starts from four points of C around the origin, of which the first three are a face that looks away from the last
    one. A point comes with both corners' numbers, as `difference` gives them.
    """
    return _expand(one, two, [0.0, 0.0], 0.0, True, points)


def _expand(
    one: Hull,
    two: Hull,
    skins: list[Scalar],
    margin: Scalar,
    numbered: bool,
    corners: list[list[Scalar]] | None = None,
) -> tuple[list[Scalar], list[list[Scalar]]]:
    """Expand a polytope in C towards its surface; return the spot, and the face's three corners.

    skins: the part of both skins that is in C; the rest of them is added at the end.
    corners: the four that the polytope begins with.

    For shapes with nothing but corners the answer is the last face. For others it is the direction in which C reaches
    least far, of all that were looked at: one shape has to be moved at most that far. If the steps do not suffice, the
    last face may be far from the best.
    """
    rest = [hull.skin + 0.5 * margin - skin for hull, skin in zip((one, two), skins, strict=True)]

    def furthest(n: list[Scalar]) -> list[Scalar]:
        """Return the point w of C furthest along n, its a and, if `numbered`, both corners' numbers."""
        return difference(one, two, n, skins, numbered)

    at_first = _tetrahedron(furthest, sub(two.centre, one.centre)) if corners is None else corners
    sides = [[*map(float, abc), *_plane(*(at_first[v][:3] for v in abc))] for abc in TETRAHEDRON]
    cornered: Mask = numbered and logical_and(
        *(s <= 0.0 for s in skins), *(r <= 0.0 for hull in (one, two) for r in hull.radii)
    )
    # Corners of flat faces, and of parallel edges, are above a face that they lie on by rounding alone. Such a point
    # would see some of the faces that it lies on and not others, and its own would have no normal to speak of.
    level: Scalar = ABOVE
    tolerance = select(cornered, MINVAL, TOLERANCE)
    if numbered and corners is None:
        size = functools.reduce(maximum, (sum(map(absolute, p[:3])) for p in at_first))
        level = size * (LEVEL * two.epsilon)
        tolerance = select(cornered, level, TOLERANCE)

    def judge(c: dict[str, Any], face: list[Scalar], known: Callable[[list[Scalar]], Mask]) -> tuple[Any, ...]:
        """Return the furthest point beyond the face nearest to the origin, whether to go on from it, and what is best.

        known: tells whether a point with these numbers of both corners is already in the polytope.
        """
        abc, n, depth = face[:3], face[3:6], face[6]
        new = furthest(n)
        further = dot(n, new[:3])
        # C reaches as far beyond parallel faces, of which the last one is on its surface.
        better = logical_or(cornered, further < c["reach"] + TIE * (c["reach"] - c["depth"]))
        reach = select(better, further, c["reach"])
        outside, close = further < -(rest[0] + rest[1]), reach - depth < tolerance
        there = cornered if cornered is False else logical_and(cornered, known(new[6:]))
        best = {
            "inside": logical_not(outside),
            "reach": reach,
            "abc": choose(better, abc, c["abc"]),
            "n": choose(better, n, c["n"]),
            "depth": select(better, depth, c["depth"]),
        }
        return new, logical_not(logical_or(outside, close, there)), best

    start = {"inside": False, "reach": 1e10, "abc": zeros(3), "n": zeros(3), "depth": 0.0}
    go: Mask = True
    if corners is not None:  # on rough ground this step is mostly the last, or the last but one: it takes no lists
        nearest = functools.reduce(lambda x, y: choose(y[6] < x[6], y, x), sides)
        new, go, start = judge(start, nearest, lambda numbers: logical_or(*(_is_of(p, numbers) for p in corners)))
        sides, at_first = _grown(corners, sides, new, go), [*corners, new]
    start |= {"go": go, "points": float(len(at_first)), "faces": float(len(sides))}
    points, faces = Array(at_first, 4 + STEPS), Array(sides, len(sides) + 2 * STEPS)
    edges, rim, seen = Array(rows=faces.rows, columns=3), Array(rows=3 * faces.rows), Array(rows=faces.rows)

    def step(i: Any, c: dict[str, Any]) -> dict[str, Any]:
        face, _ = count_while(
            lambda k, f: number(k) < c["faces"],
            lambda k, f: _lesser([number(k), faces[k, 6]], f),
            [0.0, 1e10],
            faces.rows,
        )
        new, go, best = judge(c, faces[face], lambda numbers: _known(points, c["points"], numbers))
        count = _see(faces, edges, seen, c["faces"], new[:3], level, go)
        made = _close(points, faces, edges, rim, seen, c, count, new[:3])
        points.put(c["points"], new, go)
        return best | {
            "go": go,
            "points": c["points"] + select(go, 1.0, 0.0),
            "faces": c["faces"] + maximum(made - count, 0.0),
        }

    c = count_while(lambda i, c: c["go"], step, start, 4 + STEPS - len(at_first), [points, faces, edges, rim, seen])
    x = scale(c["n"], c["depth"])
    at = [points[k] for k in c["abc"]]
    if numbered and corners is None:
        at, c["n"], c["depth"] = _settled(furthest, cornered, at, c["n"], c["depth"], level)
        x = scale(c["n"], c["depth"])
    shares = _shares([p[:3] for p in at], x)
    a = [dot(shares, [p[k] for p in at]) for k in (3, 4, 5)]
    depth = select(cornered, c["depth"], c["reach"])
    dist = select(c["inside"], margin - depth - (rest[0] + rest[1]), NEVER)
    point = add_scaled(add_scaled(a, x, -0.5), c["n"], 0.5 * (rest[0] - rest[1]))
    return [dist, *point, *c["n"]], at


def _settled(
    furthest: Any, cornered: Mask, at: list[list[Scalar]], n: list[Scalar], depth: Scalar, level: Scalar
) -> tuple[list[list[Scalar]], list[Scalar], Scalar]:
    """Return a face's corners, normal and distance once points that are less than `level` above it have taken the place
    of corners, so that they are those of a face of C. The face stays where the origin is nearest.
    """

    def step(_: Any, c: dict[str, Any]) -> dict[str, Any]:
        at, n, depth = c["at"], c["n"], c["depth"]
        new, x = furthest(n), scale(n, depth)
        w = new[:3]
        beside = [dot(n, cross(sub(p[:3], w), sub(x, w))) for p in at]
        face = at
        for k in range(3):  # of the parts of the face as w sees it, the one with x in it
            here = logical_and(beside[(k + 1) % 3] >= 0.0, beside[(k + 2) % 3] < 0.0)
            face = [choose(here, new, at[k]) if i == k else p for i, p in enumerate(face)]
        *turned, far = _plane(*(p[:3] for p in face))
        known = logical_or(*(_is_of(p, new[6:]) for p in at))
        above = logical_and(cornered, dot(n, w) - depth > MINVAL, dot(n, w) - depth < 2.0 * level)
        good = logical_and(above, logical_not(known), absolute(far - depth) < level)
        return {
            "at": [choose(good, p, q) for p, q in zip(face, at, strict=True)],
            "n": choose(good, turned, n),
            "depth": select(good, far, depth),
            "go": good,
        }

    start = {"at": at, "n": n, "depth": depth, "go": True}
    c = count_while(lambda i, c: c["go"], step, start, SETTLING)
    return c["at"], c["n"], c["depth"]


def _known(points: Array, count: Scalar, numbers: list[Scalar]) -> Mask:
    """Return the mask of the worlds where one of the points comes from the two corners with these numbers."""

    def look(k: Any, found: Mask) -> Mask:
        return logical_or(found, _is_of(points[k], numbers))

    return count_while(lambda k, _: number(k) < count, look, False, points.rows)


def _is_of(point: list[Scalar], numbers: list[Scalar]) -> Mask:
    """Return the mask of the worlds where a point comes from the two corners with these numbers."""
    apart = [absolute(x - y) for x, y in zip(point[6:], numbers, strict=True)]
    return apart[0] + apart[1] < 0.5


def _grown(corners: list[list[Scalar]], sides: list[list[Scalar]], new: list[Scalar], go: Mask) -> list[list[Scalar]]:
    """Return the faces of a tetrahedron with a new point, in the worlds where it is added: the tetrahedron's, and one
    from the new point to each edge. Those that do not exist get a distance at which they are never the nearest.
    """
    w, none = new[:3], [*zeros(3), 1e9]
    sees = [logical_and(go, dot(side[3:6], w) - side[6] > ABOVE) for side in sides]
    grown = [[*side[:3], *choose(see, none, side[3:])] for see, side in zip(sees, sides, strict=True)]
    of_edge: dict[tuple[int, int], Mask] = {}
    for (a, b, c), see in zip(TETRAHEDRON, sees, strict=True):
        of_edge |= {(a, b): see, (b, c): see, (c, a): see}
    for (i, j), see in of_edge.items():
        if i < j:
            other = of_edge[j, i]
            ends = choose(see, [float(i), float(j)], [float(j), float(i)])
            first, second = (choose(see, corners[p][:3], corners[q][:3]) for p, q in ((i, j), (j, i)))
            there = logical_or(logical_and(see, logical_not(other)), logical_and(other, logical_not(see)))
            grown.append([*ends, 4.0, *choose(there, _plane(first, second, w), none)])
    return grown


def _tetrahedron(furthest: Any, direction: list[Scalar]) -> list[list[Scalar]]:
    """Find four points of C that span a volume, each as far as it can be from what those before it span."""
    n = unit(direction)
    n = choose(dot(direction, direction) < MINVAL, [1.0, 0.0, 0.0], n)
    p, q = furthest(n), furthest(scale(n, -1.0))
    way = sub(q[:3], p[:3])
    n = _across(way)
    r = _further(furthest, n, p)
    n = cross(way, sub(r[:3], p[:3]))
    n = unit(n)
    s = _further(furthest, n, p)
    turned = dot(sub(s[:3], p[:3]), n) > 0.0  # the first face must look away from the last corner
    return [p, choose(turned, r, q), choose(turned, q, r), s]


def _across(way: list[Scalar]) -> list[Scalar]:
    """Return a unit vector at right angles to `way`."""
    x, y, z = (absolute(k) for k in way)
    least_x, least_y = logical_and(x <= y, x <= z), y <= z
    axis = [select(least_x, 1.0, 0.0), select(least_x, 0.0, select(least_y, 1.0, 0.0))]
    axis.append(1.0 - axis[0] - axis[1])
    n = cross(way, axis)
    return unit(n)


def _further(furthest: Any, n: list[Scalar], p: list[Scalar]) -> list[Scalar]:
    """Return the furthest point along n, or against it if that is further from the plane through p."""
    up, down = furthest(n), furthest(scale(n, -1.0))
    return choose(dot(sub(up[:3], p[:3]), n) >= -dot(sub(down[:3], p[:3]), n), up, down)


def _plane(a: list[Scalar], b: list[Scalar], c: list[Scalar]) -> list[Scalar]:
    """Return the unit normal of a triangle, and its distance from the origin.

    A triangle without area gets a distance at which it is never the nearest.
    """
    n = cross(sub(b, a), sub(c, a))
    length = norm(n)
    flat = length < MINVAL
    n = scale(n, 1.0 / select(flat, 1.0, length))
    return [*choose(flat, zeros(3), n), select(flat, 1e9, dot(n, a))]


def _lesser(new: list[Scalar], old: list[Scalar]) -> list[Scalar]:
    return choose(new[1] < old[1], new, old)


def _see(faces: Array, edges: Array, seen: Array, count: Scalar, w: list[Scalar], level: Scalar, go: Mask) -> Scalar:
    """List the faces that w is above by more than `level`, and the three edges of each; return how many faces they are.

    An edge from a to b is the number POINTS a + b.
    """

    def look(k: Any, n: Scalar) -> Scalar:
        a, b, c, *plane = faces[k]
        sees = logical_and(go, dot(plane[:3], w) - plane[3] > level)
        edges.put(n, [start * POINTS + end for start, end in ((a, b), (b, c), (c, a))], sees)
        seen.put(n, number(k), sees)
        return n + select(sees, 1.0, 0.0)

    return count_while(lambda k, n: number(k) < count, look, 0.0, faces.rows, [edges, seen])


def _close(
    points: Array,
    faces: Array,
    edges: Array,
    rim: Array,
    seen: Array,
    c: dict[str, Any],
    count: Scalar,
    w: list[Scalar],
) -> Scalar:
    """Add a face from w to each edge that only one of the seen faces has; return how many faces were added."""

    def find(k: Any, found: Scalar) -> Scalar:
        own = edges[k]
        backs = [end * POINTS + start for start, end in map(_ends, own)]

        def look(j: Any, apart: list[Scalar]) -> list[Scalar]:
            """Return how far the nearest edge so far is from each that goes back: 0 if it is that."""
            for edge in edges[j]:
                apart = [minimum(x, absolute(edge - back)) for x, back in zip(apart, backs, strict=True)]
            return apart

        apart = count_while(lambda j, _: number(j) < count, look, [1.0] * 3, edges.rows)
        for edge, x in zip(own, apart, strict=True):
            alone = x > 0.5
            rim.put(found, edge, alone)
            found = found + select(alone, 1.0, 0.0)
        return found

    def close(k: Any, nothing: Any) -> Any:
        start, end = _ends(rim[k])
        beyond = number(k) - count
        where = select(beyond < 0.0, seen[k], c["faces"] + beyond)  # in place of one that is seen, while there are any
        first, second = (points[v, :3] for v in (start, end))
        faces.put(where, [start, end, c["points"], *_plane(first, second, w)])
        return nothing

    made = count_while(lambda k, _: number(k) < count, find, 0.0, edges.rows, [rim])
    count_while(lambda k, _: number(k) < made, close, [], rim.rows, [faces])
    return made


def _ends(edge: Scalar) -> tuple[Scalar, Scalar]:
    """Return the points at the ends of an edge."""
    start = floor(edge * (1.0 / POINTS))
    return start, edge - start * POINTS


def _shares(corners: list[list[Scalar]], x: list[Scalar]) -> list[Scalar]:
    """Return the shares of three corners in x, a point of their plane."""
    ways = [sub(corner, x) for corner in corners]
    areas = [cross(ways[1], ways[2]), cross(ways[2], ways[0]), cross(ways[0], ways[1])]
    whole = add(add(areas[0], areas[1]), areas[2])
    square = maximum(dot(whole, whole), MINVAL * MINVAL)
    return [dot(area, whole) / square for area in areas]
