"""Large symmetric matrices in tiles of 4 x 4: factored, and solved with, by loops whose code does not grow with them.

Written out, to factor a full matrix of 60 rows is 36,000 products. They take seconds to compile, and run only as fast
as a core reads code from memory. A loop over tiles keeps the 16 sums of a tile in registers while it goes through the
products, and does two of these for each number that it reads.

A = L^T D L, with L unit lower triangular, as MuJoCo has it: from the last row, the leaves of a tree, to the first. What
is kept of L is U = D L, row by row; a row of L is that of U times the reciprocal of its pivot.

I J K blocks of rows and columns, i j k rows and columns within them
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .arrays import Array, Table
from .control import repeat
from .scalar import Scalar, maximum

SIDE = 4  # of a tile: its 16 sums fit into registers, with what they are made of
PAIRS = [(k, i) for k in range(SIDE - 1, 0, -1) for i in range(k)]  # entries below a tile's diagonal, from the last row
Row = Mapping[int, Scalar]
Tile = list[Scalar]  # its entries, row by row


@dataclass(frozen=True)
class Pattern:
    """The tiles (I, J), J <= I, of a factor that are not zero, and tables of them for loops. n: rows of the matrix.

    before: of each block the others in its row. after: those in its column. Each block has those `before` that those
    before it have, so a tile (I, J) takes part of all blocks K after I, in both columns: `after` of I.
    """

    n: int
    before: tuple[tuple[int, ...], ...]
    after: tuple[tuple[int, ...], ...]

    @property
    def blocks(self) -> int:
        """The number of blocks."""
        return len(self.before)

    @staticmethod
    def of(rows: Sequence[Row]) -> Pattern:
        """Return the pattern of the factor of a matrix, given by the rows of its lower triangle."""
        n = len(rows)
        found: list[set[int]] = [set() for _ in range(-(-n // SIDE))]
        for i, row in enumerate(rows):
            found[i // SIDE] |= {j // SIDE for j in row}
        size = 0
        while size < (size := sum(map(len, found))):
            for K in range(len(found)):
                found[K] = found[K].union(*(found[J] for J in found[K] if J < K))
            for K in range(len(found) - 1, -1, -1):
                for J in found[K]:
                    found[J] |= {other for other in found[K] if other <= J}
        before = tuple(tuple(sorted(x - {I})) for I, x in enumerate(found))
        after = tuple(tuple(K for K, x in enumerate(before) if I in x) for I in range(len(before)))
        return Pattern(n, before, after)

    def products(self) -> int:
        """Return how many products it takes to factor the matrix."""
        return SIDE**3 * sum(len(x) * (len(x) + 1) // 2 for x in self.before)


def tile_row(I: Any, J: Any) -> Any:
    """Return the row of the array in which tile (I, J) lies. I and J are ints, or tables' entries."""
    return _TRIANGLE[I] + J


