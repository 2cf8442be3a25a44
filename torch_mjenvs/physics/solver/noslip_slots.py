"""Noslip sweeps over contacts in slots (see `contact_pool`), with pyramids of friction: what `noslip` does one by one.

Either all contacts with friction are in pools, or none. A sweep is a loop over those that act, in MuJoCo's order.

Letters: as in `noslip`; k one of a contact's axes of friction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...compiler.arrays import Array, Table
from ...compiler.control import Packed, fold_each, put_each, revise_each
from ...compiler.scalar import Scalar, clip, maximum, select
from ..algebra.spatial import MINVAL, add_scaled, dot, sub, zeros
from ..constraints.batch.contact_pool import ContactPool
from ..constraints.batch.records import Records
from ..dynamics.inertia import AnyFactor, factor, solve
from ..model.data import Data
from ..model.model import Model


@dataclass
class SlotGrips:
    """Friction of the contacts of some pools, by slots of their own, in MuJoCo's order.

    rows: of each contact, and each of its axes k, J and M^-1 J' (nv), and y0, A, the friction coefficient, the force
    at the start and the most that it may be (axes). orders: of each pool's contacts the place in `slots`. force: F as
    sweeps leave it (axes).
    """

    pools: Sequence[ContactPool]
    orders: Sequence[Sequence[int]]
    slots: Packed
    rows: Records
    force: Array
    axes: int

    def sweep(self, a: list[Scalar]) -> list[Scalar]:
        """Return the acceleration after each contact's friction was computed anew."""
        return list(revise_each(self.slots.which, self._visit, list(a), self.force))

    def _visit(self, i: Any, a: list[Scalar]) -> tuple[list[Scalar], list[Scalar]]:
        new = []
        for k in range(self.axes):
            J, image = (self.rows.at(i, (name, k)) for name in ("J", "image"))
            y0, A, mu, most = (self.rows.at(i, name)[k] for name in ("y0", "A", "mu", "most"))
            old = self.force[i, k]
            loose = (4.0 * mu * mu) * A < MINVAL
            held = clip(old - (dot(J, a) + y0) / maximum(A, MINVAL), -most, most)
            new.append(select(loose, 0.0, held))
            a = add_scaled(a, image, new[-1] - old)
        return a, new

    def _change(self, i: Any) -> list[Scalar]:
        return sub(self.force[i], self.rows.at(i, "start"))

    def add_force(self, qfrc: list[Scalar]) -> list[Scalar]:
        """Return qfrc plus J' times the change of force."""

        def push(i: Any, old: list[Scalar]) -> list[Scalar]:
            for k, f in enumerate(self._change(i)):
                old = add_scaled(old, self.rows.at(i, ("J", k)), f)
            return old

        return list(fold_each(self.slots.which, push, list(qfrc)))

    def add_wrenches(self, m: Model, d: Data, wrench: list[list[Scalar]]) -> None:
        """Add the wrenches of the change of force to `wrench`, by body. See `Constraint.add_wrenches`."""
        for pool, order in zip(self.pools, self.orders, strict=True):

            def change(i: Any, pool: ContactPool = pool, order: Sequence[int] = order) -> list[Scalar]:
                slot = self.slots.slot(Table(order)[pool.number(i)])
                return [0.0, *self._change(slot)[: pool.batch.condim - 1]]

            pool.pull(change, wrench)


def grips_in_slots(m: Model, d: Data) -> SlotGrips | None:
    """Make the grips of all contacts with friction that are in pools; None where there are none."""
    pools = [c for c in d.constraints if isinstance(c, ContactPool) and c.batch.condim > 1]
    if not pools:
        return None
    axes = max(pool.batch.condim for pool in pools) - 1
    known = [
        (pair.rank, k, p, number)
        for p, pool in enumerate(pools)
        for number, (pair, k) in enumerate(zip(pool.batch.pairs, pool.batch.numbers, strict=True))
    ]
    orders = [[0] * len(pool.batch.pairs) for pool in pools]
    for place, (_, _, p, number) in enumerate(sorted(known)):
        orders[p][number] = place
    slots = Packed.of([pool.slots for pool in pools], orders, len(known))
    columns: dict[Any, int | slice] = {}
    width = 0
    sizes = dict.fromkeys([("J", k) for k in range(axes)] + [("image", k) for k in range(axes)], m.nv)
    for name, size in (sizes | dict.fromkeys(("y0", "A", "mu", "start", "most"), axes)).items():
        columns[name] = slice(width, width + size)
        width += size
    found, force = Array(rows=len(known), columns=width), Array(rows=len(known), columns=axes)
    inverse = factor(d.M, m.dof_clamped)
    for pool, order in zip(pools, orders, strict=True):
        _fill(m, d, pool, order, slots, inverse, axes, found, force)
    return SlotGrips(pools, orders, slots, Records(found, columns), force, axes)


def _fill(
    m: Model,
    d: Data,
    pool: ContactPool,
    order: Sequence[int],
    slots: Packed,
    inverse: AnyFactor,
    axes: int,
    found: Array,
    force: Array,
) -> None:
    """Compute the rows of a pool's contacts, and the forces that they start from, as `SlotGrips` has them."""
    x, friction = pool.batch.of_dofs(d.qacc_solver), range(1, pool.batch.condim)
    none, missing = zeros(m.nv), axes - len(friction)

    def slot(i: Any) -> Any:
        return slots.slot(Table(order)[pool.number(i)])

    def start(i: Any) -> list[Scalar]:
        return [*pool.cone(i).push(pool.residual(i, x))[0][1:], *zeros(missing)]

    def row(i: Any) -> list[Scalar]:
        cone: Any = pool.cone(i)
        edges = cone.edges(pool.residual(i, x))
        J = pool.dense(i, friction, m.nv)
        images = [solve(inverse, one) for one in J]
        vectors = [*J, *[none] * missing, *images, *[none] * missing]
        numbers = [
            [pool.rows.at(i, ("y0", k)) for k in friction],
            [dot(one, image) for one, image in zip(J, images, strict=True)],
            cone.friction,
            start(i)[: len(friction)],
            [mu * (one + two) for mu, one, two in zip(cone.friction, edges[::2], edges[1::2], strict=True)],
        ]
        return [y for one in vectors for y in one] + [y for one in numbers for y in [*one, *zeros(missing)]]

    put_each(pool.touching, lambda i: (slot(i), row(i)), found)
    put_each(pool.touching, lambda i: (slot(i), start(i)), force)
