"""Centres of mass, inertias and the joint-space inertia matrix: mj_comPos, mj_crb, mj_factorM, mj_solveM, mj_mulM.

Adds to Data:

comrel subtree_com  body  (3) centre of mass of the subtree, from the tree's origin; the same, absolute
rotational          body  (6) inertia about the body's own centre of mass: xx yy zz xy xz yz
cinert crb          body  (10) inertia about subtree_com of the root: of the body, of its subtree
cdof                dof   (6) motion axis about subtree_com of the root
M                   dof   {column: entry} for each row: the lower triangle, the row's dof and its ancestors

i j k rows and columns
"""

from __future__ import annotations

import dataclasses

from ..compiler.scalar import Scalar
from .data import Data
from .model import BALL, FREE, SLIDE, Model
from .spatial import (
    MINVAL,
    Vec,
    add,
    column,
    cross,
    dot,
    inert_com,
    is_zero,
    mul_inert_vec,
    scale,
    sub,
    zeros,
)

Rows = list[dict[int, Scalar]]  # row i: {j: entry (i, j)} for j <= i, of a symmetric matrix


def com_pos(m: Model, d: Data) -> None:
    """mj_comPos: subtree_com, cinert, cdof."""
    _subtree_com(m, d)
    d.rotational, d.cinert = [zeros(6)] * m.nbody, [zeros(10)] * m.nbody
    for i in range(1, m.nbody):
        d.rotational[i] = _rotational(m, d, i)
        offset = sub(d.xirel[i], d.comrel[m.body_rootid[i]])
        d.cinert[i] = inert_com(d.rotational[i], offset, m.body_mass[i])
    d.cdof = [None] * m.nv
    for j in range(m.njnt):
        _joint_cdof(m, d, j)


def _subtree_com(m: Model, d: Data) -> None:
    moment = [scale(d.xirel[i], m.body_mass[i]) for i in range(m.nbody)]
    world = [scale(d.xipos[i], m.body_mass[i]) for i in range(m.nbody)]
    for i in range(m.nbody - 1, 0, -1):
        parent = m.body_parentid[i]
        moment[parent] = add(moment[parent], moment[i])  # the world's mixes origins, and is not used
        world[parent] = add(world[parent], world[i])
    d.comrel, d.subtree_com = [None] * m.nbody, [None] * m.nbody
    for i in range(m.nbody):
        massless = m.body_subtreemass[i] < MINVAL
        d.comrel[i] = d.xirel[i] if massless else scale(moment[i], 1.0 / m.body_subtreemass[i])
        d.subtree_com[i] = add(d.origin[m.body_rootid[i]], d.comrel[i])
    if m.body_subtreemass[0] >= MINVAL:
        d.comrel[0] = d.subtree_com[0] = scale(world[0], 1.0 / m.body_subtreemass[0])


def _rotational(m: Model, d: Data, i: int) -> list[Scalar]:
    """ximat diag(body_inertia) ximat^T, from the axes whose moments differ from the third: two, one (a capsule) or none."""
    moments = m.body_inertia[i]
    k = _most_common(moments)
    out = [moments[k]] * 3 + [0.0] * 3
    for other in range(3):
        excess = moments[other] - moments[k]
        if other != k and abs(excess) > MINVAL * 10.0 * max(moments):
            x, y, z = column(d.ximat[i], other)
            ex, ey, ez = x * excess, y * excess, z * excess
            out = add(out, [ex * x, ey * y, ez * z, ex * y, ex * z, ey * z])
    return out


def _most_common(moments: Vec) -> int:
    """The axis whose moment is nearest to another's, so that the most terms vanish."""
    pairs = [(abs(moments[i] - moments[j]), i) for i in range(3) for j in range(3) if i != j]
    return min(pairs)[1]


def _joint_cdof(m: Model, d: Data, j: int) -> None:
    i, v, kind = m.jnt_bodyid[j], m.jnt_dofadr[j], m.jnt_type[j]
    if kind == SLIDE:
        d.cdof[v] = zeros(3) + d.xaxis[j]
        return
    if kind == FREE:
        for k in range(3):
            d.cdof[v + k] = [1.0 if n == 3 + k else 0.0 for n in range(6)]
        v += 3
    axes = [column(d.xmat[i], k) for k in range(3)] if kind in (FREE, BALL) else [d.xaxis[j]]
    offset = sub(d.comrel[m.body_rootid[i]], d.xanchorrel[j])
    for k, axis in enumerate(axes):
        d.cdof[v + k] = list(axis) + cross(axis, offset)


def crb(m: Model, d: Data) -> None:
    """mj_crb: composite inertias and M, with armature."""
    d.crb = [list(c) for c in d.cinert]
    for i in range(m.nbody - 1, 0, -1):
        parent = m.body_parentid[i]
        if parent > 0:
            d.crb[parent] = add(d.crb[parent], d.crb[i])
    d.M = [_row(m, d, i) for i in range(m.nv)]


def _row(m: Model, d: Data, i: int) -> dict[int, Scalar]:
    if m.dof_simplenum[i]:  # a body alone whose inertia is diagonal in its dofs, whatever its pose
        return {i: m.dof_M0[i]}
    force = mul_inert_vec(d.crb[m.dof_bodyid[i]], d.cdof[i])
    row = {}
    j = i
    while j >= 0:
        row[j] = dot(d.cdof[j], force)
        j = m.dof_parentid[j]
    row[i] = row[i] + m.dof_armature[i]
    return row


@dataclasses.dataclass(frozen=True)
class Factor:
    """A = L^T D L: L unit lower triangular, without its diagonal, and the reciprocals of D."""

    L: Rows
    inverse: list[Scalar]


def factor(rows: Rows) -> Factor:
    """mj_factorI: factor a positive definite matrix of any pattern; its fill-in is found on the way."""
    a = [{j: x for j, x in row.items() if i == j or not is_zero(x)} for i, row in enumerate(rows)]
    n = len(a)
    inverse: list[Scalar] = [0.0] * n
    L: Rows = [{} for _ in range(n)]
    for k in range(n - 1, -1, -1):
        inverse[k] = 1.0 / a[k][k]
        L[k] = {j: x * inverse[k] for j, x in a[k].items() if j < k}
        for i, lower in L[k].items():
            for j in L[k]:
                if j <= i:
                    a[i][j] = a[i].get(j, 0.0) - lower * a[k][j]
    return Factor(L, inverse)


def solve(f: Factor, b: Vec) -> list[Scalar]:
    """mj_solveLD: x of L^T D L x = b."""
    x = list(b)
    for k in range(len(x) - 1, -1, -1):
        for j, lower in f.L[k].items():
            x[j] = x[j] - lower * x[k]
    x = [x[k] * f.inverse[k] for k in range(len(x))]
    for k in range(len(x)):
        for j, lower in f.L[k].items():
            x[k] = x[k] - lower * x[j]
    return x


def mul_m(rows: Rows, x: Vec) -> list[Scalar]:
    """mj_mulM: the symmetric matrix times x."""
    out = zeros(len(rows))
    for i, row in enumerate(rows):
        for j, entry in row.items():
            out[i] = out[i] + entry * x[j]
            if j != i:
                out[j] = out[j] + entry * x[i]
    return out
