"""Centres of mass, inertias and the joint-space inertia matrix: mj_comPos, mj_crb, mj_factorM, mj_solveM, mj_mulM.

MuJoCo expresses motion, inertia and force about subtree_com of the root body. M and the bias forces do not depend on
that point, and about the tree's moving origin (see `kinematics`) they take the fewest operations and no centre of mass.
Quantities about the origin have an `o` in their name for MuJoCo's `c`; these are the ones that later stages use.

i j k rows and columns
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence

import numpy as np

from ...compiler.scalar import Scalar, maximum, rounded
from ...compiler.tiles import TileFactor, TileMatrix, large
from ..algebra.sparse import Row
from ..algebra.spatial import (
    IDENTITY,
    MAXVAL,
    MINVAL,
    Vec,
    about,
    add,
    add_scaled,
    choose,
    column,
    cross,
    dot,
    frame_mul,
    inert_com,
    is_number,
    is_zero,
    mat_vec,
    mul_inert_vec,
    scale,
    snap,
    sub,
    sym_turned,
    transpose,
    zeros,
)
from ..model.data import Data, stage
from ..model.enums import JointType
from ..model.model import Model, dof_chain
from .kinematics import Frame, between
from .reflected import dof_armature, tendon_armature
from .tendons.tendon import tendons_with_armature

Rows = list[dict[int, Scalar]]  # row i: {j: entry (i, j)} for j <= i, of a symmetric matrix
Matrix = Rows | TileMatrix


@dataclasses.dataclass(frozen=True)
class Lump:
    """Bodies without joints between them, which the dynamics treat as one rigid body.

    rel: (3) its centre of mass, from the tree's origin. rotational: (6) its inertia about that: xx yy zz xy xz yz.
    oinert: (10) its inertia about the origin.
    """

    mass: Scalar
    rel: list[Scalar]
    rotational: list[Scalar]
    oinert: list[Scalar]


@stage(
    reads="origin frame xmat xipos xirel ximat xanchorrel xaxis",
    computes="comrel subtree_com cinert lump cdof odof",
)
def com_pos(m: Model, d: Data) -> None:
    """Compute subtree_com, cinert and cdof. mj_comPos."""
    rigid = _rigid_bodies(m)
    _subtree_com(m, d, rigid)
    d.cinert, d.lump = [zeros(10)] * m.nbody, [None] * m.nbody
    for i in range(1, m.nbody):
        com = d.comrel[m.body_originid[i]]
        rotational = _rotational(m.body_inertia[i], d.ximat[i])
        d.cinert[i] = inert_com(rotational, sub(d.xirel[i], com), m.body_mass[i])
        if i in rigid:
            d.lump[i] = _lump(d.frame[i], rigid[i])
    d.odof = [None] * m.nv
    for j in range(m.njnt):
        _joint_odof(m, d, j)
    d.cdof = [about(d.odof[v], d.comrel[m.body_originid[m.dof_bodyid[v]]]) for v in range(m.nv)]


def _lump(frame: Frame, body: Rigid) -> Lump:
    rel = frame.point(body.ipos)
    if body.rotational is None:
        rotational = _rotational(body.inertia, frame.rotation(body.imat))
    else:
        rotational = sym_turned(frame.mat, sym_turned(frame.fixed, body.rotational))
    return Lump(body.mass, rel, rotational, inert_com(rotational, rel, body.mass))


@dataclasses.dataclass(frozen=True)
class Rigid:
    """Mass, centre of mass, principal moments and their axes of a rigid body, in the frame of the body with the joints.

    rotational: inertia about the centre of mass (xx yy zz xy xz yz) in that frame, given instead of moments and axes
    where welded parts vary from world to world, since the principal axes then vary, too.
    """

    mass: Scalar
    ipos: Vec
    inertia: Vec = ()
    imat: Vec = ()
    rotational: Vec | None = None


def _rigid_bodies(m: Model) -> dict[int, Rigid]:
    """Return for each body with joints of its own the rigid body that moves with it, welded parts included."""
    members: dict[int, list[tuple[int, Vec, Vec]]] = {}  # body, position and rotation in the carrier's frame
    for i in range(1, m.nbody):
        carrier, parent = m.body_weldid[i], m.body_parentid[i]
        if carrier == i:
            members[i] = [(i, (0.0, 0.0, 0.0), tuple(IDENTITY))]
        elif carrier > 0:
            _, pos, mat = next(x for x in members[carrier] if x[0] == parent)
            pos = tuple(add(pos, mat_vec(mat, m.body_pos[i])))
            members[carrier].append((i, pos, frame_mul(mat, m.body_mat[i])))
    return {carrier: _weld(m, bodies) for carrier, bodies in members.items()}


def _weld(m: Model, bodies: list[tuple[int, Vec, Vec]]) -> Rigid:
    """Return several bodies as one rigid body."""
    heavy = [  # a body of inertia alone counts, too
        (i, add(pos, mat_vec(mat, m.body_ipos[i])), mat)
        for i, pos, mat in bodies
        if not all(map(is_zero, (m.body_mass[i], *m.body_inertia[i])))
    ]
    if len(heavy) <= 1:
        i, ipos, mat = heavy[0] if heavy else (bodies[0][0], m.body_ipos[bodies[0][0]], tuple(IDENTITY))
        return Rigid(m.body_mass[i], tuple(ipos), m.body_inertia[i], frame_mul(mat, m.body_imat[i]))
    mass = sum(m.body_mass[i] for i, _, _ in heavy)
    centre = scale([sum(m.body_mass[i] * ipos[k] for i, ipos, _ in heavy) for k in range(3)], 1.0 / mass)
    total = zeros(6)
    for i, ipos, mat in heavy:
        rotational = _rotational(m.body_inertia[i], frame_mul(mat, m.body_imat[i]))
        total = add(total, inert_com(rotational, sub(ipos, centre), m.body_mass[i])[:6])
    if not is_number(*total):
        return Rigid(mass, tuple(centre), rotational=tuple(total))
    xx, yy, zz, xy, xz, yz = total
    inertia, axes = np.linalg.eigh(np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]], dtype=float))
    return Rigid(mass, tuple(centre), tuple(inertia.tolist()), snap(axes.ravel().tolist()))


def _centre(moment: Vec, mass: Scalar, otherwise: list[Scalar]) -> list[Scalar]:
    """Return moment / mass, or `otherwise` where there is next to no mass."""
    if is_number(mass):
        return otherwise if mass < MINVAL else scale(moment, 1.0 / mass)
    return choose(mass < MINVAL, otherwise, scale(moment, 1.0 / maximum(mass, MINVAL)))


def _subtree_com(m: Model, d: Data, rigid: dict[int, Rigid]) -> None:
    moment = [scale(d.xipos[i], m.body_mass[i]) for i in range(m.nbody)]
    tree = [zeros(3)] * m.nbody  # by origin: moments from there, lump by lump
    mass = zeros(m.nbody)  # of each of these
    for i in range(m.nbody - 1, 0, -1):
        moment[m.body_parentid[i]] = add(moment[m.body_parentid[i]], moment[i])
        origin = m.body_originid[i]
        if i in rigid:
            tree[origin] = add_scaled(tree[origin], d.frame[i].point(rigid[i].ipos), rigid[i].mass)
            mass[origin] = mass[origin] + rigid[i].mass
        elif m.body_weldid[i] == 0:
            tree[origin] = add_scaled(tree[origin], d.xirel[i], m.body_mass[i])
            mass[origin] = mass[origin] + m.body_mass[i]
    d.comrel, d.subtree_com = [None] * m.nbody, [None] * m.nbody
    for i in range(m.nbody):
        d.subtree_com[i] = _centre(moment[i], m.body_subtreemass[i], d.xipos[i])
    d.comrel[0] = d.subtree_com[0]
    for i in sorted(set(m.body_originid) - {0}):
        root, whole = m.body_rootid[i], tree[i]
        for other in sorted(set(m.body_originid) - {i}):
            if m.body_rootid[other] == root:
                whole = add(whole, add_scaled(tree[other], between(d, i, other), mass[other]))
        d.comrel[i] = _centre(whole, m.body_subtreemass[root], add(d.xirel[root], between(d, i, root)))
        if root == i:
            d.subtree_com[i] = add(d.origin[i], d.comrel[i])


def _rotational(moments: Vec, axes: Vec) -> list[Scalar]:
    """Return axes diag(moments) axes^T.

    It is built from the axes whose moment differs from the third's: two, one (a capsule) or none.
    """
    k = _most_common(moments)
    out = [moments[k]] * 3 + [0.0] * 3
    for other in range(3):
        excess = moments[other] - moments[k]
        rounding = 1e-14 * max(moments) if is_number(*moments) else 0.0
        if other != k and (not is_number(excess) or abs(float(excess)) > rounding):
            x, y, z = column(axes, other)
            ex, ey, ez = x * excess, y * excess, z * excess
            out = add(out, [ex * x, ey * y, ez * z, ex * y, ex * z, ey * z])
    return out


def _most_common(moments: Vec) -> int:
    """Return the axis whose moment is nearest to another's, so that the most terms vanish."""
    if not is_number(*moments):
        return 0
    pairs = [(abs(float(moments[i] - moments[j])), i) for i in range(3) for j in range(3) if i != j]
    return min(pairs)[1]


