"""Actuators: mj_transmission, mj_fwdActuation.

An actuator's length L is what its transmission measures of the positions. Its moment is the row dL/dq: it gives the
velocity, and takes the force to the dofs. Rows are kept sparse, {dof: entry}.
"""

from __future__ import annotations

from ....compiler.scalar import Mask, Scalar, absolute, clip, logical_and, logical_or, select
from ...algebra.sparse import Row, row_times
from ...algebra.spatial import (
    Vec,
    add_scaled,
    dot,
    is_zero,
    mat_vec,
    quat_normalize,
    quat_sub,
    quat_to_mat,
    sum_of,
    transpose,
    zeros,
)
from ...model.data import Data, stage
from ...model.enums import BiasType, GainType, JointType, TrnType
from ...model.model import Model
from ..tendons.tendon import springy_tendons
from .activation import activation_rate, drive
from .muscle import muscle_bias, muscle_gain, muscle_gain_rate
from .site_transmission import of_crank, of_site


@stage(
    reads="qpos qvel ten_length ten_J site_xmat site_xrel xquat origin odof",
    computes="actuator_length actuator_moment actuator_velocity",
)
def transmission(m: Model, d: Data) -> None:
    """mj_transmission, and the velocities of mj_fwdVelocity."""
    kinds = {
        TrnType.JOINT: _of_joint,
        TrnType.JOINTINPARENT: _of_joint,
        TrnType.TENDON: _of_tendon,
        TrnType.SITE: of_site,
        TrnType.SLIDERCRANK: of_crank,
    }
    found = [kinds[m.actuator_trntype[i]](m, d, i) for i in range(m.nu)]
    d.actuator_length = [length for length, _ in found]
    d.actuator_moment = [moment for _, moment in found]
    d.actuator_velocity = [row_times(moment, d.qvel) if m.actuation else 0.0 for moment in d.actuator_moment]


def _of_joint(m: Model, d: Data, i: int) -> tuple[Scalar, Row]:
    j = m.actuator_trnid[i][0]
    gear: Vec = m.actuator_gear[i]
    v, q, kind = m.jnt_dofadr[j], d.qpos[m.jnt_qposadr[j] :], m.jnt_type[j]
    if kind not in (JointType.BALL, JointType.FREE):
        return q[0] * gear[0], {v: gear[0]}
    quat, turning = (q[3:7], gear[3:6]) if kind == JointType.FREE else (q[:4], gear[:3])
    if m.actuator_trntype[i] == TrnType.JOINTINPARENT:
        turning = mat_vec(transpose(quat_to_mat(quat)), turning)
    if kind == JointType.FREE:
        return 0.0, dict(enumerate([*gear[:3], *turning], start=v))
    angle = quat_sub(quat_normalize(quat), (1.0, 0.0, 0.0, 0.0))
    return dot(angle, turning), dict(enumerate(turning, start=v))


def _of_tendon(m: Model, d: Data, i: int) -> tuple[Scalar, Row]:
    t, gear = m.actuator_trnid[i][0], m.actuator_gear[i][0]
    return d.ten_length[t] * gear, {v: entry * gear for v, entry in d.ten_J[t].items()}


@stage(
    reads="act ctrl actuator_length actuator_moment actuator_velocity ten_force ten_wrench qfrc_gravcomp",
    computes="act_dot actuator_force qfrc_actuator tendon_wrench",
)
def actuation(m: Model, d: Data) -> None:
    """mj_fwdActuation, from d.ctrl and d.act."""
    d.act_dot, d.actuator_force, d.qfrc_actuator = zeros(m.na), zeros(m.nu), zeros(m.nv)
    for i in range(m.nu) if m.actuation else ():
        ctrl = _ctrl(m, d, i)
        if m.actuator_actadr[i] >= 0:
            a = m.actuator_actadr[i]
            d.act_dot[a] = activation_rate(m, i, d.act[a], ctrl)
        d.actuator_force[i] = _force(m, d, i, ctrl)
    d.actuator_force = _within_tendons(m, d.actuator_force)
    for i in range(m.nu):
        if m.actuator_forcelimited[i] and m.actuation:
            d.actuator_force[i] = clip(d.actuator_force[i], *m.actuator_forcerange[i])
    for moment, force in zip(d.actuator_moment, d.actuator_force, strict=True):
        for v, entry in moment.items():
            d.qfrc_actuator[v] = d.qfrc_actuator[v] + force * entry
    for v in range(m.nv):
        if m.jnt_actgravcomp[m.dof_jntid[v]] and m.actuation:
            d.qfrc_actuator[v] = d.qfrc_actuator[v] + d.qfrc_gravcomp[v]
    for j in range(m.njnt):
        if m.jnt_actfrclimited[j] and m.actuation:
            v = m.jnt_dofadr[j]
            d.qfrc_actuator[v] = clip(d.qfrc_actuator[v], *m.jnt_actfrcrange[j])
    along: dict[int, Scalar] = {t: d.ten_force[t] for t in springy_tendons(m)}  # the whole force along each tendon
    for i, force in enumerate(d.actuator_force):
        if m.actuator_trntype[i] == TrnType.TENDON:
            t = m.actuator_trnid[i][0]
            along[t] = along.get(t, 0.0) + force * m.actuator_gear[i][0]
    d.tendon_wrench = {}
    for t, force in along.items():
        for body, wrench in d.ten_wrench[t].items():
            d.tendon_wrench[body] = add_scaled(d.tendon_wrench.get(body, zeros(6)), wrench, force)


