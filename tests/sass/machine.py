"""Runs a kernel's machine code on the CPU: assembled by ptxas, disassembled by nvdisasm, executed warp by warp.

As on a device, an access that is misaligned, outside the given buffers or a thread's own stack, or a store into a table
of constants is an error that names the instruction. What nobody wrote is all ones, which as a float is NaN.

The emulator is C++ (`warp.cc`), compiled once by the machine's own compiler into the folder `build`.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from ptx import scratch_of

from benchmarks import cuda_code
from torch_mjenvs.compiler.llvm import NVIDIA, scratch_bytes

from .decode import SIZE, SassError, decode

HERE = Path(__file__).resolve().parent
BUILD = HERE.parents[1] / "build"
SOURCES = ("warp.h", "warp.cc", "multiprocessor.cc")
# Nothing may be contracted into an fma that is none, or computed as if traps or modes of rounding did not matter.
FLAGS = ("-std=c++20", "-O2", "-ftree-vectorize", "-march=native", "-ffp-contract=off", "-fno-trapping-math")


def missing() -> str | None:
    """What this machine lacks to run machine code, in words; None: nothing."""
    for name, package in (("ptxas", "nvidia-cuda-nvcc"), ("nvdisasm", "nvidia-cuda-nvdisasm")):
        if cuda_code.tool(name) is None:
            return f"the package {package}, which has {name}, is not installed"
    return None if compiler() else "there is no C++ compiler"


def compiler() -> str | None:
    return shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")


ALIGNMENT = 512  # bytes


class _Launch(ctypes.Structure):
    """`Launch` of warp.h."""

    _fields_ = [
        ("code", ctypes.c_void_p), ("instructions", ctypes.c_uint64), ("stack", ctypes.c_uint32),
        ("threads", ctypes.c_uint32), ("parameters", ctypes.c_void_p), ("parameter_count", ctypes.c_uint64),
        ("bank4", ctypes.c_void_p), ("bank4_count", ctypes.c_uint64), ("ranges", ctypes.c_void_p),
        ("range_count", ctypes.c_uint64), ("shared", ctypes.c_uint64),
    ]  # fmt: skip


SPENT = (
    "cycles", "issued", "active", "busiest", "issue_slots", "fetch_slots", "barrier_slots", "stall_slots", "unit_slots",
    "meeting_slots", "empty_slots", "fetch_waits", "barrier_waits", "stall_waits", "unit_waits", "meeting_waits",
    "branch_waits", "l1_accesses", "l1_misses", "l2_read", "written", "dram_bytes", "dram_read", "fetched_bytes",
    "branches", "jumps", "l0_misses", "icache_misses",
)  # fmt: skip


@functools.cache
def library() -> ctypes.CDLL:
    """The emulator, compiled if it has not been since its sources changed."""
    texts = b"".join((HERE / name).read_bytes() for name in SOURCES) + repr(FLAGS).encode()
    path = BUILD / f"sass-{hashlib.sha256(texts).hexdigest()[:16]}.so"
    if not path.exists():
        BUILD.mkdir(exist_ok=True)
        mine = path.with_suffix(f".{os.getpid()}")
        sources = [str(HERE / name) for name in SOURCES if name.endswith(".cc")]
        subprocess.run([compiler() or "c++", *FLAGS, "-shared", "-fPIC", *sources, "-o", str(mine)], check=True)
        mine.replace(path)  # whole, whoever else compiles it now
    loaded = ctypes.CDLL(str(path))
    place, u32, u64 = ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint64
    loaded.sass_operation.restype, loaded.sass_operation.argtypes = ctypes.c_char_p, [ctypes.c_int]
    loaded.sass_run.argtypes = [place, u32, place, place, place, place, u64]
    loaded.sass_time.argtypes = [place, place, u32, u32, u32, place, place, u64]
    return loaded


@functools.cache
def operations() -> dict[str, int]:
    """The emulator's numbers of operations."""
    names = iter(lambda: library().sass_operation(len(found)), None)
    found: dict[str, int] = {}
    for name in names:
        found[name.decode()] = len(found)
    return found


def aligned(x: torch.Tensor) -> torch.Tensor:
    """A copy at a multiple of 512 bytes, where torch puts each tensor on a GPU. The CPU's own begin anywhere in a cache
    line, in each process somewhere else, and how long accesses take on the model depends on it.
    """
    room = torch.empty(x.nbytes + ALIGNMENT, dtype=torch.uint8)
    start = -room.data_ptr() % ALIGNMENT
    return room[start : start + x.nbytes].view(x.dtype).view(x.shape).copy_(x)


