"""Stacks for the threads that run kernels: reserved address space, which becomes memory where it is touched.

They are kept and used again, the last one first, since it is still in the processor's caches.
"""

from __future__ import annotations

import ctypes
import mmap
import sys

_FLAGS: dict[str, int] = {}
if hasattr(mmap, "MAP_PRIVATE"):
    unreserved = 0x4000 if sys.platform == "linux" else 0  # MAP_NORESERVE: what is not touched does not count as used
    _FLAGS["flags"] = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | unreserved


class Stacks:
    """Stacks of this many bytes each, for this many threads."""

    def __init__(self, threads: int, stack_bytes: int):
        self.threads = threads
        try:
            self._memory = mmap.mmap(-1, threads * stack_bytes, **_FLAGS)
        except (OSError, ValueError, OverflowError) as error:
            size = f"{threads} threads, {stack_bytes} bytes each"
            raise MemoryError(f"no address space for the stacks of {size}") from error
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))


_free: dict[int, list[Stacks]] = {}


def take(threads: int, stack_bytes: int) -> Stacks:
    """Return stacks for one launch alone. Raises MemoryError if there is no room for them."""
    free = _free.setdefault(stack_bytes, [])
    try:
        found = free.pop()
    except IndexError:
        return Stacks(threads, stack_bytes)
    return found if found.threads >= threads else Stacks(threads, stack_bytes)


def give(stacks: Stacks, stack_bytes: int) -> None:
    """Give stacks back, when no thread is on them any more."""
    _free[stack_bytes].append(stacks)
