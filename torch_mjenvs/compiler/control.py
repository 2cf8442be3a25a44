"""Control flow in few functions, each with one meaning for floats, torch tensors and traced values.

A carry is any nesting of lists, tuples, dicts and dataclasses of scalars. Worlds that a region op does not concern keep
their carry bit for bit, so no world's result depends on which other worlds share its vector, its warp or its batch.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import torch

from .arrays import Array
from .expr import PYTHON_TYPE, Expr, Region, current, fresh, is_tracing, node, type_of
from .region_ops import ForEach, IterArg, OwnPut, Packing, Put, RegionOp, Repeat, When, While
from .scalar import Mask, Scalar, logical_and, select

Carry = Any


def when_any(mask: Any, body: Callable[[Carry], Carry], carry: Carry) -> Carry:
    """Compute `body(carry)` for the worlds of the mask, and nothing where no world of the vector is in it."""
    if isinstance(mask, bool):
        return body(carry) if mask else carry
    if isinstance(mask, torch.Tensor):
        if not bool(mask.any()):
            return carry
        return choose_all(mask, body(carry), carry)
    trace = current()
    region = Region(trace.region, logical_and(trace.region.mask, mask))
    with trace.inside(region):
        new, rebuild = _flatten(body(carry))
    old, _ = _flatten(carry)
    _check("when_any", old, new)
    changed = [i for i, (o, n) in enumerate(zip(old, new, strict=True)) if not _same(o, n)]
    out = list(old)
    results = _results(_when(mask, When(region, [IterArg(old[i], new[i]) for i in changed])))
    for i, result in zip(changed, results, strict=True):
        out[i] = result
    return rebuild(out)


def compute_any(mask: Any, compute: Callable[[], Carry]) -> Carry:
    """Compute `compute()`, unless no world of the vector is in the mask.

    What it gives is to be used under the same mask only: for other worlds it is unspecified, and None altogether
    where nothing was computed.
    """
    if isinstance(mask, bool):
        return compute() if mask else None
    if isinstance(mask, torch.Tensor):
        return compute()
    trace = current()
    region = Region(trace.region, logical_and(trace.region.mask, mask))
    with trace.inside(region):
        new, rebuild = _flatten(compute())
    inside = [i for i, x in enumerate(new) if type(x) is Expr and x.region is region]
    results = _results(_when(mask, When(region, [IterArg(None, new[i]) for i in inside])))
    for i, result in zip(inside, results, strict=True):
        new[i] = result
    return rebuild(new)


def _when(mask: Expr, region_op: When) -> Expr:
    needed = region_op.body.mask
    return _region_op("when", *((mask,) if needed is mask else (mask, needed)), attr=region_op)


def while_any(cond: Callable[[Carry], Any], body: Callable[[Carry], Carry], carry: Carry, max_iterations: int) -> Carry:
    """Repeat `body` for the worlds where `cond` holds, while there are any, `max_iterations` times at the most.

    A world whose `cond` was once false is done.
    """
    return count_while(lambda i, c: cond(c), lambda i, c: body(c), carry, max_iterations)


def count_while(
    cond: Callable[[Any, Carry], Any],
    body: Callable[[Any, Carry], Carry],
    carry: Carry,
    max_iterations: int,
    arrays: Sequence[Array] = (),
) -> Carry:
    """Loop as `while_any`, with a counter from 0 that all worlds share. `arrays`: all that the body puts into."""
    if is_tracing():
        return _while(cond, body, carry, max_iterations, arrays)
    active: Any = True
    for i in range(max_iterations):
        active = logical_and(active, cond(i, carry))
        if active is False or (isinstance(active, torch.Tensor) and not bool(active.any())):
            break
        with _iteration(arrays, active):
            new = body(i, carry)
        carry = new if active is True else choose_all(active, new, carry)
    return carry


def repeat(n: Any, body: Callable[[Any, Carry], Carry], carry: Carry, arrays: Sequence[Array] = ()) -> Carry:
    """Run `for i in range(n): carry = body(i, carry)` as a loop whose code is made once.

    n is the same in all worlds: an int, or an entry of a table of ints. `arrays`: all that the body puts into.
    """
    if is_tracing() and (type(n) is Expr or (n > 1 and not current().unrolled) or (n and arrays)):
        return _repeat(n, body, carry, arrays)
    for i in range(n):
        with _iteration(arrays):
            carry = body(i, carry)
    return carry


@contextlib.contextmanager
def _iteration(arrays: Sequence[Array], active: Mask = True) -> Iterator[None]:
    """One iteration, of plain numbers, of a loop that changes arrays, for the worlds of `active`."""
    for array in arrays:
        array.enter(active)
    yield
    for array in arrays:
        array.do_puts()


@contextlib.contextmanager
def unrolled() -> Iterator[None]:
    """Write out what `repeat` loops over while the block runs, but for loops that put into arrays."""
    before, current().unrolled = current().unrolled, True
    try:
        yield
    finally:
        current().unrolled = before


_unroll_limit = ContextVar("unroll_limit", default=math.inf)


def unroll_limit() -> float:
    """How many copies of similar work, of which most worlds need some, are to be written out: more are to be loops.

    It is a matter of what a kernel runs on. Lanes of a vector go together through each copy that one of them needs, in
    a loop, too; and written out, a copy is the simpler for its own constants: no limit. Worlds that are threads go
    apart: each is in an iteration of its own, of code that is read once for all.
    """
    return _unroll_limit.get()


@contextlib.contextmanager
def unrolling(limit: float) -> Iterator[None]:
    """Set `unroll_limit` while the block runs. Kernels that are built for the CPU there are of such programs, too."""
    before = _unroll_limit.set(limit)
    try:
        yield
    finally:
        _unroll_limit.reset(before)


def choose_all(mask: Any, a: Carry, b: Carry) -> Carry:
    """Choose between two carries of one shape, with `select` for each of their scalars."""
    leaves, rebuild = _flatten(a)
    others, _ = _flatten(b)
    return rebuild([select(mask, x, y) for x, y in zip(leaves, others, strict=True)])


def here() -> Callable[[], contextlib.AbstractContextManager[object]]:
    """Remember this place in the code: what is computed within the context that this gives belongs to it, so that
    everything from here on may use it, whatever block it was first asked for in.
    """
    if not is_tracing():
        return contextlib.nullcontext
    return functools.partial(current().inside, current().region)


# Many of a kind, few of them needed: the plurals of `when_any` and `compute_any`, their code made once.
#
# `active_set` says which are needed: a list of (number, mask), or a node of type "t".


def active_set(masks: Sequence[Mask]) -> Any:
    """The numbers of the masks that hold in any world of the vector, and in which worlds they do."""
    if is_tracing():
        return fresh("active_set", *masks, attr=len(masks))
    return [(i, mask) for i, mask in enumerate(masks) if _holds(mask)]


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
    """Several active sets in one, `which`, in an order: its numbers are slots, counted from 0 without gaps."""

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
    """Put rows into an array: for each i of `which`, `compute(i)` gives the number of a row, and what is in it.

    elsewhere: what the row has in other worlds, which is unspecified otherwise. within: the arrays that loops within
    change; what these put is for the worlds of the mask alone, and unspecified in others.
    """
    if type(which) is not Expr:
        for i, mask in which:
            with _iteration(within, mask):
                row, values = compute(i)
            array.set_row(row, values if elsewhere is None else [select(mask, x, elsewhere) for x in values])
        return

    def iteration(i: Any, _: Carry) -> Iteration:
        row, values = compute(i)
        return Iteration(puts=[Put(array.held, row, c, x, elsewhere) for c, x in enumerate(values)])

    array.leave(array.held, _for_each(which, iteration, [], within))


def change_each(which: Any, body: Callable[[Any], None], arrays: Sequence[Array]) -> None:
    """Run `body(i)` for each i of `which`, whose inner loops change arrays.

    These loops put in all worlds: what a body adds where a world is not of the i-th mask has to be 0.
    """

    def turn(i: Any, nothing: Carry) -> Carry:
        body(i)
        return nothing

    fold_each(which, turn, [], arrays)


def compute_each(which: Any, compute: Callable[[Any], Sequence[Scalar]]) -> Array:
    """An array with `compute(i)` in its row i, for the i of `which`; for all others, and other worlds, unspecified."""
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
        return [(i, mask) for i, mask in parts if _holds(mask)]
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
            with _iteration(arrays, mask):
                carry = when_any(mask, functools.partial(body, i), carry)
        return carry
    _, rebuild = _flatten(carry)
    return rebuild(_results(_for_each(which, lambda i, c: Iteration(body(i, c)), carry, arrays)))


Additions = Callable[[Any], Sequence[Sequence[tuple[Any, Scalar]]]]  # of a number, to each total: (index, value)


def add_each(which: Any, body: Additions, totals: Sequence[Sequence[Scalar]]) -> list[list[Scalar]]:
    """Add up sums in many places: `body(i)` gives for each list of totals what to add where, as (index, value).

    The indices that a body gives at once differ, but for those of totals that nobody reads.
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
    before, rebuild = _flatten(carry)
    outside = [array.held for array in arrays]
    region = Region(trace.region, trace.region.mask)
    with trace.inside(region):
        number, iter_args = _variables(before)
        for array in arrays:
            array.enter()
        made = body(number, rebuild([x.variable for x in iter_args]))
        puts, left = _changes(arrays, region)
        assert not puts, "an iteration over an active set puts into these arrays by loops within it alone"
    _carry_on("for_each", iter_args, made.carry)
    loop = ForEach(region, iter_args, number, list(made.puts), list(made.chosen), left)
    region_op = _region_op("for_each", which, region.mask, attr=loop)
    for array, held in zip(arrays, outside, strict=True):
        array.leave(held, region_op)
    return region_op


