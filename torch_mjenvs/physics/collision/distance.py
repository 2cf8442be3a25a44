"""Measures how far apart geoms are, whether they may touch or not: mj_geomDistance.

Shapes with a formula for where they touch are asked for contacts as far apart as the distance may be. For all others,
and for two boxes, the general search finds where they are nearest, or the shortest way out of each other.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...compiler.control import choose_all, when_any
from ...compiler.scalar import Scalar
from ..algebra.spatial import add, add_scaled, zeros
from ..model.data import Data, stage
from ..model.enums import GeomType
from ..model.model import Model, Pair
from .candidates import GeomAt, offset_of, spheres_meet
from .convex import convex
from .shapes import COLLIDERS, Collider

_SEARCH = Collider(1, convex.find_apart, convex.place_convex, hulls=True)
_SEARCH_ROUND = replace(_SEARCH, find=convex.find_round_apart, place=convex.place_round)
_SEARCH_ROUND_MESH = replace(_SEARCH, find=convex.find_mesh_apart)


@dataclass
class Segment:
    """Where two geoms are nearest. dist: metres, negative where they overlap. start, end: on the surface of the first
    and of the second (3 each), in world axes.
    """

    dist: Scalar
    start: list[Scalar]
    end: list[Scalar]


@dataclass
class _Measured(GeomAt):
    """A geom as a collider sees it that looks for contacts up to a distance of `most`, metres."""

    most: float = 0.0

    @property
    def margin(self) -> Scalar:
        return self.most


@stage(reads="", computes="shortest")
def distances(m: Model, d: Data) -> None:
    """Make d.shortest, `_shortest` of pairs of geoms and a distance. It reads the data when it is asked, and searches
    once for the same arguments.
    """
    d.shortest = functools.cache(functools.partial(_shortest, m, d))


def _shortest(m: Model, d: Data, pairs: Sequence[tuple[int, int]], most: float) -> Segment:
    """Find the shortest segment between the geoms of any pair.

    If all are `most` or further apart, metres, dist is `most`, and both points are 0. Geoms may not be height fields.
    """
    found = Segment(most, zeros(3), zeros(3))
    for one, two in pairs:

        def measure(found: Segment, one: int = one, two: int = two) -> Segment:
            for new in _segments(m, d, one, two, most):
                found = choose_all(new.dist < found.dist, new, found)
            return found

        endless = GeomType.PLANE in (m.geom_type[one], m.geom_type[two])
        near = endless or spheres_meet(m, d, Pair(one, two, 1), found.dist)
        found = when_any(near, measure, found)
    return found


def _segments(m: Model, d: Data, geom1: int, geom2: int, most: float) -> list[Segment]:
    """Find the segments in which two geoms may be nearest, one of which is the shortest; none for two planes."""
    first, second = sorted((geom1, geom2), key=lambda g: m.geom_type[g])
    types = m.geom_type[first], m.geom_type[second]
    if types not in COLLIDERS:
        return []
    collider = COLLIDERS[types]
    if collider.hulls or collider.ccd or types == (GeomType.BOX, GeomType.BOX):
        is_round = types[0] in (GeomType.ELLIPSOID, GeomType.CYLINDER)
        of_mesh = _SEARCH_ROUND_MESH if is_round else _SEARCH
        collider = of_mesh if GeomType.MESH in types else _SEARCH if types[0] == GeomType.BOX else _SEARCH_ROUND
    pair, origin = Pair(first, second, 1), m.body_originid[m.geom_bodyid[second]]
    one = _Measured(m, d, pair, first, collider, offset_of(m, d, pair), most)
    two = _Measured(m, d, pair, second, collider, zeros(3), most)
    out = []
    for found, spot in collider.found(one, two, collider.ncon):
        placed, p, frame = collider.place(one, two, spot)
        dist = placed if collider.searches else found  # the same number, but a search's comes with its derivatives
        point = add(d.origin[origin], p)
        ends = [add_scaled(point, frame[0], side * 0.5 * dist) for side in (-1.0, 1.0)]
        out.append(Segment(dist, *(ends if first == geom1 else ends[::-1])))
    return out
