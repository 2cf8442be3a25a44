"""Finds where two boxes touch, by separating axes and by clipping a face by another: mjc_BoxBox.

There are 15 axes along which two boxes can be apart: the normals of faces, and those at right angles to an edge of each
box. The axis along which the boxes overlap least decides. If it belongs to a face, the other box's face that looks at
it is cut off at the sides of this one: each corner that is left is a contact, up to 8. If it belongs to two edges, they
touch once, where they are nearest.

A polygon is a ring of places, the same number in every world, each with a mask of the worlds in which it is a corner.

i, j axes of the first and the second box   R the second's axes seen from the first (rows: the first's)   h half sizes
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ....compiler.arrays import Table
from ....compiler.control import choose_all, repeat, unrolled, when_any
from ....compiler.implicit import for_adjoints, held, straightened
from ....compiler.scalar import (
    Mask,
    Scalar,
    absolute,
    clip,
    logical_and,
    logical_not,
    logical_or,
    maximum,
    select,
    sqrt,
)
from ...algebra.spatial import MAXVAL, MINVAL, Vec, add, add_scaled, choose, column, dot, scale, sub, unit, zeros
from ..colliders import NEVER, Found, Geom, Place, make_frame

MOST = 8  # corners of a parallelogram cut off at four sides
SPOT = 7  # dist, point, normal

ROUNDING = 1e-13  # of the sizes' sum: boxes that are apart by less may touch
PARALLEL = 1e-16  # squared sine of the angle below which two edges have no common normal
SIGNLESS = 1e-9  # component of an edges' normal below which either of two edges may be the one
BIAS = 1e-6  # by which share two edges must be further apart than faces
LIKE_A_FACE = 0.99  # cosine from which on two edges' normal is that of the face,
BETTER = 0.05  # unless the edges overlap less by this share
SAME = 1e-14  # squared distance of corners that are one, by the squared size of the face

Rows = list[list[Scalar]]
Ring = list[tuple[Mask, list[Scalar]]]  # whether it is a corner, and x and y


def find_boxes(one: Geom, two: Geom) -> Found:
    """Find up to 8 contacts of two boxes: mjc_BoxBox. A spot is dist, point, normal; for adjoints, also which it is."""
    spots = _find(one, two, when_any)

    def numbered(k: int, spot: list[Scalar]) -> list[Scalar]:
        return [*spot, *for_adjoints(lambda: [float(k)])]

    return [(spot[0], numbered(k, spot)) for k, spot in enumerate(spots)]


def _find(one: Geom, two: Geom, where: Callable[..., Any]) -> list[list[Scalar]]:
    """Find the spots of all contacts. where: `when_any`, or what does the same without a block."""
    (axes1, h1), (axes2, h2) = _axes(one), _axes(two)
    apart = sub(two.centre, one.centre)
    R = [[dot(a, b) for b in axes2] for a in axes1]
    p, q = [dot(a, apart) for a in axes1], [-dot(b, apart) for b in axes2]  # where each sees the other
    slack = one.margin + (sum(h1) + sum(h2)) * ROUNDING

    face, overlap = _best_face(R, p, q, h1, h2)
    edges, i, j, furthest = _best_edges(R, p, h1, h2, face, overlap)
    touch = maximum(overlap, furthest) <= slack
    nothing = [[NEVER, *zeros(SPOT - 1)] for _ in range(MOST)]

    def clipped(_: Any) -> list[list[Scalar]]:
        return _faces(one, two, R, p, q, face)

    def crossing(carry: list[list[Scalar]]) -> list[list[Scalar]]:
        return [_edges(one, two, R, p, i, j, slack), *carry[1:]]

    spots: list[list[Scalar]] = where(logical_and(touch, logical_not(edges)), clipped, nothing)
    spots[0] = where(logical_and(touch, edges), crossing, spots)[0]
    return spots


def _axes(box: Geom) -> tuple[list[Vec], list[Scalar]]:
    return [column(box.mat, k) for k in range(3)], [box.size[k] for k in "xyz"]


def place_boxes(one: Geom, two: Geom, spot: list[Scalar]) -> Place:
    """Read the contact that `find_boxes` left in its spot.

    Its adjoints come from finding it again, without blocks and loops.
    """

    def again() -> list[Scalar]:
        with unrolled():
            spots = _find(one, two, lambda mask, body, carry: choose_all(mask, body(carry), carry))
        out, k = spots[0], held(select(spot[0] < NEVER, spot[SPOT], 0.0))
        for n, other in enumerate(spots[1:], 1):
            out = choose(k > n - 0.5, other, out)
        return out

    def given() -> list[Scalar]:
        return [x for box in (one, two) for x in (*box.centre, *box.mat, *(box.size[k] for k in "xyz"))]

    found = straightened(spot[:SPOT], given, again)
    return found[0], found[1:4], make_frame(found[4:], None)


def _best_face(R: Rows, p: Vec, q: Vec, h1: Vec, h2: Vec) -> tuple[Scalar, Scalar]:
    """Find the face along whose normal the boxes overlap least, and minus that overlap.

    Faces 0 to 2 are the first box's, 3 to 5 the second's.
    """
    seps = [absolute(p[i]) - h1[i] - dot([absolute(x) for x in R[i]], h2) for i in range(3)]
    seps += [absolute(q[j]) - h2[j] - dot([absolute(row[j]) for row in R], h1) for j in range(3)]
    face: Scalar = 0.0
    best = seps[0]
    for k, sep in enumerate(seps[1:], 1):
        better = sep > best
        face, best = select(better, float(k), face), select(better, sep, best)
    return face, best


def _best_edges(
    R: Rows, p: Vec, h1: Vec, h2: Vec, face: Scalar, overlap: Scalar
) -> tuple[Mask, Scalar, Scalar, Scalar]:
    """Find the two edges that are furthest apart.

    Return a mask of the worlds where they are further apart than the faces; their axes; how far apart any two edges are
    at most.
    """
    axis_i: Scalar
    axis_j: Scalar
    like: Scalar
    furthest: Scalar
    best, axis_i, axis_j, like, furthest = overlap, 0.0, 0.0, 0.0, -MAXVAL
    won: Mask = False
    for i in range(3):
        for j in range(3):
            (n1, n2), there = _normal_of_edges(R, i, j)
            i1, i2, j1, j2 = (i + 1) % 3, (i + 2) % 3, (j + 1) % 3, (j + 2) % 3
            radius = h1[i1] * absolute(n1) + h1[i2] * absolute(n2)
            across = [n1 * R[i1][k] + n2 * R[i2][k] for k in range(3)]
            radius = radius + h2[j1] * absolute(across[j1]) + h2[j2] * absolute(across[j2])
            sep = select(there, absolute(n1 * p[i1] + n2 * p[i2]) - radius, -MAXVAL)
            better = logical_and(sep - absolute(sep) * BIAS > best, sep > overlap)
            along = zeros(6)  # the cosine between this normal and those of the faces
            along[i1], along[i2] = absolute(n1), absolute(n2)
            along[3 + j1], along[3 + j2] = absolute(across[j1]), absolute(across[j2])
            like = select(better, _entry(along, face), like)
            axis_i, axis_j = select(better, float(i), axis_i), select(better, float(j), axis_j)
            best, furthest = select(better, sep, best), maximum(furthest, sep)
            won = logical_or(won, better)
    better_face = logical_and(like > LIKE_A_FACE, best < overlap + absolute(overlap) * BETTER + MINVAL)
    return logical_and(won, logical_not(better_face)), axis_i, axis_j, furthest


def _normal_of_edges(R: Rows, i: int, j: int) -> tuple[list[Scalar], Mask]:
    """Return the unit normal of the first box's axis i and the second's j, without its component along i, which is 0.

    Then a mask of the worlds where there is one.
    """
    n = [-R[(i + 2) % 3][j], R[(i + 1) % 3][j]]
    square = dot(n, n)
    return scale(n, 1.0 / sqrt(maximum(square, PARALLEL))), square >= PARALLEL


def _entry(table: Vec, k: Scalar) -> Scalar:
    """Return the entry table[k] for a k that is a scalar."""
    out = table[-1]
    for n in range(len(table) - 2, -1, -1):
        out = select(k < n + 0.5, table[n], out)
    return out


def _turned(x: Sequence[Any], k: Scalar) -> list[Any]:
    """Rotate three scalars, or lists of them, to x[k], x[k + 1], x[k + 2], indices modulo 3."""
    rows = [v if isinstance(v, (list, tuple)) else [v] for v in x]
    out = [[_entry([rows[(n + r) % 3][c] for n in range(3)], k) for c in range(len(rows[0]))] for r in range(3)]
    return [row if isinstance(v, (list, tuple)) else row[0] for row, v in zip(out, x, strict=True)]


# two edges


def _edges(one: Geom, two: Geom, R: Rows, p: Vec, i: Scalar, j: Scalar, slack: Scalar) -> list[Scalar]:
    """Find the spot where two edges are nearest. Axes are taken in such an order that the edges are along the first."""
    (axes, h1), (_, h2) = _axes(one), _axes(two)
    axes = _turned(axes, i)
    R = [_turned(row, j) for row in _turned(R, i)]
    p, h1, h2 = _turned(p, i), _turned(h1, i), _turned(h2, j)
    n = [0.0, -R[2][0], R[1][0]]
    n = unit(n)
    n = choose(dot(n, p) < 0.0, scale(n, -1.0), n)
    m = [dot(n, [row[c] for row in R]) for c in range(3)]  # as the second box sees it
    along = [row[0] for row in R]
    b = along[0]
    share = maximum(1.0 - b * b, MINVAL)
    corner1 = [select(n[k] >= 0.0, h1[k], -h1[k]) for k in (1, 2)]
    corner2 = [select(m[k] >= 0.0, -h2[k], h2[k]) for k in (1, 2)]
    doubt1, doubt2 = _doubtful(n), _doubtful(m)

    def attempt(k: Any, carry: list[Scalar]) -> list[Scalar]:
        """Try the other edge of either box where it is in doubt which one is meant."""
        flip1, flip2 = Table([0.0, 0.0, 1.0, 1.0])[k] > 0.5, Table([0.0, 1.0, 0.0, 1.0])[k] > 0.5
        c1 = [0.0, *(select(logical_and(flip1, d), -x, x) for d, x in zip(doubt1, corner1, strict=True))]
        cc = [select(logical_and(flip2, d), -x, x) for d, x in zip(doubt2, corner2, strict=True)]
        c2 = [x + row[1] * cc[0] + row[2] * cc[1] for x, row in zip(p, R, strict=True)]
        e = sub(c2, c1)
        d2e = dot(along, e)
        s = clip((e[0] - b * d2e) / share, -h1[0], h1[0])
        t = clip(b * s - d2e, -h2[0], h2[0])
        s = clip(e[0] + b * t, -h1[0], h1[0])
        w1, w2 = [s, *c1[1:]], add_scaled(c2, along, t)
        gap = sub(w2, w1)
        nearer = dot(gap, gap) < carry[0]
        return [select(nearer, x, old) for x, old in zip([dot(gap, gap), *w1, *w2], carry, strict=True)]

    nearest = repeat(4, attempt, [1e20, *zeros(6)])
    w1, w2 = nearest[1:4], nearest[4:]
    dist = dot(sub(w2, w1), n)
    middle = scale(add(w1, w2), 0.5)
    return [select(dist <= slack, dist, NEVER), *add(one.centre, _world(axes, middle)), *_world(axes, n)]


def _doubtful(n: Vec) -> list[Mask]:
    """Return masks of the worlds where n's second component is next to 0 or, if that is not, its third."""
    first = absolute(n[1]) < SIGNLESS
    return [first, logical_and(absolute(n[2]) < SIGNLESS, logical_not(first))]


