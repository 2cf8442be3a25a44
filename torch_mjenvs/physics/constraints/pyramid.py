"""The rows of a contact: its normal alone (condim 1), or the four edges of a friction pyramid (condim 3).

Vectors along n, t1, t2, the contact frame's normal and tangents, are called y; a stiffness along them is given as
(nn, n1, n2, 11, 22, 12).
"""

from __future__ import annotations

from dataclasses import dataclass

from ...compiler.scalar import Scalar, select
from .rows import fold_row


@dataclass
class Pyramid:
    """Rows n, or n +- mu t1, n +- mu t2, each of stiffness D."""

    condim: int
    mu: Scalar
    D: Scalar

    def push(self, y: list) -> tuple[list, list]:
        """Force (3) and stiffness (6) along n, t1, t2 at residuals y (condim)."""
        force = [0.0, 0.0, 0.0]
        weight = [0.0] * 6
        for e, n, t1, t2 in self.rows(y):
            pressed = select(e < 0.0, self.D, 0.0)
            f = -(pressed * e)
            force = [force[0] + f, force[1] + t1 * f, force[2] + t2 * f]
            weight = [
                weight[0] + n * pressed,
                weight[1] + t1 * pressed,
                weight[2] + t2 * pressed,
                weight[3] + t1 * t1 * pressed,
                weight[4] + t2 * t2 * pressed,
                0.0,
            ]
        return force, weight

    def fold(self, total: list, y: list, v: list, alpha: Scalar) -> list:
        """`fold_row` of all rows, where the residuals are y + alpha v, both as given by `rows`."""
        for (e, *_), (change, *_) in zip(y, v, strict=True):
            total = fold_row(total, e, change, self.D, alpha)
        return total

    def rows(self, x: list) -> list:
        """Each row for a quantity given along n, t1, t2: (value, and its share in n, t1, t2)."""
        if self.condim == 1:
            return [(x[0], 1.0, 0.0, 0.0)]
        rows = []
        for axis in (1, 2):
            for sign in (self.mu, -self.mu):
                share = (1.0, sign, 0.0) if axis == 1 else (1.0, 0.0, sign)
                rows.append((x[0] + sign * x[axis], *share))
        return rows
