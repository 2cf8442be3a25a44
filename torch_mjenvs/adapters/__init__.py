"""Adapters for other libraries: each class presents a `TorchVectorEnv` in the form that a library expects.

    from torch_mjenvs.adapters import SB3VecEnv

A library is imported when its adapter is first used; if it is missing, the ImportError says what to install. The
environment may have wrappers of `torch_mjenvs.wrappers` around it. docs/libraries.md has an example for each library.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

from ..checks import MissingExtra, install

if TYPE_CHECKING:
    from .rl_games import RlGamesVecEnv
    from .rsl_rl import RslRlVecEnv
    from .skrl import SkrlVecEnv
    from .stable_baselines3 import SB3VecEnv
    from .tianshou import TianshouVectorEnv

__all__ = ["RlGamesVecEnv", "RslRlVecEnv", "SB3VecEnv", "SkrlVecEnv", "TianshouVectorEnv"]

# The module here, which is named like the library's own, and the extra with the library.
LIBRARIES = {
    "RlGamesVecEnv": ("rl_games", "rl-games"),
    "RslRlVecEnv": ("rsl_rl", "libraries"),
    "SB3VecEnv": ("stable_baselines3", "libraries"),
    "SkrlVecEnv": ("skrl", "libraries"),
    "TianshouVectorEnv": ("tianshou", "tianshou"),
}
for _name, (_library, _) in LIBRARIES.items():
    if find_spec(_library) is None:
        __all__.remove(_name)  # `import *` is to take what is here


if not TYPE_CHECKING:

    def __getattr__(name):
        if name not in LIBRARIES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        library, extra = LIBRARIES[name]
        try:
            module = import_module(f".{library}", __name__)
        except ModuleNotFoundError as error:
            if error.name is None or error.name.split(".")[0] != library:
                raise
            raise MissingExtra(f"{name} needs {library}: {install(extra)}", name=error.name) from error
        return getattr(module, name)


def __dir__() -> list[str]:
    return [*__all__, *(name for name in globals() if name.startswith("__"))]
