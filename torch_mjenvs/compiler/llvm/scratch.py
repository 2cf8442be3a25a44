"""Scratch memory of a GPU, where arrays stand that are too large for the memory of each thread.

CUDA reserves a thread's own ("local") memory for all threads that the GPU can hold at once, however few there are.
Scratch memory is allocated for the worlds of a launch.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from .gpu import Gpu

Arrays = Mapping[str, tuple[int, str]]  # by name: the size, and the type of what is in it
BYTES = {"double": 8, "float": 4, "i32": 4, "i1": 1}  # of each type; the widest first, so that all are aligned
NOTE = "// scratch memory: {} bytes a world"  # a comment in the kernel's PTX


def size_of(arrays: Arrays) -> int:
    """Return how many bytes a thread's arrays take."""
    return -(-sum(n * BYTES[of] for n, of in arrays.values()) // 8) * 8


def note(arrays: Arrays) -> str:
    """Return the line of IR that notes the size of a thread's arrays in the kernel's PTX."""
    return f'module asm "{NOTE.format(size_of(arrays))}"'


def scratch_bytes(ptx: str) -> int:
    """Return how many bytes of scratch memory the kernel with this PTX needs for each world: 0 if its arrays are not
    there. It needs them for whole warps.
    """
    found = re.search(re.escape(NOTE).replace(r"\{\}", r"(\d+)"), ptx)
    return int(found[1]) if found else 0


def places(arrays: Arrays, gpu: Gpu) -> list[str]:
    """Return lines of IR that find, in the memory at %scratch, the arrays of the thread that is number %place of its
    launch.

    The entries of a warp's threads are side by side, so that threads which read the same entry read one line of memory.
    """
    size = size_of(arrays)
    lines = [
        f"%warps = udiv i64 %place, {gpu.warp}", f"%lane = urem i64 %place, {gpu.warp}",
        f"%offset = mul i64 %warps, {gpu.warp * size}",
        f"%warp = getelementptr i8, {gpu.shared} %scratch, i64 %offset",
    ]  # fmt: skip
    before = 0
    for kind, width in BYTES.items():
        of_kind = {name: n for name, (n, of) in arrays.items() if of == kind}
        if of_kind:
            lines.append(f"%lane.{kind} = getelementptr {kind}, {gpu.shared} %warp, i64 %lane")
        for name, n in of_kind.items():
            lines.append(f"{name}.at = getelementptr i8, {gpu.shared} %lane.{kind}, i64 {gpu.warp * before}")
            lines.append(f"{name} = addrspacecast {gpu.shared} {name}.at to {gpu.own}")
            before += n * width
    return [f"  {line}" for line in lines]
