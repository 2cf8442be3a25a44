"""Large symmetric matrices in tiles of 4 x 4, by loops whose code does not grow with them.

Written out, to factor a full matrix of 60 rows is 36,000 products. They take seconds to compile, and run only as fast
as a core reads code from memory. A loop over tiles keeps the 16 sums of a tile in registers while it goes through the
products, and does two of these for each number that it reads.

A = L^T D L, with L unit lower triangular, as MuJoCo has it: from the last row, the leaves of a tree, to the first. What
is kept of L is U = D L, row by row; a row of L is that of U times the reciprocal of its pivot.

I J K blocks of rows and columns, i j k rows and columns within them
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .arrays import Array, Table
from .control import repeat
from .expr import Expr, once
from .scalar import Scalar, maximum

SIDE = 4  # of a tile: its 16 sums fit into registers, with what they are made of
import os
UNROLL_LIMIT = int(os.environ.get("UNROLL", 10_000))  # products: a matrix that takes more to factor is kept in tiles
BELOW = [(k, i) for k in range(SIDE - 1, 0, -1) for i in range(k)]  # a tile's diagonal, from the last row on
ENTRIES = [(i, j) for i in range(SIDE) for j in range(SIDE)]
Row = dict[int, Scalar]  # {column: entry}
Tile = list[Scalar]  # its entries, row by row


def large(rows: Sequence[Sequence[int] | Row], values: Iterable[Scalar]) -> bool:
    """Return whether a matrix is to be kept in tiles: one of a kernel, whose factors would be too much code.

    rows: the columns of the entries of its lower triangle, row by row. values: what it is made of.
    """
    return any(type(x) is Expr for x in values) and _elimination([set(row) for row in rows]) > UNROLL_LIMIT


def _elimination(pattern: list[set[int]]) -> int:
    """Return how many products it takes to factor a matrix of this pattern, to which it adds the fill-in."""
    products = 0
    for k in range(len(pattern) - 1, -1, -1):
        before = pattern[k] - {k}
        for i in before:
            pattern[i] |= {j for j in before if j <= i}
        products += len(before) * (len(before) + 1) // 2
    return products


@dataclass(frozen=True)
class Pattern:
    """The tiles (I, J), J <= I, of a matrix and its factor that are not zero.

    n: rows of the matrix. before: of each block the others in its row. Each block has those `before` that those before
    it have, so all blocks K in the column of I take part in all tiles of the row of I.
    """

    n: int
    before: tuple[tuple[int, ...], ...]

    @staticmethod
    def of(rows: Sequence[Sequence[int] | Row]) -> Pattern:
        """Return the pattern of a matrix that has these columns in the rows of its lower triangle."""
        n = len(rows)
        found: list[set[int]] = [set() for _ in range(-(-n // SIDE))]
        for i, row in enumerate(rows):
            found[i // SIDE] |= {j // SIDE for j in row}
        size = -1
        while size < (size := sum(map(len, found))):
            for K in range(len(found)):
                found[K] = found[K].union(*(found[J] for J in found[K] if J < K))
            for K in range(len(found) - 1, -1, -1):
                for J in found[K]:
                    found[J] |= {other for other in found[K] if other <= J}
        return Pattern(n, tuple(tuple(sorted(x - {I})) for I, x in enumerate(found)))

    @property
    def blocks(self) -> int:
        """The number of blocks."""
        return len(self.before)

    @property
    def after(self) -> list[list[int]]:
        """The others in the column of each block."""
        return [[K for K, x in enumerate(self.before) if I in x] for I in range(self.blocks)]

    @property
    def tiles(self) -> list[tuple[int, int]]:
        """All tiles."""
        return [(I, J) for I, x in enumerate(self.before) for J in (*x, I)]

    def cut(self, x: Sequence[Scalar], fill: Scalar = 0.0) -> list[list[Scalar]]:
        """Cut a vector (n) into blocks."""
        full = [*x, *[fill] * (SIDE * self.blocks - self.n)]
        return [full[at : at + SIDE] for at in range(0, len(full), SIDE)]


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


def _place(I: Any, J: Any, blocks: int) -> Any:
    """Return where tile (I, J) is among all tiles J <= I."""
    return Table([I * (I + 1) // 2 for I in range(blocks)])[I] + J


@dataclass(frozen=True)
class Part:
    """Tiles in an array, by a table of the rows in which they lie. Tiles that are not there are 0: row 0.

    left, right: the vectors of which they are products, if they are.
    """

    tiles: Array
    row: Table
    left: Sequence[Sequence[Scalar]] = ()
    right: Sequence[Sequence[Scalar]] = ()

    @staticmethod
    def rows(held: Sequence[tuple[int, int]], blocks: int) -> Table:
        """Return the table for these tiles, which lie one after the other."""
        row = {tile: k + 1 for k, tile in enumerate(held)}
        return Table([row.get((I, J), 0) for I in range(blocks) for J in range(I + 1)])

    @staticmethod
    def of(rows: Sequence[Row], blocks: int) -> Part:
        """Return the tiles that have any entry of these rows of the lower triangle."""
        held = sorted({(i // SIDE, j // SIDE) for i, row in enumerate(rows) for j in row})
        full = [*rows, *[Row()] * SIDE]
        tiles = [[full[SIDE * I + i].get(SIDE * J + j, 0.0) for i, j in ENTRIES] for I, J in held]
        return Part(Array([[0.0] * SIDE * SIDE, *tiles]), Part.rows(held, blocks))

    def entry(self, i: int, j: int) -> Scalar:
        """Return the entry (i, j), j <= i."""
        I, J = i // SIDE, j // SIDE
        found: Scalar = self.tiles[self.row[I * (I + 1) // 2 + J], SIDE * (i % SIDE) + j % SIDE]
        return found


@dataclass(frozen=True)
class TileMatrix:
    """A large symmetric matrix: tiles in an array, and what is added to them.

    It is read as the rows of its lower triangle, {column: entry}. columns: of each row, in order. diagonal (n) and
    more, rows, are added to what is in tiles.
    """

    columns: list[list[int]]
    base: Part | None
    diagonal: list[Scalar]
    more: list[Row]

    @staticmethod
    def of(rows: Sequence[Row]) -> TileMatrix:
        """Make one of the rows of its lower triangle."""
        nothing = TileMatrix([[] for _ in rows], None, [0.0] * len(rows), [{} for _ in rows])
        return nothing.plus(rows)

    @staticmethod
    def of_products(
        left: Sequence[Sequence[Scalar]], right: Sequence[Sequence[Scalar]], columns: list[list[int]]
    ) -> TileMatrix:
        """Make one whose entries are products of vectors: of left[i] and right[j]. columns: those of each row."""
        pattern, width = Pattern.of(columns), len(left[0])
        blocks, before, row = pattern.blocks, Lists.of(pattern.before), Part.rows(pattern.tiles, pattern.blocks)
        lefts, rights = (Array(_vectors(vectors, width)) for vectors in (left, right))
        tiles, masks = Array([[0.0] * SIDE * SIDE], rows=len(pattern.tiles) + 1), _masks(pattern, columns)

        def product(I: Any, J: Any) -> Tile:
            x, y, at = lefts[I], rights[J], row[_place(I, J, blocks)]
            tile: Tile = [0.0] * SIDE * SIDE
            for c in range(width):
                tile = [z + x[width * i + c] * y[width * j + c] for z, (i, j) in zip(tile, ENTRIES, strict=True)]
            tiles.put(at, [z * mask for z, mask in zip(tile, masks[at], strict=True)], None)

        def do_row(I: Any, c: Scalar) -> Scalar:
            def do_tile(k: Any, c: Scalar) -> Scalar:
                product(I, before(I, k))
                return c

            repeat(before.size[I], do_tile, c, [tiles])
            product(I, I)
            return c

        repeat(blocks, do_row, 0.0, [tiles])
        return TileMatrix(columns, Part(tiles, row, left, right), [0.0] * pattern.n, [{} for _ in columns])

    def __len__(self) -> int:
        return len(self.columns)

    def __iter__(self) -> Iterator[Row]:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, i: int) -> Row:
        """Return row i of the lower triangle."""
        found = {}
        for j in self.columns[i]:
            added = self.diagonal[i] if i == j else self.more[i].get(j, 0.0)
            found[j] = added if self.base is None else self.base.entry(i, j) + added
        return found

    def plus(self, rows: Iterable[Row]) -> TileMatrix:
        """Return the sum with a matrix, given by the rows of its lower triangle."""
        rows = list(rows)
        columns = [sorted({*old, *row}) for old, row in zip(self.columns, rows, strict=True)]
        diagonal = [x + row.get(i, 0.0) for i, (x, row) in enumerate(zip(self.diagonal, rows, strict=True))]
        more = [dict(row) for row in self.more]
        for i, row in enumerate(rows):
            for j, x in row.items():
                if j != i:
                    more[i][j] = more[i].get(j, 0.0) + x
        return TileMatrix(columns, self.base, diagonal, more)

    def plus_products(self, left: Mapping[int, Sequence[Scalar]], columns: list[list[int]]) -> TileMatrix:
        """Return the sum of a matrix `of_products` and those of further vectors with the same ones on the right.

        left: by row. columns: of each row of the sum.
        """
        if not left:
            return self
        assert self.base is not None
        vectors = [
            [x + y for x, y in zip(old, left[i], strict=True)] if i in left else old
            for i, old in enumerate(self.base.left)
        ]
        base = TileMatrix.of_products(vectors, self.base.right, columns).base
        return TileMatrix(columns, base, self.diagonal, self.more)

    @property
    def _key(self) -> tuple[Any, ...]:
        """All that tells it from other matrices of a kernel."""
        more = tuple((i, j, x) for i, row in enumerate(self.more) for j, x in sorted(row.items()))
        return self.base and self.base.tiles.held, tuple(self.diagonal), more

    def times(self, x: Sequence[Scalar]) -> list[Scalar]:
        """Return the product with a vector (n)."""
        found: list[Scalar] = once(("times", *self._key, *x), lambda: self._times(x))
        return list(found)

    def factor(self, least: Sequence[float]) -> TileFactor:
        """Factor the matrix, if it is positive definite. least: of each pivot."""
        found: TileFactor = once(("factor", *self._key, *least), lambda: self._factor(least))
        return found

    def _times(self, x: Sequence[Scalar]) -> list[Scalar]:
        pattern = Pattern.of(self.columns)
        blocks, before, tile_at = pattern.blocks, Lists.of(pattern.before), self._reader(pattern.blocks)
        diagonal, factor = Array(pattern.cut(self.diagonal)), Array(pattern.cut(x))
        product = Array(rows=blocks, columns=SIDE)

        def do_row(I: Any, c: Scalar) -> Scalar:
            mine, tile = factor[I], tile_at(I, I)
            total = [d * x for d, x in zip(diagonal[I], mine, strict=True)]
            for i, j in ENTRIES:
                total[i] = total[i] + tile[SIDE * max(i, j) + min(i, j)] * mine[j]

            def do_tile(k: Any, total: Tile) -> Tile:
                J = before(I, k)
                tile, other, there, total = tile_at(I, J), factor[J], product[J], list(total)
                for i, j in ENTRIES:
                    total[i] = total[i] + tile[SIDE * i + j] * other[j]
                    there[j] = there[j] + tile[SIDE * i + j] * mine[i]
                product.put(J, there, None)
                return total

            product.put(I, repeat(before.size[I], do_tile, total, [product]), None)
            return c

        repeat(blocks, do_row, 0.0, [product])
        return _joined(product, pattern.n)

    def _factor(self, least: Sequence[float]) -> TileFactor:
        pattern = Pattern.of(self.columns)
        blocks, tile_at = pattern.blocks, self._reader(pattern.blocks)
        before, after, backwards = Lists.of(pattern.before), Lists.of(pattern.after), Table(range(blocks - 1, -1, -1))
        diagonal, held = Array(pattern.cut(self.diagonal, 1.0)), Table(pattern.cut(least, min(least)))
        U, pivots = Array(rows=blocks * (blocks + 1) // 2, columns=SIDE * SIDE), Array(rows=blocks, columns=PIVOTS)
        panel = Array(rows=blocks, columns=SIDE * SIDE)  # tiles of L in the column that is being done

        def do_row(t: Any, c: Scalar) -> Scalar:
            I = backwards[t]

            def take_off_diagonal(k: Any, tile: Tile) -> Tile:
                K = after(I, k)
                u, inverse = U[_place(K, I, blocks)], pivots[K, :SIDE]
                lower = [u[SIDE * k + i] * inverse[k] for k, i in ENTRIES]
                panel.put(k, lower, None)
                return _take_off(tile, lower, u)

            tile = tile_at(I, I)
            for i in range(SIDE):
                tile[SIDE * i + i] = tile[SIDE * i + i] + diagonal[I, i]
            tile = repeat(after.size[I], take_off_diagonal, tile, [panel])
            inverse: Tile = [0.0] * SIDE
            L: dict[tuple[int, int], Scalar] = {}
            for k in range(SIDE - 1, -1, -1):
                inverse[k] = 1.0 / maximum(tile[SIDE * k + k], held[I, k])
                for i in range(k):
                    L[k, i] = tile[SIDE * k + i] * inverse[k]
                    for j in range(i + 1):
                        tile[SIDE * i + j] = tile[SIDE * i + j] - L[k, i] * tile[SIDE * k + j]
            pivots.put(I, [*inverse, *(L[pair] for pair in BELOW)], None)

            def do_tile(j: Any, c: Scalar) -> Scalar:
                J = before(I, j)

                def take_off(k: Any, tile: Tile) -> Tile:
                    return _take_off(tile, panel[k], U[_place(after(I, k), J, blocks)])

                tile = repeat(after.size[I], take_off, tile_at(I, J))
                for k, i in BELOW:
                    for j in range(SIDE):
                        tile[SIDE * i + j] = tile[SIDE * i + j] - L[k, i] * tile[SIDE * k + j]
                U.put(_place(I, J, blocks), tile, None)
                return c

            return repeat(before.size[I], do_tile, c, [U])

        repeat(blocks, do_row, 0.0, [U, pivots, panel])
        return TileFactor(pattern, U, pivots)

    def _reader(self, blocks: int) -> Callable[[Any, Any], Tile]:
        """Return a function that reads a tile in a loop; its diagonal is to be added."""
        parts = [] if self.base is None else [self.base]
        if any(self.more) or not parts:
            parts.append(Part.of(self.more, blocks))

        def tile_at(I: Any, J: Any) -> Tile:
            place = _place(I, J, blocks)
            tiles = [part.tiles[part.row[place]] for part in parts]
            return [sum(xs[1:], xs[0]) for xs in zip(*tiles, strict=True)]

        return tile_at


PIVOTS = SIDE + len(BELOW)


@dataclass(frozen=True)
class TileFactor:
    """The factors of a matrix in tiles.

    U: all tiles by their `_place`, those below the diagonal filled. pivots: of each block the reciprocals of its
    pivots, and its own part of L (`BELOW` its diagonal).
    """

    pattern: Pattern
    U: Array
    pivots: Array

    @property
    def inverse(self) -> list[Scalar]:
        """The reciprocals of D."""
        return _joined(self.pivots, self.pattern.n)

    @property
    def L(self) -> list[Row]:
        """L, without its diagonal, row by row."""
        rows: list[Row] = []
        for k in range(self.pattern.n):
            K, at = divmod(k, SIDE)
            share = self.pivots[K, at]
            row = {
                SIDE * J + j: self.U[K * (K + 1) // 2 + J, SIDE * at + j] * share
                for J in self.pattern.before[K]
                for j in range(SIDE)
            }
            own = {SIDE * K + i: self.pivots[K, SIDE + n] for n, (m, i) in enumerate(BELOW) if m == at}
            rows.append(row | dict(sorted(own.items())))
        return rows

    def solve(self, b: Sequence[Scalar]) -> list[Scalar]:
        """Solve A x = b."""
        p, blocks = self.pattern, self.pattern.blocks
        before, after, backwards = Lists.of(p.before), Lists.of(p.after), Table(range(blocks - 1, -1, -1))
        x = Array(p.cut(b))
        scaled = Array(rows=blocks, columns=SIDE)  # by the reciprocals of pivots

        def from_leaves(t: Any, c: Scalar) -> Scalar:
            I = backwards[t]

            def take_off(k: Any, y: Tile) -> Tile:
                K, y = after(I, k), list(y)
                tile, z = self.U[_place(K, I, blocks)], scaled[K]
                for k, i in ENTRIES:
                    y[i] = y[i] - tile[SIDE * k + i] * z[k]
                return y

            y = repeat(after.size[I], take_off, x[I])
            inverse, L = self._pivots(I)
            for k, i in BELOW:
                y[i] = y[i] - L[k, i] * y[k]
            scaled.put(I, [z * share for z, share in zip(y, inverse, strict=True)], None)
            return c

        def from_root(I: Any, c: Scalar) -> Scalar:
            def add_up(j: Any, y: Tile) -> Tile:
                J, y = before(I, j), list(y)
                tile, z = self.U[_place(I, J, blocks)], x[J]
                for i, j in ENTRIES:
                    y[i] = y[i] + tile[SIDE * i + j] * z[j]
                return y

            y = repeat(before.size[I], add_up, [0.0] * SIDE)
            inverse, L = self._pivots(I)
            y = [z - share * s for z, share, s in zip(scaled[I], inverse, y, strict=True)]
            for k, i in sorted(BELOW):
                y[k] = y[k] - L[k, i] * y[i]
            x.put(I, y, None)
            return c

        repeat(blocks, from_leaves, 0.0, [scaled])
        repeat(blocks, from_root, 0.0, [x])
        return _joined(x, p.n)

    def _pivots(self, I: Any) -> tuple[Tile, dict[tuple[int, int], Scalar]]:
        row = self.pivots[I]
        return row[:SIDE], dict(zip(BELOW, row[SIDE:], strict=True))


def _take_off(tile: Tile, L: Tile, U: Tile) -> Tile:
    """Return tile - L' U."""
    tile = list(tile)
    for k in range(SIDE):
        for i, j in ENTRIES:
            tile[SIDE * i + j] = tile[SIDE * i + j] - L[SIDE * k + i] * U[SIDE * k + j]
    return tile


def _joined(blocks: Array, n: int) -> list[Scalar]:
    """Return a vector (n) of its blocks."""
    return [blocks[v // SIDE, v % SIDE] for v in range(n)]


def _vectors(vectors: Sequence[Sequence[Scalar]], width: int) -> list[list[Scalar]]:
    """Return vectors (width) one after the other, as many as there are in a block to a row."""
    full = [*vectors, *[[0.0] * width] * (-len(vectors) % SIDE)]
    return [[x for v in full[at : at + SIDE] for x in v] for at in range(0, len(full), SIDE)]


def _masks(pattern: Pattern, columns: Sequence[Sequence[int]]) -> Table:
    """Return for each tile, after one that is not there, 1 where it has an entry or nobody reads one, else 0."""
    there = [*map(set, columns), *[set[int]()] * SIDE]
    rows = [[1.0] * SIDE * SIDE]
    for I, J in pattern.tiles:
        real = min(SIDE, pattern.n - SIDE * I)
        rows.append([float(i >= real or (I == J and j > i) or SIDE * J + j in there[SIDE * I + i]) for i, j in ENTRIES])
    return Table(rows)
