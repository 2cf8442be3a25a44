"""Blocks of four rows: which tiles a symmetric matrix and its factor have, where loops find them, and when they pay."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ..arrays import Array, Table
from ..expr import Expr, current, is_tracing
from ..scalar import Scalar

SIDE = 4  # of a tile: its 16 sums fit into registers, with what they are made of
# When tiles pay, in products. Fitted to chains, heaps and trees that were timed in turns.
MUCH_CODE = 30_000  # written out, this many take twice the time of as many in a loop: the core waits for code
LOOPS, STORE = 1_000, 4  # the cost of loops around tiles, and of an entry that the code around puts into them
ENTRIES = [(i, j) for i in range(SIDE) for j in range(SIDE)]
Row = dict[int, Scalar]  # {column: entry}
Columns = Collection[int]
Tile = list[Scalar]  # its entries, row by row
ZEROS: list[Scalar] = [0.0 for _ in range(SIDE * SIDE)]


def large(rows: Sequence[Columns], values: Iterable[Scalar], stores: int = 0) -> bool:
    """Return whether to keep a matrix in tiles: if it is one of a kernel, and factoring it would be too much code.

    rows: the columns of the entries of its lower triangle, row by row. values: those that it is made of. stores: how
    many entries there are already, one by one.
    """
    if is_tracing() and current().derivatives == "reverse":  # these loops have no adjoints
        return False
    return any(type(x) is Expr for x in values) and pays(rows, elimination(rows), stores)


def in_tiles(rows: Sequence[Columns]) -> bool:
    """Return whether a matrix of these columns, without any entries yet, is in tiles in a kernel."""
    return pays(rows, elimination(rows), 0)


def pays(rows: Sequence[Columns], products: int, stores: int) -> bool:
    """Return whether tiles pay for a matrix of these columns, which takes this many products to factor: see `large`."""
    most = products * (1 + products / MUCH_CODE) - LOOPS - STORE * stores
    return most > 0 and (products if _is_full(rows) else Pattern.of(rows).products) < most


def _is_full(rows: Sequence[Columns]) -> bool:
    return all(len(row) == i + 1 for i, row in enumerate(rows))


def elimination(rows: Sequence[Columns]) -> int:
    """Return how many products it takes to factor a matrix that has these columns in the rows of its lower triangle."""
    if _is_full(rows):
        return (len(rows) - 1) * len(rows) * (len(rows) + 1) // 6
    pattern, products = [set(row) for row in rows], 0
    for k in range(len(pattern) - 1, -1, -1):
        before = pattern[k] - {k}
        for i in before:
            pattern[i] |= {j for j in before if j <= i}
        products += len(before) * (len(before) + 1) // 2
    return products


@dataclass(frozen=True)
class Blocks:
    """The blocks of a matrix's rows: for each row its block, and its number in the block."""

    of_row: tuple[tuple[int, int], ...]
    count: int

    @staticmethod
    def of(rows: Sequence[Columns]) -> Blocks:
        """Return the blocks of a matrix of these columns. Where rows belong to different branches, a block ends."""
        found: list[tuple[int, int]] = []
        for i, row in enumerate(rows):
            I, at = found[-1] if found else (-1, SIDE - 1)
            found.append((I, at + 1) if at + 1 < SIDE and i - 1 in row else (I + 1, 0))
        return Blocks(tuple(found), found[-1][0] + 1)

    def cut(self, x: Sequence[Any], fill: Any) -> list[list[Any]]:
        """Cut a list with an entry for each row into blocks, each filled up to SIDE entries."""
        out = [[fill] * SIDE for _ in range(self.count)]
        for (I, i), y in zip(self.of_row, x, strict=True):
            out[I][i] = y
        return out

    def joined(self, blocks: Array) -> list[Scalar]:
        """Return the entry for each row, from an array with one block in each row."""
        return [blocks[I, i] for I, i in self.of_row]


@dataclass(frozen=True)
class Pattern:
    """The tiles (I, J), J <= I, of a matrix and its factor that are not zero.

    before: for each block, the others in its row. These include the `before` of each of them, so all blocks K in the
    column of I take part in all tiles of the row of I.
    """

    blocks: Blocks
    before: tuple[tuple[int, ...], ...]

    @staticmethod
    def of(rows: Sequence[Columns], blocks: Blocks | None = None) -> Pattern:
        """Return the pattern of a matrix that has these columns in the rows of its lower triangle."""
        blocks = blocks or Blocks.of(rows)
        found: list[set[int]] = [set() for _ in range(blocks.count)]
        for i, row in enumerate(rows):
            found[blocks.of_row[i][0]] |= {blocks.of_row[j][0] for j in row}
        size = -1
        while size < (size := sum(map(len, found))):
            for K in range(len(found)):
                found[K] = found[K].union(*(found[J] for J in found[K] if J < K))
            for K in range(len(found) - 1, -1, -1):
                for J in found[K]:
                    found[J] |= {other for other in found[K] if other <= J}
        return Pattern(blocks, tuple(tuple(sorted(x - {I})) for I, x in enumerate(found)))

    @property
    def after(self) -> list[list[int]]:
        """For each block, the others in its column."""
        return [[K for K, x in enumerate(self.before) if I in x] for I in range(self.blocks.count)]

    @property
    def tiles(self) -> list[tuple[int, int]]:
        """Return all tiles."""
        return [(I, J) for I, x in enumerate(self.before) for J in (*x, I)]

    @property
    def products(self) -> int:
        """The number of products that it takes to factor the matrix, tile by tile."""
        return SIDE**3 * sum(len(x) * (len(x) + 1) // 2 for x in self.before)


@dataclass(frozen=True)
class Lists:
    """A list of blocks for each block, in tables for loops: where it starts, how long it is, and what is in it."""

    start: Table
    size: Table
    entries: Table

    @staticmethod
    def of(lists: Sequence[Sequence[int]]) -> Lists:
        """Return the tables of these lists."""
        starts = list(itertools.accumulate(map(len, lists), initial=0))
        return Lists(Table(starts[:-1]), Table([len(x) for x in lists]), Table([k for x in lists for k in x] or [0]))

    def __call__(self, I: Any, k: Any) -> Any:
        """Return entry k of block I's list."""
        return self.entries[self.start[I] + k]


def place_of(I: int, J: int) -> int:
    """Return where a tile (I, J) is among all tiles J <= I, row by row."""
    return I * (I + 1) // 2 + J


class Places:
    """`place_of` for loops over this many blocks."""

    def __init__(self, blocks: int):
        self._starts = Table([place_of(I, 0) for I in range(blocks)])

    def __call__(self, I: Any, J: Any) -> Any:
        return self._starts[I] + J
