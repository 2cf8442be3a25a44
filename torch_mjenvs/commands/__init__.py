"""The commands of `python -m torch_mjenvs`, one file each, with a `main(arguments)`."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..policy import Policy, pretrained, pretrained_ids
from ..training.worlds import task_id

WHAT = "a folder of a run, the file of a policy, or the id of a task whose trained policy comes with the package"


def policy_of(what: str) -> Policy:
    """The policy in a folder or file, or the one that comes with the package for a task. Raises SystemExit."""
    try:
        if Path(what).expanduser().exists():
            found = Policy.load(what)
            task_id(found.env_id)  # which may be a user's own, and not be here
            return found
        if "/" in what or "\\" in what or what.endswith(".pt"):
            raise SystemExit(f"there is no file or folder {what!r}")
        env_id = task_id(what)
        if env_id not in pretrained_ids():
            raise SystemExit(
                f"no trained policy of {env_id} comes with the package: train one by "
                f"`torch_mjenvs train --env {env_id}`, and name its folder here. "
                f"There are policies of {', '.join(pretrained_ids()) or 'no task'}"
            )
        return pretrained(env_id)
    except (FileNotFoundError, ValueError) as error:
        raise SystemExit(str(error)) from error


def parser(name: str, description: str) -> argparse.ArgumentParser:
    """That of a command."""
    return argparse.ArgumentParser(prog=f"torch_mjenvs {name}", description=description)
