"""Registers the tasks with Gymnasium."""

from __future__ import annotations

import gymnasium

from ..dmc.registry import TASKS as SUITE
from ..playground.registry import TASKS as PLAYGROUND
from .single_env import TorchEnv
from .tasks.base import Task
from .tasks.registry import TASKS
from .vector_env import TorchVectorEnv

__all__ = ["SUITE_IDS", "TorchEnv", "TorchVectorEnv", "register"]

SUITE_IDS = "TorchDMC/"  # before the ids of dm_control's tasks


def own_ids() -> dict[str, tuple[str, Task | type[Task]]]:
    """Return names and tasks of this package by their ids: TorchHopper-v0, TorchDMC/hopper-hop-v0, ..."""
    plain: dict[str, type[Task]] = {**TASKS, **PLAYGROUND}
    ids: dict[str, tuple[str, Task | type[Task]]] = {f"Torch{name}-v0": (name, task) for name, task in plain.items()}
    return ids | {f"{SUITE_IDS}{name}-v0": (name, task) for name, task in SUITE.items()}


def register() -> None:
    """Register the tasks with `gymnasium.make` and `gymnasium.make_vec`."""
    for full, (name, task) in own_ids().items():
        gymnasium.register(
            full,
            entry_point=f"{TorchEnv.__module__}:TorchEnv",
            vector_entry_point=f"{TorchVectorEnv.__module__}:TorchVectorEnv",
            reward_threshold=task.reward_threshold,
            max_episode_steps=task.max_episode_steps,
            kwargs={"task": name},
        )
