"""Reads what a task has logged of its episodes from the engine, and averages it for the logs of trainers."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from gymnasium.vector import AutoresetMode

from ..by_value import ByValue
from .engine import Engine, mark_static_address


def of_last_step(engine: Engine, names: Sequence[str] | None = None) -> dict[str, torch.Tensor]:
    """Return the sums, means, length and reasons that a task has logged, by name, (N,) each, or these entries of info.

    They are of the episodes that the last step belonged to, as they were before any reset; {} where a task names none.
    """
    names = engine.layout.logged if names is None else names
    if not names:
        return {}
    info = engine.final_info if engine.mode is AutoresetMode.SAME_STEP else engine.info
    return {name: info[name] for name in names}


class EpisodeMeans(ByValue):
    """Means over the episodes that ended in a step: of what the task has logged of each.

    They lie on the device, and nothing waits for it. So in a step in which no episode ended, they are those of the last
    step in which one did, and NaN before the first.
    """

    def __init__(self, engine: Engine):
        self.engine, self.names = engine, engine.layout.logged
        means = torch.full((len(self.names),), torch.nan, dtype=engine.dtype, device=engine.device)
        self.means = mark_static_address(means)

    def update(self, ended: torch.Tensor) -> dict[str, torch.Tensor]:
        """Take in the last step, in which the episodes of the (N,) bool mask ended; return the means by name."""
        if not self.names:
            return {}
        values = torch.stack([*of_last_step(self.engine).values()])
        means = torch.where(ended, values, 0.0).sum(1) / ended.sum()
        self.means.copy_(torch.where(ended.any(), means, self.means))
        return dict(zip(self.names, self.means.clone().unbind(), strict=True))
