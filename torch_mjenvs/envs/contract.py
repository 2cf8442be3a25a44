"""What a task's functions return, checked, with errors in the task's own terms.

Return values are checked against the model, against what the task declares, and against what the same function returned
before.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import numpy as np

from ..compiler.scalar import Mask, Scalar, logical_or, select
from ..physics.algebra.nested import leaves
from ..physics.model.named import find
from ..physics.params import as_rows, check_names
from .entries import OWN_INFO, OWN_REASONS
from .kept import Held
from .observation import POLICY, Observation, is_grouped
from .packing import Entries, Named, Widths, by_name, flatten, width_of
from .parts import Tree
from .task_calls import TaskCalls, counted, describe, is_mask
from .task_view import NotThere
from .tasks.base import HELD, Control, Outcome, Start, Task, World

# of tasks with goals, and of their environments; they are given no model
COMPUTE_REWARD = "compute_reward"
OF_GOALS = (COMPUTE_REWARD, "compute_terminated", "compute_truncated")
MOST_ROWS = 2**24  # up to here float32, in which a world may count them, knows all whole numbers


class Placed(NamedTuple):
    """The beginning of an episode as in `Start`, checked, with parameters as flat lists."""

    qpos: list[Scalar]
    qvel: list[Scalar]
    act: list[Scalar]
    memory: Named
    parameters: dict[str, list[Scalar]]
    held: Held


@dataclass(frozen=True)
class Verdict:
    """A task's outcome, checked: the reward, what each term adds to it, metrics, the end with its reasons, whether the
    task is done, and info.
    """

    reward: Scalar
    terms: dict[str, Scalar]
    metrics: dict[str, Scalar]
    terminated: Mask
    truncated: Mask
    success: Mask | None
    reasons: dict[str, Mask]
    info: Named


@dataclass(frozen=True)
class Contract(TaskCalls):
    """A task's functions for a model, with checked return values.

    Raises TypeError or ValueError, naming the task's function and its line, for a return value that does not fit.
    """

    def memory(self) -> tuple[Widths, list[Scalar]]:
        """Return the names and widths of a world's memory, and its first numbers."""
        found = self.named("memory", self.call("memory"))
        widths = {name: width_of(x) for name, x in found.items()}
        for name, x in found.items():
            if x == []:
                raise self.error("memory", ValueError, f"{name!r} is an empty list: leave it out")
            if not all(type(y) is float and math.isfinite(y) for y in (x if isinstance(x, list) else [x])):
                raise self.error("memory", ValueError, f"{name!r} must be of finite numbers that all worlds share")
        return widths, flatten(widths, found)

    def tables(self) -> dict[str, np.ndarray]:
        """Return the task's tables, by name, as arrays of finite numbers with a row or more."""
        returned = self.call("tables", may_draw=True)  # all worlds share tables
        if not isinstance(returned, Mapping):
            text = f"must give a dict of arrays by name, not a {type(returned).__name__}"
            raise self.error("tables", TypeError, text)
        if not all(isinstance(name, str) and name for name in returned):
            raise self.error("tables", TypeError, f"names of tables are strings, unlike some of {[*returned]}")
        return {name: self.table(name, x) for name, x in returned.items()}

    def table(self, name: str, given: Any) -> np.ndarray:
        """Return one of the task's tables as an array, checked."""
        try:
            x = np.asarray(given.detach().cpu() if hasattr(given, "detach") else given)
        except ValueError as error:  # lists of different lengths
            raise self.error("tables", ValueError, f"{name!r} is no array: {error}") from error
        if x.dtype.kind not in "fiub":
            raise self.error("tables", TypeError, f"{name!r} must be an array of numbers, not of {x.dtype}")
        if x.ndim == 0 or x.size == 0:
            text = f"{name!r} must have rows of a number or more, and is of shape {x.shape}"
            raise self.error("tables", ValueError, text)
        if len(x) > MOST_ROWS or x.size >= 2**31:
            text = f"{name!r} is of shape {x.shape}: {MOST_ROWS} rows and 2**31 - 1 numbers are the most"
            raise self.error("tables", ValueError, text)
        good = np.abs(x) <= np.finfo(np.float32).max
        if not good.all():
            at = tuple(np.argwhere(~good)[0].tolist())
            text = f"{name!r}{[*at]} is {x[at]}: a table is of finite numbers, as float32 has them"
            raise self.error("tables", ValueError, text)
        return x

    def action_space(self) -> tuple[tuple[float, float], ...]:
        """Return the least and the greatest value of each number of an action."""
        found = self.call("action_space")
        if not isinstance(found, tuple) or len(found) != 2:
            raise self.error("action_space", TypeError, f"must give a tuple of low and high, not {describe(found)}")
        low, high = (self.bounds(x, what) for x, what in zip(found, ("low", "high"), strict=True))
        if len(low) != len(high):
            raise self.error("action_space", ValueError, f"gave {len(low)} numbers for low, and {len(high)} for high")
        for i, (x, y) in enumerate(zip(low, high, strict=True)):
            if not x < y:
                raise self.error("action_space", ValueError, f"low[{i}] must be below high[{i}], not {x} and {y}")
        if len(low) != self.model.nu and not self.controls:
            text = f"an action has {len(low)} numbers, and the model's ctrl {self.model.nu}: write `control` as well"
            raise self.error("action_space", ValueError, text)
        return tuple(zip(low, high, strict=True))

    def bounds(self, given: Any, what: str) -> list[float]:
        """Return numbers that all worlds share, which may be infinite."""
        numbers = given.tolist() if hasattr(given, "tolist") else given  # if it is a NumPy array
        found: list[float] = []
        for i, x in enumerate(self.numbers("action_space", numbers, what)):
            if not isinstance(x, float) or math.isnan(x):
                text = f"{what}[{i}] must be a number that all worlds share, not {describe(x)}"
                raise self.error("action_space", ValueError, text)
            found.append(x)
        return found

    def randomize(self, world: World) -> dict[str, Any]:
        """Return the parameters that the task draws for a new episode, by name, each as a flat list."""
        return self.parameters("randomize", self.call_with_rng("randomize", world))

    def parameters(self, function: str, returned: Any) -> dict[str, list[Scalar]]:
        """Return parameters that the task gives by name, each as a flat list."""
        if not isinstance(returned, Mapping):
            raise self.error(function, TypeError, f"must give a dict of parameters by name, not {describe(returned)}")
        try:
            found = as_rows(self.model, {name: returned[name] for name in check_names(self.model, returned)})
        except ValueError as error:
            raise self.error(function, ValueError, str(error)) from error
        return {name: [self.number(function, x, name) for x in leaves(rows)] for name, rows in found.items()}

    def reset(self, world: World) -> Placed:
        """Return the beginning of a new episode. `world` is the world before it."""
        m, returned = self.model, self.call_with_rng("reset", world)
        if isinstance(returned, tuple) and len(returned) == 2:
            returned = Start(*returned)
        if not isinstance(returned, Start):
            what = f"must give a tuple of qpos and qvel, or a Start, not {describe(returned)}"
            raise self.error("reset", TypeError, what)
        parameters = self.parameters("reset", returned.parameters)
        for name in {*parameters} - {*self.task.reset_parameters}:
            raise self.error("reset", ValueError, f"parameters: reset_parameters of the task does not name {name!r}")
        memory = self.named("reset", returned.memory, "memory")
        if memory:
            self.changed("reset", *self.memory(), memory)
        return Placed(
            self.numbers("reset", returned.qpos, "qpos", m.nq),
            self.numbers("reset", returned.qvel, "qvel", m.nv),
            self.numbers("reset", [0.0] * m.na if returned.act is None else returned.act, "act", m.na),
            memory,
            parameters,
            self.held("reset", returned),
        )

    def held(self, function: str, given: Start | Control) -> Held:
        """Return the inputs that a world keeps of what a task gives, by field and by place in the flat field."""
        m, found = self.model, Held()
        for name, width in HELD.items():
            values = getattr(given, name)
            if values is None or (isinstance(values, Mapping) and not values):
                continue
            if name not in self.task.inputs:
                raise self.error(function, ValueError, f"{name}: the task's `inputs` does not name it")
            if name == "wind":
                found[name] = dict(enumerate(self.numbers(function, values, name, 3)))
                continue
            for which, x in values.items():
                what = f"{name}[{which!r}]"
                try:
                    i = find("equality", m.eq_names, which) if name == "eq_active" else m.body(which).id
                except (KeyError, IndexError) as error:
                    raise self.error(function, ValueError, f"{what}: {error.args[0]}") from None
                if name != "eq_active":
                    i = m.body_mocapid[i]
                    if i < 0:
                        raise self.error(function, ValueError, f"{what}: the body is none with mocap='true'")
                    numbers = self.numbers(function, x, what)
                    if len(numbers) != width:
                        text = f"{what} is {counted(len(numbers))}, and must be {width}"
                        raise self.error(function, ValueError, text)
                else:
                    numbers = [self.number(function, select(x, 1.0, 0.0) if is_mask(x) else x, what)]
                found.setdefault(name, {}).update({width * i + k: y for k, y in enumerate(numbers)})
        return found

    def begin(self, widths: Widths, first: list[Scalar], world: World) -> list[Scalar]:
        """Return the memory at the start of an episode: `first`, with what the task's `begin` changes."""
        return self.changed("begin", widths, first, self.call("begin", world))

    def remember(self, widths: Widths, before: World, action: list[Scalar], after: World, left: Named) -> list[Scalar]:
        """Return the memory after a step: that before it, with what substeps `left`, and what `remember` changes."""
        unknown = NotThere("after a step it is what `remember` returns. Read before.memory")
        memory = before.memory | left
        returned = self.call("remember", before, action, replace(after, memory=memory if left else unknown))
        return self.changed("remember", widths, flatten(widths, memory), returned)

    def changed(self, function: str, widths: Widths, values: list[Scalar], returned: Any) -> list[Scalar]:
        """Return `values`, of these widths, with new ones for the names in `returned`."""
        found, declared = self.named(function, returned), by_name(widths, values)
        for name, x in found.items():
            if name not in widths:
                raise self.error(function, ValueError, f"gave {name!r}, which memory() does not have: {[*widths]}")
            if (width := width_of(x)) != widths[name]:
                what = f"gave {counted(width)} for {name!r}, and memory() has {counted(widths[name])}"
                raise self.error(function, ValueError, what)
        return flatten(widths, declared | found)

    def control(self, world: World, action: list[Scalar]) -> tuple[list[Scalar], dict[str, list[Scalar]], Held]:
        """Return ctrl (nu), pushes, as the physics takes them, and inputs to be kept.

        The push "qvel" is a kick, and "qpos" are positions from which the step begins.

        If the task has a `substep_control`, ctrl is what that is given: targets, of any length.
        """
        m, returned = self.model, self.call("control", world, action)
        targets = None if self.has_substeps else m.nu
        if isinstance(returned, Control) and returned.memory:
            raise self.error("control", ValueError, "gave memory, which `substep_control` and `remember` change")
        if not isinstance(returned, Control):
            return self.numbers("control", returned, "ctrl", targets), {}, {}
        pushes = self.pushes("control", returned)
        return self.numbers("control", returned.ctrl, "ctrl", targets), pushes, self.held("control", returned)

    def substep_control(self, world: World, targets: list[Scalar]) -> tuple[list[Scalar], dict[str, Any], Held, Named]:
        """Return ctrl (nu) for a substep, its pushes as the physics takes them, inputs to be kept, and new memory."""
        returned = self.call("substep_control", world, targets)
        control = returned if isinstance(returned, Control) else Control(returned)
        for name in ("qvel", "qpos"):
            if getattr(control, name):
                raise self.error("substep_control", ValueError, f"gave {name}, which `control` gives, for all substeps")
        ctrl = self.numbers("substep_control", control.ctrl, "ctrl", self.model.nu)
        widths = {name: width_of(x) for name, x in world.memory.items()}
        memory = by_name(widths, self.changed("substep_control", widths, flatten(widths, world.memory), control.memory))
        pushes, held = self.pushes("substep_control", control), self.held("substep_control", control)
        return ctrl, pushes, held, {name: memory[name] for name in widths if name in control.memory}

    def pushes(self, function: str, given: Control) -> dict[str, Any]:
        """Return the forces of a control, and where it puts the state, as physics takes them; only what it names."""
        m, pushes = self.model, dict[str, Any]()
        for name, width in (("qfrc_applied", m.nv), ("qvel", m.nv), ("qpos", m.nq)):
            if (numbers := getattr(given, name)) is not None:
                pushes[name] = self.numbers(function, numbers, name, width)
        wrenches = self.named(function, given.xfrc_applied, "xfrc_applied")
        for body, wrench in wrenches.items():
            if body not in m.body_names:
                raise self.error(function, ValueError, f"xfrc_applied: there is no body {body!r} in {m.body_names}")
            if width_of(wrench) != 6:
                text = f"xfrc_applied[{body!r}] is {counted(width_of(wrench))}, and must be of force and torque: 6"
                raise self.error(function, ValueError, text)
        if wrenches:
            pushes["xfrc_applied"] = [flatten({name: 6}, wrenches) for name in m.body_names]
        return pushes

    @property
    def controls(self) -> bool:
        """Whether the task overrides `control`, or computes ctrl in every substep."""
        return self.has_substeps or self._overrides("control")

    @property
    def has_substeps(self) -> bool:
        """Whether the task overrides `substep_control`."""
        return self._overrides("substep_control")

    def _overrides(self, name: str) -> bool:
        """Return whether the task has a method of its own in place of that of `Task`."""
        return getattr(getattr(self.task, name), "__func__", None) is not getattr(Task, name)

    def observe(self, world: World, shapes: Tree = None) -> tuple[Tree, list[Scalar]]:
        """Return the shapes of the observation's entries, and its numbers in their order.

        Raises ValueError if names, order or shapes are not those of `shapes`.
        """
        returned = self.call("observe", world)
        found, numbers = self.observed(returned)
        if shapes is not None and repr(found) != repr(shapes):
            if isinstance(shapes, Mapping) or isinstance(found, Mapping):
                text = f"gave {found}, and {shapes} before: always the same names and shapes, in the same order"
            else:
                text = f"gave {found[0]} numbers, and {shapes[0]} before: always as many"
            raise self.error("observe", ValueError, text)
        return found, numbers

    def observed(self, returned: Any) -> tuple[Tree, list[Scalar]]:
        """Return shapes and numbers of what `observe` gives: a list, a dict by name, or a dict of groups."""
        if not isinstance(returned, Mapping):
            numbers = self.numbers("observe", returned, "observation")
            return (len(numbers),), numbers
        if not (returned and all(isinstance(name, str) and name for name in returned)):
            raise self.error("observe", ValueError, f"observations need names that are strings, not {[*returned]}")
        groups = {name for name, x in returned.items() if isinstance(x, Mapping)}
        if groups and (others := [name for name in returned if name not in groups]):
            text = f"{sorted(groups)} are dicts, which makes them groups, and {others} are not: put them into a group"
            raise self.error("observe", ValueError, text)
        shapes: dict[str, Tree] = {}
        numbers = []
        for name, x in returned.items():
            shapes[name], part = self.observed(x) if groups else self.nested("observe", x, name)
            if groups and is_grouped(shapes[name]):
                raise self.error("observe", ValueError, f"the group {name!r} holds groups: one level of them is all")
            numbers += part
        if not groups and is_grouped(shapes) and any(len(shape) != 1 for shape in shapes.values()):
            text = f"{POLICY!r} is the name of a group, so all entries must be lists, or dicts of names: {shapes}"
            raise self.error("observe", ValueError, text)
        return shapes, numbers

    def observation(self, shapes: Tree) -> Observation:
        """Return the observation of these shapes, with the task's tables of noise and history."""
        task: Any = self.task  # of whose tables type checkers do not know
        for name in ("noise", "history"):
            if not isinstance(x := getattr(task, name), Mapping) and not any(f.name == name for f in fields(task)):
                text = f"{type(task).__name__}.{name} must be a dict by the names of observe, not {x!r}"
                raise TypeError(f"{text}: rename an attribute of your own")
        try:
            return Observation.of(shapes, task.noise, task.history)
        except (TypeError, ValueError) as error:
            raise type(error)(f"{type(self.task).__name__}.{error}") from error

    def outcome(self, before: World, action: list[Scalar], after: World) -> Verdict:
        """Return reward, end and info of a step."""
        returned = self.call("outcome", before, action, after)
        if not isinstance(returned, Outcome):
            raise self.error("outcome", TypeError, f"must give an Outcome, not {describe(returned)}")
        checked = self.checked_reward(returned)
        terms = {name: x * checked.scale for name, x in checked.weighted().items()}
        ends = {what: getattr(returned, what) for what in ("terminated", "truncated")}
        named = any(isinstance(x, Mapping) for x in ends.values())
        reasons: dict[str, Mask] = {}
        for what, x in ends.items():
            given = x if isinstance(x, Mapping) else {} if x is False else {what: x}
            self.check_masks(what, given if isinstance(x, Mapping) else x)
            taken = [name for name in given if name in reasons or name in OWN_REASONS]
            if named and taken:
                others = "is the environment's own" if taken[0] in OWN_REASONS else "is there twice"
                raise self.error("outcome", ValueError, f"the reason {taken[0]!r} {others}: rename yours")
            reasons |= given
            ends[what] = logical_or(*given.values())
        info = self.checked_info("outcome", returned.info)
        metrics, reasons = self.singles("metrics", returned.metrics), reasons if named else {}
        if not (returned.success is None or is_mask(returned.success)):
            text = f"success must be True, False or a comparison such as x > 1.0, not {describe(returned.success)}"
            raise self.error("outcome", TypeError, text)
        end = (ends["terminated"], ends["truncated"], returned.success, reasons)
        return Verdict(checked.total(), terms, metrics, *end, info)

    def of_goals(self, function: str, achieved_goal: Any, desired_goal: Any, info: Mapping[str, Any]) -> Scalar:
        """Return what a function of OF_GOALS gives for goals, shaped as in the task's observation; flags as 0 or 1."""
        returned = self.call_plainly(function, achieved_goal, desired_goal, info)
        if function == COMPUTE_REWARD:
            return self.number(function, returned, "the reward")
        if not is_mask(returned):
            text = f"must give True, False or a comparison such as x > 1.0, not {describe(returned)}"
            raise self.error(function, TypeError, text)
        return select(returned, 1.0, 0.0)

    def checked_reward(self, outcome: Outcome) -> Outcome:
        """Return an outcome whose reward, weights, scale and clip are checked."""
        if not isinstance(outcome.reward, Mapping):
            if outcome.weights is not None:
                raise self.error("outcome", ValueError, "weights are of terms by name, and the reward is one number")
            reward: Any = self.number("outcome", outcome.reward, "reward")
            weights = None
        else:
            reward, weights = self.singles("reward", outcome.reward), outcome.weights
            if weights is not None:
                weights = self.singles("weights", weights)
        scale = self.number("outcome", outcome.scale, "scale")
        ends = outcome.clip
        if not (isinstance(ends, (tuple, list)) and len(ends) == 2 and all(type(x) in (int, float) for x in ends)):
            raise self.error("outcome", TypeError, f"clip must be two numbers, (low, high), not {ends!r}")
        if not ends[0] < ends[1]:
            raise self.error("outcome", ValueError, f"clip must be (low, high) with low below high, not {ends!r}")
        checked = replace(outcome, reward=reward, weights=weights, scale=scale)
        try:
            checked.weighted()
        except ValueError as error:
            raise self.error("outcome", ValueError, str(error)) from error
        return checked

    def singles(self, what: str, given: Any) -> dict[str, Scalar]:
        """Return a dict of single numbers by name, from one or from pairs, checked."""
        try:
            found, names = dict(given), [*given] if isinstance(given, Mapping) else [name for name, _ in given]
        except (TypeError, ValueError):
            found, names = {None: given}, [None]
        if twice := [name for name in found if names.count(name) > 1]:
            raise self.error("outcome", ValueError, f"{what} has {twice} more than once")
        if not all(isinstance(name, str) and name for name in found):
            raise self.error("outcome", TypeError, f"{what} must be a dict of numbers by name, not {describe(given)}")
        return {name: self.number("outcome", x, f"{what} {name!r}") for name, x in found.items()}

    def check_masks(self, what: str, given: Any) -> None:
        """Raise TypeError for anything but a mask or a dict of masks by name."""
        for name, x in given.items() if isinstance(given, Mapping) else ((what, given),):
            if not (isinstance(name, str) and name):
                raise self.error("outcome", TypeError, f"{what} must have its masks by name, not by {name!r}")
            if not is_mask(x):
                where = what if given is x else f"{what} {name!r}"
                text = f"{where} must be True, False or a comparison such as x > 1.0, not {describe(x)}"
                raise self.error("outcome", TypeError, text)

    def reset_info(self, world: World) -> Named:
        """Return the info of a reset."""
        return self.checked_info("reset_info", self.call("reset_info", world))

    def checked_info(self, function: str, info: Any) -> Named:
        """Return info with numbers and lists by name, without empty lists."""
        found = self.named(function, info, "info")
        for name in found:
            if name in OWN_INFO or name.startswith("_"):
                what = "and all that begin with _, masks of others, are" if name.startswith("_") else "is"
                raise self.error(function, ValueError, f"info: {name!r} {what} the environment's own: rename yours")
        return {name: x for name, x in found.items() if x != []}

    def with_entries(self, info: Named, names: tuple[str, ...]) -> Named:
        """Return the info of a step with the environment's own entries. Raises ValueError if a name is taken."""
        taken = [name for name in names if name in info]
        if taken:
            raise self.error("outcome", ValueError, f"{taken[0]!r} is the environment's own: rename yours")
        return info | dict.fromkeys(names, 0.0)

    def same_widths(self, reset_info: Entries, step_info: Entries) -> Widths:
        """Return the widths of the entries of both infos. Raises ValueError if an entry has two widths."""
        widths = {name: width_of(x) for name, x in {**step_info, **reset_info}.items()}
        for name, x in step_info.items():
            if width_of(x) != widths[name]:
                text = f"info {name!r} is {counted(width_of(x))}, and {counted(widths[name])} in reset_info"
                raise self.error("outcome", ValueError, text)
        return widths