def _world(axes: Sequence[Vec], x: Vec) -> list[Scalar]:
    return add(add(scale(axes[0], x[0]), scale(axes[1], x[1])), scale(axes[2], x[2]))


# a face, and the other box's that looks at it


def _faces(one: Geom, two: Geom, R: Rows, p: Vec, q: Vec, face: Scalar) -> list[list[Scalar]]:
    """Find the spots of a face's corners, cut off at another's sides.

    Here x and y are in the face, z is how far a point is above it.
    """
    (axes1, h1), (axes2, h2) = _axes(one), _axes(two)
    first = face < 2.5
    k = select(first, face, face - 3.0)
    seen = [choose(first, row, [R[r][c] for r in range(3)]) for c, row in enumerate(R)]  # of the other's axes
    size, other = _turned(choose(first, h1, h2), k), choose(first, h2, h1)
    where = _turned(choose(first, p, q), k)
    axes = _turned([choose(first, a, b) for a, b in zip(axes1, axes2, strict=True)], k)
    centre = choose(first, one.centre, two.centre)
    seen = _turned(seen, k)
    up = select(where[0] >= 0.0, 1.0, -1.0)

    steep = [absolute(x) for x in seen[0]]
    second = steep[1] > steep[0]
    which = select(steep[2] > select(second, steep[1], steep[0]), 2.0, select(second, 1.0, 0.0))
    seen, other = [_turned(row, which) for row in seen], _turned(other, which)
    side = select(up * seen[0][0] > 0.0, -1.0, 1.0)
    middle = [x + other[0] * row[0] * side for x, row in zip(where, seen, strict=True)]
    height = up * middle[0] - size[0]
    u, v = ([other[c] * row[c] for row in seen[1:]] for c in (1, 2))
    slope = [seen[1][0] / (up * seen[0][0]), seen[2][0] / (up * seen[0][0])]

    corners = [add(add_scaled(middle[1:], u, su), scale(v, sv)) for su, sv in ((1, 1), (-1, 1), (-1, -1), (1, -1))]
    ring = _cut_off([(True, corner) for corner in corners], 0, size[1])
    kept = _gathered(_cut_off(_closed(ring), 1, size[2]), MOST)
    same = (size[1] * size[1] + size[2] * size[2]) * SAME
    normal = scale(axes[0], up)
    outward = choose(first, normal, scale(normal, -1.0))
    spots: list[list[Scalar]] = []
    accepted: list[tuple[Mask, list[Scalar]]] = []
    for there, at in kept:
        z = height - dot(slope, sub(at, middle[1:]))
        again = logical_or(*(logical_and(before, _apart(at, x) < same) for before, x in accepted))
        taken = logical_and(there, z <= one.margin, logical_not(again))
        accepted.append((taken, at))
        point = add(centre, _world([normal, *axes[1:]], [size[0] + z * 0.5, *at]))
        spots.append([select(taken, z, NEVER), *point, *outward])
    return spots


