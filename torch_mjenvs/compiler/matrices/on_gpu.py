"""The kernels of a plan on an NVIDIA GPU, run over torch tensors: launches that follow each other on torch's stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from .. import cuda
from ..build import kept_or_made
from ..progress import progress
from .block_text import THREADS
from .blocks import Grid, render
from .kernel import TYPES
from .steps import Loop, Multiply, Plan, Step, Transpose


def translated(name: str, ir: str) -> bytes:
    """Return the PTX of a kernel: what is kept on disk, or made now."""

    def make() -> bytes:
        with progress(f"compiling the kernel {name!r}"):
            return cuda.translate(ir)

    return kept_or_made(f"{name}-cuda", f"{cuda.toolchain()}\n{name}\n{ir}", make)


class GpuPlanKernel:
    """The loaded kernels of a plan, one for each launch of a round."""

    def __init__(self, plan: Plan, device: torch.device):
        """Make the kernels for a GPU; a block's own memory is shared memory if that is large enough."""
        self.plan, self.device = plan, device
        shared = cuda.most_shared(device)
        self.grids = render(plan, shared)
        self.codes: list[cuda.Code] = []
        for k, grid in enumerate(self.grids):
            name = f"{plan.name} {k + 1}"
            ptx = translated(name, grid.ir)
            with progress(f"loading the kernel {name!r}"):
                self.codes.append(cuda.Code(name, ptx, device))
            if grid.shared:
                self.codes[-1].allow_shared(grid.shared)
        self.aligned = set[str]().union(*(_in_fours(phase.steps) for phase in plan.phases))
        self.own = torch.zeros(max(map(_own_numbers, self.grids)), device=device)  # for blocks' own, if not shared


def _in_fours(steps: Sequence[Step]) -> set[str]:
    """Return the memories whose numbers are loaded or stored four at a time."""
    found = set[str]()
    for step in steps:
        if isinstance(step, Loop):
            found |= _in_fours(step.steps)
        elif isinstance(step, Multiply | Transpose):
            found |= {m.memory for m in step.matrices}
    return found


def _own_numbers(grid: Grid) -> int:
    return 0 if grid.shared else grid.blocks * grid.own


class GpuPlanLaunch:
    """Kernels and the tensors that they run over."""

    def __init__(self, kernel: GpuPlanKernel, tensors: Mapping[str, torch.Tensor]):
        """Take a tensor for each memory by name, except what blocks have of their own.

        Raises KeyError for a missing tensor, ValueError for one of a wrong dtype, device or layout.
        """
        self.kernel = kernel
        self.tensors = [kernel.own if m.each else tensors[m.name] for m in kernel.plan.memories]
        for m, x in zip(kernel.plan.memories, self.tensors, strict=True):
            if x.dtype != TYPES[m.type] or x.device != kernel.device or not x.is_contiguous():
                raise ValueError(f"memory {m.name!r} must be a contiguous {TYPES[m.type]} tensor on {kernel.device}")
            if m.name in kernel.aligned and x.data_ptr() % 16:
                raise ValueError(f"memory {m.name!r} must begin at a multiple of 16 bytes")
        self.arguments = cuda.Arguments([*(x.data_ptr() for x in self.tensors), 0])

    def __call__(self, rounds: int = 1) -> None:
        """Queue the plan's phases, this many times, on torch's current stream."""
        kernel = self.kernel
        with torch.cuda.device(kernel.device):
            for k in range(rounds):
                self.arguments.put(len(self.tensors), k)
                for grid, code in zip(kernel.grids, kernel.codes, strict=True):
                    code.queue(grid.blocks, THREADS, self.arguments, grid.shared)
