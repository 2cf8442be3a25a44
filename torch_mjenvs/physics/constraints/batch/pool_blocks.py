"""The blocks of dofs in which contacts of pools have entries: which they are, and the entries.

Letters: I J blocks of dofs   e one of a block's dofs
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from ....compiler.arrays import Array, Table
from ....compiler.scalar import Scalar
from ....compiler.tiles import SIDE, Blocks, Pattern, SumsLayout, in_tiles
from ...algebra.spatial import Vec, choose, dot
from ...dynamics.inertia import dof_columns
from ...model.data import Data
from ...model.model import Model, Pair, bodies_of
from ..body_contacts import sides_of


@dataclass(frozen=True)
class Couples:
    """The couples of bodies that may touch, each with its blocks of dofs in order, in tables for loops.

    of: each contact's couple. start, count: where a couple's blocks begin in `blocks`, and how many it has. signs: for
    each dof of a block, a table over `blocks` of signs like `PairBatch.signs`. most: the most blocks of a couple.
    alike: in every couple, both bodies' motion axes are seen from one origin, or the first body is the world.
    """

    of: Table
    start: Table
    count: Table
    blocks: Table
    signs: Sequence[Table]
    most: int
    alike: bool

    @staticmethod
    def make(m: Model, bodies: Sequence[tuple[int, int]], blocks: Blocks) -> Couples:
        """Make the couples of contacts of these bodies."""
        known: dict[tuple[int, int], int] = {}
        of = [known.setdefault(couple, len(known)) for couple in bodies]
        lists, signs = list[list[int]](), list[list[float]]()
        for couple in known:
            moved = {v: side.sign for side in sides_of(m, *couple) for v in side.dofs}
            mine = sorted({blocks.of_row[v][0] for v in moved})
            sign = {place: moved.get(v, 0.0) for v, place in enumerate(blocks.of_row)}
            signs += [[sign.get((I, e), 0.0) for e in range(SIDE)] for I in mine]
            lists.append(mine)
        starts = list(itertools.accumulate(map(len, lists), initial=0))[:-1]
        flat = [I for mine in lists for I in mine]
        alike = all(not one or m.body_originid[one] == m.body_originid[two] for one, two in known)
        of_signs = [Table([row[e] for row in signs]) for e in range(SIDE)]
        counts = [len(mine) for mine in lists]
        return Couples(Table(of), Table(starts), Table(counts), Table(flat), of_signs, max(counts), alike)

    def dense_signs(self, blocks: Blocks) -> tuple[list[list[float]], list[float]]:
        """Return rows of signs, one for each couple and each of all blocks, and each contact's first row."""
        rows = list[list[float]]()
        for couple in range(len(self.start.values)):
            start = self.start[couple]
            own = {self.blocks[k]: [x[k] for x in self.signs] for k in range(start, start + self.count[couple])}
            rows += [own.get(I, [0.0] * SIDE) for I in range(blocks.count)]
        return rows, [float(couple * blocks.count) for couple in self.of.values]


def layout_of(m: Model, pairs: Sequence[Pair]) -> SumsLayout:
    """Return the tiles of the Hessian in which contacts of these pairs have entries.

    If M is in tiles, its blocks are used. Otherwise they are those whose factorization takes the fewest products: where
    any limb may touch any other, or trees are small, a block with dofs of two of them costs nothing more.
    """
    columns: list[set[int]] = [set() for _ in range(m.nv)]
    couples = {bodies_of(m, p) for p in pairs}
    moved = [sorted(v for side in sides_of(m, *couple) for v in side.dofs) for couple in couples]
    for mine in moved:
        for k, v in enumerate(mine):
            columns[v].update(mine[: k + 1])
    inertial = dof_columns(m)
    rows = [{*own, *more} for own, more in zip(inertial, columns, strict=True)]
    fewest = min(
        (Blocks.of(rows), Blocks.of([range(v + 1) for v in range(m.nv)])),
        key=lambda blocks: Pattern.of(rows, blocks).products,
    )
    blocks = Blocks.of(inertial) if in_tiles(inertial) else fewest
    tiles = set[tuple[int, int]]()
    for mine in moved:
        own = {blocks.of_row[v][0] for v in mine}
        tiles |= {(I, J) for I in own for J in own if J <= I}
    return SumsLayout(blocks, sorted(tiles), columns)


def moving_of(d: Data, blocks: Blocks) -> Array:
    """Return the motion axes and speeds of all dofs, a row for each block: seven numbers a dof."""
    cut = blocks.cut([[*x, v] for x, v in zip(d.odof, d.qvel, strict=True)], [0.0] * 7)
    return Array([[y for dof in block for y in dof] for block in cut])


def entries_of(
    first: list[list[Scalar]], second: list[list[Scalar]], signs: Vec, dofs: Vec, alike: bool
) -> list[list[Scalar]]:
    """Return a contact's entries of the Jacobian in a block, by axis.

    first, second: its lines of the first and the second body. signs: of the block's dofs. dofs: its row of `moving_of`.
    alike: see `Couples`.
    """
    return [
        [
            dot(two if alike else choose(sign > 0.0, two, one), dofs[7 * e : 7 * e + 6]) * sign
            for e, sign in enumerate(signs)
        ]
        for one, two in zip(first, second, strict=True)
    ]
