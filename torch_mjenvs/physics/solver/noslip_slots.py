"""Noslip sweeps over contacts in slots (see `contact_pool`), with pyramids of friction: what `noslip` does one by one.

Either all contacts with friction are in pools, or none. A sweep goes from contact to contact, in MuJoCo's order, each
world through its own: what a contact takes, its rows of J and M^-1 J', is more than looking up which one it is.

Letters: as in `noslip`; i the place of a contact among a world's own   k one of its axes, 0 the normal   I a block of
dofs   e one of a block's
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...compiler.arrays import Array, Table
from ...compiler.control import choose_all, repeat
from ...compiler.scalar import Mask, Scalar, absolute, clip, maximum, number, select
from ...compiler.tiles import SIDE, Blocks
from ..algebra.spatial import MINVAL, add_scaled, choose, dot, sub, sum_of, zeros
from ..constraints.batch.contact_pool import ContactPool, moving_of
from ..constraints.batch.records import Records
from ..constraints.body_contacts import lines_of
from ..constraints.own_lists import OwnList, merged
from ..dynamics.inertia import AnyFactor, factor, solve
from ..model.data import Data
from ..model.model import Model

ORDER, POOL, SLOT, SIGNS = range(4)  # of a row of `SlotGrips.own`


@dataclass
class SlotGrips:
    """Friction of the contacts of some pools, each world's own, in MuJoCo's order.

    own: of each contact its place among all that there may be, its pool, its slot there, and the first row of its signs
    in `signs`, which has one for each block. places: by pool and slot, where in `own` a contact is. rows: of each, by
    axis of friction: A, y0, the friction coefficient, the force at the start and the most that it may be (axes).
    jacobian, images: J and M^-1 J', a row for each contact and block (axes x SIDE). force: F as sweeps leave it (axes).
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

    @property
    def blocks(self) -> Blocks:
        """The blocks of dofs."""
        return self.pools[0].blocks

    def sweep(self, a: list[Scalar]) -> list[Scalar]:
        """Return the acceleration after each contact's friction was computed anew."""
        x = Array(self.blocks.cut(a, 0.0))

        def visit(i: Any, nothing: Any) -> Any:
            new = []
            for k in range(self.axes):

                def add(I: Any, total: Scalar, k: int = k) -> Scalar:
                    return total + dot(self._of_axis(self.jacobian, i, I, k), x[I])

                y0, A, mu, most = (self.rows.at(i, name)[k] for name in ("y0", "A", "mu", "most"))
                old, residual = self.force[i, k], repeat(self.blocks.count, add, y0)
                loose = (4.0 * mu * mu) * A < MINVAL
                held = clip(old - residual / maximum(A, MINVAL), -most, most)
                new.append(select(loose, 0.0, held))

                def move(I: Any, nothing: Any, k: int = k, change: Scalar = new[-1] - old) -> Any:
                    x.put(I, add_scaled(x[I], self._of_axis(self.images, i, I, k), change))
                    return nothing

                repeat(self.blocks.count, move, [], [x])
            self.force.put(i, new)
            return nothing

        self.own.each(visit, [], [x, self.force])
        return self.blocks.joined(x)

    def add_force(self, qfrc: list[Scalar]) -> list[Scalar]:
        """Return qfrc plus J' times the change of force."""
        total = Array(self.blocks.cut(qfrc, 0.0))

        def push(i: Any, nothing: Any) -> Any:
            change = self._change(i)

            def add(I: Any, nothing: Any) -> Any:
                rows = [self._of_axis(self.jacobian, i, I, k) for k in range(self.axes)]
                pushes = [sum_of(f * row[e] for f, row in zip(change, rows, strict=True)) for e in range(SIDE)]
                total.put(I, [x + y for x, y in zip(total[I], pushes, strict=True)])
                return nothing

            repeat(self.blocks.count, add, [], [total])
            return nothing

        self.own.each(push, [], [total])
        return self.blocks.joined(total)

    def add_wrenches(self, m: Model, d: Data, wrench: list[list[Scalar]]) -> None:
        """Add the wrenches of the change of force to `wrench`, by body. See `Constraint.add_wrenches`."""
        for pool, places in zip(self.pools, self.places, strict=True):

            def change(i: Any, pool: ContactPool = pool, places: Array = places) -> list[Scalar]:
                return [0.0, *self._change(places[i])[: pool.condim - 1]]

            pool.pull(change, wrench)

    def _change(self, i: Any) -> list[Scalar]:
        return sub(self.force[i], self.rows.at(i, "start"))

    def _of_axis(self, array: Array, i: Any, I: Any, k: int) -> list[Scalar]:
        found: list[Scalar] = array[self._row(i, I), SIDE * k : SIDE * k + SIDE]
        return found

    def _row(self, i: Any, I: Any) -> Any:
        """Return the row of contact i and block I in `jacobian` and `images`."""
        return Table([n * self.blocks.count for n in range(self.own.most)])[i] + I

    def _find_places(self) -> None:
        def put(i: Any, nothing: Any) -> Any:
            for p, places in enumerate(self.places):
                places.put(self.own.rows[i, SLOT], number(i), self._in_pool(i, p))
            return nothing

        self.own.each(put, [], self.places)

    def _in_pool(self, i: Any, p: int) -> Mask:
        """The mask of the worlds whose i-th contact is of the p-th pool."""
        return absolute(self.own.rows[i, POOL] - float(p)) < 0.5

    def _chosen(self, i: Any, of_pools: Sequence[list[list[Scalar]]]) -> list[list[Scalar]]:
        """Choose of what is given for each pool that of the i-th contact's own."""
        found = of_pools[0]
        for p, mine in enumerate(of_pools[1:], 1):
            found = choose_all(self._in_pool(i, p), mine, found)
        return found

    def _fill(self, m: Model, d: Data) -> None:
        """Compute J, M^-1 J' and `rows` of all contacts, and the forces that they start from."""
        inverse, blocks, moving = factor(d.M, m.dof_clamped), self.blocks, moving_of(d, self.blocks)
        x, axes = self.pools[0].of_dofs(d.qacc_solver), range(self.axes)
        alike = all(pool.couples.alike for pool in self.pools)

        def put(i: Any, nothing: Any) -> Any:
            slot, first_sign = (self.own.rows[i, column] for column in (SLOT, SIGNS))
            found = self._chosen(i, [[*arms, *frame] for _, arms, frame in (pool.where(slot) for pool in self.pools)])
            second, first = lines_of((found[0], found[1]), found[2:], self.axes + 1)

            def do_block(I: Any, total: list[Scalar]) -> list[Scalar]:
                signs, dofs, entries = self.signs[first_sign + number(I)], moving[I], list[list[Scalar]]()
                for one, two in zip(first, second, strict=True):
                    lines = [two if alike else choose(sign > 0.0, two, one) for sign in signs]
                    entries.append([
                        dot(line, dofs[7 * e : 7 * e + 6]) * sign
                        for e, (sign, line) in enumerate(zip(signs, lines, strict=True))
                    ])  # fmt: skip
                self.jacobian.put(self._row(i, I), [y for row in entries[1:] for y in row], None)
                return [y + dot(row, x[I]) for y, row in zip(total, entries, strict=True)]

            along = repeat(blocks.count, do_block, zeros(self.axes + 1), [self.jacobian])
            J = [[self.jacobian[self._row(i, I), SIDE * k + e] for I, e in blocks.of_row] for k in axes]
            images = _solved(J, inverse)
            cut = [blocks.cut(image, 0.0) for image in images]
            for I in range(blocks.count):
                self.images.put(self._row(i, I), [y for k in axes for y in cut[k][I]], None)
            y0, mu, start, most = self._chosen(i, [self._of_pool(pool, slot, along) for pool in self.pools])
            A = [dot(one, image) for one, image in zip(J, images, strict=True)]
            self.rows.rows.put(i, [*A, *y0, *mu, *start, *most])
            self.force.put(i, start)
            return nothing

        self.own.each(put, [], [self.jacobian, self.images, self.rows.rows, self.force])

    def _of_pool(self, pool: ContactPool, slot: Any, along: list[Scalar]) -> list[list[Scalar]]:
        """y0, friction coefficients, forces and the most that they may be of a contact in a slot of a pool (axes each).

        along: J a of all axes, the normal's first.
        """
        y0, none = pool.y0[slot], zeros(self.axes + 1 - pool.condim)
        cone: Any = pool.cone(slot)
        residual = [y + z for y, z in zip(along[: pool.condim], y0, strict=True)]
        edges, force = cone.edges(residual), cone.push(residual)[0]
        most = [mu * (one + two) for mu, one, two in zip(cone.friction, edges[::2], edges[1::2], strict=True)]
        return [[*some, *none] for some in (y0[1:], cone.friction, force[1:], most)]


