"""Finds how deep two cylinders are in each other: the way out is one of a few directions, which are all tried.

C, the difference of both shapes, reaches least far along the normal of one of its smooth parts. These are

    an end and anything   the normal is an axis
    a side and a side     it is at right angles to both axes
    a side and a rim      it is at right angles to one axis
    a rim and a rim       it may be anything

Of the third kind there is one for each cylinder and each rim of the other: the point of an ellipse that is nearest to
the origin. The fourth kind borders on the first and the third: where such a normal is not the least, there is a better
one beside it. So Newton's method looks for the fourth from each of them, downhill. Shapes that are apart are so by the
same directions: how far C reaches is then negative, and least along the gap. So a margin makes no difference.

All is seen by each cylinder in turn: along its axis, along the part of the other's axis across it, and across both.

n unit vector from the first cylinder to the second   u, v its cosines to both axes   w the furthest point of C along n
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ....compiler.control import choose_all, repeat, when_any
from ....compiler.scalar import Mask, Scalar, absolute, logical_and, logical_or, maximum, minimum, number, select
from ...algebra.spatial import MINVAL, Vec, add_scaled, choose, cross, dot, norm, scale, sub, unit
from .cylinder_box import LEVEL, nearest_on_ellipse
from .hull import Hull

RING_STEPS = 8  # of Newton's method for a side and a rim
RIM_STEPS = 5  # ... for two rims, from each start ...
LAST_STEPS = 4  # ... and from the best of these
FARTHEST = 0.7  # the most that a step for two rims turns n, as a share of the sine to the nearer axis ...
ANYWAY = 0.1  # ... or in radians, whichever is more
LEAVING = 0.4  # the tangent of the most that its start is off an end's normal ...
ASIDE = 0.2  # ... and how far it is off where nothing tells
PARALLEL = 1e-9  # the sine of an angle below which two axes do not tell what is across both
RIMS, SIDE, END, SIDES = 0.0, 1.0, 3.0, 5.0  # kinds of n; the second's side and end are 1 more


@dataclass(frozen=True)
class _View:
    """Both cylinders as one of them sees them.

    axes: in the world's coordinates. radius, half: of the one that sees. wide, long: the other's.
    centre: from the other to this one. cosine, sine: between the axes of both; along: the other's axis.
    """

    axes: list[Vec]
    radius: Scalar
    half: Scalar
    wide: Scalar
    long: Scalar
    centre: Vec
    cosine: Scalar
    sine: Scalar

    @property
    def along(self) -> Vec:
        return [self.cosine, self.sine, 0.0]

    @property
    def end(self) -> Vec:
        """The normal of the end that is nearer to the other cylinder."""
        return [-_sign(self.centre[0]), 0.0, 0.0]

    def reach(self, n: Vec) -> Scalar:
        """Return how far C reaches along n."""
        ends = self.half * absolute(n[0]) + self.long * absolute(dot(self.along, n))
        rims = self.radius * norm(n[1:]) + self.wide * norm(cross(self.along, n))
        return dot(self.centre, n) + ends + rims

    def corner(self, sides: list[Scalar]) -> Vec:
        """Return the middle of both rims in C. sides: 1 or -1 for each cylinder, the end that is furthest along n."""
        own, other = (select(x > 0.0, most, -most) for x, most in zip(sides, (self.half, self.long), strict=True))
        return add_scaled(add_scaled(self.centre, [1.0, 0.0, 0.0], own), self.along, other)

    def world(self, n: Vec) -> list[Scalar]:
        """Return n in the world's coordinates."""
        return [dot(n, [axis[k] for axis in self.axes]) for k in range(3)]


