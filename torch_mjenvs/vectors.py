"""Vectors and quaternions for tasks, as lists of scalars.

    from torch_mjenvs.vectors import rotate_inverse, yaw

    up = rotate_inverse(world.qpos[3:7], [0.0, 0.0, 1.0])  # the world's z axis as the trunk sees it

A vector is a list of numbers, of any length unless a docstring says otherwise. A quaternion is (w, x, y, z), like
MuJoCo's, of unit length unless a docstring says otherwise, and turns a body's axes into the world's. Angles are in
radians.

The functions work on Python floats, torch tensors (B,) and values of a kernel alike, as those of `torch_mjenvs.scalar`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .physics.algebra import spatial
from .physics.algebra.spatial import quat_conjugate, quat_mul
from .scalar import Scalar, atan2, cos, round, sin

__all__ = [
    "add",
    "cross",
    "difference",
    "dot",
    "from_axis_angle",
    "from_euler",
    "inverse",
    "multiply",
    "norm",
    "normalize",
    "rotate",
    "rotate_inverse",
    "scale",
    "slerp",
    "solve",
    "sub",
    "to_euler",
    "wrap_to_pi",
    "yaw",
]

Vector = Sequence[Scalar]  # of any length
Quaternion = Sequence[Scalar]  # four numbers, w first

TURN = 6.283185307179586  # 2 pi


def add(a: Vector, b: Vector) -> list[Scalar]:
    """Return a + b. Raises ValueError for vectors of different lengths."""
    return spatial.add(a, b)


def sub(a: Vector, b: Vector) -> list[Scalar]:
    """Return a - b. Raises ValueError for vectors of different lengths."""
    return spatial.sub(a, b)


def scale(a: Vector, s: Scalar) -> list[Scalar]:
    """Return the vector a times the number s."""
    return spatial.scale(a, s)


def dot(a: Vector, b: Vector) -> Scalar:
    """Return the inner product of a and b. Raises ValueError for vectors of different lengths."""
    return spatial.dot(a, b)


def cross(a: Vector, b: Vector) -> list[Scalar]:
    """Return the cross product of two vectors of length 3."""
    return spatial.cross(a, b)


def norm(a: Vector) -> Scalar:
    """Return the Euclidean length of a."""
    return spatial.norm(a)


def normalize(a: Vector) -> list[Scalar]:
    """Return a / |a|, or (1, 0, ...) where |a| < 1e-15, as mju_normalize3 and mju_normalize4 do."""
    return spatial.normalize(a, [1.0] + [0.0] * (len(a) - 1))


def solve(a: Sequence[Vector], b: Sequence[Any]) -> list[Any]:
    """Return x with a x = b, for a symmetric and positive definite matrix such as `world.data.M`, as a list of rows.

    b is a vector, or a matrix as a list of rows, such as the transpose of a Jacobian; so is x. Only the lower triangle
    of the matrix is read. The code is written out: some tens of rows are the most that is sensible.

    Raises ValueError for a matrix that is not square, or not as long as b.
    """
    n = len(a)
    if any(len(row) != n for row in a) or len(b) != n:
        raise ValueError(f"the matrix has rows of {[len(row) for row in a]} for {n} rows, and b is of {len(b)}")
    matrix = n > 0 and isinstance(b[0], Sequence)
    lower: list[list[Scalar]] = []  # a = L D L', by Cholesky
    pivots: list[Scalar] = []
    for i in range(n):
        row: list[Scalar] = []  # L D
        for j in range(i):
            row.append(a[i][j] - spatial.sum_of(row[k] * lower[j][k] for k in range(j)))
        lower.append([x / d for x, d in zip(row, pivots, strict=True)])
        pivots.append(a[i][i] - spatial.sum_of(x * y for x, y in zip(row, lower[i], strict=True)))

    def solved(column: Sequence[Scalar]) -> list[Scalar]:
        x: list[Scalar] = []
        for i in range(n):
            x.append(column[i] - spatial.sum_of(lower[i][k] * x[k] for k in range(i)))
        x = [y / d for y, d in zip(x, pivots, strict=True)]
        for i in reversed(range(n)):
            x[i] = x[i] - spatial.sum_of(lower[k][i] * x[k] for k in range(i + 1, n))
        return x

    if not matrix:
        return solved(b)
    return [list(row) for row in zip(*(solved(column) for column in zip(*b, strict=True)), strict=True)]


def multiply(p: Quaternion, q: Quaternion) -> list[Scalar]:
    """Return the product of two quaternions: the rotation q, then p. mju_mulQuat."""
    return quat_mul(p, q)


def inverse(q: Quaternion) -> list[Scalar]:
    """Return the quaternion that turns back what q turns. mju_negQuat."""
    return quat_conjugate(q)


def rotate(q: Quaternion, v: Vector) -> list[Scalar]:
    """Turn a vector of length 3 by q: from a body's axes to the world's. mju_rotVecQuat."""
    w, u = q[0], q[1:]
    twice = scale(cross(u, v), 2.0)
    return add(v, add(scale(twice, w), cross(u, twice)))


def rotate_inverse(q: Quaternion, v: Vector) -> list[Scalar]:
    """Turn a vector of length 3 back by q: from the world's axes to a body's."""
    return rotate(inverse(q), v)


def difference(p: Quaternion, q: Quaternion) -> list[Scalar]:
    """Return the turn that takes q to p, in the axes of q: its axis times its angle, at most pi. mju_subQuat.

    `norm(difference(p, q))` is how far an orientation is from another.
    """
    return spatial.quat_sub(p, q)


def slerp(p: Quaternion, q: Quaternion, t: Scalar) -> list[Scalar]:
    """Return the rotation on the shortest way from p to q, at the part t of it: p at 0, q or -q at 1."""
    turn = difference(q, p)
    return multiply(p, from_axis_angle(normalize(turn), t * norm(turn)))


def from_axis_angle(axis: Vector, angle: Scalar) -> list[Scalar]:
    """Return the rotation about an axis of unit length by an angle. mju_axisAngle2Quat."""
    return [cos(0.5 * angle), *scale(axis, sin(0.5 * angle))]


def from_euler(roll: Scalar, pitch: Scalar, yaw: Scalar) -> list[Scalar]:
    """Return the rotation about the world's x axis by `roll`, then y by `pitch`, then z by `yaw`.

    It is mju_euler2Quat with the sequence "XYZ".
    """
    (a, x), (b, y), (c, z) = ((cos(0.5 * angle), sin(0.5 * angle)) for angle in (roll, pitch, yaw))
    return multiply([c, 0.0, 0.0, z], multiply([b, 0.0, y, 0.0], [a, x, 0.0, 0.0]))


def to_euler(q: Quaternion) -> list[Scalar]:
    """Return roll, pitch and yaw, from which `from_euler` makes q or -q again; q may be of any length but 0.

    Roll and yaw are in [-pi, pi], pitch in [-pi/2, pi/2]. At either end of that only a sum of roll and yaw is
    determined: they are then one such pair.
    """
    w, x, y, z = q
    ww, xx, yy, zz = w * w, x * x, y * y, z * z
    seen_from_above = [ww + xx - yy - zz, 2.0 * (x * y + w * z)]  # the body's x axis
    c, s = spatial.normalize(seen_from_above, [1.0, 0.0])
    # Roll is that of the rotation that remains without the yaw, whichever yaw was taken where the x axis points up.
    sin_roll = s * (2.0 * (x * z + w * y)) - c * (2.0 * (y * z - w * x))
    cos_roll = c * (ww - xx + yy - zz) - s * (2.0 * (x * y - w * z))
    return [atan2(sin_roll, cos_roll), atan2(2.0 * (w * y - x * z), norm(seen_from_above)), atan2(s, c)]


def yaw(q: Quaternion) -> Scalar:
    """Return the heading of a body's x axis about the world's z axis, in [-pi, pi]; q may be of any length but 0."""
    w, x, y, z = q
    return atan2(2.0 * (w * z + x * y), w * w + x * x - y * y - z * z)


def wrap_to_pi(angle: Scalar) -> Scalar:
    """Return the same angle in [-pi, pi], as differences of headings need it."""
    return angle - TURN * round(angle * (1.0 / TURN))
