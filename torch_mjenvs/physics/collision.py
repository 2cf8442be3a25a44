"""Contact geometry: mj_collision's narrow phase (engine_collision_primitive.c) and mju_makeFrame.

Which geoms may touch, and in how many points, is known beforehand (`Model.pairs`): `collision` makes a `Candidate` of
each pair. What depends on the state is computed in three helpings, so that a caller may skip what no world needs:
`Candidate.near` from two bounding spheres, `Candidate.contacts` with each contact's `dist`, and `Contact.locate` with
the rest.

Positions are measured from the origin of the tree of the pair's second geom, so that a contact's lever arms are
precise far from the world's origin, too.

a axis   b product of axes   n normal   p point   r radius   s, t positions along the axes, from the centres   u tangent
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from ..compiler.scalar import Mask, Scalar, absolute, maximum, minimum, select
from .contact_param import contact_param
from .data import Data, stage
from .kinematics import between
from .model import CAPSULE, CONTACTS, PLANE, SPHERE, Model, Pair
from .spatial import (
    MINVAL,
    Vec,
    add,
    add_scaled,
    choose,
    column,
    cross,
    dot,
    is_number,
    is_zero,
    norm,
    normalize,
    scale,
    sub,
)

PARALLEL = 1e-8  # squared sine of the angle below which two capsules are parallel and touch twice
CROSSING = 1e-5  # share of the radii; below it the distance of two axes may be float32's rounding, and no direction
NEVER = 1e10  # a distance at which nothing acts

Locate = Callable[[], tuple[list[Scalar], list[list[Scalar]]]]


@dataclasses.dataclass(frozen=True)
class Contact:
    """One point in which a pair may touch. It acts in the worlds where dist < margin, as `contact_param` gives it.

    dist: distance of the surfaces, negative where they overlap, metres.
    """

    pair: Pair
    dist: Scalar
    _locate: Locate
    _data: Data
    _origin: int  # whose origin positions are measured from
    _model: Model

    def locate(self) -> tuple[list[Scalar], list[list[Scalar]]]:
        """The point (3) and the frame: normal (from geom1 to geom2), first and second tangent, (3) each."""
        p, frame = self._locate()
        return add(self._data.origin[self._origin], p), frame

    def arms(self) -> tuple[list[Scalar], list[Scalar], list[list[Scalar]]]:
        """The point as seen from subtree_com of the root of geom1's body and of geom2's, and the frame.

        For use with `cdof` and `cvel`: a motion vector v moves the point by v[3:] + v[:3] x arm.
        """
        *arms, frame = self.oarms()
        geoms = (self.pair.geom1, self.pair.geom2)
        arm1, arm2 = (sub(arm, self._data.comrel[self._origin_of(g)]) for g, arm in zip(geoms, arms, strict=True))
        return arm1, arm2, frame

    def oarms(self) -> tuple[list[Scalar], list[Scalar], list[list[Scalar]]]:
        """The same from the origins of the two trees, for use with `odof` and `ovel`: fewer operations."""
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

    def near(self) -> Mask:
        """Where bounding spheres do not keep the geoms apart; True if that is no cheaper to know than the distance."""
        m, g1, g2 = self._model, self.pair.geom1, self.pair.geom2
        if m.geom_type[g1] == PLANE or (m.geom_type[g1], m.geom_type[g2]) == (SPHERE, SPHERE):
            return True
        return self.bounds_meet()

    def bounds_meet(self) -> Mask:
        """Whether the bounding spheres of two geoms, neither a plane, come within the margin."""
        m, d = self._model, self._data
        g1, g2 = self.pair.geom1, self.pair.geom2
        apart = sub(d.geom_xrel[g2], _first_centre(m, d, self.pair))
        reach = _bound(m, g1) + _bound(m, g2) + contact_param(m, g1, g2).margin
        if is_number(reach):
            return dot(apart, apart) < reach * reach if reach > 0 else False
        return dot(apart, apart) < maximum(reach, 0.0) * reach

    def contacts(self) -> list[Contact]:
        """The `ncon` contacts, in MuJoCo's order, whether they act or not."""
        m, d, pair = self._model, self._data, self.pair
        origin = m.body_originid[m.geom_bodyid[pair.geom2]]
        found = _COLLIDE[m.geom_type[pair.geom1], m.geom_type[pair.geom2]](m, d, pair)
        return [Contact(pair, dist, locate, d, origin, m) for dist, locate in found]


