"""Contacts of a batch of pairs: a row of the Jacobian for each axis of a contact.

A line is an axis of the contact as a spatial vector, at the origin of either body's tree: see `body_contacts`.

i number of a contact   J its rows of the Jacobian, by the dofs that tell its bodies apart (`PairBatch.own`)
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from ....compiler.active_sets import add_all, fold_each
from ....compiler.arrays import Array
from ....compiler.scalar import Mask, Scalar, logical_or
from ...algebra.spatial import Vec, choose, dot, sum_of
from ...model.data import Data
from ...model.model import Model, Pair, bodies_of
from ..body_contacts import lines_of, sides_of
from ..cones.pyramid import Cone
from ..limbs import IdleRows
from ..listed import ByBody, Visit
from ..rows import Constraint, Hessian
from .in_loop import fold_in_loop, pull_in_loop, refined_in_loop
from .pair_batch import PairBatch
from .pair_tables import PairTables, each_tables
from .records import Computed, Records, records, records_each


@dataclass
class ContactGroups(Constraint):
    """The contacts of all batches, each with a friction cone. They share arrays over `dofs`, those of all batches."""

    groups: Sequence[ContactGroup]
    dofs: Sequence[int]

    @property
    def needs_refinement(self) -> list[Mask]:
        return [mask for g in self.groups for mask in g.refine]

    @property
    def acts(self) -> Mask:
        def found(i: Any, _: Any) -> list[Mask]:
            return [True]

        return logical_or(*(fold_each(g.touching, found, [False])[0] for g in self.groups))

    def idle(self, m: Model) -> IdleRows | None:
        found = IdleRows.of(m, ([self.dofs[v] for v in own if v < len(self.dofs)] for own in self._owns()))
        return found and dataclasses.replace(found, dofs=self.dofs)

    def recomputed(self) -> ContactGroups:
        return dataclasses.replace(self, groups=[g.again() for g in self.groups])

    def add_rows(self, m: Model, d: Data, a: Vec, gradient: list[Scalar], hessian: Hessian) -> None:
        x, dofs, n = self._of_dofs(a), self.dofs, len(self.dofs)
        wanted = self._entries()
        old = [hessian[dofs[u]].get(dofs[v], 0.0) for u in range(n) for v in range(u + 1)] + [0.0] * (n + 1)
        loops = [(g.touching, functools.partial(g.push, x)) for g in self.groups]
        pushed, stiffness = add_all(loops, [[gradient[v] for v in dofs] + [0.0], old])
        for v, value in zip(dofs, pushed, strict=False):
            gradient[v] = value
        for u, v in wanted:
            hessian[dofs[u]][dofs[v]] = stiffness[u * (u + 1) // 2 + v]

    def fold_rows(self, m: Model, d: Data, a: Vec, dx: Vec, alpha: Scalar, total: list[Scalar]) -> list[Scalar]:
        x, change = self._of_dofs(a), self._of_dofs(dx)
        for g in self.groups:
            total = g.fold_rows(x, change, alpha, total)
        return total

    def add_wrenches(self, m: Model, d: Data, a: Vec, wrench: list[list[Scalar]]) -> None:
        x = self._of_dofs(a)
        for g in self.groups:
            g.add_wrenches(x, wrench)

    def fold_listed(
        self, m: Model, d: Data, a: Vec, wanted: Callable[[Pair], bool], by_body: ByBody, visit: Visit, carry: Any
    ) -> Any:
        x = self._of_dofs(a)
        for g in self.groups:
            if any(map(wanted, g.batch.pairs)):
                carry = g.fold_listed(x, wanted, by_body, visit, carry)
        return carry

    def _entries(self) -> list[tuple[int, int]]:
        """Return the entries of the Hessian that contacts may change, by places in `dofs`."""
        n = len(self.dofs)
        return sorted({(u, v) for own in self._owns() for u in own for v in own if v <= u < n})

    def _owns(self) -> list[list[int]]:
        """Return the dofs of each pair, by places in `dofs`."""
        return [own for g in self.groups for own in g.batch.own]

    def _of_dofs(self, x: Vec) -> Array:
        """Pick from x (nv) one number for each of `dofs`, and append a 0 for the dof that never moves."""
        return Array([x[v] for v in self.dofs] + [0.0])


@dataclass
class ContactGroup:
    """The contacts of a batch of pairs, each with a friction cone.

    rows: for each contact in `touching`, lines (side, k), y0 and J by axis (condim), D and friction. Side 0 is the
    second body; side 1 is the first, which shares the lines of side 0 if both are of one tree. cone: makes the cone of
    a contact. place: returns a contact's distance, its point from the origins of the trees of the first body and of
    the second, and its frame. refine: masks as of `Constraint.needs_refinement`. again: makes a group that keeps no
    list of what it computed.
    """

    batch: PairBatch
    touching: Any
    rows: Records | Computed
    cone: Callable[[Any], Cone]
    place: Callable[[Any], tuple[Scalar, list[list[Scalar]], list[list[Scalar]]]]
    refine: Sequence[Mask]
    again: Callable[[], ContactGroup]

    def push(self, x: Any, i: Any) -> list[Any]:
        """Return contact i's share of the gradient and of the Hessian (lower triangle by rows), as (place, value)."""
        jacobian, rows, dofs = self._jacobian(i), range(self.batch.condim), range(self.batch.most)
        force, weight = self.cone(i).push(self._residual(i, x))
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
        """Return the places of contact i's dofs in the gradient, and of their rows in the Hessian's lower triangle."""
        g = self.batch
        places = [g.dof(i, c) for c in range(g.most)]
        return places, [g.per_contact([own[c] * (own[c] + 1) // 2 for own in g.own], i) for c in range(g.most)]

    def fold_rows(self, x: Any, change: Any, alpha: Scalar, total: list[Scalar]) -> list[Scalar]:
        def push(i: Any, carry: list[Scalar]) -> list[Scalar]:
            cone = self.cone(i)
            y, v = self._residual(i, x), [dot(row, self._at(i, change)) for row in self._jacobian(i)]
            return cone.fold(carry, cone.rows(y), cone.rows(v), alpha)

        return fold_each(self.touching, push, total)

    def add_wrenches(self, x: Any, wrench: list[list[Scalar]]) -> None:
        condim = range(self.batch.condim)

        def lines(i: Any, side: int) -> list[list[Scalar]]:
            return [self.rows.at(i, ("line", side, k)) for k in condim]

        pull_in_loop(
            self.touching, self.batch.bodies, self.batch.per_contact, lambda i: self._force(i, x), lines,
            self.batch.one_tree, wrench,
        )  # fmt: skip

    def fold_listed(self, x: Any, wanted: Callable[[Pair], bool], by_body: ByBody, visit: Visit, carry: Any) -> Any:
        batch = self.batch
        return fold_in_loop(
            self.touching, batch.pairs, batch.bodies, batch.per_contact, batch.number, self.place,
            lambda i: self._force(i, x), wanted, by_body, visit, carry,
        )  # fmt: skip

    def _force(self, i: Any, x: Any) -> list[Scalar]:
        """Return the force of contact i along its axes (condim)."""
        return self.cone(i).push(self._residual(i, x))[0]

    def _jacobian(self, i: Any) -> list[list[Scalar]]:
        return [self.rows.at(i, ("J", k)) for k in range(self.batch.condim)]

    def _residual(self, i: Any, x: Any) -> list[Scalar]:
        at = self._at(i, x)
        return [dot(row, at) + self.rows.at(i, ("y0", k)) for k, row in enumerate(self._jacobian(i))]

    def _at(self, i: Any, x: Any) -> list[Scalar]:
        """Pick from x, which has a number for each dof, those of contact i's own dofs."""
        return [x[self.batch.dof(i, c)] for c in range(self.batch.most)]


def contact_groups(m: Model, d: Data, batches: Sequence[list[Pair]]) -> list[ContactGroups]:
    """Make the contacts of batches of pairs; an empty list if there are none."""
    if not batches:
        return []
    bodies = {bodies_of(m, p) for pairs in batches for p in pairs}
    dofs = sorted({v for two in bodies for side in sides_of(m, *two) for v in side.dofs})
    moving = records([*({"odof": list(d.odof[v]), "qvel": d.qvel[v]} for v in dofs), {"odof": [0.0] * 6, "qvel": 0.0}])
    groups = []
    for tables in each_tables(m, batches, lambda pairs: PairTables(m, d, PairBatch.of(m, pairs, dofs))):
        touching = tables.touching()
        refine = refined_in_loop(touching, tables.repeated) if tables.may_repeat else []
        rows = records_each(touching, functools.partial(_row, tables, moving))
        groups.append(_group(m, tables, moving, touching, refine, rows))
    return [ContactGroups(groups, dofs)]


def _group(
    m: Model, tables: PairTables, moving: Records, touching: Any, refine: Sequence[Mask], rows: Records | Computed
) -> ContactGroup:
    def cone(i: Any) -> Cone:
        return tables.cone(m, i, rows)

    def again() -> ContactGroup:
        anew = tables.recomputed()
        return _group(m, anew, moving, touching, refine, Computed(functools.partial(_row, anew, moving)))

    return ContactGroup(tables.batch, touching, rows, cone, tables.place, refine, again)


def _row(tables: PairTables, moving: Records, i: Any) -> dict[Hashable, Any]:
    """Compute what `ContactGroup.rows` has of contact i."""
    dist, p, frame = tables.contact(i)
    lines, row = lines_of(tables.arms(i, p), frame, tables.batch.condim), tables.row(i, dist)
    found = rows_of(tables.batch, moving, i, lines, row.y0)
    return found | {"D": tables.stiffness(i, row), "friction": tables.friction(i)}


def rows_of(
    batch: PairBatch,
    moving: Records,
    i: Any,
    lines: list[list[list[Scalar]]],
    y0: Callable[[list[Scalar]], list[Scalar]],
) -> dict[Hashable, Any]:
    """Compute lines, y0 and J of contact i of a batch, as `ContactGroup.rows` has them.

    moving: the motion axes and speeds of the batch's dofs. y0: computes y0 from the velocity along each axis.
    """
    jacobian: list[list[Scalar]] = [[] for _ in range(batch.condim)]
    speed: list[Scalar] = [0.0] * batch.condim
    for c in range(batch.most):
        dof, sign = batch.dof(i, c), batch.sign(i, c)
        odof, qvel = moving.at(dof, "odof"), moving.at(dof, "qvel")
        for j, (second, first) in enumerate(zip(*lines, strict=True)):
            line = second if batch.one_tree else choose(sign > 0.0, second, first)
            jacobian[j].append(dot(line, odof) * sign)
            speed[j] = speed[j] + jacobian[j][-1] * qvel
    found: dict[Hashable, Any] = {("line", side, j): x for side in _sides(batch) for j, x in enumerate(lines[side])}
    return found | {("y0", j): y for j, y in enumerate(y0(speed))} | {("J", j): x for j, x in enumerate(jacobian)}


def _sides(batch: PairBatch) -> tuple[int, ...]:
    """Return the sides of a contact whose lines are kept: within one tree both bodies have the same."""
    return (0,) if batch.one_tree else (0, 1)
