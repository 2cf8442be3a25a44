"""Control flow in a few functions, each with the same meaning for floats, torch tensors and traced values.

A carry is any nesting of lists, tuples, dicts and dataclasses of scalars. Worlds that a region op does not concern keep
their carry bit for bit, so no world's result depends on which other worlds share its vector, its warp or its batch.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any

import torch

from .arrays import Array
from .carries import (
    Carry,
    carry_on,
    changes,
    check_alike,
    closed,
    entered,
    flatten,
    left_by,
    one_iteration,
    results_of,
    variables,
)
from .expr import PYTHON_TYPE, Expr, Region, beside, current, is_tracing
from .region_ops import IterArg, Repeat, When, While
from .scalar import KNOWN, logical_and, select


def when_any(mask: Any, body: Callable[[Carry], Carry], carry: Carry) -> Carry:
    """Return `body(carry)` in the worlds of the mask, else `carry`; skip `body` if no world of the vector is in it."""
    if isinstance(mask, KNOWN):
        return body(carry) if mask else carry
    if isinstance(mask, torch.Tensor):
        if not bool(mask.any()):
            return carry
        return choose_all(mask, body(carry), carry)
    trace = current()
    region = Region(trace.region, logical_and(trace.region.mask, mask))
    with trace.inside(region):
        new, rebuild = flatten(body(carry))
    old, _ = flatten(carry)
    check_alike("when_any", old, new)
    changed = [i for i, (o, n) in enumerate(zip(old, new, strict=True)) if not _same(o, n)]
    out = list(old)
    results = results_of(_when(mask, When(region, [IterArg(old[i], new[i]) for i in changed])))
    for i, result in zip(changed, results, strict=True):
        out[i] = result
    return rebuild(out)


def compute_any(mask: Any, compute: Callable[[], Carry]) -> Carry:
    """Return `compute()`, or skip it if no world of the vector is in the mask.

    Use the result under the same mask only: for other worlds it is unspecified, and it is None if nothing was computed.
    """
    if isinstance(mask, KNOWN):
        return compute() if mask else None
    if isinstance(mask, torch.Tensor):
        return compute()
    trace = current()
    region = Region(trace.region, logical_and(trace.region.mask, mask))
    with trace.inside(region):
        new, rebuild = flatten(compute())
    inside = [i for i, x in enumerate(new) if type(x) is Expr and x.region is region]
    results = results_of(_when(mask, When(region, [IterArg(None, new[i]) for i in inside])))
    for i, result in zip(inside, results, strict=True):
        new[i] = result
    return rebuild(new)


def _when(mask: Expr, region_op: When) -> Expr:
    needed = region_op.body.mask
    return closed("when", *((mask,) if needed is mask else (mask, needed)), attr=region_op)


def while_any(cond: Callable[[Carry], Any], body: Callable[[Carry], Carry], carry: Carry, max_iterations: int) -> Carry:
    """Repeat `body` for the worlds in which `cond` holds, while there are any, at most `max_iterations` times.

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
        with one_iteration(arrays, active):
            new = body(i, carry)
        carry = new if active is True else choose_all(active, new, carry)
    return carry


def repeat(n: Any, body: Callable[[Any, Carry], Carry], carry: Carry, arrays: Sequence[Array] = ()) -> Carry:
    """Run `for i in range(n): carry = body(i, carry)` as a loop whose code is made once.

    n is the same in all worlds: an int, or an entry of a table of ints. `arrays`: all arrays that the body puts into.
    """
    if is_tracing() and (type(n) is Expr or (n > 1 and not current().unrolled) or (n and arrays)):
        return _repeat(n, body, carry, arrays)
    for i in range(n):
        with one_iteration(arrays):
            carry = body(i, carry)
    return carry


@contextlib.contextmanager
def unrolled() -> Iterator[None]:
    """Write out the iterations of `repeat` while the block runs, except for loops that put into arrays."""
    before, current().unrolled = current().unrolled, True
    try:
        yield
    finally:
        current().unrolled = before


