"""Small kernels for the tests of the compiler: record, build for a chosen target and number of lanes, run over NumPy.

Everything a kernel is to write starts as garbage, so that a missing store is seen. With `--device cuda` the GPU is the
target of tests that choose none, and one more target of tests that go through the CPU's numbers of lanes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import llvmlite.binding as llvm
import numpy as np
import torch

from torch_mjenvs.compiler import build as building
from torch_mjenvs.compiler import cpu, launch, loader
from torch_mjenvs.compiler.program import Buffer, Program, record

Arrays = Mapping[str, np.ndarray]
SIZES = {"float32": 4, "float64": 8}
DTYPES = list(SIZES)
HERE = torch.get_default_device()  # where this run of the tests is to be
GPU = [HERE] if HERE.type == "cuda" else []
LANES: tuple[int | torch.device, ...] = (1, 2, 4, 8, 16, *GPU)
Target = cpu.Target | torch.device


def dtype_of(name: str) -> type:
    """NumPy's type of a dtype's name."""
    return np.dtype(name).type


def numbers(*shape: int, seed: int = 0) -> torch.Tensor:
    """Standard normal numbers, the same at every call."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def at_lanes(dtype: str, lanes: int | torch.device) -> Target:
    """This machine, with vectors of so many worlds; or the GPU."""
    return lanes if isinstance(lanes, torch.device) else replace(cpu.host(), vector_bytes=lanes * SIZES[dtype])


def build(program: Program, target: Target | None = None) -> launch.Kernel:
    """Build a kernel as the package does, for a target of the test's choice that can run here."""
    return building.build(program, cpu.back_end(target) if isinstance(target, cpu.Target) else target or HERE)


def object_code(program: Program, target: cpu.Target) -> bytes:
    """Return the code that would be loaded, also for a target that cannot run here."""
    back = cpu.back_end(target)
    return back.translate(back.lower(program))


def machine(target: cpu.Target) -> llvm.TargetMachine:
    """Return LLVM's maker of code for a target."""
    return loader.machine(target.triple, target.cpu, target.features)


def garbage(dtype: torch.dtype, shape: tuple[int, ...], device: torch.device = HERE) -> torch.Tensor:
    """NaN; for integers and truth values, bits that no kernel writes."""
    if dtype.is_floating_point:
        return torch.full(shape, float("nan"), dtype=dtype, device=device)
    if dtype == torch.bool:
        return torch.full(shape, 0x55, dtype=torch.uint8, device=device).view(torch.bool)
    return torch.full(shape, -0x55555555, dtype=dtype, device=device)


def tensors(program: Program, inputs: Arrays, device: torch.device = HERE) -> dict[str, torch.Tensor]:
    """A tensor for each buffer, holding the (size, n) inputs; garbage elsewhere, beyond the n-th world too."""
    n = next(iter(inputs.values())).shape[1]
    types = {"f": getattr(torch, program.dtype), "i": torch.int32, "b": torch.bool}
    out = {}
    for b in program.buffers:
        shape = (b.size, launch.padded(n))
        x = out[b.name] = garbage(types[b.type], shape[::-1] if b.rows else shape, device)
        if b.name in inputs:
            (x.T if b.rows else x)[:, :n] = torch.from_numpy(np.ascontiguousarray(inputs[b.name])).to(x)
    return out


def run(program: Program, inputs: Arrays, target: Target | None = None, times: int = 1) -> dict[str, np.ndarray]:
    """All buffers as (size, n) after the kernel."""
    n = next(iter(inputs.values())).shape[1]
    kernel = build(program, target)
    held = tensors(program, inputs, kernel.device)
    kernel.bind(held)(times)
    return {b.name: (held[b.name].T if b.rows else held[b.name])[:, :n].cpu().numpy() for b in program.buffers}


def record_list(body: Callable[[list], list], n_in: int, n_out: int, dtype: str, name: str = "test") -> Program:
    """A kernel from x (n_in) to y (n_out)."""
    return record(name, [Buffer("x", n_in), Buffer("y", n_out)], lambda b: {"y": body(b["x"])}, dtype)


def bits(x: np.ndarray) -> np.ndarray:
    """The bit patterns, to compare where NaN and the sign of zero matter."""
    return np.ascontiguousarray(x).view({1: np.uint8, 4: np.int32, 8: np.int64}[x.itemsize])
