"""Colliders find where two geoms are nearest: MuJoCo's engine_collision_primitive.c and mju_makeFrame.

Each kind of pair has two functions. `find` gives the distance of each point in which the geoms may touch, and its
spot: a few numbers that tell where it is. `place` gives dist, point and frame of a spot.

Positions are measured from any one origin, the same for both geoms.

a axis   b product of axes   n normal   p point   r radius   s, t positions along the axes, from the centres   u tangent
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from ...compiler.scalar import Mask, Scalar, absolute, logical_and, maximum, minimum, select
from ..algebra.spatial import MINVAL, Vec, add_scaled, choose, cross, dot, is_zero, norm, normalize, scale, sub
from ..model.hfield import Ground
from .solids import Solids

PARALLEL = 1e-8  # squared sine of the angle below which two capsules are parallel and touch twice
CROSSING = 1e-5  # share of the radii; a smaller distance of two axes may be float32's rounding, and gives no direction
NEVER = 1e10  # a distance at which nothing acts
LEANING = 3e-4  # share of two rods' sizes: more than the error of `_nearest` if they are parallel, and than rounding
SLACK = 1e-5  # share of what is measured: more than the rounding of a distance

Place = tuple[Scalar, list[Scalar], list[list[Scalar]]]  # dist; point (3); normal from geom1 to geom2, two tangents


class Geom(Protocol):
    """A geom as a collider sees it: its centre (3), orientation (9) and z axis (3), and its `Shape.size`."""

    @property
    def centre(self) -> Vec: ...

    @property
    def mat(self) -> Vec:
        """The orientation (9), row-major; a collider that `shapes` enters as axial cannot have it."""

    @property
    def axis(self) -> Vec: ...

    @property
    def size(self) -> Mapping[str, Scalar]: ...

    @property
    def margin(self) -> Scalar:
        """The distance up to which contacts of the pair are looked for, metres; both geoms have the same."""

    @property
    def several(self) -> Mask:
        """Mask: the pair may touch in more than one point; both geoms have the same."""

    @property
    def epsilon(self) -> float:
        """`Precision.epsilon`; both geoms have the same."""

    @property
    def solids(self) -> Solids:
        """The tables of all meshes of the model."""

    @property
    def ground(self) -> Ground:
        """The height field that the pair touches, if there is one."""

    def along(self, x: Scalar) -> Vec:
        """Return the point at x on the axis, where x is a constant."""

    def point(self, x: Vec) -> Vec:
        """Return the point at x, from the centre in the geom's own axes."""


Found = list[tuple[Scalar, list[Scalar]]]  # dist and spot of each contact


# a plane and a sphere, or a capsule's two ends


def find_plane_sphere(plane: Geom, sphere: Geom) -> Found:
    """Find the sphere's distance from the plane: mjc_PlaneSphere."""
    return [(_over_plane(plane, sphere, sphere.centre), [])]


def place_plane_sphere(plane: Geom, sphere: Geom, spot: list[Scalar]) -> Place:
    """Place the contact half way between the surfaces of plane and sphere."""
    return _beneath(plane, sphere, sphere.centre, None)


def find_plane_capsule(plane: Geom, capsule: Geom) -> Found:
    """Find the distance of both ends of the capsule from the plane: mjc_PlaneCapsule."""
    half = capsule.size["half"]
    ends = [(x, capsule.along(x)) for x in (half, -half)]
    return [(_over_plane(plane, capsule, end), [x]) for x, end in ends]


def place_plane_capsule(plane: Geom, capsule: Geom, spot: list[Scalar]) -> Place:
    """Place the contact of an end of the capsule; the first tangent is along the capsule."""
    return _beneath(plane, capsule, capsule.along(spot[0]), capsule.axis)


def _over_plane(plane: Geom, ball: Geom, p: Vec) -> Scalar:
    return dot(sub(p, plane.centre), plane.axis) - ball.size["radius"]


def _beneath(plane: Geom, ball: Geom, p: Vec, along: Vec | None) -> Place:
    dist = _over_plane(plane, ball, p)
    return dist, add_scaled(p, plane.axis, -(dist * 0.5 + ball.size["radius"])), make_frame(plane.axis, along)


# spheres and capsules: a sphere is a capsule of no length


def find_spheres(one: Geom, two: Geom) -> Found:
    """Find the distance of two spheres: mjc_SphereSphere."""
    return [_balls(one, two, [0.0, 0.0])]


def find_sphere_capsule(one: Geom, two: Geom) -> Found:
    """Find the point of the capsule's segment that is nearest to the sphere: mjc_SphereCapsule."""
    return [_balls(one, two, [0.0, _hold(dot(two.axis, sub(one.centre, two.centre)), two.size["half"])])]


