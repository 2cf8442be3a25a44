"""Queues: work of which some worlds have much and others little, spread over the lanes of a vector.

The lanes of a vector go together. In a loop over lists of each world's own, they wait for the lane with the longest
list; in a loop over what any world needs, all lanes go through all of it. Here the entries of all worlds' lists stand
in one queue, and a lane takes the next one, whichever world it belongs to. What it needs to know of that world is read
from memory, which costs some 40 cycles per number: a queue is for work that takes far longer. On a GPU each world is a
thread, and goes through its own list.

What any world needs of many things is in a queue by number: first all worlds that need the first, then all that need
the second. So lanes mostly work for the same number, as they would in a loop over what any world needs.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from .active_sets import Packed, compute_parts, part, put_each
from .arrays import Array
from .carries import Carry, changes, closed, entered, flatten, left_by
from .control import count_while
from .expr import Expr, Region, current, fresh, is_tracing, node
from .region_ops import OwnPut, Queue, RegionOp, regions_within
from .scalar import Scalar, minimum, number


def queued(count: Scalar, body: Callable[[Any, Carry], None], given: Carry, most: int, arrays: Sequence[Array]) -> None:
    """Run `body(k, given)` for each k below `count`, in any order. Each world has its own `count`, of at most `most`.

    The body puts rows into `arrays`. Of its world it reads only what is `given`, and other arrays. Raises ValueError if
    it reads anything else.
    """
    if not is_tracing() or current().derivatives:

        def turn(k: Any, nothing: Carry) -> Carry:
            body(k, given)
            return nothing

        count_while(lambda k, _: number(k) < count, turn, [], most, arrays)
        return
    leaves, rebuild = flatten(given)
    constants = [None if type(x) is Expr else x for x in leaves]
    kept = Array([_varying(constants, leaves)])
    with _entries(most) as (region, k, there):
        outside = entered(arrays)
        body(k, rebuild(_filled(constants, kept[0])))
        puts, left = changes(arrays, region)
    assert all(x.op == "version" for x in left), "the body of a queue puts rows itself, not by loops within it"
    made = Queue(region, [], k, puts, left, there, most)
    _check(made)
    left_by(closed("queue", minimum(count, float(most)), attr=made), arrays, outside)


class Needed(NamedTuple):
    """Numbers below n that some worlds need, as an active set, and `prepare`, which returns what is given for each."""

    which: Any
    n: int
    prepare: Callable[[Any], Carry]


def compute_queued(
    sets: Sequence[Needed], compute: Callable[[Carry], Sequence[Sequence[Scalar]]]
) -> list[tuple[Array, int]]:
    """Compute rows for the numbers of several sets, each for the worlds that need it alone, by code that exists once.

    Return for each set the array that has its rows, and where these begin. From there on they stand as
    `active_sets.compute_parts` puts them: part k of number i, `compute(prepare(i))[k]`, is in row k n + i.

    What `prepare` gives is of the same form for all sets, and floats. `compute` reads nothing else of its world, except
    for arrays. Raises ValueError if it does.
    """
    if not is_tracing() or current().derivatives:

        def alone(x: Needed) -> tuple[Array, int]:
            return compute_parts(x.which, lambda i: compute(x.prepare(i)), x.n), 0

        return list(map(alone, sets))
    constants, rebuild = _constants(sets)
    starts, around = list(itertools.accumulate((x.n for x in sets), initial=0)), current().region.mask
    many, total = len(sets) > 1, starts.pop()
    packed = Packed(sets[0].which)
    if many:
        orders = [range(start, start + x.n) for start, x in zip(starts, sets, strict=True)]
        packed = Packed.of([x.which for x in sets], orders, total)
    kept = Array(rows=total, columns=constants.count(None) + 3 * many)
    for x, start in zip(sets, starts, strict=True):

        def put(i: Any, x: Needed = x, start: int = start) -> tuple[Any, list[Scalar]]:
            leaves, _ = flatten(x.prepare(i))
            own = _varying(constants, leaves)
            if not many:
                return i, own
            return packed.slot(part(i, 1, start)), [*own, number(i), float(x.n), float(start)]

        put_each(x.which, put, kept)
    found = Array()
    with _entries(total) as (region, k, there):
        own = kept[k]
        rows = compute(rebuild(_filled(constants, own)))
        if many:
            i, n, start = own[-3:]
            first = i + float(len(rows)) * start
            places = [node("f2i", first + float(c) * n) for c in range(len(rows))]
        else:
            places = [part(k, c, total) for c in range(len(rows))]
    found.take_shape(total * len(rows), len(rows[0]))
    puts = [OwnPut(found.held, at, c, None, x) for at, row in zip(places, rows, strict=True) for c, x in enumerate(row)]
    made = Queue(region, [], k, puts, [], there, total)
    _check(made)
    found.leave(found.held, closed("queue_each", packed.which, around, attr=made))
    return [(found, len(rows) * start) for start in starts]


def _constants(sets: Sequence[Needed]) -> tuple[list[Any], Callable[[list[Any]], Carry]]:
    """Return what is the same constant for all numbers of all sets, by leaf of what is given for one, else None; and a
    function that puts other leaves in their places.
    """
    found, rebuild = list[list[Any]](), None
    for x in sets:
        with current().inside(Region(current().region)):  # whose code is never used
            leaves, rebuild = flatten(x.prepare(fresh("counter")))
        found.append(leaves)
    assert rebuild
    return [
        None if any(type(x) is Expr or x != column[0] for x in column) else column[0]
        for column in zip(*found, strict=True)
    ], rebuild


@contextlib.contextmanager
def _entries(most: int) -> Iterator[tuple[Region, Any, Any]]:
    """Trace the code for an entry of a queue; yield its region, the entry's number, and the lanes that have one."""
    trace = current()
    region = Region(trace.region)
    with trace.inside(region):
        k, region.mask = (fresh("entry", type_=t) for t in "ib")
        yield region, k, region.mask


def _varying(constants: Sequence[Any], leaves: Sequence[Any]) -> list[Any]:
    """Return those leaves of a carry that are no constants: where `constants` has None."""
    return [x for constant, x in zip(constants, leaves, strict=True) if constant is None]


def _filled(constants: Sequence[Any], varying: Sequence[Scalar]) -> list[Any]:
    """Return the leaves of a carry: its constants, and in place of None those that vary, in order."""
    own = iter(varying)
    return [next(own) if x is None else x for x in constants]


def _check(queue: Queue) -> None:
    """Raise ValueError if the code of a queue reads values of a world, from outside, that are not in arrays."""
    inner = set(regions_within(queue.body))
    read = itertools.chain((x for x, _, _ in queue.reads()), *(_reads(e) for part in inner for e in part.nodes))
    for x in read:
        if type(x) is Expr and x.region not in inner and x.type not in "as":
            raise ValueError(f"the body of a queue reads {x!r} from outside: give it, as `given`")


def _reads(e: Expr) -> Iterator[object]:
    yield from e.args
    if isinstance(e.attr, RegionOp):
        yield from (x for x, _, _ in e.attr.reads())
        for arg in e.attr.iter_args:
            yield from (arg.before, arg.after)
