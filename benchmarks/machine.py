"""The machine: what it is and can do, how much of it a step asks for, and how contenders share it.

Contenders take turns, so that a machine that slows down slows them all; rounds that others disturb are retaken.
"""

from __future__ import annotations

import importlib.metadata
import math
import os
import platform
import statistics
import time
from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import mujoco
import torch

from torch_mjenvs.compiler import cpu
from torch_mjenvs.compiler.assembler import processors
from torch_mjenvs.compiler.build import build
from torch_mjenvs.compiler.control import repeat
from torch_mjenvs.compiler.expr import Region
from torch_mjenvs.compiler.launch import PADDING
from torch_mjenvs.compiler.ops import OPS
from torch_mjenvs.compiler.program import Buffer, Program, record
from torch_mjenvs.compiler.region_ops import Repeat
from torch_mjenvs.physics import load
from torch_mjenvs.physics.kernel_request import KernelRequest
from torch_mjenvs.physics.simulation import MOCAP
from torch_mjenvs.physics.simulation_kernels import program

LEAST_CALL = 1e-3  # least seconds between two readings of the clock, so that reading it costs nothing
DTYPES = {"float32": torch.float32, "float64": torch.float64}
QUIET = 0.15  # cores that others may use during a round before it is taken again
PACKAGES = ("torch_mjenvs", "torch", "mujoco", "gymnasium", "llvmlite", "numpy", "envpool")
K = TypeVar("K", bound=Hashable)
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

    launch = build(record("peak", [Buffer("x", CHAINS)], body, dtype), torch.device("cpu"))
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


def operations(model: mujoco.MjModel) -> dict:
    """Count the operations of one physics step of a model.

    `code`: operations in the code. `step`: those that run, with every repetition of a fixed count (Runge-Kutta's
    stages), every contact touched, and one iteration of the solver and of its line search.
    """
    inputs = MOCAP if model.nmocap else ()
    recorded = program(KernelRequest(load(model), inputs=inputs), "float32")
    return {"code": sum(recorded.count_ops().values()), "step": counted(recorded)}


def counted(recorded: Program) -> int:
    times: dict[Region, int] = {}
    for e in recorded.live:
        if isinstance(e.attr, Repeat):
            # Of loops over a contact's blocks of dofs, one iteration.
            times[e.attr.body] = e.args[0] if isinstance(e.args[0], int) else 1

    def runs(region: Region | None) -> int:
        return 1 if region is None else times.get(region, 1) * runs(region.parent)

    arithmetic = Counter(e.region for e in recorded.live if OPS[e.op].counts)
    return sum(n * runs(region) for region, n in arithmetic.items())


# contenders in turns


@dataclass
class Contender:
    """`step()` does some work and says how many environment (or physics) steps that was."""

    name: str
    step: Callable[[], int]
    threads: int | None = None  # torch threads; None: as many as cores
    calls: int = 1
    extra: bool = False  # for the tables only, not for the plot

    def prepare(self, warmup: float) -> None:
        """Warm up, and find how many calls fit between two readings of the clock."""
        self._take_threads()
        start = time.perf_counter()
        while time.perf_counter() - start < warmup:
            began = time.perf_counter()
            for _ in range(self.calls):
                self.step()
            if time.perf_counter() - began < LEAST_CALL:
                self.calls *= 2

    def window(self, seconds: float) -> float:
        """Steps a second over at least `seconds`."""
        self._take_threads()
        steps, start = 0, time.perf_counter()
        while (now := time.perf_counter()) - start < seconds:
            for _ in range(self.calls):
                steps += self.step()
        return steps / (now - start)

    def _take_threads(self) -> None:
        torch.set_num_threads(self.threads or cores())


