"""Calls of a task's functions, and numbers as they return them, with errors in the task's own terms.

Exceptions raised within a task's functions say in which line of its file they arose.
"""

from __future__ import annotations

import inspect
import linecache
import random
import sys
import threading
import traceback
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from ..compiler.expr import Expr, refused_questions, type_of
from ..compiler.scalar import Scalar
from ..compiler.source import is_own
from ..physics.model.model import Model
from .packing import Named
from .parts import Shape
from .repeatable import called_twice
from .task_view import copy_for_task
from .tasks.base import Task, World

RECORDED = (
    "A task's functions are run once, to record what a kernel will compute for every world. Numbers of a world are "
    "known only when the kernel runs: Python's if, and, or, max, float and the functions of math and NumPy do not know "
    "them. torch_mjenvs.scalar has select, logical_and, maximum, sin, ... to be used instead"
)
ONE_NUMBER = (
    "What is a matrix elsewhere is a flat list here, as in mjData: of each body xmat has nine numbers, row by row"
)
LOOKED_UP = (
    "A list is read by a number that is known when the task is recorded. What a world's own number chooses is a row of "
    "a table: let the task's `tables` give it, and read world.tables[name][row]; of two, select(mask, a, b) is one"
)
OF_RANDOM = (
    "rng draws one number at a time: uniform(low, high), mean + std * normal(), exponential(scale), "
    "integers(low, high); uniform() < p is a mask that is true with probability p. To choose one of a list, let the "
    "task's `tables` give it, and read world.tables[name][rng.integers(count)]; a `reset` that asks for it is also "
    "given the world"
)
OF_MODEL = (
    "The model cannot be changed here: change it in `load`, in each world by `randomize` or `reset_parameters`; a list "
    "of its numbers, as list(m.qpos0), can be"
)
OF_LENGTHS = "The lists are not equally long"
OF_LISTS = "Lists are Python's: torch_mjenvs.vectors has add, sub, scale, dot and norm for lists of numbers"


@dataclass(frozen=True)
class TaskCalls:
    """A task whose functions are called for a model, and what reads the numbers that they return.

    Raises TypeError or ValueError, naming the task's function and its line, for what is no number.
    """

    task: Task
    model: Model
    twice: bool = False  # whether to call each function twice, and compare

    def call(self, function: str, *arguments: Any, **named: Any) -> Any:
        """Call a function of the task, which takes the model first."""
        return self.call_plainly(function, self.model, *arguments, **named)

    def call_plainly(self, function: str, *arguments: Any, may_draw: bool = False, **named: Any) -> Any:
        """Call a function of the task with copies of the arguments. Exceptions get a note of the task's line.

        Raises ValueError if it draws from NumPy's, Python's or torch's generator, which would give all worlds and
        episodes the same numbers, unless it `may_draw`. In a program of several threads another thread may have drawn,
        so it only warns. Raises ValueError, too, if a second call with the same arguments gives something else, and
        TypeError if it asks for the value of a world's number, and catches the error that says so.
        """

        def call() -> Any:
            further = {name: copy_for_task(x) for name, x in named.items()}
            return getattr(self.task, function)(*map(copy_for_task, arguments), **further)

        before, asked = drawn(), refused_questions()
        try:
            found, same = called_twice(call, (*arguments, *named.values())) if self.twice else (call(), True)
        except Exception as error:
            error.add_note(f"in {type(self.task).__name__}.{function}, {line_of(error, getattr(self.task, function))}")
            if note := explanation(error):
                error.add_note(note)
            raise
        if not is_own(type(self.task).__module__) and (name := self.kept_by_task()):
            text = (
                f"keeps a world's number in the attribute {name!r}, where no other call may use it: keep it in memory"
            )
            raise self.error(function, ValueError, text)
        if drawn() != before and not may_draw and not is_own(type(self.task).__module__):  # ours draw only by rng
            text = "draws from np.random, random or torch, the same numbers in all worlds and episodes: use rng"
            told = self.error(function, ValueError, text)
            if threading.active_count() == 1:
                raise told
            warnings.warn(f"{told} (unless it was another thread that drew)", stacklevel=3)
        if refused_questions() != asked:
            text = "asks whether a number of a world is true, or for its value, and catches the error: use select"
            raise self.error(function, TypeError, text)
        if not same:
            raise self.error(function, ValueError, (
                "gives something else when it is called again with the same arguments, such as numbers of a random "
                "generator of its own, a counter, or a clock. A kernel would repeat one of them in all worlds and "
                "steps: draw from rng, and keep what changes in the memory"
            ))  # fmt: skip
        return found

    def kept_by_task(self) -> str | None:
        """Return the name of an attribute, other than a field, that holds a world's numbers; None if none does."""
        held = {**vars(type(self.task)), **vars(self.task)}
        own = [x.name for x in fields(self.task)]  # a field may collect what nobody reads
        return next((name for name, x in held.items() if name not in own and has_traced(x)), None)

    def call_with_rng(self, function: str, world: World) -> Any:
        """Call a function that takes random numbers, and also the world if it has an argument of that name."""
        wanted = "world" in inspect.signature(getattr(self.task, function)).parameters
        return self.call(function, world.rng, **({"world": world} if wanted else {}))

    def named(self, function: str, returned: Any, what: str = "what it gives") -> Named:
        """Return a dict of numbers and lists of numbers, checked."""
        if not isinstance(returned, Mapping) or not all(isinstance(name, str) for name in returned):
            text = f"{what} must be a dict of numbers, or lists of them, by name, not {describe(returned)}"
            raise self.error(function, TypeError, text)
        return {
            name: self.numbers(function, x, name) if isinstance(x, (list, tuple)) else self.number(function, x, name)
            for name, x in returned.items()
        }

    def numbers(self, function: str, returned: Any, what: str, width: int | None = None) -> list[Scalar]:
        """Return a list of numbers, checked, of this width if one is given."""
        if not isinstance(returned, (list, tuple)):
            raise self.error(function, TypeError, f"{what} must be a list of numbers, not {describe(returned)}")
        if width is not None and len(returned) != width:
            text = f"gave {len(returned)} numbers for {what}, and the model has {width}"
            raise self.error(function, ValueError, text)
        return [self.number(function, x, f"{what}[{i}]") for i, x in enumerate(returned)]

    def number(self, function: str, x: Any, what: str) -> Scalar:
        """Return one number, checked; Python's own become floats."""
        if is_mask(x):
            text = f"{what} must be a number, not a truth value: select(it, 1.0, 0.0) makes it one"
            raise self.error(function, TypeError, text)
        if isinstance(x, (int, float)):
            return float(x)
        if kind_of(x) != "f":
            raise self.error(function, TypeError, f"{what} must be a number, not {describe(x)}")
        return x

    def nested(self, function: str, x: Any, what: str) -> tuple[Shape, list[Scalar]]:
        """Return the shape and the numbers of a number, a list, or lists of lists of one shape."""
        if not isinstance(x, (list, tuple)):
            return (), [self.number(function, x, what)]
        if not x:
            raise self.error(function, ValueError, f"{what!r} is an empty list: leave it out")
        inside = [self.nested(function, y, f"{what}[{i}]") for i, y in enumerate(x)]
        if any(shape != inside[0][0] for shape, _ in inside):
            raise self.error(function, ValueError, f"{what!r} must be of lists that are all of one shape")
        return (len(x), *inside[0][0]), [y for _, numbers in inside for y in numbers]

    def error(self, function: str, kind: type[Exception], text: str) -> Exception:
        """Make an exception whose text begins with the task's function and its line."""
        code = getattr(getattr(self.task, function, None), "__code__", None)  # "world.at" is none of the task's
        place = f" ({code.co_filename}, line {code.co_firstlineno})" if code else ""
        return kind(f"{type(self.task).__name__}.{function}{place}: {text}")


