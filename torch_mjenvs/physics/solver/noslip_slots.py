"""Noslip sweeps over contacts in slots (see `contact_pool`): what `noslip` does one by one.

Either all contacts with friction are in pools, or none. A sweep goes from contact to contact, in MuJoCo's order, each
world through its own: the work on a contact, with its rows of J and M^-1 J', is more than looking up which one it is.

Letters: as in `noslip`; i the place of a contact among a world's own   k one of its axes, 0 the normal   I a block of
dofs   e one of a block's
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ...compiler.arrays import Array, Table
from ...compiler.control import choose_all, count_while, repeat
from ...compiler.own_lists import OwnList, merged
from ...compiler.scalar import Mask, Scalar, absolute, number
from ...compiler.tiles import SIDE, Blocks
from ..algebra.spatial import add_scaled, dot, zeros
from ..constraints.batch.contact_pool import ContactPool
from ..constraints.batch.pool_blocks import entries_of, moving_of
from ..constraints.batch.records import Records
from ..constraints.body_contacts import dofs_apart, lines_of
from ..dynamics.inertia import factor, solve
from ..model.data import Data
from ..model.model import Model, bodies_of
from .noslip_rules import edges, ellipse, shares

ORDER, POOL, SLOT, SIGNS, AXES = range(5)  # columns of `SlotGrips.own`


@dataclass
class SlotGrips:
    """Friction of the contacts of some pools, each world's own, in MuJoCo's order.

    own: for each contact its place among all that there may be, its pool, its slot there, its first row in `signs`,
    which has a row for each block, and how many axes of friction it has. places: by pool and slot, where in
    `own` a contact is. axes: the most that a contact has. rows: for each contact and axis a row of A, y0, the friction
    coefficient, the force at the start and the most that it may be (of an elliptic cone, the normal force). jacobian,
    images: J and M^-1 J', for each contact, axis and block. force: F as sweeps leave it. pivot: `Precision.pivot`.
    dofs: by place among all contacts, how many dofs move its bodies apart.
    """

    pools: Sequence[ContactPool]
    own: OwnList
    places: Sequence[Array]
    signs: Table
    axes: int
    rows: Records
    jacobian: Array
    images: Array
    force: Array
    pivot: float
    dofs: list[int]

    @property
    def blocks(self) -> Blocks:
        """The blocks of dofs."""
        return self.pools[0].blocks

    @property
    def elliptic(self) -> bool:
        """Whether all axes of a contact are held at once, not one after the other."""
        return self.pools[0].m.cone == "elliptic"

    def sweep(self, a: list[Scalar]) -> list[Scalar]:
        """Return the acceleration after each contact's friction was computed anew."""
        x = Array(self.blocks.cut(a, 0.0))

        def visit(i: Any, nothing: Any) -> Any:
            if not self.elliptic:
                return self._each_axis(i, lambda k, _: self._hold(i, [k], x), [x, self.force])
            for n in sorted({pool.condim - 1 for pool in self.pools}):
                self._if_axes(n, i, functools.partial(self._hold, i, range(n), x), [x, self.force])
            return nothing

        self.own.each(visit, [], [x, self.force])
        return self.blocks.joined(x)

    def _hold(self, i: Any, axes: Sequence[Any], x: Array) -> list[Any]:
        """Compute anew the force along some axes of contact i, and the acceleration x (a row for each block)."""
        rows = [self._row(i, k) for k in axes]
        y0, mu, most = ([self.rows.at(row, name) for row in rows] for name in ("y0", "mu", "most"))
        A = [self.rows.at(row, "A")[: len(rows)] for row in rows]
        rule = ellipse(mu, most[0], self.pivot, self._dofs(i)) if self.elliptic else edges(mu[0], most[0])

        def add(I: Any, slip: list[Scalar]) -> list[Scalar]:
            return [v + dot(self.jacobian[self._row(i, k, I)], x[I]) for v, k in zip(slip, axes, strict=True)]

        old = [self.force[row] for row in rows]
        new = rule(A, repeat(self.blocks.count, add, y0), old)

        def move(I: Any, nothing: Any) -> Any:
            there = x[I]
            for k, f, before in zip(axes, new, old, strict=True):
                there = add_scaled(there, self.images[self._row(i, k, I)], f - before)
            x.put(I, there)
            return nothing

        repeat(self.blocks.count, move, [], [x])
        for row, f in zip(rows, new, strict=True):
            self.force.put(row, f)
        return []

    def _dofs(self, i: Any) -> Scalar:
        """Return how many dofs the bodies of contact i have, or as many as any contact needs."""
        return self.axes if min(self.dofs) >= self.axes else Table(list(map(float, self.dofs)))[self.own.rows[i, ORDER]]

    def add_force(self, qfrc: list[Scalar]) -> list[Scalar]:
        """Return qfrc plus J' times the change of force."""
        total = Array(self.blocks.cut(qfrc, 0.0))

        def push(i: Any, nothing: Any) -> Any:
            def push_axis(k: Any, nothing: Any) -> Any:
                change = self._change(self._row(i, k))

                def add(I: Any, nothing: Any) -> Any:
                    total.put(I, add_scaled(total[I], self.jacobian[self._row(i, k, I)], change))
                    return nothing

                repeat(self.blocks.count, add, [], [total])
                return nothing

            return self._each_axis(i, push_axis, [total])

        self.own.each(push, [], [total])
        return self.blocks.joined(total)

    def add_wrenches(self, m: Model, d: Data, wrench: list[list[Scalar]]) -> None:
        """Add the wrenches of the change of force to `wrench`, by body. See `Constraint.add_wrenches`."""
        for pool, places in zip(self.pools, self.places, strict=True):

            def change(i: Any, pool: ContactPool = pool, places: Array = places) -> list[Scalar]:
                first = places[i] * float(self.axes)
                return [0.0, *(self._change(first + float(k)) for k in range(pool.condim - 1))]

            pool.pull(change, wrench)

    def _change(self, at: Any) -> Scalar:
        """Return the change of force of the contact and axis in a row."""
        change: Scalar = self.force[at] - self.rows.at(at, "start")
        return change

    def _each_axis(self, i: Any, body: Callable[[Any, Any], Any], arrays: Sequence[Array]) -> Any:
        """Run `body(k, nothing)` for the axes of friction of each world's i-th contact."""
        count = self.own.rows[i, AXES]
        return count_while(lambda k, _: number(k) < count, body, [], self.axes, arrays)

    def _if_axes(self, n: int, i: Any, body: Callable[[], Any], arrays: Sequence[Array]) -> None:
        """Run `body()` in the worlds whose i-th contact has n axes of friction."""
        if all(pool.condim - 1 == n for pool in self.pools):
            body()
            return
        count = self.own.rows[i, AXES]
        count_while(lambda k, _: absolute(count - float(n)) < 0.5, lambda k, _: body(), [], 1, arrays)

    def _row(self, i: Any, k: Any, I: Any = None) -> Any:
        """Return the row of contact i and axis k in `rows` and `force`, and of block I in `jacobian` and `images`."""
        at = Table([n * self.axes for n in range(self.own.most)])[i] + k
        return at if I is None else Table([n * self.blocks.count for n in range(self.own.most * self.axes)])[at] + I

    def _find_places(self) -> None:
        def put(i: Any, nothing: Any) -> Any:
            for p, places in enumerate(self.places):
                places.put(self.own.rows[i, SLOT], number(i), self._in_pool(i, p))
            return nothing

        self.own.each(put, [], self.places)

    def _in_pool(self, i: Any, p: int) -> Mask:
        """Return the mask of the worlds whose i-th contact is of the p-th pool."""
        return absolute(self.own.rows[i, POOL] - float(p)) < 0.5

    def _chosen(self, i: Any, of_pools: Sequence[list[list[Scalar]]]) -> list[list[Scalar]]:
        """Choose from what is given for each pool that of the i-th contact's pool."""
        found = of_pools[0]
        for p, mine in enumerate(of_pools[1:], 1):
            found = choose_all(self._in_pool(i, p), mine, found)
        return found

    def _fill(self, m: Model, d: Data) -> None:
        """Compute J, M^-1 J' and `rows` of all contacts, and the forces that they start from."""
        inverse, blocks, moving = factor(d.M, m.dof_clamped), self.blocks, moving_of(d, self.blocks)
        x = self.pools[0].of_dofs(d.qacc_solver)
        alike = all(pool.couples.alike for pool in self.pools)

        def put(i: Any, nothing: Any) -> Any:
            slot, first_sign = (self.own.rows[i, column] for column in (SLOT, SIGNS))
            found = self._chosen(i, [[*arms, *frame] for _, arms, frame in (pool.where(slot) for pool in self.pools)])
            second, first = lines_of((found[0], found[1]), found[2:], self.axes + 1)

            def do_block(I: Any, total: list[Scalar]) -> list[Scalar]:
                entries = entries_of(first, second, self.signs[first_sign + number(I)], moving[I], alike)
                for k, mine in enumerate(entries[1:]):
                    self.jacobian.put(self._row(i, k, I), mine, None)
                return [y + dot(row, x[I]) for y, row in zip(total, entries, strict=True)]

            along = repeat(blocks.count, do_block, zeros(self.axes + 1), [self.jacobian])
            y0, mu, start, most = self._chosen(i, [self._of_pool(pool, slot, along) for pool in self.pools])
            for k in range(self.axes):
                A = zeros(self.axes if self.elliptic else 1)
                self.rows.rows.put(self._row(i, k), [*A, y0[k], mu[k], start[k], most[k]], None)
                self.force.put(self._row(i, k), start[k], None)
            return nothing

        def invert(i: Any, nothing: Any) -> Any:
            def invert_axis(k: Any, nothing: Any) -> Any:
                def row(k: Any) -> list[Scalar]:
                    return [self.jacobian[self._row(i, k, I), e] for I, e in blocks.of_row]

                image = solve(inverse, row(k))
                for I, mine in enumerate(blocks.cut(image, 0.0)):
                    self.images.put(self._row(i, k, I), mine, None)
                others = range(self.axes) if self.elliptic else [k]
                self.rows.rows.put(self._row(i, k), [dot(row(j), image) for j in others])
                return nothing

            return self._each_axis(i, invert_axis, [self.images, self.rows.rows])

        self.own.each(put, [], [self.jacobian, self.rows.rows, self.force])
        self.own.each(invert, [], [self.images, self.rows.rows])

    def _of_pool(self, pool: ContactPool, slot: Any, along: list[Scalar]) -> list[list[Scalar]]:
        """Return y0, friction coefficients, forces and their bounds for a contact in a slot of a pool (axes each).

        along: J a of all axes, the normal's first.
        """
        y0, none = pool.y0[slot], zeros(self.axes + 1 - pool.condim)
        cone: Any = pool.cone(slot)
        residual = [y + z for y, z in zip(along[: pool.condim], y0, strict=True)]
        force = cone.push(residual)[0]
        most = [force[0]] * len(cone.friction) if self.elliptic else shares(cone, residual)
        return [[*some, *none] for some in (y0[1:], cone.friction, force[1:], most)]


