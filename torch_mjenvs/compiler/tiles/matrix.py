"""A symmetric matrix as a sum of tiles and of entries, to be multiplied, factored and read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..arrays import Array, Table
from ..control import repeat
from ..expr import once
from ..scalar import Scalar
from .blocks import ENTRIES, SIDE, ZEROS, Blocks, Columns, Lists, Pattern, Places, Row, Tile
from .factor import TileFactor
from .parts import Sums, TileTable
from .reach import Fixed, Touched


@dataclass(frozen=True)
class TileMatrix:
    """A large symmetric matrix: tiles in an array, and what is added to them.

    It is read as the rows of its lower triangle, {column: entry}. columns: those of each row, in order. `diagonal` (n),
    `more` (rows) and `parts` are added to what is in `base`.
    """

    blocks: Blocks
    columns: list[list[int]]
    base: TileTable | None
    diagonal: list[Scalar]
    more: list[Row]
    parts: tuple[Sums, ...] = ()

    @staticmethod
    def of(rows: Sequence[Row], blocks: Blocks | None = None) -> TileMatrix:
        """Make a matrix from the rows of its lower triangle."""
        blocks = blocks or Blocks.of(rows)
        return TileMatrix(blocks, [[] for _ in rows], None, [0.0] * len(rows), [{} for _ in rows]).plus(rows)

    @staticmethod
    def of_products(
        left: Sequence[Sequence[Scalar]],
        right: Sequence[Sequence[Scalar]],
        columns: list[list[int]],
        blocks: Blocks | None = None,
    ) -> TileMatrix:
        """Make a matrix whose entries are products of vectors: of left[i] and right[j]. columns: those of each row."""
        blocks = blocks or Blocks.of(columns)
        pattern, width = Pattern.of(columns, blocks), len(left[0])
        before, row = Lists.of(pattern.before), TileTable.rows(pattern.tiles, blocks)
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
            blocks, columns, TileTable(tiles, row, left, right), [0.0] * len(columns), [{} for _ in columns]
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

    def stored(self) -> TileMatrix:
        """Return the same with all entries but the diagonal's in an array, to be read as often as one likes."""
        assert self.base is None and not self.parts, "what has parts is stored"
        base = TileTable.of(self.more, self.blocks)
        return TileMatrix(self.blocks, self.columns, base, self.diagonal, [{} for _ in self.more])

    def plus_part(self, part: Sums, columns: Sequence[Columns]) -> TileMatrix:
        """Return the sum with tiles of the same blocks, which have entries in these columns of each row."""
        union = [sorted({*old, *new}) for old, new in zip(self.columns, columns, strict=True)]
        return TileMatrix(self.blocks, union, self.base, self.diagonal, self.more, (*self.parts, part))

    def plus_products(self, left: Mapping[int, Sequence[Scalar]], columns: list[list[int]]) -> TileMatrix:
        """Return the sum of this matrix `of_products` and those of more left vectors with the same right ones.

        left: these vectors, by row. columns: those of each row of the sum.
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
        """Return a key that tells this matrix from others of a kernel."""
        more = tuple((i, j, x) for i, row in enumerate(self.more) for j, x in sorted(row.items()))
        return self.base and self.base.tiles.held, tuple(self.diagonal), more, *(x.tiles.held for x in self.parts)

    def times(self, x: Sequence[Scalar]) -> list[Scalar]:
        """Return the product with a vector (n)."""
        found: list[Scalar] = once(("times", *self._key, *x), lambda: self._times(x))
        return list(found)

    def factor(self, least: Sequence[float]) -> TileFactor:
        """Factor the matrix, which must be positive definite. least: the smallest value of each pivot."""
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
        pattern = Pattern.of(self.columns, self.blocks)
        reach = Touched.of(self.blocks, self._always_there(), self.parts) if self.parts else Fixed.of(pattern)
        diagonal, held = self.blocks.cut(self.diagonal, 1.0), self.blocks.cut(least, min(least))
        return TileFactor.of(pattern, reach, self._reader(), Array(diagonal), Table(held))

    def _always_there(self) -> set[tuple[int, int]]:
        """Return the tiles that have entries, whatever loops add."""
        of_row, blocks = self.blocks.of_row, range(self.blocks.count)
        found = {(of_row[i][0], of_row[j][0]) for i, row in enumerate(self.more) for j in row}
        return found | {(I, J) for I in blocks for J in range(I + 1) if self.base is not None and self.base.has(I, J)}

    def _reader(self) -> Callable[[Any, Any], Tile]:
        """Return a function that reads a tile in a loop; `diagonal` has still to be added."""
        there: list[TileTable | Sums] = [*([] if self.base is None else [self.base]), *self.parts]
        if any(self.more) or not there:
            there.append(TileTable.of(self.more, self.blocks))
        place = Places(self.blocks.count)

        def tile_at(I: Any, J: Any) -> Tile:
            at, tile = place(I, J), None
            for part in there:
                tile = part.added(at, tile)
            return list(tile or ZEROS)

        return tile_at


def _masks(pattern: Pattern, columns: Sequence[Columns]) -> Table:
    """Return, for each tile, 1 where it has an entry or nobody reads one, else 0; the first is for absent tiles."""
    rows = pattern.blocks.cut(range(len(columns)), None)
    there = [set(x) for x in columns]

    def mask(i: int | None, j: int | None) -> float:
        return float(i is None or j is None or j > i or j in there[i])

    return Table([[1.0] * SIDE * SIDE, *([mask(rows[I][i], rows[J][j]) for i, j in ENTRIES] for I, J in pattern.tiles)])
