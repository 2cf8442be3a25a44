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
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .arrays import Array, Table
from .control import repeat
from .expr import Expr, current, is_tracing, once
from .scalar import Scalar, maximum

SIDE = 4  # of a tile: its 16 sums fit into registers, with what they are made of
# When tiles pay, in products. Fitted to chains, heaps and trees that were timed in turns.
MUCH_CODE = 30_000  # written out, so many take twice the time of as many in a loop: the core waits for code
LOOPS, STORE = 1_000, 4  # loops around tiles, and an entry that the code around has to put into them
BELOW = [(k, i) for k in range(SIDE - 1, 0, -1) for i in range(k)]  # a tile's diagonal, from the last row on
ENTRIES = [(i, j) for i in range(SIDE) for j in range(SIDE)]
Row = dict[int, Scalar]  # {column: entry}
Columns = Collection[int]
Tile = list[Scalar]  # its entries, row by row
ZEROS: list[Scalar] = [0.0 for _ in range(SIDE * SIDE)]


def large(rows: Sequence[Columns], values: Iterable[Scalar], stores: int = 0) -> bool:
    """Return whether a matrix is to be kept in tiles: one of a kernel, whose factors would be too much code.

    rows: the columns of the entries of its lower triangle, row by row. values: what it is made of. stores: how many
    entries there are already, one by one.
    """
    if is_tracing() and current().derivatives == "reverse":  # these loops have no adjoints
        return False
    return any(type(x) is Expr for x in values) and pays(rows, elimination(rows), stores)


def in_tiles(rows: Sequence[Columns]) -> bool:
    """Return whether a matrix of these columns, of which no entry is there yet, is in tiles in a kernel."""
    return pays(rows, elimination(rows), 0)


def pays(rows: Sequence[Columns], products: int, stores: int) -> bool:
    """Return whether tiles pay for a matrix of these columns, which takes so many products to factor: see `large`."""
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
    """The blocks of a matrix's rows: of each row its block, and which of it it is."""

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
        """Cut what there is for each row into blocks, filled up."""
        out = [[fill] * SIDE for _ in range(self.count)]
        for (I, i), y in zip(self.of_row, x, strict=True):
            out[I][i] = y
        return out

    def joined(self, blocks: Array) -> list[Scalar]:
        """Return what an array has for each row, a block to a row of it."""
        return [blocks[I, i] for I, i in self.of_row]


