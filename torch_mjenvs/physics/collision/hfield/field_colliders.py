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
from ....compiler.control import count_while, while_any
from ....compiler.implicit import follows, for_derivatives
from ....compiler.scalar import Mask, Scalar, floor, logical_and, logical_or, maximum, minimum, select
from ...algebra.spatial import Vec, add, column, dot, mat_vec, norm, scale, sub, zeros
from ...model.hfield import HField
from ..colliders import NEVER, Found, Geom, Place
from ..convex.closed_form import PICKED, SPOT, Fixed, kept_of, moving, spot_of
from ..convex.convex import place_found
from ..convex.deepest import deepest
from ..convex.hull import Hull
from .field_corners import touch_cornered
from .prisms import Prism, ball_spot, is_apart, touch_ball, touch_core


def find_on_field(field: Geom, geom: Geom) -> Found:
    """Find the contacts of a shape without a skin on a height field."""
    return _find(field, geom, lambda prism, hull: deepest(prism, hull, field.margin), picks=0)


def find_cornered_on_field(field: Geom, geom: Geom) -> Found:
    """Find the contacts of a box or a mesh on a height field."""
    return _find(field, geom, lambda prism, hull: touch_cornered(prism, hull, field.margin))


def find_ball_on_field(field: Geom, geom: Geom) -> Found:
    """Find the contacts of a sphere on a height field."""
    return _find(field, geom, touch_ball, looks=False)


def find_rod_on_field(field: Geom, geom: Geom) -> Found:
    """Find the contacts of a capsule on a height field."""
    return _find(field, geom, lambda prism, hull: touch_core(prism, hull, field.margin))


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
    """Find the contacts. looks: skip prisms that a plane separates from the shape, where `touch` takes far longer."""
    ground, margin = field.ground.field, field.margin
    axes = [column(field.mat, k) for k in range(3)]
    hull, kept = Hull(geom), len(for_derivatives(lambda: zeros(picks)))
    local = [dot(axis, sub(geom.centre, field.centre)) for axis in axes]
    hull.axes = [[dot(axis, x) for axis in axes] for x in hull.axes]
    hull.centre = zeros(3)
    grid = _Grid(ground, local)
    ends = [_ends(hull, [float(j == k) for j in range(3)], margin) for k in range(3)]
    columns, rows = (grid.range_of(k, *ends[k]) for k in range(2))
    low, high = ends[2]
    never = logical_or(local[2] + low > ground.size[2], local[2] + high < -ground.size[3])
    nothing = logical_or(never, columns[0] >= columns[1])

    spots = Array(rows=field.ground.contacts, columns=SPOT + kept)
    most = 2 * (ground.ncol - 1) * (ground.nrow - 1)

    def after(c: dict[str, Any]) -> dict[str, Any]:
        """The prism that comes after c's."""
        first = c["half"] < 0.5
        onwards = select(first, c["column"], c["column"] + 1.0)
        over = onwards >= columns[1]
        return {
            "half": select(first, 1.0, 0.0),
            "column": select(over, columns[0], onwards),
            "row": select(over, c["row"] + 1.0, c["row"]),
        }

    across: Vec = [1.0 / ground.steps[0], -1.0 / ground.steps[1], 0.0]  # the way across the cells' diagonals
    across = scale(across, 1.0 / norm(across))
    slant = _ends(hull, across, margin)

    def prism_of(tops: list[list[Scalar]]) -> Prism:
        return Prism(tops, -ground.size[3] - local[2], local)

    def is_clear(c: dict[str, Any]) -> Mask:
        """Mask: there is a prism, and it is clear without a search that the shape does not touch it."""
        tops = grid.triangle(c)
        diagonal = dot(grid.flat(c["row"], c["column"]), across[:2])
        beyond = select(c["half"] < 0.5, slant[0] > diagonal, slant[1] < diagonal)
        clear = [beyond, logical_and(*(z < low for _, _, z in tops))]
        if looks:
            clear.append(is_apart(prism_of(tops), hull, margin))
        return logical_and(c["row"] < rows[1], logical_or(*clear))

    def step(i: Any, c: dict[str, Any]) -> dict[str, Any]:
        at = while_any(is_clear, after, {key: c[key] for key in ("row", "column", "half")}, most)
        there = at["row"] < rows[1]
        spot = touch(prism_of(grid.triangle(at)), hull)
        found = logical_and(there, spot[0] < margin)
        point = add(geom.centre, mat_vec(field.mat, spot[1:4]))
        spots.put(c["count"], [spot[0], *point, *mat_vec(field.mat, spot[4:SPOT]), *spot[SPOT:]], found)
        return after(at) | {"count": c["count"] + select(found, 1.0, 0.0)}

    start = {"row": select(nothing, rows[1], rows[0]), "column": columns[0], "half": 0.0, "count": 0.0}
    full = float(field.ground.contacts) - 0.5
    c = count_while(lambda i, c: logical_and(c["row"] < rows[1], c["count"] < full), step, start, most, [spots])
    out = []
    for k in range(field.ground.contacts):
        spot = spots[k]
        there = k + 0.5 < c["count"]
        dist = select(there, spot[0], NEVER)
        if kept:  # what was not put may be no number, and 0 times that neither
            spot = [dist, *(select(there, x, 0.0) for x in spot[1:])]
        out.append((dist, spot))
    return out


class _Grid:
    """A field's grid, seen from a point that is `local` in the field's own frame."""

    def __init__(self, field: HField, local: Vec):
        self.field, self.local = field, local

    def range_of(self, k: int, low: Scalar, high: Scalar) -> tuple[Scalar, Scalar]:
        """The cells between two places along x or y: the first, and the one after the last."""
        half, step = self.field.size[k], self.field.steps[k]
        last = float((self.field.ncol, self.field.nrow)[k] - 1)
        first = floor((self.local[k] + low + half) * (1.0 / step))
        end = -floor((self.local[k] + high + half) * (-1.0 / step))
        return maximum(first, 0.0), minimum(end, last)

    def triangle(self, at: dict[str, Any]) -> list[list[Scalar]]:
        """The three corners of a prism's top: a cell's triangle on the side of y, then that on the side of x."""
        row, column, half = at["row"], at["column"], at["half"]
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
    """The least and the greatest place of the shape and its margin along n, a unit vector, metres."""
    reach = hull.skin + margin
    return dot(hull.furthest(scale(n, -1.0)), n) - reach, dot(hull.furthest(n), n) + reach
