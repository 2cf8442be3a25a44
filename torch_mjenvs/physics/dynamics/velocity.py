"""Velocities, bias forces and accelerations of bodies. mj_comVel, mj_rne, mj_subtreeVel, mj_rnePostConstraint.

v velocity   a acceleration   dv what a joint adds to the velocity
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...compiler.scalar import Scalar, maximum
from ..algebra.spatial import (
    MINVAL,
    Vec,
    about,
    add,
    add_scaled,
    cross,
    cross_force,
    cross_motion,
    dot,
    mat_vec,
    mul_inert_vec,
    scale,
    sub,
    sym_vec,
    transpose,
    zeros,
)
from ..model.data import Data, stage
from ..model.enums import JointType
from ..model.model import Model, dofs_of
from .inertia import Lump
from .reflected import tendon_armature
from .tendons.tendon import tendons_with_armature


@stage(reads="qvel comrel odof", computes="cvel ovel cdof_dot bias_acc")
def com_vel(m: Model, d: Data) -> None:
    """Compute cvel and cdof_dot from d.qvel. mj_comVel."""
    d.ovel, d.cdof_dot, d.bias_acc = [zeros(6)] * m.nbody, [zeros(6)] * m.nv, [zeros(6)] * m.nbody
    for i in range(1, m.nbody):
        v, bias = d.ovel[m.body_parentid[i]], zeros(6)
        for j in range(m.body_jntadr[i], m.body_jntadr[i] + m.body_jntnum[i]):
            for dofs, moving in _groups(m, j):
                dv = combine(d.odof, d.qvel, dofs)
                if moving:
                    for k in dofs:
                        d.cdof_dot[k] = about(cross_motion(v, d.odof[k]), d.comrel[m.body_originid[i]])
                    bias = add(bias, cross_motion(v, dv))  # all at once: cheaper than from each axis
                v = add(v, dv)
        d.ovel[i], d.bias_acc[i] = v, bias
    d.cvel = [about(d.ovel[i], d.comrel[m.body_originid[i]]) for i in range(m.nbody)]


def _groups(m: Model, j: int) -> list[tuple[range, bool]]:
    """Return the dofs of joint j in groups that move together, each with whether its axes move."""
    v = m.jnt_dofadr[j]
    if m.jnt_type[j] == JointType.FREE:
        return [(range(v, v + 3), False), (range(v + 3, v + 6), True)]
    return [(range(v, v + (3 if m.jnt_type[j] == JointType.BALL else 1)), True)]


def combine(odof: Sequence[Vec], x: Vec, dofs: range) -> list[Scalar]:
    """Return the sum of odof x over the dofs. mju_mulDofVec."""
    total = zeros(6)
    for k in dofs:
        total = add_scaled(total, odof[k], x[k])
    return total


def rne(m: Model, d: Data, qacc: Vec | None = None) -> list[Scalar]:
    """Return the force (nv) that makes the acceleration qacc (None: 0), without armature and passive forces. mj_rne."""
    cacc: list[Any] = [None] * m.nbody
    cfrc: list[list[Scalar]] = [zeros(6)] * m.nbody
    cacc[0] = zeros(3) + scale(m.gravity, -1.0)
    moving = [i for i in range(1, m.nbody) if d.lump[i]]
    for i in moving:
        cacc[i] = add(cacc[m.body_weldid[m.body_parentid[i]]], d.bias_acc[i])
        if qacc is not None:
            dofs = range(m.body_dofadr[i], m.body_dofadr[i] + m.body_dofnum[i])
            cacc[i] = add(cacc[i], combine(d.odof, qacc, dofs))
        cfrc[i] = _inertial_force(d.lump[i], d.ovel[i], cacc[i])
    for i in reversed(moving):
        carrier = m.body_weldid[m.body_parentid[i]]
        if carrier > 0:
            cfrc[carrier] = add(cfrc[carrier], cfrc[i])
    return [dot(d.odof[v], cfrc[m.dof_bodyid[v]]) for v in range(m.nv)]


def _inertial_force(lump: Lump, v: Vec, a: Vec) -> list[Scalar]:
    """Return oinert a + v x* (oinert v), by way of the acceleration of the centre of mass."""
    w, alpha, r = v[:3], a[:3], lump.rel
    torque = add(sym_vec(lump.rotational, alpha), cross(w, sym_vec(lump.rotational, w)))
    centre_v = add(v[3:], cross(w, r))
    centre_a = add(add(a[3:], cross(alpha, r)), cross(w, centre_v))
    force = scale(centre_a, lump.mass)
    return add(torque, cross(r, force)) + force


def bias_rates(m: Model, d: Data, dofs: Sequence[int]) -> list[dict[int, Scalar]]:
    """Return d qfrc_bias / d qvel: for each dof the row {column: entry}, in the columns of `dofs`. mjd_rne_vel.

    How fast a floating tree moves as a whole has no effect, so it is left out, and so are these columns.
    """
    qvel, drifting = list(d.qvel), set()
    for j in range(m.njnt):
        if m.jnt_type[j] == JointType.FREE:
            drifting |= set(range(m.jnt_dofadr[j], m.jnt_dofadr[j] + 3))
    for k in drifting:
        qvel[k] = 0.0
    rows: list[dict[int, Scalar]] = [{} for _ in range(m.nv)]
    for k in dofs:
        if k not in drifting:
            for v, x in _bias_rate(m, d, qvel, k).items():
                rows[v][k] = x
    return rows


def _bias_rate(m: Model, d: Data, qvel: Vec, k: int) -> dict[int, Scalar]:
    """Return column k of d qfrc_bias / d qvel: `com_vel` and `rne`, differentiated line by line.

    dv, da, df   what a rate of dof k adds to velocity, acceleration and force
    """
    speed, dv, da = [zeros(6)] * m.nbody, [zeros(6)] * m.nbody, [zeros(6)] * m.nbody
    df: list[Any] = [None] * m.nbody
    moving = [i for i in range(1, m.nbody) if d.lump[i]]
    for i in moving:
        parent = m.body_weldid[m.body_parentid[i]]
        v, dv_i, da_i = speed[parent], dv[parent], da[parent]
        for j in range(m.body_jntadr[i], m.body_jntadr[i] + m.body_jntnum[i]):
            for dofs, turns in _groups(m, j):
                own, d_own = combine(d.odof, qvel, dofs), d.odof[k] if k in dofs else zeros(6)
                if turns:
                    da_i = add(da_i, add(cross_motion(dv_i, own), cross_motion(v, d_own)))
                v, dv_i = add(v, own), add(dv_i, d_own)
        speed[i], dv[i], da[i] = v, dv_i, da_i
        if k in dofs_of(m, i):
            df[i] = _inertial_force_rate(d.lump[i], v, dv_i, da_i)
    for i in reversed(moving):
        carrier = m.body_weldid[m.body_parentid[i]]
        if carrier > 0 and df[i]:
            df[carrier] = add(df[carrier], df[i]) if df[carrier] else df[i]
    return {v: dot(d.odof[v], df[i]) for v, i in enumerate(m.dof_bodyid) if df[i]}


def _inertial_force_rate(lump: Lump, v: Vec, dv: Vec, da: Vec) -> list[Scalar]:
    """Return the derivative of `_inertial_force` as v and a change by dv and da."""
    w, dw, r = v[:3], dv[:3], lump.rel
    spin, d_spin = sym_vec(lump.rotational, w), sym_vec(lump.rotational, dw)
    torque = add(sym_vec(lump.rotational, da[:3]), add(cross(dw, spin), cross(w, d_spin)))
    centre_v, d_centre_v = add(v[3:], cross(w, r)), add(dv[3:], cross(dw, r))
    d_centre_a = add(add(da[3:], cross(da[:3], r)), add(cross(dw, centre_v), cross(w, d_centre_v)))
    force = scale(d_centre_a, lump.mass)
    return add(torque, cross(r, force)) + force


@stage(reads="lump odof ovel bias_acc ten_J ten_bias", computes="qfrc_bias")
def bias(m: Model, d: Data) -> None:
    """Compute d.qfrc_bias: Coriolis, centrifugal and gravity forces, and the bias of tendons. mj_rne, mj_tendonBias."""
    d.qfrc_bias = rne(m, d)
    for t in tendons_with_armature(m):
        for v, entry in d.ten_J[t].items():
            d.qfrc_bias[v] = d.qfrc_bias[v] + tendon_armature(m, t) * d.ten_bias[t] * entry


def at_point(motion: Vec, r: Vec) -> list[Scalar]:
    """Return the velocity of the point r, where r and `motion` are about the tree's origin."""
    return add(motion[3:], cross(motion[:3], r))


