"""What training runs share: command line, settings, folders, checkpoints, evaluation on the way, curves."""

from __future__ import annotations

import argparse
import json
import time
import tomllib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor
from tqdm import tqdm

from .flags import count, device, seed, wandb_project
from .log import Log
from .scores import score, scores, show
from .worlds import make

SETTINGS = Path(__file__).with_name("settings.toml")
CHECKPOINTS = 20  # in a run
EVALUATED = 16  # episodes, each time that a run is evaluated on the way


def parser(description: str, prog: str | None = None) -> argparse.ArgumentParser:
    """The flags that every run takes."""
    known = ", ".join(name for name in tomllib.loads(SETTINGS.read_text()) if name != "defaults")
    out = argparse.ArgumentParser(prog=prog, description=description)
    out.add_argument("--env", default="TorchHalfCheetah-v0", help=f"tuned settings are there for {known}")
    out.add_argument("--num-envs", type=count, help="instead of the task's own number")
    out.add_argument("--total-steps", type=count, help="frames to train on, instead of the task's own number")
    out.add_argument("--device", type=device, default="cuda" if torch.cuda.is_available() else "cpu")
    out.add_argument("--seed", type=seed, default=0)
    out.add_argument("--episodes", type=count, default=100, help="to score the result by, here and in Gymnasium's own")
    out.add_argument("--out", type=Path, help="folder for the results; default runs/ENV-SEED, or ENV-SEED-2 ...")
    out.add_argument(
        "--resume", action="store_true", help="go on from OUT/checkpoint.pt; with more --total-steps, beyond its end"
    )
    return out


def training_parser(
    description: str, defaults: Mapping[str, float], prog: str | None = None
) -> argparse.ArgumentParser:
    """`parser` with a flag for every setting, and for what is seen of a run while it runs."""
    out = parser(description, prog)
    out.add_argument(
        "--evaluations", type=int, default=10, help=f"on the way, of {EVALUATED} episodes each; 0 for none"
    )
    out.add_argument("--wandb", type=wandb_project, metavar="PROJECT", help="log to Weights & Biases, too")
    group = out.add_argument_group("settings", "Each goes before the task's own, which goes before the default.")
    for name, value in defaults.items():
        if name not in ("num_envs", "total_steps"):
            kind = count if isinstance(value, int) else float
            group.add_argument(f"--{name.replace('_', '-')}", type=kind, metavar="X", help=f"default {value}")
    return out


def given(args: argparse.Namespace, names: Iterable[str]) -> dict[str, Any]:
    """Those of these settings that the command line names."""
    return {name: getattr(args, name) for name in names if getattr(args, name) is not None}


def folder(given: Path | None, name: str, resume: bool) -> Path:
    """Where results go, made here: `given`, or runs/NAME, runs/NAME-2 and so on. Nothing that is there is overwritten.

    Raises SystemExit where there is nothing to resume, results of another run are in the way, or no folder can be made.
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
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SystemExit(f"no results can be kept in {out}: {error}") from error
    return out


def settings(env_id: str = "", **instead: Any) -> dict[str, Any]:
    """The task's table in settings.toml over the defaults, over which go the arguments."""
    tables = tomllib.loads(SETTINGS.read_text())
    return tables["defaults"] | tables.get(env_id, {}) | instead


class Agent(Protocol):
    """What learns, frame by frame."""

    settings: Any  # with total_steps
    frames_seen: int

    @property
    def finished(self) -> Collection[float]:
        """Returns of the last episodes."""

    def act(self, obs: Tensor) -> Tensor: ...
    def measures(self) -> dict[str, float]: ...
    def iterate(self) -> None: ...
    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: dict[str, Any]) -> None: ...


