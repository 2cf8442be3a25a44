"""Speed on an NVIDIA GPU, and beside MJX if you name a folder with it (benchmarks/gpu_peers.py). Some 8 minutes.

    python -m benchmarks.gpu                                # all but MJX, into benchmarks/results/DATE-gpu.{json,md}
    python -m benchmarks.gpu --tasks HalfCheetah Humanoid --num-envs 32768 --no-peers
    python -m benchmarks.gpu --mjx-site DIR --minutes 60    # with MJX, until the last process has compiled

First parity: the same steps on the GPU and on the CPU, of one program, which should give the same bits, and one step
beside Gymnasium's own environment; where they part, the page begins with that and the exit status is 1. Then steps/s of
the bare engine, of `TorchVectorEnv` and of CUDA graphs, by CUDA events, in turns; the kernels that one step launches,
and their time beside the wall's, by torch's profiler; memory, registers, and the share of what the GPU reaches in plain
loops. Worlds are in the states and at the ages random actions lead to. Files are written after every task, so that
little is lost where a run breaks off.
"""

from __future__ import annotations

import argparse
import datetime
import json
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from gymnasium.vector import AutoresetMode
from tqdm import tqdm

from torch_mjenvs import TorchVectorEnv
from torch_mjenvs.compiler.build import build
from torch_mjenvs.compiler.control import repeat, unrolling
from torch_mjenvs.compiler.launch import PADDING
from torch_mjenvs.compiler.llvm import NVIDIA
from torch_mjenvs.compiler.program import Buffer, record
from torch_mjenvs.envs.engine import Engine

from . import gpu_peers, machine, parity, report
from .cases import ACTION_SETS, CASES, Case, Season, draw_actions, season
from .machine import DTYPES, spread

ROOT = Path(__file__).resolve().parents[1]
NUM_ENVS = (1, 1024, 4096, 32768, 131072)
FLOAT64_NUM_ENVS = 32768
ROUNDS, FEWEST_ROUNDS = 7, 3  # fewer if a call takes long
LEAST, MOST = 0.03, 1.5  # seconds that a contender works in a round, and, about, in all rounds together
GRAPH_STEPS, GRAPH_SECONDS, GRAPH_BYTES = 100, 0.25, 8e9  # limits of one replay, whichever is reached first
PROFILED = 20  # steps
PARITY_WORLDS, PARITY_STEPS = 4096, 5
FLOAT64_LIMIT = 1e-9  # of 1 + |value|, the worst of all numbers


def arguments(argv: list[str] | None) -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--tasks", nargs="+", choices=list(CASES), default=list(CASES))
    p.add_argument("--num-envs", nargs="+", type=int, default=list(NUM_ENVS))
    p.add_argument("--minutes", type=float, default=8.0, help="no peer is begun, and none compiles, after so many")
    p.add_argument("--mjx-site", type=Path, help="folder of packages with mujoco-mjx and its mujoco")
    p.add_argument("--no-peers", action="store_true")
    p.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results", help="folder of the results")
    p.add_argument("--name", default=f"{datetime.date.today().isoformat()}-gpu", help="of the result files")
    return p.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    args = arguments(argv)
    if not torch.cuda.is_available():
        print(f"torch {torch.__version__} sees no GPU: nothing to measure", file=sys.stderr)
        return 2
    end = time.monotonic() + 60 * args.minutes
    cases = [CASES[name] for name in args.tasks]
    args.out.mkdir(parents=True, exist_ok=True)
    data, page = (args.out / f"{args.name}.{suffix}" for suffix in ("json", "md"))

    def save(results: dict[str, Any]) -> None:
        data.write_text(json.dumps(results, indent=1) + "\n")
        page.write_text(report.gpu_markdown(results))

    device = torch.device("cuda", torch.cuda.current_device())
    results = measure(cases, sorted(set(args.num_envs)), device, save)
    if not args.no_peers:
        gpu_peers.measure(cases, list(gpu_peers.NUM_ENVS), results, device, args.mjx_site, end, save)
    print(page.read_text())
    print(f"wrote {data} and {page}")
    return int(bool(report.failures(results)))


def measure(
    cases: list[Case], sizes: list[int], device: torch.device, save: Callable[[dict[str, Any]], None]
) -> dict[str, Any]:
    """All but the peers. `save` is called after every task."""
    results: dict[str, Any] = {"date": datetime.date.today().isoformat(), "machine": describe(device), "tasks": {}}
    with tqdm(total=len(cases) * (len(sizes) + 3), unit="stage", dynamic_ncols=True) as bar:

        def stage(name: str, found: Any) -> Any:
            bar.set_postfix_str(name)
            bar.update()
            return found

        for case in cases:
            bar.set_description(case.name)
            seasoned = season(case)
            found: dict[str, Any] = {
                "frame_skip": case.task().frame_skip,
                "parity": stage(
                    "parity", {name: same_steps(case, dtype, device, seasoned) for name, dtype in DTYPES.items()}
                ),
                "gymnasium": stage("Gymnasium", beside_gymnasium(case, device)),
                "rates": [],
            }
            for n in sizes:
                for name, dtype in DTYPES.items():
                    if name == "float32" or n == FLOAT64_NUM_ENVS:
                        found["rates"].append({"num_envs": n, "dtype": name, **rates(case, n, dtype, device, seasoned)})
                stage(f"{n:,} worlds", None)
            found["step"] = stage("one step", one_step(case, profiled_size(sizes), device, seasoned))
            results["tasks"][case.name] = found
            save(results)
    return results


