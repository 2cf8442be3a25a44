"""The files of a run: each is complete at any moment, whenever the process is killed and whatever is on the disk."""

from __future__ import annotations

import io
import json
import math
import sys
import time
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..files import write_whole
from .agent import Agent, Learner
from .sharing import ALONE, Share

CHECKPOINTS = 10  # in a run, by frames seen; further ones are due by the clock:
EVERY = 60.0  # seconds after the last one, ...
SHARE = 0.05  # ... or later, so that large ones take no more of the time than this
BEFORE = {"norm": "none"}  # settings that older runs did not have yet
CHANGEABLE = ("learning_rate", "total_steps", "learner", "precision")  # when a run is resumed
MADE = "made."  # before what a run's task is made of: it may change, too, with a note


@dataclass(frozen=True)
class Evaluated:
    """What an evaluation found: the mean return of the policy that a run had after so many seconds and frames.

    policy: the contents of its file.
    """

    seconds: float
    frames: int
    mean: float
    policy: Mapping[str, Any]


class Kept:
    """The checkpoints of a run; each replaces the one before."""

    def __init__(self, agent: Agent, run: dict[str, Any], out: Path, history: dict[str, Any], share: Share = ALONE):
        self.agent, self.run, self.out, self.history, self.share = agent, run, out, history, share
        self.frames, self.at, self.took = agent.frames_seen, time.perf_counter(), 0.0
        self.best = max((mean for *_, mean in history["evaluations"] if math.isfinite(mean)), default=-math.inf)

    def due(self, last: int) -> bool:
        """Return whether a checkpoint is due: at the end, by frames seen (`last` before), or by the clock."""
        frames, total = self.agent.frames_seen, self.agent.settings.total_steps
        by_frames = frames >= total or frames * CHECKPOINTS // total > last * CHECKPOINTS // total
        return by_frames or time.perf_counter() - self.at >= max(EVERY, self.took / SHARE)

    def save(self, seconds: float) -> None:
        """Save the policy and the state to resume from, after this many seconds of training.

        In a run of several processes every process must call this, since the state is gathered from all; the first one
        writes.
        """
        start, agent = time.perf_counter(), self.agent
        state = {"run": self.run, "agent": agent.state_dict(), "history": self.history, "seconds": seconds}
        if self.share.first:
            save(state, self.out / "checkpoint.pt")
            self._save_policy()
        self.frames, self.at = agent.frames_seen, time.perf_counter()
        self.took = self.at - start

    def mend(self) -> None:
        """Go on from a state that was resumed, at whatever moment after it the process was ended.

        The policy is written where it was not yet. If OUT/best.pt is of a later evaluation, which the history does not
        have, that is what others must beat: with another learning rate the run may not come there again.
        """
        if not self.share.first:
            return
        if not _holds(self.out / "policy.pt", self.agent.networks()):
            self._save_policy()
        with suppress(SystemExit, TypeError, KeyError, ValueError):  # there is none yet, or it is no file of ours
            about = load(self.out / "best.pt", ("about",))["about"]
            self.best = max(self.best, float(about["evaluation"]))

    def _save_policy(self) -> None:
        self._drop_result()
        save(policy_entries(self.agent, self.run), self.out / "policy.pt")

    def _drop_result(self) -> None:
        """Remove the scores of a run that goes on: they are of networks that are no longer there."""
        file = self.out / "result.json"
        try:
            file.unlink()
        except FileNotFoundError:
            return
        except OSError as error:
            raise SystemExit(f"{file}, of the run as it was before, cannot be removed: {error.strerror}") from error
        print(f"{file} was of the run as it was before, and is removed", file=sys.stderr)

    def add(self, ended: Iterable[Evaluated]) -> dict[str, float]:
        """Add evaluations to the history; save the policy as OUT/best.pt if one did better than all before.

        Return the last one's mean, by the name that it is logged under; nothing if there is none.
        """
        told = {}
        for found in ended:
            if found.mean > self.best:
                about = {"frames": found.frames, "evaluation": found.mean}
                save({**found.policy, "about": about}, self.out / "best.pt")
                self.best = found.mean
            self.history["evaluations"].append([round(found.seconds, 2), found.frames, found.mean])
            told["evaluation"] = found.mean
        return told


