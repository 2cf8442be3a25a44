"""Rows that couple limbs, in the solver's two loops: `Beside` the others in the first, and `Idle` in the second.

A vector of worlds in which any limbs meet takes the first loop, one in which none do the second, whose Hessian has M's
pattern: see `newton`. A world's bits must not depend on what limbs of others in its vector do, so both loops are
rounded alike: what passes through these rows is opaque to the code after it, whether they act or not, and their own
code shares nothing with the rest.
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
class Idle(Constraint):
    """Rows of which none acts.

    dofs: those whose forces they would change. entries: those of the Hessian, rows and columns.
    """

    dofs: Collection[int]
    entries: Collection[tuple[int, int]]

    @classmethod
    def of(cls, m: Model, moved: Iterable[Collection[int]]) -> Idle | None:
        """Make those of rows that each couple some dofs; None if M couples them all, too."""
        lists = list(moved)
        entries = sorted({(u, v) for own in lists for u in own for v in own if v <= u})
        new = any(v not in dof_chain(m, u) for u, v in entries)
        return cls(sorted({v for own in lists for v in own}), entries) if new else None

    def add_rows(self, m: Model, d: Data, a: Vec, gradient: list[Scalar], hessian: Hessian) -> None:
        for v in self.dofs:
            gradient[v] = opaque(gradient[v])
        for u, v in self.entries:
            if v in hessian[u] or v in dof_chain(m, u):  # else nothing makes it anything but 0
                hessian[u][v] = opaque(hessian[u].get(v, 0.0))

    def fold_rows(self, m: Model, d: Data, a: Vec, dx: Vec, alpha: Scalar, total: list[Scalar]) -> list[Scalar]:
        return [opaque(x) for x in total]


@dataclass
class Beside(Constraint):
    """Rows that idle ones may take the place of: the code of all else is rounded as it is beside these.

    apart: see `control.apart`, of the code around the solver's loops.
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
