"""Memories (see `compiler.control`) whose columns have names."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...compiler.control import compute_parts, get, get_row, memory
from ...compiler.scalar import Scalar

Row = Mapping[Any, Any]  # a scalar or a list of them a name, in the order of the columns


@dataclass
class Table:
    """Rows of a scalar or a list of scalars a name."""

    rows: Any
    columns: dict[Hashable, int | range]

    def at(self, i: Any, name: Hashable) -> Any:
        """The entry of row i under the name: a scalar, or a list of them."""
        where = self.columns[name]
        return get(self.rows, i, where) if isinstance(where, int) else get_row(self.rows, i, where)


def table(rows: Sequence[Row]) -> Table:
    """A table of these rows."""
    return Table(memory([_flat(row) for row in rows]), _columns(rows[0]))


def table_each(which: Any, compute: Callable[[Any], Row]) -> Table:
    """A table with `compute(i)` in its row i, for the i of `which`: see `compute_each`."""
    return table_parts(which, lambda i: [compute(i)], 0)


def table_parts(which: Any, compute: Callable[[Any], Sequence[Row]], n: int) -> Table:
    """A table of the parts of each i of `which`, from n: see `compute_parts`."""
    found = Table(None, {})

    def rows(i: Any) -> list[list[Scalar]]:
        computed = compute(i)
        found.columns = _columns(computed[0])
        return [_flat(row) for row in computed]

    found.rows = compute_parts(which, rows, n)
    return found


def _flat(row: Row) -> list[Scalar]:
    return [x for part in row.values() for x in (part if isinstance(part, list) else [part])]


def _columns(row: Row) -> dict[Hashable, int | range]:
    columns: dict[Hashable, int | range] = {}
    n = 0
    for name, part in row.items():
        columns[name] = range(n, n + len(part)) if isinstance(part, list) else n
        n += len(part) if isinstance(part, list) else 1
    return columns
