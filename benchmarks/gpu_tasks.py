"""Every task on an NVIDIA GPU: the CPU's bits, and steps/s. The table of docs/cuda.md.

    python -m benchmarks.gpu_tasks build                     # kernels, side by side, into the caches
    python -m benchmarks.gpu_tasks time                      # one task after the other, into results/gpu-tasks.json
    python -m benchmarks.gpu_tasks time TorchDMC/dog-run-v0  # only these anew
    python -m benchmarks.gpu_tasks table                     # into docs/cuda.md, from the data that is there

Bits: float32, 60 steps of 256 worlds under random actions, resets and time limits among them, on the GPU and on the
CPU, which runs the GPU's program. Steps/s: environment steps, float32, of the bare engine with autoreset, by CUDA
events; worlds are of random ages, and the states are those that 500 steps with uniform actions lead to.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import multiprocessing
import statistics
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import torch
from gymnasium.vector import AutoresetMode

from torch_mjenvs.compiler.control import unrolling
from torch_mjenvs.compiler.llvm import NVIDIA
from torch_mjenvs.envs.engine import Engine
from torch_mjenvs.envs.registration import own_ids
from torch_mjenvs.envs.tasks.base import Task

from . import machine, report
from .gpu import timed
from .machine import wait

FILE = Path(__file__).parent / "results" / "gpu-tasks.json"
SUITE = FILE.with_name("suite.json")
PAGE = Path(__file__).resolve().parents[1] / "docs" / "cuda.md"
BEGIN, END = "<!-- written by benchmarks/gpu_tasks.py -->", "<!-- end of what benchmarks/gpu_tasks.py wrote -->"
NUM_ENVS = (4096, 32768)
PARITY_WORLDS, PARITY_STEPS = 256, 60
WARM_UP, ROUNDS, LEAST = 500, 5, 0.05  # steps, until resets are computed ahead; rounds, and seconds of a round
LONGEST = 5.0  # seconds of warming up
AHEAD = {"next_start", "next_episode"}  # what is computed ahead, and when, is no result
ACTION_SETS = 8


def task_of(name: str) -> Task:
    task = own_ids()[name][1]
    return task() if isinstance(task, type) else task


def engine_of(name: str, n: int, device: torch.device) -> Engine:
    """Return an engine whose worlds are of random ages, as in the middle of training."""
    task = task_of(name)
    limit = task.max_episode_steps
    engine = Engine(
        task, n, device=device, dtype=torch.float32, autoreset_mode=AutoresetMode.SAME_STEP, max_episode_steps=limit
    )
    engine.seed(0)
    engine.reset()
    torch.manual_seed(0)
    if limit is not None:
        engine.elapsed_steps.copy_(torch.randint(limit, (n,)))
    return engine


def draw_actions(engine: Engine, sets: int) -> torch.Tensor:
    """(sets, N, A) uniform over the actuators' ranges, or from -1 to 1 where they have none, on the CPU."""
    model = engine.mjmodel
    span = torch.from_numpy(model.actuator_ctrlrange.copy()).to(engine.dtype)
    span[torch.from_numpy(model.actuator_ctrllimited == 0)] = torch.tensor([-1.0, 1.0])
    width = engine.action.shape[1]
    if len(span) != width:  # a task with actions of its own
        span = torch.tensor([-1.0, 1.0]).repeat(width, 1)
    low, high = span.T
    return low + (high - low) * torch.rand((sets, engine.num_envs, width), dtype=engine.dtype)


def same_bits(name: str, device: torch.device) -> dict[str, Any]:
    """The same steps on the device and on the CPU, which runs the same program: how many numbers differ."""
    with unrolling(NVIDIA.unroll_limit):
        here, there = (engine_of(name, PARITY_WORLDS, d) for d in (torch.device("cpu"), device))
        differing, worst, count, ended = 0, 0.0, 0, 0
        for action in draw_actions(here, PARITY_STEPS):
            for engine in (here, there):
                engine.action.copy_(action)
                engine.step()
            ours, theirs = here.state_dict(), there.state_dict()
            ended += int((here.terminated | here.truncated).sum())
            for key in ours.keys() - AHEAD:
                x, y = ours[key], theirs[key].cpu()
                unequal = (x != y) & ~((x != x) & (y != y))
                differing += int(unequal.sum())
                count += x.numel()
                if x.is_floating_point() and unequal.any():
                    worst = max(worst, ((x - y).abs() / (1 + x.abs()))[unequal].max().item())
    return {"numbers": count, "differing": differing, "worst": worst, "episodes_ended": ended}


