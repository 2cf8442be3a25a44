"""Contacts of batches of pairs with the world, such as feet on rough ground: each is a stiffness of its body.

So the solver needs none of their rows of the Jacobian: see `world_contacts`.

i number of a contact
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ....compiler.active_sets import add_all, fold_each
from ....compiler.arrays import Array
from ....compiler.scalar import Mask, Scalar
from ...algebra.spatial import Vec, add, choose, zeros
from ...model.data import Data
from ...model.model import Model, Pair, bodies_of
from ..body_contacts import lines_of, sides_of
from ..cones.pyramid import Cone
from ..contact_force import body_motion
from ..listed import ByBody, Visit
from ..rows import Constraint, Hessian
from ..world_contacts import Sums, add_stiffness, along, spread
from .in_loop import fold_in_loop, pull_in_loop, refined_in_loop
from .pair_batch import PairBatch
from .pair_tables import PairTables, each_tables
from .records import Computed, Records, Row, records_each

SIZE = 6 + 21  # of the wrench and the stiffness of a body


@dataclass
class WorldBatches(Constraint):
    """The contacts of all batches with the world. touched: the bodies that they may touch."""

    batches: Sequence[WorldBatch]
    touched: Sequence[int]

    @property
    def needs_refinement(self) -> list[Mask]:
        return [mask for b in self.batches for mask in b.refine]

    def recomputed(self) -> WorldBatches:
        anew = [dataclasses.replace(b, tables=b.tables.recomputed()) for b in self.batches]
        return dataclasses.replace(self, batches=anew)

    def add_rows(self, m: Model, d: Data, a: Vec, gradient: list[Scalar], hessian: Hessian) -> None:
        motion, n = self._motion(m, d, a), len(self.touched)
        loops = [(b.touching, functools.partial(b.push, motion)) for b in self.batches]
        (sums,) = add_all(loops, [zeros(SIZE * n)])

        def of_body(k: int) -> Sums:
            return [sums[SIZE * k : SIZE * k + 6], sums[SIZE * k + 6 : SIZE * (k + 1)]]

        own = {body: functools.partial(of_body, k) for k, body in enumerate(self.touched)}
        spread(m, d, dict.fromkeys(self.touched, True), own, gradient, hessian)

    def fold_rows(self, m: Model, d: Data, a: Vec, dx: Vec, alpha: Scalar, total: list[Scalar]) -> list[Scalar]:
        motion, change = self._motion(m, d, a), self._motion(m, d, dx)
        for b in self.batches:
            total = b.fold_rows(motion, change, alpha, total)
        return total

    def add_wrenches(self, m: Model, d: Data, a: Vec, wrench: list[list[Scalar]]) -> None:
        motion = self._motion(m, d, a)
        for b in self.batches:
            b.add_wrenches(motion, wrench)

    def fold_listed(
        self, m: Model, d: Data, a: Vec, wanted: Callable[[Pair], bool], by_body: ByBody, visit: Visit, carry: Any
    ) -> Any:
        motion = self._motion(m, d, a)
        for b in self.batches:
            if any(map(wanted, b.tables.batch.pairs)):
                carry = b.fold_listed(motion, wanted, by_body, visit, carry)
        return carry

    def _motion(self, m: Model, d: Data, x: Vec) -> Array:
        """Compute the spatial motion of each body that may be touched, for the dof values x (nv)."""
        motion = body_motion(m, d, x)
        return Array([motion[body] for body in self.touched])


@dataclass
class WorldBatch:
    """The contacts of a batch of pairs with the world.

    velocity: of the bodies that may be touched. places: for each pair, its moving body's place among these. signs: for
    each pair, +1 if the normal points to that body, else -1. refine: masks as of `Constraint.needs_refinement`. rows:
    those of the contacts `touching`, each computed where it is asked for unless `kept`.
    """

    m: Model
    tables: PairTables
    velocity: Array
    places: Sequence[int]
    signs: Sequence[float]
    touching: Any
    refine: Sequence[Mask]
    rows: Records | Computed = field(init=False)

    def __post_init__(self) -> None:
        self.rows = Computed(self._row)

    def kept(self) -> WorldBatch:
        """Compute the rows of all contacts now, and keep them."""
        self.rows = records_each(self.touching, self._row)
        return self

    def _row(self, i: Any) -> Row:
        """Compute contact i's point r from its body's tree's origin, its axes, y0 of them (condim), D, friction."""
        dist, (arm1, arm2), frame = self.tables.place(i)
        sign, row = self._per_pair(self.signs, i), self.tables.row(i, dist)
        r = choose(sign > 0.0, arm2, arm1)
        y0 = row.y0(along(r, frame, self.tables.batch.condim, sign, self._of_body(self.velocity, i)))
        friction, stiffness = self.tables.friction(i), self.tables.stiffness(i, row)
        return {"r": r, "y0": y0, "D": stiffness, "friction": friction} | dict(enumerate(frame))

    def push(self, motion: Array, i: Any) -> list[Any]:
        """Return contact i's share of its body's wrench and stiffness, as (place, value)."""
        cone, r, frame, sign = self._cone(i), self.rows.at(i, "r"), self._frame(i), self._per_pair(self.signs, i)
        none = [zeros(6), zeros(SIZE - 6)]
        wrench, stiffness = add_stiffness(none, r, frame, sign, *cone.push(self._residual(motion, i)))
        start = self._per_pair([SIZE * place for place in self.places], i)
        return [[(start + k, x) for k, x in enumerate([*wrench, *stiffness])]]

    def fold_rows(self, motion: Array, change: Array, alpha: Scalar, total: list[Scalar]) -> list[Scalar]:
        def push(i: Any, carry: list[Scalar]) -> list[Scalar]:
            cone = self._cone(i)
            return cone.fold(carry, cone.rows(self._residual(motion, i)), cone.rows(self._along(change, i)), alpha)

        return fold_each(self.touching, push, total)

    def add_wrenches(self, motion: Array, wrench: list[list[Scalar]]) -> None:
        batch = self.tables.batch
        # The arm from a fixed body's own origin is needed only there: nobody asks for the wrench on the world itself.
        one_arm = all(0 in bodies for bodies in batch.bodies)

        def lines(i: Any, side: int) -> list[list[Scalar]]:
            if one_arm:
                r = self.rows.at(i, "r")
                return lines_of((r, r), self._frame(i), batch.condim)[side]
            _, (arm1, arm2), frame = self.tables.place(i)
            return lines_of((arm1, arm2), frame, batch.condim)[side]

        pull_in_loop(
            self.touching, batch.bodies, batch.per_contact, lambda i: self._force(motion, i), lines, one_arm, wrench
        )

    def fold_listed(
        self, motion: Array, wanted: Callable[[Pair], bool], by_body: ByBody, visit: Visit, carry: Any
    ) -> Any:
        batch = self.tables.batch

        return fold_in_loop(
            self.touching, batch.pairs, batch.bodies, batch.per_contact, batch.number, self.tables.place,
            lambda i: self._force(motion, i), wanted, by_body, visit, carry,
        )  # fmt: skip

    def _force(self, motion: Array, i: Any) -> list[Scalar]:
        """Return the force of contact i along its axes (condim)."""
        return self._cone(i).push(self._residual(motion, i))[0]

    def _residual(self, motion: Array, i: Any) -> list[Scalar]:
        """Return the residual J a + y0 of contact i along its axes (condim)."""
        return add(self._along(motion, i), self.rows.at(i, "y0"))

    def _along(self, motion: Array, i: Any) -> list[Scalar]:
        """Return the motion of contact i's point along its axes (condim)."""
        r, sign = self.rows.at(i, "r"), self._per_pair(self.signs, i)
        return along(r, self._frame(i), self.tables.batch.condim, sign, self._of_body(motion, i))

    def _frame(self, i: Any) -> list[list[Scalar]]:
        return [self.rows.at(i, k) for k in range(3)]

    def _of_body(self, motion: Array, i: Any) -> list[Scalar]:
        """Return the spatial motion of contact i's body."""
        return motion[self._per_pair(self.places, i), :]

    def _cone(self, i: Any) -> Cone:
        return self.tables.cone(self.m, i, self.rows)

    def _per_pair(self, values: Sequence[Any], i: Any) -> Any:
        """Return contact i's entry of a list with one entry for each pair."""
        return values[0] if len(set(values)) == 1 else self.tables.batch.per_contact(values, i)


def world_batches(m: Model, d: Data, batches: Sequence[list[Pair]]) -> list[WorldBatches]:
    """Make the contacts of batches of pairs with the world; an empty list if there are none."""
    if not batches:
        return []
    sides = [[sides_of(m, *bodies_of(m, p))[0] for p in pairs] for pairs in batches]
    touched = sorted({side.body for of_batch in sides for side in of_batch})
    velocity = Array([list(d.ovel[body]) for body in touched])
    found = []
    tables_of = each_tables(m, batches, lambda pairs: PairTables(m, d, PairBatch.of(m, pairs)))
    for tables, of_batch in zip(tables_of, sides, strict=True):
        touching = tables.touching()
        refine = refined_in_loop(touching, tables.repeated) if tables.may_repeat else []
        places, signs = [touched.index(side.body) for side in of_batch], [side.sign for side in of_batch]
        found.append(WorldBatch(m, tables, velocity, places, signs, touching, refine).kept())
    return [WorldBatches(found, touched)]
