"""Contacts of a batch of pairs without friction and of one tree: one row each, along one line.

All others are in `cone_groups`.

i number of a contact   J its row of the Jacobian, in the `dofs` that tell its bodies apart, `own` in number
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ....compiler.arrays import Array, Table
from ....compiler.control import add_each, fold_each, when_any
from ....compiler.scalar import Scalar, minimum, select
from ...algebra.spatial import Vec, cross, dot, scale
from ...model.data import Data
from ...model.model import Model, Pair
from ..laws import OneSided
from ..listed import ByBody, Listed, Visit
from ..rows import Constraint, Hessian
from .pair_batch import PairBatch
from .pair_tables import PairTables
from .records import Records, records_each


@dataclass
class ContactGroup(Constraint):
    """The contacts of a batch of pairs without friction.

    rows: of those `touching`, line (r x n, n), D, y0 and J.
    """

    tables: PairTables
    touching: Any
    rows: Records

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
        g, row = self.batch, self.rows.at(i, "J")
        e = dot(row, [x[g.dof(i, c)] for c in range(g.most)]) + self.rows.at(i, "y0")
        pressed = select(e < 0.0, self.rows.at(i, "D"), 0.0)
        f = pressed * e
        places, starts = self._places(i)
        image = scale(row, pressed)
        return [
            [(place, f * r) for place, r in zip(places, row, strict=True)],
            [(starts[u] + places[v], image[u] * row[v]) for u in range(g.most) for v in range(u + 1)],
        ]

    def _places(self, i: Any) -> tuple[list[Scalar], list[Scalar]]:
        """Places of contact i's dofs in the gradient, and of their rows in the Hessian's lower triangle."""
        g = self.batch
        places = [g.dof(i, c) for c in range(g.most)]
        return places, [g.per_contact([own[c] * (own[c] + 1) // 2 for own in g.own], i) for c in range(g.most)]

    def fold_rows(self, m: Model, d: Data, a: Vec, dx: Vec, alpha: Scalar, total: list[Scalar]) -> list[Scalar]:
        x, change = self.batch.of_dofs(a), self.batch.of_dofs(dx)

        def push(i: Any, carry: list[Scalar]) -> list[Scalar]:
            e, v = self._along(i, x) + self.rows.at(i, "y0"), self._along(i, change)
            return OneSided(self.rows.at(i, "D")).fold(carry, e, v, alpha)

        return fold_each(self.touching, push, total)

    def add_wrenches(self, m: Model, d: Data, a: Vec, wrench: list[list[Scalar]]) -> None:
        x = self.batch.of_dofs(a)

        def push(i: Any) -> list[Any]:
            force = self._pull(i, x)
            f = scale(self.rows.at(i, "line"), force)
            starts = [[6 * body[side] for body in self.batch.bodies] for side in (0, 1)]
            first, second = (self.batch.per_contact(start, i) for start in starts)
            return [[(first + c, y) for c, y in enumerate(f)] + [(second + c, -y) for c, y in enumerate(f)]]

        (flat,) = add_each(self.touching, push, [[y for w in wrench for y in w]])
        for body in {body for pair in self.batch.bodies for body in pair if body}:
            wrench[body] = flat[6 * body : 6 * body + 6]

    def fold_listed(
        self, m: Model, d: Data, a: Vec, wanted: Callable[[Pair], bool], by_body: ByBody, visit: Visit, carry: Any
    ) -> Any:
        """Run `visit` over the contacts of wanted pairs: see `Constraint.fold_listed`."""
        batch = self.batch
        of_interest = [float(wanted(pair)) for pair in batch.pairs]
        if not any(of_interest):
            return carry
        x = batch.of_dofs(a)
        involved = sorted({body for pair in batch.bodies for body in pair})
        tables = {name: Array([list(vectors[body]) for body in involved]) for name, vectors in by_body.items()}
        places = [[involved.index(pair[side]) for pair in batch.bodies] for side in (0, 1)]
        numbers = Table([float(k) for k in range(batch.collider.ncon) for _ in batch.pairs])

        def step(i: Any, carry: Any) -> Any:
            def per_body(name: str) -> list[list[Scalar]]:
                return [tables[name][batch.per_contact(place, i), :] for place in places]

            def of_pair(of: Callable[[Pair], float]) -> Scalar:
                number: Scalar = batch.per_contact([float(of(pair)) for pair in batch.pairs], i)
                return number

            def look(carry: Any) -> Any:
                dist, p, frame = self.tables.contact(i)
                points = list(self.tables.arms(i, p))
                listed = Listed(None, of_pair, numbers[i], dist, points, frame, self._force(i, x), per_body)
                return visit(listed, carry)

            return when_any(of_pair(wanted) > 0.5, look, carry)

        return fold_each(self.touching, step, carry)

    def _force(self, i: Any, x: Any) -> list[Scalar]:
        """The force of contact i along its axes (condim)."""
        return [-self._pull(i, x)]

    def _pull(self, i: Any, x: Any) -> Scalar:
        """The opposite of the normal force of contact i."""
        return self.rows.at(i, "D") * minimum(self._along(i, x) + self.rows.at(i, "y0"), 0.0)

    def _along(self, i: Any, x: Any) -> Scalar:
        """The product J x of contact i, where x has one number a dof."""
        return dot(self.rows.at(i, "J"), [x[self.batch.dof(i, k)] for k in range(self.batch.most)])


def contact_group(tables: PairTables) -> ContactGroup:
    """Make the contacts of a batch of pairs without friction, each within one tree."""
    touching = tables.touching()
    return ContactGroup(tables, touching, records_each(touching, lambda i: _row(tables, i)))


def _row(tables: PairTables, i: Any) -> dict[str, Any]:
    """Compute the row of contact i, as `ContactGroup.rows` has it."""
    batch = tables.batch
    dist, p, frame = tables.contact(i)
    line = cross(p, frame[0]) + frame[0]
    row, J = tables.row(i, dist), []
    speed: Scalar = 0.0
    for c in range(batch.most):
        dof = batch.dof(i, c)
        odof, qvel = tables.moving.at(dof, "odof"), tables.moving.at(dof, "qvel")
        J.append(dot(line, odof) * batch.sign(i, c))
        speed = speed + J[-1] * qvel
    D = row.stiffness()
    return {"line": line, "D": D, "y0": row.y0([speed])[0], "J": J}
