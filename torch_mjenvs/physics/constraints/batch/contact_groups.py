"""Contacts of a batch of pairs: a row of the Jacobian for each axis of a contact.

A line is an axis of the contact as a spatial vector, at the origin of either body's tree: see `body_contacts`.

i number of a contact   J its rows of the Jacobian, in the `dofs` that tell its bodies apart, `own` in number
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

from ....compiler.control import add_each, fold_each
from ....compiler.scalar import Scalar
from ...algebra.spatial import Vec, choose, dot, sum_of
from ...model.data import Data
from ...model.model import Model, Pair
from ..body_contacts import lines_of
from ..cones.pyramid import Cone
from ..contacts import cone_of
from ..listed import ByBody, Visit
from ..rows import Constraint, Hessian
from ..softening import ContactBound
from .in_loop import fold_in_loop, pull_in_loop
from .pair_batch import PairBatch
from .pair_tables import PairTables
from .records import Records, records_each


@dataclass
class ContactGroup(Constraint):
    """The contacts of a batch of pairs, each with a friction cone.

    rows: of those `touching`, lines (side, k), y0 and J of the axes (condim), D and friction. Side 0 is the second
    body; side 1 the first, whose lines are those of side 0 where both are of one tree. cone: of friction and D.
    """

    tables: PairTables
    touching: Any
    rows: Records
    cone: Callable[[list[Scalar], Scalar], Cone]

    @property
    def batch(self) -> PairBatch:
        return self.tables.batch

    def add_rows(self, m: Model, d: Data, a: Vec, gradient: list[Scalar], hessian: Hessian) -> None:
        g, x = self.batch, self.batch.of_dofs(a)
        n = len(g.dofs)
        wanted = sorted({(u, v) for own in g.own for u in own for v in own if v <= u < n})

        lower = [(u, v) for u in range(n) for v in range(u + 1)]
        old = [hessian[g.dofs[u]].get(g.dofs[v], 0.0) for u, v in lower] + [0.0] * (n + 1)
        pushed, stiffness = add_each(
            self.touching, lambda i: self._push(i, x), [[gradient[v] for v in g.dofs] + [0.0], old]
        )
        for k, v in enumerate(g.dofs):
            gradient[v] = pushed[k]
        for u, v in wanted:
            hessian[g.dofs[u]][g.dofs[v]] = stiffness[u * (u + 1) // 2 + v]

    def _push(self, i: Any, x: Any) -> list[Any]:
        """Contact i's share of the gradient, and of the Hessian's lower triangle row by row: (place, value)."""
        jacobian, rows, dofs = self._jacobian(i), range(self.batch.condim), range(self.batch.most)
        force, weight = self._cone(i).push(self._residual(i, x))
        places, starts = self._places(i)
        image = [[sum_of(weight[k][j] * jacobian[j][v] for j in rows) for v in dofs] for k in rows]
        return [
            [(places[v], -sum_of(force[k] * jacobian[k][v] for k in rows)) for v in dofs],
            [
                (starts[u] + places[v], sum_of(jacobian[k][u] * image[k][v] for k in rows))
                for u in dofs
                for v in range(u + 1)
            ],
        ]

    def _places(self, i: Any) -> tuple[list[Scalar], list[Scalar]]:
        """Places of contact i's dofs in the gradient, and of their rows in the Hessian's lower triangle."""
        g = self.batch
        places = [g.dof(i, c) for c in range(g.most)]
        return places, [g.per_contact([own[c] * (own[c] + 1) // 2 for own in g.own], i) for c in range(g.most)]

    def fold_rows(self, m: Model, d: Data, a: Vec, dx: Vec, alpha: Scalar, total: list[Scalar]) -> list[Scalar]:
        x, change = self.batch.of_dofs(a), self.batch.of_dofs(dx)

        def push(i: Any, carry: list[Scalar]) -> list[Scalar]:
            cone = self._cone(i)
            y, v = self._residual(i, x), [dot(row, self._at(i, change)) for row in self._jacobian(i)]
            return cone.fold(carry, cone.rows(y), cone.rows(v), alpha)

        return fold_each(self.touching, push, total)

    def add_wrenches(self, m: Model, d: Data, a: Vec, wrench: list[list[Scalar]]) -> None:
        x, condim = self.batch.of_dofs(a), range(self.batch.condim)

        def lines(i: Any, side: int) -> list[list[Scalar]]:
            return [self.rows.at(i, ("line", side, k)) for k in condim]

        pull_in_loop(
            self.touching, self.batch.bodies, self.batch.per_contact, lambda i: self._force(i, x), lines,
            self.batch.one_tree, wrench,
        )  # fmt: skip

    def fold_listed(
        self, m: Model, d: Data, a: Vec, wanted: Callable[[Pair], bool], by_body: ByBody, visit: Visit, carry: Any
    ) -> Any:
        """Run `visit` over the contacts of wanted pairs: see `Constraint.fold_listed`."""
        batch = self.batch
        if not any(map(wanted, batch.pairs)):
            return carry
        x = batch.of_dofs(a)

        def where(i: Any) -> tuple[Scalar, list[list[Scalar]], list[list[Scalar]]]:
            dist, p, frame = self.tables.contact(i)
            return dist, list(self.tables.arms(i, p)), frame

        return fold_in_loop(
            self.touching, batch.pairs, batch.bodies, batch.per_contact, batch.numbers, where,
            lambda i: self._force(i, x), wanted, by_body, visit, carry,
        )  # fmt: skip

    def _force(self, i: Any, x: Any) -> list[Scalar]:
        """The force of contact i along its axes (condim)."""
        return self._cone(i).push(self._residual(i, x))[0]

    def _cone(self, i: Any) -> Cone:
        return self.cone(self.rows.at(i, "friction"), self.rows.at(i, "D"))

    def _jacobian(self, i: Any) -> list[list[Scalar]]:
        return [self.rows.at(i, ("J", k)) for k in range(self.batch.condim)]

    def _residual(self, i: Any, x: Any) -> list[Scalar]:
        at = self._at(i, x)
        return [dot(row, at) + self.rows.at(i, ("y0", k)) for k, row in enumerate(self._jacobian(i))]

    def _at(self, i: Any, x: Any) -> list[Scalar]:
        """Return contact i's own of these numbers, one a dof."""
        return [x[self.batch.dof(i, c)] for c in range(self.batch.most)]


