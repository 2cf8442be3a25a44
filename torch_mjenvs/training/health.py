"""The health of a run: counts of what goes wrong, and the rule for when a run has diverged."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

MOST_REWARD = 1e18  # squares of more are beyond float32


def count_bad_rewards(reward: Tensor) -> Tensor:
    """Return how many rewards are not finite, or beyond MOST_REWARD, as a tensor on the rewards' device."""
    return torch.sum(~(reward.abs() <= MOST_REWARD))


@dataclass(frozen=True)
class Faults:
    """Counts of what went wrong, in an iteration or in a whole run."""

    bad_states: int = 0  # steps after which a world's state or action was not finite, or beyond 1e10: its episode ended
    bad_updates: int = 0  # updates whose losses or gradient were not finite
    bad_weights: int = 0  # numbers of the networks that are not finite
    bad_rewards: int = 0  # steps whose reward was not finite, or beyond MOST_REWARD; 1 if only a sum of them was
    bad_observations: int = 0  # numbers of the observations that were not finite, or so large that their variance is

    def __add__(self, other: Faults) -> Faults:
        mine, theirs = vars(self), vars(other)
        return Faults(**{name: mine[name] + theirs[name] for name in mine})

    def divergence(self, frames: int) -> str | None:
        """Return why an iteration of this many frames shows that the run has diverged; None if it does not."""
        if self.bad_rewards:
            many = f"{self.bad_rewards:,} of {frames:,} steps"
            return f"in {many}, the task's reward was not finite or beyond {MOST_REWARD:g}"
        if self.bad_observations:
            many = f"{self.bad_observations:,} of the numbers that the task lets worlds observe"
            return f"{many} were at times not finite, or too large for the mean and variance that they are scaled by"
        if self.bad_weights:
            return f"{self.bad_weights:,} of the networks' numbers are not finite"
        if self.bad_updates:
            return f"the losses or gradients of {self.bad_updates:,} updates were not finite"
        if 2 * self.bad_states >= frames:
            return f"in {self.bad_states:,} of {frames:,} steps, a state or action was not finite or beyond 1e10"
        return None

    def __str__(self) -> str:
        """Name the counts that are not 0: "3 bad states"."""
        return ", ".join(f"{n:,} {name.replace('_', ' ')}" for name, n in vars(self).items() if n)
