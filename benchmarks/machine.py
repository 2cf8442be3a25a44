"""What it ran on, what that machine can do, and how much of it a step asks for."""

from __future__ import annotations

import importlib.metadata
import platform
import statistics
import time
from collections import Counter
from pathlib import Path

import torch

from torch_mjenvs.compiler import cpu
from torch_mjenvs.compiler.control import repeat
from torch_mjenvs.compiler.expr import OPS, Region
from torch_mjenvs.compiler.launch import PADDING
from torch_mjenvs.compiler.program import Buffer, Program, record
from torch_mjenvs.physics.simulation import Simulation, program

from .cases import DTYPES, Case
from .timing import cores

PACKAGES = ("torch_mjenvs", "torch", "mujoco", "gymnasium", "llvmlite", "numpy", "envpool")
CHAINS, LENGTH = 12, 4096  # enough independent multiply-adds to hide their latency


def describe() -> dict:
    target = cpu.host()
    return {
        "cpu": cpu_model(),
        "llvm_cpu": target.cpu,
        "cores": cores(),
        "vector_bits": 8 * target.vector_bytes,
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "versions": versions(),
        "peak_gflops_a_core": {dtype: peak(dtype) / 1e9 for dtype in DTYPES},
    }


def cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def versions() -> dict[str, str]:
    out = {}
    for name in PACKAGES:
        try:
            out[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return out


def peak(dtype: str) -> float:
    """Additions and multiplications a second that one core reaches in our own compiled code, doing nothing else."""

    def body(b: dict[str, list]) -> dict[str, list]:
        return {"x": repeat(LENGTH, lambda _, xs: [x * 0.5 + 0.25 for x in xs], b["x"])}

    launch = cpu.build(record("peak", [Buffer("x", CHAINS)], body, dtype))
    worlds = 16 * PADDING
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    run = launch.bind({"x": torch.zeros((CHAINS, worlds), dtype=DTYPES[dtype])})
    run()
    rates = []
    for _ in range(9):
        began = time.perf_counter()
        run()
        rates.append(2 * CHAINS * LENGTH * worlds / (time.perf_counter() - began))
    torch.set_num_threads(threads)
    return statistics.median(rates)


def operations(case: Case) -> dict:
    """What one physics step of the task's model is made of.

    `code`: operations in the code. `step`: those that run, with every repetition of a fixed count (Runge-Kutta's
    stages), every contact touched, and one iteration of the solver and of its line search.
    """
    model = Simulation(case.task().load(), 1, "cpu").model
    recorded = program(model, "float32")
    return {"code": sum(recorded.count_ops().values()), "step": counted(recorded)}


def counted(recorded: Program) -> int:
    times: dict[Region, int] = {}
    for e in recorded.live:
        if e.op == "repeat":
            times[e.attr[0]] = e.attr[3]

    def runs(region: Region | None) -> int:
        return 1 if region is None else times.get(region, 1) * runs(region.parent)

    arithmetic = Counter(e.region for e in recorded.live if e.op in OPS and e.op not in ("load", "neg"))
    return sum(n * runs(region) for region, n in arithmetic.items())
