"""Train any MuJoCo robot: exact physics, thousands of worlds at a time, as torch tensors.

    import gymnasium, torch_mjenvs

    env = gymnasium.make_vec("TorchHalfCheetah-v0", num_envs=4096)  # a task of Gymnasium's
    env = torch_mjenvs.TorchVectorEnv(MyTask("my_robot.xml", 5), num_envs=4096)  # a task of your own
    simulation = torch_mjenvs.Simulation("my_robot.xml", 4096)  # the physics alone

Importing the package registers all eleven of Gymnasium's v5 MuJoCo tasks, as TorchHopper-v0 and so on, those of
dm_control's suite, as TorchDMC/hopper-hop-v0, and robots of MuJoCo Playground, as TorchGo1Joystick-v0.
"""

import importlib.metadata
from importlib.util import find_spec
from typing import TYPE_CHECKING

from . import controls, dmc, feet, jacobians, mirror, physics, playground, rewards, scalar, terrain, vectors, wrappers
from .checks import MissingExtra, install
from .compiler import source as _source
from .envs.observation import Normal
from .envs.randomization import Scale, Shift, Uniform
from .envs.registration import TorchEnv, TorchVectorEnv, register
from .envs.tasks.base import Control, Outcome, Start, Task, World
from .envs.tasks.registry import (
    TASKS,
    Ant,
    HalfCheetah,
    Hopper,
    Humanoid,
    HumanoidStandup,
    InvertedDoublePendulum,
    InvertedPendulum,
    Pusher,
    Reacher,
    Swimmer,
    Walker2d,
)
from .physics.model.model import UnsupportedModel
from .policy import Policy, pretrained
from .rendering.simulation import Simulation

__all__ = [
    "TASKS",
    "Ant",
    "Control",
    "HalfCheetah",
    "Hopper",
    "Humanoid",
    "HumanoidStandup",
    "InvertedDoublePendulum",
    "InvertedPendulum",
    "Normal",
    "Outcome",
    "Policy",
    "Pusher",
    "Reacher",
    "Scale",
    "Shift",
    "Simulation",
    "Start",
    "Swimmer",
    "Task",
    "TorchEnv",
    "TorchVectorEnv",
    "Uniform",
    "UnsupportedModel",
    "Walker2d",
    "World",
    "controls",
    "dmc",
    "feet",
    "jacobians",
    "mirror",
    "physics",
    "playground",
    "pretrained",
    "rewards",
    "scalar",
    "terrain",
    "vectors",
    "wrappers",
]

if TYPE_CHECKING:  # what `__getattr__` gives
    from . import adapters as adapters
    from .envs.torchrl import AntEnv as AntEnv
    from .envs.torchrl import HalfCheetahEnv as HalfCheetahEnv
    from .envs.torchrl import HopperEnv as HopperEnv
    from .envs.torchrl import HumanoidEnv as HumanoidEnv
    from .envs.torchrl import HumanoidStandupEnv as HumanoidStandupEnv
    from .envs.torchrl import InvertedDoublePendulumEnv as InvertedDoublePendulumEnv
    from .envs.torchrl import InvertedPendulumEnv as InvertedPendulumEnv
    from .envs.torchrl import PusherEnv as PusherEnv
    from .envs.torchrl import ReacherEnv as ReacherEnv
    from .envs.torchrl import SwimmerEnv as SwimmerEnv
    from .envs.torchrl import TorchRLEnv as TorchRLEnv
    from .envs.torchrl import Walker2dEnv as Walker2dEnv

    __version__: str

else:

    def __getattr__(name):
        """Import `adapters`, or TorchRL's environments, `TorchRLEnv`, `HumanoidEnv` and so on, when first asked for.

        Raises MissingExtra if TorchRL is not installed. `__version__` is that of the installed package.
        """
        if name == "__version__":
            return importlib.metadata.version(__name__)
        if name == "adapters":
            return importlib.import_module(".adapters", __name__)
        if name not in _of_torchrl():
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        try:
            from .envs import torchrl
        except ModuleNotFoundError as error:
            if error.name not in ("torchrl", "tensordict"):
                raise
            raise MissingExtra(f"{name} needs TorchRL: {install('torchrl')}", name=error.name) from error
        return getattr(torchrl, name)


def _of_torchrl() -> list[str]:
    return ["TorchRLEnv", *(f"{name}Env" for name in TASKS)]


def __dir__() -> list[str]:
    lazy = ["__version__", "adapters", *(_of_torchrl() if find_spec("torchrl") else ())]
    return [*__all__, *lazy, *(name for name in globals() if name.startswith("__"))]


register()
_source.imported()  # records the package's code before anybody can alter it
