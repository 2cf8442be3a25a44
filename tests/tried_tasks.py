"""Random tasks, tried in many ways.

    python tests/tried_tasks.py --seed 0 --count 100

A failure is shown as the source of the smallest task found that still has it.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial

import mujoco
import random_tasks
import torch
from random_tasks import Plan
from task_runs import Wrong, tell
from tried_beside import check_plain
from tried_gymnasium import check_gymnasium
from tried_interfaces import check_libraries, check_modes, check_partial, check_places, check_torchrl, check_wrappers

from torch_mjenvs.compiler import loader

CHECKS = {
    "plain": check_plain,
    "places": check_places,
    "modes": check_modes,
    "torchrl": check_torchrl,
    "partial": check_partial,
    "wrappers": check_wrappers,
    "libraries": check_libraries,
    "gymnasium": check_gymnasium,
}


def failure(plan: Plan, run: Callable[[Plan], None]) -> tuple[str, str]:
    """Return what is wrong with a plan, "" if nothing, and details."""
    try:
        run(plan)
    except Wrong as error:
        return error.args[0], "\n".join(map(str, error.args[1:]))
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:60]}", "\n".join([str(error), *getattr(error, "__notes__", [])])
    return "", ""


def shrink(plan: Plan, what: str, run: Callable[[Plan], None], seconds: float) -> Plan:
    """Return a smaller plan with the same failure."""
    until, at, tried = time.monotonic() + seconds, 0, 0  # at: where in the list of smaller ones to go on
    while time.monotonic() < until:
        options = [*random_tasks.smaller(plan)]
        if tried >= len(options):
            break
        new = options[at % len(options)]
        if failure(new, run)[0] == what:
            plan, tried = new, 0
        else:
            at, tried = at + 1, tried + 1
    return plan


def wrong(check: str, seed: int, seconds: float = 20.0) -> str:
    """Return a report of what is wrong with task `seed`, shrunk; empty if nothing is. Every other is of float32."""
    run = CHECKS[check]
    if check != "plain":
        run = partial(run, dtype=(torch.float64, torch.float32)[seed % 2])
    plan = random_tasks.draw(seed)
    what, _ = failure(plan, run)
    if not what:
        return ""
    plan = shrink(plan, what, run, seconds)
    again = f"python tests/tried_tasks.py --check {check} --seed {seed}"
    return "\n".join(
        [f"task {seed}, {check}: {what}", failure(plan, run)[1], again, plan.source, plan.xml, str(plan.run)]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0, help="the first task")
    parser.add_argument("--count", type=int, default=1, help="how many")
    parser.add_argument("--check", choices=CHECKS, help="one of the checks; by default they take turns")
    parser.add_argument("--seconds", type=float, default=60.0, help="to shrink one for")
    args = parser.parse_args()
    seeds = range(args.seed, args.seed + args.count)
    tell((wrong(args.check or [*CHECKS][k // 2 % len(CHECKS)], k, args.seconds) for k in seeds), "tasks")


if __name__ == "__main__":
    mujoco.set_mju_user_warning(lambda _: None)
    loader.options["opt"] = 0
    torch.set_num_threads(1)
    main()
