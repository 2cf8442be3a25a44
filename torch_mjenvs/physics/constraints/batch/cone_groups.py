"""Contacts of a batch of pairs with friction, or between trees: a row of the Jacobian for each axis.

A line is an axis of the contact as a spatial vector, at the origin of either body's tree: see `body_contacts`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

from ....compiler.control import add_each, fold_each
from ....compiler.scalar import Scalar
from ...algebra.spatial import Vec, choose, dot, sum_of
from ...model.data import Data
from ...model.model import Model
from ..body_contacts import lines_of
from ..cones.pyramid import Cone
from ..contact_force import in_world
from ..contacts import cone_of
from ..softening import ContactBound
from .contact_groups import ContactGroup
from .pair_tables import PairTables
from .records import records_each


@dataclass
class ConeGroup(ContactGroup):
    """The contacts of a batch of pairs, each with a friction cone.

    rows: lines (side, k), first of the second body, y0 and J of the axes (condim), D and friction. cone: of friction
    and D.
    """

    cone: Callable[[list[Scalar], Scalar], Cone]

    def fold_rows(self, m: Model, d: Data, a: Vec, dx: Vec, alpha: Scalar, total: list[Scalar]) -> list[Scalar]:
        x, change = self.batch.of_dofs(a), self.batch.of_dofs(dx)

        def push(i: Any, carry: list[Scalar]) -> list[Scalar]:
            cone = self._cone(i)
            y, v = self._residual(i, x), [dot(row, self._at(i, change)) for row in self._jacobian(i)]
            return cone.fold(carry, cone.rows(y), cone.rows(v), alpha)

        return fold_each(self.touching, push, total)

    def add_wrenches(self, m: Model, d: Data, a: Vec, wrench: list[list[Scalar]]) -> None:
        x, condim = self.batch.of_dofs(a), range(self.batch.condim)

        def push(i: Any) -> list[Any]:
            force = self._force(i, x)
            second, first = (in_world([self.rows.at(i, ("line", side, k)) for k in condim], force) for side in (0, 1))
            one, two = (self.batch.per_contact([6 * body[side] for body in self.batch.bodies], i) for side in (0, 1))
            return [[(one + c, -y) for c, y in enumerate(first)] + [(two + c, y) for c, y in enumerate(second)]]

        (flat,) = add_each(self.touching, push, [[y for w in wrench for y in w]])
        for body in {body for pair in self.batch.bodies for body in pair if body}:
            wrench[body] = flat[6 * body : 6 * body + 6]

    def _push(self, i: Any, x: Any) -> list[Any]:
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

    def _force(self, i: Any, x: Any) -> list[Scalar]:
        return self._cone(i).push(self._residual(i, x))[0]

    def _cone(self, i: Any) -> Cone:
        return self.cone(self.rows.at(i, "friction"), self.rows.at(i, "D"))

    def _jacobian(self, i: Any) -> list[list[Scalar]]:
        return [self.rows.at(i, ("J", k)) for k in range(self.batch.condim)]

    def _residual(self, i: Any, x: Any) -> list[Scalar]:
        at = self._at(i, x)
        return [dot(row, at) + self.rows.at(i, ("y0", k)) for k, row in enumerate(self._jacobian(i))]

    def _at(self, i: Any, x: Any) -> list[Scalar]:
        return [x[self.batch.dof(i, c)] for c in range(self.batch.most)]


def cone_group(m: Model, tables: PairTables) -> ConeGroup:
    """Make the contacts of a batch of pairs with friction, or between trees."""
    touching = tables.touching()
    rows = records_each(touching, lambda i: _rows(tables, i))
    return ConeGroup(tables, touching, rows, lambda friction, D: cone_of(m, friction, D, ContactBound(False)))


def _rows(tables: PairTables, i: Any) -> dict[Hashable, Any]:
    """Compute the rows of contact i, as `ConeGroup.rows` has them."""
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
    found: dict[Hashable, Any] = {("line", side, j): line for side in (0, 1) for j, line in enumerate(lines[side])}
    found |= {("y0", j): y for j, y in enumerate(row.y0(speed))} | {("J", j): x for j, x in enumerate(jacobian)}
    return found | {"D": row.stiffness(), "friction": [x.of_contact(i) for x in tables.friction]}
