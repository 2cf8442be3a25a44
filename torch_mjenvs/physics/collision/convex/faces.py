"""Corners, edges and faces of a convex shape: which of them touches, and the faces and edges it belongs to.

A face is known by its number (see `solids`); of a cylinder it is the disc at an end, taken for a polygon of 16 corners.
The edge of a cylinder is the line of its side that is furthest out.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ....compiler.arrays import Array, Table
from ....compiler.control import count_while
from ....compiler.scalar import Mask, Scalar, absolute, logical_and, logical_or, number, select
from ...algebra.spatial import Vec, add_scaled, choose, dot, norm, scale, sub, unit
from .hull import Hull

ROUND = 16  # corners for a disc
LOOKS_AT = 0.996  # mjFACE_TOL: cosine from which on two faces look at each other
LIES_ON = 0.0888  # mjEDGE_TOL: sine up to which an edge lies on a face
# If the sine of the angle between the normal and a cylinder's axis is less, only rounding tells which line of its side
# is furthest out. MuJoCo takes any, and mostly one that touches nothing. So the line is put where it touches nothing.
ALONG, NOWHERE = 1e-6, 1e6  # the latter in metres


@dataclass
class FaceOrEdge:
    """A face or an edge, with its number of corners. normal: of the face that it is, or lies on."""

    corners: Scalar
    normal: list[Scalar]
    corner: Callable[[Any], list[Scalar]]  # from 0; those of a face are clockwise as seen from outside


def choose_part(mask: Mask, a: FaceOrEdge, b: FaceOrEdge) -> FaceOrEdge:
    return FaceOrEdge(
        select(mask, a.corners, b.corners),
        choose(mask, a.normal, b.normal),
        lambda j: choose(mask, a.corner(j), b.corner(j)),
    )


class Feature:
    """The part of a hull that touches, by the numbers of three corners, some of which may be the same.

    dimension: 1 of a corner, 2 of an edge, 3 of a face. A disc is a corner, and the side of a cylinder or capsule an
    edge, as only the ends have numbers.
    """

    def __init__(self, hull: Hull, numbers: list[Scalar]):
        a, b, c = numbers
        twice = _same(a, b)
        b = select(twice, c, b)
        once = _same(a, b)
        self.hull, self.numbers = hull, [a, b, c]
        self.dimension = select(once, 1.0, select(logical_or(twice, _same(c, a), _same(c, b)), 2.0, 3.0))
        self.disc = logical_or(*(r > 0.0 for r in hull.radii))
        self.round = logical_or(self.disc, hull.skin > 0.0)  # whose edge is its axis, moved outwards
        self._list_faces()

    @property
    def most(self) -> int:
        """The most faces that it may belong to."""
        return self.hull.solids.most_around

    def _list_faces(self) -> None:
        """List the faces that all three corners belong to."""
        (a, b, c), hull, solids = self.numbers, self.hull, self.hull.solids
        disc = scale(hull.axes[2], select(a > 0.5, 1.0, -1.0))
        self.faces = Array([[*disc, 0.0]] if self.disc is not False else [], self.most, 4)
        first, n = solids.around[a]
        start = select(logical_and(self.disc, self.dimension < 1.5), 1.0, 0.0)

        def look(k: Any, counts: list[Scalar]) -> list[Scalar]:
            count, of_edge = counts
            f = solids.corners[first + number(k), 0]
            on_edge = logical_and(self._belongs(f, b), of_edge < most)
            has = logical_and(on_edge, self._belongs(f, c))
            self.faces.put(count, [*self.hull.turned(solids.faces[f, :3]), f], has)
            return [count + select(has, 1.0, 0.0), of_edge + select(on_edge, 1.0, 0.0)]

        n = select(self.round, 0.0, n)
        # Of the faces at an edge the first two count; flat ones may be more. MuJoCo looks for the face of three corners
        # among the first two at one of its sides, too: at which side is up to its search, and mostly they are all.
        most = select(absolute(self.dimension - 2.0) < 0.5, 2.0, float(self.most))
        self.count, _ = count_while(lambda k, _: number(k) < n, look, [start, 0.0], self.most, [self.faces])

    def _belongs(self, f: Scalar, v: Scalar) -> Mask:
        solids = self.hull.solids
        first, n = solids.around[v]

        def look(k: Any, found: Mask) -> Mask:
            return logical_or(found, _same(solids.corners[first + number(k), 0], f))

        return count_while(lambda k, _: number(k) < n, look, False, self.most)

    def face(self, row: list[Scalar]) -> FaceOrEdge:
        """Return the part that one of `faces` is."""
        solids, f = self.hull.solids, row[3]
        first, n = solids.faces[f, 3:]

        def corner(j: Any) -> list[Scalar]:
            at = self.hull.vertex(solids.rims[first + number(j)])
            return at if self.disc is False else choose(self.disc, self._disc_corner(j), at)

        return FaceOrEdge(select(self.disc, float(ROUND), n), row[:3], corner)

    def _disc_corner(self, j: Any) -> list[Scalar]:
        hull = self.hull
        angles = [2 * math.pi * (j % ROUND) / ROUND for j in range(max(ROUND, hull.solids.most_corners))]
        cosines, sines = ([round(f(x), 15) for x in angles] for f in (math.cos, math.sin))
        up, x, y = self.numbers[0] > 0.5, hull.radii[0] * Table(cosines)[j], hull.radii[1] * Table(sines)[j]
        out = add_scaled(hull.centre, hull.axes[2], select(up, hull.box[2], -hull.box[2]))
        return add_scaled(add_scaled(out, hull.axes[0], x), hull.axes[1], select(up, -y, y))

    def edge_on(self, other: Feature, out: Vec, asked: Mask) -> tuple[Mask, list[Scalar], FaceOrEdge]:
        """Find the first edge that lies on one of the other feature's faces: a mask, the face and the edge.

        Faces are gone through in order, and for each of them the edges.
        """
        (a, b, _), hull, solids = self.numbers, self.hull, self.hull.solids
        first, n = solids.around[a]
        whole = self.dimension > 1.5
        n = select(logical_or(whole, self.round), 1.0, n)
        start = hull.vertex(a)
        axis = hull.axes[2]

        def edge(j: Any) -> list[Scalar]:
            to = select(whole, b, solids.corners[first + number(j), 1])
            way = sub(hull.vertex(to), start)
            return way if self.round is False else choose(self.round, scale(axis, 2.0 * hull.box[2]), way)

        def on(i: Any, found: list[Any]) -> list[Any]:
            row = other.faces[i]

            def look(j: Any, found: list[Any]) -> list[Any]:
                way = edge(j)
                lies = absolute(dot(way, row[:3])) < LIES_ON * norm(way)
                return choose(logical_and(lies, found[0] < 0.5), [1.0, *row, *way], found)

            return count_while(lambda j, f: logical_and(number(j) < n, f[0] < 0.5), look, found, self.most)

        count = select(asked, other.count, 0.0)
        none = [0.0] * 8
        found = count_while(lambda i, f: logical_and(number(i) < count, f[0] < 0.5), on, none, self.most)
        row, way = found[1:5], found[5:]
        if self.round is not False:
            across = add_scaled(out, axis, -dot(axis, out))
            upright = norm(across) < ALONG
            side = hull.furthest(unit(across))
            side = add_scaled(side, across, hull.skin)
            side = add_scaled(side, axis, dot(sub(hull.centre, side), axis) - hull.box[2])
            start = choose(self.round, add_scaled(side, row[:3], select(upright, NOWHERE, 0.0)), start)
        part = FaceOrEdge(2.0, row[:3], lambda j: add_scaled(start, way, select(number(j) > 0.5, 1.0, 0.0)))
        return found[0] > 0.5, row, part


def opposite(one: Feature, two: Feature) -> tuple[Mask, list[Scalar], list[Scalar]]:
    """Find the faces that look at each other most, one of each: a mask of whether any do, then both."""

    def each(i: Any, found: list[Any]) -> list[Any]:
        a = one.faces[i]

        def look(j: Any, found: list[Any]) -> list[Any]:
            b = two.faces[j]
            cosine = dot(a[:3], b[:3])
            return choose(cosine < found[0], [cosine, *a, *b], found)

        return count_while(lambda j, _: number(j) < two.count, look, found, two.most)

    none = [-LOOKS_AT, *[0.0] * 8]
    found = count_while(lambda i, _: number(i) < one.count, each, none, one.most)
    return found[0] < -LOOKS_AT, found[1:5], found[5:]


def _same(a: Scalar, b: Scalar) -> Mask:
    return absolute(a - b) < 0.5
