"""The few control-flow forms, each with one meaning for floats, torch tensors and traced values.

A carry is any nesting of lists, tuples and dicts of scalars. Worlds that a form does not concern keep their carry
bit for bit, so no world's result depends on which other worlds share its vector, its warp or its batch.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch

from .expr import PYTHON_TYPE, Expr, Region, current, fresh, is_tracing, node, type_of
from .scalar import logical_and, select

Carry = Any


def when_any(mask: Any, body: Callable[[Carry], Carry], carry: Carry) -> Carry:
    """`body(carry)` for the worlds of the mask; skipped where no world of the vector needs it."""
    if isinstance(mask, bool):
        return body(carry) if mask else carry
    if isinstance(mask, torch.Tensor):
        if not bool(mask.any()):
            return carry
        return _merge(mask, body(carry), carry)
    trace = current()
    region = Region(trace.region, logical_and(trace.region.mask, mask))
    with trace.inside(region):
        new, rebuild = _flatten(body(carry))
    old, _ = _flatten(carry)
    _check("when_any", old, new)
    changed = [i for i, (o, n) in enumerate(zip(old, new, strict=True)) if not _same(o, n)]
    block = fresh("when", mask, attr=(region, [(old[i], new[i]) for i in changed]), type_="none")
    out = list(old)
    for k, i in enumerate(changed):
        out[i] = fresh("result", block, attr=k, type_=type_of(new[i]))
    return rebuild(out)


def compute_any(mask: Any, compute: Callable[[], Carry]) -> Carry:
    """`compute()`, skipped where no world of the vector needs it.

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
    block = fresh("when", mask, attr=(region, [(None, new[i]) for i in inside]), type_="none")
    for k, i in enumerate(inside):
        new[i] = fresh("result", block, attr=k, type_=type_of(new[i]))
    return rebuild(new)


def while_any(cond: Callable[[Carry], Any], body: Callable[[Carry], Carry], carry: Carry, max_iterations: int) -> Carry:
    """Repeat `body` for the worlds where `cond` holds, while there are any, `max_iterations` times at the most.

    A world whose `cond` was once false is done.
    """
    if is_tracing():
        return _loop("while", cond, lambda _, c: body(c), carry, max_iterations)
    active: Any = True
    for _ in range(max_iterations):
        active = logical_and(active, cond(carry))
        if active is False or (isinstance(active, torch.Tensor) and not bool(active.any())):
            break
        new = body(carry)
        carry = new if active is True else _merge(active, new, carry)
    return carry


def repeat(n: int, body: Callable[[Any, Carry], Carry], carry: Carry) -> Carry:
    """`for i in range(n): carry = body(i, carry)`, its code made once."""
    if n > 1 and is_tracing():
        return _loop("repeat", None, body, carry, n)
    for i in range(n):
        carry = body(i, carry)
    return carry


# Many of a kind, few of them needed: the plurals of `when_any` and `compute_any`, their code made once.
#
# `touched` says which are needed: a list of (number, mask), or a node of type "t". A memory is a list of rows, or a
# node of type "m", read by `get` at a number that all worlds share but that is known only when the kernel runs.


def memory(rows: Sequence[Sequence]) -> Any:
    """Rows of floats, all of one length, that can be read at any lane-uniform index."""
    if not is_tracing():
        return rows
    return fresh("memory", *(x for row in rows for x in row), attr=(len(rows), len(rows[0])), type_="m")


def get(where: Any, i: Any, column: int = 0) -> Any:
    """where[i][column]."""
    return node("get", where, i, attr=column) if type(where) is Expr else where[i][column]


def get_row(where: Any, i: Any, columns: Iterable[int]) -> list:
    return [get(where, i, k) for k in columns]


def touched(masks: Sequence) -> Any:
    """The numbers of the masks that hold in any world of the vector, and where they do."""
    if is_tracing():
        return fresh("touched", *masks, attr=len(masks), type_="t")
    return [(i, mask) for i, mask in enumerate(masks) if _holds(mask)]


def compute_each(which: Any, compute: Callable[[Any], Sequence]) -> Any:
    """A memory with `compute(i)` in its row i, for the i of `which`; for all others, and other worlds, unspecified."""
    if type(which) is not Expr:
        return {i: compute(i) for i, _ in which}
    room = fresh("memory", attr=None, type_="m")

    def turn(i: Any, _: Carry) -> tuple:
        row = compute(i)
        room.attr = which.attr, len(row)
        return [], [(room, i, k, x, None) for k, x in enumerate(row)], []

    return fresh("rows", room, _each(which, turn, []), attr=room.attr, type_="m")


def choose_each(which: Any, test: Callable[[Any], Sequence], n: int) -> Any:
    """What is touched of the parts of each i of `which`, from n: part k, where `test(i)[k]`, has the number k n + i."""
    if type(which) is not Expr:
        parts = [(k * n + i, logical_and(mask, x)) for i, mask in which for k, x in enumerate(test(i))]
        return [(i, mask) for i, mask in parts if _holds(mask)]
    form = _each(which, lambda i, _: ([], [], list(test(i))), [])
    return fresh("chosen", form, attr=n * len(form.attr[4]), type_="t")


