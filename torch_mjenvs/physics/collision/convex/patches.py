"""Finds up to four contacts where flat parts of two convex shapes lie on each other, as MuJoCo's multiccd.

Two faces nearly look at each other, or an edge and a face do. One is cut off at the sides of the other, and they touch
at those of its corners that are then below the other's plane. Of more than four such corners, four are taken that go
round much of the polygon. Which faces and edges come into question is in `faces`.

n unit vector from the first shape to the second
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ....compiler.arrays import Array, Table
from ....compiler.control import choose_all, count_while, when_any
from ....compiler.implicit import for_derivatives
from ....compiler.scalar import (
    Mask,
    Scalar,
    absolute,
    floor,
    logical_and,
    logical_not,
    logical_or,
    maximum,
    number,
    select,
)
from ...algebra.spatial import MINVAL, add_scaled, choose, cross, dot, scale, sub, unit, zeros
from ..colliders import NEVER
from .faces import ROUND, FaceOrEdge, Feature, choose_part, opposite
from .hull import Hull

MOST = 4
AT = 1000.0


@dataclass
class Patch:
    """Where flat parts of two hulls lie on each other, for derivatives: see `closed_form`. Without these it is empty.

    parts: 1 if the parts meet on a face of the first hull, 2 if on one of the second, 0 if there is no patch; 1 if what
    lies on that face is a face, 0 if it is an edge; the numbers of the two faces; both ends of the edge, in the axes of
    its hull. sides: for each of the four corners, the two sides, or the side and the end of the edge, where it is, as
    `_cut_off` numbers them.
    """

    parts: list[Scalar]
    sides: list[list[Scalar]]

    @staticmethod
    def none() -> Patch:
        """Return no patch."""
        return Patch(for_derivatives(lambda: zeros(10)), [for_derivatives(lambda: zeros(2)) for _ in range(MOST)])


def find_patch(
    one: Hull, two: Hull, spot: list[Scalar], corners: list[list[Scalar]], margin: Scalar, several: Mask
) -> tuple[list[list[Scalar]], Patch]:
    """Find up to four spots of two hulls that touch at `spot`, and their patch.

    corners: for each hull, the numbers of the three corners that touch there. Where there may not be several spots,
    `spot` is the only one.
    """
    alone = [spot, *([NEVER, *zeros(6)] for _ in range(MOST - 1))]

    def patch(carry: tuple[list[list[Scalar]], Patch]) -> tuple[list[list[Scalar]], Patch]:
        n = spot[4:]
        a, b = Feature(one, corners[0]), Feature(two, corners[1])
        both, face_a, face_b = opposite(a, b)
        by_a = logical_and(logical_not(both), a.dimension < 2.5)
        first, on_b, edge_a = a.edge_on(b, n, by_a)
        by_b = logical_and(logical_not(logical_or(both, first)), b.dimension < 2.5)
        second, on_a, edge_b = b.edge_on(a, scale(n, -1.0), by_b)
        some = logical_or(both, first, second)
        at = choose_part(first, b.face(on_b), a.face(choose(both, face_a, on_a)))
        of = choose_part(both, b.face(face_b), choose_part(first, edge_a, edge_b))
        outwards = choose(both, scale(face_b[:3], -1.0), at.normal)  # of `at`
        towards = choose(first, scale(outwards, -1.0), outwards)
        most = max(one.solids.most_corners, ROUND)

        def parts() -> list[Scalar]:
            ends = [choose(first, one.seen(p), two.seen(p)) for p in (of.corner(float(k)) for k in (0, 1))]
            face = select(first, on_b[3], select(both, face_a[3], on_a[3]))
            return [select(first, 2.0, 1.0), select(both, 1.0, 0.0), face, face_b[3], *ends[0], *ends[1]]

        def cut(carry: tuple[list[list[Scalar]], Patch]) -> tuple[list[list[Scalar]], Patch]:
            spots, kept = [], _cut_off(at, of, both, margin, most)
            for corner, dist, there, _ in kept:
                spots.append([select(there, dist, NEVER), *add_scaled(corner, outwards, 0.5 * dist), *towards])
            found = Patch(for_derivatives(parts), [sides for *_, sides in kept])
            return choose_all(spots[0][0] < margin, (spots, found), carry)

        return when_any(some, cut, carry)

    found: tuple[list[list[Scalar]], Patch] = when_any(
        logical_and(several, spot[0] < margin), patch, (alone, Patch.none())
    )
    return found


def _cut_off(
    at: FaceOrEdge, of: FaceOrEdge, both: Mask, margin: Scalar, sides: int
) -> list[tuple[list[Scalar], Scalar, Mask, list[Scalar]]]:
    """Cut a part off at a face's sides: return up to four corners' images on the face, their distances, and masks.

    If derivatives are asked for, return also the sides before and after each corner. A side of the part has the number
    of the corner at which it begins; those of the face are numbered from `AT` on.

    All is seen along the face's normal. Between two faces the distance is taken along the other face's normal.

    sides: the most sides that there are.
    """
    capacity = 2 * sides + 2  # corners of a polygon that has been cut off
    rims = float(2 * capacity)  # where the corners of `at` are
    rows = Array(rows=2 * capacity + sides + 1, columns=3 + len(for_derivatives(lambda: zeros(2))))

    def fill(j: Any, c: Scalar) -> Scalar:
        k = number(j)
        own = for_derivatives(lambda: [select(k < 0.5, of.corners, k) - 1.0, k])
        rows.put(k, [*of.corner(j), *own], k < of.corners)
        rows.put(rims + number(j), at.corner(j), number(j) < at.corners)
        return c

    count_while(lambda j, c: number(j) < maximum(of.corners, at.corners), fill, 0.0, sides, [rows])
    start = rows[rims, :3]
    lean = select(both, -dot(at.normal, of.normal), 1.0)

    def image(p: list[Scalar]) -> tuple[list[Scalar], Scalar]:
        height = dot(sub(p, start), at.normal)
        return add_scaled(p, at.normal, -height), height * lean

    # the corners are now in the first half of `rows`, now in the second
    halves = Table([e % 2 * capacity for e in range(sides + 1)])

    def cut(e: Any, count: Scalar) -> Scalar:
        a = rows[e + 2 * capacity, :3]
        b = choose(number(e) + 1.5 < at.corners, rows[e + (2 * capacity + 1), :3], start)
        inwards = cross(sub(b, a), at.normal)
        inwards = unit(inwards)
        here, there = halves[e], number(halves[e + 1])
        first = rows[here]

        def side(i: Any, c: dict[str, Any]) -> dict[str, Any]:
            after = choose(number(i) + 1.5 < count, rows[here + i + 1], first)
            (p, of_p), q, made = _split(c["corner"]), after[:3], c["made"]
            high_p, high_q = dot(sub(p, a), inwards), dot(sub(q, a), inwards)
            in_p, in_q = high_p > -MINVAL, high_q > -MINVAL
            crosses = logical_or(logical_and(in_p, logical_not(in_q)), logical_and(in_q, logical_not(in_p)))
            share = high_p / select(crosses, high_p - high_q, 1.0)
            crosses = logical_and(crosses, share >= 0.0, share <= 1.0)
            at_wall = AT + number(e)
            of_new = for_derivatives(lambda: choose(in_p, [of_p[1], at_wall], [at_wall, of_p[1]]))
            rows.put(there + made, [*add_scaled(p, sub(q, p), share), *of_new], crosses)
            made = made + select(crosses, 1.0, 0.0)
            rows.put(there + made, after, in_q)
            return {"corner": after, "made": made + select(in_q, 1.0, 0.0)}

        begin = {"corner": first, "made": 0.0}
        return count_while(lambda i, _: number(i) < count, side, begin, capacity, [rows])["made"]

    count = count_while(lambda e, _: number(e) < at.corners, cut, of.corners, sides, [rows])
    odd = at.corners - 2.0 * floor(0.5 * at.corners) > 0.5
    left, base = (select(odd, x, y) for x, y in ((float(capacity), 0.0), (0.0, float(capacity))))

    def below(i: Any, kept: Scalar) -> Scalar:
        p = rows[left + number(i)]
        low = image(p[:3])[1] <= margin
        rows.put(base + kept, p, low)
        return kept + select(low, 1.0, 0.0)

    count = count_while(lambda i, _: number(i) < count, below, 0.0, capacity, [rows])
    edge = of.corners < 2.5
    most = select(edge, 2.0, float(MOST))
    places = [float(k) for k in range(MOST)]
    many = count > most + 0.5
    places = when_any(logical_and(many, logical_not(edge)), lambda _: _widest(rows, base, count, capacity), places)
    places = when_any(logical_and(many, edge), lambda _: _ends(rows, base, count, capacity), places)
    out = []
    for k, place in enumerate(places):
        p = rows[base + place]
        out.append((*image(p[:3]), logical_and(k + 0.5 < count, k + 0.5 < most), p[3:]))
    return out


def _split(row: list[Scalar]) -> tuple[list[Scalar], list[Scalar]]:
    """Return a corner (3), and its sides, if they are kept (2)."""
    return row[:3], row[3:]


def _widest(rows: Array, base: Scalar, count: Scalar, capacity: int) -> list[Scalar]:
    """Find four corners of a convex polygon that go round much of it, as MuJoCo does: each corner is the first in turn,
    and the other three move on while the area between the four grows.
    """

    def area(corners: list[Scalar]) -> Scalar:
        a, b, c, d = (rows[base + k, :3] for k in corners)
        across = cross(sub(a, c), sub(b, d))
        return dot(across, across)

    def after(k: Scalar) -> Scalar:
        return select(k + 1.5 < count, k + 1.0, 0.0)

    def move(which: int, then: tuple[int, ...], c: dict[str, Any]) -> dict[str, Any]:
        """Move one corner on while the area grows, and those in `then` each time it does."""

        def step(_: Any, c: dict[str, Any]) -> dict[str, Any]:
            at = [after(k) if j == which else k for j, k in enumerate(c["at"])]
            new = area(at)
            grows = new > c["most"]
            c = {
                "at": choose(grows, at, c["at"]),
                "best": choose(grows, at, c["best"]),
                "most": select(grows, new, c["most"]),
                "go": grows,
            }
            for other in then:
                c = move(other, (), c) | {"go": grows}
            return c

        return count_while(lambda _, c: c["go"], step, c, capacity)

    def start(i: Any, c: dict[str, Any]) -> dict[str, Any]:
        at = [number(i), *c["at"][1:]]
        c = move(3, (2, 1), c | {"at": at, "go": True})
        a, b, third, fourth = c["at"]
        caught = b < a + 0.5  # the first has caught up with the second, and so on
        b = select(caught, after(b), b)
        caught = logical_and(caught, absolute(third - b) < 0.5)
        third = select(caught, after(third), third)
        caught = logical_and(caught, absolute(fourth - third) < 0.5)
        return c | {"at": [a, b, third, select(caught, after(fourth), fourth)]}

    first: list[Scalar] = [0.0, 1.0, 2.0, 3.0]
    begin = {"at": first, "best": first, "most": area(first), "go": True}
    return count_while(lambda i, _: number(i) < count, start, begin, capacity)["best"]


def _ends(rows: Array, base: Scalar, count: Scalar, capacity: int) -> list[Scalar]:
    """Return the two ends of an edge whose ends may be listed twice: the first corner, and the one furthest from it."""
    first = rows[base, :3]

    def look(i: Any, c: list[Any]) -> list[Any]:
        way = sub(rows[base + number(i), :3], first)
        square = dot(way, way)
        return choose(square > c[1], [number(i), square], c)

    end = count_while(lambda i, _: number(i) < count, look, [1.0, 0.0], capacity)[0]
    return [0.0, end, 2.0, 3.0]
