"""Which rows are softened, to what, and why.

A row's D is S times the inertia that it acts on, S = D J M^-1 J'. M + J'DJ keeps of M only what is above S roundings.
`Precision` has two bounds for S. From `stiff` on, rounding shows: the solver repeats the Newton step that lands, which
squares its error (`needs_refinement`). Beyond `stiffest` M would be lost: the row is softened to that, which takes
1 / S off the acceleration that it gives. docs/design.md has the mathematics.

MuJoCo makes D = imp / ((1 - imp) invweight) with an inverse inertia `invweight` of its own, from qpos0. As imp is
0.9999 at the most, S is no more than 1e4 where that is what the row acts on. It is more where it is not, which is here
called the effective inverse inertia:

    limits, friction loss of joints,    never softened: dof_invweight0 is what they act on.
    equalities of joints and tendons
    limits, friction loss of tendons    `tendon_bound`: where tendon_invweight0 is next to 0 as nothing stretches the
                                        tendon at qpos0, though it may elsewhere.
    connect, weld                       `tie_bound`: where the bodies' centres of mass cannot move, as body_invweight0
                                        is of these, and the points that are held can.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...compiler.scalar import Mask, Scalar, absolute, maximum, sqrt
from ..data import Data
from ..model import Model
from ..precision import Precision
from ..spatial import MINVAL, is_number
from .rows import MAX_IMP, row_stiffness

STRETCHED = 1e-6  # tendons that their dofs stretch by a smaller share of their own inverse inertia at qpos0 are still
HELD = 1e-5  # centres of mass whose inverse inertia is a smaller share of the effective one cannot move


@dataclass(frozen=True)
class RowBound:
    """How stiff a scalar row is by MuJoCo, and how stiff it may be.

    invweight: MuJoCo's inverse inertia. effective: the one that the row acts on, where that is another. give: 1 over
    the largest D.
    """

    invweight: Scalar
    effective: Scalar | None = None
    give: Scalar = 0.0

    def stiffness(self, imp: Scalar) -> Scalar:
        """D at an impedance."""
        return row_stiffness(imp, self.invweight, self.give)

    def needs_refinement(self, precision: Precision, D: Scalar, solimp: Sequence) -> Mask:
        """Where rounding shows in a Newton step: at this D of a row of this solimp."""
        if self.effective is None and not _may_be_stiff(precision, solimp):
            return False
        return D * (self.invweight if self.effective is None else self.effective) > precision.stiff


def _may_be_stiff(precision: Precision, solimp: Sequence) -> bool:
    """Whether the impedance can be so near 1 that rounding shows in a row of MuJoCo's own stiffness."""
    most = max(min(x, MAX_IMP) for x in solimp[:2]) if is_number(*solimp[:2]) else MAX_IMP
    return most / (1 - most) > precision.stiff


def tendon_bound(m: Model, d: Data, t: int) -> RowBound:
    """The bound of a row along tendon t.

    A string between two parallel tracks does not stretch at first. So where tendon_invweight0 is next to nothing, the
    effective inverse inertia is a bound of J M^-1 J' in the pose at hand.
    """
    nominal, invweight = m.nominal or m, maximum(m.tendon_invweight0[t], MINVAL)
    if nominal.tendon_invweight0[t] >= STRETCHED * sum(nominal.dof_invweight0[v] for v in d.ten_J[t]):
        return RowBound(invweight)
    total: Scalar = 0.0
    for v, entry in d.ten_J[t].items():
        total = total + absolute(entry) * sqrt(m.dof_invweight0[v])
    effective = total * total
    return RowBound(invweight, effective, effective / d.precision.stiffest)


def tie_bound(precision: Precision, invweight: Scalar, nominal: float, effective: float) -> RowBound:
    """The bound of rows of a connect or weld: of those that hold points together, or of those that hold orientations.

    invweight, nominal: the sum of both bodies' body_invweight0, in the world at hand and in the model as it was loaded.
    effective: the largest J M^-1 J' of the rows at qpos0. What is held far from a centre of mass acts on less inertia
    than that has, but in turning about the point, which is left free, there is as much more. Where the centres of mass
    cannot move, MuJoCo's D is endless, and these rows are softened.
    """
    if nominal < HELD * effective:
        return RowBound(invweight, effective, effective / precision.stiffest)
    return RowBound(invweight, give=MINVAL)
