"""Numbers that are read at a place known only when a kernel runs: a `Table` of constants, or an `Array` per world.

Both are indexed like NumPy's arrays: `x[row]`, `x[row, column]`, `x[row, first:end]`. One entry is a scalar, several
are a list. Columns are plain integers. The row is either

- shared by all worlds: a Python int, the counter of a loop, or an entry of a table of ints. It must exist;
- per world: a whole number as a scalar. If there is no such row, the nearest one is read. (But the number of a queue's
  entry must be that of an existing row.)

All of it means the same for floats, torch tensors and traced values.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from .expr import Expr, fresh, is_tracing, node, once
from .region_ops import OwnPut, Shape
from .scalar import Mask, Scalar, logical_and, maximum, minimum

WHOLE = (2, 4)  # columns of tables whose rows, where each world has its own, are read as a whole


class Table:
    """Constants that are the same in all worlds: a kernel holds them once, however often they are read.

    `rows` are numbers, or lists of numbers of one length. `columns` is that length; give it if there may be no rows: a
    table without rows has one row of zeros. A table of ints holds indices: it is read at a shared row, and its entries
    are shared rows again.
    """

    def __init__(self, rows: Sequence[Any], columns: int | None = None):
        self.columns = _columns_of(rows) if columns is None else columns
        values = tuple(x for row in rows for x in row) if self.columns else tuple(rows)
        values = values or (0.0,) * (self.columns or 1)
        self.type = "s" if all(type(x) is int for x in values) else "f"
        self.values = values if self.type == "s" else tuple(map(float, values))

    def __getitem__(self, index: Any) -> Any:
        row, columns = _split(index, self.columns)
        if self.type == "s" and not _is_shared(row):
            raise TypeError("a table of ints is read at a row that all worlds share: for a world's own, use floats")
        dtype = row.dtype if isinstance(row, torch.Tensor) else None
        place = _place(row, len(self.values) // (self.columns or 1))
        if isinstance(columns, int):
            return self._entry(place, columns, dtype)
        if self.columns in WHOLE and len(columns) > 1 and type(place) is Expr and place.type == "i":
            read = node("row", place, attr=self)
            return [node("column", read, attr=c) for c in columns]
        return [self._entry(place, c, dtype) for c in columns]

    __iter__ = None  # else Python would ask for rows 0, 1, ..., and never end while tracing

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Table) and self._key == other._key)

    def __hash__(self) -> int:
        return self._hash

    @property
    def _key(self) -> tuple[Any, ...]:
        return self.type, self.columns, self.values

    @functools.cached_property
    def _hash(self) -> int:
        return hash(self._key)

    def _entry(self, place: Any, column: int, dtype: torch.dtype | None) -> Any:
        width = self.columns or 1
        if isinstance(place, torch.Tensor):
            return torch.tensor(self.values, dtype=dtype, device=place.device)[place * width + column]
        if type(place) is not Expr:
            return self.values[place * width + column]
        if place.type == "s":  # a column is a table by itself
            values = self.values[column::width]
            if len(set(values)) == 1:
                return values[0]
            return node("lookup", place, attr=self if width == 1 else Table(values), type_=self.type)
        first = place if width == 1 else node("imul", place, width)
        return node("lookup", node("iadd", first, column) if column else first, attr=self, type_="f")


class BufferTable:
    """The numbers of a buffer that is a table: a `Table` whose `rows` numbers come with the launch, not with the code.

    So a kernel does not grow with its textures and meshes. It is read like a `Table`, at a row per world.
    """

    def __init__(self, buffer: int, rows: int, type_: str = "f"):
        self.buffer, self.rows, self.type = buffer, rows, type_

    def __getitem__(self, row: Any) -> Scalar:
        return self._at(_place(row, self.rows))

    def bytes(self, first: int, columns: int, row: Expr) -> list[list[Scalar]]:
        """Return the bytes of a row of integers per world: four for each integer, 0 to 255, the lowest first.

        The rows have `columns` integers each, and the first row begins at `first`. row: a 32-bit integer, the number of
        a row that exists.
        """
        place = row if columns == 1 else node("imul", row, columns)
        return [_bytes(self._at(node("iadd", place, first + k))) for k in range(columns)]

    def _at(self, place: Any) -> Scalar:
        return node("fetch", place, attr=(self.buffer,), type_=self.type)

    __iter__ = None  # as of a `Table`


class RowTable:
    """The numbers of a `BufferTable` in rows, as a task reads them: whatever row a world asks for, there is an answer.

    `shape` begins with the number of rows. `x[row]` is a number, or lists nested by the rest of the shape, and what
    follows the row in `x[row, ...]` chooses among them as in NumPy.
    """

    def __init__(self, numbers: Any, shape: Sequence[int]):
        self._numbers, self.shape = numbers, tuple(shape)
        self._columns = np.arange(math.prod(self.shape[1:])).reshape(self.shape[1:])

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: Any) -> Any:
        row, *others = index if isinstance(index, tuple) else (index,)
        columns, place = self._columns[tuple(others)].tolist(), self._place(row)
        return _mapped(lambda c: self._entry(place, c), columns)

    def _place(self, row: Any) -> Any:
        """Return the row as an index. Raises TypeError if it is no number, IndexError for a whole number of Python's
        or NumPy's that no row has.
        """
        if type(row) is Expr and row.type == "s":  # a loop's counter, which may go further
            row = node("spread", row)
        if isinstance(row, (int, np.integer)) and not isinstance(row, bool):
            if not 0 <= row < len(self):
                raise IndexError(f"there is no row {row} in a table of {len(self)} rows")
            return int(row)
        mask = row.dtype == torch.bool if isinstance(row, torch.Tensor) else type(row) is Expr and row.type == "b"
        if mask or not isinstance(row, (float, torch.Tensor, Expr)):
            what = "a mask" if mask else f"a {type(row).__name__}"
            raise TypeError(f"a table is read at one row, which is a number, not {what}: table[row], table[row, 2:5]")
        return _place(row, len(self))

    def _entry(self, place: Any, column: int) -> Scalar:
        width = self._columns.size
        if isinstance(place, int):
            return self._numbers._at(place * width + column)
        first = place if width == 1 else node("imul", place, width)
        return self._numbers._at(node("iadd", first, column) if column else first)

    __iter__ = None  # as of a `Table`


class NumberTable(RowTable):
    """A table of the numbers of a NumPy array, for floats and torch tensors: as `World.tables` has them in kernels."""

    def __init__(self, numbers: np.ndarray):
        super().__init__(numbers.reshape(len(numbers), -1), numbers.shape)

    def _entry(self, place: Any, column: int) -> Scalar:
        if isinstance(place, torch.Tensor):
            return torch.as_tensor(self._numbers, device=place.device)[place, column]
        return float(self._numbers[place, column])


def _mapped(function: Callable[[int], Scalar], columns: Any) -> Any:
    return [_mapped(function, x) for x in columns] if isinstance(columns, list) else function(columns)


def _bytes(x: Any) -> list[Scalar]:
    shifted = [x, *(node("lshr", x, 8 * k) for k in (1, 2, 3))]
    return [node("i2f", y if k == 3 else node("iand", y, 255)) for k, y in enumerate(shifted)]


class Array:
    """Numbers per world, in rows, which loops may change.

    `first` is what the first rows hold: numbers, or lists of numbers of one length. There are `rows` rows, by default
    as many as in `first`. If `first` is empty, each row has `columns` numbers, or is a single number. Entries that are
    not given are unspecified until they are put.

    What a loop puts is visible from its next iteration on: an iteration reads the values from when it began. The loop
    must be told which arrays it changes: see `count_while`.
    """

    def __init__(self, first: Sequence[Any] = (), rows: int | None = None, columns: int | None = None):
        self.columns = _columns_of(first) if first else columns
        width = self.columns or 1
        self.rows = len(first) if rows is None else rows
        self._pending: list[tuple[Any, Sequence[Scalar], Mask | None]] = []
        self._loops: list[Mask] = []  # those that change it and are running or being traced: the worlds of each
        filled = [list(row) for row in first] if self.columns else [[x] for x in first]
        self.held: Any
        if is_tracing():
            self.held = fresh("array", *(x for row in filled for x in row), attr=Shape(self.rows, width))
        else:
            self.held = [*filled, *([0.0] * width for _ in range(self.rows - len(filled)))]

    @staticmethod
    def fixed(rows: Sequence[Sequence[Scalar]]) -> Array:
        """Return an array of these rows that no loop changes: the one that was made of them before, if there is one."""
        made: Array = once(("array", *map(tuple, rows)), lambda: Array(rows))
        return made

    def __getitem__(self, index: Any) -> Any:
        row, columns = _split(index, self.columns)
        place = _place(row, self.rows)
        return self._entry(place, columns) if isinstance(columns, int) else [self._entry(place, c) for c in columns]

    __iter__ = None  # as of a `Table`

    def put(self, row: Any, values: Any, where: Mask | None = True) -> None:
        """Make the row, or its first columns if there are fewer values, hold these values after this iteration.

        This applies to the worlds of the mask. None: it may also apply to worlds that the loop does not concern, which
        must not read the row. Raises ValueError outside of a loop that was told of the array, as the values would be
        lost.
        """
        if not self._loops:
            raise ValueError("a row is put into an array that no loop around was told of: see `count_while`")
        self._pending.append((row, values if self.columns else [values], where))

    def _entry(self, place: Any, column: int) -> Scalar:
        if type(self.held) is Expr:
            return node("get", self.held, place, attr=column)
        if isinstance(place, torch.Tensor):
            self._make_tensor(place)
            own: torch.Tensor = self.held[place, column, torch.arange(len(place), device=place.device)]
            return own
        shared: Scalar = self.held[place][column]
        return shared

    # for loops

    def take_shape(self, rows: int, columns: int) -> None:
        """Set the numbers of rows and columns of an array that was made without them."""
        self.rows, self.columns, self.held.attr = rows, columns, Shape(rows, columns)

    def set_row(self, row: int, values: Sequence[Scalar]) -> None:
        """Make the row hold these values from now on, on floats or tensors."""
        self.columns = len(values)
        self.held += [[0.0] * len(values)] * (row + 1 - len(self.held))
        self.held[row], self.rows = list(values), len(self.held)

    def enter(self, active: Mask = True) -> None:
        """Begin an iteration for these worlds, and forget the values known from before the loop: an iteration may have
        changed them.
        """
        assert not self._pending, "what a loop puts into an array, and what the code around it does, are two things"
        self._loops.append(active)
        if is_tracing():
            self.held = fresh("version", self.held, attr=self.held.attr)

    def puts(self) -> list[OwnPut]:
        """End an iteration that is traced, and return all that it puts."""
        found = []
        for row, values, where in self._pending:
            place = _place(row, self.rows)
            found += [OwnPut(self.held, place, c, where, x) for c, x in enumerate(values)]
        self._pending = []
        self._loops.pop()
        return found

    def leave(self, before: Any, region_op: Expr) -> None:
        """End a traced loop: from now on, reads return what it left."""
        self.held = fresh("filled", before, region_op, attr=before.attr)

    def do_puts(self) -> None:
        """End an iteration on floats or tensors: do its puts now, in the worlds that it is for."""
        active = logical_and(*self._loops)
        for row, values, where in self._pending:
            mask = active if where is None else logical_and(active, where)
            tensors = [x for x in (*values, row, mask) if isinstance(x, torch.Tensor)]
            if tensors or isinstance(self.held, torch.Tensor):
                self._make_tensor(*tensors[:1])
                self._put_tensors(row, values, mask)
            elif mask:
                self.held[_place(row, self.rows)][: len(values)] = values
        self._pending = []
        self._loops.pop()

    def _make_tensor(self, *others: torch.Tensor) -> None:
        """Turn lists into a tensor (rows, columns, worlds) as precise as their content, of the worlds of `others`."""
        if isinstance(self.held, torch.Tensor):
            return
        known = [x for row in self.held for x in row if isinstance(x, torch.Tensor)]
        precise = [x.dtype for x in (*known, *others) if x.is_floating_point()]
        dtype, like = (precise or [torch.float64])[0], (*known, *others)[0]

        def spread(x: Any) -> torch.Tensor:
            return torch.as_tensor(x, dtype=dtype, device=like.device).expand(like.shape)

        self.held = torch.stack([torch.stack([spread(x) for x in row]) for row in self.held])

    def _put_tensors(self, row: Scalar, values: Sequence[Scalar], mask: Mask) -> None:
        worlds, n, device = self.held.shape[-1], len(values), self.held.device
        new = torch.stack([torch.as_tensor(x, dtype=self.held.dtype, device=device).expand(worlds) for x in values])
        k = torch.as_tensor(_place(row, self.rows), device=device).expand(worlds)
        every = torch.arange(worlds, device=device)
        old = self.held[k, :n, every]
        self.held = self.held.clone()
        there = torch.as_tensor(mask, device=device).expand(worlds)[:, None]
        self.held[k, :n, every] = torch.where(there, new.T, old)


def _columns_of(rows: Sequence[Any]) -> int | None:
    """Return the length of the rows; None if they are numbers."""
    return len(rows[0]) if len(rows) and isinstance(rows[0], (list, tuple)) else None


def _split(index: Any, columns: int | None) -> tuple[Any, int | Sequence[int]]:
    """Return the row, and the column or columns, that are asked for."""
    if columns is None:
        return index, 0
    row, asked = index if isinstance(index, tuple) else (index, slice(None))
    return row, range(columns)[asked]


def _is_shared(row: Any) -> bool:
    return row.type == "s" if type(row) is Expr else isinstance(row, int)


def _place(row: Any, rows: int) -> Any:
    """Return the row as an index. If each world has its own, it is moved to the nearest row that exists."""
    if _is_shared(row) or (type(row) is Expr and row.type == "i"):
        return row
    nearest = maximum(minimum(row, float(rows - 1)), 0.0)
    if type(nearest) is Expr:
        return node("f2i", nearest)
    return nearest.long() if isinstance(nearest, torch.Tensor) else int(nearest)