def _ctrl(m: Model, d: Data, i: int) -> Scalar:
    """The control, held in its range."""
    return clip(d.ctrl[i], *m.actuator_ctrlrange[i]) if m.actuator_ctrllimited[i] else d.ctrl[i]


def _within_tendons(m: Model, forces: list[Scalar]) -> list[Scalar]:
    """The forces, of which those on one tendon are scaled so that their sum is within its actuatorfrcrange."""
    for t in range(m.ntendon):
        on = _pulling(m, t)
        if not (on and m.tendon_actfrclimited[t]):
            continue
        total = sum_of(forces[i] for i in on)
        none, (low, high) = absolute(total) <= 0.0, m.tendon_actfrcrange[t]
        nearest = clip(total, low, high) / select(none, 1.0, total)
        share = select(none, 1.0, select(logical_or(total < low, total > high), nearest, 1.0))
        forces = [x * share if i in on else x for i, x in enumerate(forces)]
    return forces


def _pulling(m: Model, t: int) -> list[int]:
    """The actuators on a tendon."""
    return [i for i in range(m.nu) if m.actuator_trntype[i] == TrnType.TENDON and m.actuator_trnid[i][0] == t]


def _force(m: Model, d: Data, i: int, ctrl: Scalar) -> Scalar:
    """Gain times control or activation, plus bias, before any range."""
    if m.actuator_disabled[i]:
        return 0.0
    length, velocity = d.actuator_length[i], d.actuator_velocity[i]
    force = drive(m, d, i, ctrl) * _gain(m, i, length, velocity)
    if m.actuator_biastype[i] == BiasType.AFFINE:
        force = force + _affine(m.actuator_biasprm[i], length, velocity)
    elif m.actuator_biastype[i] == BiasType.MUSCLE:
        force = force + muscle_bias(m, i, length)
    return force


def _gain(m: Model, i: int, length: Scalar, velocity: Scalar) -> Scalar:
    if m.actuator_gaintype[i] == GainType.MUSCLE:
        return muscle_gain(m, i, length, velocity)
    prm = m.actuator_gainprm[i]
    return _affine(prm, length, velocity) if m.actuator_gaintype[i] == GainType.AFFINE else prm[0]


def force_rate(m: Model, d: Data, i: int) -> Scalar:
    """How the force changes with the actuator's velocity: not at all where it, or that on its joint or tendon, is held
    within its range. mjd_actuator_vel.
    """
    if m.actuator_disabled[i] or not m.actuation:
        return 0.0
    rate: Scalar = m.actuator_biasprm[i][2] if m.actuator_biastype[i] == BiasType.AFFINE else 0.0
    gain_rate = _gain_rate(m, d, i)
    if not is_zero(gain_rate):
        rate = rate + gain_rate * drive(m, d, i, _ctrl(m, d, i))
    if is_zero(rate):
        return rate
    if m.actuator_forcelimited[i]:
        rate = select(_within(d.actuator_force[i], m.actuator_forcerange[i]), rate, 0.0)
    j = m.actuator_trnid[i][0]
    if m.actuator_trntype[i] in (TrnType.JOINT, TrnType.JOINTINPARENT) and m.jnt_actfrclimited[j]:
        rate = select(_within(d.qfrc_actuator[m.jnt_dofadr[j]], m.jnt_actfrcrange[j]), rate, 0.0)
    t = m.actuator_trnid[i][0]
    if m.actuator_trntype[i] == TrnType.TENDON and m.tendon_actfrclimited[t]:
        asked = sum_of(_force(m, d, k, _ctrl(m, d, k)) for k in _pulling(m, t))
        rate = select(_within(asked, m.tendon_actfrcrange[t]), rate, 0.0)
    return rate


def _gain_rate(m: Model, d: Data, i: int) -> Scalar:
    if m.actuator_gaintype[i] == GainType.MUSCLE:
        return muscle_gain_rate(m, i, d.actuator_length[i], d.actuator_velocity[i])
    return m.actuator_gainprm[i][2] if m.actuator_gaintype[i] == GainType.AFFINE else 0.0


def _within(x: Scalar, ends: Vec) -> Mask:
    return logical_and(x > ends[0], x < ends[1])


def _affine(prm: Vec, length: Scalar, velocity: Scalar) -> Scalar:
    total = prm[0]
    for factor, x in ((prm[1], length), (prm[2], velocity)):
        if not is_zero(factor):
            total = total + factor * x
    return total