def find_rods(one: Geom, two: Geom) -> Found:
    """Find the nearest points of two segments, or where the overlap of parallel ones ends: mjc_CapsuleCapsule."""
    l1, l2 = one.size["half"], two.size["half"]
    near, parallel, b, along1, along2 = _nearest(one, two)
    first, second = (_overlap_end(end, b, along1, along2, l1, l2) for end in (-1.0, 1.0))
    first, twice = choose(parallel, first, near), logical_and(parallel, one.several)
    far, _ = _balls(one, two, second)
    return [_balls(one, two, first), (select(twice, far, NEVER), second)]


def _nearest(one: Geom, two: Geom) -> tuple[list[Scalar], Mask, Scalar, Scalar, Scalar]:
    """Return positions s and t of the nearest points of two segments, and the mask of the worlds where these are
    parallel: there s and t are right to `LEANING`. Then the product of both axes, and that of each with the way between
    the centres.
    """
    r = sub(two.centre, one.centre)
    l1, l2 = one.size["half"], two.size["half"]
    n = cross(one.axis, two.axis)
    b, along1, along2, square = dot(one.axis, two.axis), dot(one.axis, r), dot(two.axis, r), dot(n, n)
    parallel = square < PARALLEL
    s = _hold(dot(cross(r, two.axis), n) / maximum(square, PARALLEL), l1)
    t = _hold(s * b - along2, l2)
    s = _hold(along1 + t * b, l1)
    return [s, t], parallel, b, along1, along2


def rods_meet(one: Geom, two: Geom, margin: Scalar) -> Mask:
    """Return the mask of the worlds where the rods around two geoms come within the margin, metres.

    A rod is all that is within a radius of a segment: a capsule is one, and a cylinder is inside of one.
    """
    spot, *_ = _nearest(one, two)
    apart, *_ = _gap(one, two, spot)
    sizes = [x for geom in (one, two) for x in (geom.size["radius"], geom.size["half"])]
    reach = one.size["radius"] + two.size["radius"] + margin + LEANING * sum(sizes)
    return dot(apart, apart) < maximum(reach, 0.0) * reach


def place_rods(one: Geom, two: Geom, spot: list[Scalar]) -> Place:
    """Place the contact of spheres of the rods' radii at points s and t of their axes: mjraw_SphereSphere."""
    apart, p2, between, dist = _gap(one, two, spot)
    n = _normal(apart, between, one.axis, two.axis, (one.size["radius"] + two.size["radius"]) * CROSSING)
    return dist, add_scaled(p2, n, -(dist * 0.5 + two.size["radius"])), make_frame(n, None)


def _balls(one: Geom, two: Geom, spot: list[Scalar]) -> tuple[Scalar, list[Scalar]]:
    return _gap(one, two, spot)[-1], spot


def _gap(one: Geom, two: Geom, spot: list[Scalar]) -> tuple[list[Scalar], list[Scalar], Scalar, Scalar]:
    p1, p2 = (
        geom.centre if is_zero(x) else add_scaled(geom.centre, geom.axis, x)
        for geom, x in zip((one, two), spot, strict=True)
    )
    apart = sub(p2, p1)
    between = norm(apart)
    return apart, list(p2), between, between - (one.size["radius"] + two.size["radius"])


def _overlap_end(end: float, b: Scalar, along1: Scalar, along2: Scalar, l1: Scalar, l2: Scalar) -> list[Scalar]:
    """Return positions s and t where the overlap of two parallel segments ends, in the first's direction `end`."""
    t2 = select(b < 0.0, -end * l2, end * l2)  # the second's end on that side
    s2 = along1 + t2 * b  # seen from the first
    inside = s2 * end <= l1
    s = select(inside, _hold(s2, l1), end * l1)
    return [s, select(inside, t2, _hold(end * l1 * b - along2, l2))]


def _hold(x: Scalar, limit: Scalar) -> Scalar:
    return minimum(maximum(x, -limit), limit)


def _normal(apart: Vec, between: Scalar, a1: Vec, a2: Vec, crossing: Scalar) -> list[Scalar]:
    """Return the normal apart / |apart|; if `apart` is 0, the common normal of the axes; if there is none, x.

    `apart` is 0 for capsules whose axes lie in one plane, as long as they cross. MuJoCo takes a length below mjMINVAL
    for 0. Here the limit is `crossing`, below which `apart` has the direction of the common normal anyway if both
    points are inside of their segments.
    """
    spare = normalize(cross(a1, a2), [1.0, 0.0, 0.0])
    spare = choose(dot(apart, spare) < -MINVAL, scale(spare, -1.0), spare)
    return choose(between < crossing, spare, scale(apart, 1.0 / maximum(between, MINVAL)))


def make_frame(n: Vec, along: Vec | None) -> list[list[Scalar]]:
    """Make a frame of a unit normal, with the first tangent nearest to `along`, or else to y or z: mju_makeFrame.

    If the model leaves the first tangent one direction or its opposite, it is a constant: a friction pyramid does not
    tell a tangent from its opposite.
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
