"""Trains the tasks by `torch_mjenvs train`, each with several seeds; says what the policies are worth here and there.

    python -m benchmarks.training                                  # everything, an hour or so on 2 cores
    python -m benchmarks.training --tasks Hopper --seeds 0 --runs runs
    python -m benchmarks.training --profile                        # where a second of training goes, alone

Every run is added to results/NAME.json as soon as it is done, in place of an older one of the same task and seed;
results/NAME.md and docs/training.png are made from that file alone.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from . import machine
from .machine import Watch, cores
from .report import number, table

ROOT = Path(__file__).resolve().parents[1]
TASKS = ("HalfCheetah", "Walker2d", "Hopper", "Ant", "Humanoid")
CURVE_POINTS = 200
PROFILE_SECONDS = 20.0
COLOURS = ("#0b62a4", "#d1495b", "#8a5a00", "#6a4c93", "#2e7d32")


def main(argv: list[str] | None = None) -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--tasks", nargs="*", choices=TASKS, default=TASKS)
    p.add_argument("--seeds", nargs="*", type=int, default=(0, 1, 2))
    p.add_argument("--runs", type=Path, default=Path("runs"), help="policies go to RUNS/TASK-SEED")
    p.add_argument("--precision", choices=("float32", "bfloat16"), help="of the learner; default the command's own")
    p.add_argument("--name", default="training-cpu", help="of the files in benchmarks/results")
    p.add_argument("--picture", type=Path, default=ROOT / "docs" / "training.png", help="the learning curves")
    p.add_argument("--profile", action="store_true", help="no training: measure where its time goes")
    p.add_argument("--render", action="store_true", help="no training: table and picture from the data that is there")
    args = p.parse_args(argv)
    data = ROOT / "benchmarks" / "results" / f"{args.name}.json"
    if args.profile:
        for task in args.tasks:
            keep(data, "profiles", profile(task, PROFILE_SECONDS, args.precision), ("task",))
    elif not args.render:
        for task in args.tasks:
            for seed in args.seeds:
                keep(data, "runs", run(task, seed, args.runs, args.precision), ("task", "seed"))
                render(data, args.picture)
    render(data, args.picture)
    print(data.with_suffix(".md").read_text())


def keep(data: Path, kind: str, record: dict[str, Any], identity: tuple[str, ...]) -> None:
    """Add a record to the file, one line each, where it takes the place of one with the same identity."""
    found = json.loads(data.read_text()) if data.exists() else {"runs": [], "profiles": []}
    found["machine"] = machine.describe()
    others = [old for old in found[kind] if any(old[key] != record[key] for key in identity)]
    found[kind] = sorted([*others, record], key=lambda x: (TASKS.index(x["task"]), x.get("seed", 0)))
    lines = {k: ",\n  ".join(json.dumps(x) for x in found[k]) for k in ("runs", "profiles")}
    parts = [f'"machine": {json.dumps(found["machine"])}', *(f'"{k}": [\n  {x}\n ]' for k, x in lines.items())]
    data.write_text("{\n " + ",\n ".join(parts) + "\n}\n")


def run(task: str, seed: int, runs: Path, precision: str | None = None) -> dict[str, Any]:
    """Train and score once, in a process of its own as a user would; the time is that of the whole command."""
    out = runs / f"{task}-{seed}"
    command = [sys.executable, "-m", "torch_mjenvs", "train", "--env", f"Torch{task}-v0"]
    command += ["--precision", precision] if precision else []
    watch, start = Watch(), time.perf_counter()
    env = {k: x for k, x in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}  # to compile all modules takes 0.4 s
    subprocess.run([*command, "--seed", str(seed), "--out", str(out)], check=True, env=env)
    seconds = time.perf_counter() - start
    result = json.loads((out / "result.json").read_text())
    curve = result["curve"][:: math.ceil(len(result["curve"]) / CURVE_POINTS)]
    return {
        "task": task,
        "seed": seed,
        "commit": git("rev-parse", "--short=12", "HEAD") + ("+" if git("status", "--porcelain", "-uno") else ""),
        "date": datetime.date.today().isoformat(),
        "cores": cores(),
        "threads": result["threads"],
        "precision": result["precision"],
        "foreign_cores": round(watch.foreign_cores(), 2),
        "seconds": round(seconds, 1),
        "training_seconds": result["curve"][-1][0],
        "frames": result["frames"],
        "settings": result["settings"],
        "scores": {"here": result["scores"][f"Torch{task}-v0"], "gymnasium": result["scores"][f"{task}-v5"]},
        "curve": curve,
    }


def git(*args: str) -> str:
    return subprocess.run(["git", *args], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


# where the time goes


class Stopwatch:
    """The seconds spent in functions, by name. If one timed function calls another, the time counts for both."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def timed(self, name: str, function: Callable) -> Callable:
        self.seconds[name] = 0.0

        def run(*args: Any) -> Any:
            start = time.perf_counter()
            result = function(*args)
            self.seconds[name] += time.perf_counter() - start
            return result

        return run


