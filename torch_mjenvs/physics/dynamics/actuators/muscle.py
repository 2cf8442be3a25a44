"""Muscles: how fast they are activated, and the forces that they give at a length. mju_muscleDynamics and so on.

Lengths are in units of the optimal length L0, which follows from `actuator_lengthrange`; velocities in L0 a second.
Parameters, of gain and bias alike: (shortest, longest, force, scale, lmin, lmax, vmax, fpmax, fvmax).
"""

from __future__ import annotations

from ....compiler.scalar import Scalar, clip, logical_and, maximum, select
from ...algebra.spatial import MINVAL, Vec, is_number
from ...model.model import Model


def muscle_rate(ctrl: Scalar, act: Scalar, prm: Vec) -> Scalar:
    """Return the rate of a muscle's activation. mju_muscleDynamics.

    prm: the time constants to activate and to deactivate, and the width of the switch between them.
    """
    pace = 0.5 + 1.5 * clip(act, 0.0, 1.0)
    rising, falling, width = prm[0] * pace, prm[1] / pace, prm[2]
    excess = clip(ctrl, 0.0, 1.0) - act
    tau = select(excess > 0.0, rising, falling)
    if not (is_number(width) and width < MINVAL):
        x = clip(excess / maximum(width, MINVAL) + 0.5, 0.0, 1.0)
        smooth = falling + (rising - falling) * (x * x * x * (3.0 * x * (2.0 * x - 5.0) + 10.0))
        tau = select(width < MINVAL, tau, smooth)
    return excess / maximum(tau, MINVAL)


def muscle_gain(m: Model, i: int, prm: Vec, length: Scalar, velocity: Scalar) -> Scalar:
    """Return the force of a fully activated muscle, in N: negative, for muscles pull. mju_muscleGain."""
    most, unit, by_length = _at_rest(m, i, prm, length)
    return -(most * by_length * _velocity_curve(velocity / unit, prm[8]))


def muscle_gain_rate(m: Model, i: int, prm: Vec, length: Scalar, velocity: Scalar) -> Scalar:
    """Return the derivative of `muscle_gain` by velocity. mjd_muscleGain_vel."""
    most, unit, by_length = _at_rest(m, i, prm, length)
    return -(most * by_length * _velocity_slope(velocity / unit, prm[8]) / unit)


def _at_rest(m: Model, i: int, prm: Vec, length: Scalar) -> tuple[Scalar, Scalar, Scalar]:
    """Return the peak force, the greatest speed, and the share of the force that the length leaves."""
    unit, at = _optimal(m, i, prm, length)
    return _peak_force(m, i, prm), maximum(unit * prm[6], MINVAL), _length_curve(at, prm[4], prm[5])


def muscle_bias(m: Model, i: int, prm: Vec, length: Scalar, velocity: Scalar) -> Scalar:
    """Return the passive force of a stretched muscle, at any velocity: a parabola, then a line. mju_muscleBias."""
    _, at = _optimal(m, i, prm, length)
    half = 0.5 * (1.0 + prm[5])
    x = (at - 1.0) / maximum(half - 1.0, MINVAL)
    beyond = (at - half) / maximum(half - 1.0, MINVAL)
    share = select(at <= 1.0, 0.0, select(at <= half, 0.5 * x * x, 0.5 + beyond))
    return -(_peak_force(m, i, prm) * prm[7] * share)


def _peak_force(m: Model, i: int, prm: Vec) -> Scalar:
    """Return the greatest force: the one given, or if that is negative, one that follows from the inertia it moves."""
    return select(prm[2] < 0.0, prm[3] / maximum(m.actuator_acc0[i], MINVAL), prm[2])


def _optimal(m: Model, i: int, prm: Vec, length: Scalar) -> tuple[Scalar, Scalar]:
    """Return L0, and the length in units of it."""
    low, high = m.actuator_lengthrange[i]
    unit = (high - low) / maximum(prm[1] - prm[0], MINVAL)
    return unit, prm[0] + (length - low) / maximum(unit, MINVAL)


def _length_curve(at: Scalar, low: Scalar, high: Scalar) -> Scalar:
    """Return the force-length factor: a hump of four parabolas, 1 at length 1, 0 out of range. mju_muscleGainLength."""
    left, right = 0.5 * (low + 1.0), 0.5 * (1.0 + high)
    rise, fall = (at - low) / maximum(left - low, MINVAL), (high - at) / maximum(high - right, MINVAL)
    before, after = (1.0 - at) / maximum(1.0 - left, MINVAL), (at - 1.0) / maximum(right - 1.0, MINVAL)
    upper = select(at <= right, 1.0 - 0.5 * after * after, 0.5 * fall * fall)
    hump = select(at <= left, 0.5 * rise * rise, select(at <= 1.0, 1.0 - 0.5 * before * before, upper))
    return select(logical_and(at >= low, at <= high), hump, 0.0)


def _velocity_curve(speed: Scalar, most: Scalar) -> Scalar:
    """Return the force-velocity factor: 0 when shortening at full speed, 1 at rest, `most` when stretched fast."""
    room = most - 1.0
    pulled = most - (room - speed) * (room - speed) / maximum(room, MINVAL)
    shortening = select(speed <= -1.0, 0.0, (speed + 1.0) * (speed + 1.0))
    return select(speed <= 0.0, shortening, select(speed <= room, pulled, most))


def _velocity_slope(speed: Scalar, most: Scalar) -> Scalar:
    """Return the derivative of `_velocity_curve`."""
    room = most - 1.0
    pulled = select(speed <= room, 2.0 * (room - speed) / maximum(room, MINVAL), 0.0)
    return select(speed <= 0.0, select(speed <= -1.0, 0.0, 2.0 * (speed + 1.0)), pulled)
