"""Equalities are rows that push and pull; `couplings` makes those of joints and tendons, `welds` of bodies."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...compiler.scalar import Mask, Scalar, absolute, logical_and, select
from ..algebra.spatial import Vec
from ..model.data import Data
from ..model.model import Model
from .laws import TwoSided
from .rows import Constraint, Hessian
from .scalar_row import ScalarRow


@dataclass
class Equality(Constraint):
    """An equality constraint, of 1, 3 or 6 rows under `TwoSided` laws. refine: see `needs_refinement`."""

    rows: list[ScalarRow]
    refine: Mask

    def __post_init__(self) -> None:
        """Compute J'DJ, by row and column of the lower triangle, before the solver's loop, since no a changes it."""
        self.stiffness: dict[tuple[int, int], Scalar] = {}
        for row in self.rows:
            images = [(v, row.D * x) for v, x in row.jacobian.items()]
            for u, x in row.jacobian.items():
                for v, y in images:
                    if v <= u:
                        self.stiffness[u, v] = self.stiffness.get((u, v), 0.0) + x * y

    @property
    def needs_refinement(self) -> list[Mask]:
        return [] if self.refine is False else [self.refine]

    def where(self, active: Scalar) -> Equality:
        """Return the equality as it acts where its flag is not 0: in the other worlds its rows have no stiffness."""
        on = absolute(active) > 0.0
        rows = [replace(row, law=TwoSided(select(on, row.D, 0.0))) for row in self.rows]
        return Equality(rows, logical_and(on, self.refine))

    def add_rows(self, m: Model, d: Data, a: Vec, gradient: list[Scalar], hessian: Hessian) -> None:
        for row in self.rows:
            row.add_slope(a, gradient)
        for (u, v), x in self.stiffness.items():
            hessian[u][v] = hessian[u].get(v, 0.0) + x

    def fold_rows(self, m: Model, d: Data, a: Vec, dx: Vec, alpha: Scalar, total: list[Scalar]) -> list[Scalar]:
        for row in self.rows:
            total = row.fold_rows(m, d, a, dx, alpha, total)
        return total

    def add_wrenches(self, m: Model, d: Data, a: Vec, wrench: list[list[Scalar]]) -> None:
        for row in self.rows:
            row.add_wrenches(m, d, a, wrench)
