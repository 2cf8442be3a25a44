"""Activations, the state that some actuators have: act_dot of mj_fwdActuation, mj_nextActivation, mj_advance.

Where a length is an angle about an axis in space, a set point and one a full turn away are the same, and a position
servo takes the nearest.
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
    logical_and,
    logical_or,
    maximum,
    select,
    sin,
)
from ...algebra.spatial import MINVAL, Vec, is_number, is_zero, norm
from ...model.data import Data
from ...model.model import Model
from .kinds import dynamics_of, may_be_servo
from .transmissions import TRANSMISSIONS, Angle


def check_act(m: Model, act: Sequence[Scalar]) -> None:
    """Raise ValueError for a wrong number of activations."""
    if len(act) != m.na:
        raise ValueError(f"act has {len(act)} entries, and the model {m.na} activations")


def activation_rate(m: Model, i: int, act: Scalar, ctrl: Scalar) -> Scalar:
    """Return act_dot of actuator i, which must have an activation."""
    kind = dynamics_of(m, i)
    assert kind.rate, "an actuator without an activation has no rate"
    return kind.rate(nearest_turn(m, i, ctrl, act) if kind.approaches else ctrl, act, m.actuator_dynprm[i])


def next_activation(m: Model, i: int, act: Scalar, rate: Scalar) -> Scalar:
    """Return the activation after a time step at this rate, within its range. mj_nextActivation."""
    act = act + rate * dynamics_of(m, i).duration(m.timestep, m.actuator_dynprm[i])
    return clip(act, *m.actuator_actrange[i]) if m.actuator_actlimited[i] else act


def drive(m: Model, d: Data, i: int, ctrl: Scalar) -> Scalar:
    """Return the number that actuator i's gain multiplies: its control, or its activation now or after this step."""
    a = m.actuator_actadr[i]
    if a >= 0:
        ctrl = next_activation(m, i, d.act[a], d.act_dot[a]) if m.actuator_actearly[i] else d.act[a]
    return nearest_turn(m, i, ctrl, d.actuator_length[i])


def advance(m: Model, act: list[Scalar], rates: list[Scalar], lengths: Mapping[int, Scalar]) -> list[Scalar]:
    """Return the activations after a step at these rates. mj_advance.

    lengths: those of the actuators in `wrapping_setpoints`, or none.
    """
    out = list(act)
    for i, a in enumerate(m.actuator_actadr):
        if a >= 0 and m.actuation:
            out[a] = next_activation(m, i, act[a], 0.0 if m.actuator_disabled[i] else rates[a])
            if i in lengths:
                out[a] = nearest_turn(m, i, out[a], lengths[i])
    return out


def wrapping_setpoints(m: Model) -> list[int]:
    """Return the actuators whose activation is a set point that could wind up: a step moves it to the nearest turn."""
    return [i for i in range(m.nu) if m.actuator_actadr[i] >= 0 and servo_angle(m, i)]


def servo_angle(m: Model, i: int) -> Angle | None:
    """Return the angle that actuator i measures if it may be a position servo of an angle; else None."""
    angle = TRANSMISSIONS[m.actuator_trntype[i]].angle(m, i)
    if angle is None or not may_be_servo(m, i):
        return None
    return angle if all(is_zero(x) or not is_number(x) for x in angle.others) else None


def held_to_a_turn(m: Model) -> Mask:
    """Return in which worlds the set point of any actuator is held to the nearest turn at the end of a step. There,
    MuJoCo ends a Runge-Kutta step with the lengths that all actuators had at its start.
    """
    angles = [(i, servo_angle(m, i)) for i in wrapping_setpoints(m)]
    held = (logical_and(_is_servo(m, i, angle), norm(angle.gear) > 0.0) for i, angle in angles if angle)
    return logical_or(*held, False)


def nearest_turn(m: Model, i: int, target: Scalar, length: Scalar) -> Scalar:
    """Return the target, or for a position servo of an angle, the set point nearest to this length among those that are
    full turns away from the target.
    """
    angle = servo_angle(m, i)
    return _nearest(target, length, angle.gear, _is_servo(m, i, angle)) if angle else target


def _is_servo(m: Model, i: int, angle: Angle) -> Mask:
    """Return where actuator i is a position servo of this angle, which `servo_angle` gave."""
    servo = absolute(m.actuator_gainprm[i][0] + m.actuator_biasprm[i][1]) <= 0.0
    return logical_and(servo, *(absolute(x) <= 0.0 for x in angle.others))


def _nearest(target: Scalar, length: Scalar, gear: Vec, servo: Mask) -> Scalar:
    if servo is False:
        return target
    turn = maximum(norm(gear), MINVAL)  # of the length for each radian
    error = (target - length) / turn
    nearest = length + atan2(sin(error), cos(error)) * turn
    return select(logical_and(servo, absolute(error) > math.pi), nearest, target)
