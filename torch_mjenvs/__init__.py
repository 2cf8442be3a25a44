"""Gymnasium's MuJoCo locomotion tasks, exact, thousands at a time, as torch tensors.

Importing this registers TorchHalfCheetah-v0, TorchHumanoid-v0 and their like with Gymnasium.
"""

from typing import Any

from . import wrappers
from .compiler import source as _source
from .envs.ant import Ant
from .envs.gymnasium import TASKS, TorchEnv, TorchVectorEnv, register
from .envs.halfcheetah import HalfCheetah
from .envs.hopper import Hopper
from .envs.humanoid import Humanoid
from .envs.humanoid_standup import HumanoidStandup
from .envs.inverted_double_pendulum import InvertedDoublePendulum
from .envs.inverted_pendulum import InvertedPendulum
from .envs.reacher import Reacher
from .envs.swimmer import Swimmer
from .envs.task import Outcome, Task, World
from .envs.walker2d import Walker2d
from .physics.model import UnsupportedModel
from .physics.simulation import Simulation

__all__ = [
    "TASKS",
    "Ant",
    "HalfCheetah",
    "Hopper",
    "Humanoid",
    "HumanoidStandup",
    "InvertedDoublePendulum",
    "InvertedPendulum",
    "Outcome",
    "Reacher",
    "Simulation",
    "Swimmer",
    "Task",
    "TorchEnv",
    "TorchVectorEnv",
    "UnsupportedModel",
    "Walker2d",
    "World",
    "wrappers",
]

register()
_source.imported()  # before anybody can alter it


def __getattr__(name: str) -> Any:
    """TorchRL's environments, `TorchRLEnv` and `HumanoidEnv` and so on: imported, with TorchRL, when asked for."""
    if name != "TorchRLEnv" and name.removesuffix("Env") not in TASKS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from .envs import torchrl
    except ModuleNotFoundError as error:
        if error.name not in ("torchrl", "tensordict"):
            raise
        raise ImportError(f"{name} needs TorchRL: pip install 'torch_mjenvs[torchrl]'") from error
    return getattr(torchrl, name)
