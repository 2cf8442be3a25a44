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

    `lower` turns a program into LLVM IR, and `translate` turns that into code. `begin` has other processes do so, as
    far as it can, and returns what waits for the code. `toolchain` names everything else that the code depends on.
    `load(name, buffers, dtype, code)` makes a kernel from this code, without the program. Programs for it are recorded
    under its `unroll_limit`: see `control`.
    """

    name: str
    device: torch.device
    toolchain: str
    lower: Callable[[Program], str]
    translate: Callable[[str], bytes]
    begin: Callable[[str], Callable[[], bytes]]
    load: Callable[[str, Sequence[Buffer], str, bytes], Kernel]
    unroll_limit: float
