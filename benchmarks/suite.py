"""dm_control's suite, a row a task: how equal, how fast. The table of docs/dmc.md.

    python -m pytest -m slow tests/dmc -s | tee suite.log    # errors of steps, tests of how episodes begin
    python -m benchmarks.suite build                         # kernels, so that none is built while others are timed
    python -m benchmarks.suite read suite.log                # the numbers of the log, into results/suite.json
    python -m benchmarks.suite time                          # steps a second, into the same file
    python -m benchmarks.suite table                         # as Markdown

Steps a second are of CPU time of one core, in turns: worlds here of random ages, float32, autoreset included, one
environment of dm_control, and, where EnvPool is installed, a batch of its own in one thread. Actions are uniform.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import re
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from torch_mjenvs import TorchVectorEnv
from torch_mjenvs.dmc import TASKS
from torch_mjenvs.training.originals import Suite

from . import report
from .machine import cpu_model, rate
from .peers import envpool_has

FILE = Path(__file__).parent / "results" / "suite.json"
WORLDS, POOL = 4096, 32  # worlds here, and in EnvPool
ROUNDS, SECONDS = 5, 1.0  # long enough for several episodes of dm_control's one world
WARM_UP, LONGEST = 300, 30.0  # steps before timing begins, and the seconds that they may take
SLOW = ("humanoid_CMU", "dog")  # tasks whose kernels take long: only timed if named
Step = Callable[[], int]  # makes steps, and returns how many


def here(name: str) -> Step:
    env = TorchVectorEnv(name, WORLDS, dtype=torch.float32, device="cpu", autoreset_mode="SameStep", copy=False)
    env.reset(seed=0)
    env.elapsed_steps.copy_(torch.randint(1000, (WORLDS,)))
    space = env.single_action_space
    low, high = (torch.tensor(np.clip(x, -1.0, 1.0)) for x in (space.low, space.high))
    actions = itertools.cycle([low + (high - low) * torch.rand(WORLDS, len(low)) for _ in range(8)])

    def step() -> int:
        env.step(next(actions))
        return WORLDS

    start = time.perf_counter()
    for _ in range(WARM_UP):  # to typical states, not those at the beginning
        step()
        if time.perf_counter() - start > LONGEST:
            break
    return step


def of_dm_control(name: str) -> Step:
    env = Suite(name).env
    spec, rng = env.action_spec(), np.random.default_rng(0)
    low, high = (np.clip(x, -1.0, 1.0) for x in (spec.minimum, spec.maximum))
    actions = itertools.cycle(list(rng.uniform(low, high, (8, len(low)))))
    env.reset()

    def step() -> int:
        env.step(next(actions))  # and a reset where the last step was an episode's last
        return 1

    return step


def of_envpool(name: str) -> Step | None:
    task = "".join(part[:1].upper() + part[1:] for part in re.split("[-_]", name)) + "-v1"
    if not envpool_has(task):
        return None
    import envpool

    try:
        env = envpool.make(task, env_type="gymnasium", num_envs=POOL, num_threads=1, seed=0)
    except (KeyError, RuntimeError):
        return None
    env.reset()
    space, rng = env.action_space, np.random.default_rng(0)
    actions = itertools.cycle(list(rng.uniform(-1.0, 1.0, (8, POOL, *space.shape)).astype(space.dtype)))

    def step() -> int:
        env.step(next(actions))
        return POOL

    return step


def rates(contenders: dict[str, Step]) -> dict[str, float]:
    """Medians of steps a second of CPU time, in turns."""
    for step in contenders.values():
        step()
    rounds = [[rate(step, SECONDS, 10 * SECONDS) for step in contenders.values()] for _ in range(ROUNDS)]
    return dict(zip(contenders, map(statistics.median, zip(*rounds, strict=True)), strict=True))


def told(log: str) -> Iterator[tuple[str, dict[str, float]]]:
    """What the slow tests have printed of each task."""
    number = r"([\d.]+(?:e[+-]?\d+)?)"
    for x in re.finditer(rf"(\S+): (\d+) states, observation {number}, reward {number},", log):
        yield x[1].lstrip("."), {"states": int(x[2]), "observation": float(x[3]), "reward": float(x[4])}
    for x in re.finditer(rf"(\S+): \d+ numbers of (\d+) episodes, the lowest p .*, {number}$", log, re.M):
        yield x[1].lstrip("."), {"episodes": int(x[2]), "p": float(x[3])}


def kept_rows() -> dict[str, Any]:
    return json.loads(FILE.read_text()) if FILE.exists() else {"rows": {}}


def read(logs: list[str]) -> None:
    """Keep what the slow tests have printed into these files."""
    kept = kept_rows()
    for log in logs:
        for name, row in told(Path(log).read_text()):
            kept["rows"].setdefault(name, {}).update(row)
    FILE.write_text(json.dumps(kept, indent=1) + "\n")


def measure(names: list[str]) -> None:
    """Time these tasks, one after the other, and keep what was found."""
    torch.set_num_threads(1)
    kept = kept_rows()
    kept["machine"] = cpu_model()
    for name in names:
        contenders = {"here": here(name), "dm_control": of_dm_control(name), "envpool": of_envpool(name)}
        row = rates({key: step for key, step in contenders.items() if step})
        kept["rows"].setdefault(name, {}).update(row)
        print(name, {key: round(x) for key, x in row.items()}, flush=True)
        FILE.write_text(json.dumps(kept, indent=1) + "\n")


COLUMNS: dict[str, Callable[[dict[str, float]], str]] = {
    "observation": lambda row: f"{row['observation']:.0e}",
    "reward": lambda row: f"{row['reward']:.0e}",
    "resets, p": lambda row: f"{row['p']:.2f}",
    "steps/s here": lambda row: _short(row["here"]),
    "dm_control": lambda row: _short(row["dm_control"]),
    "EnvPool": lambda row: _short(row["envpool"]),
    "here / dm_control": lambda row: f"{row['here'] / row['dm_control']:,.0f}",
}


def table() -> str:
    """Return the table as Markdown: a row for each task, and the columns that have data."""
    rows = kept_rows()["rows"]
    cells = {name: {head: _cell(show, rows[name]) for head, show in COLUMNS.items()} for name in TASKS if name in rows}
    heads = [head for head in COLUMNS if any(row[head] for row in cells.values())]
    return report.table(
        ["task", *heads], [[f"`{name}`", *(row[head] for head in heads)] for name, row in cells.items()]
    )


def _cell(show: Callable[[dict[str, float]], str], row: dict[str, float]) -> str:
    try:
        return show(row)
    except KeyError:
        return ""


def _short(rate: float) -> str:
    digits = 10 ** (math.floor(math.log10(rate)) - 1)
    rounded = round(rate / digits) * digits
    return f"{rounded / 1e6:,.2g} M" if rounded >= 1e6 else f"{rounded / 1e3:,.3g} k"


def main(argv: list[str] | None = None) -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("what", choices=("build", "time", "read", "table"))
    p.add_argument("names", nargs="*", help="tasks to build or time, else all whose kernels take seconds; logs to read")
    args = p.parse_args(argv)
    tasks = args.names or [name for name in TASKS if not name.startswith(SLOW)]
    warnings.simplefilter("ignore")
    if args.what == "build":
        for name in tasks:
            here(name)
    elif args.what == "time":
        measure(tasks)
    elif args.what == "read":
        read(args.names)
    else:
        print(table())


if __name__ == "__main__":
    main()