def _repeat(n: Any, body: Callable[[Any, Carry], Carry], carry: Carry, arrays: Sequence[Array]) -> Carry:
    trace = current()
    before, rebuild = _flatten(carry)
    outside = [array.held for array in arrays]
    region = Region(trace.region, trace.region.mask)
    with trace.inside(region):
        counter, iter_args = _variables(before)
        for array in arrays:
            array.enter()
        new = body(counter, rebuild([x.variable for x in iter_args]))
        puts, left = _changes(arrays, region)
    _carry_on("repeat", iter_args, new)
    region_op = _region_op("repeat", n, attr=Repeat(region, iter_args, counter, puts, left))
    for array, held in zip(arrays, outside, strict=True):
        array.leave(held, region_op)
    return rebuild(_results(region_op))


def _while(
    cond: Callable[[Any, Carry], Any],
    body: Callable[[Any, Carry], Carry],
    carry: Carry,
    limit: int,
    arrays: Sequence[Array],
) -> Carry:
    trace = current()
    before, rebuild = _flatten(carry)
    outside = [array.held for array in arrays]
    head = Region(trace.region, trace.region.mask)
    with trace.inside(head):
        counter, iter_args = _variables(before)
        for array in arrays:
            array.enter()
        inner = rebuild([x.variable for x in iter_args])
        active = logical_and(head.mask, cond(counter, inner))
        region = Region(head, active)
        with trace.inside(region):
            new = body(counter, inner)
            puts, left = _changes(arrays, region)
    _carry_on("while", iter_args, new)
    region_op = _region_op("while", attr=While(region, iter_args, counter, puts, left, limit, head, active))
    for array, held in zip(arrays, outside, strict=True):
        array.leave(held, region_op)
    return rebuild(_results(region_op))


