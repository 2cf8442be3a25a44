"""The back end for this machine's processor: object code, run over torch tensors.

program = record("axpy", [Buffer("x", 3), Buffer("y", 3)], lambda b: {"y": [2.0 * x for x in b["x"]]}, "float32")
kernel = build(program, torch.device("cpu"))
launch = kernel.bind({"x": x, "y": y})  # tensors of shape (3, padded(n)), or (padded(n), 3) with rows
launch()
"""

from __future__ import annotations

import ctypes
import functools
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

import llvmlite.binding as llvm
import torch

from . import fork, launch, loader, source, stacks, waiting
from .assembler import Assembler
from .back_end import BackEnd
from .control import unroll_limit
from .entry import FIELDS, entry
from .llvm import render
from .llvm.parts import MARK
from .program import Buffer, Program, collector_paused

TILES_A_THREAD = 4  # with fewer, a team costs more than it brings


@dataclass(frozen=True)
class Target:
    """A kind of processor to make code for: an LLVM triple, processor and features, and the bytes of its vectors."""

    triple: str
    cpu: str
    features: str
    vector_bytes: int


@functools.cache
def host() -> Target:
    """Describe this machine as a target. Raises OSError if it is neither x86-64 nor 64-bit ARM."""
    triple = llvm.get_process_triple()
    if not triple.startswith(("x86_64", "aarch64", "arm64")):
        raise OSError(f"kernels are made for x86-64 and 64-bit ARM; this process runs on {triple}")
    if "windows" in triple:
        triple += "-elf"  # what LLVM's loader takes there
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    features = llvm.get_host_cpu_features()
    width = 64 if features.get("avx512f") else 32 if features.get("avx2") else 16
    return Target(triple, llvm.get_host_cpu_name(), features.flatten(), width)


def lanes_of(dtype: str, target: Target) -> int:
    """Return the number of worlds that fit into one vector of the target."""
    return target.vector_bytes // (4 if dtype == "float32" else 8)


def assembly(program: Program, target: Target) -> str:
    """Return the whole module as LLVM IR: `@kernel` and the tile, and then the parts, each after a MARK."""
    lanes = lanes_of(program.dtype, target)
    with collector_paused():
        tile = render(program, lanes)
    own, *parts = tile.split(MARK)
    around = entry(tile, lanes, target.vector_bytes, target.triple)
    return MARK.join([f'target triple = "{target.triple}"\n{own}\n{around}', *parts])


def _toolchain(target: Target, opt: int | None) -> str:
    code = source.digest_of(Assembler.begin, loader.assemble, loader.machine, loader.joined)
    return f"{'.'.join(map(str, llvm.llvm_version_info))} {loader.chosen(opt)} {target} {code}"


class CpuKernel(launch.Kernel):
    """Machine code for this processor."""

    reuses_launchers = True

    def __init__(self, name: str, buffers: Sequence[Buffer], dtype: str, code: bytes, lanes: int):
        super().__init__(name, buffers, dtype, torch.device("cpu"))
        self.lanes, self.code_bytes = lanes, len(code)
        self._loaded = loader.Loaded(code, ("kernel", "stack_bytes"), host().triple)
        self.address, stack_bytes = self._loaded.addresses
        self.call = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self.address)
        self.stack_bytes = ctypes.CFUNCTYPE(ctypes.c_int64)(stack_bytes)()

    def launcher(self, tensors: Sequence[torch.Tensor], worlds: int, scratch: launch.Scratch) -> Callable[[int], None]:
        return _Run(self, tensors, worlds)

    def launcher_again(self, old: Any, tensors: Sequence[torch.Tensor], worlds: int) -> Callable[[int], None]:
        if old is None:
            return _Run(self, tensors, worlds)
        old.take(tensors, worlds)
        run: _Run = old
        return run


