"""Damping and armature of joints and tendons, with the share of actuators. mj_actuatorDamping, mj_actuatorArmature.

An actuator adds its own, times the square of its gear.
"""

from __future__ import annotations

from ...compiler.scalar import Scalar
from ..algebra.spatial import Vec, is_zero
from ..model.model import Model
from .actuators.driven import OF_JOINTS, OF_TENDONS, drivers


def dof_damping(m: Model, v: int) -> tuple[Scalar, list[Scalar]]:
    """Return the damping of dof v as `springs` takes it: the first coefficient of a polynomial, and the others."""
    return _damping(m, m.dof_damping[v], m.dof_dampingpoly[v], OF_JOINTS, m.dof_jntid[v])


def dof_armature(m: Model, v: int) -> Scalar:
    """Return the armature of dof v, including what actuators add to it."""
    return _sum(m, m.dof_armature[v], m.actuator_armature, OF_JOINTS, m.dof_jntid[v])


def tendon_damping(m: Model, t: int) -> tuple[Scalar, list[Scalar]]:
    """Return the damping of tendon t as `springs` takes it: the first coefficient of a polynomial, and the others."""
    return _damping(m, m.tendon_damping[t], m.tendon_dampingpoly[t], OF_TENDONS, t)


def tendon_armature(m: Model, t: int) -> Scalar:
    """Return the armature of tendon t, including what actuators add to it."""
    return _sum(m, m.tendon_armature[t], m.actuator_armature, OF_TENDONS, t)


def gives_armature(m: Model) -> bool:
    """Return whether any actuator adds armature to what it drives."""
    return not all(map(is_zero, m.actuator_armature))


def damped_by_actuators(m: Model) -> bool:
    """Return whether actuators add damping or armature to any joint; MuJoCo does not tell these apart."""
    given = zip(m.actuator_trntype, m.actuator_damping, m.actuator_armature, m.actuator_dampingpoly, strict=True)
    return any(kind in OF_JOINTS and not all(map(is_zero, (a, b, *rest))) for kind, a, b, rest in given)


def _damping(
    m: Model, k: Scalar, coefficients: Vec, kinds: tuple[int, ...], driven: int
) -> tuple[Scalar, list[Scalar]]:
    columns = list(zip(*m.actuator_dampingpoly, strict=True)) or [()] * len(coefficients)
    higher = [_sum(m, c, given, kinds, driven) for c, given in zip(coefficients, columns, strict=True)]
    return _sum(m, k, m.actuator_damping, kinds, driven), higher


def _sum(m: Model, own: Scalar, given: Vec, kinds: tuple[int, ...], driven: int) -> Scalar:
    """Return a coefficient of a joint or tendon: its own, plus what the actuators that drive it add."""
    for i in drivers(m, kinds, driven):
        if not is_zero(given[i]):
            own = own + given[i] * (m.actuator_gear[i][0] * m.actuator_gear[i][0])
    return own