@dataclass(frozen=True)
class Pattern:
    """The tiles (I, J), J <= I, of a matrix and its factor that are not zero.

    before: of each block the others in its row. Each block has those `before` that those before it have, so all blocks
    K in the column of I take part in all tiles of the row of I.
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
        """The others in the column of each block."""
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


class Places:
    """Return where a tile (I, J) is among all tiles J <= I of so many blocks, for loops."""

    def __init__(self, blocks: int):
        self._starts = Table([I * (I + 1) // 2 for I in range(blocks)])

    def __call__(self, I: Any, J: Any) -> Any:
        return self._starts[I] + J


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
    def rows(held: Sequence[tuple[int, int]], blocks: Blocks) -> Table:
        """Return the table for these tiles, which lie one after the other."""
        row = {tile: k + 1 for k, tile in enumerate(held)}
        return Table([row.get((I, J), 0) for I in range(blocks.count) for J in range(I + 1)])

    @staticmethod
    def of(rows: Sequence[Row], blocks: Blocks) -> Part:
        """Return the tiles that have any entry of these rows of the lower triangle."""
        tiles: dict[tuple[int, int], Tile] = {}
        for (I, i), row in zip(blocks.of_row, rows, strict=True):
            for column, x in row.items():
                J, j = blocks.of_row[column]
                tiles.setdefault((I, J), list(ZEROS))[SIDE * i + j] = x
        held = sorted(tiles)
        return Part(Array([ZEROS, *(tiles[x] for x in held)]), Part.rows(held, blocks))

    def entry(self, row: tuple[int, int], column: tuple[int, int]) -> Scalar:
        """Return the entry of a row and a column, each given by its block and which of it it is."""
        (I, i), (J, j) = row, column
        found: Scalar = self.tiles[self.row[I * (I + 1) // 2 + J], SIDE * i + j]
        return found


@dataclass(frozen=True)
class Layout:
    """The tiles of a matrix in which loops may add up entries, and the columns of each row that have any."""

    blocks: Blocks
    tiles: Sequence[tuple[int, int]]
    columns: Sequence[Columns]

    def zeros(self) -> Part:
        """Return these tiles, all 0."""
        tiles = Array(rows=len(self.tiles) + 1, columns=SIDE * SIDE)

        def clear(t: Any, nothing: Any) -> Any:
            tiles.put(t, ZEROS, None)
            return nothing

        repeat(tiles.rows, clear, [], [tiles])
        return Part(tiles, Part.rows(self.tiles, self.blocks))


@dataclass(frozen=True)
class TileMatrix:
    """A large symmetric matrix: tiles in an array, and what is added to them.

    It is read as the rows of its lower triangle, {column: entry}. columns: of each row, in order. diagonal (n), more,
    rows, and parts are added to what is in `base`.
    """

    blocks: Blocks
    columns: list[list[int]]
    base: Part | None
    diagonal: list[Scalar]
    more: list[Row]
    parts: tuple[Part, ...] = ()

    @staticmethod
    def of(rows: Sequence[Row], blocks: Blocks | None = None) -> TileMatrix:
        """Make one of the rows of its lower triangle."""
        blocks = blocks or Blocks.of(rows)
        return TileMatrix(blocks, [[] for _ in rows], None, [0.0] * len(rows), [{} for _ in rows]).plus(rows)

    @staticmethod
    def of_products(
        left: Sequence[Sequence[Scalar]],
        right: Sequence[Sequence[Scalar]],
        columns: list[list[int]],
        blocks: Blocks | None = None,
    ) -> TileMatrix:
        """Make one whose entries are products of vectors: of left[i] and right[j]. columns: those of each row."""
        blocks = blocks or Blocks.of(columns)
        pattern, width = Pattern.of(columns, blocks), len(left[0])
        before, row = Lists.of(pattern.before), Part.rows(pattern.tiles, blocks)
        cuts = (blocks.cut(vectors, [0.0] * width) for vectors in (left, right))
        lefts, rights = (Array([[x for v in block for x in v] for block in cut]) for cut in cuts)
        tiles, masks = Array([ZEROS], rows=len(pattern.tiles) + 1), _masks(pattern, columns)
        place = Places(blocks.count)

        def put_product(I: Any, J: Any) -> None:
            x, y, at = lefts[I], rights[J], row[place(I, J)]
            tile = ZEROS
            for c in range(width):
                tile = [z + x[width * i + c] * y[width * j + c] for z, (i, j) in zip(tile, ENTRIES, strict=True)]
            tiles.put(at, [z * mask for z, mask in zip(tile, masks[at], strict=True)], None)

        def do_row(I: Any, c: Scalar) -> Scalar:
            def do_tile(k: Any, c: Scalar) -> Scalar:
                put_product(I, before(I, k))
                return c

            repeat(before.size[I], do_tile, c, [tiles])
            put_product(I, I)
            return c

        repeat(blocks.count, do_row, 0.0, [tiles])
        return TileMatrix(
            blocks, columns, Part(tiles, row, left, right), [0.0] * len(columns), [{} for _ in columns]
        )

    def __len__(self) -> int:
        return len(self.columns)

    def __iter__(self) -> Iterator[Row]:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, i: int) -> Row:
        """Return row i of the lower triangle."""
        found, of_row = {}, self.blocks.of_row
        for j in self.columns[i]:
            added = self.diagonal[i] if i == j else self.more[i].get(j, 0.0)
            found[j] = added if self.base is None else self.base.entry(of_row[i], of_row[j]) + added
            for part in self.parts:
                found[j] = found[j] + part.entry(of_row[i], of_row[j])
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
        return TileMatrix(self.blocks, columns, self.base, diagonal, more, self.parts)

    def plus_part(self, part: Part, columns: Sequence[Columns]) -> TileMatrix:
        """Return the sum with tiles of the same blocks, which have entries in these columns of each row."""
        union = [sorted({*old, *new}) for old, new in zip(self.columns, columns, strict=True)]
        return TileMatrix(self.blocks, union, self.base, self.diagonal, self.more, (*self.parts, part))

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
        base = TileMatrix.of_products(vectors, self.base.right, columns, self.blocks).base
        return TileMatrix(self.blocks, columns, base, self.diagonal, self.more, self.parts)

    @property
    def _key(self) -> tuple[Any, ...]:
        """Return what tells it from other matrices of a kernel."""
        more = tuple((i, j, x) for i, row in enumerate(self.more) for j, x in sorted(row.items()))
        return self.base and self.base.tiles.held, tuple(self.diagonal), more, *(x.tiles.held for x in self.parts)

    def times(self, x: Sequence[Scalar]) -> list[Scalar]:
        """Return the product with a vector (n)."""
        found: list[Scalar] = once(("times", *self._key, *x), lambda: self._times(x))
        return list(found)

    def factor(self, least: Sequence[float]) -> TileFactor:
        """Factor the matrix, if it is positive definite. least: of each pivot."""
        found: TileFactor = once(("factor", *self._key, *least), lambda: self._factor(least))
        return found

    def _times(self, x: Sequence[Scalar]) -> list[Scalar]:
        blocks, before, tile_at = self.blocks, Lists.of(Pattern.of(self.columns, self.blocks).before), self._reader()
        diagonal, factor = Array(blocks.cut(self.diagonal, 0.0)), Array(blocks.cut(x, 0.0))
        product = Array(rows=blocks.count, columns=SIDE)

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

        repeat(blocks.count, do_row, 0.0, [product])
        return blocks.joined(product)

    def _factor(self, least: Sequence[float]) -> TileFactor:
        pattern, blocks, tile_at = Pattern.of(self.columns, self.blocks), self.blocks.count, self._reader()
        before, after, backwards = Lists.of(pattern.before), Lists.of(pattern.after), Table(range(blocks - 1, -1, -1))
        diagonal = Array(self.blocks.cut(self.diagonal, 1.0))
        held, place = Table(self.blocks.cut(least, min(least))), Places(blocks)
        U, pivots = Array(rows=blocks * (blocks + 1) // 2, columns=SIDE * SIDE), Array(rows=blocks, columns=PIVOTS)
        panel = Array(rows=blocks, columns=SIDE * SIDE)  # tiles of L in the column that is being done

        def do_row(t: Any, c: Scalar) -> Scalar:
            I = backwards[t]

            def take_off_diagonal(k: Any, tile: Tile) -> Tile:
                K = after(I, k)
                u, inverse = U[place(K, I)], pivots[K, :SIDE]
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
                    return _take_off(tile, panel[k], U[place(after(I, k), J)])

                tile = repeat(after.size[I], take_off, tile_at(I, J))
                for k, i in BELOW:
                    for j in range(SIDE):
                        tile[SIDE * i + j] = tile[SIDE * i + j] - L[k, i] * tile[SIDE * k + j]
                U.put(place(I, J), tile, None)
                return c

            return repeat(before.size[I], do_tile, c, [U])

        repeat(blocks, do_row, 0.0, [U, pivots, panel])
        return TileFactor(pattern, U, pivots)

    def _reader(self) -> Callable[[Any, Any], Tile]:
        """Return a function that reads a tile in a loop; its diagonal is to be added."""
        parts = [*([] if self.base is None else [self.base]), *self.parts]
        if any(self.more) or not parts:
            parts.append(Part.of(self.more, self.blocks))
        place = Places(self.blocks.count)

        def tile_at(I: Any, J: Any) -> Tile:
            tiles = [part.tiles[part.row[place(I, J)]] for part in parts]
            return [sum(xs[1:], xs[0]) for xs in zip(*tiles, strict=True)]

        return tile_at


PIVOTS = SIDE + len(BELOW)


@dataclass(frozen=True)
class TileFactor:
    """The factors of a matrix in tiles.

    U: all tiles by their `Places`, those below the diagonal filled. pivots: of each block the reciprocals of its
    pivots, and its own part of L (`BELOW` its diagonal).
    """

    pattern: Pattern
    U: Array
    pivots: Array

    @property
    def inverse(self) -> list[Scalar]:
        """The reciprocals of D."""
        return self.pattern.blocks.joined(self.pivots)

    @property
    def L(self) -> list[Row]:
        """L, without its diagonal, row by row."""
        rows, of_row = list[Row](), self.pattern.blocks.of_row
        for K, k in of_row:
            row = {}
            for column, (J, j) in enumerate(of_row):
                if J in self.pattern.before[K]:
                    row[column] = self.U[K * (K + 1) // 2 + J, SIDE * k + j] * self.pivots[K, k]
                elif J == K and j < k:
                    row[column] = self.pivots[K, SIDE + BELOW.index((k, j))]
            rows.append(row)
        return rows

    def solve(self, b: Sequence[Scalar]) -> list[Scalar]:
        """Solve A x = b."""
        p, blocks = self.pattern, self.pattern.blocks.count
        before, after, backwards = Lists.of(p.before), Lists.of(p.after), Table(range(blocks - 1, -1, -1))
        x, place = Array(p.blocks.cut(b, 0.0)), Places(blocks)
        scaled = Array(rows=blocks, columns=SIDE)  # by the reciprocals of pivots

        def from_leaves(t: Any, c: Scalar) -> Scalar:
            I = backwards[t]

            def take_off(k: Any, y: Tile) -> Tile:
                K, y = after(I, k), list(y)
                tile, z = self.U[place(K, I)], scaled[K]
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
                tile, z = self.U[place(I, J)], x[J]
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
        return p.blocks.joined(x)

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


def _masks(pattern: Pattern, columns: Sequence[Columns]) -> Table:
    """Return for each tile, after one that is not there, 1 where it has an entry or nobody reads one, else 0."""
    rows = pattern.blocks.cut(range(len(columns)), None)
    there = [set(x) for x in columns]

    def mask(i: int | None, j: int | None) -> float:
        return float(i is None or j is None or j > i or j in there[i])

    return Table([[1.0] * SIDE * SIDE, *([mask(rows[I][i], rows[J][j]) for i, j in ENTRIES] for I, J in pattern.tiles)])