def unforced_acceleration(m: Model, d: Data) -> list[list[Scalar]]:
    """Return each body's spatial acceleration while no dof accelerates, gravity apart: mj_jacDot times qvel.

    As in MuJoCo, and only there, the axes of a ball also turn with the joints after it in its body.
    """
    bias: list[list[Scalar]] = [zeros(6)] * m.nbody
    for i in range(1, m.nbody):
        bias[i] = add(add(bias[m.body_parentid[i]], d.bias_acc[i]), _after_balls(m, d, i))
    return bias


def _after_balls(m: Model, d: Data, i: int) -> list[Scalar]:
    """Return what body i's joints after a ball add to its acceleration, where they turn the ball's axes."""
    out, end = zeros(6), m.body_dofadr[i] + m.body_dofnum[i]
    for j in range(m.body_jntadr[i], m.body_jntadr[i] + m.body_jntnum[i]):
        v = m.jnt_dofadr[j]
        if m.jnt_type[j] == JointType.BALL and v + 3 < end:
            later, ball = (combine(d.odof, d.qvel, dofs) for dofs in (range(v + 3, end), range(v, v + 3)))
            out = add(out, cross_motion(later, ball))
    return out


@stage(reads="xipos xirel ximat subtree_com ovel", computes="subtree_linvel subtree_angmom")
def subtree_vel(m: Model, d: Data) -> None:
    """Compute linear velocity and angular momentum of each subtree. mj_subtreeVel."""
    speed = [at_point(d.ovel[i], d.xirel[i]) for i in range(m.nbody)]
    momentum = [scale(v, m.body_mass[i]) for i, v in enumerate(speed)]
    spin = []
    for i in range(m.nbody):
        local = mat_vec(transpose(d.ximat[i]), d.ovel[i][:3])
        spin.append(mat_vec(d.ximat[i], [x * w for x, w in zip(m.body_inertia[i], local, strict=True)]))
    for i in range(m.nbody - 1, 0, -1):
        momentum[m.body_parentid[i]] = add(momentum[m.body_parentid[i]], momentum[i])
    d.subtree_linvel = [scale(p, 1.0 / maximum(m.body_subtreemass[i], MINVAL)) for i, p in enumerate(momentum)]
    for i in range(m.nbody - 1, 0, -1):
        parent = m.body_parentid[i]
        spin[i] = add(spin[i], scale(_moment(d.xipos[i], speed[i], d, i), m.body_mass[i]))
        above = _moment(d.subtree_com[i], d.subtree_linvel[i], d, parent)
        spin[parent] = add(add(spin[parent], spin[i]), scale(above, m.body_subtreemass[i]))
    d.subtree_angmom = spin