def _joint_odof(m: Model, d: Data, j: int) -> None:
    i, v, kind = m.jnt_bodyid[j], m.jnt_dofadr[j], m.jnt_type[j]
    if kind == JointType.SLIDE:
        d.odof[v] = zeros(3) + d.xaxis[j]
        return
    if kind == JointType.FREE:
        for k in range(3):
            d.odof[v + k] = [1.0 if n == 3 + k else 0.0 for n in range(6)]
        v += 3
    axes = [column(d.xmat[i], k) for k in range(3)] if kind in (JointType.FREE, JointType.BALL) else [d.xaxis[j]]
    for k, axis in enumerate(axes):
        d.odof[v + k] = list(axis) + cross(d.xanchorrel[j], axis)


@stage(reads="cinert lump odof ten_J", computes="crb M")
def crb(m: Model, d: Data) -> None:
    """Compute composite inertias and M, with the armature of joints and tendons. mj_makeM."""
    d.crb = [list(c) for c in d.cinert]
    composite = [lump and lump.oinert for lump in d.lump]
    for i in range(m.nbody - 1, 0, -1):
        parent = m.body_parentid[i]
        carrier = m.body_weldid[parent]
        if parent > 0:
            d.crb[parent] = add(d.crb[parent], d.crb[i])
        if composite[i] and carrier > 0:
            composite[carrier] = add(composite[carrier], composite[i])
    columns = dof_columns(m)
    if large(columns, (x for xs in (*composite, *d.odof) for x in xs or ())):
        d.M = _in_tiles(m, d, composite, columns)
    else:
        d.M = [_row(m, d, i, composite[m.dof_bodyid[i]]) for i in range(m.nv)]
    for t in tendons_with_armature(m):
        d.M = _with_armature(d.M, tendon_armature(m, t), d.ten_J[t])


