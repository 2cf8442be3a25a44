"""Contacts whose rows are stiffer than rounding bears: next to no friction, or a centre of mass that cannot move.

Where a stiffness is S times the inertia that it acts on, M is S roundings of M + J'DJ away from being lost. From
`Model.stiff` on, Newton's last step is repeated, which squares its error. Beyond `Model.stiffest` the contact is
softened to that, which takes 1 / S off the acceleration that it gives.

Rows of friction mu are n + s, s = +-mu t along two tangents. As D goes with 1 / mu**2, what they do along the tangents
is as it should be, but the normal is hard. So the normal alone is softened: a spring of stiffness K is put between it
and the rows, which see z for n. Its force K (z - n) is the sum of theirs, and z is eliminated:

    row i is pressed where K (n + s_i) + D sum over j of max(0, s_i - s_j) < 0,
    and its force is then -(K (n + s_i) + D sum over pressed j of (s_i - s_j)) D / (K + p D), where p rows are pressed.

With an endless K that is n + s_i < 0 and -D (n + s_i).

Letters: n, t1, t2 the contact frame; y what is given along them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..compiler.scalar import Mask, Scalar, maximum, select
from .contact_param import contact_param
from .model import Model, Pair

if TYPE_CHECKING:
    from .constraint import ContactForce

SLIPPERY = 0.3  # friction below which the normal alone is softened
FIXED = 1e-3  # over the root of `stiffest`: centres of mass that move by so little, seen beside the surface, do not
LIGHT = 100  # surfaces that give way so much more easily than the centre of mass turn light parts, as of a wheel: they
# are not what the contact holds up


@dataclass(frozen=True)
class Bound:
    """What rounding makes of a pair's contacts. shows: a Newton step is to be repeated; row: the largest stiffness of a
    row; spring: K, or 0 where there is no spring.
    """

    shows: bool
    row: float = math.inf
    spring: float = 0.0


def bound(m: Model, pair: Pair, stiffness: float, weight: float) -> Bound:
    """The bound, where a row can be as stiff as said, and `weight` is the body_invweight0 of both bodies."""
    rows, mu = (1, 1.0) if pair.condim == 1 else (4, contact_param(m, pair.geom1, pair.geom2).friction[0])
    surface = m.geom_invweight0[pair.geom1] + m.geom_invweight0[pair.geom2]
    fixed = weight < FIXED / math.sqrt(m.stiffest) * surface
    weight = surface if fixed else min(surface, LIGHT * weight)
    if rows * stiffness * weight <= m.stiffest:
        return Bound(rows * stiffness * weight > m.stiff)
    most = m.stiffest / weight
    return Bound(True, most / (2 * mu * mu), most) if mu < SLIPPERY else Bound(True, most / rows)


def pressed_rows(c: ContactForce, D: Scalar, y: list) -> list[Mask]:
    """Which rows of a contact with a spring are pressed at residuals y."""
    shifts = _shifts(c, y)
    behind = [_sum([maximum(s - other, 0.0) for other in shifts if other is not s]) for s in shifts]
    return [c.bound.spring * (y[0] + s) + D * b < 0.0 for s, b in zip(shifts, behind, strict=True)]


def push(c: ContactForce, D: Scalar, y: list, pressed: list[Mask]) -> tuple[list, list]:
    """Force and stiffness as by `pyramid`, while the rows that are pressed are `pressed`: the force is linear in y."""
    shifts, ones = _shifts(c, y), [select(p, 1.0, 0.0) for p in pressed]
    share = D / (c.bound.spring + D * _sum(ones))
    f = []
    for s, p in zip(shifts, pressed, strict=True):
        apart = _sum([select(q, s - other, 0.0) for other, q in zip(shifts, pressed, strict=True) if other is not s])
        f.append(select(p, -((c.bound.spring * (y[0] + s) + D * apart) * share), 0.0))
    force = [_sum(f), c.mu * (f[0] - f[1]), c.mu * (f[2] - f[3])]
    normal, tangent = c.bound.spring * share, c.mu * c.mu * D
    one, two = ones[0] - ones[1], ones[2] - ones[3]
    weight = [
        normal * _sum(ones),
        c.mu * normal * one,
        c.mu * normal * two,
        tangent * (ones[0] + ones[1] - share * one * one),
        tangent * (ones[2] + ones[3] - share * two * two),
        -(tangent * share * one * two),
    ]
    return force, weight


def _shifts(c: ContactForce, y: list) -> list[Scalar]:
    """s of each row, in the order of `rows_of`."""
    one, two = c.mu * y[1], c.mu * y[2]
    return [one, -one, two, -two]


def _sum(xs: list) -> Scalar:
    out: Scalar = 0.0
    for x in xs:
        out = out + x
    return out