_TRIANGLE = Table([I * (I + 1) // 2 for I in range(300)])


@dataclass(frozen=True)
class List:
    """A list of blocks for each block, as tables: where it starts, how long it is, and what is in it."""

    start: Table
    size: Table
    entries: Table

    @staticmethod
    def of(lists: Sequence[Sequence[int]]) -> List:
        """Return the tables of these lists."""
        starts = list(itertools.accumulate(map(len, lists), initial=0))
        return List(Table(starts[:-1]), Table([len(x) for x in lists]), Table([k for x in lists for k in x] or [0]))

    def __call__(self, I: Any, k: Any) -> Any:
        """Return entry k of block I's list."""
        return self.entries[self.start[I] + k]


@dataclass(frozen=True)
class TileFactor:
    """The factors of a matrix in tiles.

    U: the tiles below the diagonal. pivots: of each block the reciprocals of its pivots, and its own part of L below
    the diagonal (`PAIRS`).
    """

    pattern: Pattern
    U: Array
    pivots: Array

    def solve(self, b: Sequence[Scalar]) -> list[Scalar]:
        """Solve A x = b."""
        p = self.pattern
        before, after, backwards = List.of(p.before), List.of(p.after), Table(range(p.blocks - 1, -1, -1))
        x = Array([[*b, *[0.0] * SIDE][SIDE * I : SIDE * I + SIDE] for I in range(p.blocks)])
        scaled = Array(rows=p.blocks, columns=SIDE)  # by the reciprocals of pivots

        def from_leaves(t: Any, c: Scalar) -> Scalar:
            I = backwards[t]

            def take_off(k: Any, c: Tile) -> Tile:
                K = after(I, k)
                tile, y = self.U[tile_row(K, I)], scaled[K]
                for k in range(SIDE):
                    c = [c[i] - tile[SIDE * k + i] * y[k] for i in range(SIDE)]
                return c

            c4 = repeat(after.size[I], take_off, x[I])
            inverse, L = _pivots(self.pivots[I])
            for k, i in PAIRS:
                c4[i] = c4[i] - L[k, i] * c4[k]
            scaled.put(I, [y * share for y, share in zip(c4, inverse, strict=True)], None)
            return c

        repeat(p.blocks, from_leaves, 0.0, [scaled])

        def from_root(I: Any, c: Scalar) -> Scalar:
            def gather(j: Any, c: Tile) -> Tile:
                J = before(I, j)
                tile, y = self.U[tile_row(I, J)], x[J]
                for j in range(SIDE):
                    c = [c[k] + tile[SIDE * k + j] * y[j] for k in range(SIDE)]
                return c

            inverse, L = _pivots(self.pivots[I])
            c4 = repeat(before.size[I], gather, [0.0] * SIDE)
            c4 = [y - share * s for y, share, s in zip(scaled[I], inverse, c4, strict=True)]
            for k, i in sorted(PAIRS):
                c4[k] = c4[k] - L[k, i] * c4[i]
            x.put(I, c4, None)
            return c

        repeat(p.blocks, from_root, 0.0, [x])
        return [x[v // SIDE, v % SIDE] for v in range(p.n)]


def factor_tiles(rows: Sequence[Row], least: Sequence[float], pattern: Pattern) -> TileFactor:
    """Factor a matrix, given by the rows of its lower triangle. least: of each pivot."""
    a, p = Array(_tiles(rows, pattern)), pattern
    before, after, backwards = List.of(p.before), List.of(p.after), Table(range(p.blocks - 1, -1, -1))
    held = Table([[*least, *least[-1:] * SIDE][SIDE * I : SIDE * I + SIDE] for I in range(p.blocks)])
    pivots = Array(rows=p.blocks, columns=SIDE + len(PAIRS))
    panel = Array(rows=p.blocks, columns=SIDE * SIDE)  # tiles of L in the column that is being done

    def do_row(t: Any, c: Scalar) -> Scalar:
        I = backwards[t]

        def take_off_diagonal(k: Any, c: Tile) -> Tile:
            K = after(I, k)
            tile, inverse = a[tile_row(K, I)], pivots[K, :SIDE]
            L = [tile[SIDE * k + i] * inverse[k] for k in range(SIDE) for i in range(SIDE)]
            panel.put(k, L, None)
            return _take_off(c, L, tile)

        c16 = repeat(after.size[I], take_off_diagonal, a[tile_row(I, I)], [panel])
        inverse: Tile = [0.0] * SIDE
        L: dict[tuple[int, int], Scalar] = {}
        for k in range(SIDE - 1, -1, -1):
            inverse[k] = 1.0 / maximum(c16[SIDE * k + k], held[I, k])
            for i in range(k):
                L[k, i] = c16[SIDE * k + i] * inverse[k]
                for j in range(i + 1):
                    c16[SIDE * i + j] = c16[SIDE * i + j] - L[k, i] * c16[SIDE * k + j]
        pivots.put(I, [*inverse, *(L[pair] for pair in PAIRS)], None)

        def do_tile(j: Any, c: Scalar) -> Scalar:
            J = before(I, j)

            def take_off(k: Any, c: Tile) -> Tile:
                return _take_off(c, panel[k], a[tile_row(after(I, k), J)])

            c16 = repeat(after.size[I], take_off, a[tile_row(I, J)])
            for k, i in PAIRS:
                for j in range(SIDE):
                    c16[SIDE * i + j] = c16[SIDE * i + j] - L[k, i] * c16[SIDE * k + j]
            a.put(tile_row(I, J), c16, None)
            return c

        return repeat(before.size[I], do_tile, c, [a])

    repeat(p.blocks, do_row, 0.0, [a, pivots, panel])
    return TileFactor(pattern, a, pivots)


def _take_off(c: Tile, L: Tile, U: Tile) -> Tile:
    """Return the tile c - L' U."""
    for k in range(SIDE):
        c = [c[SIDE * i + j] - L[SIDE * k + i] * U[SIDE * k + j] for i in range(SIDE) for j in range(SIDE)]
    return c


def _pivots(row: Tile) -> tuple[Tile, dict[tuple[int, int], Scalar]]:
    return row[:SIDE], dict(zip(PAIRS, row[SIDE:], strict=True))


def _tiles(rows: Sequence[Row], pattern: Pattern) -> list[Tile]:
    """Return the lower triangle tile by tile: of those on the diagonal the lower half. Rows to fill it up are of 1."""
    size = SIDE * pattern.blocks
    full = [*rows, *({i: 1.0} for i in range(pattern.n, size))]
    return [
        [full[SIDE * I + i].get(SIDE * J + j, 0.0) for i in range(SIDE) for j in range(SIDE)]
        for I in range(pattern.blocks)
        for J in range(I + 1)
    ]
