"""A training run of any algorithm: command line, loop with checkpoints and evaluations, results, curves."""

from __future__ import annotations

import argparse
import importlib.util
import io
import math
import shlex
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from ..envs.tasks.base import Task
from ..policy import as_fields
from .agent import Agent
from .checkpoints import Kept, load, resumed, save, save_json, write
from .evaluations import EVALUATED, Evaluation
from .flags import Parser, count, device, seed, wandb_project, whole
from .folders import folder, to_resume
from .health import Faults, bad_entries, bad_terms
from .interrupts import Interrupts
from .log import Log
from .scores import Score, figures, scores, show
from .settings import MEANINGS, RULES, SETTINGS, settings, tabled, tuned
from .sharing import ALONE, Share
from .task_flags import add_fields, arguments, parse, task_behind
from .worlds import made_of, make, task_id

__all__ = [
    "SETTINGS", "Agent", "chosen", "finish", "folder", "given", "load", "name_of", "parsed", "parser", "report",
    "save", "save_curve", "settings", "train", "training_parser",
]  # fmt: skip

if importlib.util.find_spec("matplotlib") is None:  # needed at the end of a run, so reported before it begins
    raise ModuleNotFoundError("No module named 'matplotlib'", name="matplotlib")


def parser(description: str, prog: str | None = None, tables: Path = SETTINGS) -> argparse.ArgumentParser:
    """Return an argument parser with the flags that every run takes; `tables` has the tasks' settings."""
    known = ", ".join(tuned(tables))
    out, default = Parser(prog, description), tabled(tables, "", "", {})
    out.add_argument("--env", default="TorchHalfCheetah-v0", help=f"id of the task; settings are tuned for {known}")
    out.add_argument(
        "--num-envs", type=RULES["num_envs"], help=f"number of worlds; default {default['num_envs']:,}, or as tuned"
    )
    out.add_argument(
        "--total-steps", type=count, help=f"frames to train on; default {default['total_steps']:,}, or as tuned"
    )
    there = "cuda" if torch.cuda.is_available() else "cpu"
    out.add_argument("--device", type=device, default=there, help=f"cpu or cuda; default {there}")
    out.add_argument("--seed", type=seed, default=0, help="of all random numbers; default 0")
    few = RULES["num_envs"]  # each episode of a score has a world of its own
    out.add_argument("--episodes", type=few, default=100, help="episodes of each final score; default 100")
    out.add_argument("--out", type=Path, help="folder for the results; default runs/ENV-SEED, or ENV-SEED-2 ...")
    out.add_argument(
        "--resume", action="store_true", help="continue from OUT/checkpoint.pt; with more --total-steps, beyond its end"
    )
    return out


def training_parser(
    description: str, defaults: Mapping[str, Any], prog: str | None = None, tables: Path = SETTINGS
) -> argparse.ArgumentParser:
    """Return `parser` with a flag for every setting, and flags for the evaluations and logs of a run."""
    out = parser(description, prog, tables)
    out.add_argument(
        "--evaluations", type=whole, default=10,
        help=f"how often to evaluate the policy during training, in {EVALUATED} episodes each time; default 10",
    )  # fmt: skip
    out.add_argument("--wandb", type=wandb_project, metavar="PROJECT", help="log to Weights & Biases, too")
    group = out.add_argument_group("settings", "A flag overrides the task's setting, which overrides the default.")
    for name, value in defaults.items():
        if name not in ("num_envs", "total_steps"):
            text = ",".join(map(str, value)) if isinstance(value, tuple) else value
            meaning = f"{MEANINGS[name]}; default {text}"
            group.add_argument(f"--{name.replace('_', '-')}", type=RULES[name], metavar="X", help=meaning)
    return out