def _cut_off(ring: Ring, axis: int, limit: Scalar) -> Ring:
    """Cut a polygon off at |x| = limit, or |y|. Each side may give two corners: where it comes in, or begins inside,
    and where it leaves.
    """
    out: Ring = []
    above = [at[axis] - limit for _, at in ring]
    below = [-at[axis] - limit for _, at in ring]
    for k, (there, a) in enumerate(ring):
        n = (k + 1) % len(ring)
        b = ring[n][1]
        enters_above = logical_and(above[k] > 0.0, above[n] < 0.0)
        enters_below = logical_and(below[k] > 0.0, below[n] < 0.0)
        leaves_above = logical_and(above[n] > 0.0, above[k] < 0.0)
        leaves_below = logical_and(below[n] > 0.0, below[k] < 0.0)
        inside = logical_and(there, above[k] <= 0.0, below[k] <= 0.0)
        way = sub(b, a)
        crosses = logical_or(enters_above, enters_below, leaves_above, leaves_below)
        length = select(crosses, way[axis], 1.0)

        def part(end: Scalar, a: list[Scalar] = a, way: list[Scalar] = way, length: Scalar = length) -> list[Scalar]:
            return add_scaled(a, way, (end - a[axis]) / length)

        enters = logical_or(enters_above, enters_below)
        out.append((logical_or(inside, enters), choose(enters, part(select(enters_above, limit, -limit)), a)))
        out.append((logical_or(leaves_above, leaves_below), part(select(leaves_above, limit, -limit))))
    return out


