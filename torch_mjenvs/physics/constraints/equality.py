"""Equalities: rows that pull either way. What they hold is in `couplings` (joints, tendons) and `welds` (bodies)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from ...compiler.scalar import Mask, Scalar, absolute, logical_and, select
from ..data import Data
from ..model import Model
from ..sparse import Row, row_times
from ..spatial import add_scaled
from .rows import Constraint


@dataclass(frozen=True)
class EqualityRow:
    """Its residual is J a + y0, and costs 1/2 D e**2 whatever its sign.

    wrenches: by body, what a unit of its force is to it, (torque, force) about the origin of the body's tree; empty
    where MuJoCo does not count it among the forces on bodies.
    """

    jacobian: Row
    D: Scalar
    y0: Scalar
    wrenches: dict[int, list] = field(default_factory=dict)

    def slope(self, a: list) -> Scalar:
        """D times the residual: the force, the other way."""
        return self.D * (row_times(self.jacobian, a) + self.y0)


@dataclass
class Equality(Constraint):
    """One, of 1, 3 or 6 rows."""

    rows: list[EqualityRow]
    shown: Mask  # see `shows`

    def __post_init__(self) -> None:
        """J'DJ, by row and column of the lower triangle: the same at every a, so computed before the solver's loop."""
        self.stiffness: dict[tuple[int, int], Scalar] = {}
        for row in self.rows:
            images = [(v, row.D * x) for v, x in row.jacobian.items()]
            for u, x in row.jacobian.items():
                for v, y in images:
                    if v <= u:
                        self.stiffness[u, v] = self.stiffness.get((u, v), 0.0) + x * y

    @property
    def shows(self) -> list[Mask]:
        return [] if self.shown is False else [self.shown]

    def where(self, active: Scalar) -> Equality:
        """The same in the worlds where its flag is not 0; in the others its rows have no stiffness."""
        on = absolute(active) > 0.0
        rows = [replace(row, D=select(on, row.D, 0.0)) for row in self.rows]
        return Equality(rows, logical_and(on, self.shown))

    def add_rows(self, m: Model, d: Data, a: list, gradient: list, hessian: list[dict]) -> None:
        for row in self.rows:
            slope = row.slope(a)
            for v, x in row.jacobian.items():
                gradient[v] = gradient[v] + slope * x
        for (u, v), x in self.stiffness.items():
            hessian[u][v] = hessian[u].get(v, 0.0) + x

    def fold_rows(self, m: Model, d: Data, a: list, dx: list, alpha: Scalar, total: list) -> list:
        for row in self.rows:  # always pressed: none flips
            change = row_times(row.jacobian, dx)
            slope, curve = row.slope(a) + row.D * (alpha * change), row.D * change * change
            total = [total[0] + slope * change, total[1] + curve, total[2], total[3] + curve]
        return total

    def add_wrenches(self, m: Model, d: Data, a: list, wrench: list[list]) -> None:
        for row in self.rows:
            force = -row.slope(a)
            for body, pull in row.wrenches.items():
                wrench[body] = add_scaled(wrench[body], pull, force)
