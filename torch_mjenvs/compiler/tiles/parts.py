"""Tiles in arrays: those that are there from the start, and those to which loops add what they find."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..arrays import Array, Table
from ..control import repeat, when_any
from ..scalar import Scalar, select
from .blocks import SIDE, ZEROS, Blocks, Columns, Row, Tile, place_of


@dataclass(frozen=True)
class TileTable:
    """Tiles in an array, and a table of the rows in which they lie. Row 0, which is zero, is for absent tiles.

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
    def of(rows: Sequence[Row], blocks: Blocks) -> TileTable:
        """Return the tiles that have any entry of these rows of the lower triangle."""
        tiles: dict[tuple[int, int], Tile] = {}
        for (I, i), row in zip(blocks.of_row, rows, strict=True):
            for column, x in row.items():
                J, j = blocks.of_row[column]
                tiles.setdefault((I, J), list(ZEROS))[SIDE * i + j] = x
        held = sorted(tiles)
        return TileTable(Array([ZEROS, *(tiles[x] for x in held)]), TileTable.rows(held, blocks))

    def has(self, I: int, J: int) -> bool:
        """Return whether the tile is among them."""
        return bool(self.row.values[place_of(I, J)])

    def added(self, place: Any, tile: Tile | None) -> Tile:
        """Return the sum of the tile at one of `Places` and another tile, if there is one."""
        mine = self.tiles[self.row[place]]
        return list(mine) if tile is None else [x + y for x, y in zip(tile, mine, strict=True)]

    def entry(self, row: tuple[int, int], column: tuple[int, int]) -> Scalar:
        """Return the entry of a row and a column, each given by its block and its number in the block."""
        (I, i), (J, j) = row, column
        found: Scalar = self.tiles[self.row[place_of(I, J)], SIDE * i + j]
        return found


@dataclass(frozen=True)
class Sums:
    """Tiles to which loops add. Most are never touched, and those are neither cleared nor read.

    tiles, row: as in a `TileTable`. touched: for each row of `tiles`, 1 if a tile has been put there; else 0, and the
    row is unspecified.
    """

    tiles: Array
    row: Table
    touched: Array

    @property
    def arrays(self) -> list[Array]:
        """What `put` changes."""
        return [self.tiles, self.touched]

    def get(self, at: Any) -> Tile:
        """Return the tile in a row of the array."""
        there = self.touched[at] > 0.5
        return [select(there, x, 0.0) for x in self.tiles[at]]

    def put(self, at: Any, tile: Tile) -> None:
        """Make a row of the array hold this tile, in a loop that was told of `arrays`."""
        self.tiles.put(at, tile, None)
        self.touched.put(at, 1.0, None)

    def added(self, place: Any, tile: Tile | None) -> Tile:
        """Return the sum of the tile at one of `Places` and another tile, if there is one."""
        at = self.row[place]

        def add(old: Tile) -> Tile:
            return [x + y for x, y in zip(old, self.tiles[at], strict=True)]

        # a branch around it: to read memory that nobody has written to may take long
        found: Tile = when_any(self.touched[at] > 0.5, add, tile or ZEROS)
        return found

    def entry(self, row: tuple[int, int], column: tuple[int, int]) -> Scalar:
        """Return the entry of a row and a column, each given by its block and its number in the block."""
        (I, i), (J, j) = row, column
        return self.get(self.row[place_of(I, J)])[SIDE * i + j]


@dataclass(frozen=True)
class SumsLayout:
    """The tiles of a matrix in which loops may add up entries, and the columns of each row that have any."""

    blocks: Blocks
    tiles: Sequence[tuple[int, int]]
    columns: Sequence[Columns]

    def zeros(self) -> Sums:
        """Return these tiles, all 0."""
        tiles, touched = (Array(rows=len(self.tiles) + 1, columns=x) for x in (SIDE * SIDE, None))

        def clear(t: Any, nothing: Any) -> Any:
            touched.put(t, 0.0, None)
            return nothing

        repeat(touched.rows, clear, [], [touched])
        return Sums(tiles, TileTable.rows(self.tiles, self.blocks), touched)
