"""Records: arrays (see `compiler.arrays`) whose columns have names."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ....compiler.active_sets import compute_parts, part
from ....compiler.arrays import Array
from ....compiler.queues import Needed, compute_queued
from ....compiler.scalar import Scalar

Row = Mapping[Any, Any]  # by name, a scalar or a list of scalars, in the order of the columns


@dataclass
class Records:
    """An array whose rows, from `start` on, have a scalar or a list of scalars under each name."""

    rows: Array
    columns: dict[Hashable, int | slice]
    start: int = 0

    def at(self, i: Any, name: Hashable) -> Any:
        """Return the scalar, or list of scalars, that row i has under the name."""
        return self.rows[part(i, 1, self.start), self.columns[name]]


@dataclass
class Computed:
    """Records that are kept nowhere: a row is computed where it is asked for."""

    row: Callable[[Any], Row]

    def at(self, i: Any, name: Hashable) -> Any:
        """Compute the scalar, or list of scalars, that row i has under the name."""
        return self.row(i)[name]


def records(rows: Sequence[Row]) -> Records:
    """Make records of these rows."""
    return Records(Array([_flat(row) for row in rows]), _columns(rows[0]))


def records_each(which: Any, compute: Callable[[Any], Row]) -> Records:
    """Compute a named row for each number in `which`: `compute_each` as records."""
    return records_parts(which, lambda i: [compute(i)], 0)


def records_parts(which: Any, compute: Callable[[Any], Sequence[Row]], n: int) -> Records:
    """Compute some named rows for each number in `which`: `compute_parts` as records."""
    columns: dict[Hashable, int | slice] = {}

    def rows(i: Any) -> list[list[Scalar]]:
        computed = compute(i)
        columns.update(_columns(computed[0]))
        return [_flat(row) for row in computed]

    return Records(compute_parts(which, rows, n), columns)


def records_queued(sets: Sequence[Needed], compute: Callable[[Any], Sequence[Row]]) -> list[Records]:
    """Compute some named rows for each number of several sets as `compute_queued` does."""
    columns: dict[Hashable, int | slice] = {}

    def rows(given: Any) -> list[list[Scalar]]:
        computed = compute(given)
        columns.update(_columns(computed[0]))
        return [_flat(row) for row in computed]

    return [Records(found, columns, start) for found, start in compute_queued(sets, rows)]


def _flat(row: Row) -> list[Scalar]:
    return [y for x in row.values() for y in (x if isinstance(x, list) else [x])]


def _columns(row: Row) -> dict[Hashable, int | slice]:
    columns: dict[Hashable, int | slice] = {}
    n = 0
    for name, x in row.items():
        columns[name] = slice(n, n + len(x)) if isinstance(x, list) else n
        n += len(x) if isinstance(x, list) else 1
    return columns
