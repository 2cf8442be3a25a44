"""Nested tuples and lists of numbers: their shape, the numbers in order, and tuples from numbers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...compiler.scalar import Scalar


def shape_of(x: Any) -> tuple[int, ...]:
    """Return the shape of nested tuples; () of a number."""
    return (len(x), *shape_of(x[0])) if isinstance(x, tuple) and x else ((0,) if isinstance(x, tuple) else ())


def leaves(x: Any) -> list[Any]:
    """Return the numbers in nested lists and tuples, in order."""
    return [number for part in x for number in leaves(part)] if isinstance(x, (list, tuple)) else [x]


def floats(xs: list[Scalar]) -> list[Scalar]:
    """Return numbers with floats in place of ints, as a buffer of floats needs them."""
    return [float(x) if isinstance(x, int) else x for x in xs]


def nested(numbers: Iterator[Scalar], shape: tuple[int, ...]) -> Any:
    """Return the next numbers in nested tuples of this shape."""
    return tuple(nested(numbers, shape[1:]) for _ in range(shape[0])) if shape else next(numbers)


def as_nested(name: str, x: Any, shape: tuple[int, ...]) -> Any:
    """Return what x holds in nested tuples of this shape. Raises ValueError, with the name, for another shape."""
    if not shape:
        return float(x) if isinstance(x, int) else x
    if not hasattr(x, "__len__") or len(x) != shape[0]:
        raise ValueError(f"{name}: {x!r} does not hold {shape[0]} entries")
    return tuple(as_nested(name, x[i], shape[1:]) for i in range(shape[0]))


def entry(x: Any, index: tuple[int, ...]) -> Any:
    """Return the entry of nested tuples at an index."""
    for i in index:
        x = x[i]
    return x


def put(x: Any, index: tuple[int, ...], value: Scalar) -> Any:
    """Return nested tuples with another entry at an index."""
    if not index:
        return value
    return (*x[: index[0]], put(x[index[0]], index[1:], value), *x[index[0] + 1 :])
