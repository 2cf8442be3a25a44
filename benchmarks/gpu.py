"""Speed on an NVIDIA GPU, beside MJX and mujoco-torch where they are installed. One command, some minutes.

    python -m benchmarks.gpu                                    # everything, into benchmarks/results/DATE-gpu.{json,md}
    python -m benchmarks.gpu --tasks HalfCheetah Humanoid --num-envs 32768 --no-peers

First the same steps are made on the GPU and on the CPU, which should give the same bits; how many numbers differ is
part of the result. Then: steps/s of the bare engine, of `TorchVectorEnv` and of CUDA graphs, by CUDA events, in turns;
the kernels that one step launches, and their time beside the wall's, by torch's profiler; memory, registers; what the
GPU's arithmetic and memory reach in plain loops. Worlds are in the states and at the ages random actions lead to.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from gymnasium.vector import AutoresetMode
from tqdm import tqdm

from torch_mjenvs import TorchVectorEnv
from torch_mjenvs.compiler import devices
from torch_mjenvs.compiler.control import repeat
from torch_mjenvs.compiler.launch import PADDING
from torch_mjenvs.compiler.program import Buffer, record
from torch_mjenvs.envs.engine import Engine

from . import ours
from .cases import CASES, DTYPES, Case
from .report import number, table
from .timing import spread

ROOT = Path(__file__).resolve().parents[1]
NUM_ENVS = (1, 1024, 4096, 32768, 131072)
PEER_NUM_ENVS = (4096, 32768)
TARGETS = {"HalfCheetah": 500e6, "Walker2d": 500e6, "Hopper": 500e6, "Ant": 50e6, "Humanoid": 20e6}  # at 32,768
PEERS = {"MJX": "mujoco.mjx", "mujoco-torch": "mujoco_torch"}
PEER_LIMIT = 200  # seconds a peer may take for one task and size, compilation included
ROUNDS, LEAST = 7, 0.05  # rounds, and seconds that a contender has in each
GRAPH_STEPS = 10
PROFILED = 20  # steps
PARITY_WORLDS, PARITY_STEPS = 4096, 3


def main(argv: list[str] | None = None) -> int:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--tasks", nargs="+", choices=list(CASES), default=list(CASES))
    p.add_argument("--num-envs", nargs="+", type=int, default=list(NUM_ENVS))
    p.add_argument("--no-peers", action="store_true")
    p.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results", help="folder of the results")
    p.add_argument("--name", default=f"{datetime.date.today().isoformat()}-gpu", help="of the result files")
    p.add_argument("--peer", choices=list(PEERS), help="only time this peer, one task and size, and print JSON")
    args = p.parse_args(argv)
    if args.peer:
        print(json.dumps(time_peer(args.peer, CASES[args.tasks[0]], args.num_envs[0])))
        return 0
    if not torch.cuda.is_available():
        print(f"torch {torch.__version__} sees no GPU: nothing to measure", file=sys.stderr)
        return 2
    results = measure([CASES[name] for name in args.tasks], args.num_envs, torch.device("cuda", 0), not args.no_peers)
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / f"{args.name}.json").write_text(json.dumps(results, indent=1) + "\n")
    (args.out / f"{args.name}.md").write_text(markdown(results))
    print(markdown(results))
    return 0


def measure(cases: list[Case], sizes: list[int], device: torch.device, peers: bool) -> dict[str, Any]:
    results: dict[str, Any] = {"date": datetime.date.today().isoformat(), "machine": machine(device), "tasks": {}}
    stages = 3 + len(sizes)
    with tqdm(total=len(cases) * stages, unit="stage", dynamic_ncols=True) as bar:
        for case in cases:
            seasoned = ours.season(case)
            found: dict[str, Any] = {"parity": {name: parity(case, dtype, device) for name, dtype in DTYPES.items()}}
            bar.update()
            found["rates"] = []
            for n in sizes:
                bar.set_description(f"{case.name}, {n:,} worlds")
                found["rates"].append(rates(case, n, device, seasoned))
                bar.update()
            found["step"] = profile(case, max(sizes), device, seasoned)
            bar.update()
            found["peers"] = [in_process(peer, case, n) for peer in PEERS for n in PEER_NUM_ENVS] if peers else []
            bar.update()
            results["tasks"][case.name] = found
    return results


# what is timed


def engine_of(case: Case, n: int, device: torch.device, dtype: torch.dtype) -> Engine:
    engine = Engine(case.task(), n, device=device, dtype=dtype, autoreset_mode=AutoresetMode.NEXT_STEP)
    engine.seed(0)
    engine.reset()
    return engine


def parity(case: Case, dtype: torch.dtype, device: torch.device) -> dict[str, Any]:
    """The same steps on the device and on the CPU, falls and resets too: how many numbers differ, and by how much."""
    season = ours.season(case)
    pair = [engine_of(case, PARITY_WORLDS, place, dtype) for place in (torch.device("cpu"), device)]
    for engine in pair:
        season.loader(engine)()
    actions = ours.actions(pair[0], PARITY_WORLDS, PARITY_STEPS)
    differing, worst, count = 0, 0.0, 0
    for action in actions:
        for engine in pair:
            engine.action.copy_(action)
            engine.step()
        for name, x in pair[0].state_dict().items():
            there = pair[1].view(name).cpu()
            differing += int((x != there).sum())
            count += x.numel()
            if x.dtype == dtype and x.numel():
                worst = max(worst, float(((x - there).abs() / (1 + x.abs())).max()))
    return {"numbers": count, "differing": differing, "worst": worst, "worlds": PARITY_WORLDS, "steps": PARITY_STEPS}


def rates(case: Case, n: int, device: torch.device, seasoned: ours.Season) -> dict[str, Any]:
    """Environment steps a second of `n` worlds, float32, by three ways of stepping; and memory a world."""
    before = torch.cuda.memory_allocated(device) if device.type == "cuda" else 0
    env = TorchVectorEnv(case.task(), n, device=device)
    after = torch.cuda.memory_allocated(device) if device.type == "cuda" else 0
    env.reset(seed=0)
    seasoned.loader(env.engine)()
    actions = list(ours.actions(env.engine, n, ours.ACTION_SETS).to(device))
    rollout = env.capture(lambda obs: actions[0], GRAPH_STEPS)
    turn = 0

    def bare() -> None:
        nonlocal turn
        turn = (turn + 1) % len(actions)
        env.engine.action.copy_(actions[turn])
        env.engine.step()

    def whole() -> None:
        nonlocal turn
        turn = (turn + 1) % len(actions)
        env.step(actions[turn])

    works = {"engine": (bare, 1), "TorchVectorEnv": (whole, 1), "graph": (rollout, GRAPH_STEPS)}
    found = race(device, {name: (work, n * steps) for name, (work, steps) in works.items()})
    return {"num_envs": n, "frame_skip": case.task().frame_skip, "bytes_a_world": (after - before) / n, "rates": found}


def race(device: torch.device, works: dict[str, tuple[Callable[[], Any], int]]) -> dict[str, dict[str, float]]:
    """Steps a second of each work, which makes so many steps a call; in turns."""
    calls = {}
    for name, (work, _) in works.items():
        work()
        calls[name] = max(1, round(LEAST / max(timed(device, work, 3) / 3, 1e-6)))
    found: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(ROUNDS):
        for name, (work, steps) in works.items():
            found[name].append(steps * calls[name] / timed(device, work, calls[name]))
    return {name: spread(values) for name, values in found.items()}


def timed(device: torch.device, work: Callable[[], Any], calls: int) -> float:
    """Seconds: on a GPU between two events in its own queue."""
    if device.type == "cuda":
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(calls):
            work()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) / 1e3
    began = time.perf_counter()
    for _ in range(calls):
        work()
    return time.perf_counter() - began


def profile(case: Case, n: int, device: torch.device, seasoned: ours.Season) -> dict[str, Any]:
    """What one `engine.step()` launches, and how long that takes on the GPU and by the clock on the wall."""
    engine = engine_of(case, n, device, torch.float32)
    seasoned.loader(engine)()
    engine.action.copy_(ours.actions(engine, n, 1)[0])
    found: dict[str, Any] = {"num_envs": n}
    if device.type != "cuda":
        return found
    for _ in range(3):
        engine.step()
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(PROFILED):
        engine.step()
    torch.cuda.synchronize()
    found["wall_ms"] = 1e3 * (time.perf_counter() - began) / PROFILED
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as trace:
        for _ in range(PROFILED):
            engine.step()
        torch.cuda.synchronize()
    on_gpu = [e for e in trace.events() if e.device_type == torch.autograd.DeviceType.CUDA]
    found["launches_a_step"] = {name: k / PROFILED for name, k in Counter(e.name for e in on_gpu).items()}
    found["kernel_ms"] = sum(e.time_range.elapsed_us() for e in on_gpu) / PROFILED / 1e3
    kernel = engine._step.kernel
    return found | {"registers": kernel.registers, "local_bytes": kernel.local_bytes}  # type: ignore[attr-defined]


def machine(device: torch.device) -> dict[str, Any]:
    """What it is, and what plain loops reach on it."""
    found: dict[str, Any] = {"torch": torch.__version__, "flops": flops(device), "bytes_a_second": bandwidth(device)}
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        found |= {"gpu": properties.name, "multiprocessors": properties.multi_processor_count}
    return found


def flops(device: torch.device) -> float:
    """Additions and multiplications a second in float32, in a kernel of ours that does nothing else."""
    chains, length, worlds = 12, 4096, PADDING * 2048

    def body(b: dict[str, list]) -> dict[str, list]:
        return {"x": repeat(length, lambda _, xs: [x * 0.5 + 0.25 for x in xs], b["x"])}

    kernel = devices.build(device, record("peak", [Buffer("x", chains)], body, "float32"))
    launch = kernel.bind({"x": torch.zeros((chains, worlds), device=device)})
    launch()
    return statistics.median(2 * chains * length * worlds / timed(device, launch, 1) for _ in range(ROUNDS))


def bandwidth(device: torch.device) -> float:
    """Bytes read and written a second by a plain copy."""
    x = torch.zeros(2**28 if device.type == "cuda" else 2**22, device=device)
    y = torch.empty_like(x)
    y.copy_(x)
    return statistics.median(8 * x.numel() / timed(device, lambda: y.copy_(x), 1) for _ in range(ROUNDS))


# peers


def in_process(peer: str, case: Case, n: int) -> dict[str, Any]:
    """`time_peer` in a process of its own, which may take only so long; why it gave nothing, where it did not."""
    found: dict[str, Any] = {"peer": peer, "num_envs": n}
    if not importlib.util.find_spec(PEERS[peer].partition(".")[0]):
        return found | {"error": "not installed"}
    command = [sys.executable, "-m", "benchmarks.gpu", "--peer", peer, "--tasks", case.name, "--num-envs", str(n)]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PEER_LIMIT)
    except subprocess.TimeoutExpired:
        return found | {"error": f"nothing after {PEER_LIMIT} s"}
    if done.returncode:
        return found | {"error": (done.stderr.strip().splitlines() or ["it failed"])[-1][:200]}
    return found | json.loads(done.stdout.splitlines()[-1])


def time_peer(peer: str, case: Case, n: int) -> dict[str, Any]:
    """Physics steps a second on the GPU. The model is Gymnasium's own; Newton in the place of PGS, which peers lack.

    Worlds begin standing, so a peer has it easier than ours.
    """
    began = time.perf_counter()
    step = {"MJX": mjx_step, "mujoco-torch": mujoco_torch_step}[peer](case, n)
    step()
    first = time.perf_counter() - began
    seconds = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - began)
    return {"first_call_s": first, "physics": spread([n * case.task().frame_skip / s for s in seconds])}


def peer_model(case: Case) -> Any:
    import mujoco

    model = case.task().load()
    if model.opt.solver == mujoco.mjtSolver.mjSOL_PGS:
        model.opt.solver = mujoco.mjtSolver.mjSOL_NEWTON
    return model


def mjx_step(case: Case, n: int) -> Callable[[], None]:
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    import jax
    from mujoco import mjx

    model = peer_model(case)
    m = mjx.put_model(model)
    keys = jax.random.split(jax.random.PRNGKey(0), n)
    controls = jax.random.uniform(keys[0], (n, model.nu), minval=-0.4, maxval=0.4)
    start = mjx.make_data(m)

    def one(key: Any, ctrl: Any) -> Any:
        noise = 0.01 * jax.random.normal(key, (model.nq,))
        return start.replace(qpos=m.qpos0 + noise, ctrl=ctrl)

    frame_skip = case.task().frame_skip
    advance = jax.jit(jax.vmap(lambda d: jax.lax.fori_loop(0, frame_skip, lambda _, x: mjx.step(m, x), d)))
    data = jax.vmap(one)(keys, controls)

    def step() -> None:
        nonlocal data
        data = advance(data)
        data.qpos.block_until_ready()

    return step


def mujoco_torch_step(case: Case, n: int) -> Callable[[], None]:
    import mujoco
    import mujoco_torch

    model = peer_model(case)
    m = mujoco_torch.device_put(model).to("cuda")
    start = mujoco_torch.device_put(mujoco.MjData(model)).to("cuda")
    data = torch.stack([start] * n)
    advance = torch.compile(torch.vmap(lambda d: mujoco_torch.step(m, d)), fullgraph=True)
    frame_skip = case.task().frame_skip

    def step() -> None:
        nonlocal data
        for _ in range(frame_skip):
            data = advance(data)
        torch.cuda.synchronize()

    return step


# the page


def markdown(results: dict[str, Any]) -> str:
    m = results["machine"]
    parts = [
        f"# On a GPU, {results['date']}",
        f"{m.get('gpu', 'CPU')}, torch {m['torch']}. In plain loops it reaches {number(m['flops'])}FLOP/s in float32, "
        f"and copies {number(m['bytes_a_second'])}B/s, reads and writes counted.",
        "Physics steps a second, float32, medians of rounds that take turns.",
        rates_table(results),
        "## The GPU's numbers and the CPU's",
        parity_table(results),
        "## One step",
        step_table(results),
    ]
    if peers := [(task, p) for task, found in results["tasks"].items() for p in found["peers"]]:
        parts += ["## Peers", peers_table(results, peers)]
    return "\n\n".join(parts) + "\n"


def rates_table(results: dict[str, Any]) -> str:
    ways = ("engine", "TorchVectorEnv", "graph")
    rows = []
    for task, found in results["tasks"].items():
        for row in found["rates"]:
            physics = [row["frame_skip"] * row["rates"][way]["median"] for way in ways]
            target = number(TARGETS[task]) if row["num_envs"] == 32768 else ""
            memory = f"{row['bytes_a_world']:,.0f} B"
            rows.append([task, f"{row['num_envs']:,}", *map(number, physics), target, memory])
    return table(["task", "worlds", *ways, "target", "memory a world"], rows)


def parity_table(results: dict[str, Any]) -> str:
    rows = [
        [task, name, f"{p['worlds']:,} x {p['steps']}", f"{p['differing']:,} of {p['numbers']:,}", f"{p['worst']:.1e}"]
        for task, found in results["tasks"].items()
        for name, p in found["parity"].items()
    ]
    return table(["task", "dtype", "worlds, steps", "numbers that differ", "worst, of 1 + value"], rows)


def step_table(results: dict[str, Any]) -> str:
    rows = []
    for task, found in results["tasks"].items():
        s = found["step"]
        launches = ", ".join(f"{k:g} {name}" for name, k in s.get("launches_a_step", {}).items())
        numbers = [f"{s[k]:,.3g}" if k in s else "-" for k in ("kernel_ms", "wall_ms", "registers", "local_bytes")]
        rows.append([task, f"{s['num_envs']:,}", launches or "-", *numbers])
    return table(["task", "worlds", "launches a step", "kernel, ms", "wall, ms", "registers", "local bytes"], rows)


def peers_table(results: dict[str, Any], peers: list[tuple[str, dict]]) -> str:
    rows = []
    for task, p in peers:
        same = [r for r in results["tasks"][task]["rates"] if r["num_envs"] == p["num_envs"]]
        mine = same[0]["frame_skip"] * same[0]["rates"]["engine"]["median"] if same else None
        if "error" in p:
            rows.append([task, p["peer"], f"{p['num_envs']:,}", p["error"], "-", "-"])
            continue
        theirs = p["physics"]["median"]
        ratio = f"{mine / theirs:.3g}x" if mine else "-"
        rows.append([task, p["peer"], f"{p['num_envs']:,}", number(theirs), ratio, f"{p['first_call_s']:.0f} s"])
    return table(["task", "peer", "worlds", "physics steps/s", "ours", "its first call"], rows)


if __name__ == "__main__":
    sys.exit(main())