@torch.no_grad()
def profile(task: str, seconds: float, precision: str | None = None) -> dict[str, Any]:
    """Shares of the time of some iterations of training, with the task's own settings. On the CPU only."""
    from torch_mjenvs.training import ppo, worlds
    from torch_mjenvs.training.sharing import ALONE

    env_id = f"Torch{task}-v0"
    settings = ppo.settings(env_id, "cpu")
    ways = ppo.ways(argparse.Namespace(learner=None, precision=precision, device="cpu"), settings, ALONE)
    torch.manual_seed(0)
    env = worlds.make(env_id, settings["num_envs"], "cpu")
    agent = ppo.make(env, settings, 0, {}, ALONE, **ways)
    for _ in range(2):
        agent.iterate()
    stopwatch = Stopwatch()
    agent.rollout = stopwatch.timed("rollout", agent.rollout)
    agent.update = stopwatch.timed("update", agent.update)
    frames, watch, start = agent.frames_seen, Watch(), time.perf_counter()
    while time.perf_counter() - start < seconds:
        agent.iterate()
    total = time.perf_counter() - start
    shares = {name: spent / total for name, spent in stopwatch.seconds.items()}
    shares["overhead"] = 1 - sum(shares.values())
    agent.env.close()
    return {
        "task": task,
        "threads": torch.get_num_threads(),
        "precision": ways["precision"],
        "foreign_cores": round(watch.foreign_cores(), 2),
        "frames_a_second": round((agent.frames_seen - frames) / total),
        "shares": {name: round(share, 4) for name, share in shares.items()},
    }


# tables


def interval(returns: list[float]) -> float:
    """Half the width of the mean's 95 % confidence interval."""
    return 1.96 * statistics.stdev(returns) / math.sqrt(len(returns))


def agrees(a: list[float], b: list[float]) -> bool:
    """Whether the 95 % confidence interval of the difference of the means has 0 in it."""
    return abs(statistics.mean(a) - statistics.mean(b)) <= math.hypot(interval(a), interval(b))


def render(data: Path, picture: Path) -> None:
    found = json.loads(data.read_text())
    data.with_suffix(".md").write_text(markdown(found))
    plot(found["runs"], picture)