def fold_each(which: Any, body: Callable[[Any, Carry], Carry], carry: Carry) -> Carry:
    """`for i in which: carry = body(i, carry)`, for the worlds of the i-th mask."""
    if type(which) is not Expr:
        for i, mask in which:
            carry = when_any(mask, functools.partial(body, i), carry)
        return carry
    _, rebuild = _flatten(carry)
    form = _each(which, lambda i, c: (body(i, c), [], []), carry)
    return rebuild([fresh("result", form, attr=k, type_=phi.type) for k, (_, phi, _) in enumerate(form.attr[-1])])


def add_each(which: Any, body: Callable[[Any], Sequence[Sequence[tuple]]], totals: Sequence[Sequence]) -> list[list]:
    """Sums in many places: `body(i)` gives for each list of totals what to add where, as (index, value).

    The indices that a body gives at once differ, but for those of totals that nobody reads.
    """
    if type(which) is not Expr:
        out = [list(total) for total in totals]
        for i, mask in which:
            for total, parts in zip(out, body(i), strict=True):
                for k, x in parts:
                    total[k] = select(mask, total[k] + x, total[k])
        return out
    rooms = [memory([[x] for x in total]) for total in totals]

    def turn(i: Any, _: Carry) -> tuple:
        puts = []
        for room, parts in zip(rooms, body(i), strict=True):
            for k, x in parts:
                old = get(room, k)
                puts.append((room, k, 0, old + x, old))
        return [], puts, []

    form = _each(which, turn, [])
    return [
        [fresh("after", room, form, attr=k, type_="f") for k in range(len(total))]
        for room, total in zip(rooms, totals, strict=True)
    ]


def _each(which: Expr, body: Callable[[Any, Carry], tuple[Carry, list, list]], carry: Carry) -> Expr:
    """The form beneath: `body` gives the carry, (memory, index, column, value, value for other worlds), and masks."""
    trace = current()
    init, rebuild = _flatten(carry)
    region = Region(trace.region, trace.region.mask)
    with trace.inside(region):
        number = fresh("counter", attr=None, type_="s")
        phis = [fresh("phi", attr=None, type_=type_of(x)) for x in init]
        new, puts, chosen = body(number, rebuild(phis))
        new, _ = _flatten(new)
    _check("each", init, new)
    attr = (region, region, number, puts, chosen, list(zip(init, phis, new, strict=True)))
    form = fresh("each", which, attr=attr, type_="none")
    for k, phi in enumerate(phis):
        phi.attr = (form, k)
    return form


def _holds(mask: Any) -> bool:
    return bool(mask.any()) if isinstance(mask, torch.Tensor) else bool(mask)


def _loop(kind: str, cond: Callable | None, body: Callable, carry: Carry, n: int) -> Carry:
    """A form that holds its counter, a variable (phi) for each leaf of the carry, and what the body makes of it."""
    trace = current()
    init, rebuild = _flatten(carry)
    region = Region(trace.region, trace.region.mask)
    with trace.inside(region):
        counter = fresh("counter", attr=None, type_="s")
        phis = [fresh("phi", attr=None, type_=type_of(x)) for x in init]
        active: Any = True
        inner = region
        if cond is not None:
            active = logical_and(region.mask, cond(rebuild(phis)))
            inner = Region(region, active)
        with trace.inside(inner):
            new, _ = _flatten(body(counter, rebuild(phis)))
    _check(kind, init, new)
    attr = (region, inner, counter, n, list(zip(init, phis, new, strict=True)))
    loop = fresh(kind, active, attr=attr, type_="none")
    for k, phi in enumerate(phis):
        phi.attr = (loop, k)
    return rebuild([fresh("result", loop, attr=k, type_=x.type) for k, x in enumerate(phis)])


def _merge(mask: Any, new: Carry, old: Carry) -> Carry:
    new_leaves, rebuild = _flatten(new)
    old_leaves, _ = _flatten(old)
    return rebuild([select(mask, n, o) for n, o in zip(new_leaves, old_leaves, strict=True)])


def _same(a: Any, b: Any) -> bool:
    return a is b or (type(a) in PYTHON_TYPE and type(a) is type(b) and a == b)


def _check(form: str, old: list, new: list) -> None:
    if len(old) != len(new):
        raise ValueError(f"{form}: the body returned {len(new)} values for a carry of {len(old)}")
    for i, (o, n) in enumerate(zip(old, new, strict=True)):
        if type_of(o) != type_of(n):
            types = f"{type_of(o)!r}, the body made it {type_of(n)!r}"
            raise TypeError(f"{form}: value {i} of the carry is of type {types}")


def _flatten(tree: Carry) -> tuple[list, Callable[[list], Carry]]:
    """The leaves in order, and a function that puts other leaves in their places."""
    leaves: list = []
    shape = _shape_of(tree, leaves)
    return leaves, lambda new: _shaped(shape, iter(new))


def _shape_of(tree: Any, leaves: list) -> Any:
    if isinstance(tree, (list, tuple)):
        return type(tree), [_shape_of(x, leaves) for x in tree]
    if isinstance(tree, dict):
        # the same order, however it came to be
        return dict, {k: _shape_of(tree[k], leaves) for k in sorted(tree)}
    leaves.append(tree)
    return None


def _shaped(shape: Any, leaves: Iterator) -> Any:
    if shape is None:
        return next(leaves)
    kind, inner = shape
    if kind is dict:
        return {k: _shaped(x, leaves) for k, x in inner.items()}
    return kind(_shaped(x, leaves) for x in inner)
