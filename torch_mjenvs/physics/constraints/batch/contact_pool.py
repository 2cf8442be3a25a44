"""Contacts of very many pairs, of all kinds of shapes, in slots.

dm_control's dog has 5,557 pairs of geoms that may touch, of 14 kinds. Each kind has loops of its own that find contacts
(`PairTables`); what follows, the rows and all that the solver does with them, is the same for all, so that its code is
there once.

A contact is a number, its place in MuJoCo's order. Contacts that act are packed into slots, so that their data lies
together, whichever they are. There are as many slots as there can be contacts, so none is ever left out.

Rows of the Jacobian are cut into blocks of dofs, the same as those of the Hessian's tiles. A contact has the blocks
with a dof that tells its bodies apart, and loops go through these. So a contact costs as much as its own bodies' dofs,
and the code is that of one tile.

Letters: i a slot   e one of a block's dofs   k one of a contact's axes
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ....compiler.active_sets import Packed, change_each, fold_each, put_each
from ....compiler.arrays import Array, Table
from ....compiler.control import repeat
from ....compiler.scalar import Mask, Scalar, logical_and, select
from ....compiler.tiles import SIDE, Blocks, Places, SumsLayout
from ...algebra.spatial import Vec, choose, dot, sum_of
from ...model.data import Data
from ...model.model import Model, Pair, bodies_of
from ..body_contacts import lines_of
from ..cones.pyramid import Cone
from ..contact_force import in_world
from ..contacts import cone_of
from ..listed import ByBody, Visit
from ..rows import Constraint, Hessian
from ..softening import ContactBound
from .in_loop import fold_in_loop, pull_in_loop, refined_in_loop
from .near_tables import NearTables, tables_of
from .pair_tables import PairTables, each_tables
from .pool_blocks import Couples, entries_of, layout_of, moving_of
from .records import Records


@dataclass
class ContactPool(Constraint):
    """The contacts of a pool, of one condim, in slots.

    pairs, bodies, kth: by place, each contact's pair, their bodies, and its number among the pair's contacts. slots:
    the contacts that act. found: by slot, where they are, and the numbers of their rows. jacobian: by slot and block,
    the entries of each axis (condim x SIDE). y0: by slot (condim). layout: of all pools' tiles. refine: the masks of
    `Constraint.needs_refinement`.

    real: all pairs, if each world chooses those of some places (`near_pairs`); else none. still_bodies: for each of
    these, the body that stands still if the pair is chosen, of which `bodies` says 0; else 0.
    """

    m: Model
    pairs: list[Pair]
    bodies: list[tuple[int, int]]
    kth: list[int]
    real: list[Pair]
    still_bodies: list[int]
    condim: int
    slots: Packed
    couples: Couples
    layout: SumsLayout
    found: Records
    jacobian: Array
    y0: Array
    refine: Sequence[Mask]

    @property
    def blocks(self) -> Blocks:
        """The blocks of dofs."""
        return self.layout.blocks

    @property
    def needs_refinement(self) -> list[Mask]:
        return list(self.refine)

    def of_dofs(self, x: Vec) -> Array:
        """Make x (nv) an array with a row for each block."""
        return Array(self.blocks.cut(x, 0.0))

    def add_rows(self, m: Model, d: Data, a: Vec, gradient: list[Scalar], hessian: Hessian) -> None:
        x, push, part = self.of_dofs(a), Array([[0.0] * SIDE] * self.blocks.count), hessian.part(self.layout)
        row, axes = part.row, range(self.condim)
        place = Places(self.blocks.count)
        following = Table(range(1, self.couples.most + 1))

        def add(i: Any) -> None:
            acts = self.found.at(i, "acts") > 0.5
            force, weight = self.cone(i).push(self.residual(i, x))
            force = [select(acts, f, 0.0) for f in force]
            weight = [[select(acts, w, 0.0) for w in some] for some in weight]

            def do_block(b: Any, nothing: Any) -> Any:
                I, mine = self._block(i, b), self._entries(i, b)
                pushed = [sum_of(force[k] * mine[k][e] for k in axes) for e in range(SIDE)]
                push.put(I, [old - p for old, p in zip(push[I], pushed, strict=True)], None)
                image = [[sum_of(weight[k][j] * mine[j][e] for j in axes) for e in range(SIDE)] for k in axes]

                def do_tile(c: Any, nothing: Any) -> Any:
                    at, other = row[place(I, self._block(i, c))], self._entries(i, c)
                    tile = part.get(at)
                    for k in axes:
                        tile = [
                            tile[SIDE * e + f] + image[k][e] * other[k][f] for e in range(SIDE) for f in range(SIDE)
                        ]
                    part.put(at, tile)
                    return nothing

                return repeat(following[b], do_tile, nothing, part.arrays)

            repeat(self._count(i), do_block, [], [*part.arrays, push])

        change_each(self.slots.which, add, [*part.arrays, push])
        for v, x_v in enumerate(self.blocks.joined(push)):
            gradient[v] = gradient[v] + x_v

    def fold_rows(self, m: Model, d: Data, a: Vec, dx: Vec, alpha: Scalar, total: list[Scalar]) -> list[Scalar]:
        x, change = self.of_dofs(a), self.of_dofs(dx)

        def push(i: Any, carry: list[Scalar]) -> list[Scalar]:
            cone = self.cone(i)
            y, v = self._times(i, [x, change])
            y = [one + y0 for one, y0 in zip(y, self.y0[i], strict=True)]
            return cone.fold(carry, cone.rows(y), cone.rows(v), alpha)

        return list(fold_each(self.slots.which, push, total))

    def add_wrenches(self, m: Model, d: Data, a: Vec, wrench: list[list[Scalar]]) -> None:
        x = self.of_dofs(a)
        self.pull(lambda i: self.force(i, x), wrench)

    def pull(self, force: Callable[[Any], list[Scalar]], wrench: list[list[Scalar]]) -> None:
        """Add to `wrench` the wrenches on both bodies by the force of each contact along its axes (condim)."""
        pull_in_loop(
            self.slots.which, self.bodies, self._per_contact, force, lambda i, side: self._lines(i)[side],
            self.couples.alike, wrench,
        )  # fmt: skip
        if any(self.still_bodies):
            self._pull_still(force, wrench)

    def _pull_still(self, force: Callable[[Any], list[Scalar]], wrench: list[list[Scalar]]) -> None:
        """Add to `wrench` the wrenches on bodies that stand still, of contacts whose pairs worlds choose."""
        touched = sorted({body for body in self.still_bodies if body})
        sums = Array([list(wrench[body]) for body in touched])
        rows = [touched.index(body) if body else -1 for body in self.still_bodies]
        firsts = [float(bodies_of(self.m, p)[0] == body) for p, body in zip(self.real, self.still_bodies, strict=True)]

        def add(i: Any) -> None:
            row, second, first = self._of_real(rows, i), *(in_world(lines, force(i)) for lines in self._lines(i))
            change = choose(self._of_real(firsts, i) > 0.5, [-x for x in first], second)
            there = logical_and(self.found.at(i, "acts") > 0.5, row >= 0.0)

            def put(_: Any, nothing: Any) -> Any:
                sums.put(row, [old + x for old, x in zip(sums[row, :], change, strict=True)], there)
                return nothing

            repeat(1, put, [], [sums])

        change_each(self.slots.which, add, [sums])
        for k, body in enumerate(touched):
            wrench[body] = list(sums[k, :])

    def fold_listed(
        self, m: Model, d: Data, a: Vec, wanted: Callable[[Pair], bool], by_body: ByBody, visit: Visit, carry: Any
    ) -> Any:
        """Run `visit` over the contacts of wanted pairs: see `Constraint.fold_listed`."""
        pairs = self.real or self.pairs
        if not any(map(wanted, pairs)):
            return carry
        x = self.of_dofs(a)

        def number(i: Any) -> Scalar:
            found: Scalar = self._per_contact([float(k) for k in self.kth], i)
            return found

        return fold_in_loop(
            self.slots.which, pairs, [bodies_of(m, p) for p in pairs], self._of_real, number, self.where,
            lambda i: self.force(i, x), wanted, by_body, visit, carry,
        )  # fmt: skip

    def force(self, i: Any, x: Array) -> list[Scalar]:
        """Return the force of contact i along its axes (condim)."""
        return self.cone(i).push(self.residual(i, x))[0]

    def residual(self, i: Any, x: Array) -> list[Scalar]:
        """Return the residual J a + y0 of contact i along its axes (condim). x: a as `of_dofs` gives it."""
        (y,) = self._times(i, [x])
        return [one + y0 for one, y0 in zip(y, self.y0[i], strict=True)]

    def cone(self, i: Any) -> Cone:
        """Return the cone of contact i."""
        slip = self.found.at(i, "slip") if "slip" in self.found.columns else 0.0
        return cone_of(self.m, self.found.at(i, "friction"), self.found.at(i, "D"), ContactBound(False, slip=slip))

    def where(self, i: Any) -> tuple[Scalar, list[list[Scalar]], list[list[Scalar]]]:
        """Return the distance of contact i, its point from the origins of the trees of both bodies, and its frame."""
        axes = [self.found.at(i, ("axis", k)) for k in range(3)]
        return self.found.at(i, "dist"), [self.found.at(i, "arm1"), self.found.at(i, "arm2")], axes

    def rank(self, i: Any) -> Any:
        """Return the place of contact i in MuJoCo's order, among those of the pool."""
        return self.slots.place(i)

    def _per_contact(self, values: Sequence[Any], i: Any) -> Any:
        place = self.slots.place(i)
        return values[place] if isinstance(place, int) else Table(values)[place]

    def _of_real(self, values: Sequence[Any], i: Any) -> Any:
        """Return contact i's entry of a list with one entry for each of `real`, or else of `pairs`."""
        if not self.real:
            return self._per_contact(values, i)
        return Table([float(x) for x in values])[self.found.at(i, "pair")]

    def _lines(self, i: Any) -> list[list[list[Scalar]]]:
        """Return the lines of contact i, of the second body and of the first: see `body_contacts`."""
        _, arms, axes = self.where(i)
        return lines_of((arms[0], arms[1]), axes, self.condim)

    def _couple(self, i: Any) -> Any:
        return self.couples.of[self.slots.place(i)]

    def _count(self, i: Any) -> Any:
        return self.couples.count[self._couple(i)]

    def _at(self, i: Any, b: Any) -> Any:
        """Return the place of the b-th block of contact i in the couples' lists."""
        return self.couples.start[self._couple(i)] + b

    def _block(self, i: Any, b: Any) -> Any:
        return self.couples.blocks[self._at(i, b)]

    def row_of(self, i: Any, b: Any) -> Any:
        """Return the place of the b-th block of contact i in `jacobian`."""
        return Table([k * self.couples.most for k in range(len(self.pairs))])[i] + b

    def _entries(self, i: Any, b: Any) -> list[list[Scalar]]:
        row = self.jacobian[self.row_of(i, b)]
        return [row[SIDE * k : SIDE * k + SIDE] for k in range(self.condim)]

    def _times(self, i: Any, xs: Sequence[Array]) -> list[list[Scalar]]:
        """Return the products of the Jacobian of contact i with some vectors (condim each)."""

        def add(b: Any, carry: list[list[Scalar]]) -> list[list[Scalar]]:
            mine, I, out = self._entries(i, b), self._block(i, b), []
            for x, total in zip(xs, carry, strict=True):
                there = x[I]
                out.append([old + dot(row, there) for old, row in zip(total, mine, strict=True)])
            return out

        return list(repeat(self._count(i), add, [[0.0] * self.condim for _ in xs]))

    def compute_rows(self, d: Data) -> None:
        """Compute `jacobian` and `y0`."""
        moving = moving_of(d, self.blocks)

        def row(i: Any) -> tuple[Any, list[Scalar]]:
            second, first = self._lines(i)

            def do_block(b: Any, speed: list[Scalar]) -> list[Scalar]:
                at, dofs = self._at(i, b), moving[self._block(i, b)]
                signs = [sign[at] for sign in self.couples.signs]
                entries = entries_of(first, second, signs, dofs, self.couples.alike)
                self.jacobian.put(self.row_of(i, b), [x for row in entries for x in row], None)
                speed = list(speed)
                for k, row in enumerate(entries):
                    for e, x in enumerate(row):
                        speed[k] = speed[k] + x * dofs[7 * e + 6]
                return speed

            speed = repeat(self._count(i), do_block, [0.0] * self.condim, [self.jacobian])
            y0 = [b * v for b, v in zip(self.found.at(i, "damping"), speed, strict=True)]
            return i, [y0[0] + self.found.at(i, "pull"), *y0[1:]]

        put_each(self.slots.which, row, self.y0, within=[self.jacobian])


