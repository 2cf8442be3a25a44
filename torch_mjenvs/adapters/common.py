"""Checks and conversions that all adapters share."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Box, Dict
from gymnasium.vector import AutoresetMode, VectorEnv

from ..envs.layers import layers, refuse_arrays
from ..envs.observation import POLICY, chosen_groups
from ..envs.parts import Parts
from ..envs.spaces import parts_of
from ..envs.vector_env import TorchVectorEnv


def bare(env: VectorEnv) -> TorchVectorEnv:
    """Return the `TorchVectorEnv` inside any wrappers."""
    inner = env.unwrapped
    assert isinstance(inner, TorchVectorEnv)
    return inner


def attributes(env: VectorEnv, name: str, worlds: Sequence[int]) -> list[Any]:
    """Return an attribute of the outermost layer that has it, a value for each of these worlds.

    A tensor with a row for each world gives its rows; anything else is shared. Raises AttributeError if no layer has
    it.
    """
    for layer in layers(env):
        if name in vars(layer) or hasattr(type(layer), name):
            value = getattr(layer, name)
            of_worlds = isinstance(value, torch.Tensor) and value.ndim > 0 and len(value) == env.num_envs
            return [value[i] if of_worlds else value for i in worlds]
    raise AttributeError(f"{type(env.unwrapped).__name__} has no attribute {name!r}, nor has a wrapper of it")


def check(env: VectorEnv, mode: AutoresetMode | None, adapter: str) -> None:
    """Raise TypeError unless `env` is a `TorchVectorEnv` that gives tensors, ValueError for another mode or copy=False.

    A mode of None allows any.
    """
    if not isinstance(env, VectorEnv) or not isinstance(env.unwrapped, TorchVectorEnv):
        raise TypeError(f"{adapter} goes around a TorchVectorEnv and wrappers of it, not around {env}")
    refuse_arrays(env, adapter)
    if mode is not None and env.unwrapped.autoreset_mode is not mode:
        raise ValueError(f"{adapter} needs an environment made with autoreset_mode={mode.value!r}")
    if not env.unwrapped.copy:
        raise ValueError(f"{adapter} hands on what a step gives, which with copy=False the next step would overwrite")


class Groups:
    """The groups of an environment's observations as rows, and which of them policy and critic see.

    `groups` says which these are; None stands for the default of `observation.chosen_groups`. If a task has no groups,
    everything is the group "policy", and the critic sees the same.
    """

    def __init__(self, env: VectorEnv, groups: Mapping[str, Sequence[str]] | None = None):
        space = env.single_observation_space
        self.there = bare(env).engine.layout.observation.grouped and isinstance(space, Dict)
        shapes = parts_of(space).shapes
        self._parts = {name: Parts(x) for name, x in shapes.items()} if self.there else {POLICY: Parts(shapes)}
        self._given = groups

    @cached_property
    def seen(self) -> dict[str, list[str]]:
        """The groups that "policy" and "critic" see. Raises ValueError for groups that the task does not have."""
        return chosen_groups([*self._parts], self._given)

    def rows(self, obs: Any) -> dict[str, torch.Tensor]:
        """Return the observations of each group as one tensor (N, D), or unchanged if they have no names."""
        given = obs if self.there else {POLICY: obs}
        return {name: parts.join(given[name]) for name, parts in self._parts.items()}

    def of(self, who: str, rows: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Return what "policy" or "critic" sees, (N, D): its groups, one after the other."""
        return torch.cat([rows[name].flatten(1) for name in self.seen[who]], 1)

    def space(self, who: str) -> Box:
        """Return the space of what "policy" or "critic" sees in one world, unbounded, float32."""
        return Box(-np.inf, np.inf, (sum(self._parts[name].size for name in self.seen[who]),), np.float32)


def check_bounded(env: VectorEnv, adapter: str) -> None:
    """Raise ValueError if actions are unbounded: the library, which scales or clips them, would turn them into NaN."""
    space = box(env.single_action_space)
    if not np.isfinite([space.low, space.high]).all():
        raise ValueError(
            f"{adapter} needs actions within finite bounds, and these are of {space}: give the actuators ctrlrange and "
            "ctrllimited='true' in the model, or the task an `action_space` (with `control`, say from [-1, 1])"
        )


def warn_off_centre(env: VectorEnv, adapter: str) -> None:
    """Warn if 0 is not a valid action, since the library's policies at first draw theirs around 0."""
    space = box(env.single_action_space)
    off = np.flatnonzero((space.low > 0) | (space.high < 0)).tolist()
    if off:
        warnings.warn(
            f"the policies that {adapter} is for begin with actions about 0, and entries {off} of an action may not be "
            "0: put wrappers.RescaleAction(env, -1.0, 1.0) inside, or give the task an `action_space` of [-1, 1]",
            stacklevel=3,
        )


def box(space: object) -> Box:
    """Return a space typed as a Box, which all of this package's are."""
    assert isinstance(space, Box)
    return space


def dicts(info: dict[str, Any], worlds: torch.Tensor) -> list[dict[str, Any]]:
    """Return a dict for each of these worlds, with the entries of `info` that the world gave."""
    dicts: list[dict[str, Any]] = [{} for _ in range(len(worlds))]
    for name, x in info.items():
        mask = info.get(f"_{name}")
        if mask is None:  # a mask itself
            continue
        given = mask[worlds].tolist()
        rows = each_world(x, worlds) if isinstance(x, dict) else _values(x[worlds])
        for entries, row, there in zip(dicts, rows, given, strict=True):
            if there:
                entries[name] = row
    return dicts


def each_world(x: dict[str, Any], worlds: torch.Tensor) -> list[dict[str, Any]]:
    """Return a dict for each of the worlds, made from a dict of (N, ...) tensors, and of such dicts, without masks."""
    columns = {name: each_world(y, worlds) if isinstance(y, dict) else _values(y[worlds]) for name, y in x.items()}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _values(x: torch.Tensor) -> list[Any]:
    """Return a list of Python numbers, or of arrays where a world has several numbers."""
    return x.tolist() if x.ndim == 1 else list(x.cpu().numpy())
