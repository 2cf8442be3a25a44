"""Lists that differ from world to world: each world goes through its own entries, whatever its neighbours' lists have.

Worlds share the loop, in which each is at an entry of its own. So there are as many iterations as the longest list has
entries; a loop over what any world needs has as many as there are different entries in all lists. What an iteration
looks up lies in a different place for each world, which costs some 30 cycles per number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from .active_sets import fold_each
from .arrays import Array
from .carries import Carry
from .control import count_while, repeat
from .scalar import Scalar, number, select


@dataclass(frozen=True)
class OwnList:
    """A list in each world: the first `count` rows of an array. most: how long it can be."""

    rows: Array
    count: Scalar
    most: int

    @staticmethod
    def of(which: Any, n: int, row: Callable[[Any], list[Scalar]], columns: int) -> OwnList:
        """List `row(i)`, of this many columns, for each i of an active set of at most n, in the worlds that need i."""
        rows = Array(rows=n + 1, columns=columns)

        def append(i: Any, count: Scalar) -> Scalar:
            def put(_: Any, nothing: Any) -> Any:
                rows.put(count, row(i), None)  # the next one overwrites it where the count stays
                return nothing

            repeat(1, put, [], [rows])
            return count + 1.0

        return OwnList(rows, fold_each(which, append, 0.0, [rows]), n)

    def each(self, body: Callable[[Any, Carry], Carry], carry: Carry, arrays: Sequence[Array] = ()) -> Carry:
        """Run `for k in range(count): carry = body(k, carry)`, in each world as often as its list is long.

        k is a number that all worlds share. arrays: all that the body puts into.
        """
        return count_while(lambda k, _: number(k) < self.count, body, carry, self.most, arrays)


def merged(lists: Sequence[OwnList], columns: int) -> OwnList:
    """Merge lists of rows of this many columns, in the order of the rows' first numbers, of which no two are equal."""
    most, starts = sum(x.most for x in lists), list[Scalar]()
    count: Scalar = 0.0
    keys, places, rows = Array(rows=most), Array(rows=most), Array(rows=most, columns=columns)
    for x in lists:
        starts.append(count)

        def join(k: Any, nothing: Any, x: OwnList = x, start: Scalar = count) -> Any:
            keys.put(start + number(k), x.rows[k, 0])
            return nothing

        x.each(join, [], [keys])
        count = count + x.count
    joined = OwnList(keys, count, most)

    def rank(k: Any, nothing: Any) -> Any:
        def look(j: Any, less: Scalar) -> Scalar:
            return less + select(keys[j] < keys[k], 1.0, 0.0)

        places.put(k, joined.each(look, 0.0))
        return nothing

    joined.each(rank, [], [places])
    for x, start in zip(lists, starts, strict=True):

        def move(k: Any, nothing: Any, x: OwnList = x, start: Scalar = start) -> Any:
            rows.put(places[start + number(k)], x.rows[k])
            return nothing

        x.each(move, [], [rows])
    return OwnList(rows, count, most)