def grips_in_slots(m: Model, d: Data) -> SlotGrips | None:
    """Make the grips of all contacts with friction that are in pools; None where there are none."""
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
            place = pool.number(i)
            return [order[place], float(p), number(i), starts[place]]

        signs += by_block
        lists.append(OwnList.of(pool.slots.which, len(pool.pairs), row, 4))
    n, names = len(known), ("A", "y0", "mu", "start", "most")
    columns: dict[Any, Any] = {name: slice(k * axes, k * axes + axes) for k, name in enumerate(names)}
    rows, force = Array(rows=n, columns=axes * len(columns)), Array(rows=n, columns=axes)
    jacobian, images = (Array(rows=n * blocks.count, columns=axes * SIDE) for _ in range(2))
    places = [Array(rows=len(pool.pairs)) for pool in pools]
    of_axes = Records(rows, columns)
    grips = SlotGrips(pools, merged(lists, 4), places, Table(signs), axes, of_axes, jacobian, images, force)
    grips._find_places()
    grips._fill(m, d)
    return grips


def _solved(J: list[list[Scalar]], inverse: AnyFactor) -> list[list[Scalar]]:
    """Return M^-1 J' of each row, by a loop: the code of a solution is there once."""
    rows, images = Array(J), Array(rows=len(J), columns=len(J[0]))

    def solve_one(k: Any, nothing: Any) -> Any:
        images.put(k, solve(inverse, rows[k]), None)
        return nothing

    repeat(len(J), solve_one, [], [images])
    return [images[k] for k in range(len(J))]
