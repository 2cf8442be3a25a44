"""Actuators: mj_transmission, mj_fwdActuation.

An actuator's length L is what its transmission measures of the positions. Its moment is the row dL/dq: it gives the
velocity, and takes the force to the dofs. Rows are kept sparse, {dof: entry}.
"""

from __future__ import annotations

from ....compiler.scalar import Mask, Scalar, absolute, clip, logical_and, logical_or, select
from ...algebra.sparse import row_times
from ...algebra.spatial import Vec, add_scaled, is_zero, sum_of, zeros
from ...model.data import Data, stage
from ...model.model import Model
from ..history import control
from ..tendons.tendon import springy_tendons
from .activation import activation_rate, drive
from .driven import OF_JOINTS, OF_TENDONS, drivers
from .kinds import BIASES, GAINS
from .transmissions import TRANSMISSIONS

AT_AN_END = 1e-10  # a tendon's force within this share of an end of its actuatorfrcrange counts as clamped


@stage(
    reads="qpos qvel ten_length ten_J site_xmat site_xrel xquat origin odof contact_moment",
    computes="actuator_length actuator_moment actuator_velocity",
)
def transmission(m: Model, d: Data) -> None:
    """Compute the lengths, moments and velocities of actuators. mj_transmission, mj_fwdVelocity."""
    found = [TRANSMISSIONS[kind].measure(m, d, i) for i, kind in enumerate(m.actuator_trntype)]
    d.actuator_length = [length for length, _ in found]
    d.actuator_moment = [moment for _, moment in found]
    d.actuator_velocity = [row_times(moment, d.qvel) if m.actuation else 0.0 for moment in d.actuator_moment]


@stage(
    reads="act ctrl history ahead actuator_length actuator_moment actuator_velocity ten_force ten_wrench qfrc_gravcomp",
    computes="act_dot actuator_force qfrc_actuator tendon_wrench",
)
def actuation(m: Model, d: Data) -> None:
    """Compute the rates of activations and the forces of actuators from d.ctrl and d.act. mj_fwdActuation."""
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
        if m.actuator_trntype[i] in OF_TENDONS:
            t = m.actuator_trnid[i][0]
            along[t] = along.get(t, 0.0) + force * m.actuator_gear[i][0]
    d.tendon_wrench = {}
    for t, force in along.items():
        for body, wrench in d.ten_wrench[t].items():
            d.tendon_wrench[body] = add_scaled(d.tendon_wrench.get(body, zeros(6)), wrench, force)


def _ctrl(m: Model, d: Data, i: int) -> Scalar:
    """Return the control that actuator i follows, held in its range."""
    given = control(m, d, i)
    return clip(given, *m.actuator_ctrlrange[i]) if m.actuator_ctrllimited[i] else given


def _within_tendons(m: Model, forces: list[Scalar]) -> list[Scalar]:
    """Return the forces, with those on one tendon scaled so that their sum is within its actuatorfrcrange."""
    for t in range(m.ntendon):
        on = drivers(m, OF_TENDONS, t)
        if not (on and m.tendon_actfrclimited[t]):
            continue
        total = sum_of(forces[i] for i in on)
        none, (low, high) = absolute(total) <= 0.0, m.tendon_actfrcrange[t]
        nearest = clip(total, low, high) / select(none, 1.0, total)
        share = select(none, 1.0, select(logical_or(total < low, total > high), nearest, 1.0))
        forces = [x * share if i in on else x for i, x in enumerate(forces)]
    return forces


def _force(m: Model, d: Data, i: int, ctrl: Scalar) -> Scalar:
    """Return gain times control or activation, plus bias, before any range."""
    if m.actuator_disabled[i]:
        return 0.0
    gain, bias, moving = GAINS[m.actuator_gaintype[i]], BIASES[m.actuator_biastype[i]], _moving(d, i)
    force = drive(m, d, i, ctrl)
    if gain.value:
        force = force * gain.value(m, i, m.actuator_gainprm[i], *moving)
    return force + bias.value(m, i, m.actuator_biasprm[i], *moving) if bias.value else force


def _moving(d: Data, i: int) -> tuple[Scalar, Scalar]:
    """Return length and velocity of actuator i."""
    return d.actuator_length[i], d.actuator_velocity[i]


def force_rate(m: Model, d: Data, i: int) -> Scalar:
    """Return the derivative of the force by the actuator's velocity. mjd_actuator_vel.

    It is 0 where the force, or that on its joint or tendon, is clamped to its range. For actuators on a tendon: it is 0
    for all of them if their total, after each was clamped to its own forcerange, is at an end of the tendon's
    actuatorfrcrange.
    """
    if m.actuator_disabled[i] or not m.actuation:
        return 0.0
    gain, bias, moving = GAINS[m.actuator_gaintype[i]], BIASES[m.actuator_biastype[i]], _moving(d, i)
    rate = bias.rate(m, i, m.actuator_biasprm[i], *moving)
    gain_rate = gain.rate(m, i, m.actuator_gainprm[i], *moving)
    if not is_zero(gain_rate):
        rate = rate + gain_rate * drive(m, d, i, _ctrl(m, d, i))
    if is_zero(rate):
        return rate
    if m.actuator_forcelimited[i]:
        rate = select(_within(d.actuator_force[i], m.actuator_forcerange[i]), rate, 0.0)
    j = t = m.actuator_trnid[i][0]
    if m.actuator_trntype[i] in OF_JOINTS and m.jnt_actfrclimited[j]:
        rate = select(_within(d.qfrc_actuator[m.jnt_dofadr[j]], m.jnt_actfrcrange[j]), rate, 0.0)
    if m.actuator_trntype[i] in OF_TENDONS and m.tendon_actfrclimited[t]:
        total, rounding = sum_of(d.actuator_force[k] for k in drivers(m, OF_TENDONS, t)), d.precision.pivot
        ends = [x * (1.0 - max(AT_AN_END, rounding)) for x in m.tendon_actfrcrange[t]]
        rate = select(_within(total, ends), rate, 0.0)
    return rate


def _within(x: Scalar, ends: Vec) -> Mask:
    return logical_and(x > ends[0], x < ends[1])