def full_m(d: Data) -> list[list[Scalar]]:
    """Return M with all of its entries, a list of nv rows. mj_fullM."""
    full = [zeros(len(d.M)) for _ in d.M]
    for i, row in enumerate(d.M):
        for j, x in row.items():
            full[i][j] = full[j][i] = x
    return full


def dof_columns(m: Model) -> list[list[int]]:
    """Return the columns of the entries in each row of M's lower triangle, except for the armature of tendons."""
    return [[i] if m.dof_simplenum[i] else dof_chain(m, i)[::-1] for i in range(m.nv)]


def _in_tiles(m: Model, d: Data, composite: list[Vec], columns: list[list[int]]) -> TileMatrix:
    """Return M without the armature of tendons."""
    forces = [
        zeros(6) if m.dof_simplenum[i] else mul_inert_vec(composite[m.dof_bodyid[i]], d.odof[i]) for i in range(m.nv)
    ]
    own = [dof_armature(m, i) + (_simple(m, i) if m.dof_simplenum[i] else 0.0) for i in range(m.nv)]
    return TileMatrix.of_products(forces, d.odof, columns).plus([{i: x} for i, x in enumerate(own)])


def _with_armature(M: Matrix, armature: Scalar, row: Row) -> Matrix:
    """Return M with a tendon's armature where M has an entry: as in MuJoCo, not between dofs of two branches."""
    columns = columns_of(M)
    more: Rows = [{} for _ in columns]
    for i, x in row.items():
        more[i] = {j: armature * x * y for j, y in row.items() if j in columns[i]}
    return plus(M, more)


def _row(m: Model, d: Data, i: int, composite: Vec) -> dict[int, Scalar]:
    if m.dof_simplenum[i]:  # a body alone whose inertia is diagonal in its dofs, whatever its pose
        return {i: _simple(m, i) + dof_armature(m, i)}
    force = mul_inert_vec(composite, d.odof[i])
    row = {}
    j = i
    while j >= 0:
        row[j] = dot(d.odof[j], force)
        j = m.dof_parentid[j]
    row[i] = row[i] + dof_armature(m, i)
    return row