class _Run:
    """A kernel with everything that it is called with."""

    def __init__(self, kernel: CpuKernel, tensors: Sequence[torch.Tensor], worlds: int):
        self._kernel = kernel
        self._pointers = (ctypes.c_void_p * len(tensors))(*[x.data_ptr() for x in tensors])
        self._counter = ctypes.c_int64(0)
        self._tiles = worlds // kernel.lanes
        self._job = _Job(
            buffers=ctypes.addressof(self._pointers), counter=ctypes.addressof(self._counter),
            tiles=self._tiles, worlds=worlds, stack_bytes=kernel.stack_bytes,
        )  # fmt: skip
        self._job_address = ctypes.addressof(self._job)

    def take(self, tensors: Sequence[torch.Tensor], worlds: int) -> None:
        """Take other tensors, of this many worlds."""
        self._pointers[:] = [x.data_ptr() for x in tensors]
        self._job.worlds, self._job.tiles = worlds, worlds // self._kernel.lanes
        self._tiles = self._job.tiles

    def __call__(self, times: int) -> None:
        """Run it this many times in a row, on as many threads as torch uses."""
        threads = max(1, min(torch.get_num_threads(), self._tiles // TILES_A_THREAD))
        helpers = team() if threads > 1 else None
        job, stack_bytes = self._job, self._kernel.stack_bytes
        self._counter.value = job.thread_index = 0
        job.chunk, job.times = max(1, self._tiles // (16 * threads)), times
        job.number = helpers.number if helpers else 0
        held = stacks.take(threads, stack_bytes) if stack_bytes else None
        job.stacks = held.address if held else 0
        if threads == 1:
            self._kernel.call(self._job_address)
        elif helpers is not None:
            helpers.run(self._kernel.address, self._job_address, threads)
        else:
            self._share_out(threads)
        if held:
            stacks.give(held, stack_bytes)

    def _share_out(self, threads: int) -> None:
        """Run the tiles on Python threads. An interrupt (Ctrl-C), which may come between any two lines, is raised when
        all tiles are done.

        A helper appends to `begun` before it looks at `done`, so this waits for every helper that uses the job. One
        that starts later does nothing: its stack may belong to another launch by then.
        """
        counter = ctypes.c_int64(0)
        job, mine = (_Job.from_buffer_copy(self._job) for _ in range(2))
        job.counter = mine.counter = ctypes.addressof(counter)
        mine.stacks += (threads - 1) * mine.stack_bytes
        begun: list[bool] = []
        ended: list[bool] = []
        done: list[bool] = []
        bell: SimpleQueue[None] = SimpleQueue()

        def help_out() -> None:
            begun.append(True)
            if not done:
                self._kernel.call(ctypes.addressof(job))
            ended.append(True)
            bell.put(None)

        helpers, interrupt = threads - 1, None
        while True:
            try:
                for _ in range(helpers):
                    _helpers().put(help_out)
                mine.thread_index = 0
                self._kernel.call(ctypes.addressof(mine))  # until no tile is left to begin
                done.append(True)
                while len(ended) < len(begun):
                    with suppress(Empty):
                        bell.get(timeout=0.01)
                break
            except BaseException as error:
                interrupt, helpers = error, 0
        if interrupt is not None:
            raise interrupt


class Parts:
    """Runs of a kernel over the same worlds, cut into parts that another kernel's threads call, in any order of parts.

    `calls` (parts, runs, 2) int64 holds, for each part of each run, the addresses of a function and of its argument.
    """

    def __init__(self, runs: Sequence[Callable[[int], None]], parts: int):
        """Cut the runs of `CpuKernel.launcher` into this many parts. Raises ValueError if these are not whole tiles."""
        self._runs = [run for run in runs if isinstance(run, _Run)]  # they own what the jobs point to
        first = self._runs[0]
        self._kernel = kernel = first._kernel
        tiles, rest = divmod(first._tiles, parts)
        if rest or len(self._runs) < len(runs):
            raise ValueError(f"{first._tiles} tiles of {kernel.name} cannot be {parts} parts")
        shape = (parts, len(runs))
        number = torch.arange(parts * len(runs)).view(shape)
        begin = torch.arange(parts)[:, None] * tiles
        self._jobs = torch.zeros(*shape, len(FIELDS), dtype=torch.int64)
        self._begin, self._counters = begin, begin.repeat(1, len(runs))
        self._set("buffers", torch.tensor([run._job.buffers for run in self._runs]))
        self._set("counter", self._counters.data_ptr() + 8 * number)
        self._set("tiles", begin + tiles)
        self._set("chunk", tiles)
        self._set("worlds", first._job.worlds)
        self._set("times", 1)
        self._set("stack_bytes", kernel.stack_bytes)
        jobs = self._jobs.data_ptr() + 8 * len(FIELDS) * number
        self.calls = torch.stack([torch.full(shape, kernel.address), jobs], -1)

    def _set(self, name: str, value: torch.Tensor | int) -> None:
        self._jobs[..., FIELDS.index(name)] = value

    @contextmanager
    def ready(self, threads: int) -> Iterator[None]:
        """Prepare all parts of all runs to be called once each, by this many threads; several are torch's team."""
        helpers = team() if threads > 1 else None
        self._counters.copy_(self._begin)
        self._set("thread_index", 0)
        self._set("number", helpers.number if helpers else 0)
        stack_bytes = self._kernel.stack_bytes
        held = stacks.take(threads, stack_bytes) if stack_bytes else None
        self._set("stacks", held.address if held else 0)
        try:
            yield
        finally:
            if held:
                stacks.give(held, stack_bytes)


class _Job(ctypes.Structure):
    """The job that `entry` reads."""

    _fields_ = [(name, ctypes.c_int64) for name in FIELDS]


class Team(NamedTuple):
    """Functions of an OpenMP runtime, by which threads work together."""

    start: Callable[[int, int, int, int], None]  # runs a function with its argument on this many threads
    number: int  # the address of the function that tells a thread its number
    size: int  # the address of the function that tells how many threads there are
    barrier: int  # the address of the function that returns when all threads have called it

    def run(self, function: int, argument: int, threads: int) -> None:
        """Call a function, given by its address, on this many threads."""
        waiting.waiting.look(self.start, self.number, threads)
        self.start(function, argument, threads, 0)


@functools.cache
def team() -> Team | None:
    """Return the team of OpenMP threads that torch uses; None if its OpenMP does not have GNU's entry.

    They are ready within microseconds. Threads of our own would be kept from the cores by torch's, which spin while
    they wait for work.
    """
    try:
        here = ctypes.CDLL(None)
        start, known = here.GOMP_parallel, (here.omp_get_thread_num, here.omp_get_num_threads, here.GOMP_barrier)
    except (AttributeError, OSError, TypeError):  # TypeError: on Windows
        return None
    start.argtypes, start.restype = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint], None
    return Team(start, *(ctypes.cast(x, ctypes.c_void_p).value or 0 for x in known))


@functools.cache
def _helpers() -> SimpleQueue[Callable[[], None]]:
    """Return a queue of calls, which Python threads of our own make, one thread for each processor.

    A ThreadPoolExecutor will not do: an interrupt of the thread that submits work can leave its locks held for ever.
    """
    work: SimpleQueue[Callable[[], None]] = SimpleQueue()

    def serve() -> None:
        while True:
            work.get()()

    for _ in range(os.cpu_count() or 1):
        threading.Thread(target=serve, name="torch_mjenvs", daemon=True).start()
    return work


fork.prepare()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_helpers.cache_clear)


def back_end(target: Target | None = None, opt: int | None = None) -> BackEnd:
    """Return the maker and loader of object code, for all that this machine can do or for the target.

    For `opt` see `loader.machine`.
    """
    target = target or host()

    def load(name: str, buffers: Sequence[Buffer], dtype: str, code: bytes) -> CpuKernel:
        return CpuKernel(name, buffers, dtype, code, lanes_of(dtype, target))

    toolchain = _toolchain(target, opt)
    by = Assembler(target.triple, target.cpu, target.features, opt, toolchain)
    return BackEnd(
        "cpu",
        torch.device("cpu"),
        toolchain,
        lambda program: assembly(program, target),
        by.code,
        by.begin,
        load,
        unroll_limit(),
    )
