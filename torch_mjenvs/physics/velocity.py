"""Velocities and bias forces: mj_comVel, mj_rne.

Adds to Data:

cvel       body  (6) velocity about subtree_com of the root
cdof_dot   dof   (6) rate of cdof: for reading only
qfrc_bias  dof   Coriolis, centrifugal and gravitational force

v velocity   a acceleration   dv what a joint adds to the velocity
"""

from __future__ import annotations

from ..compiler.scalar import Scalar
from .data import Data
from .model import BALL, FREE, Model
from .spatial import Vec, add, add_scaled, cross, cross_motion, dot, is_zero, scale, sub, sym_vec, zeros


def com_vel(m: Model, d: Data) -> None:
    """mj_comVel: cvel and cdof_dot, from d.qvel."""
    d.cvel, d.cdof_dot = [zeros(6)] * m.nbody, [zeros(6)] * m.nv
    d.bias_acc = [zeros(6)] * m.nbody  # sum of cdof_dot qvel over the dofs of the body
    for i in range(1, m.nbody):
        v, bias = d.cvel[m.body_parentid[i]], zeros(6)
        for j in range(m.body_jntadr[i], m.body_jntadr[i] + m.body_jntnum[i]):
            for dofs, moving in _groups(m, j):
                dv = _combine(d.cdof, d.qvel, dofs)
                if moving:
                    for k in dofs:
                        d.cdof_dot[k] = cross_motion(v, d.cdof[k])
                    bias = add(bias, cross_motion(v, dv))  # all at once: cheaper than from each cdof_dot
                v = add(v, dv)
        d.cvel[i], d.bias_acc[i] = v, bias


def _groups(m: Model, j: int) -> list[tuple[range, bool]]:
    """The dofs of joint j that move together, and whether their axes move."""
    v = m.jnt_dofadr[j]
    if m.jnt_type[j] == FREE:
        return [(range(v, v + 3), False), (range(v + 3, v + 6), True)]
    return [(range(v, v + (3 if m.jnt_type[j] == BALL else 1)), True)]


def _combine(cdof: list, x: Vec, dofs: range) -> list[Scalar]:
    """Sum of cdof x over the dofs: mju_mulDofVec."""
    total = zeros(6)
    for k in dofs:
        total = add_scaled(total, cdof[k], x[k])
    return total


def rne(m: Model, d: Data, qacc: Vec | None = None) -> list[Scalar]:
    """mj_rne: the force that makes the acceleration qacc (none: 0), without armature and passive forces."""
    cacc: list = [None] * m.nbody
    cfrc: list = [zeros(6)] * m.nbody
    cacc[0] = zeros(3) + scale(m.gravity, -1.0)
    for i in range(1, m.nbody):
        cacc[i] = add(cacc[m.body_parentid[i]], d.bias_acc[i])
        if qacc is not None:
            dofs = range(m.body_dofadr[i], m.body_dofadr[i] + m.body_dofnum[i])
            cacc[i] = add(cacc[i], _combine(d.cdof, qacc, dofs))
        cfrc[i] = _inertial_force(m, d, i, cacc[i])
    for i in range(m.nbody - 1, 0, -1):
        parent = m.body_parentid[i]
        if parent > 0:
            cfrc[parent] = add(cfrc[parent], cfrc[i])
    return [dot(d.cdof[v], cfrc[m.dof_bodyid[v]]) for v in range(m.nv)]


def _inertial_force(m: Model, d: Data, i: int, a: Vec) -> list[Scalar]:
    """cinert a + v x* (cinert v), by way of the acceleration of the body's centre of mass."""
    w, alpha = d.cvel[i][:3], a[:3]
    r = sub(d.xirel[i], d.comrel[m.body_rootid[i]])
    momentum = sym_vec(d.rotational[i], w)
    torque = add(sym_vec(d.rotational[i], alpha), cross(w, momentum))
    if is_zero(m.body_mass[i]):
        return torque + zeros(3)
    centre_v = add(d.cvel[i][3:], cross(w, r))
    centre_a = add(add(a[3:], cross(alpha, r)), cross(w, centre_v))
    force = scale(centre_a, m.body_mass[i])
    return add(torque, cross(r, force)) + force


def bias(m: Model, d: Data) -> None:
    """qfrc_bias: mj_rne without acceleration."""
    d.qfrc_bias = rne(m, d)
