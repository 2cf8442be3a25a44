"""Numbers, and lists of them, by name: their widths, and the one list in which a kernel has them."""

from __future__ import annotations

from collections.abc import Mapping

from ..compiler.scalar import Scalar

Named = dict[str, Scalar | list[Scalar]]
Entries = Mapping[str, Scalar | list[Scalar]]  # the same, read-only
Widths = dict[str, int]  # lengths of named lists; 0 for a single number


def width_of(x: Scalar | list[Scalar]) -> int:
    """Return the length of a list, or 0 for a single number."""
    return len(x) if isinstance(x, list) else 0


def size_of(widths: Widths) -> int:
    """Return the total number of scalars of these widths."""
    return sum(max(1, width) for width in widths.values())


def flatten(widths: Widths, values: Entries) -> list[Scalar]:
    """Return named numbers as one list, in the order of `widths`, with 0 where a name is absent."""
    out: list[Scalar] = []
    for name, width in widths.items():
        x = values.get(name, [0.0] * width if width else 0.0)
        out += x if isinstance(x, list) else [x]
    return out


def by_name(widths: Widths, values: list[Scalar]) -> Named:
    """Return the numbers of a list by name: the inverse of `flatten`."""
    out: Named = {}
    rest = list(values)
    for name, width in widths.items():
        out[name], rest = (rest[:width], rest[width:]) if width else (rest[0], rest[1:])
    return out
