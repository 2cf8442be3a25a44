"""Build a program for this machine's processor, keep the object code on disk, and run it over torch tensors.

    program = record("axpy", [Buffer("x", 3), Buffer("y", 3)], lambda b: {"y": [2.0 * x for x in b["x"]]}, "float32")
    launch = build(program).bind({"x": x, "y": y})     # tensors of shape (3, padded(n)), or (padded(n), 3) with rows
    launch()
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import llvmlite.binding as llvm
import torch

from . import cache
from .llvm import render
from .program import Buffer, Program

PADDING = 16  # worlds are allocated in multiples of this, so that no vector is partly outside
TORCH_TYPES = {"i": torch.int32, "b": torch.bool}
DIGEST = hashlib.sha256().digest_size  # what a cached file begins with


@dataclass(frozen=True)
class Target:
    """What code is made for: an LLVM triple, processor and features, and the bytes of its vectors."""

    triple: str
    cpu: str
    features: str
    vector_bytes: int

    def machine(self) -> llvm.TargetMachine:
        return llvm.Target.from_triple(self.triple).create_target_machine(
            cpu=self.cpu, features=self.features, opt=2, reloc="pic", codemodel="default"
        )


@functools.cache
def host() -> Target:
    """This machine: AVX-512, AVX2, or the 16 bytes that SSE and NEON have."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    features = llvm.get_host_cpu_features()
    width = 64 if features.get("avx512f") else 32 if features.get("avx2") else 16
    return Target(llvm.get_process_triple(), llvm.get_host_cpu_name(), features.flatten(), width)


def padded(n: int) -> int:
    return -(-n // PADDING) * PADDING


# One call takes `chunk` tiles at a time off a shared counter until none are left, so that a thread that the machine
# holds up does not hold up the others.
_DRIVER = """
define void @kernel(ptr %buffers, ptr %counter, i64 %tiles, i64 %chunk, i64 %worlds, i64 %times) nounwind {{
entry:
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
    return f'target triple = "{target.triple}"\n{render(program, lanes)}\n{_DRIVER.format(lanes=lanes)}'


def _assemble(ir: str, target: Target) -> bytes:
    module = llvm.parse_assembly(ir)
    module.verify()
    return target.machine().emit_object(module)


def _toolchain(target: Target) -> str:
    return f"{'.'.join(map(str, llvm.llvm_version_info))} {target}"


class Kernel:
    """Loaded machine code of a program."""

    def __init__(self, name: str, buffers: Sequence[Buffer], dtype: str, code: bytes, lanes: int):
        self.name, self.buffers, self.lanes, self.code_bytes = name, tuple(buffers), lanes, len(code)
        self.float_type = getattr(torch, dtype)
        empty = llvm.parse_assembly("")
        self._engine = llvm.create_mcjit_compiler(empty, host().machine())
        self._engine.add_object_file(llvm.ObjectFileRef.from_data(code))
        self._engine.finalize_object()
        address = self._engine.get_function_address("kernel")
        self._call = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 2, *[ctypes.c_int64] * 4)(address)

    def bind(self, tensors: Mapping[str, torch.Tensor]) -> Launch:
        """Check the tensors against the program's buffers and fix their addresses.

        Raises KeyError for a missing buffer, ValueError for one of a wrong shape, dtype, device or layout.
        """
        worlds = {_check(b, tensors[b.name], self.float_type) for b in self.buffers}
        if len(worlds) != 1:
            raise ValueError(f"kernel {self.name}: buffers for different numbers of worlds: {sorted(worlds)}")
        return Launch(self, [tensors[b.name] for b in self.buffers], worlds.pop())


def _check(buffer: Buffer, x: torch.Tensor, float_type: torch.dtype) -> int:
    want = TORCH_TYPES.get(buffer.type, float_type)
    if x.dtype != want or x.device.type != "cpu" or not x.is_contiguous():
        raise ValueError(f"buffer {buffer.name!r} must be a contiguous {want} tensor on the CPU")
    size, worlds = (x.shape[1], x.shape[0]) if buffer.rows else (x.shape[0], x.shape[1])
    if size != buffer.size or worlds % PADDING:
        raise ValueError(f"buffer {buffer.name!r} of size {buffer.size} cannot be of shape {tuple(x.shape)}")
    return worlds


class Launch:
    """A kernel with its tensors: call it to run it over all worlds."""

    def __init__(self, kernel: Kernel, tensors: list[torch.Tensor], worlds: int):
        self._kernel, self._tensors = kernel, tensors
        self._pointers = (ctypes.c_void_p * len(tensors))(*[x.data_ptr() for x in tensors])
        self._counter = ctypes.c_int64(0)
        self._tiles = worlds // kernel.lanes
        self._worlds = worlds
        self._arguments = ctypes.addressof(self._pointers), ctypes.addressof(self._counter), self._tiles

    def __call__(self, times: int = 1) -> None:
        """Run the program `times` times in a row for every world."""
        threads = max(1, min(torch.get_num_threads(), self._tiles))
        self._counter.value = 0
        chunk = max(1, self._tiles // (16 * threads))
        arguments = (*self._arguments, chunk, self._worlds, times)
        call = self._kernel._call
        if threads == 1:
            call(*arguments)
            return
        helpers = [_pool().submit(call, *arguments) for _ in range(threads - 1)]
        call(*arguments)
        for helper in helpers:
            helper.result()


@functools.cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=os.cpu_count() or 1, thread_name_prefix="torch_mjenvs")


os.register_at_fork(after_in_child=_pool.cache_clear)  # a forked child has none of its parent's threads


def build(program: Program) -> Kernel:
    """Compile for this machine (or find it compiled) and load."""
    target = host()
    code = compile_object(program, target)
    return Kernel(program.name, program.buffers, program.dtype, code, lanes_of(program.dtype, target))


def build_known(
    name: str, buffers: Sequence[Buffer], dtype: str, origin: str, make: Callable[[], Program]
) -> Kernel:
    """`build(make())`, but where the same was built before, `make` is not even called.

    `origin` must say all that the program follows from, beside this package's own source.
    """
    target = host()
    key = f"{_toolchain(target)}\n{cache.source_digest()}\n{name} {dtype}\n{origin}"
    code = cache.kept_or_made(name, key, lambda: _assemble(assembly(make(), target), target))
    return Kernel(name, buffers, dtype, code, lanes_of(dtype, target))
