"""Activations, the state that some actuators have: what mj_fwdActuation says of act_dot, mj_nextActivation, mj_advance.

Also which turn a set point is in: where a length is an angle about an axis in space, a set point and one a full turn
away are the same, and a position servo takes the nearest.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ....compiler.scalar import (
    Mask,
    Scalar,
    absolute,
    atan2,
    clip,
    cos,
    exp,
    logical_and,
    logical_or,
    maximum,
    select,
    sin,
)
from ...algebra.spatial import MINVAL, Vec, is_number, is_zero, norm
from ...model.data import Data
from ...model.enums import BiasType, DynType, GainType, JointType, TrnType
from ...model.model import Model
from .muscle import muscle_rate


def check_act(m: Model, act: Sequence[Scalar]) -> None:
    """Raises ValueError for a wrong number of activations."""
    if len(act) != m.na:
        raise ValueError(f"act has {len(act)} entries, and the model {m.na} activations")


def activation_rate(m: Model, i: int, act: Scalar, ctrl: Scalar) -> Scalar:
    """act_dot of actuator i."""
    kind, prm = m.actuator_dyntype[i], m.actuator_dynprm[i]
    if kind == DynType.INTEGRATOR:
        return ctrl
    if kind == DynType.MUSCLE:
        return muscle_rate(ctrl, act, prm)
    return (nearest_turn(m, i, ctrl, act) - act) / maximum(prm[0], MINVAL)


def next_activation(m: Model, i: int, act: Scalar, rate: Scalar) -> Scalar:
    """The activation after a time step at this rate, within its range. mj_nextActivation."""
    time: Scalar = m.timestep
    if m.actuator_dyntype[i] == DynType.FILTEREXACT:
        tau = maximum(m.actuator_dynprm[i][0], MINVAL)
        time = tau * (1.0 - exp(-(m.timestep / tau)))
    act = act + rate * time
    return clip(act, *m.actuator_actrange[i]) if m.actuator_actlimited[i] else act


def drive(m: Model, d: Data, i: int, ctrl: Scalar) -> Scalar:
    """What the gain of actuator i multiplies: its control, or its activation, now or after this step."""
    a = m.actuator_actadr[i]
    if a >= 0:
        ctrl = next_activation(m, i, d.act[a], d.act_dot[a]) if m.actuator_actearly[i] else d.act[a]
    return nearest_turn(m, i, ctrl, d.actuator_length[i])


def advance(m: Model, act: list[Scalar], rates: list[Scalar], lengths: Mapping[int, Scalar]) -> list[Scalar]:
    """Activations after a step at these rates, where the actuators of `winding` have these lengths. mj_advance."""
    out = list(act)
    for i, a in enumerate(m.actuator_actadr):
        if a >= 0 and m.actuation:
            out[a] = next_activation(m, i, act[a], 0.0 if m.actuator_disabled[i] else rates[a])
            if i in lengths:
                out[a] = nearest_turn(m, i, out[a], lengths[i])
    return out


def winding(m: Model) -> list[int]:
    """Actuators whose activation is a set point that could wind up: a step ends with the nearest turn."""
    return [i for i in range(m.nu) if m.actuator_actadr[i] >= 0 and may_turn(m, i)]


def may_turn(m: Model, i: int) -> bool:
    """Whether actuator i may be a position servo whose length is an angle about an axis in space."""
    kind, (target, reference) = m.actuator_trntype[i], m.actuator_trnid[i]
    if kind == TrnType.SITE:
        rotational = reference >= 0 and all(is_zero(x) or not is_number(x) for x in m.actuator_gear[i][:3])
    else:
        rotational = kind in (TrnType.JOINT, TrnType.JOINTINPARENT) and m.jnt_type[target] == JointType.BALL
    servo = m.actuator_gaintype[i] == GainType.FIXED and m.actuator_biastype[i] == BiasType.AFFINE
    return rotational and servo and m.actuator_dyntype[i] != DynType.MUSCLE


def held_to_a_turn(m: Model) -> Mask:
    """Whether any actuator of `winding` is such a servo. Where one is, MuJoCo ends a Runge-Kutta step with the lengths
    of all actuators at its start, by which set points are held to the nearest turn.
    """
    return logical_or(*(logical_and(_is_servo(m, i), norm(_turning(m, i)) > 0.0) for i in winding(m)), False)


def nearest_turn(m: Model, i: int, target: Scalar, length: Scalar) -> Scalar:
    """Where the actuator is a position servo, the set point nearest to this length of those that are full turns away
    from the target.
    """
    return _nearest(target, length, _turning(m, i), _is_servo(m, i)) if may_turn(m, i) else target


def _is_servo(m: Model, i: int) -> Mask:
    """Of those that may turn."""
    servo = absolute(m.actuator_gainprm[i][0] + m.actuator_biasprm[i][1]) <= 0.0
    if m.actuator_trntype[i] == TrnType.SITE:
        servo = logical_and(servo, *(absolute(x) <= 0.0 for x in m.actuator_gear[i][:3]))
    return servo


def _turning(m: Model, i: int) -> Vec:
    """The part of its gear that turns."""
    return m.actuator_gear[i][3:] if m.actuator_trntype[i] == TrnType.SITE else m.actuator_gear[i][:3]


def _nearest(target: Scalar, length: Scalar, gear: Vec, servo: Mask) -> Scalar:
    if servo is False:
        return target
    turn = maximum(norm(gear), MINVAL)  # of the length for each radian
    error = (target - length) / turn
    nearest = length + atan2(sin(error), cos(error)) * turn
    return select(logical_and(servo, absolute(error) > math.pi), nearest, target)
