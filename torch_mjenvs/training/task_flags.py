"""The fields of a task as flags of a command: `torch_mjenvs train --env TorchAnt-v0 --reset-noise-scale 0`.

A run and its policies keep what was given, by name and as plain values: `{"reset_noise_scale": 0.0}`. An entry of a
dict, such as rewards, has the name "rewards.tracking".
"""

from __future__ import annotations

import argparse
import difflib
import os
import re
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields
from typing import Any

import gymnasium

from ..envs.tasks.base import Task
from ..envs.tasks.registry import make_task

Fields = dict[str, Any]  # by name; those of a dict by "name.entry"
TEXT = (str, os.PathLike)


class NotAFlag(Exception):
    """Raised for a field whose values cannot be written on a command line."""


def task_behind(env_id: str) -> Task | None:
    """Return the task that an id is registered for, without any flags; None if that cannot be found out."""
    kwargs = dict(gymnasium.spec(env_id.rpartition(":")[2]).kwargs)  # a module is imported by now
    task = kwargs.pop("task", None)
    try:
        return make_task(task, {x: kwargs[x] for x in kwargs if x in _names(task)}, ())
    except (TypeError, ValueError):
        return _unchecked(task, kwargs) if isinstance(task, type) and issubclass(task, Task) else None


def _unchecked(kind: type[Task], kwargs: Mapping[str, Any]) -> Task:
    """Return a task that refuses its defaults, made without being asked, to have flags for its fields."""
    task = object.__new__(kind)
    for x in fields(kind):
        default = x.default_factory() if x.default_factory is not MISSING else x.default
        object.__setattr__(task, x.name, kwargs.get(x.name, None if default is MISSING else default))
    return task


def _names(task: Any) -> set[str]:
    kind = type(make_task(task, {}, ())) if isinstance(task, str) else task
    return {x.name for x in fields(kind)}


def add_fields(parser: argparse.ArgumentParser, task: Task | None, instead: Mapping[str, Any]) -> None:
    """Add a flag for every field of a task; `instead` has values that replace the defaults of some of them.

    The flag of a field whose name is that of one of the command's own flags is --task.NAME.
    """
    if task is None:
        return
    group = parser.add_argument_group(
        f"fields of {type(task).__name__}", "Separate the numbers of a tuple by commas, without spaces: 0.5,2."
    )
    for name, (kind, value) in _flags(task).items():
        options: dict[str, Any] = {"dest": f"task.{name}", "default": argparse.SUPPRESS}
        options["help"] = f"default {instead.get(name, value)}".replace("%", "%%")
        if kind is bool:
            options["action"] = argparse.BooleanOptionalAction
        else:
            options |= {"type": reader(kind, value), "metavar": name.rpartition(".")[2].upper()}
        flag = name.replace("_", "-")
        try:
            group.add_argument(f"--{flag}", **options)
        except argparse.ArgumentError:  # the command's own
            group.add_argument(f"--task.{flag}", **options)


def _flags(task: Task) -> dict[str, tuple[Any, Any]]:
    """Return the type and the value of every field, and of every entry of a dict, that can be a flag."""
    try:
        hints = typing.get_type_hints(type(task))
    except Exception:  # names that only a type checker knows
        hints = {}
    found: dict[str, tuple[Any, Any]] = {}
    for x in fields(task):
        value = getattr(task, x.name)
        if isinstance(value, Mapping):
            entries = {f"{x.name}.{key}": (type(y), y) for key, y in value.items() if isinstance(key, str)}
        else:
            entries = {x.name: (hints.get(x.name, type(value)), value)}
        for name, (kind, y) in entries.items():
            try:
                if kind is not bool:
                    reader(kind, y)
                found[name] = kind, y
            except NotAFlag:
                pass
    return found


