"""A friction pyramid whose normal alone is softened: the cone of contacts with next to no friction (see `softening`).

Rows of friction mu are n + s, s = +-mu t along two tangents. As D goes with 1 / mu**2, they act as they should along
the tangents, but are too hard along the normal. So a spring of stiffness K is put between the normal and the rows,
which see z in place of n. Its force K (z - n) is the sum of theirs, and z is eliminated:

    row i is pressed where K (n + s_i) + D sum over j of max(0, s_i - s_j) < 0,
    and its force is then -(K (n + s_i) + D sum over pressed j of (s_i - s_j)) D / (K + p D), where p rows are pressed.

For an infinite K these become n + s_i < 0 and -D (n + s_i).

Letters: as in `pyramid`.
"""

from __future__ import annotations

from dataclasses import dataclass

from ....compiler.scalar import Mask, Scalar, absolute, maximum, select
from ...algebra.spatial import add, dot, scale, sum_of, zeros
from .pyramid import Pyramid


@dataclass
class SpringPyramid(Pyramid):
    """A pyramid whose rows share a spring of stiffness K, `spring`."""

    spring: Scalar

    @property
    def compliance(self) -> Scalar:
        return super().compliance + 1.0 / self.spring

    def push(self, y: list[Scalar]) -> tuple[list[Scalar], list[list[Scalar]]]:
        return self.push_of(y, self.pressed(y))

    def fold(self, total: list[Scalar], y: list[Scalar], v: list[Scalar], alpha: Scalar) -> list[Scalar]:
        at = add(y, scale(v, alpha))
        before, now = self.pressed(y), self.pressed(at)
        force, weight = self.push_of(at, now)
        expected, before_weight = self.push_of(at, before)
        return [
            total[0] - dot(force, v),
            total[1] + curvature(weight, v),
            total[2] + sum_of(absolute(x - y) for x, y in zip(force, expected, strict=True)),
            total[3] + curvature(before_weight, v),
        ]

    def rows(self, y: list[Scalar]) -> list[Scalar]:
        """Return a quantity given along the axes unchanged, since the rows act together."""
        return y

    def pressed(self, y: list[Scalar]) -> list[Mask]:
        """Return for each row the mask of the worlds where it is pressed at residuals y."""
        shifts = self._shifts(y)
        behind = [sum_of(maximum(s - other, 0.0) for other in shifts if other is not s) for s in shifts]
        return [self.spring * (y[0] + s) + self.D * b < 0.0 for s, b in zip(shifts, behind, strict=True)]

    def push_of(self, y: list[Scalar], pressed: list[Mask]) -> tuple[list[Scalar], list[list[Scalar]]]:
        """Compute force and stiffness if the rows `pressed` are pressed: then the force is linear in y."""
        D, shifts, ones = self.D, self._shifts(y), [select(p, 1.0, 0.0) for p in pressed]
        share = D / (self.spring + D * sum_of(ones))
        f = self._forces(y, pressed, shifts, share)
        normal, n = self.spring * share, len(y)
        force, weight = [sum_of(f)], [zeros(n) for _ in range(n)]
        weight[0][0] = normal * sum_of(ones)
        of_axes = [(mu, one - two) for mu, one, two in zip(self.friction, ones[::2], ones[1::2], strict=True)]
        for k, (mu, tilt) in enumerate(of_axes, 1):
            force.append(mu * (f[2 * k - 2] - f[2 * k - 1]))
            weight[0][k] = weight[k][0] = mu * normal * tilt
            weight[k][k] = mu * mu * D * (ones[2 * k - 2] + ones[2 * k - 1] - share * tilt * tilt)
            for j, (other, tilt_of_other) in enumerate(of_axes[: k - 1], 1):
                weight[k][j] = weight[j][k] = -(mu * other * D * share * tilt * tilt_of_other)
        return force, weight

    def edges(self, y: list[Scalar]) -> list[Scalar]:
        pressed = self.pressed(y)
        share = self.D / (self.spring + self.D * sum_of(select(p, 1.0, 0.0) for p in pressed))
        return self._forces(y, pressed, self._shifts(y), share)

    def _forces(self, y: list[Scalar], pressed: list[Mask], shifts: list[Scalar], share: Scalar) -> list[Scalar]:
        """Return the force of each row at residuals y. share: D / (K + p D)."""
        f = []
        for s, p in zip(shifts, pressed, strict=True):
            others = [(other, q) for other, q in zip(shifts, pressed, strict=True) if other is not s]
            apart = sum_of(select(q, s - other, 0.0) for other, q in others)
            f.append(select(p, -((self.spring * (y[0] + s) + self.D * apart) * share), 0.0))
        return f

    def _shifts(self, y: list[Scalar]) -> list[Scalar]:
        """Return the shift s of each row, in the order of `Pyramid`'s rows."""
        return [s for mu, x in zip(self.friction, y[1:], strict=True) for s in (mu * x, -(mu * x))]


def curvature(weight: list[list[Scalar]], v: list[Scalar]) -> Scalar:
    """Return the product v'Wv of a stiffness W along the axes."""
    return sum_of(x * dot(row, v) for x, row in zip(v, weight, strict=True))
