"""Small kernels for the tests of the compiler: record, build for a chosen target and number of lanes, run over NumPy.

Everything a kernel is to write starts as garbage, so that a store that is missing shows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import torch

from torch_mjenvs.compiler import cpu, launch
from torch_mjenvs.compiler.program import Buffer, Program, record

Arrays = Mapping[str, np.ndarray]
SIZES = {"float32": 4, "float64": 8}
DTYPES = list(SIZES)
LANES = (1, 2, 4, 8, 16)


def at_lanes(dtype: str, lanes: int) -> cpu.Target:
    """This machine, with vectors of so many worlds."""
    return replace(cpu.host(), vector_bytes=lanes * SIZES[dtype])


def build(program: Program, target: cpu.Target | None = None) -> cpu.Kernel:
    """As `cpu.build`, for a target of the test's choice that can run here."""
    target = target or cpu.host()
    code, lanes = cpu.compile_object(program, target), cpu.lanes_of(program.dtype, target)
    return cpu.Kernel(program.name, program.buffers, program.dtype, code, lanes)


def garbage(dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
    """NaN; as integer and as truth value, bits that no kernel writes."""
    if dtype.is_floating_point:
        return torch.full(shape, float("nan"), dtype=dtype)
    if dtype == torch.bool:
        return torch.full(shape, 0x55, dtype=torch.uint8).view(torch.bool)
    return torch.full(shape, -0x55555555, dtype=dtype)


def tensors(program: Program, inputs: Arrays) -> dict[str, torch.Tensor]:
    """A tensor for each buffer, holding the (size, n) inputs; garbage elsewhere, beyond the n-th world too."""
    n = next(iter(inputs.values())).shape[1]
    types = {"f": getattr(torch, program.dtype), "i": torch.int32, "b": torch.bool}
    out = {}
    for b in program.buffers:
        shape = (b.size, launch.padded(n))
        x = out[b.name] = garbage(types[b.type], shape[::-1] if b.rows else shape)
        if b.name in inputs:
            (x.T if b.rows else x)[:, :n] = torch.from_numpy(np.ascontiguousarray(inputs[b.name])).to(x.dtype)
    return out


def run(program: Program, inputs: Arrays, target: cpu.Target | None = None, times: int = 1) -> dict[str, np.ndarray]:
    """All buffers as (size, n) after the kernel."""
    n = next(iter(inputs.values())).shape[1]
    held = tensors(program, inputs)
    build(program, target).bind(held)(times)
    return {b.name: (held[b.name].T if b.rows else held[b.name])[:, :n].numpy() for b in program.buffers}


def record_list(body: Callable[[list], list], n_in: int, n_out: int, dtype: str, name: str = "test") -> Program:
    """A kernel from x (n_in) to y (n_out)."""
    return record(name, [Buffer("x", n_in), Buffer("y", n_out)], lambda b: {"y": body(b["x"])}, dtype)


def bits(x: np.ndarray) -> np.ndarray:
    """What is compared where NaN and the sign of zero matter."""
    return np.ascontiguousarray(x).view({1: np.uint8, 4: np.int32, 8: np.int64}[x.itemsize])
