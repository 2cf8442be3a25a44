"""Contacts whose rows are stiffer than rounding bears: next to no friction, or a centre of mass that cannot move.

Where a stiffness is S times the inertia that it acts on, M is S roundings of M + J'DJ away from being lost. From
`Precision.stiff` on, Newton's last step is repeated, which squares its error. Beyond `Precision.stiffest` the contact
is softened to that, which takes 1 / S off the acceleration that it gives.

Rows of friction mu are n + s, s = +-mu t along two tangents. As D goes with 1 / mu**2, what they do along the tangents
is as it should be, but the normal is hard. So the normal alone is softened: a spring of stiffness K is put between it
and the rows, which see z for n. (Frictions against turning may be greater than mu: then turning is hard, too, and D has
to be bounded by that.) Its force K (z - n) is the sum of theirs, and z is eliminated:

    row i is pressed where K (n + s_i) + D sum over j of max(0, s_i - s_j) < 0,
    and its force is then -(K (n + s_i) + D sum over pressed j of (s_i - s_j)) D / (K + p D), where p rows are pressed.

With an endless K that is n + s_i < 0 and -D (n + s_i).

Letters: as in `pyramid`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...compiler.scalar import Mask, Scalar, absolute, maximum, select
from ..collision.contact_param import contact_param
from ..invweight import geom_invweight0
from ..model import Model, Pair
from ..precision import Precision
from ..spatial import add, dot, is_number, is_zero, scale, sum_of
from .pyramid import Pyramid

SLIPPERY = 0.3  # friction below which the normal alone is softened
FIXED = 1e-3  # over the root of `stiffest`: centres of mass that move by so little, seen beside the surface, do not
LIGHT = 100  # surfaces that give way so much more easily than the centre of mass turn light parts, as of a wheel: they
# are not what the contact holds up


@dataclass(frozen=True)
class Bound:
    """What rounding makes of a pair's contacts. shows: a Newton step is to be repeated; give: 1 over the largest
    stiffness of a row; spring: K, or 0 where there is no spring; slip: `EllipticCone.give`.
    """

    shows: Mask
    give: Scalar = 0.0
    spring: Scalar = 0.0
    slip: Scalar = 0.0


def bound(m: Model, pair: Pair, precision: Precision, stiffness: float, weights: tuple[float, float]) -> Bound:
    """The bound, where a row can be as stiff as said, and `weights` are the body_invweight0 of both bodies."""
    weight, _ = _met(m, pair, precision, weights[0])
    rows, mu, turning = _rows(m, pair, weight, weights[1])
    if max(rows * weight, turning) * stiffness <= precision.stiffest:
        return Bound(max(rows * weight, turning) * stiffness > precision.stiff)
    least, turned = weight / precision.stiffest, turning / precision.stiffest
    if is_elliptic(m, pair):
        return Bound(True, least, slip=turned * mu * mu / m.impratio)
    if mu < SLIPPERY and rows * weight * stiffness > precision.stiffest:
        return Bound(True, max(2 * mu * mu * least, turned), 1 / least)
    return Bound(True, max(rows * least, turned))


def bound_of_world(
    m: Model, usual: Bound, pair: Pair, precision: Precision, stiffness: Scalar, share: Scalar, weights: list[tuple]
) -> Bound:
    """The bound in worlds whose parameters vary, where a row can be as stiff as said over its share of the weight.

    usual: that of the model as it was loaded, which says, too, whether there is a spring, and how much more easily than
    the centre of mass the surface gives way. weights: body_invweight0 of both bodies, there and in the world.
    """
    (usual_weight, _), world = weights
    met, fixed = _met(m.nominal or m, pair, precision, usual_weight)
    ratio = 1.0 if fixed else met / usual_weight
    rows, mu, turning = _rows(m, pair, met if fixed else world[0] * ratio, world[1])
    shows = usual.shows
    if not fixed:
        if not is_number(stiffness, share, turning):
            hardest = rows * ratio if is_zero(turning) else maximum(rows * ratio, turning / world[0])
            shows = share < stiffness * (hardest / precision.stiff)
        elif is_zero(usual.give):
            return usual
        met = world[0] * ratio
    least, turned = met * (1 / precision.stiffest), turning * (1 / precision.stiffest)
    if is_elliptic(m, pair):
        return Bound(shows, least, slip=turned * (mu * mu / m.impratio))
    if usual.spring:
        return Bound(shows, _greater(2 * mu * mu * least, turned), 1 / least)
    return Bound(shows, _greater(rows * least, turned))


def _rows(m: Model, pair: Pair, weight: Scalar, turning: Scalar) -> tuple[int, Scalar, Scalar]:
    """How many rows a contact has along the normal; its friction; and what a row's stiffness of 1 makes of the stiffest
    axis beside the normal, seen beside the inverse inertia that it acts on: `weight`, and against `turning`.
    """
    if pair.condim == 1:
        return 1, 1.0, 0.0
    friction = contact_param(m, pair).friction[: pair.condim - 1]
    most, elliptic = 0.0, is_elliptic(m, pair)
    for k, mu in enumerate(friction):
        if elliptic:
            most = _greater(most, (m.impratio / (friction[0] * friction[0])) * mu * mu * (weight if k < 2 else turning))
        elif k > 1:
            most = _greater(most, 2 * mu * mu * turning)
    return (1 if elliptic else 2 * (pair.condim - 1)), friction[0], most


def _greater(a: Scalar, b: Scalar) -> Scalar:
    return a if is_zero(b) else b if is_zero(a) else maximum(a, b)


def is_elliptic(m: Model, pair: Pair) -> bool:
    """Whether the pair's contacts have an elliptic cone."""
    return m.cone == "elliptic" and pair.condim > 1


