"""The reward that a task gives for other goals than its worlds', for hindsight experience replay."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from .engine import Engine
from .parts import Shape

GOALS = ("achieved_goal", "desired_goal")  # the names that goals have in an observation
COMPUTE_REWARD = "compute_reward"  # the task's function, and that of environments


def compute_reward(engine: Engine, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
    """Return what the task's `compute_reward` gives for goals (..., *shape): (...), tensors for tensors, else arrays.

    Raises AttributeError if the task has no such function, and ValueError for goals of another shape.
    """
    function = getattr(engine.task, COMPUTE_REWARD, None)
    if function is None:
        raise AttributeError(
            f"{type(engine.task).__name__} has no {COMPUTE_REWARD}(self, achieved_goal, desired_goal, info), which "
            "gives the reward for any goal, and which its `outcome` can call, too"
        )
    tensors = isinstance(achieved_goal, torch.Tensor)
    given = [_as_tensor(x, engine.dtype) for x in (achieved_goal, desired_goal)]
    shapes = [_shape(engine, name, x) for name, x in zip(GOALS, given, strict=True)]
    leads = [_lead(name, x, shape) for name, x, shape in zip(GOALS, given, shapes, strict=True)]
    if leads[0] != leads[1]:
        raise ValueError(f"there are {tuple(leads[0])} achieved goals, and {tuple(leads[1])} desired ones")
    like = given[0].new_empty(leads[0])
    goals = [_scalars(x.reshape(*like.shape, *shape), len(shape)) for x, shape in zip(given, shapes, strict=True)]
    reward = torch.as_tensor(function(*goals, Told(info, like)), dtype=like.dtype, device=like.device)
    reward = reward.expand(like.shape).clone()
    return reward if tensors else reward.cpu().numpy()[()]


def _as_tensor(x: Any, dtype: torch.dtype) -> torch.Tensor:
    found = x if isinstance(x, torch.Tensor) else torch.tensor(np.asarray(x))
    return found if found.is_floating_point() else found.to(dtype)


def _shape(engine: Engine, name: str, goals: torch.Tensor) -> Shape:
    """Return the shape of a goal in the task's observation; if it has none of this name, goals are lists of numbers."""
    there = [entry for entry in engine.layout.observation.entries if entry.path and entry.path[-1] == name]
    return there[0].shape if there else tuple(goals.shape[-1:])


def _lead(name: str, goals: torch.Tensor, shape: Shape) -> torch.Size:
    """Return the leading dimensions of goals (..., *shape); numbers may be (..., 1), as adapters have them.
    """
    at = goals.ndim - len(shape)
    if at >= 0 and tuple(goals.shape[at:]) == shape:
        with_an_axis = shape == () and goals.ndim > 1 and goals.shape[-1] == 1
        return goals.shape[:-1] if with_an_axis else goals.shape[:at]
    raise ValueError(f"{name} must be of shape (..., {', '.join(map(str, shape))}), not {tuple(goals.shape)}")


def _scalars(x: torch.Tensor, depth: int) -> Any:
    """Return tensors (...) as the task's functions take numbers: one, or lists `depth` deep."""
    return [_scalars(y, depth - 1) for y in x.unbind(-depth)] if depth else x


class Told(Mapping[str, Any]):
    """Entries of info as a task's functions give them, each made when it is read.

    `given` has tensors or arrays (...) or (..., k) by name, like a step's info, or is a list of dicts, or None.
    """

    def __init__(self, given: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None, like: torch.Tensor):
        self._given, self._like = {} if given is None else given, like

    def __getitem__(self, name: str) -> Any:
        try:
            x = self._given[name] if isinstance(self._given, Mapping) else [told[name] for told in self._given]
        except KeyError:
            raise KeyError(
                f"{COMPUTE_REWARD} reads info[{name!r}], which it was not given (of Stable-Baselines3: "
                f"SB3VecEnv(env, info_keys=({name!r},)) and HerReplayBuffer(..., copy_info_dict=True))"
            ) from None
        x = _as_tensor(x, self._like.dtype).to(self._like.device, self._like.dtype)
        return _scalars(x, x.ndim - self._like.ndim)

    def __iter__(self) -> Iterator[str]:
        given = self._given if isinstance(self._given, Mapping) else (self._given[0] if len(self._given) else {})
        return iter(given)

    def __len__(self) -> int:
        return len([*self])
