"""Rays that meet height fields, and the height of a field's surface: mj_rayHfield.

A field is solid. It has a surface of two triangles to a cell, sides below the surface, and a base. The base is a box of
its own, whose top, at z = 0, a ray also meets if it comes from within. Rays are as in `ray`.

x, y, z of the field   column, row of a cell's corner with the least x and y
"""

from __future__ import annotations

from typing import Any

from ...compiler.control import while_any
from ...compiler.scalar import Scalar, absolute, clip, floor, logical_and, logical_not, maximum, minimum, select
from ..algebra.spatial import MINVAL, Vec
from ..model.hfield import HField

MISS = 1e10  # mjMAXVAL


def surface(field: HField, x: Scalar, y: Scalar) -> Scalar:
    """Return the height of the surface above or below (x, y), metres; beyond the field, that of the cell nearest."""
    across, along = (x + field.size[0]) / field.steps[0], (y + field.size[1]) / field.steps[1]
    column = clip(floor(across), 0.0, float(field.ncol - 2))
    row = clip(floor(along), 0.0, float(field.nrow - 2))
    return _Cell(field, column, row).height(across - column, along - row)


def ray_hfield(field: HField, p: Vec, v: Vec) -> Scalar:
    """Return the distance from p along v to a height field, metres; MISS where the ray does not meet it."""
    width, depth, top, base = field.size
    start, end = _within(((-width, width), (-depth, depth), (-base, 0.0)), p, v)
    below = select(start <= end, select(start > 0.0, start, end), MISS)
    start, end = _within(((-width, width), (-depth, depth), (0.0, top)), p, v)
    return minimum(below, select(start <= end, _walk(field, p, v, start, end), MISS))


def _within(box: tuple[tuple[float, float], ...], p: Vec, v: Vec) -> tuple[Scalar, Scalar]:
    """Return the distances between which the ray is in a box; the first is greater where it never is."""
    start: Scalar = 0.0
    end: Scalar = MISS
    for x, way, (low, high) in zip(p, v, box, strict=True):
        crosses = absolute(way) > MINVAL
        over = 1.0 / select(crosses, way, 1.0)
        one, two = (low - x) * over, (high - x) * over
        between = logical_and(x >= low, x <= high)
        start = maximum(start, select(crosses, minimum(one, two), select(between, 0.0, MISS)))
        end = minimum(end, select(crosses, maximum(one, two), select(between, MISS, -MISS)))
    return start, end


def _walk(field: HField, p: Vec, v: Vec, start: Scalar, end: Scalar) -> Scalar:
    """Return the distance at which the ray goes through the surface between `start` and `end`, cell by cell.

    A ray that goes into the solid at the start, or out of it at the end, does so through a side.
    """
    sizes, counts = field.size[:2], (field.ncol, field.nrow)
    at = [(p[k] + sizes[k]) / field.steps[k] for k in (0, 1)]  # in cells
    way = [v[k] / field.steps[k] for k in (0, 1)]
    slant = at[0] - at[1], way[0] - way[1]  # of a ray that follows the cells' diagonal: 0
    slants = absolute(slant[1]) > MINVAL
    crosses = [absolute(x) > MINVAL for x in way]
    over = [1.0 / select(c, x, 1.0) for c, x in zip(crosses, way, strict=True)]
    ahead = [select(x > 0.0, 1.0, 0.0) for x in way]

    def above(x: Scalar, cell: _Cell, place: list[Scalar]) -> Scalar:
        """Return how high above the surface the ray is at a distance x."""
        return p[2] + x * v[2] - cell.height(*(at[k] + x * way[k] - place[k] for k in (0, 1)))

    def step(c: dict[str, Any]) -> dict[str, Any]:
        place, x, gap = c["place"], c["x"], c["gap"]
        cell = _Cell(field, *place)
        leaves = [select(crosses[k], (place[k] + ahead[k] - at[k]) * over[k], MISS) for k in (0, 1)]
        until = maximum(minimum(minimum(*leaves), end), x)
        diagonal = select(slants, (place[0] - place[1] - slant[0]) / select(slants, slant[1], 1.0), x)
        middle = clip(diagonal, x, until)
        one, two = above(middle, cell, place), above(until, cell, place)
        first, second = (select(c["under"], y >= 0.0, y <= 0.0) for y in (one, two))
        hit = select(first, _zero(x, gap, middle, one), select(second, _zero(middle, one, until, two), MISS))
        turned = [select(leaves[0] <= leaves[1], 1.0, 0.0), select(leaves[0] <= leaves[1], 0.0, 1.0)]
        new = [place[k] + turned[k] * (2.0 * ahead[k] - 1.0) for k in (0, 1)]
        there = [logical_and(new[k] >= 0.0, new[k] <= counts[k] - 2.0) for k in (0, 1)]
        return {
            "place": new,
            "x": until,
            "gap": two,
            "under": c["under"],
            "hit": hit,
            "go": logical_and(hit >= MISS, until < end, *there),
        }

    place = [clip(floor(at[k] + start * way[k]), 0.0, counts[k] - 2.0) for k in (0, 1)]
    gap = above(start, _Cell(field, *place), place)
    under = gap < 0.0
    inside = logical_and(under, start > 0.0)
    begun = {"place": place, "x": start, "gap": gap, "under": under, "hit": select(inside, start, MISS)}
    go = logical_and(start <= end, logical_not(inside))
    c = while_any(lambda c: c["go"], step, begun | {"go": go}, sum(counts))
    return select(logical_and(under, c["hit"] >= MISS), end, c["hit"])


def _zero(x: Scalar, one: Scalar, y: Scalar, two: Scalar) -> Scalar:
    """Return where a line that is `one` at x and `two` at y, of other signs, is 0."""
    change = one - two
    return x + (y - x) * clip(one / select(absolute(change) > 0.0, change, 1.0), 0.0, 1.0)


class _Cell:
    """The surface of one cell: a triangle on the side of x, and one on the side of y."""

    def __init__(self, field: HField, column: Scalar, row: Scalar):
        first = row * float(field.ncol) + column
        second = first + float(field.ncol)
        self.near, self.far = ([field.table[y], field.table[y + 1.0]] for y in (first, second))

    def height(self, u: Scalar, w: Scalar) -> Scalar:
        """Return the height at a share u of the cell along x and w along y."""
        (a, b), (c, d) = self.near, self.far
        return a + select(u >= w, u * (b - a) + w * (d - b), w * (c - a) + u * (d - c))
