"""Finds where two convex shapes touch by their furthest points, as MuJoCo's native collider does: mjc_ccd.

All is done on the difference C of two shapes: the points a - b with a in the first and b in the second. The shapes
overlap if the origin is in C, by as much as it is from C's surface. All that is known of C is its furthest point in a
given direction (`Hull.furthest`).

Spheres and capsules are a point or a segment with a round skin. If these cores are apart, `nearest` finds the point of
C nearest to the origin. If not, and for shapes without skins, `deepest` finds the face of C nearest to the origin.

a, b points of the two shapes   w = a - b   x the point of C that is sought   n unit vector from the first to the second
"""

from __future__ import annotations

from typing import Any

from ....compiler.control import when_any
from ....compiler.implicit import follows, for_derivatives
from ....compiler.scalar import Mask, Scalar, logical_not
from ...algebra.spatial import is_zero, scale
from ..colliders import Found, Geom, Place, make_frame
from . import cylinder_box, cylinders
from .closed_form import moving, picked, spot_by
from .cornered import polish_mesh
from .deepest import deepest, deepest_core_face, deepest_face
from .hull import Hull
from .nearest import nearest, nearest_face
from .patches import find_patch
from .polish import polish, polished_spot, settled, spot_along


def find_ellipsoid_mesh(one: Geom, two: Geom) -> Found:
    """Find the contact of an ellipsoid and a mesh, to rounding."""
    spot, _ = _with_mesh(one, two)
    return [(spot[0], spot)]


def find_ellipsoid(one: Geom, two: Geom) -> Found:
    """Find the contact of an ellipsoid and another one, a cylinder or a box, to rounding."""
    spot = polish(one, two, deepest(Hull(one), Hull(two), one.margin))
    return [(spot[0], spot)]


def find_cylinders(one: Geom, two: Geom) -> Found:
    """Find up to four contacts of two cylinders, to rounding."""
    first, second = Hull(one), Hull(two)
    spot = spot_along(one, two, *cylinders.way_out(first, second))
    return _flat(one, two, spot, _touching(first, second, spot))


def find_cylinder_box(one: Geom, two: Geom) -> Found:
    """Find up to four contacts of a cylinder and a box, to rounding."""
    if not is_zero(one.margin):
        spot, corners = deepest_face(Hull(one), Hull(two), one.margin)
        return _flat(one, two, polish(one, two, spot), _numbers(corners))
    first, second = Hull(one), Hull(two)
    spot = settled(one, two, *cylinder_box.way_out(first, second))
    return _flat(one, two, spot, _touching(first, second, spot))


def find_cylinder_mesh(one: Geom, two: Geom) -> Found:
    """Find up to four contacts of a cylinder and a mesh, to rounding."""
    return _flat(one, two, *_with_mesh(one, two))


def _with_mesh(one: Geom, two: Geom) -> tuple[list[Scalar], list[list[Scalar]]]:
    """Find the spot of a round shape and a mesh, and the numbers of both shapes' corners there."""
    spot, corners = deepest_face(Hull(one), Hull(two), one.margin)
    numbers = _numbers(corners)
    return polish_mesh(Hull(one), Hull(two), spot, numbers[1], one.margin), numbers


def _flat(one: Geom, two: Geom, spot: list[Scalar], numbers: list[list[Scalar]]) -> Found:
    """Find the contacts of two shapes without skins that both have flat parts, from their spot and, for each shape, the
    numbers of the three corners that touch there.
    """
    spots, _ = find_patch(Hull(one), Hull(two), spot, numbers, one.margin, one.several)
    return [(spot[0], spot) for spot in spots]


def find_cornered(one: Geom, two: Geom) -> Found:
    """Find the contacts of a mesh and a mesh, box, sphere or capsule, to rounding."""
    return _find_cornered(one, two, one.several)


