"""Three convex laws for a row's cost at a residual, each piecewise quadratic with a continuous slope.

Letters: e a residual; D its stiffness; v the rate of e along a line of the search, where it is e + alpha v.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ...compiler.scalar import Mask, Scalar, absolute, clip, logical_or, minimum, select


class Law(Protocol):
    """A law: a convex cost of one residual."""

    @property
    def D(self) -> Scalar:
        """The curvature, except where the cost is flat or linear."""

    def at(self, e: Scalar) -> tuple[Scalar, Scalar]:
        """Compute slope and curvature of the cost at e. The force is the slope's opposite."""

    def fold(self, total: list[Scalar], e: Scalar, v: Scalar, alpha: Scalar) -> list[Scalar]:
        """Return `total` plus the row's cost at e + alpha v.

        total: slope and curvature of the cost along the line, at alpha; the force that is out of place there, which is
        how far it is from the force if each row were still in the piece of its cost in which it is at alpha 0; and the
        curvature at alpha 0.
        """


@dataclass(frozen=True)
class OneSided:
    """Costs 1/2 D min(0, e)**2: the row pushes where e < 0 (it is pressed), and never pulls. Limits and contacts."""

    D: Scalar

    def at(self, e: Scalar) -> tuple[Scalar, Scalar]:
        pressed = select(e < 0.0, self.D, 0.0)
        return pressed * e, pressed

    def fold(self, total: list[Scalar], e: Scalar, v: Scalar, alpha: Scalar) -> list[Scalar]:
        at = e + alpha * v
        pressed = minimum(at, 0.0)
        astray = absolute(pressed - select(e < 0.0, at, 0.0))
        change = self.D * v * v
        return [
            total[0] + self.D * pressed * v,
            total[1] + select(at < 0.0, change, 0.0),
            total[2] + self.D * astray,
            total[3] + select(e < 0.0, change, 0.0),
        ]


@dataclass(frozen=True)
class TwoSided:
    """Costs 1/2 D e**2: the row pushes and pulls, and there is but one piece. Equalities."""

    D: Scalar

    def at(self, e: Scalar) -> tuple[Scalar, Scalar]:
        return self.D * e, self.D

    def fold(self, total: list[Scalar], e: Scalar, v: Scalar, alpha: Scalar) -> list[Scalar]:
        slope, change = self.D * e + self.D * (alpha * v), self.D * v * v
        return [total[0] + slope * v, total[1] + change, total[2], total[3] + change]


@dataclass(frozen=True)
class Huber:
    """Costs 1/2 D e**2 where |D e| < most (the row sticks), and grows linearly from there (it slides). Friction loss.

    most: the size of the force while it slides. held: worlds in which the row is taken to stick, wherever e is.
    """

    D: Scalar
    most: Scalar
    held: Mask = False

    def at(self, e: Scalar) -> tuple[Scalar, Scalar]:
        slope = self.D * e
        sticks = self._sticks(slope)
        return select(self.held, slope, clip(slope, -self.most, self.most)), select(sticks, self.D, 0.0)

    def way(self, e: Scalar) -> Scalar:
        """Return 1 or -1 where the row slides at e, by the direction, and 0 where it sticks."""
        slope = self.D * e
        return select(absolute(slope) < self.most, 0.0, select(slope < 0.0, -1.0, 1.0))

    def fold(self, total: list[Scalar], e: Scalar, v: Scalar, alpha: Scalar) -> list[Scalar]:
        most, before = self.most, self.D * e
        at = before + self.D * (alpha * v)
        slope, change = clip(at, -most, most), self.D * v * v
        sticks = self._sticks(before)
        expected = select(sticks, at, clip(before, -most, most))  # if it sticks or slides as at alpha 0
        return [
            total[0] + slope * v,
            total[1] + select(absolute(at) < most, change, 0.0),
            total[2] + absolute(slope - expected),
            total[3] + select(sticks, change, 0.0),
        ]

    def _sticks(self, slope: Scalar) -> Mask:
        return logical_or(absolute(slope) < self.most, self.held)