@dataclass
class Race:
    """The result of a race: steps/s of every contender in every round that counts."""

    rates: dict[str, list[float]]
    retaken: int = 0
    disturbed: bool = False  # too few quiet rounds came: all of them count
    foreign_cores: list[float] = field(default_factory=list)

    def summary(self, name: str) -> dict[str, float]:
        return spread(self.rates[name])

    def ratio(self, ours: str, theirs: str) -> dict[str, float]:
        """Ratio of medians; the spread is that of the rounds' own ratios."""
        pairs = zip(self.rates[ours], self.rates[theirs], strict=True)
        ratios = [a / b for a, b in pairs]
        median = statistics.median(self.rates[ours]) / statistics.median(self.rates[theirs])
        return {"median": median, "min": min(ratios), "max": max(ratios)}

    def weather(self) -> dict[str, float | int | bool]:
        """How quiet the machine was."""
        return {
            "rounds_retaken": self.retaken,
            "disturbed": self.disturbed,
            "foreign_cores": statistics.median(self.foreign_cores),
        }


def race(contenders: list[Contender], rounds: int, window: float, warmup: float, quiet: float) -> Race:
    """Run `rounds` rounds in which others use at most `quiet` cores, and at most twice as many rounds in all."""
    for contender in contenders:
        contender.prepare(warmup)
    good: list[list[float]] = []
    every: list[list[float]] = []
    foreign = []
    while len(good) < rounds and len(every) < 2 * rounds:
        watch = Watch()
        every.append([c.window(window) for c in contenders])
        foreign.append(watch.foreign_cores())
        if foreign[-1] <= quiet:
            good.append(every[-1])
    disturbed = len(good) < min(3, rounds)
    chosen = every if disturbed else good
    rates = {c.name: [row[k] for row in chosen] for k, c in enumerate(contenders)}
    return Race(rates, len(every) - len(good), disturbed, foreign)


def turns(
    runs: Mapping[K, Callable[[], object]],
    rounds: int,
    *,
    before: Callable[[K], object] = lambda name: None,
    clock: Callable[[], float] = time.process_time,
    first: int = 0,
) -> dict[K, list[float]]:
    """Seconds that each run took in each round, by name; the runs take turns.

    before: called with the name of a run just before it, and not timed. first: rounds before those that count.
    """
    out: dict[K, list[float]] = {name: [] for name in runs}
    for turn in range(first + rounds):
        for name, run in runs.items():
            before(name)
            began = clock()
            run()
            took = clock() - began
            if turn >= first:
                out[name].append(took)
    return out


def rate(step: Callable[[], int], seconds: float, most: float = math.inf) -> float:
    """Steps a second of processor time, over at least `seconds` of it, or at most `most` seconds on the clock."""
    start, wall, steps = time.process_time(), time.perf_counter(), 0
    while time.process_time() - start < seconds and time.perf_counter() - wall < most:
        steps += step()
    return steps / (time.process_time() - start)


class Watch:
    """Watches how busy others keep this machine from now on."""

    def __init__(self) -> None:
        self.start = self._now()

    @staticmethod
    def _now() -> tuple[float, float, float]:
        return time.perf_counter(), busy_seconds(), sum(os.times()[:4])

    def foreign_cores(self) -> float:
        """Cores kept busy by others, the hypervisor's other guests included; 0 where the system does not tell."""
        seconds, busy, own = (b - a for a, b in zip(self.start, self._now(), strict=True))
        return max(0.0, (busy - own) / seconds)


def busy_seconds() -> float:
    """Core-seconds that the whole machine was busy, or stolen from, so far; 0 where the system does not tell."""
    try:
        with open("/proc/stat") as f:
            user, nice, system, _, _, irq, softirq, steal = (int(x) for x in f.readline().split()[1:9])
    except (OSError, ValueError):
        return 0.0
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def spread(values: list[float]) -> dict[str, float]:
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def wait(device: torch.device) -> None:
    """Wait until a GPU has done all its work; a CPU has."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def cores() -> int:
    """Those this process may use."""
    return processors()