def parsed(
    out: argparse.ArgumentParser, argv: Sequence[str] | None, before: Mapping[str, Any] | None = None
) -> tuple[argparse.Namespace, str, dict[str, Any]]:
    """Parse a command line with flags for the fields of the task that it names.

    Returns the arguments, the full id of the task, and the given fields by name. A resumed run keeps its task, fields,
    seed and settings, as far as the command line does not give others; `args.before` is then that run, {} for others.
    before: that run, from `to_go_on_with`.
    """
    argv = list(sys.argv[1:] if argv is None else argv)
    if before:
        groups = {"obs_groups": list(x.items())} if isinstance(x := before.get("obs_groups"), Mapping) else {}
        of_run = {name: x for name, x in before["settings"].items() if name in RULES}  # a file chooses nothing else
        out.set_defaults(env=before["env"], seed=before["seed"], **of_run, **groups)
    first = Parser(add_help=False)
    first.add_argument("--env", default=out.get_default("env"))
    env_id = task_id(first.parse_known_args(argv)[0].env)
    task = task_behind(env_id)
    add_fields(out, task, {})
    kept = _resumed_fields(before, env_id, task) if before else {}
    args, fields = parse(out, argv, task, kept)
    if args.resume and not before and (file := to_resume(args.out, name_of(env_id, args))).exists():
        before = load(file, ("run",))["run"]
        kept = _resumed_fields(before, env_id, task)
    args.before = dict(before) if isinstance(before, Mapping) else {}
    return args, env_id, kept | fields


def to_go_on_with(argv: Sequence[str]) -> dict[str, Any]:
    """Return what identifies the run that a command line with --resume and --out goes on with; {} for any other.

    Raises SystemExit for a task of the user's module that only the file names: a file does not say what is imported.
    """
    first = Parser(add_help=False)
    first.add_argument("--env")
    first.add_argument("--out", type=Path)
    first.add_argument("--resume", action="store_true")
    args, _ = first.parse_known_args(list(argv))
    if not args.resume or args.out is None or not (file := args.out / "checkpoint.pt").exists():
        return {}
    run = load(file, ("run",))["run"]
    kinds = {"env": str, "seed": int, "settings": Mapping}
    if not isinstance(run, Mapping) or not all(isinstance(run.get(name), kind) for name, kind in kinds.items()):
        return {}  # `resumed` says what is wrong with it
    if args.env is None and ":" in run["env"]:
        raise SystemExit(f"{file} is of {run['env']!r}, a task of your own: name it, too, by --env {run['env']}")
    return dict(run)


def name_of(env_id: str, args: argparse.Namespace) -> str:
    """Return the name of the folder of a run's results, unless the command line gives another: ENV-SEED for PPO."""
    algorithm = getattr(args, "algorithm", "ppo")
    return f"{env_id}-{args.seed}" if algorithm == "ppo" else f"{env_id}-{algorithm}-{args.seed}"


def _resumed_fields(run: Any, env_id: str, task: Task | None) -> dict[str, Any]:
    """Return the task's fields in a checkpoint's run; none if that is of another task."""
    if not isinstance(run, Mapping) or run.get("env") != env_id:
        return {}
    try:
        fields = as_fields(run.get("task", {}))
        arguments(task, fields)
    except ValueError as error:
        raise SystemExit(f"the checkpoint does not fit this run: {error}") from error
    return fields


def given(args: argparse.Namespace, names: Iterable[str]) -> dict[str, Any]:
    """Return the settings, among these names, that the command line gives."""
    return {name: x for name in names if (x := getattr(args, name, None)) is not None}


def chosen(env_id: str, args: argparse.Namespace, of: Callable[..., dict[str, Any]] = settings) -> dict[str, Any]:
    """Return an algorithm's settings for a task, changed by the command line. Raises SystemExit for an invalid value.

    `of` returns the settings; the default is PPO's.
    """
    try:
        return of(env_id, **given(args, of()))
    except ValueError as error:
        raise SystemExit(str(error)) from error


