"""Train any MuJoCo robot: exact physics, thousands of worlds at a time, as torch tensors.

    import gymnasium, torch_mjenvs

    env = gymnasium.make_vec("TorchHalfCheetah-v0", num_envs=4096)  # a task of Gymnasium's
    env = torch_mjenvs.TorchVectorEnv(MyTask("my_robot.xml", 5), num_envs=4096)  # a task of your own
    simulation = torch_mjenvs.Simulation("my_robot.xml", 4096)  # the physics alone

Importing the package registers all eleven of Gymnasium's v5 MuJoCo tasks, as TorchHopper-v0 and so on, those of
dm_control's suite, as TorchDMC/hopper-hop-v0, and robots of MuJoCo Playground, as TorchGo1Joystick-v0.
"""

import importlib.metadata
from typing import Any

from . import controls, dmc, feet, playground, rewards, scalar, terrain, vectors, wrappers
from .compiler import source as _source
from .envs.observation import Normal
from .envs.randomization import Scale, Shift, Uniform
from .envs.registration import TorchEnv, TorchVectorEnv, register
from .envs.tasks import registry as _registry
from .envs.tasks.base import Control, Outcome, Start, Task, World
from .envs.tasks.registry import *  # noqa: F403 (the tasks, and TASKS)
from .physics.model.model import UnsupportedModel
from .policy import Policy, pretrained
from .rendering.simulation import Simulation

__all__ = [
    "Control",
    "Normal",
    "Outcome",
    "Policy",
    "Scale",
    "Shift",
    "Simulation",
    "Start",
    "Task",
    "TorchEnv",
    "TorchVectorEnv",
    "Uniform",
    "UnsupportedModel",
    "World",
    "controls",
    "dmc",
    "feet",
    "playground",
    "pretrained",
    "rewards",
    "scalar",
    "terrain",
    "vectors",
    "wrappers",
]
__all__ += _registry.__all__

register()
_source.imported()  # records the package's code before anybody can alter it


def __getattr__(name: str) -> Any:
    """Import TorchRL's environments, `TorchRLEnv`, `HumanoidEnv` and so on, when one is first asked for.

    Raises ImportError if TorchRL is not installed. `__version__` is that of the installed package.
    """
    if name == "__version__":
        return importlib.metadata.version(__name__)
    if name != "TorchRLEnv" and name.removesuffix("Env") not in _registry.TASKS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from .envs import torchrl
    except ModuleNotFoundError as error:
        if error.name not in ("torchrl", "tensordict"):
            raise
        raise ImportError(f"{name} needs TorchRL: pip install '.[torchrl]', in the checkout of torch_mjenvs") from error
    return getattr(torchrl, name)
