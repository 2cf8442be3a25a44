"""Damping and armature of joints and tendons, with what actuators give those that they drive, by the square of their
gears: mj_actuatorDamping, mj_actuatorArmature.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...compiler.scalar import Scalar
from ..algebra.spatial import is_zero
from ..model.model import Model
from .actuators.driven import OF_JOINTS, OF_TENDONS, drivers


def dof_damping(m: Model, v: int) -> tuple[Scalar, list[Scalar]]:
    """That of dof v, as `springs` takes it: the first coefficient of a polynomial, and the others."""
    return _damping(m, m.dof_damping[v], m.dof_dampingpoly[v], OF_JOINTS, m.dof_jntid[v])


def dof_armature(m: Model, v: int) -> Scalar:
    """That of dof v."""
    return _sum(m, m.dof_armature[v], m.actuator_armature, OF_JOINTS, m.dof_jntid[v])


def tendon_damping(m: Model, t: int) -> tuple[Scalar, list[Scalar]]:
    """As `dof_damping`."""
    return _damping(m, m.tendon_damping[t], m.tendon_dampingpoly[t], OF_TENDONS, t)


def tendon_armature(m: Model, t: int) -> Scalar:
    """That of tendon t."""
    return _sum(m, m.tendon_armature[t], m.actuator_armature, OF_TENDONS, t)


def gives_armature(m: Model) -> bool:
    """Whether any actuator does."""
    return not all(map(is_zero, m.actuator_armature))


def damped_by_actuators(m: Model) -> bool:
    """Whether any joint is, or has armature of an actuator: MuJoCo does not tell these apart."""
    given = zip(m.actuator_trntype, m.actuator_damping, m.actuator_armature, m.actuator_dampingpoly, strict=True)
    return any(kind in OF_JOINTS and not all(map(is_zero, (a, b, *rest))) for kind, a, b, rest in given)


def _damping(
    m: Model, k: Scalar, coefficients: Sequence, kinds: tuple[int, ...], driven: int
) -> tuple[Scalar, list[Scalar]]:
    columns = list(zip(*m.actuator_dampingpoly, strict=True)) or [()] * len(coefficients)
    higher = [_sum(m, c, given, kinds, driven) for c, given in zip(coefficients, columns, strict=True)]
    return _sum(m, k, m.actuator_damping, kinds, driven), higher


def _sum(m: Model, own: Scalar, given: Sequence, kinds: tuple[int, ...], driven: int) -> Scalar:
    """What a joint or tendon has of its own, and what actuators that drive it give."""
    for i in drivers(m, kinds, driven):
        if not is_zero(given[i]):
            own = own + given[i] * (m.actuator_gear[i][0] * m.actuator_gear[i][0])
    return own