def way_out(one: Hull, two: Hull) -> tuple[Scalar, list[Scalar], list[Mask], list[Scalar]]:
    """Return the depth, n and, for each shape, whether an end lies flat, and which end is furthest along n: 1 or -1, or
    0 where the side is level.
    """
    views, beside = _views(one, two)

    def view_of(k: Any) -> _View:
        return _View(*choose_all(number(k) < 0.5, *views))

    best = [1e10, *beside, SIDES]
    for k in range(2):
        view = view_of(k)
        reach = view.half + view.long * absolute(view.cosine) + view.wide * view.sine - absolute(view.centre[0])
        best = choose(reach < best[0], [reach, *view.world(view.end), END + k], best)
    for n in (view_of(0).axes[2], beside):
        best = _better(view_of(0), [dot(x, n) for x in view_of(0).axes], best, SIDES)

    def each(i: Any, best: list[Scalar]) -> list[Scalar]:
        view = view_of(i)
        starts = [_beside_end(view)]
        for side in (-1.0, 1.0):
            n = _level(view, side)
            best = _better(view, n, best, SIDE + number(i))
            starts.append([*n, *view.corner(_sides(view, n))])

        def rims(k: Any, best: list[Scalar]) -> list[Scalar]:
            start = choose(number(k) < 0.5, starts[0], choose(number(k) < 1.5, starts[1], starts[2]))
            n, corner = start[:3], start[3:]
            for _ in range(RIM_STEPS):
                n = _turned(view, n, corner)
            return _better(view, n, best, RIMS)

        return repeat(len(starts), rims, best)

    best = repeat(2, each, best)
    reach, *n, kind = when_any(best[4] < 0.5, lambda best: _exactly(view_of(0), best), best)
    # Where n is across one axis, and both are nearly parallel, its cosine to the other is small but may count.
    sine = view_of(0).sine
    least = LEVEL * select(sine > LEVEL, sine, 1.0)
    sides, flats = [], []
    for k, axis in enumerate((one.axes[2], two.axes[2])):
        cosine = absolute(dot(axis, n))
        # `beside` may be the normal of a side and a rim: it is across both axes only if they are parallel.
        across = logical_and(kind > SIDES - 0.5, cosine < LEVEL)
        level = logical_or(absolute(kind - (SIDE + k)) < 0.5, across, cosine < least)
        sides.append(select(level, 0.0, _sign(dot(axis, n))))
        flats.append(logical_or(absolute(kind - (END + k)) < 0.5, norm(cross(axis, n)) < LEVEL))
    return reach, n, flats, sides


def _views(one: Hull, two: Hull) -> tuple[list[list[Any]], list[Scalar]]:
    """Return the fields of the `_View` of each cylinder, and n for two that are parallel side by side."""
    a, b, centre = one.axes[2], two.axes[2], sub(one.centre, two.centre)
    beside = _across(centre, a, one.axes[0])
    over, cosine = cross(a, b), dot(a, b)
    sine = norm(over)
    upright = _across(choose(sine > PARALLEL, scale(over, 1.0 / maximum(sine, MINVAL)), beside), a, beside)
    upright, beside = (scale(n, -_sign(dot(n, centre))) for n in (upright, beside))
    views = []
    for axis, other, hull, far in ((a, b, one, two), (b, a, two, one)):
        lean = cross(upright, axis)
        axes = [axis, scale(lean, _sign(dot(lean, other))), upright]
        sizes = [hull.radii[0], hull.box[2], far.radii[0], far.box[2]]
        views.append([axes, *sizes, [dot(x, centre) for x in axes], cosine, sine])
    return views, beside


def _exactly(view: _View, best: list[Scalar]) -> list[Scalar]:
    """Return `best` to rounding where it is of two rims."""
    n = [dot(x, best[1:4]) for x in view.axes]
    corner = view.corner([_sign(n[0]), _sign(dot(view.along, n))])
    is_rims = best[4] < 0.5
    for _ in range(LAST_STEPS):
        n = _turned(view, n, corner)
        best = choose(is_rims, _better(view, n, best, RIMS), best)
    return best


def _across(x: Vec, axis: Vec, otherwise: Vec) -> list[Scalar]:
    """Return the unit vector along the part of x across `axis`, exactly across it even where that part is short."""
    part = add_scaled(x, axis, -dot(x, axis))
    part = choose(dot(part, part) > MINVAL, unit(part), otherwise)
    return unit(add_scaled(part, axis, -dot(part, axis)))


def _better(view: _View, n: Vec, best: list[Scalar], kind: Scalar) -> list[Scalar]:
    """Return [reach, *n, kind], if C reaches less far along n than `best` does."""
    reach = view.reach(n)
    return choose(reach < best[0], [reach, *view.world(n), kind], best)


def _sign(x: Scalar) -> Scalar:
    return select(x >= 0.0, 1.0, -1.0)


def _other_side(view: _View, n: Vec) -> Scalar:
    """Return which end of the other cylinder is furthest along n, or is downhill if n is level with it."""
    v = dot(view.along, n)
    return select(absolute(v) < LEVEL, -_sign(dot(view.along, view.centre)), _sign(v))


