"""The commands of `torch_mjenvs` except `train`, one file each, with a `main(arguments)`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from gymnasium.spaces import Box

from ..policy import Policy, pretrained, pretrained_ids
from ..training.flags import Parser
from ..training.task_flags import add_fields, arguments, parse, task_behind
from ..training.worlds import make, task_id, task_ids

WHAT = "a folder of a run, the file of a policy, or the id of a task whose trained policy comes with the package"


@dataclass(frozen=True)
class Acting:
    """A policy, the id of the task that it is to act in, and the task's arguments that are not as usual."""

    policy: Policy
    env_id: str
    fields: dict[str, Any]  # as `task_flags` names them
    arguments: dict[str, Any]
    action_space: Box


def acting(p: argparse.ArgumentParser, argv: Sequence[str] | None) -> tuple[argparse.Namespace, Acting]:
    """Parse the command line of a parser with `add_policy`, with flags for the fields of the task that it leads to.

    Fields that no flag gives are those that the policy was trained with. Raises SystemExit as `policy_of`.
    """
    argv = list(sys.argv[1:] if argv is None else argv)
    first, rest = (None, []) if argv in (["-h"], ["--help"]) else p.parse_known_args(argv)
    for flag in rest:
        if first and flag.startswith("--") and flag in argv[: argv.index(first.what)]:
            p.error(f"name the policy before {flag}, which is the task's")
    p.add_argument("-h", "--help", action="help", help="show this help message and exit")
    if first is None:
        p.parse_args(argv)
    assert first is not None
    policy, env_id = policy_of(first.what, first.task)
    task = task_behind(env_id)
    same = policy.env_id.rpartition(":")[2] == env_id.rpartition(":")[2]
    trained_with = policy.task if same else {}
    add_fields(p, task, trained_with)
    args, fields = parse(p, argv, task)
    fields = trained_with | fields
    try:
        given = arguments(task, fields)
        env = make(env_id, 1, "cpu", **given)  # on the CPU, whose kernels are needed next anyway
        try:
            policy.check_spaces(env)
            found = Acting(policy, env_id, fields, given, cast(Box, env.single_action_space))
        finally:
            env.close()
    except (OSError, TypeError, ValueError) as error:
        raise SystemExit(f"{first.what}: {error}") from error
    if fields:
        print(f"{env_id} with {', '.join(f'{name}={x}' for name, x in fields.items())}", file=sys.stderr)
    return args, found


def add_policy(p: argparse.ArgumentParser) -> None:
    """Add the arguments that name a policy and the task it is to act in, which `acting` takes."""
    p.add_argument("what", help=WHAT)
    p.add_argument(
        "--task", metavar="ID", help="the task to act in, instead of the one that the file names; a task of your "
        "own with its module, as in my_tasks:TorchMine-v0, since files never cause an import"
    )  # fmt: skip


def policy_of(what: str, task: str | None) -> tuple[Policy, str]:
    """Return the policy that a folder, a file or a task's id names, and the id of the task it is to act in.

    That is `task` if it is given, else the task that the policy names. A file never causes an import. Raises SystemExit
    with one line where there is no such policy or task.
    """
    try:
        policy = _policy(what)
        env_id = _task_of(policy) if task is None else task_id(task)
        if env_id != policy.env_id:
            print(f"a policy of {policy.env_id!r} acts in {env_id}", file=sys.stderr)
    except (FileNotFoundError, ValueError) as error:
        raise SystemExit(f"{what}: {error}" if isinstance(error, ValueError) else str(error)) from error
    return policy, env_id


def _policy(what: str) -> Policy:
    if Path(what).expanduser().exists():
        return Policy.load(what)
    if what in pretrained_ids():
        return pretrained(what)
    named = any(what in (env_id, env_id.rpartition("-v")[0]) for env_id in task_ids())
    if not named and ("/" in what or "\\" in what or what.endswith(".pt")):
        raise SystemExit(f"there is no file or folder {what!r}")
    env_id = task_id(what)
    if env_id not in pretrained_ids():
        raise SystemExit(
            f"no trained policy of {env_id} comes with the package: train one by "
            f"`torch_mjenvs train --env {env_id}`, and name its folder here. "
            f"There are policies of {', '.join(pretrained_ids()) or 'no task'}"
        )
    return pretrained(env_id)


def _task_of(policy: Policy) -> str:
    """Return the task that a policy names. Raises SystemExit if that would take importing the user's module."""
    named = policy.env_id
    if ":" in named:
        raise SystemExit(
            f"this is a policy of {named!r}, a task outside of this package. A file does not say what is imported: "
            f"if you know that module, name it yourself, by --task {named}"
        )
    if named not in task_ids():
        raise SystemExit(f"this is a policy of {named!r}, and there is no such task: name one by --task")
    return named


def parser(name: str, description: str, add_help: bool = True) -> argparse.ArgumentParser:
    """Return an empty argument parser for the command `torch_mjenvs NAME`; without help, for `acting` to add it."""
    return Parser(f"torch_mjenvs {name}", description, add_help)
