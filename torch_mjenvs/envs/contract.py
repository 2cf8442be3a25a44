"""What a task's functions give back, checked in the task's own terms.

Exceptions from within a task's functions say in which line of its file they arose. What the functions give is checked
against the model, against what the task declares, and against what the same function gave before.
"""

from __future__ import annotations

import linecache
import math
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..compiler.expr import type_of
from ..compiler.random import Random
from ..compiler.scalar import Scalar
from ..physics.model.model import Model
from ..physics.params import as_rows, check_names
from .given import copy_for_task
from .randomization import flat
from .tasks.base import Control, Outcome, Task, World

Named = dict[str, Scalar | list]
Widths = dict[str, int]  # of named numbers; 0: one number, not a list of them

BAD_STATE = "bad_state"  # the entry of info that the environment adds

RECORDED = (
    "A task's functions are run once, to record what a kernel will compute for every world. Numbers of a world are "
    "known only when the kernel runs: Python's if, and, or, max, float and the functions of math and NumPy do not know "
    "them. torch_mjenvs.scalar has select, logical_and, maximum, sin, ... to be used instead"
)


@dataclass(frozen=True)
class Contract:
    """A task's functions for a model."""

    task: Task
    model: Model

    def memory(self) -> tuple[Widths, list]:
        """The names and widths of what a world remembers, and what that is at first."""
        found = self.named("memory", self.call("memory"))
        widths = {name: width_of(x) for name, x in found.items()}
        for name, x in found.items():
            if x == []:
                raise self.error("memory", ValueError, f"{name!r} is an empty list: leave it out")
            if not all(type(y) is float and math.isfinite(y) for y in (x if isinstance(x, list) else [x])):
                raise self.error("memory", ValueError, f"{name!r} must be of finite numbers that all worlds share")
        return widths, flatten(widths, found)

    def randomize(self, rng: Random) -> dict[str, Any]:
        """Parameters of a new episode, by name."""
        found = self.call("randomize", rng)
        if not isinstance(found, Mapping):
            raise self.error("randomize", TypeError, f"must give a dict of parameters by name, not {said(found)}")
        try:
            found = as_rows(self.model, {name: found[name] for name in check_names(self.model, found)})
        except ValueError as error:
            raise self.error("randomize", ValueError, str(error)) from error
        return {name: [self.number("randomize", x, name) for x in flat(rows)] for name, rows in found.items()}

    def reset(self, rng: Random) -> tuple[list, list]:
        """qpos and qvel of a new episode."""
        m, given = self.model, self.call("reset", rng)
        if not isinstance(given, tuple) or len(given) != 2:
            raise self.error("reset", TypeError, f"must give a tuple of qpos and qvel, not {said(given)}")
        qpos = self.numbers("reset", given[0], "qpos", m.nq)
        return qpos, self.numbers("reset", given[1], "qvel", m.nv)

    def begin(self, widths: Widths, first: list, world: World) -> list:
        """The first memory of an episode: as it is at first, but for what the task says."""
        return self.changed("begin", widths, first, self.call("begin", world))

    def remember(self, widths: Widths, before: World, action: list, after: World) -> list:
        """The next memory: the last one, but for what the task says."""
        given = self.call("remember", before, action, after)
        return self.changed("remember", widths, flatten(widths, before.memory), given)

    def changed(self, function: str, widths: Widths, values: list, given: Any) -> list:
        """Values of these widths with new ones for the names in `given`."""
        found, declared = self.named(function, given), by_name(widths, values)
        for name, x in found.items():
            if name not in widths:
                raise self.error(function, ValueError, f"gave {name!r}, which memory() does not have: {[*widths]}")
            if (width := width_of(x)) != widths[name]:
                what = f"gave {counted(width)} for {name!r}, and memory() has {counted(widths[name])}"
                raise self.error(function, ValueError, what)
        return flatten(widths, declared | found)

    def control(self, world: World, action: list) -> tuple[list, dict[str, list]]:
        """ctrl, and pushes as the physics takes them."""
        m, given = self.model, self.call("control", world, action)
        if not isinstance(given, Control):
            return self.numbers("control", given, "ctrl", m.nu), {}
        pushes = {}
        if given.qfrc_applied is not None:
            pushes["qfrc_applied"] = self.numbers("control", given.qfrc_applied, "qfrc_applied", m.nv)
        wrenches = self.named("control", given.xfrc_applied, "xfrc_applied")
        for body, wrench in wrenches.items():
            if body not in m.body_names:
                raise self.error("control", ValueError, f"xfrc_applied: there is no body {body!r} in {m.body_names}")
            if width_of(wrench) != 6:
                text = f"xfrc_applied[{body!r}] is {counted(width_of(wrench))}, and must be of force and torque: 6"
                raise self.error("control", ValueError, text)
        if wrenches:
            pushes["xfrc_applied"] = [wrenches.get(name, [0.0] * 6) for name in m.body_names]
        return self.numbers("control", given.ctrl, "ctrl", m.nu), pushes

    @property
    def controls(self) -> bool:
        """Whether the task makes something else of an action than ctrl."""
        return getattr(self.task.control, "__func__", None) is not Task.control

    def observe(self, world: World, width: int | None = None) -> list:
        """The observation."""
        given = self.numbers("observe", self.call("observe", world), "observation")
        if width is not None and len(given) != width:
            raise self.error("observe", ValueError, f"gave {len(given)} numbers, and {width} before: always as many")
        return given

    def outcome(self, before: World, action: list, after: World) -> Outcome:
        """Reward, termination and info."""
        given = self.call("outcome", before, action, after)
        if not isinstance(given, Outcome):
            raise self.error("outcome", TypeError, f"must give an Outcome, not {said(given)}")
        reward = self.number("outcome", given.reward, "reward")
        if not is_mask(given.terminated):
            what = f"terminated must be True, False or a comparison such as x > 1.0, not {said(given.terminated)}"
            raise self.error("outcome", TypeError, what)
        return Outcome(reward, given.terminated, self.told("outcome", given.info))

    def reset_info(self, world: World) -> Named:
        """info of a reset."""
        return self.told("reset_info", self.call("reset_info", world))

    def told(self, function: str, info: Any) -> Named:
        """info. A list of no numbers is no entry."""
        if isinstance(info, Mapping) and BAD_STATE in info:
            raise self.error(function, ValueError, f"{BAD_STATE!r} is the environment's own: rename yours")
        return {name: x for name, x in self.named(function, info, "info").items() if x != []}

    def same_widths(self, reset_info: Named, step_info: Named) -> Widths:
        """The widths of both together."""
        widths = {name: width_of(x) for name, x in (step_info | reset_info).items()}
        for name, x in step_info.items():
            if width_of(x) != widths[name]:
                text = f"info {name!r} is {counted(width_of(x))}, and {counted(widths[name])} in reset_info"
                raise self.error("outcome", ValueError, text)
        return widths

    def call(self, function: str, *arguments: Any) -> Any:
        """What the task's function gives for copies of these. Exceptions say where in the task they come from."""
        try:
            return getattr(self.task, function)(self.model, *map(copy_for_task, arguments))
        except Exception as error:
            error.add_note(f"in {type(self.task).__name__}.{function}, {line_of(error)}")
            if isinstance(error, (TypeError, AttributeError)) and ("traced" in str(error) or "Expr" in str(error)):
                error.add_note(RECORDED)
            raise

    def named(self, function: str, given: Any, what: str = "what it gives") -> Named:
        """Numbers and lists of numbers, by name."""
        if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
            text = f"{what} must be a dict of numbers, or lists of them, by name, not {said(given)}"
            raise self.error(function, TypeError, text)
        return {
            name: self.numbers(function, x, name) if isinstance(x, (list, tuple)) else self.number(function, x, name)
            for name, x in given.items()
        }

    def numbers(self, function: str, given: Any, what: str, width: int | None = None) -> list:
        if not isinstance(given, (list, tuple)):
            raise self.error(function, TypeError, f"{what} must be a list of numbers, not {said(given)}")
        if width is not None and len(given) != width:
            raise self.error(function, ValueError, f"gave {len(given)} numbers for {what}, and the model has {width}")
        return [self.number(function, x, f"{what}[{i}]") for i, x in enumerate(given)]

    def number(self, function: str, x: Any, what: str) -> Scalar:
        if is_mask(x):
            text = f"{what} must be a number, not a truth value: select(it, 1.0, 0.0) makes it one"
            raise self.error(function, TypeError, text)
        if isinstance(x, (int, float)):
            return float(x)
        if kind_of(x) != "f":
            raise self.error(function, TypeError, f"{what} must be a number, not {said(x)}")
        return x

    def error(self, function: str, kind: type[Exception], text: str) -> Exception:
        code = getattr(getattr(self.task, function), "__code__", None)
        place = f" ({code.co_filename}, line {code.co_firstlineno})" if code else ""
        return kind(f"{type(self.task).__name__}.{function}{place}: {text}")