def contact_pools(m: Model, d: Data, pools: Sequence[Sequence[list[Pair]]]) -> list[ContactPool]:
    """Make the contacts of pools. A pool is a list of batches of pairs, all of one condim."""
    if not pools:
        return []
    layout = layout_of(m, [pair for batches in pools for pairs in batches for pair in pairs])
    tables = each_tables(m, [pairs for batches in pools for pairs in batches], lambda pairs: tables_of(m, d, pairs))
    return [_contact_pool(m, d, layout, [next(tables) for _ in batches]) for batches in pools]


def _contact_pool(m: Model, d: Data, layout: SumsLayout, finders: Sequence[PairTables]) -> ContactPool:
    """Make the contacts of a pool from the tables of its batches: all of them in MuJoCo's order."""
    # by batch: each contact's pair, and its number among the pair's; a place of a `NearBatch` has one pair throughout
    known = [list(zip(f.batch.pairs * f.batch.collider.ncon, f.batch.numbers, strict=True)) for f in finders]
    ordered = sorted((pair.rank, k, f, i) for f, some in enumerate(known) for i, (pair, k) in enumerate(some))
    contacts, n = [known[f][i] for _, _, f, i in ordered], len(ordered)
    place = {(f, i): n for n, (_, _, f, i) in enumerate(ordered)}
    orders = [[place[f, i] for i in range(len(some))] for f, some in enumerate(known)]
    acting, condim = [f.touching() for f in finders], finders[0].batch.condim
    slots, pairs = Packed.of(acting, orders, n), [pair for pair, _ in contacts]
    bodies = [finders[f].batch.bodies[i % len(finders[f].batch.pairs)] for _, _, f, i in ordered]
    couples, found = Couples.make(m, bodies, layout.blocks), _found(finders, acting, orders, slots, condim, n)
    real, still_bodies = list[Pair](), list[int]()
    if _chosen(finders):
        real = [p for f in finders for p in f.batch.real]
        still_bodies = [body for f in finders for body in f.batch.still_bodies(m)]
    pool = ContactPool(
        m, pairs, bodies, kth=[k for _, k in contacts], real=real, still_bodies=still_bodies, condim=condim,
        slots=slots, couples=couples, layout=layout, found=found,
        jacobian=Array(rows=n * couples.most, columns=condim * SIDE), y0=Array(rows=n, columns=condim), refine=[],
    )  # fmt: skip
    repeats = {id(p): x for f in finders for p, x in zip(f.batch.real, f.numbers.repeats or [], strict=False)}
    needed = [float(repeats.get(id(p), False)) for p in real or pairs]

    def repeated(i: Any) -> Scalar:
        return found.at(i, "repeated") if "repeated" in found.columns else pool._of_real(needed, i)

    some = "repeated" in found.columns or any(needed)
    pool.refine = refined_in_loop(slots.which, repeated) if some else []
    pool.compute_rows(d)
    return pool