def _find_cornered(one: Geom, two: Geom, several: Mask) -> Found:
    first, second = Hull(one), Hull(two)
    apart: Mask = False
    if is_zero(one.margin) and is_zero(first.skin) and is_zero(second.skin):
        spot, corners = deepest_face(first, second, one.margin)
        numbers = _numbers(corners)
    else:
        apart, spot, corners = nearest_face(first, second, one.margin)

        def deep(_: Any) -> list[Any]:
            spot, corners = deepest_core_face(first, second, one.margin)
            return [spot, _numbers(corners), corners]

        spot, numbers, corners = when_any(logical_not(apart), deep, [spot, _numbers(corners), corners])
    spots, patch = find_patch(first, second, spot, numbers, one.margin, several)
    picks = for_derivatives(lambda: picked(first, second, apart, corners))
    return [(spot[0], [*spot, *picks, *patch.parts, *at]) for spot, at in zip(spots, patch.sides, strict=True)]


def _touching(one: Hull, two: Hull, spot: list[Scalar]) -> list[list[Scalar]]:
    """Return the numbers of three corners of each of two cylinders or boxes that touch at a spot."""
    return [cylinder_box.corners_of(one, spot[4:]), cylinder_box.corners_of(two, scale(spot[4:], -1.0))]


def _numbers(corners: list[list[Scalar]]) -> list[list[Scalar]]:
    """Return the numbers of three corners of each of two shapes."""
    return [[p[k] for p in corners] for k in (6, 7)]


def find_ball_mesh(one: Geom, two: Geom) -> Found:
    """Find the one contact of a sphere and a mesh."""
    return _find_cornered(one, two, False)[:1]


def find_rod_mesh(one: Geom, two: Geom) -> Found:
    """Find up to two contacts of a capsule and a mesh: two where it lies on a face."""
    return find_cornered(one, two)[:2]


def find_apart(one: Geom, two: Geom) -> Found:
    """Find where two shapes are nearest, or the shortest way out of each other.

    To rounding if both cores have nothing but corners, otherwise within `deepest.TOLERANCE`.
    """
    first, second = Hull(one), Hull(two)
    apart, spot = nearest(first, second, one.margin)
    cornered = all(is_zero(x) for hull in (first, second) for x in hull.radii)

    def deep(_: Any) -> list[Scalar]:
        return deepest_core_face(first, second, 0.0)[0] if cornered else deepest(first, second, 0.0)

    spot = when_any(logical_not(apart), deep, spot)
    return [(spot[0], spot)]


def find_round_apart(one: Geom, two: Geom) -> Found:
    """Find what `find_apart` does, to rounding, of an ellipsoid or a cylinder and any shape but a mesh."""
    ((_, spot),) = find_apart(one, two)
    spot = polish(one, two, spot)
    return [(spot[0], spot)]


def find_mesh_apart(one: Geom, two: Geom) -> Found:
    """Find what `find_apart` does, to rounding, of an ellipsoid or a cylinder and a mesh."""
    first, second = Hull(one), Hull(two)
    apart, spot, corners = nearest_face(first, second, one.margin)

    def deep(_: Any) -> list[Any]:
        spot, corners = deepest_face(first, second, 0.0)
        return [spot, _numbers(corners)]

    spot, numbers = when_any(logical_not(apart), deep, [spot, _numbers(corners)])
    spot = polish_mesh(first, second, spot, numbers[1], one.margin)
    return [(spot[0], spot)]


def place_round(one: Geom, two: Geom, spot: list[Scalar]) -> Place:
    """Read the contact that `find_ellipsoid` or `find_round_apart` left in its spot."""

    def given() -> list[Scalar]:
        return [x for hull in (Hull(one), Hull(two)) for x in (*moving(hull), *hull.radii)]

    return place_found(follows(spot, given, lambda: polished_spot(one, two, spot)))


def place_cornered(one: Geom, two: Geom, spot: list[Scalar]) -> Place:
    """Read the contact that `find_cornered` left in its spot."""
    return place_found(spot_by(one, two, spot))


def place_convex(one: Geom, two: Geom, spot: list[Scalar]) -> Place:
    """Read the contact that a search left in its spot."""
    return place_found(spot)


def place_found(spot: list[Scalar]) -> Place:
    """Read dist, point and normal."""
    return spot[0], spot[1:4], make_frame(spot[4:7], None)