def train(agent: Agent, run: dict[str, Any], out: Path, args: argparse.Namespace) -> dict[str, Any]:
    """Trains `agent` for `settings.total_steps` frames. `run` says which run it is of.

    Keeps OUT/checkpoint.pt to resume from, and evaluates the policy on the way, on whose course that has no influence.

    Returns "curve", rows of (seconds, frames, mean return of the last 100 episodes), and "evaluations", rows of
    (seconds, frames, mean return of the episodes of an evaluation).
    """
    history: dict[str, Any] = {"curve": [], "evaluations": []}
    before, total, checkpoint = 0.0, agent.settings.total_steps, out / "checkpoint.pt"
    if args.resume:
        state = torch.load(checkpoint, map_location="cpu", weights_only=True)
        differs = [f"{k} is {old} there, {new} here" for k, old, new in _differences(state["run"], run)]
        if differs:
            raise SystemExit(f"{checkpoint} is of another run: {'; '.join(differs)}")
        agent.load_state_dict(state["agent"])
        history, before = state["history"], state["seconds"]
    start, begun, log = time.perf_counter() - before, agent.frames_seen, Log(out, run, agent.frames_seen, args.wandb)
    with tqdm(total=total, initial=agent.frames_seen, unit=" frames", unit_scale=True, dynamic_ncols=True) as bar:
        while agent.frames_seen < total:
            last = agent.frames_seen
            agent.iterate()
            frames, seconds = agent.frames_seen, time.perf_counter() - start
            values = agent.measures() | {"frames_per_second": (frames - begun) / (seconds - before)}
            if agent.finished:
                values["return"] = float(np.mean(list(agent.finished)))
                history["curve"].append([round(seconds, 2), frames, round(values["return"], 2)])
                bar.set_postfix_str(f"return {values['return']:,.0f}", refresh=False)
            bar.update(frames - bar.n)
            if frames * args.evaluations // total > last * args.evaluations // total:
                values["evaluation"] = evaluated(agent.act, run["env"], args)
                history["evaluations"].append([round(seconds, 2), frames, round(values["evaluation"], 2)])
            log.write(frames, values)
            if frames * CHECKPOINTS // total > last * CHECKPOINTS // total:
                seconds = time.perf_counter() - start
                save({"run": run, "agent": agent.state_dict(), "history": history, "seconds": seconds}, checkpoint)
    log.close()
    return history


def evaluated(act: Callable[[Tensor], Tensor], env_id: str, args: argparse.Namespace) -> float:
    """The mean return of some episodes in the Torch task. Random numbers of the run are left alone."""
    with torch.random.fork_rng(devices=[]):
        return float(score(act, make(env_id, EVALUATED, args.device), args.seed + 2, args.device).mean())


def finish(agent: Agent, run: dict[str, Any], out: Path, args: argparse.Namespace, history: dict[str, Any]) -> None:
    """Draw the curve, score the policy here and in Gymnasium's own task, and keep all that in OUT/result.json."""
    title = f"{run['algorithm']}, {run['env']}, {run['settings']['num_envs']:,} worlds, seed {run['seed']}"
    save_curve(out / "curve.png", title, history["curve"], history["evaluations"])
    found = scores(agent.act, run["env"], args.episodes, args.device, seed=args.seed + 1)
    record = {"frames": agent.frames_seen, "device": args.device, "threads": torch.get_num_threads()}
    report(out, found, run | record | history)


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


def save_curve(path: Path, title: str, curve: Sequence, evaluations: Sequence = ()) -> None:
    """Both: rows of (seconds, frames, mean episode return)."""
    figure = Figure(figsize=(10, 4), layout="constrained")  # of no window, whatever matplotlib's backend
    axes = figure.subplots(1, 2, sharey=True)
    for rows, style, label in ((curve, "-", "last 100 episodes, with noise"), (evaluations, "o", "mean actions")):
        if rows:
            seconds, frames, returns = zip(*rows, strict=True)
            axes[0].plot(seconds, returns, style, markersize=4, label=label)
            axes[1].plot([count / 1e6 for count in frames], returns, style, markersize=4, label=label)
    for axis, label in zip(axes, ("wall time, s", "frames, millions"), strict=True):
        axis.set_xlabel(label)
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("mean return of an episode")
    if evaluations:
        axes[0].legend()
    figure.suptitle(title)
    figure.savefig(path, dpi=120)