def _met(m: Model, pair: Pair, precision: Precision, weight: float) -> tuple[float, bool]:
    """The inverse inertia that a contact acts on, and whether the centre of mass cannot move."""
    surface = sum(geom_invweight0(m)[geom] for geom in (pair.geom1, pair.geom2))
    fixed = weight < FIXED / math.sqrt(precision.stiffest) * surface
    return (surface if fixed else min(surface, LIGHT * weight)), fixed


@dataclass
class SpringPyramid(Pyramid):
    """Rows that share a spring of stiffness K."""

    spring: Scalar

    def push(self, y: list) -> tuple[list, list[list]]:
        return self.push_of(y, self.pressed(y))

    def fold(self, total: list, y: list, v: list, alpha: Scalar) -> list:
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

    def rows(self, y: list) -> list:
        """The quantity itself: they act together."""
        return y

    def pressed(self, y: list) -> list[Mask]:
        """Which rows are pressed at residuals y."""
        shifts = self._shifts(y)
        behind = [sum_of(maximum(s - other, 0.0) for other in shifts if other is not s) for s in shifts]
        return [self.spring * (y[0] + s) + self.D * b < 0.0 for s, b in zip(shifts, behind, strict=True)]

    def push_of(self, y: list, pressed: list[Mask]) -> tuple[list, list[list]]:
        """Force and stiffness while the rows that are pressed are `pressed`: the force is linear in y."""
        D, shifts, ones = self.D, self._shifts(y), [select(p, 1.0, 0.0) for p in pressed]
        share = D / (self.spring + D * sum_of(ones))
        f = self._forces(y, pressed, shifts, share)
        normal, n = self.spring * share, len(y)
        force, weight = [sum_of(f)], [[0.0] * n for _ in range(n)]
        weight[0][0] = normal * sum_of(ones)
        of_axes = [(mu, one - two) for mu, one, two in zip(self.friction, ones[::2], ones[1::2], strict=True)]
        for k, (mu, tilt) in enumerate(of_axes, 1):
            force.append(mu * (f[2 * k - 2] - f[2 * k - 1]))
            weight[0][k] = weight[k][0] = mu * normal * tilt
            weight[k][k] = mu * mu * D * (ones[2 * k - 2] + ones[2 * k - 1] - share * tilt * tilt)
            for j, (other, tilt_of_other) in enumerate(of_axes[: k - 1], 1):
                weight[k][j] = weight[j][k] = -(mu * other * D * share * tilt * tilt_of_other)
        return force, weight

    def edges(self, y: list) -> list[Scalar]:
        pressed = self.pressed(y)
        share = self.D / (self.spring + self.D * sum_of(select(p, 1.0, 0.0) for p in pressed))
        return self._forces(y, pressed, self._shifts(y), share)

    def _forces(self, y: list, pressed: list[Mask], shifts: list[Scalar], share: Scalar) -> list[Scalar]:
        """Of each row. share: D / (K + p D)."""
        f = []
        for s, p in zip(shifts, pressed, strict=True):
            others = [(other, q) for other, q in zip(shifts, pressed, strict=True) if other is not s]
            apart = sum_of(select(q, s - other, 0.0) for other, q in others)
            f.append(select(p, -((self.spring * (y[0] + s) + self.D * apart) * share), 0.0))
        return f

    def _shifts(self, y: list) -> list[Scalar]:
        """s of each row, in the order of `Pyramid`'s."""
        return [s for mu, x in zip(self.friction, y[1:], strict=True) for s in (mu * x, -(mu * x))]


def curvature(weight: list[list], v: list) -> Scalar:
    """v'Wv."""
    return sum_of(x * dot(row, v) for x, row in zip(v, weight, strict=True))
