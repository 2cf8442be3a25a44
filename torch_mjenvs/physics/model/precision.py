"""`Precision`: the limits that rounding sets to the solver, in float32 and in float64."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Precision:
    """The limits that rounding sets to the solver, in one floating-point type.

    tolerance: where Newton stops, as a force in units of the mean inertia.

    stiff, stiffest: stiffnesses of a contact, in units of the inertia that it acts on. From `stiff` on, rounding shows
    in a Newton step; a contact stiffer than `stiffest` is softened to that.

    light: if the mean inertia is more than this many times that of the lightest dof, then under elliptic cones rounding
    of the forces of a Newton step shows in that dof's acceleration. In float32 it always does, and is accepted.

    pivot: where factoring leaves a smaller share of a row's diagonal entry than this, the remainder is rounding, and
    the row follows from others.

    epsilon: the share of a number that rounding may change it by, doubled.

    slots: contacts of very many pairs may share slots (`contact_pool`), which have no derivatives.
    """

    tolerance: float
    stiff: float
    stiffest: float
    light: float
    pivot: float
    epsilon: float
    slots: bool = True

    @property
    def differentiable(self) -> Precision:
        """The same limits, for a program that is differentiated itself."""
        return replace(self, slots=False)


SINGLE = Precision(tolerance=1e-6, stiff=1e3, stiffest=1e4, light=math.inf, pivot=1e-6, epsilon=2.0**-23)
DOUBLE = Precision(tolerance=1e-13, stiff=1e5, stiffest=3e9, light=1e4, pivot=0.0, epsilon=2.0**-52)
PRECISIONS = {"float32": SINGLE, "float64": DOUBLE}
