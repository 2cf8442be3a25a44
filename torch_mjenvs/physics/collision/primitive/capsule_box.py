"""The collider of a capsule and a box: MuJoCo's mjc_CapsuleBox.

The first contact is a ball's around the point of the capsule's segment that is nearest to the box: an end above a face,
or a point nearest to one of the twelve edges. Where the segment lies along a face, or an edge, there is a second one,
as far along the segment as it stays above that face. Where the segment cuts through the box, the point that counts is
the one that MuJoCo chooses. The limit to squared distances is MuJoCo's, too; only a capsule metres thick comes to it.

All in the box's axes, from its centre: c the capsule's centre   a its axis   h half its length   t a point of its
segment   y a point of an edge
"""

from __future__ import annotations

from dataclasses import dataclass

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
)
from ...algebra.spatial import MINVAL, Vec, add_scaled, dot, mat_vec, transpose
from ..colliders import NEVER, Found, Geom
from .ball_colliders import into_box, seen_by, sizes_of

TINY = 1e-30  # for what would be divided by 0


def find_capsule_box(capsule: Geom, box: Geom) -> Found:
    """Find up to two contacts of a capsule and a box: mjc_CapsuleBox."""
    c, a = seen_by(box, capsule.centre), mat_vec(transpose(box.mat), capsule.axis)
    segment = _Segment(c, a, capsule.size["half"], sizes_of(box))
    limit = capsule.margin + 2.0 * (capsule.size["radius"] + segment.h + sum(segment.sizes))
    end, edge = _nearest_end(segment), _nearest_edge(segment)
    by_edge = edge.square < end.square - MINVAL
    t = select(by_edge, edge.t, end.t)
    on_end, to_end = _along_face(segment, end)
    on_rim, to_rim = _along_edge(segment, edge)
    second = t + select(by_edge, to_rim, to_end)
    gap, far = (into_box(add_scaled(c, a, x), segment.sizes)[0] for x in (t, second))
    touches, radius = select(by_edge, edge.square, end.square) < limit, capsule.size["radius"]
    twice = logical_and(capsule.several, touches, select(by_edge, on_rim, on_end))
    return [(select(touches, gap - radius, NEVER), [t]), (select(twice, far - radius, NEVER), [second])]


@dataclass
class _Segment:
    c: Vec
    a: Vec
    h: Scalar
    sizes: Vec


@dataclass
class _End:
    """An end of the segment that is inside the box, or above one of its faces. square: its squared distance.

    above: for each axis, whether the end is above a face across that axis. t: -h or h.
    """

    square: Scalar
    t: Scalar
    above: list[Mask]


def _nearest_end(s: _Segment) -> _End:
    best = _End(NEVER, -s.h, [False] * 3)
    for t in (-s.h, s.h):
        p = add_scaled(s.c, s.a, t)
        beyond = [absolute(x) - size for x, size in zip(p, s.sizes, strict=True)]
        above = [x > 0.0 for x in beyond]
        corner = logical_or(*(logical_and(above[k], above[k - 1]) for k in range(3)))
        out = [maximum(x, 0.0) for x in beyond]
        square = dot(out, out)
        nearer = logical_and(logical_not(corner), square < best.square)
        best = _End(
            select(nearer, square, best.square),
            select(nearer, t, best.t),
            [select(nearer, x, y) for x, y in zip(above, best.above, strict=True)],
        )
    return best


def _along_face(s: _Segment, end: _End) -> tuple[Mask, Scalar]:
    """Return a mask for the second contact, and how far along the axis it is.

    It is where the segment leaves the face, or ends.
    """
    to = select(end.t > 0.0, -1.0, 1.0)
    p = add_scaled(s.c, s.a, end.t)
    way: Scalar = 2.0 * s.h
    for x, a, size, above in zip(p, s.a, s.sizes, end.above, strict=True):
        inverse = 1.0 / _not_zero(a * to)
        for side in (size, -size):
            leave = (side - x) * inverse
            way = select(logical_and(logical_not(above), leave > 0.0), minimum(leave, way), way)
    return logical_or(*end.above), way * to


@dataclass
class _Edge:
    """The edge nearest to the segment, along axis `k`. square: their squared distance.

    t, y: the nearest points. corner: whether the edge's nearest point is one of its ends. upper: for each axis, whether
    the edge, or that end of it, is on the positive side.
    """

    square: Scalar
    t: Scalar
    y: Scalar
    corner: Mask
    upper: list[Mask]
    k: list[Mask]