def _moment(p: Vec, v: Vec, d: Data, i: int) -> list[Scalar]:
    """Return the moment of the velocity v at the point p about the centre of mass of subtree i, and relative to it."""
    return cross(sub(p, d.subtree_com[i]), sub(v, d.subtree_linvel[i]))


@stage(reads="comrel odof bias_acc qacc", computes="cacc oacc")
def com_acc(m: Model, d: Data) -> None:
    """Compute cacc from d.qacc: the first half of mj_rnePostConstraint."""
    d.oacc = [zeros(3) + scale(m.gravity, -1.0)] * m.nbody
    for i in range(1, m.nbody):
        dofs = range(m.body_dofadr[i], m.body_dofadr[i] + m.body_dofnum[i])
        d.oacc[i] = add(add(d.oacc[m.body_parentid[i]], d.bias_acc[i]), combine(d.odof, d.qacc, dofs))
    d.cacc = [about(d.oacc[i], d.comrel[m.body_originid[i]]) for i in range(m.nbody)]


@stage(reads="cinert cvel cacc cfrc_ext", computes="cfrc_int")
def com_force(m: Model, d: Data) -> None:
    """Compute cfrc_int: the second half of mj_rnePostConstraint."""
    d.cfrc_int = [zeros(6)] * m.nbody
    for i in range(1, m.nbody):
        inertial = mul_inert_vec(d.cinert[i], d.cacc[i])
        gyroscopic = cross_force(d.cvel[i], mul_inert_vec(d.cinert[i], d.cvel[i]))
        d.cfrc_int[i] = sub(add(inertial, gyroscopic), d.cfrc_ext[i])
    for i in range(m.nbody - 1, 0, -1):
        d.cfrc_int[m.body_parentid[i]] = add(d.cfrc_int[m.body_parentid[i]], d.cfrc_int[i])
