"""The tasks by name, from which come Gymnasium's ids, TorchRL's classes and this package's exports.

`TASKS` has Gymnasium's tasks. Those of dm_control's suite, such as "walker-walk", are in `torch_mjenvs.dmc.TASKS`, and
those of MuJoCo Playground, such as "Go1Joystick", in `torch_mjenvs.playground.TASKS`.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection, Mapping
from dataclasses import fields
from typing import Any

from ...checks import did_you_mean
from ...dmc.registry import TASKS as SUITE
from ...playground.registry import TASKS as PLAYGROUND
from .ant import Ant
from .base import Task, copy_of
from .halfcheetah import HalfCheetah
from .hopper import Hopper
from .humanoid import Humanoid
from .humanoid_standup import HumanoidStandup
from .inverted_double_pendulum import InvertedDoublePendulum
from .inverted_pendulum import InvertedPendulum
from .pusher import Pusher
from .reacher import Reacher
from .swimmer import Swimmer
from .walker2d import Walker2d

__all__ = [
    "TASKS",
    "Ant",
    "HalfCheetah",
    "Hopper",
    "Humanoid",
    "HumanoidStandup",
    "InvertedDoublePendulum",
    "InvertedPendulum",
    "Pusher",
    "Reacher",
    "Swimmer",
    "Walker2d",
]

LIMIT = "max_episode_steps"  # an argument of environments, and an attribute of a task's class
TASKS: dict[str, type[Task]] = {
    task.__name__: task
    for task in (
        HalfCheetah, Walker2d, Hopper, Ant, Humanoid,
        Swimmer, Reacher, Pusher, InvertedPendulum, InvertedDoublePendulum, HumanoidStandup,
    )
}  # fmt: skip


def make_task(task: Task | type[Task] | str, arguments: Mapping[str, Any], reserved: Collection[str]) -> Task:
    """Return the task to be run: a given instance with these fields changed, or an instance of a given class made with
    these arguments. A name stands for one of Gymnasium's tasks, dm_control's, or MuJoCo Playground's.

    Raises TypeError for an argument that the task does not take, or cannot take once it is made, and if one of the
    task's arguments has the name of one of the environment's own; ValueError for an unknown name.
    """
    if isinstance(task, str):
        known: dict[str, Task | type[Task]] = {**TASKS, **SUITE, **PLAYGROUND}
        if task not in known:
            close = did_you_mean(task.removeprefix("Torch"), known)
            raise ValueError(f"there is no task {task!r}: choose from {sorted(known)}, or give a Task{close}")
        task = known[task]
    kind = task if isinstance(task, type) else type(task)
    if not issubclass(kind, Task):
        raise TypeError(f"task must be a Task, a class of tasks or the name of one, not {task!r}")
    taken = [x.name for x in fields(kind) if x.name in reserved]
    if LIMIT in taken:
        raise TypeError(f"{LIMIT} of {kind.__name__} is to be no field: write it without a type, as in {LIMIT} = 500")
    if taken:
        raise TypeError(f"fields {taken} of {kind.__name__} are named like arguments of the environment: rename them")
    accepted, any_other = arguments_of(kind)
    taken = [name for name in accepted if name in reserved]
    if taken and isinstance(task, type):
        name = kind.__name__
        raise TypeError(f"{name} takes {taken}, and so does the environment: rename them, or give {name}(...) itself")
    unknown = [name for name in arguments if name not in accepted and not any_other]
    if unknown:
        others = sorted(set(reserved) - {"task", "task_arguments"})
        raise TypeError(  # in Python's words, which TorchRL's GymEnv looks for
            f"{kind.__name__} got an unexpected keyword argument {unknown[0]!r}; it takes {accepted}, and the "
            f"environment itself {others}"
        )
    if isinstance(task, type):
        return kind(**arguments)
    return changed(task, arguments) if arguments else task


def arguments_of(kind: type[Task]) -> tuple[list[str], bool]:
    """Return the names of the arguments that make such a task, and whether it takes any others."""
    parameters = inspect.signature(kind).parameters.values()
    named = [x.name for x in parameters if x.kind not in (x.VAR_POSITIONAL, x.VAR_KEYWORD)]
    return named, any(x.kind is x.VAR_KEYWORD for x in parameters)


def changed(task: Task, arguments: Mapping[str, Any]) -> Task:
    """Return a copy of the task with some fields changed, and `__post_init__` run anew.

    Other attributes that were set on the task stay; `dataclasses.replace` would lose them. Raises TypeError for a task
    that is not made from its fields alone, since what else depends on them cannot be known.
    """
    kind = type(task)
    accepted, any_other = arguments_of(kind)
    if any_other or {*accepted} != {x.name for x in fields(kind) if x.init}:
        raise TypeError(
            f"{kind.__name__} is not made from its fields alone, so {[*arguments]} cannot be changed in one that is "
            f"already made: say so when calling {kind.__name__}(...)"
        )
    new = copy_of(task)
    for name, x in arguments.items():
        object.__setattr__(new, name, x)
    new.__post_init__()
    return new
