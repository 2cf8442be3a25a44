"""The `Agent` protocol of a learner: with it, a run trains, watches, saves and resumes any algorithm."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Protocol

from torch import Tensor

from ..envs.rollout import Observations
from .health import Faults


class Agent(Protocol):
    """A learner as the training loop of `runs.train` needs it: it learns one iteration at a time."""

    settings: Any  # with total_steps and learning_rate
    frames_seen: int

    @property
    def finished(self) -> Collection[float]:
        """The returns of the episodes that ended last."""

    def iterate(self) -> None:
        """Collect frames, and learn from them."""

    def act(self, obs: Observations) -> Tensor:
        """Return the mean actions (N, A) for observations, (N, O) or by name."""

    def measures(self) -> dict[str, float]:
        """Return numbers to plot over the run, by name. The host waits for the device here, once an iteration."""

    def faults(self) -> Faults:
        """Return counts of what went wrong in the last iteration; `measures` has already waited for the device."""

    def networks(self) -> dict[str, Any]:
        """Return the entries of policy.pt, all but the id of the task."""

    def state_dict(self) -> dict[str, Any]:
        """Return all that the learner goes on from, as `torch.save` takes it."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from what `state_dict` returned."""