def _changes(arrays: Sequence[Array], body: Region) -> tuple[list[OwnPut], list[Expr]]:
    """Return what an iteration puts into arrays, and those that loops within it change."""
    puts = [put for array in arrays for put in array.puts()]
    return puts, [array.held for array in arrays if array.held.region is body]


def _variables(before: list[Any]) -> tuple[Expr, list[IterArg]]:
    """A loop's counter, and a variable for each leaf of its carry."""
    counter = fresh("counter")
    return counter, [IterArg(x, variable=fresh("phi", type_=type_of(x))) for x in before]


def _carry_on(what: str, iter_args: list[IterArg], new: Carry) -> None:
    """Note what the body made of each variable."""
    leaves, _ = _flatten(new)
    _check(what, [x.before for x in iter_args], leaves)
    for x, leaf in zip(iter_args, leaves, strict=True):
        x.after = leaf


def _region_op(op: str, *args: Any, attr: RegionOp) -> Expr:
    """The node of a region op, and the results of what it carries."""
    region_op = fresh(op, *args, attr=attr)
    for x in attr.iter_args:
        x.region_op, x.result = region_op, fresh("result", region_op, attr=x, type_=type_of(x.after))
        if x.variable is not None:
            x.variable.attr = x
    return region_op


def _results(region_op: Expr) -> list[Any]:
    return [x.result for x in region_op.attr.iter_args]


def _holds(mask: Any) -> bool:
    return bool(mask.any()) if isinstance(mask, torch.Tensor) else bool(mask)


def _same(a: Any, b: Any) -> bool:
    return a is b or (type(a) in PYTHON_TYPE and type(a) is type(b) and a == b)


def _check(what: str, old: list[Any], new: list[Any]) -> None:
    if len(old) != len(new):
        raise ValueError(f"{what}: the body returned {len(new)} values for a carry of {len(old)}")
    for i, (o, n) in enumerate(zip(old, new, strict=True)):
        if type_of(o) != type_of(n):
            types = f"{type_of(o)!r}, the body made it {type_of(n)!r}"
            raise TypeError(f"{what}: value {i} of the carry is of type {types}")


def _flatten(tree: Carry) -> tuple[list[Any], Callable[[list[Any]], Carry]]:
    """The leaves in order, and a function that puts other leaves in their places."""
    leaves: list[Any] = []
    shape = _shape_of(tree, leaves)
    return leaves, lambda new: _shaped(shape, iter(new))


def _shape_of(tree: Any, leaves: list[Any]) -> Any:
    if isinstance(tree, (list, tuple)):
        return type(tree), [_shape_of(x, leaves) for x in tree]
    if isinstance(tree, dict):
        # the same order, however it came to be
        return dict, {k: _shape_of(tree[k], leaves) for k in sorted(tree)}
    if is_dataclass(tree):
        return type(tree), {x.name: _shape_of(getattr(tree, x.name), leaves) for x in fields(tree)}
    leaves.append(tree)
    return None


def _shaped(shape: Any, leaves: Iterator[Any]) -> Any:
    if shape is None:
        return next(leaves)
    kind, inner = shape
    if isinstance(inner, dict):
        parts = {k: _shaped(x, leaves) for k, x in inner.items()}
        return parts if kind is dict else kind(**parts)
    return kind(_shaped(x, leaves) for x in inner)