@stage(reads="", computes="candidates")
def collision(m: Model, d: Data) -> None:
    """mj_collision: the candidates, one for each of `m.pairs` in order. They read the data when they are asked."""
    kinds = [(m.geom_type[p.geom1], m.geom_type[p.geom2]) for p in m.pairs]
    d.candidates = [Candidate(pair, CONTACTS[kind], m, d) for pair, kind in zip(m.pairs, kinds, strict=True)]


# places


def _first_centre(m: Model, d: Data, pair: Pair) -> list[Scalar]:
    """The position of geom1, from the origin of geom2's tree."""
    one, two = (m.body_originid[m.geom_bodyid[g]] for g in (pair.geom1, pair.geom2))
    return add(d.geom_xrel[pair.geom1], between(d, two, one))


def _axis(d: Data, geom: int) -> list[Scalar]:
    return column(d.geom_xmat[geom], 2)


def _bound(m: Model, geom: int) -> Scalar:
    """geom_rbound of a sphere or a capsule."""
    return m.geom_size[geom][0] + (m.geom_size[geom][1] if m.geom_type[geom] == CAPSULE else 0.0)


# colliders: each returns [(dist, locate)]


def _plane_sphere(m: Model, d: Data, pair: Pair) -> list[tuple[Scalar, Locate]]:
    """mjc_PlaneSphere."""
    return [_plane_ball(m, d, pair, d.geom_xrel[pair.geom2], None)]


def _plane_capsule(m: Model, d: Data, pair: Pair) -> list[tuple[Scalar, Locate]]:
    """mjc_PlaneCapsule: both ends as spheres; the first tangent is along the capsule."""
    g = pair.geom2
    length, frame, pos = m.geom_size[g][1], d.frame[m.geom_bodyid[g]], m.geom_pos[g]
    ends = [frame.point(add_scaled(pos, column(m.geom_mat[g], 2), x)) for x in (length, -length)]
    return [_plane_ball(m, d, pair, end, _axis(d, g)) for end in ends]


def _plane_ball(m: Model, d: Data, pair: Pair, p: Vec, along: Vec | None) -> tuple[Scalar, Locate]:
    r, n = m.geom_size[pair.geom2][0], _axis(d, pair.geom1)
    dist = dot(sub(p, _first_centre(m, d, pair)), n) - r

    def locate() -> tuple[list[Scalar], list[list[Scalar]]]:
        return add_scaled(p, n, -(dist * 0.5 + r)), make_frame(n, along)

    return dist, locate


def _sphere_sphere(m: Model, d: Data, pair: Pair) -> list[tuple[Scalar, Locate]]:
    """mjc_SphereSphere."""
    return [balls(*_rods(m, d, pair), 0.0, 0.0)]


def _sphere_capsule(m: Model, d: Data, pair: Pair) -> list[tuple[Scalar, Locate]]:
    """mjc_SphereCapsule: the sphere and the nearest point of the capsule's segment."""
    one, two = _rods(m, d, pair)
    return [balls(one, two, 0.0, _hold(dot(two.axis, sub(one.centre, two.centre)), two.half))]


def _capsule_capsule(m: Model, d: Data, pair: Pair) -> list[tuple[Scalar, Locate]]:
    """mjc_CapsuleCapsule."""
    one, two = _rods(m, d, pair)
    parallel, first, second = nearest(one, two)
    if is_zero(one.half) or is_zero(two.half):  # a sphere touches once
        parallel = False
    dist, locate = balls(one, two, *second)
    return [balls(one, two, *first), (select(parallel, dist, NEVER), locate)]


@dataclasses.dataclass(frozen=True)
class Rod:
    """A capsule, or, where half of its length is 0, a sphere."""

    centre: Vec
    axis: Vec
    half: Scalar
    radius: Scalar


def _rods(m: Model, d: Data, pair: Pair) -> tuple[Rod, Rod]:
    centres = _first_centre(m, d, pair), d.geom_xrel[pair.geom2]
    geoms = pair.geom1, pair.geom2
    one, two = (Rod(p, _axis(d, g), half(m, g), m.geom_size[g][0]) for p, g in zip(centres, geoms, strict=True))
    return one, two