def width_of(x: Scalar | list) -> int:
    return len(x) if isinstance(x, list) else 0


def flatten(widths: Widths, values: Named) -> list:
    """Named numbers one after the other, 0 where a name is absent."""
    out: list = []
    for name, width in widths.items():
        x = values.get(name, [0.0] * width if width else 0.0)
        out += x if isinstance(x, list) else [x]
    return out


def by_name(widths: Widths, values: list) -> Named:
    """What `flatten` was made of."""
    out: Named = {}
    rest = list(values)
    for name, width in widths.items():
        out[name], rest = (rest[:width], rest[width:]) if width else (rest[0], rest[1:])
    return out


def is_mask(x: Any) -> bool:
    return kind_of(x) == "b"


def kind_of(x: Any) -> str | None:
    """ "f", "b" or "i" of a scalar, None of anything else."""
    try:
        return type_of(x)
    except TypeError:
        return None


def said(x: Any) -> str:
    known = type(x) in (bool, int, float) or kind_of(x) is None
    return f"{x!r} of type {type(x).__name__}" if known else "a number of the world"


def counted(width: int) -> str:
    return f"a list of {width}" if width else "one number"


def line_of(error: Exception) -> str:
    """The innermost line that an exception came through outside of this package, or else inside."""
    frames = [(f.f_code.co_filename, number) for f, number in traceback.walk_tb(error.__traceback__)]
    package = str(Path(__file__).parents[1])  # a constant of it would change the cache key
    outside = [frame for frame in frames if not frame[0].startswith(package)]
    file, number = (outside or frames)[-1]
    text = linecache.getline(file, number).strip()
    return f"{file}, line {number}" + (f": {text}" if text else "")
