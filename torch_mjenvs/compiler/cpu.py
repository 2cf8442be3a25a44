"""Build a program for this machine's processor, keep the object code on disk, and run it over torch tensors.

program = record("axpy", [Buffer("x", 3), Buffer("y", 3)], lambda b: {"y": [2.0 * x for x in b["x"]]}, "float32")
launch = build(program).bind({"x": x, "y": y})     # tensors of shape (3, padded(n)), or (padded(n), 3) with rows
launch()
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import llvmlite.binding as llvm
import torch

from . import build as building
from . import cache, fork, launch, loader, source
from .llvm import render
from .program import Buffer, Program, collector_paused

TILES_A_THREAD = 4  # with fewer, a team costs more than it brings


@dataclass(frozen=True)
class Target:
    """What code is made for: an LLVM triple, processor and features, and the bytes of its vectors."""

    triple: str
    cpu: str
    features: str
    vector_bytes: int

    def machine(self) -> llvm.TargetMachine:
        return loader.machine(self.triple, self.cpu, self.features)


@functools.cache
def host() -> Target:
    """This machine: AVX-512, AVX2, or the 16 bytes that SSE and NEON have."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    features = llvm.get_host_cpu_features()
    width = 64 if features.get("avx512f") else 32 if features.get("avx2") else 16
    return Target(llvm.get_process_triple(), llvm.get_host_cpu_name(), features.flatten(), width)


# One call takes `chunk` tiles at a time off a shared counter until none are left, so that a thread that the machine
# holds up does not hold up the others. The job is {buffers, counter, tiles, chunk, worlds allocated, times}.
_DRIVER = """
define void @kernel(ptr %job) nounwind {{
entry:
  %buffers = load ptr, ptr %job
  %at1 = getelementptr i64, ptr %job, i64 1
  %counter = load ptr, ptr %at1
  %at2 = getelementptr i64, ptr %job, i64 2
  %tiles = load i64, ptr %at2
  %at3 = getelementptr i64, ptr %job, i64 3
  %chunk = load i64, ptr %at3
  %at4 = getelementptr i64, ptr %job, i64 4
  %worlds = load i64, ptr %at4
  %at5 = getelementptr i64, ptr %job, i64 5
  %times = load i64, ptr %at5
  br label %grab
grab:
  %first = atomicrmw add ptr %counter, i64 %chunk monotonic
  %some = icmp slt i64 %first, %tiles
  br i1 %some, label %work, label %exit
work:
  %end = add i64 %first, %chunk
  %last = call i64 @llvm.smin.i64(i64 %end, i64 %tiles)
  br label %next
next:
  %tile = phi i64 [ %first, %work ], [ %following, %latch ]
  %world = mul i64 %tile, {lanes}
  br label %again
again:
  %done = phi i64 [ 0, %next ], [ %more, %again ]
  call void @tile(ptr %buffers, i64 %world, i64 %worlds)
  %more = add i64 %done, 1
  %repeated = icmp slt i64 %more, %times
  br i1 %repeated, label %again, label %latch
latch:
  %following = add i64 %tile, 1
  %left = icmp slt i64 %following, %last
  br i1 %left, label %next, label %grab
exit:
  ret void
}}
"""


def lanes_of(dtype: str, target: Target) -> int:
    return target.vector_bytes // (4 if dtype == "float32" else 8)


def compile_object(program: Program, target: Target) -> bytes:
    """Object code that holds `kernel`, from the cache on disk or made now.

    The key is the code itself, so a change of model, task, compiler or machine finds nothing stale.
    """
    ir = assembly(program, target)
    return cache.kept_or_made(program.name, f"{_toolchain(target)}\n{ir}", lambda: _assemble(ir, target))


def assembly(program: Program, target: Target) -> str:
    """The whole module as LLVM IR."""
    lanes = lanes_of(program.dtype, target)
    with collector_paused():
        tile = render(program, lanes)
    return f'target triple = "{target.triple}"\n{tile}\n{_DRIVER.format(lanes=lanes)}'


def _assemble(ir: str, target: Target) -> bytes:
    module = llvm.parse_assembly(ir)
    module.verify()
    return target.machine().emit_object(module)


def _toolchain(target: Target) -> str:
    code = source.digest_of(_assemble, Target.machine, loader.machine)
    return f"{'.'.join(map(str, llvm.llvm_version_info))} {loader.OPTIONS} {target} {code}"


class Kernel(launch.Kernel):
    """Machine code for this processor."""

    def __init__(self, name: str, buffers: Sequence[Buffer], dtype: str, code: bytes, lanes: int):
        super().__init__(name, buffers, dtype, torch.device("cpu"))
        self.lanes, self.code_bytes = lanes, len(code)
        self._loaded = loader.Loaded(code, "kernel", host().triple)
        self.address = self._loaded.address
        self.call = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self.address)

    def launcher(self, tensors: Sequence[torch.Tensor], worlds: int) -> Callable[[int], None]:
        return _Run(self, tensors, worlds)


class _Run:
    """The kernel with everything that it is called with."""

    def __init__(self, kernel: Kernel, tensors: Sequence[torch.Tensor], worlds: int):
        self._kernel = kernel
        self._pointers = (ctypes.c_void_p * len(tensors))(*[x.data_ptr() for x in tensors])
        self._counter = ctypes.c_int64(0)
        self._tiles = worlds // kernel.lanes
        places = ctypes.addressof(self._pointers), ctypes.addressof(self._counter)
        self._job = (ctypes.c_int64 * 6)(*places, self._tiles, 1, worlds, 1)
        self._job_address = ctypes.addressof(self._job)

    def __call__(self, times: int) -> None:
        """On as many threads as torch uses."""
        threads = max(1, min(torch.get_num_threads(), self._tiles // TILES_A_THREAD))
        self._counter.value = 0
        self._job[3] = max(1, self._tiles // (16 * threads))
        self._job[5] = times
        if threads == 1:
            self._kernel.call(self._job_address)
        elif (team := _team()) is not None:
            team(self._kernel.address, self._job_address, threads, 0)
        else:
            helpers = [_pool().submit(self._kernel.call, self._job_address) for _ in range(threads - 1)]
            self._kernel.call(self._job_address)
            for helper in helpers:
                helper.result()


@functools.cache
def _team() -> Callable[[int, int, int, int], None] | None:
    """Start a function on a team of OpenMP threads: torch's own.

    They stand ready within microseconds, and, unlike threads of ours, are not kept from the cores by torch's, which
    wait for more work by spinning. None where torch's OpenMP does not have GNU's entry.
    """
    try:
        start = ctypes.CDLL(None).GOMP_parallel
    except (AttributeError, OSError):
        return None
    start.argtypes, start.restype = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint], None
    return start


@functools.cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=os.cpu_count() or 1, thread_name_prefix="torch_mjenvs")


fork.prepare()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)


def back_end() -> building.BackEnd:
    """This machine."""
    target = host()

    def load(name: str, buffers: Sequence[Buffer], dtype: str, code: bytes) -> Kernel:
        return Kernel(name, buffers, dtype, code, lanes_of(dtype, target))

    return building.BackEnd(
        "cpu",
        torch.device("cpu"),
        _toolchain(target),
        lambda program: assembly(program, target),
        lambda ir: _assemble(ir, target),
        load,
    )


def build(program: Program) -> launch.Kernel:
    """Compile for this machine (or find it compiled) and load."""
    return building.build(back_end(), program)
