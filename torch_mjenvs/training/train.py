"""The command `torch_mjenvs train`: a policy for a task, by any of the algorithms."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Mapping
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch

from . import runs
from .agent import Algorithm
from .checkpoints import start_from
from .flags import Parser, groups
from .sharing import Share, joined, local
from .task_flags import arguments
from .undisturbed import undisturbed
from .worlds import made_of, make

ALGORITHMS = {"ppo": ".ppo", "sac": ".sac"}  # modules that are each an `Algorithm`


def chosen(argv: list[str], before: Mapping[str, Any] | None = None) -> tuple[Algorithm, argparse.ArgumentParser]:
    """Return the algorithm that a command line names, else that of the run `before`, and the parser for its flags."""
    first = Parser("torch_mjenvs train", add_help=False)
    _add_algorithm(first)
    first.set_defaults(algorithm=str((before or {}).get("algorithm", "ppo")).lower())
    name = first.parse_known_args(argv)[0].algorithm
    if name not in ALGORITHMS:
        raise SystemExit(f"there is no algorithm {name!r}: choose from {', '.join(ALGORITHMS)}")
    found = cast(Algorithm, importlib.import_module(ALGORITHMS[name], __package__))
    others = ", ".join(x.upper() for x in ALGORITHMS if x != name)
    about = (
        f"Train a policy for one of the Torch tasks by {found.NAME}, and score it at the end, also in Gymnasium's or "
        f"dm_control's own task. Other algorithms, by --algorithm: {others}."
    )
    parser = runs.training_parser(about, found.settings(), "torch_mjenvs train", found.TABLES)
    _add_algorithm(parser)
    found.add_flags(parser)
    parser.add_argument(
        "--obs-groups", nargs="+", type=groups, metavar="WHO=GROUP,GROUP",
        help="the groups of the task's observations that each network sees: policy=policy critic=policy,privileged",
    )  # fmt: skip
    parser.add_argument(
        "--start", type=Path, metavar="RUN",
        help="begin with the networks of this run, of this task or another with such observations and actions",
    )  # fmt: skip
    return found, parser


def _add_algorithm(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--algorithm", choices=ALGORITHMS, default="ppo", help="default ppo; each has its own settings")


def main(argv: list[str] | None = None) -> None:
    """Run `torch_mjenvs train`."""
    argv = list(sys.argv[1:] if argv is None else argv)
    before = runs.to_go_on_with(argv)
    algorithm, parser = chosen(argv, before)
    args, env_id, task = runs.parsed(parser, argv, before)
    if args.start and args.resume:
        raise SystemExit("--start begins a run, and --resume goes on with one: give one of them")
    args.device = local(args.device)
    with undisturbed(args.device), joined(args.device) as share:
        train(algorithm, args, env_id, task, share)


def train(algorithm: Algorithm, args: argparse.Namespace, env_id: str, task: dict[str, Any], share: Share) -> None:
    """Train, in this process's share of the worlds; the first process keeps the results."""
    settings = runs.chosen(env_id, args, partial(algorithm.settings, device=torch.device(args.device).type))
    ways = algorithm.ways(args, settings, share)
    worlds = settings["num_envs"]
    if worlds % share.ranks:
        raise SystemExit(f"--num-envs {worlds} cannot be shared out: use a multiple of {share.ranks}")
    mine = share.of(worlds)
    torch.manual_seed(args.seed)
    try:
        env = make(env_id, mine.stop - mine.start, args.device, first_world=mine.start, **arguments(env_id, task))
    except (OSError, ValueError) as error:  # a model that is not there, a field that the task does not take
        raise SystemExit("\n".join([str(error), *getattr(error, "__notes__", ())])) from error
    try:
        agent = algorithm.make(env, settings, args.seed, dict(args.obs_groups or ()), share, **ways)
    except ValueError as error:
        raise SystemExit(str(error)) from error
    if share.first and (unread := agent.seen.unread()):
        print(f"no network sees the observations {unread}, only {agent.seen.groups}: see --obs-groups", file=sys.stderr)
    run = {"algorithm": algorithm.NAME, "env": env_id, "seed": args.seed, "task": task, "settings": settings} | ways
    run |= agent.seen.entries() | {"made": made_of(env)}
    if args.start:
        start_from(agent, run, args.start)
        if runs.given(args, ["log_std"]) and share.first:
            kept = "log_std is learned, and is that run's; --log-std-min and --log-std-max bound it"
            print(f"note: --log-std changes nothing beside --start: {kept}", file=sys.stderr)
    with runs.folder(args.out, runs.name_of(env_id, args), args.resume) if share.first else nullcontext() as held:
        out = share.broadcast(held)
        history = runs.train(agent, run, out, args, share, {"start": str(args.start)} if args.start else {})
        env.close()
        history |= {"frames_before": agent.frames_before} if agent.frames_before else {}
        history |= {"processes": share.ranks} if share.ranks > 1 else {}
        if share.first:
            runs.finish(agent, run, out, args, history)


if __name__ == "__main__":
    main()
