"""Loops over those of many similar things that some world needs: `when_any` and `compute_any` for many things at once,
with code that exists once.

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
    """Return the numbers of the masks that hold in any world of the vector, each with its mask."""
    if is_tracing():
        return fresh("active_set", *masks, attr=len(masks))
    return [(i, mask) for i, mask in enumerate(masks) if holds(mask)]


def everything(n: int) -> Any:
    """Return the active set of all numbers below n, in all worlds: for loops over all of many things."""
    if is_tracing():
        return fresh("everything", attr=n)
    return [(i, True) for i in range(n)]


def for_all(which: Any) -> Any:
    """Return an active set with the same numbers, each for all worlds: if one world of a vector needs a number, it is
    done for all of them.
    """
    if type(which) is Expr:
        return fresh("for_all", which, attr=which.attr)
    return [(i, True) for i, _ in which]


@dataclass(frozen=True)
class Packed:
    """Several active sets merged in one order, as `which`, whose numbers are slots, counted from 0 without gaps."""

    which: Any
    places: Sequence[int] = ()  # the place of each slot, where nothing is traced

    @staticmethod
    def of(sets: Sequence[Any], orders: Sequence[Sequence[int]], n: int) -> Packed:
        """Put sets together: number i of set k goes to place `orders[k][i]` of n."""
        if is_tracing():
            return Packed(fresh("packed", *sets, attr=Packing(n, orders)))
        found = [(order[i], mask) for which, order in zip(sets, orders, strict=True) for i, mask in which]
        found.sort(key=lambda entry: entry[0])
        return Packed([(slot, mask) for slot, (_, mask) in enumerate(found)], [place for place, _ in found])

    def place(self, slot: Any) -> Any:
        """Return the place of a slot in the order."""
        return node("number", self.which, slot) if type(self.which) is Expr else self.places[slot]

    def slot(self, place: Any) -> Any:
        """Return the slot of a place that is in the set."""
        return node("slot", self.which, place) if type(self.which) is Expr else list(self.places).index(place)


def put_each(
    which: Any,
    compute: Callable[[Any], tuple[Any, Sequence[Scalar]]],
    array: Array,
    elsewhere: float | None = None,
    within: Sequence[Array] = (),
) -> None:
    """Put rows into an array: for each i of `which`, `compute(i)` returns the number of a row and its contents.

    elsewhere: the row's contents in worlds outside the mask; unspecified by default. within: the arrays that loops
    inside `compute` change. What these loops put is for the worlds of the mask only, and unspecified in others.
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
    """Run `body(i)` for each i of `which`, where loops inside the body change `arrays`.

    These loops put in all worlds: whatever they add in worlds outside the i-th mask must be 0.
    """

    def turn(i: Any, nothing: Carry) -> Carry:
        body(i)
        return nothing

    fold_each(which, turn, [], arrays)


def compute_each(which: Any, compute: Callable[[Any], Sequence[Scalar]]) -> Array:
    """Return an array with `compute(i)` in row i, for the i of `which`; other rows and other worlds are unspecified."""
    return compute_parts(which, lambda i: [compute(i)], 0)


def compute_rows(rows: Sequence[Sequence[Scalar]], compute: Callable[[list[Scalar]], Sequence[Scalar]]) -> list[Any]:
    """Return `[compute(row) for row in rows]`, all rows of one length, in a loop whose code is made once."""
    if len(rows) == 1 or not is_tracing():
        return [list(compute(list(row))) for row in rows]
    given = Array([list(row) for row in rows])
    found = compute_each(everything(len(rows)), lambda i: compute(given[i]))
    return [found[k] for k in range(len(rows))]


def compute_parts(which: Any, compute: Callable[[Any], Sequence[Sequence[Scalar]]], n: int) -> Array:
    """Return an array of parts of each i of `which`, all below n: part k, `compute(i)[k]`, is in row k n + i."""
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
    """Return the number of part k of number i, which is below n."""
    return i + k * n if k * n else i


def choose_each(which: Any, test: Callable[[Any], Sequence[Mask]], n: int) -> Any:
    """Return the active set of the parts of each i of `which`, all below n: part k has the number k n + i, and is
    active where `test(i)[k]` holds.
    """
    if type(which) is not Expr:
        parts = [(k * n + i, logical_and(mask, x)) for i, mask in which for k, x in enumerate(test(i))]
        return [(i, mask) for i, mask in parts if holds(mask)]
    region_op = _for_each(which, lambda i, _: Iteration(chosen=list(test(i))), [])
    return fresh("chosen", region_op, attr=n * len(region_op.attr.chosen))


def fold_each(which: Any, body: Callable[[Any, Carry], Carry], carry: Carry, arrays: Sequence[Array] = ()) -> Carry:
    """Run `for i in which: carry = body(i, carry)`, each iteration for the worlds of the i-th mask.

    arrays: those that loops inside the body change. These loops put in all worlds.
    """
    if type(which) is not Expr:
        for i, mask in which:
            with one_iteration(arrays, mask):
                carry = when_any(mask, functools.partial(body, i), carry)
        return carry
    _, rebuild = flatten(carry)
    return rebuild(results_of(_for_each(which, lambda i, c: Iteration(body(i, c)), carry, arrays)))


Additions = Callable[[Any], Sequence[Sequence[tuple[Any, Scalar]]]]  # for a number: by list of totals, (index, value)


def add_each(which: Any, body: Additions, totals: Sequence[Sequence[Scalar]]) -> list[list[Scalar]]:
    """Add to entries of lists of totals: for each i of `which`, `body(i)` returns, for each list, pairs (index, value
    to add).

    Within one call an index may occur only once per list, except in lists whose result is never read.
    """
    return add_all([(which, body)], totals)


def add_all(loops: Sequence[tuple[Any, Additions]], totals: Sequence[Sequence[Scalar]]) -> list[list[Scalar]]:
    """Run several loops that add to the same totals, one after the other: see `add_each`."""
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
        if n and current().derivatives:  # these need arrays that a single loop puts into: each loop gets new ones
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
    """Record the region op beneath all loops over an active set. arrays: those that loops inside the body change."""
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