def markdown(found: dict[str, Any]) -> str:
    m = found["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in m["versions"].items())
    parts = [
        "# Training",
        "PPO (`torch_mjenvs/training`, settings in `settings.toml` there). Scores are means over episodes of the "
        "return with the mean action, ± half their 95 % confidence interval: in the real Gymnasium v5 task, and here.",
        f"{m['cpu']}, {m['vector_bits']}-bit vectors; {m['system']}, Python {m['python']}, {versions}.",
    ]
    if found["runs"]:
        parts += [summary(found["runs"]), "## Every run", every_run(found["runs"])]
    if found["profiles"]:
        parts += ["## Where a second of training goes", profiles(found["profiles"])]
    return "\n\n".join(parts) + "\n"


def by_task(runs: list[dict]) -> dict[str, list[dict]]:
    grouped = {task: [r for r in runs if r["task"] == task] for task in TASKS}
    return {task: some for task, some in grouped.items() if some}


def summary(runs: list[dict]) -> str:
    rows = []
    for task, some in by_task(runs).items():
        means = [statistics.mean(r["scores"]["gymnasium"]) for r in some]
        times = [r["seconds"] for r in some]
        rows.append([
            task,
            f"**{statistics.mean(means):,.0f}**",
            ", ".join(f"{x:,.0f}" for x in means),
            f"{some[0]['frames'] / 1e6:.1f} M",
            f"{statistics.mean(times):.0f} s" + (f" ({min(times):.0f} to {max(times):.0f})" if len(some) > 1 else ""),
        ])  # fmt: skip
    return table(["task", "mean in Gymnasium", "of each seed", "frames", "whole command"], rows)


def every_run(runs: list[dict]) -> str:
    header = [
        "run",
        "in Gymnasium",
        "here",
        "agree",
        "frames",
        "command",
        "training",
        "cores",
        "used by others",
        "products",
        "commit",
    ]
    rows = []
    for r in runs:
        theirs, ours = r["scores"]["gymnasium"], r["scores"]["here"]
        shown = [f"{statistics.mean(x):,.0f} ± {interval(x):,.0f}" for x in (theirs, ours)]
        agree = "yes" if agrees(theirs, ours) else "no"
        spent = [f"{r['seconds']:.0f} s", f"{r['training_seconds']:.0f} s"]
        load = [str(r["cores"]), f"{r['foreign_cores']:.1f}", r["precision"]]
        rows.append([f"{r['task']}, seed {r['seed']}", *shown, agree, f"{r['frames']:,}", *spent, *load, r["commit"]])
    return table(header, rows)


def profiles(found: list[dict]) -> str:
    names = list(found[0]["shares"])
    rows = [
        [p["task"], *(f"{100 * p['shares'][name]:.0f} %" for name in names), number(p["frames_a_second"])]
        + [str(p["threads"]), f"{p['foreign_cores']:.1f}", p["precision"]]
        for p in found
    ]
    return table(["task", *names, "frames a second", "threads", "cores used by others", "products"], rows)


def plot(runs: list[dict], path: Path) -> None:
    """One panel a task, one line a seed: mean return against time, and what the result scored in Gymnasium."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    tasks = by_task(runs)
    if not tasks:
        return
    look = {"font.size": 11, "axes.titlesize": 13, "axes.spines.top": False, "axes.spines.right": False}
    with pyplot.rc_context(look):
        columns = min(3, len(tasks))
        lines = math.ceil(len(tasks) / columns)
        size = (5.0 * columns, 3.9 * lines)
        figure, axes = pyplot.subplots(lines, columns, figsize=size, squeeze=False, layout="constrained")
        for axis, (task, some) in zip(axes.flat, tasks.items(), strict=False):
            draw(axis, task, some)
        for axis in axes.flat[len(tasks) :]:
            axis.set_visible(False)
        for axis in axes[:, 0]:
            axis.set_ylabel("return in training; dots: in Gymnasium")
        figure.savefig(path, dpi=120)
        pyplot.close(figure)


def draw(axis: Any, task: str, runs: list[dict]) -> None:
    for k, r in enumerate(runs):
        colour = COLOURS[k % len(COLOURS)]
        score = statistics.mean(r["scores"]["gymnasium"])
        frames, returns = [row[1] / 1e6 for row in r["curve"]], [row[2] for row in r["curve"]]
        axis.plot(frames, returns, color=colour, label=f"seed {r['seed']}: {score:,.0f} in Gymnasium")
        axis.plot(frames[-1], score, "o", color=colour, clip_on=False)
    taken = statistics.mean(r["training_seconds"] for r in runs)
    axis.set(title=task, xlabel=f"frames, millions ({taken:.0f} s)", xlim=(0, None), ylim=(0, None))
    axis.grid(axis="y", color="0.9")
    axis.set_axisbelow(True)
    axis.legend(loc="lower right", frameon=False, fontsize=9)


if __name__ == "__main__":
    main()
