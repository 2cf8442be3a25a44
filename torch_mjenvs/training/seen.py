"""The parts of an observation that a learner's networks read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ..envs.observation import Observation, chosen_groups
from ..envs.parts import mapped


class Seen:
    """The parts of an observation, and those that policy and critic see if the task has groups."""

    def __init__(self, observation: Observation, obs_groups: Mapping[str, Sequence[str]] | None = None):
        """Choose the groups that "policy" and "critic" see, by `obs_groups` or as `chosen_groups` does.

        Raises ValueError for groups that the task does not have.
        """
        self.parts, self.groups = observation.parts("dict"), None
        self.columns: Tensor | None = None  # (2, O) bool, of policy and critic
        if observation.grouped:
            self.groups = chosen_groups([*self.parts.shapes], obs_groups)
            self.columns = torch.zeros(2, self.parts.size, dtype=torch.bool, device="cpu")
            for row, who in zip(self.columns, ("policy", "critic"), strict=True):
                row[self.parts.columns(self.groups[who])] = True
        elif obs_groups:
            raise ValueError(f"obs_groups is {obs_groups}, and the task's observations have no groups")

    def unread(self) -> list[str]:
        """Return the groups that neither network sees."""
        read = [x for groups in (self.groups or {}).values() for x in groups]
        return [x for x in self.parts.shapes if x not in read] if self.groups else []

    def entries(self) -> dict[str, Any]:
        """Return the entries of policy.pt that say what the networks read; none if observations have no names."""
        shapes = {"observation": mapped(list, self.parts.shapes)} if self.parts.named else {}
        return shapes | ({"obs_groups": self.groups} if self.groups else {})
