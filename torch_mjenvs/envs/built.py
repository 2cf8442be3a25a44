"""What is compiled into an environment's kernels cannot be set on it: assigning to it raises an error."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, NoReturn

# Attributes that the constructor sets, or arguments of it that would be mistaken for attributes.
BUILT = frozenset((
    "autoreset_mode", "device", "dt", "dtype", "frame_skip", "init_qpos", "init_qvel", "max_episode_steps", "model",
    "num_envs", "pixels", "randomize", "vary",
))  # fmt: skip


def refuse_idle(env: Any, name: str) -> None:
    """Raise AttributeError if setting this attribute of a built environment would change nothing: if it is one of
    BUILT, or the name of a field of the task and of nothing else.
    """
    if "_ready" not in vars(env):  # it is still being made
        return
    there = name in vars(env) or hasattr(type(env), name)
    if name in BUILT or (not there and name in {x.name for x in fields(env.engine.task)}):
        raise AttributeError(
            f"{name!r} cannot be set on a built environment, as it is compiled into the kernels: make another "
            f"environment, such as {type(env).__name__}(..., {name}=...)"
        )


def refuse_initial(name: str) -> NoReturn:
    """Raise ValueError for writing into the state that a model begins with."""
    raise ValueError(
        f"{name} is read only: episodes begin as the task's reset says, which is compiled into the kernels. To begin "
        "elsewhere, call set_state after reset, or write a task with a reset of its own"
    )
