"""Colliders of a sphere and a box or a cylinder: MuJoCo's mjc_SphereBox and mjc_SphereCylinder.

`find` and `place` are explained in `colliders`. The normal n is the direction of the shortest way from the sphere's
centre to the other shape, whose surface is `gap` away. Inside of the shape n leads on inwards, and the gap is negative.

c the sphere's centre from that of the other shape
"""

from __future__ import annotations

from ....compiler.scalar import (
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
from ...algebra.spatial import (
    MINVAL,
    Vec,
    add,
    add_scaled,
    choose,
    cross,
    dot,
    is_zero,
    mat_vec,
    norm,
    normalize,
    scale,
    sub,
    transpose,
)
from ..colliders import Found, Geom, Place, make_frame

# a sphere, or a point of a capsule's segment, and a box


def find_sphere_box(sphere: Geom, box: Geom) -> Found:
    """Find the distance of a sphere from a box: mjc_SphereBox."""
    gap, _ = into_box(seen_by(box, sphere.centre), sizes_of(box))
    return [(gap - sphere.size["radius"], [0.0])]


def place_ball_box(ball: Geom, box: Geom, spot: list[Scalar]) -> Place:
    """Place the contact half way between the surfaces, along n, where the ball's centre is at the spot on its axis."""
    centre = ball.centre if is_zero(spot[0]) else add_scaled(ball.centre, ball.axis, spot[0])
    gap, n = into_box(seen_by(box, centre), sizes_of(box))
    return _place(ball, centre, gap, mat_vec(box.mat, n))


def sizes_of(box: Geom) -> list[Scalar]:
    """Return half the lengths of a box's edges (3)."""
    return [box.size[k] for k in ("x", "y", "z")]


def seen_by(geom: Geom, p: Vec) -> list[Scalar]:
    """Return the point p as seen from the geom's centre, in its axes (3)."""
    return mat_vec(transpose(geom.mat), sub(p, geom.centre))


def into_box(c: Vec, sizes: Vec) -> tuple[Scalar, list[Scalar]]:
    """Return the gap and n from a point c into a box, in the box's axes."""
    way = sub([clip(x, -size, size) for x, size in zip(c, sizes, strict=True)], c)
    gap = norm(way)
    outside = gap > MINVAL
    depth: Scalar = absolute(-sizes[0] - c[0])
    inwards: list[Scalar] = [1.0, 0.0, 0.0]
    for k, side in ((0, 1.0), (1, -1.0), (1, 1.0), (2, -1.0), (2, 1.0)):
        away = absolute(side * sizes[k] - c[k])
        inwards = choose(away < depth, [-side if j == k else 0.0 for j in range(3)], inwards)
        depth = select(away < depth, away, depth)
    return select(outside, gap, -depth), choose(outside, scale(way, 1.0 / maximum(gap, MINVAL)), inwards)


# a sphere and a cylinder


def find_sphere_cylinder(sphere: Geom, cylinder: Geom) -> Found:
    """Find the distance of a sphere from a cylinder: mjc_SphereCylinder."""
    gap, n = _into_cylinder(sphere, cylinder)
    return [(gap - sphere.size["radius"], [gap, *n])]


def place_ball(sphere: Geom, other: Geom, spot: list[Scalar]) -> Place:
    """Place the contact half way between the surfaces, along the n that is in the spot."""
    return _place(sphere, sphere.centre, spot[0], spot[1:])


def _into_cylinder(sphere: Geom, cylinder: Geom) -> tuple[Scalar, list[Scalar]]:
    """Return the gap and n from the sphere's centre into a cylinder: to its side, a disc or a rim."""
    c, radius, half = sub(sphere.centre, cylinder.centre), cylinder.size["radius"], cylinder.size["half"]
    x = dot(cylinder.axis, c)
    out = add_scaled(c, cylinder.axis, -x)  # from the axis
    off = norm(out)
    beside, above = off - radius, absolute(x) - half  # how far out of the cylinder, and beyond its end
    level, over = above < 0.0, dot(out, out) < radius * radius
    side = logical_and(level, logical_or(logical_not(over), beside >= above))
    disc = logical_and(over, logical_not(side))
    rim = sqrt(beside * beside + above * above)
    gap = select(side, beside, select(disc, above, rim))
    inverse = 1.0 / maximum(rim, MINVAL)
    outwards = select(side, 1.0, select(disc, 0.0, beside * inverse))
    upwards = select(side, 0.0, select(disc, 1.0, above * inverse))
    up = select(x > 0.0, upwards, -upwards)
    n = scale(add(scale(out, outwards / maximum(off, MINVAL)), scale(cylinder.axis, up)), -1.0)
    nowhere = select(side, off < MINVAL, logical_and(logical_not(disc), rim < MINVAL))
    return gap, choose(nowhere, normalize(cross(sphere.axis, cylinder.axis), [1.0, 0.0, 0.0]), n)


def _place(ball: Geom, centre: Vec, gap: Scalar, n: Vec) -> Place:
    radius = ball.size["radius"]
    return gap - radius, add_scaled(centre, n, 0.5 * (gap + radius)), make_frame(n, None)