_unroll_limit = ContextVar("unroll_limit", default=math.inf)


def unroll_limit() -> float:
    """Return how many copies of similar work, some of which most worlds need, are written out; more are in a loop.

    This depends on what a kernel runs on. If one lane of a vector needs a copy, all lanes go through it together, also
    in a loop; and a copy that is written out is simpler, because of its constants. So for vectors there is no limit.
    Worlds that are threads can each be in a different iteration of a loop, whose code is fetched once for all.
    """
    return _unroll_limit.get()


def worlds_go_together() -> bool:
    """Return whether worlds are lanes of a vector, which go through a loop together if one of them needs it, and skip
    it together.

    Threads of a warp that need two different loops go through one after the other.
    """
    return unroll_limit() == math.inf


@contextlib.contextmanager
def unrolling(limit: float) -> Iterator[None]:
    """Set `unroll_limit` while the block runs, even for kernels that the block builds for the CPU."""
    before = _unroll_limit.set(limit)
    try:
        yield
    finally:
        _unroll_limit.reset(before)


def choose_all(mask: Any, a: Carry, b: Carry) -> Carry:
    """Choose between two carries of one shape, with `select` for each of their scalars."""
    leaves, rebuild = flatten(a)
    others, _ = flatten(b)
    return rebuild([select(mask, x, y) for x, y in zip(leaves, others, strict=True)])


def here() -> Callable[[], contextlib.AbstractContextManager[object]]:
    """Remember this place in the code, and return a function that makes contexts. What is computed in such a context is
    recorded at this place, so all code after it may use the result, whichever block first asked for it.
    """
    if not is_tracing():
        return contextlib.nullcontext
    return functools.partial(current().inside, current().region)


def apart() -> Callable[[], contextlib.AbstractContextManager[object]]:
    """Remember this place in the code, and return a function that makes contexts. What is computed in such a context
    shares no value with the code around it, up to this place.

    So the code around is rounded as if the context were not there: a product that it shared would have another user and
    not be fused into a sum.
    """
    if not is_tracing():
        return contextlib.nullcontext
    return functools.partial(beside, current().region)


def _repeat(n: Any, body: Callable[[Any, Carry], Carry], carry: Carry, arrays: Sequence[Array]) -> Carry:
    trace = current()
    before, rebuild = flatten(carry)
    region = Region(trace.region, trace.region.mask)
    with trace.inside(region):
        counter, iter_args = variables(before)
        outside = entered(arrays)
        new = body(counter, rebuild([x.variable for x in iter_args]))
        puts, left = changes(arrays, region)
    carry_on("repeat", iter_args, new)
    region_op = closed("repeat", n, attr=Repeat(region, iter_args, counter, puts, left))
    left_by(region_op, arrays, outside)
    return rebuild(results_of(region_op))


def _while(
    cond: Callable[[Any, Carry], Any],
    body: Callable[[Any, Carry], Carry],
    carry: Carry,
    limit: int,
    arrays: Sequence[Array],
) -> Carry:
    trace = current()
    before, rebuild = flatten(carry)
    head = Region(trace.region, trace.region.mask)
    with trace.inside(head):
        counter, iter_args = variables(before)
        outside = entered(arrays)
        inner = rebuild([x.variable for x in iter_args])
        active = logical_and(head.mask, cond(counter, inner))
        region = Region(head, active)
        with trace.inside(region):
            new = body(counter, inner)
            puts, left = changes(arrays, region)
    carry_on("while", iter_args, new)
    region_op = closed("while", attr=While(region, iter_args, counter, puts, left, limit, head, active))
    left_by(region_op, arrays, outside)
    return rebuild(results_of(region_op))


def _same(a: Any, b: Any) -> bool:
    return a is b or (type(a) in PYTHON_TYPE and type(a) is type(b) and a == b)
