"""Boxes around geoms, which tell whether two may touch at all far more cheaply than a search for where they do.

A table is far from filling its bounding sphere, and so is a link of an arm. If a face of one box keeps the two boxes
apart, the geoms in them do not touch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...compiler.scalar import Mask, Scalar, absolute, logical_and
from ..algebra.spatial import Vec, column, dot, is_number, sub
from ..model.enums import GeomType
from ..model.model import Model
from .colliders import SLACK
from .shapes import SHAPES, mesh_of


@dataclass(frozen=True)
class Box:
    """A box along the axes of a geom: its middle in them, and half of its lengths, metres."""

    middle: tuple[float, ...]
    half: tuple[float, ...]


def boxes_around(m: Model, geoms: Sequence[int]) -> dict[int, Box]:
    """Return the boxes around these geoms; none at all if a geom has no end or a size varies from world to world."""
    found = {geom: _box_around(m, geom) for geom in geoms}
    return {geom: box for geom, box in found.items() if box} if all(found.values()) else {}


def _box_around(m: Model, geom: int) -> Box | None:
    """Return the smallest box around a geom along its own axes; None if there is none: see `boxes_around`."""
    if m.geom_type[geom] == GeomType.MESH:
        ends = [(min(xs), max(xs)) for xs in zip(*mesh_of(m, geom).vertices, strict=True)]
        return Box(tuple(0.5 * (a + b) for a, b in ends), tuple(0.5 * (b - a) for a, b in ends))
    shape = SHAPES[m.geom_type[geom]]
    if shape.bound is None or shape.hull is None:
        return None
    size = shape.hull(m.geom_size[geom])
    half = [size[f"box_{axis}"] + size[f"radius_{axis}"] + size["skin"] for axis in "xyz"]
    return Box((0.0, 0.0, 0.0), tuple(map(float, half))) if is_number(*half) else None


def boxes_meet(one: tuple[Vec, Vec, Vec], two: tuple[Vec, Vec, Vec], margin: Scalar) -> Mask:
    """Return the mask of the worlds where no face of either box keeps the two apart by the margin or more, metres.

    A box: its middle (3), its axes as a matrix (9), half of its lengths (3).
    """
    apart = sub(two[0], one[0])
    axes = [[column(mat, k) for k in range(3)] for _, mat, _ in (one, two)]
    turned = [[absolute(dot(x, y)) for y in axes[1]] for x in axes[0]]
    halves = one[2], two[2]
    margin = margin + SLACK * (sum(halves[0]) + sum(halves[1]))
    found: Mask = True
    for side in (0, 1):
        for k, axis in enumerate(axes[side]):
            across = turned[k] if side == 0 else [row[k] for row in turned]
            found = logical_and(
                found, absolute(dot(axis, apart)) < halves[side][k] + dot(across, halves[1 - side]) + margin
            )
    return found
