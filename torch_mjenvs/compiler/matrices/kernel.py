"""The machine code of a plan, run over torch tensors on the CPU by as many threads as torch uses."""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Mapping

import torch

from .. import cpu, loader
from ..build import kept_or_made
from ..progress import progress
from .render import FIELDS, render
from .steps import Plan

TYPES = {"f": torch.float32, "l": torch.int64, "p": torch.int32}
ARCH_PRCTL, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA = 158, 0x1023, 18  # of Linux on x86-64


def lanes() -> int:
    """Return how many float32 numbers a vector of this processor holds."""
    return cpu.lanes_of("float32", cpu.host())


def can_build() -> bool:
    """Return whether this processor has what plans need: fused multiply-add on vectors of 4 numbers or more."""
    try:
        target = cpu.host()
    except OSError:
        return False
    return not target.triple.startswith("x86_64") or "+fma" in target.features.split(",")


def why_no_bfloat16(target: cpu.Target | None = None) -> str | None:
    """Return why products of bfloat16 would gain nothing on this processor; None if they do gain.

    Intel's processors do them by AMX; without it their AVX512-BF16 takes twice as long as products of float32. AMD's is
    twice as fast.
    """
    target = target or cpu.host()
    if _has_tiles(target) or (_has(target, "avx512bf16") and target.cpu.startswith("znver")):
        return None
    return "this processor has neither AMX nor a fast AVX512-BF16, or the system keeps AMX from it"


def _has(target: cpu.Target, feature: str) -> bool:
    return f"+{feature}" in target.features.split(",") and target.vector_bytes == 64


def _has_tiles(target: cpu.Target) -> bool:
    return _has(target, "amx-bf16") and _has(target, "avx512bf16") and _tiles_allowed()


@functools.cache
def _tiles_allowed() -> bool:
    """Ask Linux to let this process use AMX (it saves AMX's registers only on request); return whether it does."""
    if sys.platform != "linux":
        return False
    call = ctypes.CDLL(None, use_errno=True).syscall
    call.restype = ctypes.c_long
    return call(*map(ctypes.c_long, (ARCH_PRCTL, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA))) == 0


def build(plan: Plan, target: cpu.Target | None = None) -> PlanKernel:
    """Return the kernel of a plan, for this processor or for the target. Code kept on disk is not made again."""
    target = target or cpu.host()
    back = cpu.back_end(target)
    ir = assembly(plan, target)

    def make() -> bytes:
        with progress(f"compiling the kernel {plan.name!r}"):
            return back.translate(ir)

    return PlanKernel(plan, kept_or_made(f"{plan.name}-{back.name}", f"{back.toolchain}\n{plan.name}\n{ir}", make))


def assembly(plan: Plan, target: cpu.Target) -> str:
    """Return the whole module of a plan as LLVM IR.

    Raises ValueError if the plan has products of bfloat16 and the target has no instructions for them.
    """
    pairs = any(m.type == "p" for m in plan.memories)
    if pairs and not _has(target, "avx512bf16"):
        raise ValueError(f"the plan {plan.name!r} has products of bfloat16, and the processor {target.cpu!r} none")
    many = not target.triple.startswith("x86_64") or target.vector_bytes == 64
    lanes, registers = cpu.lanes_of("float32", target), 32 if many else 16
    return render(plan, lanes, registers, target.triple, tiles=pairs and _has_tiles(target))


class _Job(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int64) for name in FIELDS]


class PlanKernel:
    """The loaded code of a plan."""

    def __init__(self, plan: Plan, code: bytes):
        self.plan = plan
        self._loaded = loader.Loaded(code, ("kernel",), cpu.host().triple)
        self.address = self._loaded.addresses[0]
        self.call = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self.address)

    def __call__(self, tensors: Mapping[str, torch.Tensor], rounds: int = 1, threads: int = 1, turns: int = 0) -> None:
        """Do the plan's phases this many times over these tensors, by a `PlanLaunch` that is used once."""
        PlanLaunch(self, tensors)(rounds, threads, turns)


class PlanLaunch:
    """A kernel and the tensors that it runs over."""

    def __init__(self, kernel: PlanKernel, tensors: Mapping[str, torch.Tensor]):
        """Take a tensor for each memory by name. The tensors must keep their addresses.

        Raises KeyError for a missing tensor, ValueError for one of a wrong dtype, device or layout.
        """
        self.kernel, memories = kernel, kernel.plan.memories
        self._places = {m.name: (k, TYPES[m.type]) for k, m in enumerate(memories)}
        self._pointers = (ctypes.c_void_p * len(memories))()
        self._held: dict[str, torch.Tensor] = {}
        self._job = _Job(memories=ctypes.addressof(self._pointers))
        for m in memories:
            self.take(m.name, tensors[m.name])

    def take(self, name: str, x: torch.Tensor) -> None:
        """Take another tensor for a memory."""
        place, dtype = self._places[name]
        if x.dtype != dtype or x.device.type != "cpu" or not x.is_contiguous():
            raise ValueError(f"memory {name!r} must be a contiguous {dtype} tensor on the CPU")
        self._pointers[place], self._held[name] = x.data_ptr(), x

    def __call__(self, rounds: int = 1, threads: int = 1, turns: int = 0) -> None:
        """Do the plan's phases this many times. `turns` is the number of turns of phases that leave it open."""
        job, kernel = self._job, self.kernel
        team = cpu.team() if threads > 1 else None
        job.rounds, job.turns = rounds, turns
        if team is None:
            job.number = job.size = job.barrier = 0
            kernel.call(ctypes.addressof(job))
        else:
            job.number, job.size, job.barrier = team.number, team.size, team.barrier
            team.run(kernel.address, ctypes.addressof(job), threads)
