"""Tiles of frames: how many frames one has, and the memory that plans over tiles work in."""

from __future__ import annotations

from ..compiler.matrices import Matrix
from ..compiler.program import Buffer, Program, record

FRAMES = 64  # of a tile: activations of common networks stay in near caches, and each weight is used for many frames


class Scratch:
    """Memory that a plan works in, handed out from the start.

    `lanes` is how many numbers a vector holds, `frames` how many frames a tile has.
    """

    def __init__(self, memory: str, lanes: int, frames: int = FRAMES):
        self.memory, self.lanes, self.frames, self.size = memory, lanes, frames, 0

    def padded(self, n: int) -> int:
        """Return n, rounded up to whole vectors."""
        return -(-n // self.lanes) * self.lanes

    def matrix(self, rows: int, columns: int) -> Matrix:
        """Hand out a matrix. Rows, and columns of each row, reach to whole vectors."""
        row = self.padded(columns)
        found = Matrix(self.memory, rows, columns, row, offset=self.size)
        self.size += self.padded(rows) * row
        return found


def zeros() -> Program:
    """Record zeros."""
    return record("zeros", [Buffer("x", 1)], lambda b: {"x": [0.0]}, "float32")