def _holds(file: Path, entries: Mapping[str, Any]) -> bool:
    """Return whether a policy's file has these tensors, to the bit."""
    try:
        found = load(file, [*entries])
    except SystemExit:
        return False
    return all(torch.equal(found[name], x.cpu()) for name, x in entries.items() if isinstance(x, Tensor))


def policy_entries(agent: Agent, run: Mapping[str, Any]) -> dict[str, Any]:
    """Return the contents of a policy file, as `torch_mjenvs.policy` says them, of the agent as it is now."""
    return {"env": run["env"], "task": run.get("task", {}), **agent.networks()}


def resumed(agent: Agent, run: dict[str, Any], file: Path, empty: dict[str, Any]) -> tuple[dict[str, Any], float]:
    """Restore `agent` from a checkpoint. Returns the history and the seconds of training up to there.

    Raises SystemExit for a file that is not a complete checkpoint, or is that of another run.
    """
    state = load(file, ("run", "agent", "history", "seconds"))
    try:
        changed = _differences(state["run"], run)
        kept = [change for change in changed if change[0] not in CHANGEABLE and not change[0].startswith(MADE)]
        differs = [f"{name} is {old} there, {new} here" for name, old, new in kept]
        wrong = None if differs else misfit(state["agent"], agent.state_dict())
        if not differs and not wrong:
            agent.load_state_dict(state["agent"])
            history = empty | state["history"]
            history["changes"] = history["changes"] + [[agent.frames_seen, *change] for change in changed]
            if remade := [f"{name} was {old}, is {new}" for name, old, new in changed if name.startswith(MADE)]:
                print(f"note: since {file}, the task has changed: {'; '.join(remade)}", file=sys.stderr)
            return history, float(state["seconds"])
    except Exception as error:  # whatever a file with other contents leads to
        said = next(iter(str(error).splitlines()), "")
        raise SystemExit(f"{file} does not fit this run: {type(error).__name__}: {said}") from error
    if differs:
        raise SystemExit(f"{file} is of another run: {'; '.join(differs)}")
    raise SystemExit(f"{file} does not fit this run: {wrong}")


def start_from(agent: Learner, run: Mapping[str, Any], folder: Path) -> None:
    """Begin with what the networks of another run have learned; `run` identifies this one.

    That run may be of another task; this is then printed. Raises SystemExit if its algorithm is another, or if its
    networks have other inputs or layers.
    """
    if folder.is_file():
        raise SystemExit(
            f"--start {folder} is a file: name the folder of a run, whose checkpoint.pt also has the value network and "
            "the moments of rewards, which a policy's file lacks"
        )
    found = load(folder / "checkpoint.pt", ("run", "agent"))
    theirs, state, ours = found["run"], found["agent"], agent.state_dict()
    old, new = (BEFORE | {**x["settings"], **x} for x in (theirs, run))
    for name in ("algorithm", "obs_groups", "observation", "activation", "norm", "actor", "critic"):
        there, here = (_ordered(x.get(name)) for x in (old, new))
        if there != here and not (name == "observation" and None in (old.get(name), new.get(name))):
            raise SystemExit(f"{folder} cannot be started from: {name} is {there}, here {here}")
    wrong = misfit(state, {name: ours[name] for name in agent.LEARNED})
    if wrong:
        raise SystemExit(f"{folder} cannot be started from: {wrong}")
    if theirs["env"] != run["env"]:
        print(f"{run['env']} begins with what was learned on {theirs['env']}")
    agent.begin_with(state)
    agent.frames_before = int(state["frames_seen"]) + int(state.get("frames_before", 0))