def _sides(view: _View, n: Vec) -> list[Scalar]:
    """Return which ends are furthest along n, which is across this cylinder's axis, once it turns downhill."""
    other = _other_side(view, n)
    pull = view.wide * dot(view.along, n) / maximum(norm(cross(view.along, n)), MINVAL)
    return [-_sign(view.centre[0] + view.cosine * (other * view.long - pull)), other]


def _level(view: _View, side: float) -> list[Scalar]:
    """Return n across this cylinder's axis along which its side and a rim of the other reach least far.

    Seen along the axis the rim is an ellipse, and the way out goes to the point of it that is nearest to the origin. n
    is the ellipse's normal there, and the direction to that point if the origin is outside. The latter tells more where
    the ellipse is almost a line.
    """
    narrow = view.wide * absolute(view.cosine)
    x, y = view.centre[1] + side * view.long * view.sine, view.centre[2]
    c, s = nearest_on_ellipse(narrow * x, view.wide * y, narrow, view.wide, side, RING_STEPS)
    best: list[Scalar] = [1e10, 0.0, 0.0, 1.0]
    for way in ([view.wide * c, narrow * s], [-x - narrow * c, -y - view.wide * s]):
        length = norm(way)
        n = [0.0, *scale(way, 1.0 / maximum(length, MINVAL))]
        reach = select(length > LEVEL * view.wide, view.reach(n), 1e10)
        best = choose(reach < best[0], [reach, *n], best)
    return best[1:]


def _beside_end(view: _View) -> list[Scalar]:
    """Return n near the end's normal, where two rims may reach less far, and the middle of both in C.

    For small turns x along the unit vector e across the axis C reaches further by radius |x| + slope.x + bend x^2 / 2.
    """
    end = view.end
    sides = [end[0], _other_side(view, end)]
    corner = view.corner(sides)
    slope = [corner[1] - view.wide * end[0] * view.cosine, corner[2]]
    steep = norm(slope)
    e = scale(slope, -1.0 / maximum(steep, MINVAL))
    bend = view.wide * e[1] * e[1] / maximum(view.sine, MINVAL) - (end[0] * corner[0] + view.wide * view.sine)
    tangent = (steep - view.radius) / maximum(bend, MINVAL)
    tangent = select(logical_and(bend > 0.0, tangent > 0.0), minimum(tangent, LEAVING), ASIDE)
    return [*unit([end[0], *scale(e, tangent)]), *corner]


def _turned(view: _View, n: Vec, corner: Vec) -> list[Scalar]:
    """Make a step of Newton's method for two rims, downhill along both of the Hessian's axes.

    A rim bends C only across n and its own axis: along t, by its radius over the sine between n and that axis. The
    nearer n is to an axis the more C bends, so the less does a step turn.
    """
    rims = []
    farthest: Scalar = FARTHEST
    for axis, radius in (([1.0, 0.0, 0.0], view.radius), (view.along, view.wide)):
        t = cross(axis, n)
        sine = norm(t)
        farthest = minimum(farthest, maximum(FARTHEST * sine, ANYWAY))
        inverse = 1.0 / maximum(sine, MINVAL)
        rims.append((scale(t, inverse), radius * inverse, add_scaled(n, axis, -dot(axis, n))))
    (first, one, out), (t, two, far) = rims
    w = add_scaled(add_scaled(corner, out, one), far, two)
    depth, second = dot(w, n), cross(n, first)
    c, s = dot(t, first), dot(t, second)
    x, y = dot(w, first), dot(w, second)
    p, q, r = one + two * c * c - depth, two * c * s, two * s * s - depth
    mean, half = 0.5 * (p + r), 0.5 * (p - r)
    spread = maximum(norm([half, q]), MINVAL)
    high, low = (1.0 / maximum(absolute(bend), MINVAL) for bend in (mean + spread, mean - spread))
    same, other = 0.5 * (high + low), 0.5 * (high - low) / spread
    turn = [-same * x - other * (half * x + q * y), -same * y - other * (q * x - half * y)]
    turn = scale(turn, minimum(1.0, farthest / maximum(norm(turn), MINVAL)))
    return unit(add_scaled(add_scaled(n, first, turn[0]), second, turn[1]))
