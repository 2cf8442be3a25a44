"""`torch_mjenvs list`: the tasks, and the scores of the policies that come with the package."""

from __future__ import annotations

from collections.abc import Sequence

import gymnasium

from ..policy import pretrained, pretrained_ids
from ..training.worlds import task_ids
from . import parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Run `torch_mjenvs list`: print a table of all registered tasks, and of all policies that come with them."""
    parser("list", "The tasks, and the scores of the package's trained policies.").parse_args(arguments)
    known = pretrained_ids()
    rows = [("id", "steps", "solved at", "trained policy")]
    for env_id in task_ids():
        spec = gymnasium.spec(env_id)
        threshold = "-" if spec.reward_threshold is None else f"{spec.reward_threshold:,.0f}"
        rows.append((env_id, str(spec.max_episode_steps), threshold, _worth(env_id) if env_id in known else "-"))
        more = [name for name in known if name.startswith(f"{env_id}-")]  # for other fields of the task
        rows += [(name, "", "", _worth(name)) for name in more]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _worth(env_id: str) -> str:
    found = pretrained(env_id).about.get("scores", {})
    return ", ".join(f"{score:,.0f} in {name}" for name, score in found.items()) or "yes"
