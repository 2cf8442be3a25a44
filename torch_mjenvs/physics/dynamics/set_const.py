"""Constants that follow from a model's masses, inertias and geometry at qpos0. mj_setConst.

A model as it is loaded has these numbers from MuJoCo. Where parameters vary from world to world, so do they: they are
computed here, once whenever parameters change, and not in every step.

M = L'DL, so x' M^-1 x is y' D^-1 y where y = L^-T x, and y has entries only in the dofs of x and their ancestors.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from ...compiler.scalar import Scalar, maximum
from ..algebra.spatial import MINVAL, add, cross, mat_vec, norm, quat_conjugate, quat_mul, sub, transpose, zeros
from ..model.data import Data
from ..model.enums import EqType, JointType
from ..model.model import Model, dofs_of
from .actuators.kinds import forces_by_acc0
from .inertia import AnyFactor, factor, solve


def at_qpos0(m: Model) -> tuple[Data, AnyFactor]:
    """Return the data at qpos0, with M, and M's factors."""
    nothing_touches: dict[int, Any] = {target: {} for target, _ in m.actuator_trnid}  # as in mj_setConst
    d = Data(m, qpos=list(m.qpos0), qvel=zeros(m.nv), contact_moment=nothing_touches)
    return d, factor(d.M, m.dof_clamped)


def set_const(m: Model) -> dict[str, Any]:
    """Return a model's derived constants by field name. mj_setConst.

    They are body_subtreemass, body_invweight0, dof_invweight0, tendon_invweight0, tendon_length0, meaninertia and
    eq_data, and actuator_acc0 of a model with actuators whose force depends on it, such as muscles.
    """
    subtreemass = _subtree_mass(m)
    plain = dataclasses.replace(m, body_subtreemass=subtreemass)
    d, f = at_qpos0(plain)
    total: Scalar = 0.0
    for v in range(m.nv):
        total = total + d.M[v][v]
    muscular = {"actuator_acc0": _actuator_acc0(plain, d, f)} if forces_by_acc0(m) else {}
    return muscular | {
        "body_subtreemass": tuple(subtreemass),
        "body_invweight0": tuple(_body_invweight0(m, d, f, i) for i in range(m.nbody)),
        "dof_invweight0": _dof_invweight0(m, f),
        "tendon_invweight0": tuple(_inverse(f, row) for row in d.ten_J),
        "tendon_length0": tuple(d.ten_length),
        "meaninertia": maximum(total * (1.0 / m.nv), MINVAL) if m.nv else 1.0,
        "eq_data": tuple(_eq_data(m, d, i) for i in range(m.neq)),
    }


def _actuator_acc0(m: Model, d: Data, f: AnyFactor) -> tuple[Scalar, ...]:
    """Return for each actuator the length of M^-1 times its moment."""
    rows = [[moment.get(v, 0.0) for v in range(m.nv)] for moment in d.actuator_moment]
    return tuple(norm(solve(f, row)) if row else 0.0 for row in rows)


def _subtree_mass(m: Model) -> Any:
    total = list(m.body_mass)
    for i in range(m.nbody - 1, 0, -1):
        total[m.body_parentid[i]] = total[m.body_parentid[i]] + total[i]
    return tuple(total)


def _inverse(f: AnyFactor, row: dict[int, Scalar]) -> Scalar:
    """Return row M^-1 row'."""
    y = dict(row)
    total: Scalar = 0.0
    for k in range(max(y, default=-1), -1, -1):
        if k in y:
            total = total + y[k] * y[k] * f.inverse[k]
            for j, lower in f.L[k].items():
                y[j] = y.get(j, 0.0) - lower * y[k]
    return total


def _body_invweight0(m: Model, d: Data, f: AnyFactor, i: int) -> tuple[Scalar, Scalar]:
    """Return the mean of J M^-1 J' over directions, for the centre of mass and for the rotation of body i."""
    dofs = dofs_of(m, i)
    if not dofs:
        return 0.0, 0.0
    if _slides_alone(m, i):
        return 1.0 / maximum(m.body_mass[i], MINVAL), 0.0
    linear = {v: add(d.odof[v][3:], cross(d.odof[v][:3], d.xirel[i])) for v in dofs}
    angular = {v: d.odof[v][:3] for v in dofs}
    means = []
    for motion in (linear, angular):
        total: Scalar = 0.0
        for k in range(3):
            total = total + _inverse(f, {v: motion[v][k] for v in dofs})
        means.append(total * (1.0 / 3.0))
    return means[0], means[1]


def _slides_alone(m: Model, i: int) -> bool:
    """Return whether body i carries nothing and has only slides.

    MuJoCo takes the inverse weights of such a body from its mass, however few its slides are, and whatever their
    armature.
    """
    joints = range(m.body_jntadr[i], m.body_jntadr[i] + m.body_jntnum[i])
    return bool(joints) and all(m.jnt_type[j] == JointType.SLIDE and m.dof_simplenum[m.jnt_dofadr[j]] for j in joints)


def _dof_invweight0(m: Model, f: AnyFactor) -> tuple[Scalar, ...]:
    """Return the diagonal of M^-1, averaged over the three axes of a translation or a rotation."""
    out = zeros(m.nv)
    for j in range(m.njnt):
        first = m.jnt_dofadr[j]
        widths = {JointType.FREE: (3, 3), JointType.BALL: (3,)}.get(m.jnt_type[j], (1,))
        for width in widths:
            dofs = range(first, first + width)
            if _slides_alone(m, m.jnt_bodyid[j]):
                out[first] = 1.0 / maximum(m.body_mass[m.jnt_bodyid[j]], MINVAL)
                continue
            total: Scalar = 0.0
            for v in dofs:
                total = total + _inverse(f, {v: 1.0})
            for v in dofs:
                out[v] = total * (1.0 / width)
            first += width
    return tuple(out)


def derived_data(m: Model) -> dict[int, range]:
    """Return the range of eq_data, by equality, that follows from where bodies are at qpos0.

    It is the second anchor of a connect, and the first anchor and relpose of a weld that was given no relpose; neither
    where eq_data was edited.
    """
    places = {EqType.CONNECT: range(3, 6), EqType.WELD: range(3, 10)}
    return {i: places[m.eq_type[i]] for i in range(m.neq) if m.eq_derived[i]}


def _eq_data(m: Model, d: Data, i: int) -> tuple[Scalar, ...]:
    data = m.eq_data[i]
    if i not in derived_data(m):
        return data
    body1, body2 = m.eq_obj1id[i], m.eq_obj2id[i]
    given, other = (body1, body2) if m.eq_type[i] == EqType.CONNECT else (body2, body1)
    anchor = add(d.xpos[given], mat_vec(d.xmat[given], data[:3]))
    seen = mat_vec(transpose(d.xmat[other]), sub(anchor, d.xpos[other]))
    relpose = quat_mul(quat_conjugate(d.xquat[body1]), d.xquat[body2])
    return (*data[:3], *seen, *(relpose if m.eq_type[i] == EqType.WELD else data[6:10]), *data[10:])