def train(
    agent: Agent, run: dict[str, Any], out: Path, args: argparse.Namespace, share: Share = ALONE,
    about: Mapping[str, Any] | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Train `agent` for `settings.total_steps` frames. `run` is a dict that identifies the run.

    Keeps OUT/policy.pt, to be watched, OUT/best.pt, the best in evaluations, and OUT/checkpoint.pt, to resume from.
    Evaluates the policy on the way, which does not change the course of the run. In a run shared among processes, the
    first one does this, and all learn the same. A run on a GPU goes on meanwhile: what an evaluation found is logged
    with a later iteration.

    Returns "curve", rows of (seconds, frames, mean return of the last 100 episodes), "evaluations", rows of (seconds,
    frames, mean return of the episodes of an evaluation), "faults", the counts of `Faults`, and "changes", rows of
    (frames, setting, before, after) if a run was resumed with another rate or length.

    Raises SystemExit after Ctrl-C or SIGTERM, once the state is saved, and if the run has diverged; the last checkpoint
    is then from before that.
    """
    history: dict[str, Any] = {"curve": [], "evaluations": [], "faults": asdict(Faults()), "changes": []}
    history |= about or {}
    before, total = 0.0, agent.settings.total_steps
    if args.resume:
        history, before = resumed(agent, run, out / "checkpoint.pt", history)
        if agent.frames_seen >= total and share.first:
            print(f"nothing to train: the run has {agent.frames_seen:,} frames of {total:,}", file=sys.stderr)
    begun = agent.frames_seen
    evaluating = Evaluation(run, args, share.first and args.evaluations > 0 and begun < total)
    start = time.perf_counter() - before
    kept = Kept(agent, run, out, history, share)
    if args.resume:
        kept.mend()
    else:
        kept.save(0.0)
    missing = history.pop("evaluating", [])  # of the very state that was resumed
    off = not share.first
    often = 0.1 if sys.stderr.isatty() else 10.0  # seconds from one update of the bar to the next: a log needs fewer
    bar = tqdm(
        total=total, initial=begun, unit=" frames", unit_scale=True, dynamic_ncols=True, disable=off, mininterval=often
    )
    status = 0  # of the process that stops all, because of a signal to it
    with (
        Interrupts() as interrupts,
        closing(Log(out, run, begun, args.wandb, off)) as log,
        closing(evaluating) as evaluation,
        bar,
    ):
        for at in missing if evaluation.env else ():
            evaluation.begin(agent, *at)
        while agent.frames_seen < total and not status:
            last = agent.frames_seen
            agent.iterate()
            frames, seconds = agent.frames_seen, time.perf_counter() - start
            values = agent.measures() | {"frames_per_second": (frames - begun) / (seconds - before)}
            found, faults = agent.faults(), Faults(**history["faults"])
            history["faults"] = asdict(faults + found)
            if agent.finished:
                values["return"] = float(np.mean(list(agent.finished)))
                history["curve"].append([round(seconds, 2), frames, values["return"]])
            bar.set_postfix_str(_postfix(values.get("return"), faults + found), refresh=False)
            bar.update(frames - bar.n)
            why = found.divergence(frames - last)
            if share.first and not why and frames * args.evaluations // total > last * args.evaluations // total:
                evaluation.begin(agent, seconds, frames)
            saves = kept.due(last)
            waits_before = math.inf if why or frames >= total else frames if saves else 0
            values |= kept.add(evaluation.ended(waits_before))
            log.write(frames, values | history["faults"], always=bool(why or "evaluation" in values or frames >= total))
            if why:
                raise SystemExit(_diverged(why, found, agent, kept, share))
            told = share.told((interrupts.status, saves))
            status = max(status for status, _ in told)
            if told[0][1]:
                history["evaluating"] = evaluation.running()  # at most that of this state: a resumed run makes it again
                kept.save(time.perf_counter() - start)
        kept.add(evaluation.ended(math.inf))
        history.pop("evaluating", None)
        status = status or max(share.told(interrupts.status))
    if status:
        kept.save(time.perf_counter() - start)
        if share.first:
            print(f"stopped after {agent.frames_seen:,} frames: go on by {_again(run, out)}", file=sys.stderr)
        raise SystemExit(status)
    return history


def _postfix(mean: float | None, faults: Faults) -> str:
    return ", ".join(filter(None, ("" if mean is None else f"return {figures(mean)[0]}", str(faults))))


def _diverged(why: str, found: Faults, agent: Agent, kept: Kept, share: Share) -> str:
    where = f"after {agent.frames_seen:,} frames: {why}"
    if found.bad_rewards or found.bad_observations:
        what, name = ("reward", bad_terms) if found.bad_rewards else ("observations", bad_entries)
        named = name(agent.env.engine.layout, agent.rollout.tensors, share)
        return f"the run ended {where}{named}. Mend the task's {what}; a lower --learning-rate does not help"
    return (
        f"the run diverged {where}. Try a --learning-rate below {agent.settings.learning_rate:g}; "
        f"with {_again(kept.run, kept.out)}, it goes on from {kept.frames:,} frames"
    )


def _again(run: Mapping[str, Any], out: Path) -> str:
    """Return the flags that go on with a run."""
    flags = ["--resume", "--out", str(out)] + (["--env", run["env"]] if ":" in run["env"] else [])
    return shlex.join(flags)


def finish(agent: Agent, run: dict[str, Any], out: Path, args: argparse.Namespace, history: dict[str, Any]) -> None:
    """Draw the curve, score the policy here and in the original task, and save all in OUT/result.json."""
    title = f"{run['algorithm']}, {run['env']}, {run['settings']['num_envs']:,} worlds, seed {run['seed']}"
    record = {"frames": agent.frames_seen, "device": args.device, "threads": torch.get_num_threads()}
    if changed := _changed_since(run, out):
        text = f"note: since the run began, the task has changed ({changed}): scores are of what it is now"
        print(text, file=sys.stderr)
        record["changed before scores"] = changed
    try:
        found = scores(
            agent.act, run["env"], args.episodes, args.device, seed=args.seed + 1, task=run.get("task", {}),
            meanwhile=lambda: save_curve(out / "curve.png", title, history["curve"], history["evaluations"]),
            by_rows=agent.acts_by_rows,
        )  # fmt: skip
    except KeyboardInterrupt:
        print(f"interrupted before the scores; all is learned and saved. Score by {_again(run, out)}", file=sys.stderr)
        raise
    report(out, found, run | record | history)


def _changed_since(run: dict[str, Any], out: Path) -> str:
    """Return the names of what has changed of a user's task since the run began; none of the package's own tasks.

    Its code is what was imported, whatever has become of the file.

    Raises SystemExit if the task cannot be made any more.
    """
    given = arguments(run["env"], run.get("task", {}))
    if ":" not in run["env"] and "xml_file" not in given:
        return ""
    try:
        env = make(run["env"], 1, "cpu", **given)
    except (OSError, TypeError, ValueError) as error:
        text = f"the task cannot be made any more, so there are no scores: {error}"
        raise SystemExit(f"{text}\nall is learned and saved. Score by {_again(run, out)}") from error
    now = made_of(env)
    env.close()
    return ", ".join(name for name, x in run["made"].items() if name != "code" and now.get(name) != x)


def report(out: Path, found: dict[str, Score], record: dict[str, Any]) -> None:
    """Save the scores with the run's `record` in OUT/result.json, and print them."""
    record |= {"scores": {name: one.returns.tolist() for name, one in found.items()}}
    record |= {"bad_states_in_scores": {name: one.bad_states for name, one in found.items()}}
    named = {name: one.named for name, one in found.items() if one.named}
    if named:
        record["means_in_scores"] = {name: {k: float(x.mean()) for k, x in of.items()} for name, of in named.items()}
    save_json(record, out / "result.json")
    show(found)
    print(f"results: {out}")


def save_curve(path: Path, title: str, curve: Sequence[Any], evaluations: Sequence[Any] = ()) -> None:
    """Draw the learning curve, over time and over frames, and save the picture.

    `curve` and `evaluations` are rows of (seconds, frames, mean episode return).
    """
    from matplotlib.figure import Figure  # takes as long to import as all of this package

    figure = Figure(figsize=(10, 4), layout="constrained")  # without a window, whatever matplotlib's backend
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
    picture = io.BytesIO()
    figure.savefig(picture, dpi=120)
    write(path, picture.getbuffer())
