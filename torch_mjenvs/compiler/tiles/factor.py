"""A = L^T D L with L unit lower triangular, as in MuJoCo: from the last row, the leaves of a tree, to the first.

What is kept of L is U = D L, row by row; a row of L is that of U times the reciprocal of its pivot.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..arrays import Array, Table
from ..control import repeat
from ..scalar import Scalar, maximum
from .blocks import ENTRIES, SIDE, Pattern, Places, Row, Tile, place_of
from .reach import Fixed, Reach

BELOW = [(k, i) for k in range(SIDE - 1, 0, -1) for i in range(k)]  # below a tile's diagonal, from the last row on
PIVOTS = SIDE + len(BELOW)
Lower = dict[tuple[int, int], Scalar]  # the part of L in a tile of the diagonal


@dataclass(frozen=True)
class TileFactor:
    """The factors of a matrix in tiles.

    reach: the tiles that there are. U: tiles by their `Places`; only those below the diagonal, and only those that
    there are, are filled. pivots: for each block, the reciprocals of its pivots, and its own part of L (`BELOW` its
    diagonal).
    """

    pattern: Pattern
    reach: Reach
    U: Array
    pivots: Array

    @staticmethod
    def of(
        pattern: Pattern, reach: Reach, tile_at: Callable[[Any, Any], Tile], diagonal: Array, least: Table
    ) -> TileFactor:
        """Factor a matrix.

        tile_at: reads its tiles. diagonal: what is to be added to its diagonal. least: the smallest value of each
        pivot. Both are by block.
        """
        blocks = pattern.blocks.count
        backwards, place = Table(range(blocks - 1, -1, -1)), Places(blocks)
        U, pivots = Array(rows=blocks * (blocks + 1) // 2, columns=SIDE * SIDE), Array(rows=blocks, columns=PIVOTS)
        panel = Array(rows=blocks, columns=SIDE * SIDE)  # tiles of L in the column that is being done

        def do_row(t: Any, c: Scalar) -> Scalar:
            I = backwards[t]
            column = reach.column(I)

            def of_L(K: Any) -> tuple[Any, Tile]:
                u, inverse = U[place(K, I)], pivots[K, :SIDE]
                return K, [u[SIDE * k + i] * inverse[k] for k, i in ENTRIES]

            column.put(of_L, panel)
            tile = tile_at(I, I)
            for i in range(SIDE):
                tile[SIDE * i + i] = tile[SIDE * i + i] + diagonal[I, i]
            tile = column.fold(lambda K, tile: _take_off(tile, panel[K], U[place(K, I)]), tile)
            inverse: Tile = [0.0] * SIDE
            L: Lower = {}
            for k in range(SIDE - 1, -1, -1):
                inverse[k] = 1.0 / maximum(tile[SIDE * k + k], least[I, k])
                for i in range(k):
                    L[k, i] = tile[SIDE * k + i] * inverse[k]
                    for j in range(i + 1):
                        tile[SIDE * i + j] = tile[SIDE * i + j] - L[k, i] * tile[SIDE * k + j]
            pivots.put(I, [*inverse, *(L[pair] for pair in BELOW)], None)

            def of_U(J: Any) -> tuple[Any, Tile]:
                common = reach.common(column, J)
                tile = common.fold(lambda K, tile: _take_off(tile, panel[K], U[place(K, J)]), tile_at(I, J))
                for k, i in BELOW:
                    for j in range(SIDE):
                        tile[SIDE * i + j] = tile[SIDE * i + j] - L[k, i] * tile[SIDE * k + j]
                return place(I, J), tile

            row = reach.row(I)
            row.put(of_U, U)
            reach.fill(row)
            return c

        repeat(blocks, do_row, 0.0, [U, pivots, panel, *reach.arrays])
        return TileFactor(pattern, reach, U, pivots)

    @property
    def inverse(self) -> list[Scalar]:
        """The reciprocals of D."""
        return self.pattern.blocks.joined(self.pivots)

    @property
    def L(self) -> list[Row]:
        """L without its diagonal, row by row; only for a factor that has all tiles of the pattern."""
        assert isinstance(self.reach, Fixed), "a tile that no world touched is not there to be read"
        rows, of_row = list[Row](), self.pattern.blocks.of_row
        for K, k in of_row:
            row = {}
            for column, (J, j) in enumerate(of_row):
                if J in self.pattern.before[K]:
                    row[column] = self.U[place_of(K, J), SIDE * k + j] * self.pivots[K, k]
                elif J == K and j < k:
                    row[column] = self.pivots[K, SIDE + BELOW.index((k, j))]
            rows.append(row)
        return rows

    def solve(self, b: Sequence[Scalar]) -> list[Scalar]:
        """Solve A x = b."""
        blocks = self.pattern.blocks.count
        backwards, place = Table(range(blocks - 1, -1, -1)), Places(blocks)
        x = Array(self.pattern.blocks.cut(b, 0.0))
        scaled = Array(rows=blocks, columns=SIDE)  # by the reciprocals of pivots

        def from_leaves(t: Any, c: Scalar) -> Scalar:
            I = backwards[t]

            def take_off(K: Any, y: Tile) -> Tile:
                y, tile, z = list(y), self.U[place(K, I)], scaled[K]
                for k, i in ENTRIES:
                    y[i] = y[i] - tile[SIDE * k + i] * z[k]
                return y

            y = self.reach.column(I).fold(take_off, x[I])
            inverse, L = self._pivots(I)
            for k, i in BELOW:
                y[i] = y[i] - L[k, i] * y[k]
            scaled.put(I, [z * share for z, share in zip(y, inverse, strict=True)], None)
            return c

        def from_root(I: Any, c: Scalar) -> Scalar:
            def add_up(J: Any, y: Tile) -> Tile:
                y, tile, z = list(y), self.U[place(I, J)], x[J]
                for i, j in ENTRIES:
                    y[i] = y[i] + tile[SIDE * i + j] * z[j]
                return y

            y = self.reach.row(I).fold(add_up, [0.0] * SIDE)
            inverse, L = self._pivots(I)
            y = [z - share * s for z, share, s in zip(scaled[I], inverse, y, strict=True)]
            for k, i in sorted(BELOW):
                y[k] = y[k] - L[k, i] * y[i]
            x.put(I, y, None)
            return c

        repeat(blocks, from_leaves, 0.0, [scaled])
        repeat(blocks, from_root, 0.0, [x])
        return self.pattern.blocks.joined(x)

    def _pivots(self, I: Any) -> tuple[Tile, Lower]:
        row = self.pivots[I]
        return row[:SIDE], dict(zip(BELOW, row[SIDE:], strict=True))


def _take_off(tile: Tile, L: Tile, U: Tile) -> Tile:
    """Return tile - L' U."""
    tile = list(tile)
    for k in range(SIDE):
        for i, j in ENTRIES:
            tile[SIDE * i + j] = tile[SIDE * i + j] - L[SIDE * k + i] * U[SIDE * k + j]
    return tile
