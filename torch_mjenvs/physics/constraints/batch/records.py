"""Records: arrays (see `compiler.arrays`) whose columns have names."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ....compiler.active_sets import compute_parts
from ....compiler.arrays import Array
from ....compiler.queues import compute_queued
from ....compiler.scalar import Scalar

Row = Mapping[Any, Any]  # by name, a scalar or a list of scalars, in the order of the columns


@dataclass
class Records:
    """An array whose rows have a scalar or a list of scalars under each name."""

    rows: Array
    columns: dict[Hashable, int | slice]

    def at(self, i: Any, name: Hashable) -> Any:
        """Return the scalar, or list of scalars, that row i has under the name."""
        return self.rows[i, self.columns[name]]


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


def records_queued(
    which: Any, prepare: Callable[[Any], Any], compute: Callable[[Any], Sequence[Row]], n: int
) -> Records:
    """Compute some named rows for each number in `which` as `compute_queued` does."""
    columns: dict[Hashable, int | slice] = {}

    def rows(given: Any) -> list[list[Scalar]]:
        computed = compute(given)
        columns.update(_columns(computed[0]))
        return [_flat(row) for row in computed]

    return Records(compute_queued(which, prepare, rows, n), columns)


def _flat(row: Row) -> list[Scalar]:
    return [x for part in row.values() for x in (part if isinstance(part, list) else [part])]


def _columns(row: Row) -> dict[Hashable, int | slice]:
    columns: dict[Hashable, int | slice] = {}
    n = 0
    for name, part in row.items():
        columns[name] = slice(n, n + len(part)) if isinstance(part, list) else n
        n += len(part) if isinstance(part, list) else 1
    return columns