def profiled_size(sizes: list[int]) -> int:
    """The size of the aims, or the largest there is."""
    return report.AIMED_NUM_ENVS if report.AIMED_NUM_ENVS in sizes else max(sizes)


# parity


def engine_of(case: Case, n: int, device: torch.device, dtype: torch.dtype, seasoned: Season) -> Engine:
    """Return an engine in states, and at ages, that random actions lead to."""
    engine = Engine(case.task(), n, device=device, dtype=dtype, autoreset_mode=AutoresetMode.SAME_STEP)
    engine.seed(0)
    engine.reset()
    seasoned.loader(engine)()
    return engine


def same_steps(case: Case, dtype: torch.dtype, device: torch.device, seasoned: Season) -> dict[str, Any]:
    """The same steps on the device and on the CPU, falls and resets too: how many numbers differ, and by how much.

    The CPU runs the program that the GPU runs, with loops where the GPU has them.
    """
    with unrolling(NVIDIA.unroll_limit):
        here, there = (engine_of(case, PARITY_WORLDS, d, dtype, seasoned) for d in (torch.device("cpu"), device))
    torch.manual_seed(0)
    differing, worst, count = 0, 0.0, 0
    parted = torch.zeros(PARITY_WORLDS, dtype=torch.bool)
    for action in draw_actions(here, PARITY_WORLDS, PARITY_STEPS):
        for engine in (here, there):
            engine.action.copy_(action)
            engine.step()
        theirs = there.state_dict()
        for name, x in here.state_dict().items():
            y = theirs[name].cpu()
            unequal = (x != y).view(PARITY_WORLDS, -1)
            parted |= unequal.any(1)
            differing += int(unequal.sum())
            count += x.numel()
            if x.is_floating_point() and x.numel():
                apart = ((x - y).abs() / (1 + x.abs())).max().item()
                worst = max(worst, apart) if apart == apart else float("inf")
    out = {"numbers": count, "differing": differing, "worlds": PARITY_WORLDS, "worlds_differing": int(parted.sum())}
    return out | {
        "steps": PARITY_STEPS,
        "worst": worst,
        "failed": dtype == torch.float64 and not worst <= FLOAT64_LIMIT,
    }


def beside_gymnasium(case: Case, device: torch.device) -> dict[str, Any]:
    """`benchmarks.parity` on the device. If Gymnasium's own task is missing or does not run, say why."""
    try:
        samples = parity.oracle(case)
    except Exception as error:  # whatever keeps another version of it from running
        return {"absent": f"{type(error).__name__}: {error}".splitlines()[0][:200]}
    try:
        found = {name: parity.step_from(case, samples, dtype, device) for name, dtype in DTYPES.items()}
        return parity.verdict(case, samples, found["float64"], found["float32"])
    except parity.ParityError as error:
        return {"failed": str(error)}


# what is timed


@dataclass
class Work:
    """A call that makes so many steps of all worlds together."""

    call: Callable[[], Any]
    steps: int


def rates(case: Case, n: int, dtype: torch.dtype, device: torch.device, seasoned: Season) -> dict[str, Any]:
    """Environment steps a second of `n` worlds by three ways of stepping, and the memory they take."""
    before = allocated(device)
    env = TorchVectorEnv(case.task(), n, device=device, dtype=dtype, autoreset_mode=AutoresetMode.SAME_STEP)
    engine = env.engine
    taken = allocated(device) - before
    env.reset(seed=0)
    load = seasoned.loader(engine)
    load()
    actions = list(draw_actions(engine, n, ACTION_SETS).to(device))
    turn = 0

    def act() -> torch.Tensor:
        nonlocal turn
        turn = (turn + 1) % len(actions)
        return actions[turn]

    def bare() -> None:
        engine.action.copy_(act())
        engine.step()

    steps = graph_steps(engine, timed(device, bare, 3) / 3)
    rollout = env.capture(lambda obs: actions[0], steps)
    works = {
        "engine": Work(bare, n),
        "TorchVectorEnv": Work(lambda: env.step(act()), n),
        "graph": Work(rollout, n * steps),
    }
    found = race(device, works, load)
    return {
        "rates": found,
        "graph_steps": steps,
        "bytes_a_world": taken / n,
        "bytes_beside_torch": beside_torch(device),
    }


def graph_steps(engine: Engine, seconds_a_step: float) -> int:
    """How many steps a graph may have, so that a replay is neither long nor fills the memory with what it records."""
    recorded = engine.num_envs * (2 * engine.layout.obs + engine.layout.nu + 2) * engine.obs.element_size()
    return max(1, int(min(GRAPH_STEPS, GRAPH_SECONDS / seconds_a_step, GRAPH_BYTES / recorded)))


