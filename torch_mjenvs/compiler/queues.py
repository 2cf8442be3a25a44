"""Queues: work of which some worlds have much and others little, spread over the lanes of a vector.

The lanes of a vector go together. In a loop over lists of each world's own, they wait for the lane with the longest
list; in a loop over what any world needs, all lanes go through all of it. Here the entries of all worlds' lists stand
in one queue, and a lane takes the next one, whichever world it belongs to. What it needs to know of that world is read
from memory, which costs some 40 cycles per number: a queue is for work that takes far longer. On a GPU each world is a
thread, and goes through its own list.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from .arrays import Array
from .carries import Carry, changes, closed, entered, flatten, left_by
from .control import count_while
from .expr import Expr, Region, current, fresh, is_tracing
from .region_ops import Queue, RegionOp, regions_within
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
    trace, count = current(), minimum(count, float(most))
    leaves, rebuild = flatten(given)
    kept = Array([[x for x in leaves if type(x) is Expr]])
    region = Region(trace.region)
    with trace.inside(region):
        k, there = (fresh("entry", type_=t) for t in "ib")
        region.mask = there
        outside = entered(arrays)
        own = iter(kept[0])
        body(k, rebuild([next(own) if type(x) is Expr else x for x in leaves]))
        puts, left = changes(arrays, region)
    assert all(x.op == "version" for x in left), "the body of a queue puts rows itself, not by loops within it"
    found = Queue(region, [], k, puts, left, there, most)
    _check(found)
    left_by(closed("queue", count, attr=found), arrays, outside)


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
