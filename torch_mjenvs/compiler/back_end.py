"""The interface of a back end: it makes code for a device, and loads it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from .launch import Kernel
from .program import Buffer, Program


@dataclass(frozen=True)
class BackEnd:
    """A maker and loader of code for one device.

    `lower` gives the program's LLVM IR, `translate` the code of that IR. `toolchain` says all else that the code
    depends on. `load(name, buffers, dtype, code)` takes nothing but such code. Programs for it are recorded under
    its `unroll_limit`: see `control`.
    """

    name: str
    device: torch.device
    toolchain: str
    lower: Callable[[Program], str]
    translate: Callable[[str], bytes]
    load: Callable[[str, Sequence[Buffer], str, bytes], Kernel]
    unroll_limit: float
