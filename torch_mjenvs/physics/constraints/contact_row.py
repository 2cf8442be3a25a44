"""The rows of a contact: their stiffness and reference. mj_instantiateContact, mj_makeImpedance."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from ...compiler.scalar import Scalar, maximum
from ..algebra.spatial import MINVAL
from ..collision.contact_param import contact_param
from ..model.model import Model, Pair
from .rows import impedance, reference, row_stiffness


class RowParam(Protocol):
    """The numbers from which a contact's rows are made: those of a pair (`PairRowParam`), or found in tables of pairs.

    margin: the distance from which the contact acts, m. solimp: MuJoCo's. invweight: the inverse inertia of a row. k,
    damping: stiffness and damping of the reference acceleration, damping along each axis.
    """

    @property
    def margin(self) -> Scalar: ...

    @property
    def solimp(self) -> Sequence[Scalar]: ...

    @property
    def invweight(self) -> Scalar: ...

    @property
    def k(self) -> Scalar: ...

    @property
    def damping(self) -> Iterable[Scalar]: ...


@dataclass(frozen=True)
class PairRowParam:
    """The `RowParam` of one pair."""

    margin: Scalar
    solimp: Sequence[Scalar]
    invweight: Scalar
    k: Scalar
    damping: Sequence[Scalar]


class ContactRow:
    """The rows of a contact at one distance, metres: their stiffness D, and their y0 at a given velocity."""

    def __init__(self, param: RowParam, dist: Scalar):
        self.param = param
        self.depth = dist - param.margin
        self.imp = impedance(param.solimp, self.depth)

    def stiffness(self, give: Scalar = 0.0) -> Scalar:
        """Return the stiffness D of each row (of an elliptic cone, that of the normal), at most 1 / give."""
        return row_stiffness(self.imp, (1.0 - self.imp) * self.param.invweight, give)

    def y0(self, velocity: Sequence[Scalar]) -> list[Scalar]:
        """Return the constant y0 of the residual along each axis (condim), from the velocity along each."""
        y0 = [b * v for b, v in zip(self.param.damping, velocity, strict=True)]
        y0[0] = y0[0] + self.param.k * self.imp * self.depth
        return y0


def row_param(m: Model, pair: Pair) -> PairRowParam:
    """Compute the numbers of which the rows of a pair's contacts are made."""
    param, invweight, (k, damping) = contact_param(m, pair), row_invweight(m, pair), reference_of(m, pair)
    return PairRowParam(param.margin, param.solimp, invweight, k, damping)


def reference_of(m: Model, pair: Pair) -> tuple[Scalar, list[Scalar]]:
    """Compute stiffness k of a pair's contacts, and damping b along each axis (condim): MuJoCo's efc_KBIP.

    An elliptic cone may have a damping of its own along the axes of friction.
    """
    param = contact_param(m, pair)
    k, b = reference(param.solref, param.solimp, param.direct, m.timestep)
    own = param.solreffriction
    if m.cone == "pyramidal" or not any(own):
        return k, [b] * pair.condim
    return k, [b] + [reference(own, param.solimp, own[0] <= 0, m.timestep)[1]] * (pair.condim - 1)


def bodies_invweight(m: Model, pair: Pair) -> tuple[Scalar, Scalar]:
    """Return the sums of both bodies' body_invweight0: for moving the centres of mass, and for turning."""
    weights = [m.body_invweight0[m.geom_bodyid[geom]] for geom in (pair.geom1, pair.geom2)]
    return weights[0][0] + weights[1][0], weights[0][1] + weights[1][1]


def row_invweight(m: Model, pair: Pair) -> Scalar:
    """Return the inverse inertia from which MuJoCo makes a row's D, its diagApprox; of elliptic cones, the normal's."""
    share = row_share(m, pair.condim, contact_param(m, pair).friction[0])
    return maximum(bodies_invweight(m, pair)[0] * share, MINVAL)


def row_share(m: Model, condim: int, mu: Scalar) -> Scalar:
    """Return the factor by which friction mu scales the inverse inertia of a pyramid's row."""
    return (1 + mu * mu) * 2 * mu * mu / m.impratio if condim > 1 and m.cone == "pyramidal" else 1.0


def is_elliptic(m: Model, condim: int) -> bool:
    """Return whether contacts have an elliptic cone."""
    return m.cone == "elliptic" and condim > 1
