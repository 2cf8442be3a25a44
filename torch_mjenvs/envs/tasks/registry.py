"""The tasks by name: what Gymnasium's ids, TorchRL's classes and this package's exports are made from."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import fields, replace
from typing import Any

from .ant import Ant
from .base import Task
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

TASKS: dict[str, type[Task]] = {
    task.__name__: task
    for task in (
        HalfCheetah, Walker2d, Hopper, Ant, Humanoid,
        Swimmer, Reacher, Pusher, InvertedPendulum, InvertedDoublePendulum, HumanoidStandup,
    )
}  # fmt: skip


def make_task(task: Task | type[Task] | str, arguments: Mapping[str, Any], reserved: Collection[str]) -> Task:
    """The task, given as itself, as its class or by one of the names in `TASKS`, with these of its fields changed.

    Raises TypeError for an argument that is no field of the task, or a field that has the name of one of the
    environment's own arguments; ValueError for an unknown name.
    """
    if isinstance(task, str):
        if task not in TASKS:
            raise ValueError(f"there is no task {task!r}: choose from {sorted(TASKS)}, or give a Task")
        task = TASKS[task]
    kind = task if isinstance(task, type) else type(task)
    if not issubclass(kind, Task):
        raise TypeError(f"task must be a Task, a class of tasks or the name of one, not {task!r}")
    accepted = [field.name for field in fields(kind)]
    taken = [name for name in accepted if name in reserved]
    if taken:
        raise TypeError(f"fields {taken} of {kind.__name__} are named like arguments of the environment: rename them")
    unknown = [name for name in arguments if name not in accepted]
    if unknown:
        others = sorted(set(reserved) - {"task", "task_arguments"})
        raise TypeError(  # in Python's words, which TorchRL's GymEnv looks for
            f"{kind.__name__} got an unexpected keyword argument {unknown[0]!r}; it takes {accepted}, and the "
            f"environment itself {others}"
        )
    return kind(**arguments) if isinstance(task, type) else replace(task, **arguments)
