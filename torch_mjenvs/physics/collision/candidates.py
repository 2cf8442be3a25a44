"""Finds which geoms touch, and where: mj_collision. How two shapes touch is in `shapes` and `colliders`.

Which geoms may touch, and in how many points, is decided when the model is loaded (`Model.pairs`): `collision` makes a
`Candidate` of each pair. What depends on the state is computed in three stages, so that a caller can skip what no world
needs: `Candidate.near` compares bounding spheres, `Candidate.contacts` gives each contact's `dist`, and
`Contact.locate` its point and frame.

Positions are measured from the origin of the tree of the pair's second geom. So a contact's lever arms are as precise
far from the world's origin as near it.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence

from ...compiler.implicit import follows, straightened
from ...compiler.scalar import Mask, Scalar, logical_and, maximum, select
from ..algebra.spatial import Vec, add, add_scaled, column, dot, is_number, mat_vec, sub
from ..dynamics.kinematics import between
from ..model.data import Data, stage
from ..model.enums import GeomType
from ..model.hfield import Ground
from ..model.model import Model, Pair
from .colliders import NEVER, Found
from .contact_param import contact_param
from .shapes import Collider, bound_of, collider_of, ground_of, may_touch_in_several, most_contacts, size_of
from .solids import Solids, solids_of


@dataclasses.dataclass(frozen=True)
class Contact:
    """One point in which a pair may touch. It acts in the worlds where dist < margin, as `contact_param` gives it.

    dist: distance of the surfaces, negative where they overlap, metres.
    """

    pair: Pair
    dist: Scalar
    _locate: Callable[[], tuple[list[Scalar], list[list[Scalar]]]]
    _data: Data
    _origin: int  # whose origin positions are measured from
    _model: Model

    def locate(self) -> tuple[list[Scalar], list[list[Scalar]]]:
        """Compute the point (3) and the frame: normal (from geom1 to geom2), first and second tangent, (3) each."""
        p, frame = self._locate()
        return add(self._data.origin[self._origin], p), frame

    def arms(self) -> tuple[list[Scalar], list[Scalar], list[list[Scalar]]]:
        """Compute the point as seen from subtree_com of the root of geom1's body and of geom2's, and the frame.

        For use with `cdof` and `cvel`: a motion vector v moves the point by v[3:] + v[:3] x arm.
        """
        *arms, frame = self.oarms()
        geoms = (self.pair.geom1, self.pair.geom2)
        arm1, arm2 = (sub(arm, self._data.comrel[self._origin_of(g)]) for g, arm in zip(geoms, arms, strict=True))
        return arm1, arm2, frame

    def oarms(self) -> tuple[list[Scalar], list[Scalar], list[list[Scalar]]]:
        """Compute the point as seen from the origins of both geoms' trees, and the frame.

        For use with `odof` and `ovel`: fewer operations than `arms`.
        """
        p, frame = self._locate()
        arm1, arm2 = (
            sub(p, between(self._data, self._origin, self._origin_of(g))) for g in (self.pair.geom1, self.pair.geom2)
        )
        return arm1, arm2, frame

    def _origin_of(self, geom: int) -> int:
        return self._model.body_originid[self._model.geom_bodyid[geom]]


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A pair of geoms that may touch."""

    pair: Pair
    ncon: int  # the most contacts it has at once
    _model: Model
    _data: Data

    def near(self, gap: Scalar = 0.0) -> Mask:
        """Return the mask of the worlds where bounding spheres may meet; True if that costs as much as the distance.

        gap: how much further than the margin to look, metres.
        """
        if not collider_of(self._model, self.pair).cull:
            return True
        return self.bounds_meet(gap)

    def bounds_meet(self, gap: Scalar = 0.0) -> Mask:
        """Return where bounding spheres, or geom2's sphere and its ground, come within margin and gap: a mask."""
        kind = self._model.geom_type[self.pair.geom1]
        if kind == GeomType.PLANE:
            return self._bound_meets_plane(gap)
        if kind == GeomType.HFIELD:
            return self._bound_meets_field()
        m, d, pair = self._model, self._data, self.pair
        return spheres_meet(m, d, pair, contact_param(m, pair).margin + gap)

    def _bound_meets_plane(self, gap: Scalar) -> Mask:
        """Return the mask of worlds where geom2's bounding sphere comes within margin and gap of the plane geom1."""
        m, d, g1, g2 = self._model, self._data, self.pair.geom1, self.pair.geom2
        apart = sub(d.geom_xrel[g2], add(d.geom_xrel[g1], offset_of(m, d, self.pair)))
        return dot(apart, column(d.geom_xmat[g1], 2)) < bound_of(m, g2) + (contact_param(m, self.pair).margin + gap)

    def _bound_meets_field(self) -> Mask:
        """Return where geom2's bounding sphere comes within margin and gap of the box around a height field: a mask."""
        m, d, g1, g2 = self._model, self._data, self.pair.geom1, self.pair.geom2
        param = contact_param(m, self.pair)
        reach = bound_of(m, g2) + param.margin + param.gap
        x, y, top, base = ground_of(m, [self.pair]).field.size
        apart = sub(d.geom_xrel[g2], add(d.geom_xrel[g1], offset_of(m, d, self.pair)))
        within = []
        for k, (low, high) in enumerate(((-x, x), (-y, y), (-base, top))):
            at = dot(apart, column(d.geom_xmat[g1], k))
            within += [at < reach + high, low < reach + at]
        return logical_and(*within)

    def contacts(self) -> list[Contact]:
        """Compute all `ncon` contacts, also those that do not act; in MuJoCo's order where `m.orders_contacts`."""
        return [self.contact(dist, spot) for dist, spot in self.spots()]

    def spots(self) -> Found:
        """Compute the distance and the spot of each contact, in the order of `contacts`."""
        m, collider = self._model, collider_of(self._model, self.pair)
        found = collider.found(*self._geoms(), self.ncon)
        return collider.order(found) if collider.order and m.orders_contacts else found

    def contact(self, dist: Scalar, spot: list[Scalar]) -> Contact:
        """Make the contact at a spot."""
        m, d, pair, collider = self._model, self._data, self.pair, collider_of(self._model, self.pair)
        one, two = self._geoms()
        origin = m.body_originid[m.geom_bodyid[pair.geom2]]
        if collider.searches:
            dist = self._as_placed(dist, spot)
        return Contact(pair, dist, lambda: collider.place(one, two, spot)[1:], d, origin, m)

    def _as_placed(self, dist: Scalar, spot: list[Scalar]) -> Scalar:
        """Return the distance at a spot, with the derivatives of the distance that `place` reads there."""
        collider, (one, two) = collider_of(self._model, self.pair), self._geoms()

        def given() -> list[Scalar]:
            return [x for geom in (one, two) for x in (*geom.centre, *geom.mat, *geom.size.values())]

        def placed() -> list[Scalar]:
            return [select(dist < NEVER, collider.place(one, two, spot)[0], NEVER)]

        return (follows if collider.hulls else straightened)([dist], given, placed)[0]

    def _geoms(self) -> tuple[GeomAt, GeomAt]:
        """Return both geoms as seen from the origin of the second one's tree."""
        m, d, pair, collider = self._model, self._data, self.pair, collider_of(self._model, self.pair)
        one = GeomAt(m, d, pair, pair.geom1, collider, offset_of(m, d, pair))
        return one, GeomAt(m, d, pair, pair.geom2, collider, [0.0] * 3)

    def detected(self) -> list[Mask]:
        """Return for each of its contacts the mask of the worlds where MuJoCo lists it: also within the gap."""
        param = contact_param(self._model, self.pair)
        return [c.dist < param.margin + param.gap for c in self.contacts()]