class Machine:
    """A kernel's machine code. `code` is as decoded; after a launch `issued` are the instructions that warps issued,
    `active` the threads that these were for, `visits` how often each was issued, and `fewest` how many had to be, by
    the thread that came to each most often: as many as were issued if threads that part always met again at once.
    """

    def __init__(self, ptx: str):
        self.code, self.scratch = decode(ptx, operations()), scratch_bytes(ptx)
        self._tables = aligned(torch.from_numpy(np.frombuffer(self.code.tables, np.uint8).copy())).numpy()
        self._bank4 = np.array([self._tables.ctypes.data + at for at in self.code.addresses], np.uint64)
        self.issued = self.active = self.fewest = 0
        self.visits = np.zeros(len(self.code.instructions), np.uint64)

    def _launch(
        self, tensors: Sequence[torch.Tensor], last: int, threads: int = NVIDIA.warp, shared: int = 0
    ) -> tuple[_Launch, list]:
        """The arguments of a launch over a kernel's buffers, and what they point to; `last` is the last argument."""
        tensors = [*tensors, *scratch_of(self.scratch, last)]
        values = np.array([*(x.data_ptr() for x in tensors), *([0] if self.scratch else []), last], np.uint64)
        ranges = [(x.data_ptr(), x.data_ptr() + x.numel() * x.element_size(), 1) for x in tensors]
        ranges.append((self._tables.ctypes.data, self._tables.ctypes.data + len(self._tables), 0))
        bounds = np.array(ranges, np.uint64)
        code = self.code.instructions
        made = _Launch(
            code.ctypes.data, len(code), self.code.stack, threads, values.ctypes.data, len(values),
            self._bank4.ctypes.data, len(self._bank4), bounds.ctypes.data, len(bounds), shared,
        )  # fmt: skip
        return made, [values, bounds, tensors]

    def launch(self, tensors: Sequence[torch.Tensor], worlds: int, threads: int = NVIDIA.warp) -> None:
        """Run the kernel over its buffers as `cuda` launches it, in blocks of so many threads.

        Raises SassError for what a device would refuse.
        """
        self._run(*self._launch(tensors, worlds, threads), -(-worlds // threads))

    def launch_blocks(self, tensors: Sequence[torch.Tensor], last: int, blocks: int, threads: int, shared: int) -> None:
        """Run so many blocks of so many threads, with so many bytes of shared memory each."""
        self._run(*self._launch(tensors, last, threads, shared), blocks)

    def _run(self, launch: _Launch, held: list, blocks: int) -> None:
        counts = (ctypes.c_uint64 * 3)()
        where, message = ctypes.c_uint32(), ctypes.create_string_buffer(200)
        self.visits[:] = 0
        visits = self.visits.ctypes.data
        failed = library().sass_run(
            ctypes.byref(launch), blocks, visits, counts, ctypes.byref(where), message, len(message)
        )
        del held
        if failed:
            raise self.fault(where.value, message.value.decode())
        self.issued, self.active, self.fewest = counts

    def time(
        self,
        tensors: Sequence[torch.Tensor],
        worlds: int,
        chip: Sequence[float],
        first: int,
        warps: int,
        resident: int,
        threads: int = NVIDIA.warp,
    ) -> dict[str, int]:
        """Run `warps` warps from the `first` on as one multiprocessor would, in blocks of so many threads, `resident`
        warps at once, on the model of `multiprocessor.cc`; what that took, by the names of SPENT. `chip` are the
        numbers of its `Chip`. Of blocks there are whole ones only.
        """
        launch, held = self._launch(tensors, worlds, threads)
        numbers, spent = (ctypes.c_double * len(chip))(*chip), (ctypes.c_uint64 * len(SPENT))()
        message = ctypes.create_string_buffer(200)
        failed = library().sass_time(
            ctypes.byref(launch), numbers, first, warps, resident, spent, message, len(message)
        )
        del held
        if failed:
            raise SassError(message.value.decode())
        return dict(zip(SPENT, spent, strict=True))

    def fault(self, address: int, message: str) -> SassError:
        return SassError(f"{self.code.text[address // SIZE]!r} at {address:#x}, {message}")
