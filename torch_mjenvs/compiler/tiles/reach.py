"""Lists of the tiles that the loops of a factorisation go through.

`Fixed`: all that a matrix and its factor may have, by the pattern of its entries. `Touched`: those that are not 0 in
some world of the vector. Where any limb may touch any other, the former are many and the latter few.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ..active_sets import change_each, choose_each, everything, fold_each, for_all, put_each
from ..arrays import Array, Table
from ..carries import Carry
from ..control import repeat
from ..scalar import Scalar, maximum
from .blocks import Blocks, Lists, Pattern, place_of
from .parts import Sums

Values = tuple[Any, list[Scalar]]  # a row of an array, and what it is to hold


class Walk(Protocol):
    """Blocks that a loop goes through."""

    def fold(self, body: Callable[[Any, Carry], Carry], carry: Carry) -> Carry:
        """Run `carry = body(K, carry)` for each block K."""

    def put(self, compute: Callable[[Any], Values], array: Array) -> None:
        """Put what `compute(K)` gives for each block K into an array."""


class Reach(Protocol):
    """The tiles (I, J), J < I, that there are."""

    @property
    def arrays(self) -> list[Array]:
        """What `fill` changes."""

    def column(self, I: Any) -> Walk:
        """Return the blocks K that have a tile (K, I)."""

    def row(self, I: Any) -> Walk:
        """Return the blocks J that have a tile (I, J)."""

    def common(self, column: Any, J: Any) -> Walk:
        """Return the blocks K of a column that have a tile (K, J), too."""

    def fill(self, row: Any) -> None:
        """Note that all blocks of a row, once it is factored, have tiles with each other."""


@dataclass(frozen=True)
class Listed:
    """The list of one block, `of`, from tables that hold a list for each block."""

    lists: Lists
    of: Any

    def fold(self, body: Callable[[Any, Carry], Carry], carry: Carry) -> Carry:
        return repeat(self.lists.size[self.of], lambda k, c: body(self.lists(self.of, k), c), carry)

    def put(self, compute: Callable[[Any], Values], array: Array) -> None:
        def put(k: Any, nothing: Any) -> Any:
            row, values = compute(self.lists(self.of, k))
            array.put(row, values, None)
            return nothing

        repeat(self.lists.size[self.of], put, [], [array])


@dataclass(frozen=True)
class Found:
    """Blocks that the kernel has found, as an active set."""

    which: Any

    def fold(self, body: Callable[[Any, Carry], Carry], carry: Carry) -> Carry:
        return fold_each(self.which, body, carry)

    def put(self, compute: Callable[[Any], Values], array: Array) -> None:
        put_each(self.which, compute, array)


@dataclass(frozen=True)
class Fixed:
    """All tiles of a pattern."""

    before: Lists
    after: Lists

    @staticmethod
    def of(pattern: Pattern) -> Fixed:
        """Make the lists of a pattern."""
        return Fixed(Lists.of(pattern.before), Lists.of(pattern.after))

    @property
    def arrays(self) -> list[Array]:
        return []

    def column(self, I: Any) -> Listed:
        return Listed(self.after, I)

    def row(self, I: Any) -> Listed:
        return Listed(self.before, I)

    def common(self, column: Listed, J: Any) -> Listed:
        return column  # all of it, see `Pattern.before`

    def fill(self, row: Listed) -> None:
        pass  # the pattern has all such tiles


@dataclass(frozen=True)
class Touched:
    """The tiles that are not 0 in some world of the vector.

    flags: 1 for these, else 0, in the rows of a square of all (I, J). below: 1 for a place below its diagonal, else 0.
    """

    flags: Array
    starts: Table
    below: Table
    everywhere: Any

    @staticmethod
    def of(blocks: Blocks, fixed: Collection[tuple[int, int]], sums: Sequence[Sums]) -> Touched:
        """Find the tiles. fixed: those that are always there. sums: those that loops have added to."""
        n = blocks.count
        square = [(I, J) for I in range(n) for J in range(n)]
        below = Table([float(J < I) for I, J in square])
        there = Table([float(J < I and (I, J) in fixed) for I, J in square])
        rows = [Table([x.row.values[place_of(I, J)] if J < I else 0 for I, J in square]) for x in sums]
        flags = Array(rows=n * n, columns=1)

        def begin(t: Any, nothing: Any) -> Any:
            flag: Scalar = there[t]
            for x, row in zip(sums, rows, strict=True):
                flag = maximum(flag, x.touched[row[t]])
            flags.put(t, [flag], None)
            return nothing

        repeat(n * n, begin, [], [flags])
        return Touched(flags, Table([n * I for I in range(n)]), below, everything(n))

    @property
    def arrays(self) -> list[Array]:
        return [self.flags]

    def column(self, I: Any) -> Found:
        return self._found(self.everywhere, lambda K: self.starts[K] + I)

    def row(self, I: Any) -> Found:
        return self._found(self.everywhere, lambda J: self.starts[I] + J)

    def common(self, column: Found, J: Any) -> Found:
        return self._found(column.which, lambda K: self.starts[K] + J)

    def _found(self, which: Any, place: Callable[[Any], Any]) -> Found:
        n = len(self.starts.values)
        return Found(for_all(choose_each(which, lambda J: [self.flags[place(J), 0] > 0.5], n)))

    def fill(self, row: Found) -> None:
        def with_others(J: Any) -> None:
            def put(other: Any) -> Values:
                at = self.starts[J] + other
                return at, [self.below[at]]

            row.put(put, self.flags)

        change_each(row.which, with_others, [self.flags])