def nearest(one: Rod, two: Rod) -> tuple[Mask, list, list]:
    """The nearest points (s, t) of two segments, or the ends of the overlap of two that are parallel."""
    r = sub(two.centre, one.centre)
    l1, l2 = one.half, two.half
    n = cross(one.axis, two.axis)
    b, along1, along2, square = dot(one.axis, two.axis), dot(one.axis, r), dot(two.axis, r), dot(n, n)
    parallel = square < PARALLEL
    s = _hold(dot(cross(r, two.axis), n) / maximum(square, PARALLEL), l1)
    t = _hold(s * b - along2, l2)
    s = _hold(along1 + t * b, l1)
    ends = [_overlap_end(end, b, along1, along2, l1, l2) for end in (-1.0, 1.0)]
    return parallel, choose(parallel, ends[0], [s, t]), list(ends[1])


def _overlap_end(
    end: float, b: Scalar, along1: Scalar, along2: Scalar, l1: Scalar, l2: Scalar
) -> tuple[Scalar, Scalar]:
    """s and t where the overlap of two parallel segments ends, in the direction `end` of the first."""
    t2 = select(b < 0.0, -end * l2, end * l2)  # the second's end on that side
    s2 = along1 + t2 * b  # seen from the first
    inside = s2 * end <= l1
    s = select(inside, _hold(s2, l1), end * l1)
    return s, select(inside, t2, _hold(end * l1 * b - along2, l2))


def balls(one: Rod, two: Rod, s: Scalar, t: Scalar) -> tuple[Scalar, Locate]:
    """mjraw_SphereSphere, of spheres of the rods' radii at their points s and t."""
    p1, p2 = (rod.centre if is_zero(x) else add_scaled(rod.centre, rod.axis, x) for rod, x in ((one, s), (two, t)))
    apart = sub(p2, p1)
    between = norm(apart)
    dist = between - (one.radius + two.radius)

    def locate() -> tuple[list[Scalar], list[list[Scalar]]]:
        n = _normal(apart, between, one.axis, two.axis, (one.radius + two.radius) * CROSSING)
        return add_scaled(p2, n, -(dist * 0.5 + two.radius)), make_frame(n, None)

    return dist, locate


def _hold(x: Scalar, limit: Scalar) -> Scalar:
    return minimum(maximum(x, -limit), limit)


def half(m: Model, geom: int) -> Scalar:
    """Half the length of a capsule's segment; 0 of a sphere, and of a capsule that is one to MuJoCo, too."""
    if m.geom_type[geom] != CAPSULE or (2 * (m.nominal or m).geom_size[geom][1]) ** 2 < MINVAL:
        return 0.0
    return m.geom_size[geom][1]


def _normal(apart: Vec, between: Scalar, a1: Vec, a2: Vec, crossing: Scalar) -> list[Scalar]:
    """apart / |apart|; where that is nothing, the common normal of the axes, and where there is none, x.

    Capsules in one plane cross like that as long as they touch. Nothing is to MuJoCo what is below mjMINVAL; what is
    below `crossing` has the direction of the common normal anyway, where both points are inside of their segments.
    """
    spare = normalize(cross(a1, a2), [1.0, 0.0, 0.0])
    spare = choose(dot(apart, spare) < -MINVAL, scale(spare, -1.0), spare)
    return choose(between < crossing, spare, scale(apart, 1.0 / maximum(between, MINVAL)))


def make_frame(n: Vec, along: Vec | None) -> list[list[Scalar]]:
    """mju_makeFrame: a unit normal, and tangents of which the first is nearest `along`, or else to y or z.

    Where the model leaves the first tangent only one direction, it is that constant: a friction pyramid does not tell
    a tangent from its opposite.
    """
    if along is None:
        steep = absolute(n[1]) < 0.5
        along = [0.0, select(steep, 1.0, 0.0), select(steep, 0.0, 1.0)]
    u = add_scaled(along, n, -dot(n, along))
    here = [k for k in range(3) if not is_zero(u[k])]
    if len(here) == 1:
        u = [1.0 if k in here else 0.0 for k in range(3)]
    else:
        u = normalize(u, [1.0, 0.0, 0.0])
    return [list(n), u, cross(n, u)]


_COLLIDE = {
    (PLANE, SPHERE): _plane_sphere,
    (PLANE, CAPSULE): _plane_capsule,
    (SPHERE, SPHERE): _sphere_sphere,
    (SPHERE, CAPSULE): _sphere_capsule,
    (CAPSULE, CAPSULE): _capsule_capsule,
}
