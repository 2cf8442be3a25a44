"""Colliders of a plane and a shape with corners or a rim: mjc_PlaneBox, mjc_PlaneCylinder and mjc_PlaneConvex.

`find` and `place` are explained in `colliders`. A spot is the touching point of the shape in its own axes.

n the plane's normal in the shape's axes   h how far the shape's centre is above the plane
"""

from __future__ import annotations

import math
from typing import Any

from ....compiler.control import count_while
from ....compiler.scalar import Scalar, absolute, logical_and, maximum, number, select, sqrt
from ...algebra.spatial import MINVAL, Vec, add_scaled, choose, column, dot, norm, scale, sub
from ..colliders import NEVER, Found, Geom, Place, make_frame
from ..solids import NONE, Cells, furthest_vertex


def place_on_plane(plane: Geom, shape: Geom, spot: list[Scalar]) -> Place:
    """Place the contact half way between the shape's point and the plane."""
    p, n = shape.point(spot), plane.axis
    dist = dot(sub(p, plane.centre), n)
    return dist, add_scaled(p, n, -0.5 * dist), make_frame(n, None)


def find_plane_box(plane: Geom, box: Geom) -> Found:
    """Find the lower end of each of a box's four diagonals: mjc_PlaneBox.

    The centre of a diagonal is the box's, so it is the lower end that touches. If a diagonal is level to the last bit,
    MuJoCo has both its ends, which shows in a box that is sunk in to its centre. `in_order_of_corners` is for where the
    order counts.
    """
    n, h = _seen_from(plane, box)
    sizes = [box.size[k] for k in ("x", "y", "z")]
    reach = [x * size for x, size in zip(n, sizes, strict=True)]
    found: Found = []
    for y in (-1.0, 1.0):
        for x in (-1.0, 1.0):
            height = x * reach[0] + y * reach[1] - reach[2]
            corner = [side * size for side, size in zip((x, y, -1.0), sizes, strict=True)]
            spot = choose(height > 0.0, scale(corner, -1.0), corner)
            found.append((h - absolute(height), spot))
    return found


def in_order_of_corners(found: Found) -> Found:
    """Sort a box's corners as MuJoCo goes through them: negative z first, among these negative y, then x."""
    rows = []
    for dist, corner in found:
        number: Scalar = 0.0
        for weight, x in zip((1.0, 2.0, 4.0), corner, strict=True):
            number = number + select(x > 0.0, weight, 0.0)
        rows.append([number, dist, *corner])
    for i, j in ((0, 1), (2, 3), (0, 2), (1, 3), (1, 2)):
        later = rows[i][0] > rows[j][0]
        rows[i], rows[j] = choose(later, rows[j], rows[i]), choose(later, rows[i], rows[j])
    return [(dist, corner) for _, dist, *corner in rows]


def find_plane_cylinder(plane: Geom, cylinder: Geom) -> Found:
    """Find four points of a cylinder's rims: mjc_PlaneCylinder.

    They are the lowest point, the point above it on the other rim, and two more of the lower rim that make an even
    triangle with the first.
    """
    n, h = _seen_from(plane, cylinder)
    radius, half = cylinder.size["radius"], cylinder.size["half"]
    square = dot(n[:2], n[:2])
    steep = scale(n[:2], -1.0 / sqrt(maximum(square, MINVAL**2)))  # down the slope of the discs
    x, y = choose(square < MINVAL**2, [1.0, 0.0], steep)
    end = select(n[2] > 0.0, -half, half)  # the disc that is lower, along the axis
    below, out = h + end * n[2], radius * (x * n[0] + y * n[1])
    side = math.sqrt(3.0) / 2
    aside = select(n[2] > 0.0, -side, side)
    corners = [[aside * y - 0.5 * x, -0.5 * y - aside * x], [-0.5 * x - aside * y, aside * x - 0.5 * y]]
    return [
        (below + out, [radius * x, radius * y, end]),
        (h - end * n[2] + out, [radius * x, radius * y, -end]),
        *((below - 0.5 * out, [*scale(corner, radius), end]) for corner in corners),
    ]


def find_plane_ellipsoid(plane: Geom, ellipsoid: Geom) -> Found:
    """Find the lowest point of an ellipsoid: mjc_PlaneConvex."""
    n, h = _seen_from(plane, ellipsoid)
    sizes = [ellipsoid.size[k] for k in ("x", "y", "z")]
    reach = [x * size for x, size in zip(n, sizes, strict=True)]
    depth = norm(reach)
    return [(h - depth, [-(x * size) / depth for x, size in zip(reach, sizes, strict=True)])]


def find_plane_mesh(plane: Geom, geom: Geom) -> Found:
    """Find the lowest vertex of a mesh, and up to three more corners of its face that looks down most: mjc_PlaneConvex.

    `Face.spans` says which they are, for each corner of a face. Among vertices at one height rounding decides, as in
    MuJoCo. So if a face of more than four corners lies flat, they may be others than MuJoCo's.
    """
    n, h = _seen_from(plane, geom)
    solids = geom.solids
    *lowest, v = furthest_vertex(solids, Cells(geom.size["cells"], geom.size["side"]), scale(n, -1.0))
    first, count = solids.around[v]

    def steepest(k: Any, best: list[Scalar]) -> list[Scalar]:
        face, _, *others = solids.corners[first + number(k)]
        down = dot(n, solids.faces[face, :3])
        return choose(down < best[0], [down, *others], best)

    none = [1.0, NONE, NONE, NONE]
    _, *others = count_while(lambda k, _: number(k) < count, steepest, none, solids.most_around)
    found: Found = [(h + dot(n, lowest), lowest)]
    for v in others:
        x = solids.vertices[v]
        height = dot(n, x)
        found.append((select(logical_and(v > NONE, height <= 0.0), h + height, NEVER), x))
    return found


def _seen_from(plane: Geom, shape: Geom) -> tuple[Vec, Scalar]:
    """Return the plane's normal n in the shape's axes (3), and the height h of the shape's centre above it, metres."""
    n = [dot(column(shape.mat, k), plane.axis) for k in range(3)]
    return n, dot(sub(shape.centre, plane.centre), plane.axis)
