"""What a run needs of an algorithm: `Agent` to train, watch, save and resume it, `Algorithm` to make it."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor

from ..envs.rollout import Observations, Rollout
from ..envs.vector_env import TorchVectorEnv
from .health import Faults
from .seen import Seen
from .sharing import Share


class Agent(Protocol):
    """A learner as the training loop of `runs.train` needs it: it learns one iteration at a time."""

    env: TorchVectorEnv
    rollout: Rollout  # whose tensors are of the last iteration
    settings: Any  # with total_steps and learning_rate
    frames_seen: int

    @property
    def acts_by_rows(self) -> bool:
        """Whether `act` gives a row the same bits whatever other rows it is given with it."""

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
        """Return the entries of policy.pt except the task's id, as copies: learning may go on before they are used."""

    def state_dict(self) -> dict[str, Any]:
        """Return the full state of the learner, from which it can be resumed, as `torch.save` takes it."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from what `state_dict` returned."""


class Learner(Agent, Protocol):
    """An agent that `train` makes: it may see groups of observations, and begin with what another run has learned."""

    seen: Seen
    LEARNED: Sequence[str]  # entries of its state that `begin_with` takes
    frames_before: int  # seen by runs that this one began with; it is in the state, too

    def begin_with(self, state: Mapping[str, Any]) -> None:
        """Start from what another run has learned: the entries LEARNED of its state."""


class Algorithm(Protocol):
    """The module of an algorithm that `train --algorithm` knows."""

    NAME: str  # in results
    TABLES: Path  # of its settings: "defaults", and what differs from them by id of a task

    def settings(self, env_id: str = "", device: str = "", **instead: Any) -> dict[str, Any]:
        """Return the settings for a task on a kind of device, in the order of their flags.

        Raises ValueError for a bad one.
        """

    def add_flags(self, parser: argparse.ArgumentParser) -> None:
        """Add the flags that are not settings."""

    def ways(self, args: argparse.Namespace, settings: Mapping[str, Any], share: Share) -> dict[str, str]:
        """Return what flags, or else settings, chose: the `ways` of `make`, which results name.

        Raises SystemExit for bad ones.
        """

    def make(
        self, env: TorchVectorEnv, settings: Mapping[str, Any], seed: int, obs_groups: Mapping[str, Sequence[str]],
        share: Share, **ways: Any,
    ) -> Learner:  # fmt: skip
        """Make the learner. Raises ValueError for what it does not support, such as several processes."""
