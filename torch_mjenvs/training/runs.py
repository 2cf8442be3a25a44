"""What training runs share: command line, settings, folders, checkpoints, curves."""

from __future__ import annotations

import argparse
import json
import time
import tomllib
from collections.abc import Collection
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor
from tqdm import tqdm

from .flags import count
from .scores import show

SETTINGS = Path(__file__).with_name("settings.toml")


def parser(description: str, prog: str | None = None) -> argparse.ArgumentParser:
    """The flags that every run takes."""
    known = ", ".join(name for name in tomllib.loads(SETTINGS.read_text()) if name != "defaults")
    out = argparse.ArgumentParser(prog=prog, description=description)
    out.add_argument("--env", default="TorchHalfCheetah-v0", help=f"tuned settings are there for {known}")
    out.add_argument("--num-envs", type=count, help="instead of the task's own number in settings.toml")
    out.add_argument("--total-steps", type=count, help="frames to train on, instead of the task's own number")
    out.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    out.add_argument("--seed", type=int, default=0)
    out.add_argument("--episodes", type=count, default=100, help="to score the result by, here and in Gymnasium's own")
    out.add_argument("--out", type=Path, help="folder for the results; default runs/ENV-SEED, or ENV-SEED-2 ...")
    out.add_argument(
        "--resume", action="store_true", help="go on from OUT/checkpoint.pt; with more --total-steps, beyond its end"
    )
    return out


def folder(given: Path | None, name: str, resume: bool) -> Path:
    """Where results go, made here: `given`, or runs/NAME, runs/NAME-2 and so on. Nothing that is there is overwritten.

    Raises SystemExit where there is nothing to resume, or results of another run are in the way.
    """

    def used(out: Path) -> bool:
        return any((out / file).exists() for file in ("checkpoint.pt", "policy.pt", "result.json"))

    name = name.replace(":", "-")  # of a task's module
    names = [Path("runs") / name] + [Path("runs") / f"{name}-{k}" for k in range(2, 1000)]
    if given is None:
        taken = [out for out in names if used(out)]
        out = (taken or names)[-1 if taken else 0] if resume else next(out for out in names if not used(out))
    else:
        out = given
    if resume and not (out / "checkpoint.pt").exists():
        raise SystemExit(f"there is nothing to resume: {out / 'checkpoint.pt'} does not exist")
    if not resume and used(out):
        raise SystemExit(f"{out} holds the results of a run: go on with it by --resume, or choose another --out")
    out.mkdir(parents=True, exist_ok=True)
    return out


def settings(env_id: str, **instead: Any) -> dict[str, Any]:
    """The task's table in settings.toml over the defaults, over which go the arguments that are not None."""
    tables = tomllib.loads(SETTINGS.read_text())
    given = {name: value for name, value in instead.items() if value is not None}
    return tables["defaults"] | tables.get(env_id, {}) | given


class Agent(Protocol):
    """What learns, frame by frame."""

    settings: Any  # with total_steps
    frames_seen: int

    @property
    def finished(self) -> Collection[float]:
        """Returns of the last episodes."""

    def iterate(self) -> None: ...
    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: dict[str, Any]) -> None: ...


def train(agent: Agent, run: dict[str, Any], checkpoint: Path, resume: bool) -> list[list[float]]:
    """Trains `agent` for `settings.total_steps` frames. `run` says which run it is of.

    Keeps a checkpoint to `resume` from, 20 times in all.

    Returns the learning curve: rows of (seconds, frames, mean return of the last 100 episodes).
    """
    curve: list[list[float]] = []
    before, total = 0.0, agent.settings.total_steps
    if resume:
        state = torch.load(checkpoint, map_location="cpu", weights_only=True)
        differs = [f"{k} is {old} there, {new} here" for k, old, new in _differences(state["run"], run)]
        if differs:
            raise SystemExit(f"{checkpoint} is of another run: {'; '.join(differs)}")
        agent.load_state_dict(state["agent"])
        curve, before = state["curve"], state["seconds"]
    start = time.perf_counter() - before
    with tqdm(total=total, initial=agent.frames_seen, unit=" frames", unit_scale=True, dynamic_ncols=True) as bar:
        while agent.frames_seen < total:
            last = agent.frames_seen
            agent.iterate()
            seconds = time.perf_counter() - start
            if agent.finished:
                curve.append([round(seconds, 2), agent.frames_seen, round(float(np.mean(list(agent.finished))), 2)])
                bar.set_postfix_str(f"return {curve[-1][2]:,.0f}", refresh=False)
            bar.update(agent.frames_seen - bar.n)
            if agent.frames_seen * 20 // total > last * 20 // total:
                state = {"run": run, "agent": agent.state_dict(), "curve": curve, "seconds": seconds}
                save(state, checkpoint)
    return curve


def _differences(old: dict[str, Any], new: dict[str, Any]) -> list[tuple[str, Any, Any]]:
    """What tells two runs apart, but for their lengths."""
    flat = [run["settings"] | {k: v for k, v in run.items() if k != "settings"} for run in (old, new)]
    names = sorted((flat[0].keys() | flat[1].keys()) - {"total_steps"})
    return [(k, flat[0].get(k), flat[1].get(k)) for k in names if flat[0].get(k) != flat[1].get(k)]


def report(out: Path, found: dict[str, Tensor], record: dict[str, Any]) -> None:
    """Print the scores, and keep them with the run's `record` as OUT/result.json."""
    show(found)
    record |= {"scores": {name: [round(x, 1) for x in returns.tolist()] for name, returns in found.items()}}
    (out / "result.json").write_text(json.dumps(record) + "\n")
    print(f"results: {out}")


def save(what: dict[str, Any], path: Path) -> None:
    """torch.save, never leaving half a file where a whole one was."""
    draft = path.with_suffix(".draft")
    torch.save(what, draft)
    draft.replace(path)


def save_curve(path: Path, title: str, curve: list[list[float]]) -> None:
    """`curve`: rows of (seconds, frames, mean episode return)."""
    seconds, frames, returns = zip(*curve, strict=True) if curve else ((), (), ())
    figure = Figure(figsize=(10, 4), layout="constrained")  # of no window, whatever matplotlib's backend
    axes = figure.subplots(1, 2, sharey=True)
    millions = [count / 1e6 for count in frames]
    for axis, x, label in zip(axes, (seconds, millions), ("wall time, s", "frames, millions"), strict=True):
        axis.plot(x, returns)
        axis.set_xlabel(label)
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("mean return of the last 100 episodes")
    figure.suptitle(title)
    figure.savefig(path, dpi=120)
