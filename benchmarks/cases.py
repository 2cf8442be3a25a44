"""What is measured, as data."""

from __future__ import annotations

import importlib
import importlib.util
from dataclasses import dataclass

import torch

from torch_mjenvs.envs.task import Task


@dataclass(frozen=True)
class Case:
    """A task of ours and the environment of Gymnasium's that it stands for."""

    name: str
    gymnasium_id: str
    torch_id: str

    @property
    def module(self) -> str:
        return f"torch_mjenvs.envs.{self.name.lower()}"

    def exists(self) -> bool:
        return importlib.util.find_spec(self.module) is not None

    def task(self) -> Task:
        return getattr(importlib.import_module(self.module), self.name)()


CASES = {
    name: Case(name, f"{name}-v5", f"Torch{name}-v0")
    for name in ("HalfCheetah", "Walker2d", "Hopper", "Ant", "Humanoid")
}
DTYPES = {"float32": torch.float32, "float64": torch.float64}
EPISODE_LIMIT = 1000  # Gymnasium's, for all of them


@dataclass(frozen=True)
class Effort:
    """How long to look. Worlds are environments or simulations."""

    num_envs: tuple[int, ...]
    rounds: int  # every contender runs for one window a round
    window: float  # seconds
    warmup: float  # seconds a contender
    memory_worlds: int
    compiled: tuple[str, ...]  # dtypes whose construction is timed


FULL = Effort((1, 16, 64, 256, 1024, 4096, 16384, 65536), 5, 0.2, 0.15, 65536, tuple(DTYPES))
QUICK = Effort((1, 64, 1024), 2, 0.05, 0.02, 16384, ("float32",))

RACE_NUM_ENVS = 4096  # ours, beside the peers: a size people train with, not the best of the sweep
SYNC_NUM_ENVS = 16
ENVPOOL_NUM_ENVS = 64
QUIET = 0.15  # cores that others may use during a round before it is taken again
