"""Whether a task's function returns the same when it is called again: if not, a kernel would freeze one answer."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ..compiler.expr import Expr
from ..compiler.random import Random
from .tasks.base import World


def called_twice(call: Callable[[], Any], arguments: Sequence[Any]) -> tuple[Any, bool]:
    """Return what a call returns, and whether a call before it, with the same random numbers, returned the same."""
    generators = {id(x): x for x in _generators(arguments)}.values()
    before = [vars(rng).copy() for rng in generators]
    first = [*leaves(call())]  # read at once: the second call may alter what the first one returned
    for rng, state in zip(generators, before, strict=True):
        vars(rng).update(state)
    found = call()
    return found, alike(first, [*leaves(found)])


def _generators(arguments: Sequence[Any]) -> Iterator[Random]:
    for x in arguments:
        if isinstance(x, Random):
            yield x
        elif isinstance(x, World):
            yield x.rng


def leaves(x: Any) -> Iterator[Any]:
    """Yield the names and values in what a function returned, in order."""
    if isinstance(x, dict):
        for name, inside in x.items():
            yield name
            yield from leaves(inside)
    elif isinstance(x, (list, tuple)):
        for inside in x:
            yield from leaves(inside)
    elif dataclasses.is_dataclass(x):
        for field in dataclasses.fields(x):
            yield from leaves(getattr(x, field.name))
    else:
        yield x


def alike(some: Sequence[Any], others: Sequence[Any]) -> bool:
    """Return whether values are made alike: of the same operations on the same constants.

    What blocks and loops compute counts as alike.
    """
    if len(some) != len(others):
        return False
    left, seen = [*zip(some, others, strict=True)], set()
    while left:
        x, y = left.pop()
        if x is y or (id(x), id(y)) in seen:
            continue
        if isinstance(x, Expr) and isinstance(y, Expr):
            seen.add((id(x), id(y)))
            if x.op != y.op or len(x.args) != len(y.args):
                return False
            left += zip(x.args, y.args, strict=True)
        elif isinstance(x, Expr) or isinstance(y, Expr) or not _equal(x, y):
            return False
    return True


def _equal(x: Any, y: Any) -> bool:
    return not isinstance(x, (int, float, str)) or x == y or (x != x and y != y)
