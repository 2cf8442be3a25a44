"""Whole numbers of 32 bits in traced code, one for each lane: indices into tables, and the arithmetic for them.

A `Whole` is a Python int or a traced value. What exceeds 32 bits wraps around.
"""

from __future__ import annotations

from typing import Any

from .expr import node
from .scalar import Mask, Scalar

Whole = Any


def whole(x: Scalar) -> Whole:
    """Return x without its fraction, which must fit into 32 bits."""
    return node("f2i", x)


def as_scalar(n: Whole) -> Scalar:
    """Return a whole number as one to compute with."""
    found: Scalar = node("i2f", n)
    return found


def exponent(x: Scalar) -> Whole:
    """Return n with 2**n <= x < 2**(n + 1), for a positive normal x."""
    return node("exponent", x)


def add(a: Whole, b: Whole) -> Whole:
    return node("iadd", a, b)


def multiply(a: Whole, b: Whole) -> Whole:
    return node("imul", a, b)


def halved(n: Whole, times: Whole) -> Whole:
    """Return a number that is not negative, halved this many times, each time without its fraction."""
    return node("lshr", n, times)


def is_odd(n: Whole) -> Whole:
    """Return 1 for an odd number, 0 for an even one."""
    return node("iand", n, 1)


def choose(mask: Mask, a: Whole, b: Whole) -> Whole:
    """Return a where the mask holds, b elsewhere."""
    return node("iselect", mask, a, b)


def at_least(n: Whole, least: int) -> Whole:
    return node("iselect", node("ilt", n, least), least, n)
