"""Gymnasium's MuJoCo locomotion tasks, exact, thousands at a time, as torch tensors.

Importing this registers TorchHalfCheetah-v0, TorchHumanoid-v0 and their like with Gymnasium.
"""

from typing import Any

from . import scalar, wrappers
from .compiler import source as _source
from .envs.randomization import Scale, Shift, Uniform
from .envs.registration import TorchEnv, TorchVectorEnv, register
from .envs.tasks import registry as _registry
from .envs.tasks.base import Control, Outcome, Task, World
from .envs.tasks.registry import *  # noqa: F403 (the tasks, and TASKS)
from .physics.model.model import UnsupportedModel
from .physics.simulation import Simulation
from .policy import Policy, pretrained

__all__ = [
    "Control",
    "Outcome",
    "Policy",
    "Scale",
    "Shift",
    "Simulation",
    "Task",
    "TorchEnv",
    "TorchVectorEnv",
    "Uniform",
    "UnsupportedModel",
    "World",
    "pretrained",
    "scalar",
    "wrappers",
]
__all__ += _registry.__all__

register()
_source.imported()  # before anybody can alter it


def __getattr__(name: str) -> Any:
    """TorchRL's environments, `TorchRLEnv` and `HumanoidEnv` and so on: imported, with TorchRL, when asked for."""
    if name != "TorchRLEnv" and name.removesuffix("Env") not in _registry.TASKS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from .envs import torchrl
    except ModuleNotFoundError as error:
        if error.name not in ("torchrl", "tensordict"):
            raise
        raise ImportError(f"{name} needs TorchRL: pip install 'torch_mjenvs[torchrl]'") from error
    return getattr(torchrl, name)