def race(device: torch.device, works: dict[str, Work], load: Callable[[], None]) -> dict[str, dict[str, float]]:
    """Steps a second of each, in turns; `load` puts the worlds back before each round."""
    calls, rounds = {}, ROUNDS
    for name, work in works.items():
        work.call()
        once = max(timed(device, work.call, 1), 1e-6)
        calls[name] = max(1, round(LEAST / once))
        rounds = min(rounds, max(FEWEST_ROUNDS, int(MOST / (once * calls[name]))))
    found: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        load()
        for name, work in works.items():
            found[name].append(work.steps * calls[name] / timed(device, work.call, calls[name]))
    return {name: spread(values) for name, values in found.items()}


def timed(device: torch.device, call: Callable[[], Any], times: int) -> float:
    """Seconds: on a GPU between two events in its own queue."""
    if device.type == "cuda":
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(times):
            call()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) / 1e3
    began = time.perf_counter()
    for _ in range(times):
        call()
    return time.perf_counter() - began


def allocated(device: torch.device) -> int:
    return torch.cuda.memory_allocated(device) if device.type == "cuda" else 0


def beside_torch(device: torch.device) -> int:
    """Return the GPU's bytes in use outside of torch's allocator: contexts, code, and the stacks of all threads."""
    if device.type == "cpu":
        return 0
    free, total = torch.cuda.mem_get_info(device)
    return total - free - torch.cuda.memory_reserved(device)


def one_step(case: Case, n: int, device: torch.device, seasoned: Season) -> dict[str, Any]:
    """What one `engine.step()` launches, and how long that takes on the GPU and by the clock on the wall."""
    engine = engine_of(case, n, device, torch.float32, seasoned)
    engine.action.copy_(draw_actions(engine, n, 1)[0])
    found: dict[str, Any] = {"num_envs": n}
    if device.type == "cpu":
        return found

    def steps() -> float:
        torch.cuda.synchronize(device)
        began = time.perf_counter()
        for _ in range(PROFILED):
            engine.step()
        torch.cuda.synchronize(device)
        return 1e3 * (time.perf_counter() - began) / PROFILED

    steps()
    kernel = engine._step.kernel
    found |= {name: getattr(kernel, name) for name in ("registers", "local_bytes", "blocks", "reserved_bytes")}
    found["wall_ms"] = steps()
    try:
        on_gpu = events(steps)
    except RuntimeError as error:  # not every machine lets CUPTI look
        return found | {"profiler": str(error)[:200]}
    found["launches_a_step"] = {name: k / PROFILED for name, k in Counter(name for name, _ in on_gpu).items()}
    return found | {"kernel_ms": sum(ms for _, ms in on_gpu) / PROFILED}


def events(work: Callable[[], Any]) -> list[tuple[str, float]]:
    """Name and milliseconds of all that the work had the GPU do. Raises RuntimeError where nothing was seen."""
    kinds = torch.profiler.ProfilerActivity
    with torch.profiler.profile(activities=[kinds.CPU, kinds.CUDA]) as trace:
        work()
    on_gpu = [e for e in trace.events() if e.device_type == torch.autograd.DeviceType.CUDA]
    if not on_gpu:
        raise RuntimeError("torch's profiler saw nothing on the GPU")
    return [(e.name, e.time_range.elapsed_us() / 1e3) for e in on_gpu]


# the machine


def describe(device: torch.device) -> dict[str, Any]:
    """Describe the device, and measure what plain loops reach on it."""
    found: dict[str, Any] = {
        "versions": machine.versions(),
        "flops": flops(device),
        "bytes_a_second": bandwidth(device),
    }
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        found |= {"gpu": properties.name, "multiprocessors": properties.multi_processor_count}
        found["cuda"] = torch.version.cuda
    return found


def flops(device: torch.device) -> float:
    """Additions and multiplications a second in float32, fused, in a kernel of ours that does nothing else."""
    chains, inner, times = 8, 16, 512
    worlds = PADDING * (2**14 if device.type == "cuda" else 2**8)

    def chain(x: Any) -> Any:
        for _ in range(inner):
            x = x * 0.5 + 0.25
        return x

    def body(b: dict[str, list]) -> dict[str, list]:
        return {"x": repeat(times, lambda _, xs: [chain(x) for x in xs], b["x"])}

    kernel = build(record("peak", [Buffer("x", chains)], body, "float32"), device)
    launch = kernel.bind({"x": torch.zeros((chains, worlds), device=device)})
    launch()
    operations = 2 * chains * inner * times * worlds
    return statistics.median(operations / timed(device, launch, 1) for _ in range(ROUNDS))


def bandwidth(device: torch.device) -> float:
    """Bytes read and written a second by a plain copy."""
    x = torch.rand(2**28 if device.type == "cuda" else 2**20, device=device)
    y = torch.empty_like(x)
    y.copy_(x)
    return statistics.median(8 * x.numel() / timed(device, lambda: y.copy_(x), 1) for _ in range(ROUNDS))


if __name__ == "__main__":
    sys.exit(main())
