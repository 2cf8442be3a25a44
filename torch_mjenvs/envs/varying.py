"""Which parameters of a task's model vary from world to world, and what they are in a new episode."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

from ..compiler.random import Random
from ..compiler.scalar import Scalar
from ..physics.columns import Columns
from ..physics.model.model import Model
from ..physics.params import RANGES, check_names, check_wind, rows_of, sensible
from .randomization import Draw, Scale
from .tasks.base import Task


def columns_of(
    m: Model, task: Task, vary: Collection[str], randomize: Mapping[str, Draw], by_task: Collection[str]
) -> Columns | None:
    """Return the columns of the parameters that vary; None if none does.

    by_task: the names of those that the task's `randomize` draws. Raises ValueError for a name that cannot vary, and
    for a draw that changes nothing or can give values that make no sense.
    """
    whole = {*vary, *randomize, *by_task}
    names = check_names(m, {*whole, *task.reset_parameters})
    columns = Columns(m, names, _only(m, task, names, whole))
    nominal, places = columns.nominal(), columns.places()
    for name, draw in randomize.items():
        _refuse_idle(m, name, draw, nominal[places[name]])
    if "wind" in {*task.inputs, *randomize, *by_task}:
        check_wind(m, names)
    if not names:
        return None
    for end in (0, 1):
        params: list[Scalar] = [*nominal]
        for name, draw in randomize.items():
            ends = draw.bounds(name, columns.shapes[name])[end]
            params[places[name]] = map(draw.applied, nominal[places[name]], ends)
        for name, rule, holds in sensible(m, columns.values(params)):
            if not holds and name in randomize:
                raise ValueError(f"randomize {name!r} can give values that make no sense: {rule}")
    return columns


def _refuse_idle(m: Model, name: str, draw: Draw, nominal: Sequence[float]) -> None:
    """Raise ValueError if a parameter would be drawn, and change nothing."""
    if name in RANGES and not any(getattr(m, RANGES[name])):
        raise ValueError(f"randomize {name!r}: no range of the model is in use ({RANGES[name]} is false)")
    if type(draw) is Scale and not any(nominal):
        text = "multiplies numbers that are all 0 in the model, which changes nothing: use Shift or Uniform"
        raise ValueError(f"randomize {name!r} {text}")


def _only(
    m: Model, task: Task, names: Sequence[str], whole: Collection[str]
) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """For the parameters that only `reset` sets, return which rows vary, if the task names them."""
    named = task.reset_parameters
    if not isinstance(named, Mapping):
        return ()
    rows = rows_of(m, {name: which for name, which in named.items() if name not in whole})
    return tuple((name, rows[name]) for name in names if name in rows)


def redrawn(
    columns: Columns,
    task: Task,
    vary: Collection[str],
    randomize: Mapping[str, Draw],
    by_task: Mapping[str, list[Scalar]],
    params: Sequence[Scalar],
    rng: Random,
) -> list[Scalar] | None:
    """Return the parameters of a new episode before its `reset` sets some; None if they stay as they are.

    by_task: those that the task's `randomize` has drawn. Those that only `reset` sets are the loaded model's again, not
    those of the episode before: an episode depends on its seed and number alone.
    """
    by_reset = _set_by_reset(columns, task, vary)
    if not (by_task or randomize or by_reset):
        return None
    changed, nominal = list(params), columns.nominal()
    for name, at in columns.places().items():
        if name in randomize:
            changed[at] = randomize[name].draw(name, nominal[at], columns.shapes[name], rng)
        elif name in by_task:
            changed[at] = by_task[name]
        elif name in by_reset:
            for i in by_reset[name]:
                changed[i] = nominal[i]
    return changed


def _set_by_reset(columns: Columns, task: Task, vary: Collection[str]) -> dict[str, list[int]]:
    """Return, by name, the columns of the parameters that the task's `reset` sets.

    Where the task names elements and all may vary, the others stay as the user has set them.
    """
    named, places = task.reset_parameters, columns.places()
    found = {name: [*range(places[name].start, places[name].stop)] for name in named}
    if isinstance(named, Mapping):
        for name, rows in rows_of(columns.model, {k: named[k] for k in named if k in vary}).items():
            n = math.prod(columns.shapes[name][1:])
            found[name] = [x for row in rows for x in found[name][n * row : n * (row + 1)]]
    return found
