"""Feet, for tasks of legged robots: contacts, times on the ground and in the air, the height of a swing, slip.

Functions of lists with one entry per foot. A task keeps their state in its memory: see docs/tasks.md.
"""

from __future__ import annotations

from collections.abc import Sequence

from .scalar import Mask, Scalar, logical_and, logical_not, maximum, select, sqrt

__all__ = ["air_time", "contact_time", "contacts", "liftoff", "slip", "swing_peak", "touchdown"]


def contacts(sensed: Sequence[Scalar], least: float = 0.0) -> list[Mask]:
    """Return which feet touch: those whose sensor has more than `least`.

    sensed: for each foot the `found` of a contact sensor, or a force (N), such as that of a touch sensor.
    """
    return [x > least for x in sensed]


def air_time(before: Sequence[Scalar], contact: Sequence[Mask], dt: float) -> list[Scalar]:
    """Return for how long each foot has been in the air (s): `before` and a step of `dt`, or 0 where it touches."""
    return [select(touches, 0.0, x + dt) for x, touches in zip(before, contact, strict=True)]


def contact_time(before: Sequence[Scalar], contact: Sequence[Mask], dt: float) -> list[Scalar]:
    """Return for how long each foot has touched (s): `before` and a step of `dt`, or 0 where it is in the air."""
    return [select(touches, x + dt, 0.0) for x, touches in zip(before, contact, strict=True)]


def touchdown(air_time_before: Sequence[Scalar], contact: Sequence[Mask]) -> list[Mask]:
    """Return which feet touch now and were in the air before this step, by their air time until then (s)."""
    return [logical_and(touches, x > 0.0) for x, touches in zip(air_time_before, contact, strict=True)]


def liftoff(contact_time_before: Sequence[Scalar], contact: Sequence[Mask]) -> list[Mask]:
    """Return which feet are in the air now and touched before this step, by their contact time until then (s)."""
    return [logical_and(logical_not(touches), x > 0.0) for x, touches in zip(contact_time_before, contact, strict=True)]


def swing_peak(before: Sequence[Scalar], height: Sequence[Scalar], contact: Sequence[Mask]) -> list[Scalar]:
    """Return how high each foot has been since it left the ground (m): 0 where it touches.

    height: of each foot above the ground now (m). At a touchdown the height of the swing that ends is in `before`.
    """
    return [select(touches, 0.0, maximum(x, z)) for x, z, touches in zip(before, height, contact, strict=True)]


def slip(velocity: Sequence[Sequence[Scalar]], contact: Sequence[Mask]) -> list[Scalar]:
    """Return how fast each foot slides over level ground (m/s): 0 where it is in the air.

    velocity: of each foot, in world axes (m/s); only the first two numbers are used.
    """
    return [select(touches, sqrt(v[0] * v[0] + v[1] * v[1]), 0.0) for v, touches in zip(velocity, contact, strict=True)]
