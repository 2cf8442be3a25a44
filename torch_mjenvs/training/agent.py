"""The protocol of a learner: with it, a run trains, watches, saves and resumes any algorithm."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Protocol

from torch import Tensor

from .health import Faults


class Agent(Protocol):
    """What learns, frame by frame."""

    settings: Any  # with total_steps and learning_rate
    frames_seen: int

    @property
    def finished(self) -> Collection[float]:
        """Returns of the last episodes."""

    def iterate(self) -> None: ...
    def act(self, obs: Tensor) -> Tensor: ...
    def measures(self) -> dict[str, float]:
        """Numbers worth a curve. The host waits for the device here, once an iteration."""

    def faults(self) -> Faults:
        """What went wrong in the last iteration, counted on the device and read right after `measures`."""

    def networks(self) -> dict[str, Any]:
        """What policy.pt holds beside the id of the task."""

    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: dict[str, Any]) -> None: ...
