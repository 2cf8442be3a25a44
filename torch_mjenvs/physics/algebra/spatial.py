"""Vectors, quaternions, rotation matrices and 6-D motion and force vectors, over scalars, in MuJoCo's conventions.

Vectors are lists of scalars. 3x3 matrices are lists of 9, row-major. Quaternions are (w, x, y, z). Motion vectors
(`cdof`, `cvel`, `cacc`) and force vectors (`cfrc`) have their angular part first. A `cinert` is the 10-vector
(Ixx, Iyy, Izz, Ixy, Ixz, Iyz, m dx, m dy, m dz, m): a rigid inertia about a point, d from that point to its centre.

Constants stay Python floats, so that a product with a structural 0.0 costs nothing when traced.

a b u v  vectors        A B  3x3 matrices     p q  quaternions
i        cinert         s    scalar           w    weights
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...compiler.scalar import Mask, Scalar, atan2, maximum, select, sqrt

Vec = Sequence[Scalar]

MINVAL = 1e-15  # mjMINVAL
MAXVAL = 1e10  # mjMAXVAL
ROUNDING = 1e-14  # how far from 0 or 1 rounding may take an entry of a rotation
IDENTITY = [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0]


def is_zero(x: Scalar) -> bool:
    """Return whether x is the constant 0.0, and so absent from the traced code."""
    return type(x) is float and x == 0.0


def is_number(*xs: Scalar) -> bool:
    """Return whether all arguments are plain numbers, not parameters that vary from world to world."""
    return all(isinstance(x, float) for x in xs)


def sum_of(values: Iterable[Scalar]) -> Scalar:
    """Return the sum of the scalars, 0.0 if there are none."""
    total: Scalar = 0.0
    for x in values:
        total = total + x
    return total


def zeros(n: int) -> list[Scalar]:
    return [0.0] * n


def add(a: Vec, b: Vec) -> list[Scalar]:
    return [x + y for x, y in zip(a, b, strict=True)]


def sub(a: Vec, b: Vec) -> list[Scalar]:
    return [x - y for x, y in zip(a, b, strict=True)]


def scale(a: Vec, s: Scalar) -> list[Scalar]:
    return [x * s for x in a]


def add_scaled(a: Vec, b: Vec, s: Scalar) -> list[Scalar]:
    """Return a + s b."""
    return [x + y * s for x, y in zip(a, b, strict=True)]


def dot(a: Vec, b: Vec) -> Scalar:
    """Return the inner product of two vectors of at least one entry."""
    pairs = zip(a, b, strict=True)
    x, y = next(pairs)
    total = x * y
    for x, y in pairs:
        total = total + x * y
    return total


def cross(a: Vec, b: Vec) -> list[Scalar]:
    return [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]]


def norm(a: Vec) -> Scalar:
    return sqrt(dot(a, a))


def unit(a: Vec) -> list[Scalar]:
    """Return a / |a|, shorter than 1 where |a| < mjMINVAL."""
    return scale(a, 1.0 / maximum(norm(a), MINVAL))


def normalize(a: Vec, otherwise: Vec) -> list[Scalar]:
    """Return a / |a|, or `otherwise` where |a| < mjMINVAL. mju_normalize3, mju_normalize4."""
    length = norm(a)
    inverse = 1.0 / maximum(length, MINVAL)
    return choose(length < MINVAL, otherwise, scale(a, inverse))


def choose(mask: Mask, a: Vec, b: Vec) -> list[Scalar]:
    """Return the vector a where the mask holds, else b."""
    return [select(mask, x, y) for x, y in zip(a, b, strict=True)]


def transpose(A: Vec) -> list[Scalar]:
    return [A[0], A[3], A[6], A[1], A[4], A[7], A[2], A[5], A[8]]


def column(A: Vec, k: int) -> list[Scalar]:
    return [A[k], A[3 + k], A[6 + k]]


def mat_vec(A: Vec, v: Vec) -> list[Scalar]:
    """Return the product A v of a matrix of 3 rows (9) and a vector (3)."""
    xx, xy, xz, yx, yy, yz, zx, zy, zz = A
    x, y, z = v
    return [xx * x + xy * y + xz * z, yx * x + yy * y + yz * z, zx * x + zy * y + zz * z]


def mat_mul(A: Vec, B: Vec) -> list[Scalar]:
    """Return the product A B of two matrices of 3 rows (9 each)."""
    xx, xy, xz, yx, yy, yz, zx, zy, zz = A
    a, b, c, d, e, f, g, h, i = B
    return [
        xx * a + xy * d + xz * g, xx * b + xy * e + xz * h, xx * c + xy * f + xz * i,
        yx * a + yy * d + yz * g, yx * b + yy * e + yz * h, yx * c + yy * f + yz * i,
        zx * a + zy * d + zz * g, zx * b + zy * e + zz * h, zx * c + zy * f + zz * i,
    ]  # fmt: skip


def mix_columns(A: Vec, i: int, j: int, c: Scalar, s: Scalar) -> list[Scalar]:
    """Return A G, where the plane rotation G takes e_i to c e_i + s e_j."""
    out = list(A)
    for r in (0, 3, 6):
        out[r + i] = A[r + i] * c + A[r + j] * s
        out[r + j] = A[r + j] * c - A[r + i] * s
    return out


def rotate(A: Vec, k: int, c: Scalar, s: Scalar) -> list[Scalar]:
    """Return A times the rotation about the k-th axis by the angle with cosine c and sine s."""
    return mix_columns(A, (k + 1) % 3, (k + 2) % 3, c, s)


def axis_angle(a: Vec, c: Scalar, s: Scalar) -> list[Scalar]:
    """Return the rotation matrix about the unit vector a by the angle with cosine c and sine s."""
    x, y, z = scale(a, 1.0 - c)
    return [
        c + x * a[0], x * a[1] - s * a[2], x * a[2] + s * a[1],
        y * a[0] + s * a[2], c + y * a[1], y * a[2] - s * a[0],
        z * a[0] - s * a[1], z * a[1] + s * a[0], c + z * a[2],
    ]  # fmt: skip


# quaternions


def quat_mul(p: Vec, q: Vec) -> list[Scalar]:
    """Return the product of two quaternions. mju_mulQuat."""
    return [
        p[0] * q[0] - p[1] * q[1] - p[2] * q[2] - p[3] * q[3],
        p[0] * q[1] + p[1] * q[0] + p[2] * q[3] - p[3] * q[2],
        p[0] * q[2] - p[1] * q[3] + p[2] * q[0] + p[3] * q[1],
        p[0] * q[3] + p[1] * q[2] - p[2] * q[1] + p[3] * q[0],
    ]


def quat_conjugate(q: Vec) -> list[Scalar]:
    return [q[0], -q[1], -q[2], -q[3]]


def quat_directions(q: Vec) -> list[list[Scalar]]:
    """Return q times each of the imaginary units (3 x 4): the directions in which a rotation can change."""
    w, x, y, z = q
    return [[-x, w, z, -y], [-y, -z, w, x], [-z, y, -x, w]]


def quat_normalize(q: Vec) -> list[Scalar]:
    """Return q / |q|, or the identity where q is 0. mju_normalize4."""
    return normalize(q, [1.0, 0.0, 0.0, 0.0])


def quat_to_mat(q: Vec) -> list[Scalar]:
    """Return the rotation matrix of q / |q|, or the identity where q is 0. mju_quat2Mat.

    It neither takes a root of q nor divides q itself.
    """
    w, x, y, z = q
    square = dot(q, q)
    s = select(square < MINVAL**2, 0.0, 2.0 / maximum(square, MINVAL**2))
    x2, y2, z2 = x * s, y * s, z * s
    xx, yy, zz = x * x2, y * y2, z * z2
    xy, xz, yz = x * y2, x * z2, y * z2
    wx, wy, wz = w * x2, w * y2, w * z2
    return [
        1.0 - (yy + zz), xy - wz, xz + wy,
        xy + wz, 1.0 - (xx + zz), yz - wx,
        xz - wy, yz + wx, 1.0 - (xx + yy),
    ]  # fmt: skip


def quat_sub(p: Vec, q: Vec) -> list[Scalar]:
    """Return the rotation vector that takes q to p, in the frame of q. mju_subQuat.

    Its length is the angle in radians, in (-pi, pi].
    """
    d = quat_mul(quat_conjugate(q), p)
    d = choose(d[0] < 0.0, scale(d, -1.0), d)  # -d is the same rotation, by the angle below pi
    s = norm(d[1:])
    angle = 2.0 * atan2(s, d[0])
    return scale(d[1:], select(s < MINVAL, 2.0, angle / maximum(s, MINVAL)))


# constant rotations


def rotation(quat: Vec) -> tuple[Scalar, ...]:
    """Return the rotation matrix of a quaternion, without rounding noise, which would keep planar models unfolded."""
    return snap(quat_to_mat(snap(quat)))


def frame_mul(a: Vec, b: Vec) -> tuple[Scalar, ...]:
    """Return the product of two constant rotation matrices, without rounding noise."""
    return snap(mat_mul(a, b))


def snap(xs: Vec) -> tuple[Scalar, ...]:
    """Make exact the entries of a unit vector or a rotation that differ from 0 or 1 by rounding only."""
    return tuple([_snap(x) for x in xs])


def _snap(x: Scalar) -> Scalar:
    if isinstance(x, float):
        for c in (0.0, 1.0, -1.0):
            if abs(x - c) < ROUNDING:
                return c
    return x


# 6-D motion and force vectors


def cross_motion(v: Vec, s: Vec) -> list[Scalar]:
    """Return the cross product v x s of two motion vectors. mju_crossMotion."""
    return cross(v[:3], s[:3]) + add(cross(v[:3], s[3:]), cross(v[3:], s[:3]))


def cross_force(v: Vec, f: Vec) -> list[Scalar]:
    """Return the cross product v x* f of a motion vector and a force vector. mju_crossForce."""
    return add(cross(v[:3], f[:3]), cross(v[3:], f[3:])) + cross(v[:3], f[3:])


def about(v: Vec, p: Vec) -> list[Scalar]:
    """Return the motion vector v about the point p, which is measured from its present reference point."""
    return list(v[:3]) + add(v[3:], cross(v[:3], p))


def inert_com(rotational: Vec, offset: Vec, mass: Scalar) -> list[Scalar]:
    """Return the cinert of a mass at `offset` with inertia (xx, yy, zz, xy, xz, yz) about its centre. mju_inertCom."""
    x, y, z = offset
    mx, my, mz = scale(offset, mass)
    xx, yy, zz = mx * x, my * y, mz * z
    return [
        rotational[0] + (yy + zz), rotational[1] + (xx + zz), rotational[2] + (xx + yy),
        rotational[3] - mx * y, rotational[4] - mx * z, rotational[5] - my * z,
        mx, my, mz, mass,
    ]  # fmt: skip


def sym_turned(A: Vec, i: Vec) -> list[Scalar]:
    """Return A S A^T for the symmetric matrix S = (xx, yy, zz, xy, xz, yz), in the same form."""
    rows = [sym_vec(i, A[3 * r : 3 * r + 3]) for r in range(3)]  # of A S
    return [dot(rows[r], A[3 * c : 3 * c + 3]) for r, c in ((0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2))]


def sym_vec(i: Vec, v: Vec) -> list[Scalar]:
    """Return the product of the symmetric matrix (xx, yy, zz, xy, xz, yz) and the vector v."""
    return [
        i[0] * v[0] + i[3] * v[1] + i[4] * v[2],
        i[3] * v[0] + i[1] * v[1] + i[5] * v[2],
        i[4] * v[0] + i[5] * v[1] + i[2] * v[2],
    ]


def mul_inert_vec(i: Vec, v: Vec) -> list[Scalar]:
    """Return the force vector (6) that is a cinert times a motion vector. mju_mulInertVec."""
    md = i[6:9]
    return add(sym_vec(i, v[:3]), cross(md, v[3:])) + add(scale(v[3:], i[9]), cross(v[:3], md))