def contact_group(m: Model, tables: PairTables) -> ContactGroup:
    """Make the contacts of a batch of pairs."""
    touching = tables.touching()
    rows = records_each(touching, lambda i: _rows(tables, i))
    return ContactGroup(tables, touching, rows, lambda friction, D: cone_of(m, friction, D, ContactBound(False)))


def _rows(tables: PairTables, i: Any) -> dict[Hashable, Any]:
    """Compute the rows of contact i, as `ContactGroup.rows` has them."""
    batch = tables.batch
    dist, p, frame = tables.contact(i)
    lines = lines_of(tables.arms(i, p), frame, batch.condim)
    row = tables.row(i, dist)
    jacobian: list[list[Scalar]] = [[] for _ in range(batch.condim)]
    speed: list[Scalar] = [0.0] * batch.condim
    for c in range(batch.most):
        dof, sign = batch.dof(i, c), batch.sign(i, c)
        odof, qvel = tables.moving.at(dof, "odof"), tables.moving.at(dof, "qvel")
        for j, (second, first) in enumerate(zip(*lines, strict=True)):
            line = second if batch.one_tree else choose(sign > 0.0, second, first)
            jacobian[j].append(dot(line, odof) * sign)
            speed[j] = speed[j] + jacobian[j][-1] * qvel
    found: dict[Hashable, Any] = {("line", side, j): x for side in _sides(batch) for j, x in enumerate(lines[side])}
    found |= {("y0", j): y for j, y in enumerate(row.y0(speed))} | {("J", j): x for j, x in enumerate(jacobian)}
    return found | {"D": row.stiffness(), "friction": [x.of_contact(i) for x in tables.friction]}


def _sides(batch: PairBatch) -> tuple[int, ...]:
    """Return the sides of a contact whose lines are kept: within one tree both bodies have the same."""
    return (0,) if batch.one_tree else (0, 1)
