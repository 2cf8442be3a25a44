"""Tensors in large pages of memory.

A processor keeps the places of its last few thousand pages. Frames that are taken in random order may lie in more pages
of the usual 4 kB than that, and finding a page then is a quarter of the time in which a frame of 1.5 kB is read.
"""

from __future__ import annotations

import contextlib
import math
import mmap

import torch
from torch import Tensor

PAGE = 2**21  # bytes


def zeros(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return zeros on the CPU, in large pages where Linux has some left."""
    count = math.prod(shape)
    size = count * dtype.itemsize
    if size < PAGE or not hasattr(mmap, "MADV_HUGEPAGE"):
        return torch.zeros(shape, dtype=dtype, device="cpu")
    held = mmap.mmap(-1, size + PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):  # a kernel without them
        held.madvise(mmap.MADV_HUGEPAGE)
    start = torch.frombuffer(held, dtype=torch.uint8).data_ptr()
    return torch.frombuffer(held, dtype=dtype, count=count, offset=-start % PAGE).view(shape)
