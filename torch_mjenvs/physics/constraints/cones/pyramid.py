"""A contact's rows: its normal alone (condim 1), or the edges of a friction pyramid (condim 3, 4, 6).

A contact has `condim` axes: the motion of its point along the normal n and the tangents t1 and t2, then turning about
n, t1 and t2. A vector along them is called y, a stiffness along them is a symmetric matrix (condim x condim).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from ....compiler.scalar import Scalar
from ..laws import OneSided


class Cone(Protocol):
    """The forces that a contact may have, and their cost: `Pyramid`, `SpringPyramid` or `EllipticCone`.

    friction: along each axis but the normal (condim - 1).
    """

    friction: list[Scalar]

    @property
    def compliance(self) -> Scalar:
        """Return the residual along the normal that a unit force makes: MuJoCo's R of the normal."""

    def push(self, y: list[Scalar]) -> tuple[list[Scalar], list[list[Scalar]]]:
        """Compute force (condim) and stiffness (condim x condim) at residuals y."""

    def rows(self, y: list[Scalar]) -> list[Any]:
        """Bring a quantity given along the axes into the form that `fold` takes."""

    def fold(self, total: list[Scalar], y: list[Any], v: list[Any], alpha: Scalar) -> list[Scalar]:
        """Return `total` plus the contact's cost at residuals y + alpha v, in the form of `rows`: see `Law.fold`."""


@dataclass
class Pyramid:
    """A friction pyramid: rows n, or n +- mu y of each other axis with its friction mu, all of stiffness D."""

    friction: list[Scalar]
    D: Scalar

    @property
    def compliance(self) -> Scalar:
        return 1.0 / (self.D * max(2 * len(self.friction), 1))

    def push(self, y: list[Scalar]) -> tuple[list[Scalar], list[list[Scalar]]]:
        force: list[Scalar] = [0.0] * len(y)
        weight: list[list[Scalar]] = [[0.0] * len(y) for _ in y]
        for e, axis, mu in self.rows(y):
            slope, pressed = OneSided(self.D).at(e)
            f = -slope
            force[0] = force[0] + f
            if axis:
                force[axis] = force[axis] + mu * f
            weight[0][0] = weight[0][0] + pressed
            if axis:
                weight[0][axis] = weight[axis][0] = weight[0][axis] + mu * pressed
                weight[axis][axis] = weight[axis][axis] + mu * mu * pressed
        return force, weight

    def edges(self, y: list[Scalar]) -> list[Scalar]:
        """Return the force of each row at residuals y."""
        return [-OneSided(self.D).at(e)[0] for e, *_ in self.rows(y)]

    def rows(self, y: list[Scalar]) -> list[Any]:
        """List each row's value, the axis that it adds to the normal, and that axis's factor; 0, 0 if it adds none."""
        if not self.friction:
            return [(y[0], 0, 0.0)]
        sides = [(k, sign) for k, mu in enumerate(self.friction, 1) for sign in (mu, -mu)]
        return [(y[0] + sign * y[k], k, sign) for k, sign in sides]

    def fold(self, total: list[Scalar], y: list[Any], v: list[Any], alpha: Scalar) -> list[Scalar]:
        for (e, *_), (change, *_) in zip(y, v, strict=True):
            total = OneSided(self.D).fold(total, e, change, alpha)
        return total
