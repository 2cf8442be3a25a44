"""Loops over the few of many alike things that some world needs: `when_any` and `compute_any` for many, whose code
exists once.

`active_set` returns which are needed: a list of (number, mask), or a node of type "t".
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from .arrays import Array
from .carries import (
    Carry,
    carry_on,
    changes,
    closed,
    entered,
    flatten,
    holds,
    left_by,
    one_iteration,
    results_of,
    variables,
)
from .control import when_any
from .expr import Expr, Region, current, fresh, is_tracing, node
from .region_ops import ForEach, Packing, Put
from .scalar import Mask, Scalar, logical_and, select


def active_set(masks: Sequence[Mask]) -> Any:
    """The numbers of the masks that hold in any world of the vector, and in which worlds they do."""
    if is_tracing():
        return fresh("active_set", *masks, attr=len(masks))
    return [(i, mask) for i, mask in enumerate(masks) if holds(mask)]


def everything(n: int) -> Any:
    """The active set of all numbers below n, in all worlds: for loops that go through many."""
    if is_tracing():
        return fresh("everything", attr=n)
    return [(i, True) for i in range(n)]


def for_all(which: Any) -> Any:
    """An active set with the same numbers, each for all worlds: what one world of a vector needs, all do."""
    if type(which) is Expr:
        return fresh("for_all", which, attr=which.attr)
    return [(i, True) for i, _ in which]


@dataclass(frozen=True)
class Packed:
    """Several active sets merged in one order, as `which`: its numbers are slots, counted from 0 without gaps."""

    which: Any
    places: Sequence[int] = ()  # of the slots, where nothing is traced

    @staticmethod
    def of(sets: Sequence[Any], orders: Sequence[Sequence[int]], n: int) -> Packed:
        """Put sets together: number i of set k goes to place `orders[k][i]` of n."""
        if is_tracing():
            return Packed(fresh("packed", *sets, attr=Packing(n, orders)))
        found = [(order[i], mask) for which, order in zip(sets, orders, strict=True) for i, mask in which]
        found.sort(key=lambda entry: entry[0])
        return Packed([(slot, mask) for slot, (_, mask) in enumerate(found)], [place for place, _ in found])

    def place(self, slot: Any) -> Any:
        """The place of a slot in the order."""
        return node("number", self.which, slot) if type(self.which) is Expr else self.places[slot]

    def slot(self, place: Any) -> Any:
        """The slot of a place that is in the set."""
        return node("slot", self.which, place) if type(self.which) is Expr else list(self.places).index(place)


def put_each(
    which: Any,
    compute: Callable[[Any], tuple[Any, Sequence[Scalar]]],
    array: Array,
    elsewhere: float | None = None,
    within: Sequence[Array] = (),
) -> None:
    """Put rows into an array: for each i of `which`, `compute(i)` returns the number of a row and its contents.

    elsewhere: the row's contents in other worlds; by default unspecified. within: the arrays that loops within change;
    what these put is for the worlds of the mask only, and unspecified in others.
    """
    if type(which) is not Expr:
        for i, mask in which:
            with one_iteration(within, mask):
                row, values = compute(i)
            array.set_row(row, values if elsewhere is None else [select(mask, x, elsewhere) for x in values])
        return

    def iteration(i: Any, _: Carry) -> Iteration:
        row, values = compute(i)
        return Iteration(puts=[Put(array.held, row, c, x, elsewhere) for c, x in enumerate(values)])

    array.leave(array.held, _for_each(which, iteration, [], within))


def change_each(which: Any, body: Callable[[Any], None], arrays: Sequence[Array]) -> None:
    """Run `body(i)` for each i of `which`, whose inner loops change arrays.

    These loops put in all worlds: what a body adds in worlds outside of the i-th mask has to be 0.
    """

    def turn(i: Any, nothing: Carry) -> Carry:
        body(i)
        return nothing

    fold_each(which, turn, [], arrays)


def compute_each(which: Any, compute: Callable[[Any], Sequence[Scalar]]) -> Array:
    """An array with `compute(i)` in its row i, for the i of `which`; other rows, and other worlds, are unspecified."""
    return compute_parts(which, lambda i: [compute(i)], 0)


def compute_rows(rows: Sequence[Sequence[Scalar]], compute: Callable[[list[Scalar]], Sequence[Scalar]]) -> list[Any]:
    """Return `[compute(row) for row in rows]`, all rows of one length, in a loop whose code is made once."""
    if len(rows) == 1 or not is_tracing():
        return [list(compute(list(row))) for row in rows]
    given = Array([list(row) for row in rows])
    found = compute_each(everything(len(rows)), lambda i: compute(given[i]))
    return [found[k] for k in range(len(rows))]


def compute_parts(which: Any, compute: Callable[[Any], Sequence[Sequence[Scalar]]], n: int) -> Array:
    """An array with parts of each i of `which`, from n: part k, `compute(i)[k]`, is in row k n + i."""
    found = Array()
    if type(which) is not Expr:
        for i, _ in which:
            for k, row in enumerate(compute(i)):
                found.set_row(k * n + i, row)
        return found

    def iteration(i: Any, _: Carry) -> Iteration:
        rows = compute(i)
        found.take_shape(which.attr * len(rows), len(rows[0]))
        return Iteration(
            puts=[Put(found.held, part(i, k, n), c, x, None) for k, row in enumerate(rows) for c, x in enumerate(row)]
        )

    found.leave(found.held, _for_each(which, iteration, []))
    return found


def part(i: Any, k: int, n: int) -> Any:
    """The number of part k of number i, from n."""
    return i + k * n if k else i


def choose_each(which: Any, test: Callable[[Any], Sequence[Mask]], n: int) -> Any:
    """The active parts of each i of `which`, from n: part k, where `test(i)[k]`, has the number k n + i."""
    if type(which) is not Expr:
        parts = [(k * n + i, logical_and(mask, x)) for i, mask in which for k, x in enumerate(test(i))]
        return [(i, mask) for i, mask in parts if holds(mask)]
    region_op = _for_each(which, lambda i, _: Iteration(chosen=list(test(i))), [])
    return fresh("chosen", region_op, attr=n * len(region_op.attr.chosen))


def fold_each(
    which: Any, body: Callable[[Any, Carry], Carry], carry: Carry, arrays: Sequence[Array] = ()
) -> Carry:
    """Run `for i in which: carry = body(i, carry)`, each iteration for the worlds of the i-th mask.

    arrays: those that loops within change. What these put, they put in all worlds.
    """
    if type(which) is not Expr:
        for i, mask in which:
            with one_iteration(arrays, mask):
                carry = when_any(mask, functools.partial(body, i), carry)
        return carry
    _, rebuild = flatten(carry)
    return rebuild(results_of(_for_each(which, lambda i, c: Iteration(body(i, c)), carry, arrays)))


Additions = Callable[[Any], Sequence[Sequence[tuple[Any, Scalar]]]]  # of a number, to each total: (index, value)


def add_each(which: Any, body: Additions, totals: Sequence[Sequence[Scalar]]) -> list[list[Scalar]]:
    """Add to totals at many indices: for each list of totals, `body(i)` returns what to add where, as (index, value).

    The indices that a body gives at once differ, except those of totals that nobody reads.
    """
    return add_all([(which, body)], totals)


def add_all(loops: Sequence[tuple[Any, Additions]], totals: Sequence[Sequence[Scalar]]) -> list[list[Scalar]]:
    """Add up what several loops add to the same totals, one loop after the other: see `add_each`."""
    if not is_tracing():
        out = [list(total) for total in totals]
        for which, body in loops:
            for i, mask in which:
                for total, parts in zip(out, body(i), strict=True):
                    for k, x in parts:
                        total[k] = select(mask, total[k] + x, total[k])
        return out
    sums = [Array(total) for total in totals]
    for n, (which, body) in enumerate(loops):
        if n and current().derivatives:  # which are of arrays that one loop alone puts into
            sums = [Array([array[k] for k in range(array.rows)]) for array in sums]
        region_op = _for_each(which, functools.partial(_added, sums, body), [])
        for array in sums:
            array.leave(array.held, region_op)
    return [[array[k] for k in range(array.rows)] for array in sums]


def _added(sums: list[Array], body: Additions, i: Any, _: Carry) -> Iteration:
    puts = []
    for array, parts in zip(sums, body(i), strict=True):
        for k, x in parts:
            old = array[k]
            puts.append(Put(array.held, k, 0, old + x, old))
    return Iteration(puts=puts)


@dataclass
class Iteration:
    """The results of the body of a `for_each` for one number: its carry, what it puts, what it chooses."""

    carry: Carry = ()
    puts: Sequence[Put] = ()
    chosen: Sequence[Mask] = ()


def _for_each(which: Expr, body: Callable[[Any, Carry], Iteration], carry: Carry, arrays: Sequence[Array] = ()) -> Expr:
    """The region op beneath the loops over an active set. arrays: those that loops within change."""
    trace = current()
    before, rebuild = flatten(carry)
    region = Region(trace.region, trace.region.mask)
    with trace.inside(region):
        number, iter_args = variables(before)
        outside = entered(arrays)
        made = body(number, rebuild([x.variable for x in iter_args]))
        puts, left = changes(arrays, region)
        assert not puts, "an iteration over an active set puts into these arrays by loops within it alone"
    carry_on("for_each", iter_args, made.carry)
    loop = ForEach(region, iter_args, number, list(made.puts), list(made.chosen), left)
    region_op = closed("for_each", which, region.mask, attr=loop)
    left_by(region_op, arrays, outside)
    return region_op
