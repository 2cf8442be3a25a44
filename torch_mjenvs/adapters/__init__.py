"""Adapters for other libraries: each class presents a `TorchVectorEnv` in the form that a library expects.

    from torch_mjenvs.adapters import SB3VecEnv

A library is imported when its adapter is first used; if it is missing, the ImportError says what to install. The
environment may have wrappers of `torch_mjenvs.wrappers` around it. docs/libraries.md has an example for each library.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .rl_games import RlGamesVecEnv
    from .rsl_rl import RslRlVecEnv
    from .skrl import SkrlVecEnv
    from .stable_baselines3 import SB3VecEnv
    from .tianshou import TianshouVectorEnv

__all__ = ["RlGamesVecEnv", "RslRlVecEnv", "SB3VecEnv", "SkrlVecEnv", "TianshouVectorEnv"]

# The module here, which is named like the library's own, and what pip calls the library.
LIBRARIES = {
    "RlGamesVecEnv": ("rl_games", "rl-games"),
    "RslRlVecEnv": ("rsl_rl", "rsl-rl-lib"),
    "SB3VecEnv": ("stable_baselines3", "stable-baselines3"),
    "SkrlVecEnv": ("skrl", "skrl"),
    "TianshouVectorEnv": ("tianshou", "tianshou"),
}
for _name, (_library, _) in LIBRARIES.items():
    if find_spec(_library) is None:
        __all__.remove(_name)  # `import *` is to take what is here


def __getattr__(name: str) -> Any:
    if name not in LIBRARIES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    library, package = LIBRARIES[name]
    try:
        module = import_module(f".{library}", __name__)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] != library:
            raise
        raise ImportError(f"{name} needs {library}: pip install {package}") from error
    return getattr(module, name)
