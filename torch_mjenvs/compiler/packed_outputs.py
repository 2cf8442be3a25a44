"""Buffers that share one allocation, so that one copy, on a GPU one launch, hands out all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.utils.dlpack

from .launch import mark_static_address, padded


class PackedOutputs:
    """Rows of one number per world, and after them rows of one flag per world.

    `buffers` are (rows, padded(worlds)) tensors by name, all zeros. To torch each has a memory of its own, which is
    what DLPack is for here: if they were views of one tensor, a write to one would be, to torch's compiler, a write to
    all.

    numbers: how many rows of `dtype` each name has. flags: names of one row of bool each.
    """

    def __init__(
        self, numbers: Mapping[str, int], flags: Sequence[str], worlds: int, dtype: torch.dtype, device: torch.device
    ):
        across, rows = padded(worlds), sum(numbers.values())  # whole numbers fill the rows of flags
        self._block = torch.zeros(across * (rows + len(flags) // dtype.itemsize + 1), dtype=dtype, device=device)
        self._numbers = (rows, worlds), (across, 1), 0  # size, strides and offset, without padding
        self._flags = (len(flags), worlds), (across, 1), rows * across * dtype.itemsize
        of_numbers = self._block[: rows * across].view(rows, across)
        of_flags = self._block[rows * across :].view(torch.bool).view(-1, across)[: len(flags)]
        views = [*torch.split(of_numbers, list(numbers.values())), *torch.split(of_flags, 1)]
        parts = zip([*numbers, *flags], views, strict=True)
        self.buffers = {name: mark_static_address(torch.utils.dlpack.from_dlpack(x)) for name, x in parts}

    def copied(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return fresh copies of all rows of numbers, (rows, worlds), and of flags. Not for code that torch compiles:
        it does not know that a launch writes here.

        The flags have a memory of their own to torch, which saves no two tensors of one memory and different types.
        """
        block = self._block.clone()
        dlpack: Any = torch.utils.dlpack
        flags = dlpack.to_dlpack(block.view(torch.bool).as_strided(*self._flags))  # twice as fast as with the tensor
        return block.as_strided(*self._numbers), dlpack.from_dlpack(flags)