def grips_in_slots(m: Model, d: Data) -> SlotGrips | None:
    """Make the grips of all contacts with friction that are in pools; None if there are none."""
    pools = [c for c in d.constraints if isinstance(c, ContactPool) and c.condim > 1]
    if not pools:
        return None
    axes, blocks = max(pool.condim for pool in pools) - 1, pools[0].blocks
    known = [
        (pair.rank, k, p, place)
        for p, pool in enumerate(pools)
        for place, (pair, k) in enumerate(zip(pool.pairs, pool.kth, strict=True))
    ]
    orders = [[0.0] * len(pool.pairs) for pool in pools]
    for n, (_, _, p, place) in enumerate(sorted(known)):
        orders[p][place] = float(n)
    signs, lists = list[list[float]](), list[OwnList]()
    for p, pool in enumerate(pools):
        by_block, of = pool.couples.dense_signs(blocks)
        starts, order = Table([len(signs) + row for row in of]), Table(orders[p])

        def row(i: Any, pool: Any = pool, p: int = p, starts: Table = starts, order: Table = order) -> list[Scalar]:
            place = pool.rank(i)
            return [order[place], float(p), number(i), starts[place], pool.condim - 1.0]

        signs += by_block
        lists.append(OwnList.of(pool.slots.which, len(pool.pairs), row, 5))
    n = len(known) * axes
    width = axes if m.cone == "elliptic" else 1
    columns: dict[Any, Any] = {name: width + k for k, name in enumerate(("y0", "mu", "start", "most"))}
    rows, force = Array(rows=n, columns=width + len(columns)), Array(rows=n)
    jacobian, images = (Array(rows=n * blocks.count, columns=SIDE) for _ in range(2))
    places = [Array(rows=len(pool.pairs)) for pool in pools]
    of_axes = Records(rows, {"A": slice(0, width), **columns})
    dofs = [dofs_apart(m, *bodies_of(m, pools[p].pairs[place])) for _, _, p, place in sorted(known)]
    grips = SlotGrips(
        pools, own=merged(lists, 5), places=places, signs=Table(signs), axes=axes, rows=of_axes, jacobian=jacobian,
        images=images, force=force, pivot=d.precision.pivot, dofs=dofs,
    )  # fmt: skip
    grips._find_places()
    grips._fill(m, d)
    return grips
