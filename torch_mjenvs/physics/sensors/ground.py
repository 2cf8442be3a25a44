"""The height of the ground under a point, as a ray straight down from far above sees it: mj_ray."""

from __future__ import annotations

from collections.abc import Sequence

from ...compiler.scalar import Scalar, absolute, logical_and, maximum, select
from ..algebra.spatial import MINVAL, Vec, is_number, norm
from ..collision.shapes import SHAPES
from ..model.data import Data
from ..model.enums import GeomType
from ..model.model import Model, UnsupportedModel
from .ray import ray_geom, why_not_met
from .ray_hfield import MISS, surface

NOWHERE = -MISS  # the height where there is no ground
DOWN = (0.0, 0.0, -1.0)


def ground_geoms(m: Model) -> list[int]:
    """Return the geoms that nothing moves and that something which moves may touch."""
    still = {g for p in m.pairs for g in (p.geom1, p.geom2) if not m.body_weldid[m.geom_bodyid[g]]}
    return sorted(g for g in still if m.body_mocapid[m.geom_bodyid[g]] < 0)


def refuse_ground(m: Model, geoms: Sequence[int]) -> None:
    """Raise `UnsupportedModel` if rays against any of these geoms are not implemented."""
    for g in geoms:
        if why := ", a mesh," if m.geom_type[g] == GeomType.MESH else why_not_met(m, g):
            raise UnsupportedModel(f"heights above geom {m.geom_names[g]!r}{why} are not supported: leave it out")


def ground_height(m: Model, d: Data, geoms: Sequence[int], x: Scalar, y: Scalar) -> Scalar:
    """Return the height of the highest of these geoms at (x, y), metres; NOWHERE where none is there."""
    highest: Scalar = NOWHERE
    for g in geoms:
        highest = maximum(highest, _height(m, d, g, x, y))
    return highest


def _height(m: Model, d: Data, g: int, x: Scalar, y: Scalar) -> Scalar:
    kind, (at_x, at_y, at_z), mat = m.geom_type[g], d.geom_xpos[g], d.geom_xmat[g]
    if kind == GeomType.HFIELD and is_number(*mat) and mat[8] > 0 and max(map(abs, (*mat[2:8:3], *mat[6:8]))) < MINVAL:
        field = m.hfields[m.geom_dataid[g]]
        across, along = (mat[k] * (x - at_x) + mat[k + 3] * (y - at_y) for k in (0, 1))
        there = logical_and(absolute(across) <= field.size[0], absolute(along) <= field.size[1])
        return select(there, at_z + surface(field, across, along), NOWHERE)
    if kind == GeomType.PLANE:
        up = maximum(mat[8], MINVAL)
        above = at_z - (mat[2] * (x - at_x) + mat[5] * (y - at_y)) / up + 1.0
    else:
        above = at_z + _bound(m, g) + 1.0
    distance = ray_geom(m, d, g, [x, y, above], DOWN)
    return select(distance < MISS, above - distance, NOWHERE)


def _bound(m: Model, g: int) -> Scalar:
    """Return the radius of a sphere around the geom's centre that holds it, metres."""
    if m.geom_type[g] == GeomType.HFIELD:
        x, y, top, base = m.hfields[m.geom_dataid[g]].size
        return norm([x, y, max(top, base)])
    size: Vec = m.geom_size[g]
    bound = SHAPES[m.geom_type[g]].bound
    assert bound
    return bound(size)
