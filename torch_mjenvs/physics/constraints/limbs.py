"""Rows that couple limbs: `CouplingRows` in the first of the solver's two loops, and `IdleRows` in the second.

A vector of worlds takes the first loop if limbs meet in any of its worlds, and else the second, whose Hessian has M's
pattern: see `newton`. A world's bits must not depend on the other worlds of its vector, so both loops must round alike.
Therefore values that pass through these rows are opaque to the code after them, whether the rows act or not, and the
rows' own code shares nothing with the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from ...compiler.scalar import Scalar, opaque
from ..algebra.spatial import Vec
from ..model.data import Data
from ..model.model import Model, dof_chain
from .rows import Constraint, Hessian


@dataclass
class IdleRows(Constraint):
    """Stand-in for the rows that couple limbs, in the loop in which none of them acts.

    dofs: those whose forces the rows would change. entries: the Hessian's that they would change, as (row, column).
    """

    dofs: Collection[int]
    entries: Collection[tuple[int, int]]

    @classmethod
    def of(cls, m: Model, moved: Iterable[Collection[int]]) -> IdleRows | None:
        """Make the stand-in for rows that each couple some dofs; None if M couples all of these, too."""
        lists = list(moved)
        entries = sorted({(u, v) for own in lists for u in own for v in own if v <= u})
        new = any(v not in dof_chain(m, u) for u, v in entries)
        return cls(sorted({v for own in lists for v in own}), entries) if new else None

    def add_rows(self, m: Model, d: Data, a: Vec, gradient: list[Scalar], hessian: Hessian) -> None:
        for v in self.dofs:
            gradient[v] = opaque(gradient[v])
        for u, v in self.entries:
            if v in hessian[u] or v in dof_chain(m, u):  # any other entry stays 0
                hessian[u][v] = opaque(hessian[u].get(v, 0.0))

    def fold_rows(self, m: Model, d: Data, a: Vec, dx: Vec, alpha: Scalar, total: list[Scalar]) -> list[Scalar]:
        return [opaque(x) for x in total]


@dataclass
class CouplingRows(Constraint):
    """Rows that couple limbs, and that a stand-in may replace. Both keep the compiler from changing the code around
    them, so that this is rounded alike in either loop.

    apart: as `control.apart` makes it for the code around the solver's loops.
    """

    rows: Constraint
    idle_rows: Constraint
    apart: Callable[[], AbstractContextManager[object]]

    def add_rows(self, m: Model, d: Data, a: Vec, gradient: list[Scalar], hessian: Hessian) -> None:
        with self.apart():
            self.idle_rows.add_rows(m, d, a, gradient, hessian)
            self.rows.add_rows(m, d, a, gradient, hessian)
            self.idle_rows.add_rows(m, d, a, gradient, hessian)

    def fold_rows(self, m: Model, d: Data, a: Vec, dx: Vec, alpha: Scalar, total: list[Scalar]) -> list[Scalar]:
        with self.apart():
            total = self.idle_rows.fold_rows(m, d, a, dx, alpha, total)
            total = self.rows.fold_rows(m, d, a, [opaque(x) for x in dx], alpha, total)
            return self.idle_rows.fold_rows(m, d, a, dx, alpha, total)
