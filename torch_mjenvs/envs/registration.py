"""Registers the tasks with Gymnasium."""

from __future__ import annotations

import gymnasium

from ..playground.registry import TASKS as PLAYGROUND
from .single_env import TorchEnv
from .tasks.registry import TASKS
from .vector_env import TorchVectorEnv

__all__ = ["TorchEnv", "TorchVectorEnv", "register"]


def register() -> None:
    """Register the tasks with `gymnasium.make` and `gymnasium.make_vec`: TorchHopper-v0, TorchGo1Joystick-v0, ..."""
    for name, task in {**TASKS, **PLAYGROUND}.items():
        gymnasium.register(
            f"Torch{name}-v0",
            entry_point=f"{TorchEnv.__module__}:TorchEnv",
            vector_entry_point=f"{TorchVectorEnv.__module__}:TorchVectorEnv",
            reward_threshold=task.reward_threshold,
            max_episode_steps=task.max_episode_steps,
            kwargs={"task": name},
        )
