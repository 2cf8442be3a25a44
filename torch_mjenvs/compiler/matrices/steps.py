"""The steps of a plan: what a kernel over matrices does, in which order, and where in memory its numbers are."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..program import Program


@dataclass(frozen=True)
class Memory:
    """A tensor that a plan reads or writes; `type` is "f" for float32, "l" for int64, "p" for pairs of bfloat16.

    A pair is a number of 32 bits, an int32 to torch, with its first bfloat16 in the lower half.

    If `each` is not 0, every thread has this many numbers of its own there, one thread's after the other's. On a GPU
    every block of threads has its own instead, as many as its steps touch.
    """

    name: str
    type: str = "f"
    each: int = 0


@dataclass(frozen=True)
class Matrix:
    """A matrix in a memory: entry (i, j) stands `offset + i * row + j * column` numbers after its start.

    `at` has pairs (a loop's index, by how many numbers each turn moves the matrix on); besides the indices of loops
    there is "round". With `column` 0 all entries of a row are one number.

    The memory of a matrix that is written, or read by rows, reaches to the end of the last vector of each row.
    """

    memory: str
    rows: int
    columns: int
    row: int
    column: int = 1
    offset: int = 0
    at: tuple[tuple[str, int], ...] = ()

    @property
    def T(self) -> Matrix:
        """The transposed matrix, in the same memory."""
        return replace(self, rows=self.columns, columns=self.rows, row=self.column, column=self.row)

    def part(self, first: int, rows: int) -> Matrix:
        """Return this many rows of this matrix, from the first on."""
        return replace(self, rows=rows, offset=self.offset + first * self.row)


class _Step:
    """A step on matrices, which are its fields."""

    @property
    def matrices(self) -> tuple[Matrix, ...]:
        """The matrices of the step, in the order of its fields."""
        return tuple(x for x in vars(self).values() if isinstance(x, Matrix))


@dataclass(frozen=True)
class Multiply(_Step):
    """out = start + a b, of shapes (I, K) and (K, J).

    `start` is None for zeros, a matrix (I, 1), which is used for every column, or `out` itself. The entries of a row of
    `b` and `out` are neighbours; those of `a` may be anywhere, as in a transposed matrix.

    Where `a` and `b` are of pairs of bfloat16, the product of two entries is the sum of the products of their first and
    of their second numbers; sums are float32. Then the entries of a row of `a` are neighbours, too; rows and columns of
    all three reach to whole blocks of 16, with zeros in the dimension that `a` and `b` share; and each entry of `start`
    is followed by 15 copies of it.

    `ahead` has pairs (source, index) as in `Gather`: rows that a product in vectors fetches into the caches meanwhile.
    """

    out: Matrix
    a: Matrix
    b: Matrix
    start: Matrix | None = None
    ahead: tuple[tuple[Matrix, Matrix], ...] = ()

    @property
    def matrices(self) -> tuple[Matrix, ...]:
        """The matrices of the product, and after them those of `ahead`."""
        return (*super().matrices, *itertools.chain(*self.ahead))

    def __post_init__(self) -> None:
        shapes = (self.out.rows, self.out.columns), (self.a.rows, self.b.columns)
        if shapes[0] != shapes[1] or self.a.columns != self.b.rows:
            raise ValueError(f"a product of {self.a} and {self.b} is not {self.out}")
        if self.b.column != 1 or self.out.column != 1:
            raise ValueError("the entries of a row of b and out must be neighbours")


@dataclass(frozen=True)
class Transpose(_Step):
    """out = x transposed. Both are read and written in whole vectors, so their rows reach to the end of one."""

    out: Matrix
    x: Matrix


@dataclass(frozen=True)
class Pairs(_Step):
    """Round to bfloat16: entry (i, j) of `out`, a matrix of pairs, is entries (2i, j) and (2i + 1, j) of x.

    A last row that is alone is paired with zeros. In `out` and in x, the entries of a row are neighbours, or those of a
    column, as in transposed matrices; but not those of a row in x and of a column in `out`. Rows of `out` reach to
    whole vectors, and get zeros there.
    """

    out: Matrix
    x: Matrix

    def __post_init__(self) -> None:
        if (self.out.rows, self.out.columns) != (-(-self.x.rows // 2), self.x.columns):
            raise ValueError(f"{self.out} does not hold pairs of rows of {self.x}")
        if self.x.row != 1 and self.out.column != 1:
            raise ValueError(f"pairs in columns, {self.out}, are not made of rows")


@dataclass(frozen=True)
class Regroup(_Step):
    """Regroup pairs along rows into pairs along columns: at (i, j), x has the entries (i, 2j) and (i, 2j + 1) of some
    matrix, and `out` gets the entries (2i, j) and (2i + 1, j). x has an even number of rows, and zeros beyond its
    columns.
    """

    out: Matrix
    x: Matrix

    def __post_init__(self) -> None:
        if (2 * self.out.rows, -(-self.out.columns // 2)) != (self.x.rows, self.x.columns):
            raise ValueError(f"{self.out} does not hold what {self.x} does")


@dataclass(frozen=True)
class RowSums(_Step):
    """out = out + the sums of the rows of x; `out` is a column whose entries are neighbours: rows=I, row=1."""

    out: Matrix
    x: Matrix


@dataclass(frozen=True)
class Gather(_Step):
    """Copy rows of `source` into `out`: row i of `out` is the row whose number is entry i of `index`, one int64 row.

    Where a row of `out` does not reach to whole vectors, nothing is written beyond it.
    """

    out: Matrix
    source: Matrix
    index: Matrix


@dataclass(frozen=True)
class Apply:
    """Run a program of scalars: its worlds are the columns of the matrices, its buffers' columns are their rows.

    `matrices` are those of the program's buffers, in order. Whole vectors of worlds are done, so there may be more than
    `worlds`.
    """

    program: Program
    matrices: tuple[Matrix, ...]
    worlds: int

    def __post_init__(self) -> None:
        for buffer, matrix in zip(self.program.buffers, self.matrices, strict=True):
            if buffer.size != matrix.rows or buffer.type != "f" or buffer.rows:
                raise ValueError(f"{self.program.name}: {buffer} cannot be {matrix}")


@dataclass(frozen=True)
class Call:
    """Call a function with one argument. `what`, of int64, holds the address of the function, and next that of its
    argument.
    """

    what: Matrix


@dataclass(frozen=True)
class Loop:
    """Steps that are done `count` times; `index` names the number of the turn."""

    index: str
    count: int
    steps: tuple[Step, ...]


Step = Multiply | Pairs | Regroup | Transpose | RowSums | Gather | Apply | Call | Loop


@dataclass(frozen=True)
class Phase:
    """A loop whose turns are shared out among the threads: each of n threads does every n-th turn.

    `count` is how many turns there are; None: each launch says it. The next phase begins when all turns are done;
    without `wait`, each thread begins it when its own turns are done. On a GPU a turn is a block of threads, and a
    phase without a wait is in one launch with the next.
    """

    index: str
    count: int | None
    steps: tuple[Step, ...]
    wait: bool = True


@dataclass(frozen=True)
class Plan:
    """The plan of a kernel: a launch does the phases in order, for as many rounds as it is asked for.

    Each turn of a phase writes only numbers of its own, so the results do not depend on the number of threads.
    """

    name: str
    memories: tuple[Memory, ...]
    phases: tuple[Phase, ...]


def even(total: int, most: int) -> list[int]:
    """Split a number into the fewest parts that do not exceed `most`, as equal as can be, the larger ones first."""
    parts = -(-total // most)
    small, larger = divmod(total, parts)
    return [small + 1] * larger + [small] * (parts - larger)


def runs(sizes: Sequence[int]) -> list[tuple[int, int, int]]:
    """List runs of equal sizes: (where the first one starts, its size, how many there are)."""
    found: list[tuple[int, int, int]] = []
    at = 0
    for size in sizes:
        if found and found[-1][1] == size:
            found[-1] = (found[-1][0], size, found[-1][2] + 1)
        else:
            found.append((at, size, 1))
        at += size
    return found
