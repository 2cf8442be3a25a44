"""Rooms: memories that loops change, where each world reads and puts rows of its own.

What an algorithm keeps lists in whose lengths differ from world to world. A row is known by a whole number as a float,
of each world's own, or by the counter that all worlds of a loop share, at which reading is cheaper. An iteration
puts at its end: what it reads is what was there before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from .expr import Expr, fresh, is_tracing, node
from .forms import OwnPut, Shape
from .scalar import Mask, Scalar, logical_and, maximum, minimum


class Room:
    """Rows of so many numbers. Those that are not given are unspecified until they are put."""

    def __init__(self, rows: int, columns: int, first: Sequence[Sequence[Scalar]] = ()):
        self.shape = Shape(rows, columns)
        self._pending: list[tuple[Scalar, Sequence[Scalar], Mask]] = []
        self.held: Any
        if is_tracing():
            self.held = fresh("memory", *(x for row in first for x in row), attr=self.shape)
        else:
            self.held = [*map(list, first), *([0.0] * columns for _ in range(rows - len(first)))]

    def at(self, row: Any, columns: Sequence[int]) -> list[Scalar]:
        """What these columns of a row hold."""
        if type(self.held) is Expr:
            own = type(row) is Expr and row.type == "f"
            row = self._own(row)
            return [node("pick" if own else "get", self.held, row, attr=c) for c in columns]
        if isinstance(row, torch.Tensor):
            self._make_tensor(row)
            k, worlds = row.long().clamp(0, self.shape.rows - 1), torch.arange(len(row))
            return [self.held[k, c, worlds] for c in columns]
        k = self._own(row)
        return [self.held[k][c] + 0.0 for c in columns]

    def put(self, row: Any, values: Sequence[Scalar], where: Mask | None = True) -> None:
        """Have the row hold these values at the end of the iteration, in the worlds of the mask.

        None: also in those that the loop does not concern, where nobody reads them.
        """
        self._pending.append((row, values, where))

    # for loops

    def enter(self) -> None:
        """An iteration begins: what it reads is not what is known from before the loop."""
        assert not self._pending, "what a loop puts into a room, and what the code around it does, are two things"
        if is_tracing():
            self.held = fresh("version", self.held, attr=self.shape)

    def puts(self) -> list[OwnPut]:
        """What the iteration puts."""
        found = [
            OwnPut(self.held, self._own(row), c, where, x)
            for row, values, where in self._pending
            for c, x in enumerate(values)
        ]
        self._pending = []
        return found

    def leave(self, before: Any, form: Expr) -> None:
        """The loop is over: what is read from now on is what it left."""
        self.held = fresh("filled", before, form, attr=self.shape)

    def do_puts(self, active: Mask) -> None:
        """The same at once, for floats and tensors."""
        for row, values, where in self._pending:
            mask = active if where is None else logical_and(active, where)
            tensors = [x for x in (*values, row, mask) if isinstance(x, torch.Tensor)]
            if tensors or isinstance(self.held, torch.Tensor):
                self._make_tensor(*tensors[:1])
                self._put_tensors(row, values, mask)
            elif mask:
                self.held[self._own(row)][: len(values)] = values
        self._pending = []

    def _make_tensor(self, *others: torch.Tensor) -> None:
        """From lists to a tensor (rows, columns, worlds), of the precision of its content; `others` have its worlds."""
        if isinstance(self.held, torch.Tensor):
            return
        known = [x for row in self.held for x in row if isinstance(x, torch.Tensor)]
        precise = [x.dtype for x in (*known, *others) if x.is_floating_point()]
        dtype, shape = (precise or [torch.float64])[0], (*known, *others)[0].shape
        rows = [[torch.as_tensor(x, dtype=dtype).expand(shape) for x in row] for row in self.held]
        self.held = torch.stack([torch.stack(row) for row in rows])

    def _put_tensors(self, row: Scalar, values: Sequence[Scalar], mask: Mask) -> None:
        worlds, n = self.held.shape[-1], len(values)
        new = torch.stack([torch.as_tensor(x, dtype=self.held.dtype).expand(worlds) for x in values])
        k = torch.as_tensor(row).long().clamp(0, self.shape.rows - 1).expand(worlds)
        old = self.held[k, :n, torch.arange(worlds)]
        self.held = self.held.clone()
        self.held[k, :n, torch.arange(worlds)] = torch.where(torch.as_tensor(mask).expand(worlds)[:, None], new.T, old)

    def _own(self, row: Scalar) -> Any:
        """The row as an integer. One of each world's own is in the room, whatever it is."""
        if type(row) is not Expr:
            return min(max(int(row), 0), self.shape.rows - 1)
        if row.type == "s":
            return row
        return node("f2i", maximum(minimum(row, float(self.shape.rows - 1)), 0.0))


def number(i: Any) -> Scalar:
    """The counter of a loop as a scalar."""
    return node("spread", i) if type(i) is Expr else float(i)