def _differences(old: dict[str, Any], new: dict[str, Any]) -> list[tuple[str, Any, Any]]:
    """Return the settings in which two runs differ: the name, old value and new value of each."""
    flat = [_flat(run) for run in (old, new)]
    names = sorted(flat[0].keys() | flat[1].keys())
    older = [name for name in ("observation", "made") if name not in old]  # of a run before these were kept
    known = [name for name in names if not any(name == x or name.startswith(f"{x}.") for x in older)]
    return [(k, flat[0].get(k), flat[1].get(k)) for k in known if flat[0].get(k) != flat[1].get(k)]


def _ordered(x: Any) -> Any:
    """Return a dict as JSON, in which the order of its entries counts; anything else as it is."""
    return json.dumps(x) if isinstance(x, Mapping) else x


def _flat(run: dict[str, Any]) -> dict[str, Any]:
    settings: dict[str, Any] = BEFORE | run["settings"]
    task = {f"task.{name}": x for name, x in run.get("task", {}).items()}
    made = {f"{MADE}{name}": x for name, x in run.get("made", {}).items()}
    rest = {name: _ordered(x) for name, x in run.items() if name not in ("settings", "task", "made")}
    return settings | task | made | rest


def write(path: Path, content: bytes | memoryview) -> None:
    """Write a file completely or not at all, as `write_whole`. Raises SystemExit if it cannot be written."""
    try:
        write_whole(path, content)
    except OSError as error:
        kept = "; what it held before is still there" if path.exists() else ""
        raise SystemExit(f"{path} could not be written: {error.strerror or error}{kept}") from error


def save(what: Mapping[str, Any], path: Path) -> None:
    """Save a dict by torch.save, completely or not at all. Raises SystemExit if the file cannot be written."""
    buffer = io.BytesIO()
    torch.save(what, buffer)
    write(path, buffer.getbuffer())


def save_json(what: Mapping[str, Any], path: Path) -> None:
    """Save strict JSON, completely or not at all; a number that is not finite becomes null.

    Raises SystemExit if the file cannot be written.
    """
    write(path, (json.dumps(finite(what), allow_nan=False) + "\n").encode())


def finite(x: Any) -> Any:
    """Return a copy of nested dicts and lists with None for every number that is not finite."""
    if isinstance(x, Mapping):
        return {name: finite(value) for name, value in x.items()}
    if isinstance(x, list | tuple):
        return [finite(value) for value in x]
    return None if isinstance(x, float) and not math.isfinite(x) else x


def load(path: Path, entries: Collection[str]) -> dict[str, Any]:
    """Load a dict that `save` wrote, onto the CPU.

    Raises SystemExit for a file that `save` did not write, or that lacks one of the entries.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise SystemExit(f"{path} cannot be read: {error.strerror or error}") from error
    try:
        found = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except Exception as error:  # cut short, or another's: torch and pickle have many ways to say so
        raise SystemExit(f"{path} is no checkpoint of ours, or not all of one") from error
    if not isinstance(found, dict):
        raise SystemExit(f"{path} is no checkpoint of ours: it holds a {type(found).__name__}")
    lacking = [name for name in entries if name not in found]
    if lacking:
        raise SystemExit(f"{path} is no checkpoint of this version: it has no {', '.join(map(repr, lacking))}")
    return found


def misfit(theirs: Any, ours: Any, name: str = "state") -> str | None:
    """Return the first reason why a loaded state cannot replace ours: a missing entry, or a tensor of another shape.

    Entries that ours does not have yet, such as an optimiser's moments before its first step, are not compared.
    """
    if isinstance(ours, Mapping):
        if not isinstance(theirs, Mapping):
            return f"its {name} is a {type(theirs).__name__}"
        for key in ours:
            found = f"its {name} has no {key!r}" if key not in theirs else misfit(theirs[key], ours[key], str(key))
            if found:
                return found
    elif isinstance(ours, Tensor) and theirs is not None:
        if not isinstance(theirs, Tensor):
            return f"its {name} is a {type(theirs).__name__}, not a tensor"
        if (theirs.shape, theirs.dtype) != (ours.shape, ours.dtype):
            old, new = (f"{str(x.dtype).removeprefix('torch.')} {tuple(x.shape)}" for x in (theirs, ours))
            return f"its {name} is {old}, not {new}"
    return None
