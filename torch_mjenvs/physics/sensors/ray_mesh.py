"""Rays that meet meshes: mj_rayMesh.

A ray meets a triangle from either side. All triangles are looked at, in a loop that worlds skip together if none of
their rays comes near the mesh. Rays are as in `ray`.
"""

from __future__ import annotations

from typing import Any

from ...compiler.control import repeat, when_any
from ...compiler.scalar import Scalar, absolute, logical_and, logical_or, minimum, select
from ..algebra.spatial import MINVAL, Vec, cross, dot, sub
from ..model.mesh import Surface
from .ray_hfield import MISS

EDGE = 1e-6  # triangles are enlarged by this share of their sides, so that no ray slips through between two


def ray_mesh(surface: Surface, p: Vec, v: Vec) -> Scalar:
    """Return the distance from p along v to a mesh, metres; MISS where the ray misses it."""
    ahead, square, reach = -dot(p, v), dot(p, p), (1.0 + EDGE) * surface.radius
    begins_near = square <= reach * reach
    near = logical_and(square - ahead * ahead <= reach * reach, logical_or(begins_near, ahead >= 0.0))

    def meet(i: Any, nearest: Scalar) -> Scalar:
        row = surface.table[i]
        corner, one, two = row[:3], row[3:6], row[6:]
        side, start = cross(v, two), sub(p, corner)
        volume = dot(one, side)
        crosses = absolute(volume) > MINVAL
        over = 1.0 / select(crosses, volume, 1.0)
        up = cross(start, one)
        u, w, x = dot(start, side) * over, dot(v, up) * over, dot(two, up) * over
        hit = logical_and(crosses, u >= -EDGE, w >= -EDGE, u + w <= 1.0 + EDGE, x >= 0.0)
        return minimum(nearest, select(hit, x, MISS))

    found: Scalar = when_any(near, lambda x: repeat(len(surface.triangles), meet, x), MISS)
    return found
