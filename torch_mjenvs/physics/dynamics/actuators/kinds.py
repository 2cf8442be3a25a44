"""The kinds of activation dynamics, gains and biases: all that is known of each, in `DYNAMICS`, `GAINS` and `BIASES`.

Keys are mjtDyn, mjtGain and mjtBias. No other place names these kinds; all others are refused by name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ....compiler.scalar import Scalar, exp, maximum
from ...algebra.spatial import MINVAL, Vec, is_zero
from ...model.enums import BiasType, DynType, GainType
from ...model.model import Model
from .muscle import muscle_bias, muscle_gain, muscle_gain_rate, muscle_rate


@dataclass(frozen=True)
class Dynamics:
    """A kind of activation dynamics: how an actuator's activation follows its control.

    rate: act_dot, from the control, the activation and actuator_dynprm; None if there is no activation.
    duration: for how long the activation moves at this rate in a step, from the time step and actuator_dynprm.
    approaches: whether the activation approaches the control. Where the two are angles, it goes the short way round.
    set_point: whether what the gain multiplies may be the set point of a servo.
    """

    rate: Callable[[Scalar, Scalar, Vec], Scalar] | None
    duration: Callable[[float, Vec], Scalar] = lambda timestep, prm: timestep
    approaches: bool = False
    set_point: bool = True


Law = Callable[[Model, int, Vec, Scalar, Scalar], Scalar]


@dataclass(frozen=True)
class Term:
    """A kind of gain, which control or activation is multiplied by, or of bias, which is added.

    Both functions take the model, the actuator, its actuator_gainprm or actuator_biasprm, its length and its velocity.

    value: the gain, or the bias; None if there is none.
    rate: the derivative of `value` by velocity, for implicit steps.
    acc0: whether it depends on actuator_acc0, which then follows masses and inertias that vary.
    """

    value: Law | None
    rate: Law = lambda m, i, prm, length, velocity: 0.0
    acc0: bool = False


def _filter(ctrl: Scalar, act: Scalar, prm: Vec) -> Scalar:
    return (ctrl - act) / maximum(prm[0], MINVAL)


def _exact_duration(timestep: float, prm: Vec) -> Scalar:
    """Return the time in which a filter, at the rate of its start, gets to where it exactly is after the step."""
    tau = maximum(prm[0], MINVAL)
    return tau * (1.0 - exp(-(timestep / tau)))


def _affine(m: Model, i: int, prm: Vec, length: Scalar, velocity: Scalar) -> Scalar:
    total = prm[0]
    for factor, x in ((prm[1], length), (prm[2], velocity)):
        if not is_zero(factor):
            total = total + factor * x
    return total


_AFFINE = Term(_affine, rate=lambda m, i, prm, length, velocity: prm[2])

DYNAMICS: dict[int, Dynamics] = {
    DynType.NONE: Dynamics(None),
    DynType.INTEGRATOR: Dynamics(lambda ctrl, act, prm: ctrl),
    DynType.FILTER: Dynamics(_filter, approaches=True),
    DynType.FILTEREXACT: Dynamics(_filter, duration=_exact_duration, approaches=True),
    DynType.MUSCLE: Dynamics(muscle_rate, set_point=False),
}
GAINS: dict[int, Term] = {
    GainType.FIXED: Term(lambda m, i, prm, length, velocity: prm[0]),
    GainType.AFFINE: _AFFINE,
    GainType.MUSCLE: Term(muscle_gain, rate=muscle_gain_rate, acc0=True),
}
BIASES: dict[int, Term] = {
    BiasType.NONE: Term(None),
    BiasType.AFFINE: _AFFINE,
    BiasType.MUSCLE: Term(muscle_bias, acc0=True),
}


def dynamics_of(m: Model, i: int) -> Dynamics:
    """Return the kind of actuator i's activation dynamics."""
    return DYNAMICS[m.actuator_dyntype[i]]


def may_be_servo(m: Model, i: int) -> bool:
    """Return whether actuator i may be a position servo: to MuJoCo, fixed gain and affine bias of opposite slope."""
    law = m.actuator_gaintype[i], m.actuator_biastype[i]
    return law == (GainType.FIXED, BiasType.AFFINE) and dynamics_of(m, i).set_point


def forces_by_acc0(m: Model) -> list[int]:
    """Return the actuators whose force depends on actuator_acc0, the acceleration that a unit of force gives."""
    laws = enumerate(zip(m.actuator_gaintype, m.actuator_biastype, strict=True))
    return [i for i, (gain, bias) in laws if GAINS[gain].acc0 or BIASES[bias].acc0]
