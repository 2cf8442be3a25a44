"""The parts that all control flow is made of: carries as flat lists of leaves, regions that change them, loops over
arrays.

A carry is any nesting of lists, tuples, dicts and dataclasses of scalars.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import torch

from .arrays import Array
from .expr import Expr, Region, fresh, type_of
from .region_ops import IterArg, OwnPut, RegionOp
from .scalar import Mask

Carry = Any


@contextlib.contextmanager
def one_iteration(arrays: Sequence[Array], active: Mask = True) -> Iterator[None]:
    """Run the block as one iteration, not traced, of a loop that changes arrays, for the worlds of `active`."""
    for array in arrays:
        array.enter(active)
    yield
    for array in arrays:
        array.do_puts()


def entered(arrays: Sequence[Array]) -> list[Expr]:
    """Set arrays to what an iteration of a traced loop finds; return what they are outside, for `left_by`."""
    outside = [array.held for array in arrays]
    for array in arrays:
        array.enter()
    return outside


def left_by(region_op: Expr, arrays: Sequence[Array], outside: Sequence[Expr]) -> None:
    """Set arrays to what a loop leaves."""
    for array, held in zip(arrays, outside, strict=True):
        array.leave(held, region_op)


def changes(arrays: Sequence[Array], body: Region) -> tuple[list[OwnPut], list[Expr]]:
    """Return what an iteration puts into arrays, and those that loops within it change."""
    puts = [put for array in arrays for put in array.puts()]
    return puts, [array.held for array in arrays if array.held.region is body]


def variables(before: list[Any]) -> tuple[Expr, list[IterArg]]:
    """Return a loop's counter, and a variable for each leaf of its carry."""
    counter = fresh("counter")
    return counter, [IterArg(x, variable=fresh("phi", type_=type_of(x))) for x in before]


def carry_on(what: str, iter_args: list[IterArg], new: Carry) -> None:
    """Note what the body made of each variable."""
    leaves, _ = flatten(new)
    check_alike(what, [x.before for x in iter_args], leaves)
    for x, leaf in zip(iter_args, leaves, strict=True):
        x.after = leaf


def closed(op: str, *args: Any, attr: RegionOp) -> Expr:
    """Record a region op and the results of what it carries; return its node."""
    region_op = fresh(op, *args, attr=attr)
    for x in attr.iter_args:
        x.region_op, x.result = region_op, fresh("result", region_op, attr=x, type_=type_of(x.after))
        if x.variable is not None:
            x.variable.attr = x
    return region_op


def results_of(region_op: Expr) -> list[Any]:
    """Return what the code after a region op sees of its carry."""
    return [x.result for x in region_op.attr.iter_args]


def holds(mask: Any) -> bool:
    """Return whether a mask that is not traced holds in any world."""
    return bool(mask.any()) if isinstance(mask, torch.Tensor) else bool(mask)


def check_alike(what: str, old: list[Any], new: list[Any]) -> None:
    """Refuse a body whose carry has another number of leaves than it was given, or leaves of other types."""
    if len(old) != len(new):
        raise ValueError(f"{what}: the body returned {len(new)} values for a carry of {len(old)}")
    for i, (o, n) in enumerate(zip(old, new, strict=True)):
        if type_of(o) != type_of(n):
            types = f"{type_of(o)!r}, the body made it {type_of(n)!r}"
            raise TypeError(f"{what}: value {i} of the carry is of type {types}")


def flatten(tree: Carry) -> tuple[list[Any], Callable[[list[Any]], Carry]]:
    """Return the leaves in order, and a function that puts other leaves in their places."""
    leaves: list[Any] = []
    shape = _shape_of(tree, leaves)
    return leaves, lambda new: _shaped(shape, iter(new))


def _shape_of(tree: Any, leaves: list[Any]) -> Any:
    if isinstance(tree, (list, tuple)):
        return type(tree), [_shape_of(x, leaves) for x in tree]
    if isinstance(tree, dict):
        # sorted: the order must not depend on how the dict was made
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
