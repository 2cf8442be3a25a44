"""Velocities and bias forces: mj_comVel, mj_rne.

v velocity   a acceleration   dv what a joint adds to the velocity
"""

from __future__ import annotations

from ..compiler.scalar import Scalar
from .data import Data, stage
from .inertia import Lump
from .model import BALL, FREE, Model
from .spatial import Vec, about, add, add_scaled, cross, cross_motion, dot, scale, sym_vec, zeros


@stage(reads="qvel comrel odof", computes="cvel ovel cdof_dot bias_acc")
def com_vel(m: Model, d: Data) -> None:
    """mj_comVel: cvel and cdof_dot, from d.qvel."""
    d.ovel, d.cdof_dot, d.bias_acc = [zeros(6)] * m.nbody, [zeros(6)] * m.nv, [zeros(6)] * m.nbody
    for i in range(1, m.nbody):
        v, bias = d.ovel[m.body_parentid[i]], zeros(6)
        for j in range(m.body_jntadr[i], m.body_jntadr[i] + m.body_jntnum[i]):
            for dofs, moving in _groups(m, j):
                dv = _combine(d.odof, d.qvel, dofs)
                if moving:
                    for k in dofs:
                        d.cdof_dot[k] = about(cross_motion(v, d.odof[k]), d.comrel[m.body_originid[i]])
                    bias = add(bias, cross_motion(v, dv))  # all at once: cheaper than from each axis
                v = add(v, dv)
        d.ovel[i], d.bias_acc[i] = v, bias
    d.cvel = [about(d.ovel[i], d.comrel[m.body_originid[i]]) for i in range(m.nbody)]


def _groups(m: Model, j: int) -> list[tuple[range, bool]]:
    """The dofs of joint j that move together, and whether their axes move."""
    v = m.jnt_dofadr[j]
    if m.jnt_type[j] == FREE:
        return [(range(v, v + 3), False), (range(v + 3, v + 6), True)]
    return [(range(v, v + (3 if m.jnt_type[j] == BALL else 1)), True)]


def _combine(odof: list, x: Vec, dofs: range) -> list[Scalar]:
    """Sum of odof x over the dofs: mju_mulDofVec."""
    total = zeros(6)
    for k in dofs:
        total = add_scaled(total, odof[k], x[k])
    return total


def rne(m: Model, d: Data, qacc: Vec | None = None) -> list[Scalar]:
    """mj_rne: the force that makes the acceleration qacc (none: 0), without armature and passive forces."""
    cacc: list = [None] * m.nbody
    cfrc: list = [zeros(6)] * m.nbody
    cacc[0] = zeros(3) + scale(m.gravity, -1.0)
    moving = [i for i in range(1, m.nbody) if d.lump[i]]
    for i in moving:
        cacc[i] = add(cacc[m.body_weldid[m.body_parentid[i]]], d.bias_acc[i])
        if qacc is not None:
            dofs = range(m.body_dofadr[i], m.body_dofadr[i] + m.body_dofnum[i])
            cacc[i] = add(cacc[i], _combine(d.odof, qacc, dofs))
        cfrc[i] = _inertial_force(d.lump[i], d.ovel[i], cacc[i])
    for i in reversed(moving):
        carrier = m.body_weldid[m.body_parentid[i]]
        if carrier > 0:
            cfrc[carrier] = add(cfrc[carrier], cfrc[i])
    return [dot(d.odof[v], cfrc[m.dof_bodyid[v]]) for v in range(m.nv)]


def _inertial_force(lump: Lump, v: Vec, a: Vec) -> list[Scalar]:
    """oinert a + v x* (oinert v), by way of the acceleration of the centre of mass."""
    w, alpha, r = v[:3], a[:3], lump.rel
    torque = add(sym_vec(lump.rotational, alpha), cross(w, sym_vec(lump.rotational, w)))
    centre_v = add(v[3:], cross(w, r))
    centre_a = add(add(a[3:], cross(alpha, r)), cross(w, centre_v))
    force = scale(centre_a, lump.mass)
    return add(torque, cross(r, force)) + force


@stage(reads="lump odof ovel bias_acc", computes="qfrc_bias")
def bias(m: Model, d: Data) -> None:
    """qfrc_bias: mj_rne without acceleration."""
    d.qfrc_bias = rne(m, d)
