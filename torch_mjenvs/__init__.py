"""Gymnasium's MuJoCo locomotion tasks, exact, thousands at a time, as torch tensors.

Importing this registers TorchHalfCheetah-v0, TorchWalker2d-v0 and TorchHopper-v0 with Gymnasium.
"""

from .envs.gymnasium import TorchEnv, TorchVectorEnv, register
from .envs.halfcheetah import HalfCheetah
from .envs.hopper import Hopper
from .envs.task import Outcome, Task, World
from .envs.walker2d import Walker2d
from .physics.model import UnsupportedModel
from .physics.simulation import Simulation

__all__ = [
    "HalfCheetah",
    "Hopper",
    "Outcome",
    "Simulation",
    "Task",
    "TorchEnv",
    "TorchVectorEnv",
    "UnsupportedModel",
    "Walker2d",
    "World",
]

register()
