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
from typing import Any

from .active_sets import compute_each, compute_parts, part
from .arrays import Array
from .carries import Carry, changes, closed, entered, flatten, left_by
from .control import count_while
from .expr import Expr, Region, current, fresh, is_tracing
from .region_ops import OwnPut, Queue, RegionOp, regions_within
from .scalar import Scalar, minimum, number


def queued(
    count: Scalar, body: Callable[[Any, Carry], None], given: Carry, most: int, arrays: Sequence[Array]
) -> None:
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
    kept = Array([[x for x in leaves if type(x) is Expr]])
    with _entries(most) as (region, k, there):
        outside = entered(arrays)
        body(k, rebuild(_filled(leaves, kept[0])))
        puts, left = changes(arrays, region)
    assert all(x.op == "version" for x in left), "the body of a queue puts rows itself, not by loops within it"
    made = Queue(region, [], k, puts, left, there, most)
    _check(made)
    left_by(closed("queue", minimum(count, float(most)), attr=made), arrays, outside)


def compute_queued(
    which: Any, prepare: Callable[[Any], Carry], compute: Callable[[Carry], Sequence[Sequence[Scalar]]], n: int
) -> Array:
    """Return what `active_sets.compute_parts` does for `compute(prepare(i))`, each i for the worlds that need it alone.

    `compute` reads of its world only what `prepare` gives, floats, and arrays. Raises ValueError if it reads anything
    else.
    """
    if type(which) is not Expr or current().derivatives:
        return compute_parts(which, lambda i: compute(prepare(i)), n)
    leaves, rebuild, around = list[Any](), list[Any](), current().region.mask

    def given(i: Any) -> list[Scalar]:
        leaves[:], again = flatten(prepare(i))
        rebuild.append(again)
        return [x for x in leaves if type(x) is Expr]

    kept, found = compute_each(which, given), Array()
    with _entries(which.attr) as (region, k, there):
        rows = compute(rebuild[0](_filled(leaves, kept[k])))
        found.take_shape(which.attr * len(rows), len(rows[0]))
        places = [part(k, number, n) for number in range(len(rows))]
    puts = [OwnPut(found.held, at, c, None, x) for at, row in zip(places, rows, strict=True) for c, x in enumerate(row)]
    made = Queue(region, [], k, puts, [], there, which.attr)
    _check(made)
    found.leave(found.held, closed("queue_each", which, around, attr=made))
    return found


@contextlib.contextmanager
def _entries(most: int) -> Iterator[tuple[Region, Any, Any]]:
    """Trace the code for an entry of a queue; yield its region, the entry's number, and the lanes that have one."""
    trace = current()
    region = Region(trace.region)
    with trace.inside(region):
        k, region.mask = (fresh("entry", type_=t) for t in "ib")
        yield region, k, region.mask


def _filled(leaves: Sequence[Any], numbers: Sequence[Scalar]) -> list[Any]:
    """Return the leaves of a carry with these numbers in place of those that are not constants."""
    own = iter(numbers)
    return [next(own) if type(x) is Expr else x for x in leaves]


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
