"""The health of a run: counts of what goes wrong, and the rule for when a run has diverged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from ..envs.entries import REWARD
from ..envs.layout import BufferLayout
from ..envs.observation import Entry
from .sharing import Share

MOST_REWARD = 1e18  # squares of more are beyond float32
LISTED = 3  # numbers of an entry in a message


def is_bad(x: Tensor) -> Tensor:
    """Return where numbers are not finite, or beyond MOST_REWARD."""
    return ~(x.abs() <= MOST_REWARD)


def count_bad_rewards(reward: Tensor) -> Tensor:
    """Return how many rewards are not finite, or beyond MOST_REWARD, as a tensor on the rewards' device."""
    return torch.sum(is_bad(reward))


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


def bad_terms(layout: BufferLayout, data: Mapping[str, Tensor], share: Share) -> str:
    """Name the terms that made rewards of the last rollout bad, each with its worlds; "" if only sums were.

    data: the rollout's tensors (T, N, ...). In a shared run all processes call this together.
    """
    ended = share.gathered(is_bad(data["reward"]).any(0))
    if not ended.any():
        return ""
    if not layout.rewards:
        return f", in {_worlds(ended)}; a reward that is a dict of terms would say which"
    # An episode's sum of a term stays bad, once the term was.
    found = {name: share.gathered(is_bad(data[REWARD + name]).any(0)) & ended for name in layout.rewards}
    return _listed({f"the term {name!r}": bad for name, bad in found.items()})


def bad_entries(layout: BufferLayout, data: Mapping[str, Tensor], share: Share) -> str:
    """Name the entries of the observation that were bad in the last rollout, as `bad_terms` does with terms."""
    found, at, bad = {}, 0, share.gathered(is_bad(data["obs"]).any(0))
    for entry in layout.observation.entries:
        end = at + entry.size * max(1, entry.steps)
        of_steps = bad[:, at:end].unflatten(1, (-1, entry.size)).any(1) if entry.size else bad[:, at:at]
        found[_named(entry, of_steps.any(0).nonzero()[:, 0].tolist())] = of_steps.any(1)
        at = end
    return _listed(found)


def _named(entry: Entry, bad: list[int]) -> str:
    """Name an entry of the observation and, if it has several numbers, those at these places of the flat entry."""
    name = repr("/".join(entry.path)) if entry.path else "the list"
    places = ", ".join(map(str, bad[:LISTED])) + ", ..." * (len(bad) > LISTED)
    return f"{name}[{places}]" if entry.shape else name


def _listed(found: Mapping[str, Tensor]) -> str:
    said = [f"{name} in {_worlds(bad)}" for name, bad in found.items() if bad.any()]
    return f": {', '.join(said)}" if said else ""


def _worlds(bad: Tensor) -> str:
    return f"{int(bad.sum()):,} of {len(bad):,} worlds"
