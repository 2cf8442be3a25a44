"""Springs and dampers whose stiffness or damping is a polynomial: k(x) = k + c0 x + c1 x**2, of force -x k(x).

x how far a spring is from its rest; of a damper, how fast it moves, without the sign
"""

from __future__ import annotations

from ...compiler.scalar import Scalar
from ..algebra.spatial import Vec, is_zero
from ..model.data import Data
from ..model.model import Model


def stiffness_at(k: Scalar, coefficients: Vec, x: Scalar) -> Scalar:
    """Return the stiffness k(x). mju_polyForce."""
    if all(map(is_zero, coefficients)):
        return k
    rest: Scalar = 0.0
    for c in reversed(coefficients):
        rest = (rest + c) * x
    return k + rest


def rate_at(k: Scalar, coefficients: Vec, x: Scalar) -> Scalar:
    """Return the derivative of x k(x). mjd_xPolyForce."""
    return stiffness_at(k, [(n + 2) * c for n, c in enumerate(coefficients)], x)


def energy_at(k: Scalar, coefficients: Vec, x: Scalar) -> Scalar:
    """Return the energy stored at x: the integral of x k(x). mju_polyPotential."""
    return x * x * stiffness_at(0.5 * k, [c / (n + 3) for n, c in enumerate(coefficients)], x)


def plastic_of(m: Model, d: Data) -> list[Scalar]:
    """Return the rests of all springs that yield: see `plasticity`."""
    return list(m.plastic0 if d.plastic is None else d.plastic)


def acts(k: Scalar, coefficients: Vec) -> bool:
    """Return whether a spring or damper has a coefficient that is not the constant 0."""
    return not all(map(is_zero, (k, *coefficients)))
