"""Elliptic friction cones: friction is bounded by an ellipse that scales with the normal force (condim 3, 4, 6).

With x = friction y of each axis but the normal, T = |x|, and the residual e along the normal, a contact costs

    nothing                         where e >= T: it is free,
    1/2 D (e**2 + T**2 / mu**2)     where T <= -mu**2 e: it sticks,
    1/2 D / (1 + mu**2) (e - T)**2  in between: it slides.

That is the square of a distance to a cone, so it is convex, and its slope is continuous. mu**2 is friction**2 over
impratio, along the first tangent. In all three zones force and stiffness along (e, x) are, with u = x / T,

    (push, -P x)   and   [[A, -B u'], [-B u, P I + (B - P) u u']],

except that both B and (B - P) are 0 where it sticks. mj_constraintUpdate, HessianCone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ....compiler.scalar import Mask, Scalar, absolute, logical_and, logical_not, logical_or, maximum, select, sqrt
from ...algebra.spatial import MINVAL, add, dot, is_zero, scale, sum_of


@dataclass
class Zone:
    """The zone in which a contact is (free, sticking or sliding), with its force and stiffness there.

    Letters are the module's. Q: B - P, or 0 where it sticks.
    """

    x: list[Scalar]
    T: Scalar
    u: list[Scalar]
    slides: Mask
    sticks: Mask
    push: Scalar
    A: Scalar
    B: Scalar
    P: Scalar
    Q: Scalar

    def along(self, e: Scalar, x: list[Scalar]) -> tuple[Scalar, list[Scalar]]:
        """Multiply the stiffness by (e, x)."""
        across = dot(self.u, x)
        pull = self.Q * across - self.B * e
        return self.A * e - self.B * across, [self.P * xk + pull * uk for xk, uk in zip(x, self.u, strict=True)]


@dataclass
class EllipticCone:
    """An elliptic cone, MuJoCo's mjCONE_ELLIPTIC.

    friction: along each axis but the normal (condim - 1). D: of the normal. slip: mu**2.

    give: if it is not 0, mu**2 is at least `give` D, so that a contact that sticks is no stiffer than rounding allows.
    """

    friction: list[Scalar]
    D: Scalar
    slip: Scalar
    give: Scalar = 0.0

    @property
    def compliance(self) -> Scalar:
        return 1.0 / self.D

    def push(self, y: list[Scalar]) -> tuple[list[Scalar], list[list[Scalar]]]:
        """Compute force (condim) and stiffness (condim x condim) at residuals y."""
        at = self._zone(self.rows(y))
        force = [at.push, *(-(at.P * x * f) for x, f in zip(at.x, self.friction, strict=True))]
        first = [at.A, *(-(at.B * u * f) for u, f in zip(at.u, self.friction, strict=True))]
        weight = [first, *([x] + [0.0] * len(at.u) for x in first[1:])]
        for i, (u, f) in enumerate(zip(at.u, self.friction, strict=True), 1):
            for j, (v, g) in enumerate(zip(at.u[:i], self.friction[:i], strict=True), 1):
                entry = at.Q * u * v + (at.P if i == j else 0.0)
                weight[i][j] = weight[j][i] = entry * (f * g)
        return force, weight

    def rows(self, y: list[Scalar]) -> list[Any]:
        """Return the residual e along the normal, and x = friction y along the other axes."""
        return [y[0], *(f * x for f, x in zip(self.friction, y[1:], strict=True))]

    def fold(self, total: list[Scalar], y: list[Any], v: list[Any], alpha: Scalar) -> list[Scalar]:
        """Return `total` plus the contact's cost along a search line: see `Cone.fold`.

        What is out of place is how far the force at y + alpha v is from what force and stiffness at y predict.
        """
        before, now = self._zone(y), self._zone(add(y, scale(v, alpha)))
        change, *w = v
        slope = now.P * dot(now.x, w) - now.push * change
        (bend, across), (bend_before, across_before) = now.along(change, w), before.along(change, w)
        same = logical_and(logical_not(logical_or(before.slides, now.slides)), _alike(before.sticks, now.sticks))
        beyond, aside = self._beyond(before, now, y[0] + alpha * change, scale(w, alpha))
        expected = before.push - alpha * bend_before
        out = [now.push - expected]
        for x, old, more in zip(now.x, before.x, across_before, strict=True):
            out.append(before.P * old + alpha * more - now.P * x)
        both = logical_and(before.slides, now.slides)
        apart = sum_of(
            absolute(select(both, fine, select(same, 0.0, plain)) * f)
            for fine, plain, f in zip([beyond, *aside], out, [1.0, *self.friction], strict=True)
        )
        return [
            total[0] + slope,
            total[1] + change * bend + dot(w, across),
            total[2] + apart,
            total[3] + change * bend_before + dot(w, across_before),
        ]

    def _beyond(self, before: Zone, now: Zone, e: Scalar, step: list[Scalar]) -> tuple[Scalar, list[Scalar]]:
        """Compute what is out of place where a contact slides both before and now, with only its own rounding.

        step: the change of x. p is its part across u, and T has grown by `longer` more than the part along u.
        """
        c = before.B
        along = dot(before.u, step)
        p = [s - along * u for s, u in zip(step, before.u, strict=True)]
        ahead = before.T + along
        longer = select(ahead > 0.0, dot(p, p) / (now.T + maximum(ahead, 0.0)), now.T - ahead)
        back, turned = c * longer * e / now.T, before.P - now.P
        return c * longer, [turned * x - back * u for x, u in zip(p, before.u, strict=True)]

    def _zone(self, y: list[Scalar]) -> Zone:
        slip = self.slip if is_zero(self.give) else maximum(self.slip, self.give * self.D)
        e, *x = y
        T = sqrt(maximum(dot(x, x), MINVAL * MINVAL))
        gap = e - T
        sticks = T + slip * e <= 0.0
        slides = logical_and(gap < 0.0, logical_not(sticks))
        c = self.D / (1.0 + slip)
        B = select(slides, c, 0.0)
        A = select(sticks, self.D, B)
        P = select(sticks, self.D / slip, -(B * gap / T))
        push = select(sticks, -(self.D * e), -(B * gap))
        return Zone(x, T, scale(x, 1.0 / T), slides, sticks, push, A, B, P, select(sticks, 0.0, B - P))


def _alike(a: Mask, b: Mask) -> Mask:
    return logical_or(logical_and(a, b), logical_not(logical_or(a, b)))