def reader(kind: Any, value: Any) -> Callable[[str], Any]:
    """Return a function that makes a value of this type from a text, for argparse. Raises NotAFlag if there is none.

    `value` is the field's value, used if the type says too little.
    """
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return _any_of([reader(x, None) for x in inner])
    if kind in (float, int):
        return _number(kind)
    if kind is bool:
        return _truth
    if kind is type(None):
        return _none
    if isinstance(kind, type) and issubclass(kind, TEXT):
        return str
    if tuple in (kind, origin) or list in (kind, origin):
        known = [x for x in inner if x is not ...] or [type(x) for x in value or ()]
        of = float if float in known else next(iter(known), float)
        length = len(inner) if inner and ... not in inner and tuple in (kind, origin) else None
        return _several(reader(of, None), length)
    raise NotAFlag


def _number(kind: type[float] | type[int]) -> Callable[[str], float]:
    def read(text: str) -> float:
        try:
            return kind(text)
        except ValueError:
            name = "a number" if kind is float else "a whole number"
            raise argparse.ArgumentTypeError(f"{text} is not {name}") from None

    return read


def _truth(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise argparse.ArgumentTypeError(f"{text} is not true or false")
    return text.lower() == "true"


def _none(text: str) -> None:
    if text.lower() != "none":
        raise argparse.ArgumentTypeError(f"{text} is not none")


def _any_of(readers: Sequence[Callable[[str], Any]]) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        why = []
        for one in sorted(readers, key=lambda one: one is str):  # str last: it takes anything
            try:
                return one(text)
            except argparse.ArgumentTypeError as error:
                why.append(str(error))
        raise argparse.ArgumentTypeError("; ".join(why))

    return read


def _several(one: Callable[[str], Any], length: int | None) -> Callable[[str], Any]:
    def read(text: str) -> tuple[Any, ...]:
        found = tuple(one(part) for part in text.split(",") if part)
        if length not in (None, len(found)):
            raise argparse.ArgumentTypeError(f"{text} is not {length} values with commas between them")
        return found

    return read


def parse(
    parser: argparse.ArgumentParser, argv: Sequence[str], task: Task | None, before: Mapping[str, Any] | None = None
) -> tuple[argparse.Namespace, Fields]:
    """Parse a command line whose parser has the task's fields; return the command's arguments and the fields given.

    before: fields that hold unless the command line gives others.

    Ends the process with one line for an unknown flag, naming similar ones, and for a value that the task does not
    accept.
    """
    found, unknown = parser.parse_known_args(_joined(argv))
    if unknown:
        known = sorted(x for action in parser._actions for x in action.option_strings if x.startswith("--"))
        flags = [x.partition("=")[0] for x in unknown if x.startswith("--")]
        near = [y for x in flags for y in difflib.get_close_matches(x, known, n=2)]
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        parser.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
    given = {name.removeprefix("task."): x for name, x in vars(found).items() if name.startswith("task.")}
    try:
        if task is not None and given:
            make_task(task, arguments(task, {**(before or {}), **given}), ())
    except (TypeError, ValueError) as error:
        parser.error(str(error))
    return found, given


def _joined(argv: Sequence[str]) -> list[str]:
    """Join each flag with the negative value after it, such as -inf,10 or -1e-3, which argparse takes for a flag."""
    out: list[str] = []
    for text in argv:
        if re.match(r"-(\d|\.\d|inf)", text) and out and re.fullmatch(r"--[a-z][\w.-]*", out[-1]):
            out[-1] += f"={text}"
        else:
            out.append(text)
    return out


def arguments(task: Task | str | None, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return these fields as keyword arguments for a task, or for the one behind an id.

    Raises ValueError for a field, or an entry of a dict, that the task does not have.
    """
    if isinstance(task, str):
        task = task_behind(task) if given else None
    out: dict[str, Any] = {}
    for name, value in given.items():
        field, _, entry = name.partition(".")
        whole: Any = out.get(field, getattr(task, field, None))
        if not hasattr(task, field) or (entry and not (isinstance(whole, Mapping) and entry in whole)):
            raise ValueError(f"the task has no field {name!r}")
        out[field] = {**whole, entry: value} if entry else value
    return out