def _closed(ring: Ring) -> Ring:
    """Move each place that is no corner to the next corner, so that sides lead from corner to corner."""
    at = ring[0][1]
    for there, x in reversed(ring):
        at = choose(there, x, at)
    out: Ring = []
    for there, x in reversed(ring):
        at = choose(there, x, at)
        out.append((there, at))
    return out[::-1]


def _gathered(ring: Ring, most: int) -> Ring:
    """Gather the corners: the first place has the first of them, and so on."""
    out: Ring = [(False, ring[0][1]) for _ in range(most)]
    turn: list[Mask] = [k == 0 for k in range(most)]  # whose turn it is
    for k, (there, x) in enumerate(ring):
        here = [logical_and(there, mine) for mine in turn]
        last = min(k, most - 1)
        out = [
            (logical_or(was, mine), choose(mine, x, old)) if n <= last else (was, old)
            for n, ((was, old), mine) in enumerate(zip(out, here, strict=True))
        ]
        before = [False, *turn[:-1]]
        turn = [
            logical_or(logical_and(there, b), logical_and(logical_not(there), mine))
            for b, mine in zip(before, turn, strict=True)
        ]
    return out


def _apart(a: Vec, b: Vec) -> Scalar:
    """Return the squared distance of two points."""
    return dot(sub(a, b), sub(a, b))