def rate(name: str, n: int, device: torch.device) -> dict[str, float]:
    """Environment steps/s of `n` worlds: the median of rounds, and their range."""
    engine = engine_of(name, n, device)
    actions = list(draw_actions(engine, ACTION_SETS).to(device))
    turn = 0

    def step() -> None:
        nonlocal turn
        engine.action.copy_(actions[turn % ACTION_SETS])
        engine.step()
        turn += 1

    began = time.perf_counter()
    for _ in range(WARM_UP):
        step()
        wait(device)
        if time.perf_counter() - began > LONGEST:
            break
    k = max(1, round(3 * LEAST / timed(device, step, 3)))
    found = [n * k / timed(device, step, k) for _ in range(ROUNDS)]
    return {"median": statistics.median(found), "min": min(found), "max": max(found)}


def build(name: str, kind: str) -> tuple[str, float]:
    """Build a task's kernels for the device and for the CPU that is to give its bits. Return the seconds taken."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    began = time.perf_counter()
    device = torch.device(kind)
    engine_of(name, PARITY_WORLDS, device).step()
    wait(device)
    with unrolling(NVIDIA.unroll_limit):
        engine_of(name, PARITY_WORLDS, torch.device("cpu")).step()
    return name, time.perf_counter() - began


def build_all(names: list[str], device: torch.device) -> None:
    """Build them in processes on three quarters of the cores. Each process reserves local memory on the GPU."""
    spawn = multiprocessing.get_context("spawn")
    workers = max(1, machine.cores() * 3 // 4)
    with concurrent.futures.ProcessPoolExecutor(workers, spawn, max_tasks_per_child=1) as pool:
        jobs = [pool.submit(build, name, device.type) for name in names]
        for job in concurrent.futures.as_completed(jobs):
            try:
                name, seconds = job.result()
                print(f"{name}: {seconds:.1f} s", flush=True)
            except Exception as error:  # one task that cannot be built says so when it is timed, too
                print(f"{type(error).__name__}: {error}"[:300], file=sys.stderr, flush=True)


def kept_rows() -> dict[str, Any]:
    return json.loads(FILE.read_text()) if FILE.exists() else {"rows": {}}


def measure(names: list[str], device: torch.device) -> None:
    """Compare and time these tasks, one after the other, and keep what was found after each."""
    kept = kept_rows()
    kept["machine"] = torch.cuda.get_device_name(device) if device.type == "cuda" else machine.cpu_model()
    for name in names:
        row: dict[str, Any] = {}
        try:
            row["bits"] = same_bits(name, device)
            row["rates"] = {str(n): rate(name, n, device) for n in NUM_ENVS}
        except (RuntimeError, MemoryError) as error:  # not enough memory for one is no reason to stop
            row["error"] = f"{type(error).__name__}: {error}".splitlines()[0][:200]
        kept["rows"][name] = row
        print(name, json.dumps(row), flush=True)
        FILE.write_text(json.dumps(kept, indent=1) + "\n")


def table() -> str:
    """Return the table as Markdown: a row for each task that was measured."""
    rows = kept_rows()["rows"]
    theirs = json.loads(SUITE.read_text())["rows"] if SUITE.exists() else {}
    head = ["task", "numbers compared", "that differ", *(f"{n:,} worlds" for n in NUM_ENVS), "beside dm_control"]
    cells = []
    for name in own_ids():
        row = rows.get(name, {})
        if "bits" not in row:
            continue
        rates = [row["rates"][str(n)]["median"] for n in NUM_ENVS] if "rates" in row else []
        one = theirs.get(name.removeprefix("TorchDMC/").removesuffix("-v0"), {}).get("dm_control")
        shown = [*map(report.number, rates), f"{rates[-1] / one:,.0f}x" if one else ""] if rates else ["", "", ""]
        cells.append([f"`{name}`", f"{row['bits']['numbers']:,}", f"{row['bits']['differing']:,}", *shown])
    return report.table(head, cells)


def main(argv: list[str] | None = None) -> int:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("what", choices=("build", "time", "table"))
    p.add_argument("names", nargs="*", help="ids of tasks, else all")
    p.add_argument("--device", default="cuda", help="cpu to try the benchmark itself")
    args = p.parse_args(argv)
    names, device = args.names or list(own_ids()), torch.device(args.device)
    warnings.simplefilter("ignore")
    if args.what == "table":
        report.put(PAGE, BEGIN, END, table())
        return 0
    if device.type == "cuda" and not torch.cuda.is_available():
        print(f"torch {torch.__version__} sees no GPU: nothing to measure", file=sys.stderr)
        return 2
    if args.what == "build":
        build_all(names, device)
    else:
        measure(names, device)
    return 0


if __name__ == "__main__":
    sys.exit(main())
