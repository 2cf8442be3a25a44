"""The collider of a capsule and a cylinder, worked out for these shapes; MuJoCo's is the general one, mjc_Convex.

MuJoCo iterates until it knows distances to `ccd_tolerance`, 1e-6 by default, and normals to about the root of that.
Here the nearest points are found to rounding. If the capsule's segment itself cuts into the cylinder, the shortest way
out is taken, which MuJoCo looks for, too. A capsule that lies on one of the flat ends, tilted by less than `TILT`,
touches it twice: MuJoCo holds the segment's image on the end to a polygon of 16 corners, in place of the disc.

All in the cylinder's axes, from its centre: c the capsule's centre   a its axis   t a point of its segment   x where
that is   n the way from there into the cylinder, a unit vector   gap how far that is, negative from within
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

from ....compiler.arrays import Table
from ....compiler.control import repeat, when_any, while_any
from ....compiler.implicit import follows, for_adjoints, held, straightened
from ....compiler.scalar import (
    Mask,
    Scalar,
    absolute,
    clip,
    logical_and,
    logical_not,
    logical_or,
    maximum,
    minimum,
    select,
    sqrt,
)
from ...algebra.spatial import (
    MINVAL,
    Vec,
    add,
    add_scaled,
    choose,
    cross,
    dot,
    mat_vec,
    norm,
    normalize,
    scale,
    sub,
    transpose,
)
from ..colliders import NEVER, SLACK, Found, Geom, Place, make_frame
from .ball_colliders import seen_by

TOUCHING = 1e-6  # the gap below which MuJoCo assumes that the segment cuts into the cylinder
TILT = 0.0888  # sine of the angle below which MuJoCo takes an edge to lie on a face
TINY = 1e-30  # for what would be divided by 0
STEPS = 50  # for Newton's method, at the most; it takes 5 to 10
TURNS = 32  # directions among which the best one is looked for, before it is refined
REFINED = 40  # how often it is refined
LEVEL = 1e-6  # a direction with less along the axis is across it, where the length has a kink that may be its minimum

SPOT = 7  # dist, n, point

End = tuple[Scalar, list[Scalar]]  # dist; n and point of a contact


def find_capsule_cylinder(capsule: Geom, cylinder: Geom) -> Found:
    """Find one contact, or two where the capsule lies on a flat end. A spot: dist, n and point, in the world's axes.

    For adjoints it also has where the searches ended, and which contact it is.
    """
    found, ended = _find(capsule, cylinder, [])

    def numbered(k: int, spot: list[Scalar]) -> list[Scalar]:
        return [*spot, *for_adjoints(lambda: [*ended, float(k)])]

    return [(spot[0], numbered(k, spot)) for k, spot in enumerate(found)]


def _find(capsule: Geom, cylinder: Geom, ended: list[Scalar]) -> tuple[list[list[Scalar]], list[Scalar]]:
    """Find both spots, and where the searches ended: t, cosine and sine of the direction over a rim, and which of the
    ways out is the shortest.

    ended: where they ended, if that is known; then nothing is searched for, and there are no blocks.
    """
    c, a = seen_by(cylinder, capsule.centre), mat_vec(transpose(cylinder.mat), capsule.axis)
    near = (capsule.size["radius"] + capsule.margin) * (1.0 + SLACK)
    s = _Pair(c, a, capsule.size["half"], cylinder.size["radius"], cylinder.size["half"], near)
    outside = _from_outside(s, ended[:1])
    if ended:
        gap, t, *n = choose(outside[0] < TOUCHING, _from_within(s, ended[1:])[:5], outside)
    else:
        nowhere = for_adjoints(lambda: [1.0, 0.0, 0.0])
        gap, t, *rest = when_any(outside[0] < TOUCHING, lambda _: _from_within(s, []), [*outside, *nowhere])
        n, ended = rest[:3], [outside[1], *rest[3:]]
    radius, margin = capsule.size["radius"], capsule.margin
    alone = gap - radius, [*n, *add_scaled(add_scaled(c, a, t), n, 0.5 * (gap + radius))]
    lies, ends = _on_an_end(s, n, radius, margin)
    twice = logical_and(capsule.several, lies, gap < s.near)
    one, two = (_choose(twice, end, alone) for end in ends)

    def contact(dist: Scalar, where: list[Scalar]) -> list[Scalar]:
        n, point = mat_vec(cylinder.mat, where[:3]), add(cylinder.centre, mat_vec(cylinder.mat, where[3:]))
        return [dist, *n, *point]

    first, second = contact(*one), contact(*two)
    return [first, [select(twice, second[0], NEVER), *second[1:]]], ended


def place_spot(one: Geom, two: Geom, spot: list[Scalar]) -> Place:
    """Read the contact that `find_capsule_cylinder` left in its spot."""

    def again() -> list[Scalar]:
        acts = spot[0] < NEVER
        *ended, k = (held(select(acts, x, y)) for x, y in zip(spot[SPOT:], [0.0, 1.0, 0.0, 0.0, 0.0], strict=True))
        first, second = _find(one, two, ended)[0]
        return choose(k > 0.5, second, first)

    def given() -> list[Scalar]:
        sizes = [geom.size[k] for geom in (one, two) for k in ("half", "radius")]
        return [*one.centre, *one.axis, *two.centre, *two.mat, *sizes]

    found = straightened(spot[:SPOT], given, again)  # from where the searches ended
    return found[0], found[4:], make_frame(found[1:4], None)


@dataclass
class _Pair:
    c: Vec
    a: Vec
    reach: Scalar  # half the segment
    radius: Scalar
    half: Scalar
    near: Scalar  # a gap beyond which nothing is looked for

    def given(self) -> list[Scalar]:
        """Return all of its numbers in a list."""
        return [*self.c, *self.a, self.reach, self.radius, self.half]


def _from_outside(s: _Pair, ended: list[Scalar]) -> list[Scalar]:
    """Find gap, t and n of a segment outside, by Newton's method on the slope of its convex squared distance.

    If a tangent of that shows that the gap is greater than `s.near`, the search ends, with any t and n. ended: where it
    ended, if that is known.
    """

    def slope(t: Scalar) -> tuple[Scalar, Scalar, Scalar]:
        """Return half the squared distance at t, and its first and second derivative."""
        out, off, rise, above, up = _beyond(s, t)
        bend = maximum(dot(s.a[:2], s.a[:2]) - rise * rise, 0.0) / off
        curved = select(out > 0.0, rise * rise + out * bend, 0.0) + select(above > 0.0, s.a[2] * s.a[2], 0.0)
        return 0.5 * (out * out + above * above), out * rise + above * up * s.a[2], curved

    def unfinished(carry: list[Scalar]) -> Mask:
        return absolute(carry[3]) > 0.0

    def step(carry: list[Scalar]) -> list[Scalar]:
        low, high, t, _ = carry
        square, first, second = slope(t)
        least = square + first * (select(first < 0.0, high, low) - t)  # on the tangent, as far as it may be needed
        low, high = select(first < 0.0, t, low), select(first < 0.0, high, t)
        to = t - first / maximum(second, TINY)
        held = clip(to, low, high)
        ended = logical_and(absolute(held - to) <= 0.0, logical_or(to <= low, to >= high))  # nothing is between them
        to = select(absolute(held - to) > 0.0, 0.5 * (low + high), to)
        ended = logical_or(ended, absolute(first) <= 0.0, least > 0.5 * s.near * s.near)
        return [low, high, to, select(ended, 0.0, to - t)]

    ends = [slope(t)[1] for t in (-s.reach, s.reach)]
    before, after = ends[0] >= 0.0, ends[1] <= 0.0

    def onwards(at: Scalar) -> list[Scalar]:  # one more step of Newton's
        _, first, second = slope(at)
        return [select(before, -s.reach, select(after, s.reach, at - first * held(1.0 / maximum(second, TINY))))]

    if ended:
        (t,) = onwards(ended[0])
    else:
        start = clip(-dot(s.c, s.a), -s.reach, s.reach)
        t = while_any(unfinished, step, [-s.reach, s.reach, start, 1.0], STEPS)[2]
        found = select(before, -s.reach, select(after, s.reach, t))
        (t,) = follows([found], s.given, lambda: onwards(held(found)))
    out, off, _, above, up = _beyond(s, t)
    gap = sqrt(out * out + above * above)
    inverse = 1.0 / maximum(gap, MINVAL)
    x = add_scaled(s.c, s.a, t)
    return [gap, t, *scale(x[:2], -(out * inverse) / off), -(above * up * inverse)]


def _beyond(s: _Pair, t: Scalar) -> tuple[Scalar, Scalar, Scalar, Scalar, Scalar]:
    """Measure the point at t: how far it is beyond the side, and from the axis, and how that grows; beyond an end,
    and which.
    """
    x = add_scaled(s.c, s.a, t)
    off = maximum(norm(x[:2]), MINVAL)
    up = select(x[2] > 0.0, 1.0, -1.0)
    return maximum(off - s.radius, 0.0), off, dot(x[:2], s.a[:2]) / off, maximum(up * x[2] - s.half, 0.0), up


def _from_within(s: _Pair, ended: list[Scalar]) -> list[Scalar]:
    """Find gap, t and n of the shortest way out: over an end, by the side, or over a rim, across the segment.

    ended: cosine and sine of the direction over a rim, and which way it is, if they are known. For adjoints they are
    returned, too.
    """
    best: list[Scalar] = [NEVER, 0.0, 0.0, 0.0, 1.0, *for_adjoints(lambda: [0.0])]
    ways = itertools.count()

    def offer(way: list[Scalar]) -> list[Scalar]:
        k = float(next(ways))
        shorter = ended[2] > k - 0.5 if ended else way[0] < best[0]
        return choose(shorter, [*way, *for_adjoints(lambda: [k])], best)

    lean = s.reach * absolute(s.a[2])
    falls = select(s.a[2] > 0.0, -s.reach, s.reach)  # the segment's lower end
    for side, t in ((1.0, falls), (-1.0, -falls)):
        best = offer([s.half + lean - side * s.c[2], t, 0.0, 0.0, -side])
    across = dot(s.a[:2], s.a[:2])
    t = clip(-dot(s.c[:2], s.a[:2]) / maximum(across, TINY), -s.reach, s.reach)
    level = normalize([-s.a[1], s.a[0], 0.0], [1.0, 0.0, 0.0])  # across the segment and the axis
    x = add_scaled(s.c, s.a, t)
    outwards = normalize([x[0], x[1], 0.0], level)
    length = s.radius - norm(x[:2])
    steep = select(s.a[2] < 0.0, -1.0, 1.0) / maximum(absolute(s.a[2]), TINY)
    beside = [held(side * s.half * absolute(steep) - s.c[2] * steep) for side in (-1.0, 1.0)]
    t = clip(clip(t, *beside), -s.reach, s.reach)  # all of a segment along the axis is as deep, and may be longer
    best = offer([length, t, *scale(outwards, -1.0)])
    depth, cosine, sine, *out = _over_a_rim(s, level, cross(s.a, level), ended)
    flat = maximum(norm(out[:2]), MINVAL)
    corner = [*scale(out[:2], s.radius / flat), select(out[2] > 0.0, s.half, -s.half)]
    t = clip(dot(s.a, [x - y for x, y in zip(corner, s.c, strict=True)]), -s.reach, s.reach)
    depth = select(absolute(sine) < LEVEL, NEVER, depth)  # along `level` it is the way by the side, over no rim
    depth, t, *rest = offer([depth, t, *scale(out, -1.0)])
    return [-depth, t, *rest[:3], *for_adjoints(lambda: [cosine, sine, *rest[3:]])]


def _shorter(one: list[Scalar], two: list[Scalar]) -> list[Scalar]:
    return choose(one[0] < two[0], one, two)


def _over_a_rim(s: _Pair, u: Vec, v: Vec, ended: list[Scalar]) -> list[Scalar]:
    """Find the shortest way out across the segment, in the plane of u and v: its length, cosine, sine and direction.

    The best of some directions is turned to and fro, by half as much every time.
    """

    def length(out: Vec) -> Scalar:
        return s.radius * norm(out[:2]) + s.half * absolute(out[2]) - dot(out, s.c)

    def of(cosine: Scalar, sine: Scalar) -> list[Scalar]:
        out = add(scale(u, cosine), scale(v, sine))
        return [length(out), cosine, sine]

    angles = [2 * math.pi * k / TURNS for k in range(TURNS)]
    cosines, sines = [math.cos(x) for x in angles], [math.sin(x) for x in angles]
    turns = [2 * math.pi / TURNS / 2**k for k in range(REFINED)]
    small = [math.cos(x) for x in turns], [math.sin(x) for x in turns]

    def try_one(i: Any, best: list[Scalar]) -> list[Scalar]:
        return _shorter(of(Table(cosines)[i], Table(sines)[i]), best)

    def refine(i: Any, best: list[Scalar]) -> list[Scalar]:
        _, x, y = best
        c, d = (Table(table)[i] for table in small)
        for side in (d, -d):
            best = _shorter(of(x * c - y * side, x * side + y * c), best)
        return best

    def onwards(cosine: Scalar, sine: Scalar) -> list[Scalar]:  # one step of Newton's, in the angle
        out, across = add(scale(u, cosine), scale(v, sine)), sub(scale(v, cosine), scale(u, sine))
        flat, level = maximum(norm(out[:2]), MINVAL), dot(out[:2], across[:2])
        up = select(out[2] > 0.0, s.half, -s.half)
        slope = s.radius * level / flat + up * across[2] - dot(across, s.c)
        bend = (dot(across[:2], across[:2]) - level * level / (flat * flat)) / flat
        bend = s.radius * (bend - flat) - up * out[2] + dot(out, s.c)
        turn = select(absolute(out[2]) < LEVEL, 0.0, slope * held(-1.0 / maximum(bend, TINY)))
        return [length(out), cosine - sine * turn, sine + cosine * turn]

    if ended:
        best = onwards(*ended[:2])
    else:
        found: list[Scalar] = repeat(REFINED, refine, repeat(TURNS, try_one, [NEVER, 1.0, 0.0]))
        best = onwards(*map(held, found[1:]))  # directions that are alike to rounding may be 1e-8 apart
        best = onwards(*map(held, best[1:]))
    return [*best, *add(scale(u, best[1]), scale(v, best[2]))]


def _on_an_end(s: _Pair, n: Vec, radius: Scalar, margin: Scalar) -> tuple[Mask, list[End]]:
    """Return where the capsule lies on an end of the cylinder, and its two contacts there: dist, n and point of each.

    What lies there is the segment, moved by the capsule's radius along the part of n that is across it.
    """
    side = select(n[2] > 0.0, -1.0, 1.0)
    c = add_scaled(s.c, add_scaled(n, s.a, -dot(n, s.a)), radius + 0.5 * margin)
    low, high = -s.reach, s.reach
    for k in range(8):  # between two opposite edges of the polygon
        angle = (2 * k + 1) * math.pi / 16
        edge = [math.cos(angle), math.sin(angle)]
        at, along = dot(c[:2], edge), dot(s.a[:2], edge)
        inverse = 1.0 / select(absolute(along) < TINY, TINY, along)
        ends = [(x - at) * inverse for x in (-math.cos(math.pi / 16) * s.radius, math.cos(math.pi / 16) * s.radius)]
        low, high = maximum(low, minimum(*ends)), minimum(high, maximum(*ends))
    found = []
    for t in (low, high):
        x = add_scaled(c, s.a, t)
        dist = side * x[2] - s.half + 0.5 * margin
        found.append((dist, [0.0, 0.0, -side, x[0], x[1], side * (s.half + 0.5 * dist)]))
    # An end that is beyond the margin gives way to the other one. That is then there twice if the polygon cuts it off.
    beyond, cut = [dist > margin for dist, _ in found], [low > -s.reach, high < s.reach]
    once = logical_or(*(logical_and(gone, logical_not(x)) for gone, x in zip(beyond, reversed(cut), strict=True)))
    found = [_choose(x, other, end) for x, end, other in zip(beyond, found, reversed(found), strict=True)]
    found[1] = select(once, NEVER, found[1][0]), found[1][1]
    lies = logical_and(absolute(n[2]) > 1e-9, absolute(s.a[2]) < TILT, low < high, logical_not(logical_and(*beyond)))
    return lies, found


def _choose(mask: Mask, one: End, two: End) -> End:
    (dist, where), (other, elsewhere) = one, two
    return select(mask, dist, other), choose(mask, where, elsewhere)