def _simple(m: Model, i: int) -> Scalar:
    """Return the inertia of a lone body along dof i: its mass, or its moment about the axis of a rotation."""
    body, j = m.dof_bodyid[i], m.dof_jntid[i]
    kind, k = m.jnt_type[j], i - m.jnt_dofadr[j]
    if kind == JointType.SLIDE or (kind == JointType.FREE and k < 3):
        return m.body_mass[body]
    axis = m.jnt_axis[j] if kind == JointType.HINGE else [float(k % 3 == n) for n in range(3)]
    principal = mat_vec(transpose(m.body_imat[body]), axis)
    return dot(m.body_inertia[body], [x * x for x in principal])


@dataclasses.dataclass(frozen=True)
class Factor:
    """The factors of A = L^T D L: L unit lower triangular, without its diagonal, and the reciprocals of D.

    straight: see `factor`.
    """

    L: Rows
    inverse: list[Scalar]
    straight: bool = False


AnyFactor = Factor | TileFactor


def factor(rows: Matrix, clamped: Sequence[bool] = (), straight: bool = False) -> AnyFactor:
    """Factor a positive definite matrix of any sparsity pattern, finding its fill-in on the way. mj_factorI.

    Pivots that are `clamped` are at least mjMINVAL. straight: without tiles, and in the order of columns. If entries
    are `rounded`, the factors and the results of `solve` are then the same bit for bit whether an entry that is 0 is in
    the pattern or not, since each number is its start, less one product after another.
    """
    if isinstance(rows, TileMatrix):
        return rows.factor([MINVAL if x else -MAXVAL for x in clamped or [False] * len(rows)])
    a = [{j: x for j, x in row.items() if i == j or not is_zero(x)} for i, row in enumerate(rows)]
    n = len(a)
    if not straight and large(a, (x for row in a for x in row.values()), sum(map(len, a))):
        return factor(TileMatrix.of(a), clamped)
    inverse: list[Scalar] = [0.0] * n
    L: Rows = [{} for _ in range(n)]
    for k in range(n - 1, -1, -1):
        inverse[k] = 1.0 / (maximum(a[k][k], MINVAL) if clamped and clamped[k] else a[k][k])
        columns = sorted(a[k], reverse=True) if straight else a[k]
        L[k] = {j: a[k][j] * inverse[k] for j in columns if j < k}
        for i, lower in L[k].items():
            row = a[i]
            for j in L[k]:
                if j <= i:
                    product = lower * a[k][j]
                    row[j] = row[j] - product if j in row else rounded(-product)
    return Factor(L, inverse, straight)


def solve(f: AnyFactor, b: Vec) -> list[Scalar]:
    """Solve L^T D L x = b. mj_solveLD."""
    if isinstance(f, TileFactor):
        return f.solve(b)
    x = list(b)
    for k in range(len(x) - 1, -1, -1):
        for j, lower in f.L[k].items():
            x[j] = x[j] - lower * x[k]
    x = [x[k] * f.inverse[k] for k in range(len(x))]
    if f.straight:
        x = [rounded(y) for y in x]
    for k in range(len(x)):
        for j, lower in f.L[k].items():
            x[k] = x[k] - lower * x[j]
    return x


def columns_of(M: Matrix) -> Sequence[Collection[int]]:
    """Return the columns in which each row of M has entries."""
    return M.columns if isinstance(M, TileMatrix) else M


def plus(a: Matrix, b: Matrix) -> Matrix:
    """Return the sum of two symmetric matrices, one of which at least is given by rows."""
    if isinstance(a, TileMatrix):
        return a.plus(b)
    if isinstance(b, TileMatrix):
        return b.plus(a)
    out = [dict(row) for row in a]
    for i, row in enumerate(b):
        for j, x in row.items():
            out[i][j] = out[i].get(j, 0.0) + x
    return out


def mul_m(rows: Matrix, x: Vec) -> list[Scalar]:
    """Return the product of a symmetric matrix, given by its lower triangle, and x. mj_mulM."""
    if isinstance(rows, TileMatrix):
        return rows.times(x)
    out = zeros(len(rows))
    for i, row in enumerate(rows):
        for j, entry in row.items():
            out[i] = out[i] + entry * x[j]
            if j != i:
                out[j] = out[j] + entry * x[i]
    return out
