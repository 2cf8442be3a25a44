"""Tables of constants that each world reads at a row of its own: in a kernel they stand once, whoever reads them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from .expr import Expr, node
from .scalar import Scalar, maximum, minimum


class Constants:
    """Rows of so many floats. One of no rows has one of zeros."""

    def __init__(self, rows: Sequence[Sequence[float]], columns: int):
        self.columns = columns
        self.values = tuple(float(x) for row in rows for x in row) or (0.0,) * columns
        self._last = len(self.values) // columns - 1

    def at(self, row: Scalar, columns: Sequence[int] = (0,)) -> list[Scalar]:
        """What these columns of a row hold. It is a whole number as a float; one that is not there gives another's."""
        held = maximum(minimum(row, float(self._last)), 0.0)
        if type(held) is Expr:
            first: Any = node("f2i", held)
            first = first if self.columns == 1 else node("imul", first, self.columns)
            return [node("entry", node("iadd", first, c) if c else first, attr=self) for c in columns]
        if isinstance(held, torch.Tensor):
            values = torch.tensor(self.values, dtype=held.dtype, device=held.device).reshape(-1, self.columns)
            return [values[held.long(), c] for c in columns]
        return [self.values[int(held) * self.columns + c] for c in columns]
