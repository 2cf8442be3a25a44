"""Entries of info that tell of an episode: sums of the reward's named terms, its length, and why it ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from gymnasium.vector import AutoresetMode

from ..compiler.launch import mark_static_address

if TYPE_CHECKING:
    from .engine import Engine

REWARD = "episode_reward/"  # and the name of a term: its sum over the episode so far
END = "episode_end/"  # and the name of a reason: 1 where that ended the episode, else 0
LENGTH = "episode_length"

BAD_STATE = "bad_state"  # also an entry of info that the environment adds in every step
TIME_LIMIT = "time_limit"
OWN_REASONS = (TIME_LIMIT, BAD_STATE)


def entries(rewards: tuple[str, ...], ends: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of these entries, for a task's named terms and the reasons of its ends; () where it has none."""
    if not (rewards or ends):
        return ()
    return (*(REWARD + name for name in rewards), LENGTH, *(END + name for name in ends))


def of_last_step(engine: Engine) -> dict[str, torch.Tensor]:
    """Return these entries by name, (N,) each, of the episodes that the last step belonged to, before any reset."""
    info = engine.final_info if engine.mode is AutoresetMode.SAME_STEP else engine.info
    return {name: info[name] for name in engine.layout.logged}


class EpisodeMeans:
    """Means of these entries over the episodes that ended in a step, for the logs of trainers.

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