def drawn() -> tuple[Any, ...]:
    """Return the states of NumPy's, Python's and torch's generators."""
    _, key, *rest = np.random.get_state(legacy=True)  # noqa: NPY002 (tasks may draw from this generator)
    torch = sys.modules.get("torch")  # recording does not need it, so it may not be imported
    torchs = torch and torch.get_rng_state().numpy().tobytes()
    return key.tobytes(), rest, random.getstate(), torchs  # type: ignore[union-attr]


def is_mask(x: Any) -> bool:
    """Return True for a truth value or a comparison of scalars."""
    return kind_of(x) == "b"


def kind_of(x: Any) -> str | None:
    """Return "f", "b" or "i" for a scalar, None for anything else."""
    try:
        return type_of(x)
    except TypeError:
        return None


def describe(x: Any) -> str:
    """Return a description of a value and its type, for an error message."""
    known = type(x) in (bool, int, float) or kind_of(x) is None
    as_list = "; its tolist() is a list" if getattr(x, "ndim", 0) else ""
    return f"{x!r} of type {type(x).__name__}{as_list}" if known else "a number of the world"


def has_traced(x: Any) -> bool:
    """Return whether x is a traced number, or lists, tuples and dicts that hold one."""
    inside = x.values() if type(x) is dict else x if type(x) in (list, tuple) else ()
    return type(x) is Expr or any(map(has_traced, inside))


def counted(width: int) -> str:
    """Return a width in words, for an error message."""
    return f"a list of {width}" if width else "one number"


def explanation(error: Exception) -> str | None:
    """Return what to add to an error that Python or NumPy raised about a world's numbers; None if it says enough."""
    text = str(error)
    if isinstance(error, ValueError) and text.startswith("zip() argument"):
        return OF_LENGTHS
    if "indices must be integers or slices, not Expr" in text or text.startswith("only integers, slices"):
        return LOOKED_UP
    if not isinstance(error, (TypeError, AttributeError, RuntimeError)):
        return None
    if text == "'tuple' object does not support item assignment":
        return OF_MODEL
    if text in ("'Expr' object is not subscriptable", "'float' object is not subscriptable"):
        return ONE_NUMBER
    if text.startswith(("rng has no ", "Random.")):  # NumPy's Generator has more
        return OF_RANDOM
    compared = "unsupported operand" in text or "not supported between" in text
    if (
        "multiply sequence" in text
        or text.startswith(("a tuple is not part of", "a list is not part of"))
        or (compared and ("'list'" in text or "'Rows'" in text))
    ):
        return OF_LISTS
    return RECORDED if "traced" in text or "Expr" in text else None


def line_of(error: Exception, function: Any) -> str:
    """Return the innermost line of the user's that an exception passed through, else the function's first."""
    frames = [(f.f_code.co_filename, number) for f, number in traceback.walk_tb(error.__traceback__)]
    # not module constants: the paths would become part of the cache key
    libraries = [sys.modules[x] for x in ("numpy", "torch") if x in sys.modules]
    others = [str(Path(__file__).parents[1]), *(str(Path(x.__file__ or "").parent) for x in libraries)]
    outside = [frame for frame in frames if not frame[0].startswith((*others, "<"))]
    if not outside and (code := getattr(function, "__code__", None)):
        outside = [(code.co_filename, code.co_firstlineno)]
    file, number = (outside or frames)[-1]
    text = linecache.getline(file, number).strip()
    return f"{file}, line {number}" + (f": {text}" if text else "")
