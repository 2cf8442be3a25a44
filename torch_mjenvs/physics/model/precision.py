"""What rounding lets the solver do, in each precision that kernels are made for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Precision:
    """tolerance: where Newton stops, as a force in units of the mean inertia.

    A contact's stiffness, in units of the inertia that it acts on: from `stiff` on, rounding shows in a Newton step;
    beyond `stiffest` it is more than rounding bears, and the contact is softened to that.

    pivot: where factoring leaves a smaller share of a row's diagonal entry than this, it is rounding's: the row follows
    from others.
    """

    tolerance: float
    stiff: float
    stiffest: float
    pivot: float


SINGLE = Precision(tolerance=1e-6, stiff=1e3, stiffest=1e4, pivot=1e-6)
DOUBLE = Precision(tolerance=1e-13, stiff=1e5, stiffest=3e9, pivot=0.0)
PRECISIONS = {"float32": SINGLE, "float64": DOUBLE}
