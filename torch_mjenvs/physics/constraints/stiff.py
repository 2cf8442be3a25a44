"""Contacts whose rows are stiffer than rounding bears: next to no friction, or a centre of mass that cannot move.

Where a stiffness is S times the inertia that it acts on, M is S roundings of M + J'DJ away from being lost. From
`Precision.stiff` on, Newton's last step is repeated, which squares its error. Beyond `Precision.stiffest` the contact
is softened to that, which takes 1 / S off the acceleration that it gives.

Rows of friction mu are n + s, s = +-mu t along two tangents. As D goes with 1 / mu**2, what they do along the tangents
is as it should be, but the normal is hard. So the normal alone is softened: a spring of stiffness K is put between it
and the rows, which see z for n. Its force K (z - n) is the sum of theirs, and z is eliminated:

    row i is pressed where K (n + s_i) + D sum over j of max(0, s_i - s_j) < 0,
    and its force is then -(K (n + s_i) + D sum over pressed j of (s_i - s_j)) D / (K + p D), where p rows are pressed.

With an endless K that is n + s_i < 0 and -D (n + s_i).

Letters: as in `pyramid`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...compiler.scalar import Mask, Scalar, absolute, maximum, select
from ..contact_param import contact_param
from ..invweight import geom_invweight0
from ..model import Model, Pair
from ..precision import Precision
from ..spatial import add, dot, is_number, is_zero, scale
from .pyramid import Pyramid
from .rows import sum_of

SLIPPERY = 0.3  # friction below which the normal alone is softened
FIXED = 1e-3  # over the root of `stiffest`: centres of mass that move by so little, seen beside the surface, do not
LIGHT = 100  # surfaces that give way so much more easily than the centre of mass turn light parts, as of a wheel: they
# are not what the contact holds up


@dataclass(frozen=True)
class Bound:
    """What rounding makes of a pair's contacts. shows: a Newton step is to be repeated; give: 1 over the largest
    stiffness of a row; spring: K, or 0 where there is no spring.
    """

    shows: Mask
    give: Scalar = 0.0
    spring: Scalar = 0.0


def bound(m: Model, pair: Pair, precision: Precision, stiffness: float, weight: float) -> Bound:
    """The bound, where a row can be as stiff as said, and `weight` is the body_invweight0 of both bodies."""
    rows, mu = (1, 1.0) if pair.condim == 1 else (4, contact_param(m, pair).friction[0])
    weight, _ = _met(m, pair, precision, weight)
    if rows * stiffness * weight <= precision.stiffest:
        return Bound(rows * stiffness * weight > precision.stiff)
    least = weight / precision.stiffest
    return Bound(True, 2 * mu * mu * least, 1 / least) if mu < SLIPPERY else Bound(True, rows * least)


def bound_of_world(
    m: Model, usual: Bound, pair: Pair, precision: Precision, stiffness: Scalar, share: Scalar, weights: tuple
) -> Bound:
    """The bound in worlds whose parameters vary, where a row can be as stiff as said over its share of the weight.

    usual: that of the model as it was loaded, which says, too, whether there is a spring, and how much more easily than
    the centre of mass the surface gives way. weights: body_invweight0 of both bodies, there and in the world.
    """
    rows, mu = (1, 1.0) if pair.condim == 1 else (4, contact_param(m, pair).friction[0])
    met, fixed = _met(m.nominal or m, pair, precision, weights[0])
    shows = usual.shows
    if not fixed:
        ratio = met / weights[0]
        if not is_number(stiffness, share):
            shows = share < stiffness * (rows * ratio / precision.stiff)
        elif is_zero(usual.give):
            return usual
        met = weights[1] * ratio
    least = met * (1 / precision.stiffest)
    return Bound(shows, 2 * mu * mu * least, 1 / least) if usual.spring else Bound(shows, rows * least)


def _met(m: Model, pair: Pair, precision: Precision, weight: float) -> tuple[float, bool]:
    """The inverse inertia that a contact acts on, and whether the centre of mass cannot move."""
    surface = sum(geom_invweight0(m)[geom] for geom in (pair.geom1, pair.geom2))
    fixed = weight < FIXED / math.sqrt(precision.stiffest) * surface
    return (surface if fixed else min(surface, LIGHT * weight)), fixed


@dataclass
class SpringPyramid(Pyramid):
    """Four rows that share a spring of stiffness K."""

    spring: Scalar

    def push(self, y: list) -> tuple[list, list]:
        return self.push_of(y, self.pressed(y))

    def fold(self, total: list, y: list, v: list, alpha: Scalar) -> list:
        at = add(y, scale(v, alpha))
        before, now = self.pressed(y), self.pressed(at)
        force, weight = self.push_of(at, now)
        expected, before_weight = self.push_of(at, before)
        return [
            total[0] - dot(force, v),
            total[1] + _curvature(weight, v),
            total[2] + sum_of(absolute(x - y) for x, y in zip(force, expected, strict=True)),
            total[3] + _curvature(before_weight, v),
        ]

    def rows(self, x: list) -> list:
        """The quantity itself: they act together."""
        return x

    def pressed(self, y: list) -> list[Mask]:
        """Which rows are pressed at residuals y."""
        shifts = self._shifts(y)
        behind = [sum_of(maximum(s - other, 0.0) for other in shifts if other is not s) for s in shifts]
        return [self.spring * (y[0] + s) + self.D * b < 0.0 for s, b in zip(shifts, behind, strict=True)]

    def push_of(self, y: list, pressed: list[Mask]) -> tuple[list, list]:
        """Force and stiffness while the rows that are pressed are `pressed`: the force is linear in y."""
        D, mu, shifts, ones = self.D, self.mu, self._shifts(y), [select(p, 1.0, 0.0) for p in pressed]
        share = D / (self.spring + D * sum_of(ones))
        f = []
        for s, p in zip(shifts, pressed, strict=True):
            others = [(other, q) for other, q in zip(shifts, pressed, strict=True) if other is not s]
            apart = sum_of(select(q, s - other, 0.0) for other, q in others)
            f.append(select(p, -((self.spring * (y[0] + s) + D * apart) * share), 0.0))
        force = [sum_of(f), mu * (f[0] - f[1]), mu * (f[2] - f[3])]
        normal, tangent = self.spring * share, mu * mu * D
        one, two = ones[0] - ones[1], ones[2] - ones[3]
        weight = [
            normal * sum_of(ones),
            mu * normal * one,
            mu * normal * two,
            tangent * (ones[0] + ones[1] - share * one * one),
            tangent * (ones[2] + ones[3] - share * two * two),
            -(tangent * share * one * two),
        ]
        return force, weight

    def _shifts(self, y: list) -> list[Scalar]:
        """s of each row, in the order of `Pyramid`'s."""
        one, two = self.mu * y[1], self.mu * y[2]
        return [one, -one, two, -two]


def _curvature(weight: list, v: list) -> Scalar:
    """v'Wv."""
    nn, n1, n2, w11, w22, w12 = weight
    n, one, two = v
    across = n * (n1 * one + n2 * two) + w12 * one * two
    return nn * n * n + w11 * one * one + w22 * two * two + 2.0 * across