@stage(reads="", computes="candidates")
def collision(m: Model, d: Data) -> None:
    """Make a candidate of each of `m.pairs`, in order: mj_collision. They read the data when they are asked."""
    d.candidates = candidates_of(m, d, m.pairs)


def candidates_of(m: Model, d: Data, pairs: Sequence[Pair]) -> list[Candidate]:
    """Make a candidate of each of some pairs, in order."""
    return [Candidate(pair, most_contacts(m, pair), m, d) for pair in pairs]


def spheres_meet(m: Model, d: Data, pair: Pair, beyond: Scalar) -> Mask:
    """Return where the bounding spheres of two geoms, neither endless, come within a distance, metres: a mask."""
    apart = sub(d.geom_xrel[pair.geom2], add(d.geom_xrel[pair.geom1], offset_of(m, d, pair)))
    reach = bound_of(m, pair.geom1) + bound_of(m, pair.geom2) + beyond
    if is_number(reach):
        return dot(apart, apart) < reach * reach if reach > 0 else False
    return dot(apart, apart) < maximum(reach, 0.0) * reach


def offset_of(m: Model, d: Data, pair: Pair) -> list[Scalar]:
    """Return the vector from the origin of geom2's tree to that of geom1's (3)."""
    one, two = (m.body_originid[m.geom_bodyid[g]] for g in (pair.geom1, pair.geom2))
    return between(d, two, one)


@dataclasses.dataclass
class GeomAt:
    """A geom of a pair in the state d, seen from a point at `offset` from its tree's origin."""

    m: Model
    d: Data
    pair: Pair
    geom: int
    collider: Collider
    offset: list[Scalar]

    @functools.cached_property
    def centre(self) -> list[Scalar]:
        return add(self.d.geom_xrel[self.geom], self.offset)

    @property
    def mat(self) -> list[Scalar]:
        return self.collider.whole(self.d.geom_xmat[self.geom])

    @property
    def axis(self) -> list[Scalar]:
        return column(self.d.geom_xmat[self.geom], 2)

    @property
    def size(self) -> dict[str, Scalar]:
        return size_of(self.m, self.geom, self.collider)

    @property
    def margin(self) -> Scalar:
        param = contact_param(self.m, self.pair)
        return param.margin + param.gap

    @property
    def several(self) -> bool:
        return may_touch_in_several(self.m, self.pair, self.collider)

    @property
    def epsilon(self) -> float:
        return self.d.precision.epsilon

    @property
    def solids(self) -> Solids:
        return solids_of(self.m.meshes)

    @property
    def ground(self) -> Ground:
        return ground_of(self.m, [self.pair])

    def along(self, x: Scalar) -> list[Scalar]:
        m, g = self.m, self.geom
        p = self.d.frame[m.geom_bodyid[g]].point(add_scaled(m.geom_pos[g], column(m.geom_mat[g], 2), x))
        return add(p, self.offset)

    def point(self, x: Vec) -> list[Scalar]:
        return add(self.centre, mat_vec(self.mat, x))