def _chosen(finders: Sequence[PairTables]) -> bool:
    """Return whether each world chooses the pairs of some places."""
    return any(isinstance(f, NearTables) for f in finders)


def _found(
    finders: Sequence[PairTables],
    acting: Sequence[Any],
    orders: Sequence[Sequence[int]],
    slots: Packed,
    condim: int,
    n: int,
) -> Records:
    """Compute by slot where each contact is, and the numbers of its rows; all 0 in worlds where it does not act."""
    columns: dict[Any, int | slice] = {"dist": 0, "acts": 1, "D": 2, "pull": 3}
    width = len(columns)
    sizes: dict[Any, int] = dict.fromkeys(("arm1", "arm2", *(("axis", k) for k in range(3))), 3)
    sizes |= {"damping": condim, "friction": condim - 1}
    softened = any(tables.numbers.slip is not None for tables in finders)
    for name, size in sizes.items():
        columns[name] = slice(width, width + size)
        width += size
    if softened:
        columns["slip"] = width
        width += 1
    differ = any(tables.numbers.repeats is None for tables in finders)  # from world to world
    if differ:
        columns["repeated"] = width
        width += 1
    if _chosen(finders):
        columns["pair"] = width
        width += 1
    found, start = Array(rows=n, columns=width), 0
    for tables, which, order in zip(finders, acting, orders, strict=True):
        known = [float(k) for k in range(start, start + len(tables.batch.real))] if "pair" in columns else []
        start += len(tables.batch.real)

        def put(
            i: Any, tables: PairTables = tables, order: Sequence[int] = order, known: Sequence[float] = known
        ) -> tuple[Any, list[Scalar]]:
            dist, p, frame = tables.contact(i)
            row, arms = tables.row(i, dist), tables.arms(i, p)
            pull = row.y0([0.0] * condim)[0]
            friction = tables.friction(i)
            flat = [x for vector in (*arms, *frame) for x in vector]
            numbers = [dist, 1.0, tables.stiffness(i, row), pull, *flat, *row.param.damping, *friction]
            numbers += [tables.slip(i)] if softened else []
            numbers += [tables.repeated(i)] if differ else []
            numbers += [tables.batch.of_contact(known, i)] if known else []
            return slots.slot(Table(order)[i]), numbers

        put_each(which, put, found, elsewhere=0.0)
    return Records(found, columns)