def _nearest_edge(s: _Segment) -> _Edge:
    best = _Edge(NEVER, 0.0, 0.0, False, [False] * 3, [False] * 3)
    for k in range(3):
        i, j = sorted({0, 1, 2} - {k})
        for jside in (False, True):
            for iside in (False, True):
                at = {i: s.sizes[i] if iside else -s.sizes[i], j: s.sizes[j] if jside else -s.sizes[j]}
                square, t, y, beyond = _to_edge(s, k, at)
                upper = [{i: iside, j: jside}.get(axis, beyond > 0.0) for axis in range(3)]
                found = _Edge(square, t, y, absolute(beyond) > s.sizes[k], upper, [axis == k for axis in range(3)])
                best = _nearer(found, best)
    return best


def _nearer(one: _Edge, two: _Edge) -> _Edge:
    """Choose the first edge where it is nearer, else the second."""
    nearer = one.square < two.square - MINVAL
    return _Edge(
        select(nearer, one.square, two.square),
        select(nearer, one.t, two.t),
        select(nearer, one.y, two.y),
        select(nearer, one.corner, two.corner),
        [select(nearer, x, y) for x, y in zip(one.upper, two.upper, strict=True)],
        [select(nearer, x, y) for x, y in zip(one.k, two.k, strict=True)],
    )


def _to_edge(s: _Segment, k: int, at: dict[int, Scalar]) -> tuple[Scalar, Scalar, Scalar, Scalar]:
    """Return the squared distance of an edge along axis k, the nearest points t and y, and y before it was held.

    Seen along the edge it is a point, and t is where the segment comes nearest to it. If one of the points is held at
    an end, the other one is the nearest to that.
    """
    (i, di), (j, dj) = ((axis, x - s.c[axis]) for axis, x in at.items())
    size, c, a = s.sizes[k], s.c[k], s.a[k]
    across = s.a[i] * s.a[i] + s.a[j] * s.a[j]  # squared sine of the angle between them
    w = s.a[i] * di + s.a[j] * dj
    free = c + a * (w / maximum(across, TINY))
    held = clip(free, -size, size)
    to_held = w + a * (held - c)
    t = clip(to_held, -s.h, s.h)
    moved = absolute(to_held) > s.h
    again = c + a * t
    y = select(moved, clip(again, -size, size), held)
    # once held at an end, it counts as that corner to MuJoCo, even if it has left the end again because t was held
    beyond = select(logical_and(moved, absolute(again) > size), again, free)
    way = [di - s.a[i] * t, dj - s.a[j] * t, y - c - a * t]
    square = select(size * size * s.h * s.h * across < MINVAL, NEVER, dot(way, way))
    return square, t, y, beyond


def _along_edge(s: _Segment, edge: _Edge) -> tuple[Mask, Scalar]:
    """Return a mask for the second contact of a segment along an edge, and how far along the axis it is."""
    lengths = [absolute(a) for a in s.a]
    spans = [2.0 * size / maximum(length, TINY) for size, length in zip(s.sizes, lengths, strict=True)]
    # for each axis, whether the segment leads away from the corner: up if the edge is below, or down if it is above
    rises = [a > 0.0 for a in s.a]
    away = [_differ(up, upper) for up, upper in zip(rises, edge.upper, strict=True)]
    twice: Mask = False
    way: Scalar = 0.0
    for k in range(3):
        i, j = (k + 1) % 3, (k + 2) % 3
        # from a corner: along the edge, or over the face across axis k
        odd = logical_and(_differ(away[k], away[i]), _differ(away[k], away[j]))
        to = select(away[k], 1.0, -1.0)
        on_edge = minimum(s.h - to * edge.t, spans[k])
        on_face = -minimum(minimum(s.h + to * edge.t, spans[i]), spans[j])
        from_corner = to * select(s.a[k] * s.a[k] > 0.5, on_edge, on_face)
        # from within the edge: over the face that the segment is less steep to
        first = lengths[i] > lengths[j]
        inwards = select(first, away[i], away[j])
        sense = select(inwards, 1.0, -1.0)
        left = s.sizes[k] + select(_differ(rises[k], inwards), edge.y, -edge.y)
        from_edge = sense * minimum(
            minimum(s.h - sense * edge.t, select(first, spans[i], spans[j])), left / maximum(lengths[k], TINY)
        )
        crossing = logical_and(edge.k[k], _differ(away[i], away[j]))
        here = select(edge.corner, odd, crossing)
        twice = logical_or(twice, here)
        way = select(here, select(edge.corner, from_corner, from_edge), way)
    return twice, way


def _differ(one: Mask, two: Mask) -> Mask:
    return select(one, logical_not(two), two)


def _not_zero(x: Scalar) -> Scalar:
    return select(absolute(x) < TINY, TINY, x)
