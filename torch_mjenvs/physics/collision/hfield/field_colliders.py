"""Finds where a convex shape touches a height field: MuJoCo's mjc_ConvexHField.

Each cell under the shape is two prisms, and each of them touches as any convex shape does, in one point. Contacts come
in the order of the prisms, row by row, up to as many as MuJoCo keeps.

Positions here are measured from the shape's centre, in the field's axes.

x, y, z of the field   column, row of a cell's corner with the least x and y   half which of its two prisms
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....compiler.arrays import Array
from ....compiler.control import count_while
from ....compiler.implicit import follows, for_derivatives
from ....compiler.queues import queued
from ....compiler.scalar import (
    Mask,
    Scalar,
    floor,
    logical_and,
    logical_not,
    logical_or,
    maximum,
    minimum,
    number,
    select,
)
from ...algebra.spatial import Vec, add, column, dot, mat_vec, norm, scale, sub, zeros
from ...model.hfield import MOST, HField
from ..colliders import NEVER, Found, Geom, Place
from ..convex.closed_form import PICKED, SPOT, Fixed, kept_of, moving, spot_of
from ..convex.convex import place_found
from ..convex.hull import Hull
from .field_corners import touch_cornered
from .prisms import Prism, ball_spot, is_apart, touch_ball, touch_core, touch_round


def find_on_field(field: Geom, geom: Geom) -> Found:
    """Find the contacts of a shape without a skin on a height field."""
    return _find(field, geom, touch_round, picks=0)


def find_cornered_on_field(field: Geom, geom: Geom) -> Found:
    """Find the contacts of a box or a mesh on a height field."""
    return _find(field, geom, touch_cornered)


def find_ball_on_field(field: Geom, geom: Geom) -> Found:
    """Find the contacts of a sphere on a height field."""
    return _find(field, geom, lambda prism, hull, margin: touch_ball(prism, hull), looks=False)


def find_rod_on_field(field: Geom, geom: Geom) -> Found:
    """Find the contacts of a capsule on a height field."""
    return _find(field, geom, touch_core)


def place_on_field(field: Geom, geom: Geom, spot: list[Scalar]) -> Place:
    """Read the contact that `find` left in its spot: dist, point and normal."""
    return _place(field, geom, spot, lambda picks: spot_of(Fixed(field), Hull(geom), picks))


def place_ball_on_field(field: Geom, ball: Geom, spot: list[Scalar]) -> Place:
    """Read the contact that `find_ball_on_field` left in its spot: dist, point and normal."""
    return _place(field, ball, spot, lambda picks: ball_spot(field, ball, picks))


def _place(field: Geom, geom: Geom, spot: list[Scalar], by: Callable[[list[Scalar]], list[Scalar]]) -> Place:
    found = follows(spot[:SPOT], lambda: [*moving(Fixed(field)), *moving(Hull(geom))], lambda: by(kept_of(spot)))
    return place_found(found)


def _find(field: Geom, geom: Geom, touch: Any, picks: int = PICKED, looks: bool = True) -> Found:
    """Find the contacts. touch: finds the spot of a prism and a hull, within a margin. looks: skip prisms that a plane
    separates from the shape, and share the others among worlds, as `touch` takes far longer.
    """
    ground, margin = field.ground.field, field.margin
    axes = [column(field.mat, k) for k in range(3)]
    hull, kept = Hull(geom), len(for_derivatives(lambda: zeros(picks)))
    local = [dot(axis, sub(geom.centre, field.centre)) for axis in axes]
    hull.axes = [[dot(axis, x) for axis in axes] for x in hull.axes]
    hull.centre = zeros(3)
    under = _Prisms(ground, local, hull, margin, looks)
    full, most = field.ground.contacts, (ground.ncol - 1) * (ground.nrow - 1)
    longest = full + 1  # a cell has two prisms
    prisms, found = Array(rows=longest + 1, columns=3), Array(rows=longest, columns=SPOT + kept)
    spots = Array(rows=full, columns=SPOT + kept)

    def turn(c: dict[str, Any]) -> dict[str, Any]:
        """List prisms that may touch, find where they do, and append that to the spots."""

        def look(i: Any, c: dict[str, Any]) -> dict[str, Any]:
            listed = c["listed"]
            for half in (0.0, 1.0):
                near = logical_not(under.is_clear(c["row"], c["column"], half))
                prisms.put(listed, [c["row"], c["column"], half], near)
                listed = listed + select(near, 1.0, 0.0)
            return under.after(c) | {"listed": listed}

        def measure(k: Any, given: list[Any]) -> None:
            local, margin, *parts = given
            prism = Prism(_Grid(ground, local).triangle(*prisms[k]), -ground.size[3] - local[2], local)
            found.put(k, touch(prism, hull.with_parts(parts), margin), None)

        def append(k: Any, count: Scalar) -> Scalar:
            dist, *spot = found[k]
            there = logical_and(dist < margin, count < full - 0.5)
            point = add(geom.centre, mat_vec(field.mat, spot[:3]))
            spots.put(count, [dist, *point, *mat_vec(field.mat, spot[3 : SPOT - 1]), *spot[SPOT - 1 :]], there)
            return count + select(there, 1.0, 0.0)

        def more(i: Any, c: dict[str, Any]) -> Mask:
            return logical_and(under.there(c), c["listed"] < full - 0.5)

        at = count_while(more, look, c["at"] | {"listed": 0.0}, most, [prisms])
        listed = at.pop("listed")
        queued(listed, measure, [local, margin, *hull.parts], longest, [found])
        count = count_while(lambda k, _: number(k) < listed, append, c["count"], longest, [spots])
        return {"at": at, "count": count}

    def going(i: Any, c: dict[str, Any]) -> Mask:
        return logical_and(under.there(c["at"]), c["count"] < full - 0.5)

    c: dict[str, Any] = {"at": under.first, "count": 0.0}
    if full < MOST:  # all prisms under the shape are in one list
        c = turn(c)
    else:
        c = count_while(going, lambda i, c: turn(c), c, most, [prisms, found, spots])
    out = []
    for k in range(full):
        spot = spots[k]
        there = k + 0.5 < c["count"]
        dist = select(there, spot[0], NEVER)
        if kept:  # entries that were never written may be NaN, and 0 * NaN is NaN
            spot = [dist, *(select(there, x, 0.0) for x in spot[1:])]
        out.append((dist, spot))
    return out


class _Prisms:
    """The prisms under a shape, two in each cell, one cell after the other."""

    def __init__(self, field: HField, local: Vec, hull: Hull, margin: Scalar, looks: bool):
        self.grid, self.hull, self.margin, self.looks = _Grid(field, local), hull, margin, looks
        ends = [_ends(hull, [float(j == k) for j in range(3)], margin) for k in range(3)]
        self.columns, rows = (self.grid.range_of(k, *ends[k]) for k in range(2))
        self.low, high = ends[2]
        self.end, self.bottom = rows[1], -field.size[3] - local[2]
        never = logical_or(local[2] + self.low > field.size[2], local[2] + high < -field.size[3])
        nothing = logical_or(never, self.columns[0] >= self.columns[1])
        self.first = {"row": select(nothing, self.end, rows[0]), "column": self.columns[0]}
        across = [1.0 / field.steps[0], -1.0 / field.steps[1], 0.0]  # the way across the cells' diagonals
        self.across: Vec = scale(across, 1.0 / norm(across))
        self.slant = _ends(hull, self.across, margin)

    def there(self, at: dict[str, Any]) -> Mask:
        """Return where this cell is one of those under the shape, and not beyond the last."""
        return at["row"] < self.end

    def after(self, at: dict[str, Any]) -> dict[str, Any]:
        """Return the cell that comes after this one."""
        onwards = at["column"] + 1.0
        over = onwards >= self.columns[1]
        return {"column": select(over, self.columns[0], onwards), "row": select(over, at["row"] + 1.0, at["row"])}

    def is_clear(self, row: Scalar, column: Scalar, half: float) -> Mask:
        """Return where it is clear without a search that the shape does not touch the prism."""
        tops = self.grid.triangle(row, column, half)
        diagonal = dot(self.grid.flat(row, column), self.across[:2])
        beyond = self.slant[1] < diagonal if half else self.slant[0] > diagonal
        clear = [beyond, logical_and(*(z < self.low for _, _, z in tops))]
        if self.looks:
            clear.append(is_apart(Prism(tops, self.bottom), self.hull, self.margin))
        return logical_or(*clear)


class _Grid:
    """A field's grid, seen from a point that is `local` in the field's own frame."""

    def __init__(self, field: HField, local: Vec):
        self.field, self.local = field, local

    def range_of(self, k: int, low: Scalar, high: Scalar) -> tuple[Scalar, Scalar]:
        """Return the cells between two places along x or y: the first, and the one after the last."""
        half, step = self.field.size[k], self.field.steps[k]
        last = float((self.field.ncol, self.field.nrow)[k] - 1)
        first = floor((self.local[k] + low + half) * (1.0 / step))
        end = -floor((self.local[k] + high + half) * (-1.0 / step))
        return maximum(first, 0.0), minimum(end, last)

    def triangle(self, row: Scalar, column: Scalar, half: Scalar) -> list[list[Scalar]]:
        """Return the corners of a prism's top: a cell's triangle on the side of y (half 0), or on the side of x."""
        other = 1.0 - half
        return [
            self._corner(row + other, column),
            self._corner(row + half, column + half),
            self._corner(row + other, column + 1.0),
        ]

    def flat(self, row: Scalar, column: Scalar) -> list[Scalar]:
        """Return where a corner is along x and y."""
        (x, y), size = self.field.steps, self.field.size
        return [column * x - size[0] - self.local[0], row * y - size[1] - self.local[1]]

    def _corner(self, row: Scalar, column: Scalar) -> list[Scalar]:
        z = self.field.table[row * float(self.field.ncol) + column]
        return [*self.flat(row, column), z - self.local[2]]


def _ends(hull: Hull, n: Vec, margin: Scalar) -> tuple[Scalar, Scalar]:
    """Return the least and the greatest place of the shape and its margin along n, a unit vector, metres."""
    reach = hull.skin + margin
    return dot(hull.furthest(scale(n, -1.0)), n) - reach, dot(hull.furthest(n), n) + reach
