"""The observation as a task gives it: names and groups, with noise and histories of k steps by name.

In the kernel an observation is one row of numbers. A task's names are parts of that row, in the task's order.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from ..checks import as_count, is_number
from ..compiler.random import Random
from ..compiler.scalar import Scalar
from .parts import Parts, Shape, Tree

POLICY = "policy"  # the group that a policy sees: noise and history are of its entries
PRIVILEGED = "privileged"  # the group that by default only the value function sees
FORMS = ("dict", "flat")


@dataclass(frozen=True)
class Normal:
    """Normal noise of standard deviation `std`, for a task's table `noise`: a number, or lists of the entry's shape."""

    std: Any

    def draw(self, rng: Random, std: float) -> Scalar:
        return std * rng.normal()


@dataclass(frozen=True)
class _Uniform:
    """Uniform noise of this half-width: the meaning of a plain number in a task's table `noise`."""

    width: Any

    def draw(self, rng: Random, width: float) -> Scalar:
        return rng.uniform(-width, width)


Noise = Normal | _Uniform


@dataclass(frozen=True)
class Entry:
    """An entry of an observation, as the task's `observe` gives it."""

    path: tuple[str, ...]  # (group, name), (name,), or () where the observation is a list
    shape: Shape
    noise: tuple[tuple[Noise, float], ...] = ()  # of each number; empty: none
    steps: int = 0  # of history, the present one included; 0: no history

    @property
    def size(self) -> int:
        """The numbers of one step."""
        return math.prod(self.shape)

    @property
    def kept(self) -> int:
        """The numbers that are kept for the next step."""
        return max(0, self.steps - 1) * self.size


@dataclass(frozen=True)
class Observation:
    """The entries of a task's observation, in order. Raises ValueError or TypeError for tables that do not fit.

    `shapes` is what `observe` gives: a shape, a dict of shapes by name, or a dict of groups, each a dict or a shape.
    """

    shapes: Tree
    entries: tuple[Entry, ...]
    grouped: bool

    @staticmethod
    def of(shapes: Tree, noise: Any = None, history: Any = None) -> Observation:
        """Return the observation of these shapes, with a task's tables of noise and history."""
        entries = [Entry(path, shape) for path, shape in _paths(shapes)]
        grouped = is_grouped(shapes)
        chosen = (POLICY,) if grouped else ()
        known = {x.path[-1]: i for i, x in enumerate(entries) if x.path and x.path[:-1] == chosen}
        for name, given in _table("noise", noise, known, shapes).items():
            i = known[name]
            entries[i] = replace(entries[i], noise=_amounts(name, given, entries[i].shape))
        for name, given in _table("history", history, known, shapes).items():
            i = known[name]
            entries[i] = replace(entries[i], steps=as_count(f"history {name!r}", given, 0))
        return Observation(shapes, tuple(entries), grouped)

    @cached_property
    def kept(self) -> int:
        """The numbers that a world keeps from step to step, of all histories."""
        return sum(entry.kept for entry in self.entries)

    @cached_property
    def size(self) -> int:
        """The numbers in an observation, histories included."""
        return sum(entry.size * max(1, entry.steps) for entry in self.entries)

    def parts(self, form: str) -> Parts:
        """Return the parts that users see: by name ("dict"), or as one row ("flat"), one for each group."""
        shapes: Tree = {} if isinstance(self.shapes, Mapping) else self.shapes
        for entry in self.entries:
            shape = (entry.steps, *entry.shape) if entry.steps else entry.shape
            if len(entry.path) == 1:
                shapes[entry.path[0]] = shape
            elif entry.path:
                shapes.setdefault(entry.path[0], {})[entry.path[1]] = shape
        if form == "dict" or not isinstance(shapes, Mapping):
            return Parts(shapes)
        if self.grouped:
            return Parts({name: (Parts(inside).size,) if isinstance(inside, Mapping) else inside
                          for name, inside in shapes.items()})  # fmt: skip
        return Parts((self.size,))

    def noisy(self, values: list[Scalar], rng: Random) -> list[Scalar]:
        """Return what `observe` gave with noise added, drawn in the order of the entries."""
        out, at = [], 0
        for entry in self.entries:
            part = values[at : at + entry.size]
            if entry.noise:
                part = [x + kind.draw(rng, by) if by else x for x, (kind, by) in zip(part, entry.noise, strict=True)]
            out += part
            at += entry.size
        return out

    def row(self, values: list[Scalar], before: list[Scalar] | None) -> list[Scalar]:
        """Return the observation: what was kept `before`, followed by the `values` of this step.

        When an episode begins, `before` is None, and the first values fill the histories.
        """
        out, at, then = [], 0, 0
        for entry in self.entries:
            part = values[at : at + entry.size]
            out += part * max(0, entry.steps - 1) if before is None else before[then : then + entry.kept]
            out += part
            at, then = at + entry.size, then + entry.kept
        return out

    def newest(self, row: list[Scalar]) -> list[Scalar]:
        """Return what is kept of an observation for the next step: the newest k - 1 of each history."""
        out, end = [], 0
        for entry in self.entries:
            end += entry.size * max(1, entry.steps)
            out += row[end - entry.kept : end]
        return out


def is_grouped(shapes: Tree) -> bool:
    """Return whether the dict that `observe` gives is one of groups: it holds dicts, or a list named "policy"."""
    return isinstance(shapes, Mapping) and (POLICY in shapes or any(isinstance(x, Mapping) for x in shapes.values()))


def chosen_groups(there: Sequence[str], given: Mapping[str, Sequence[str]] | None = None) -> dict[str, list[str]]:
    """Return the groups that "policy" and "critic" see: those `given`, else the default ones.

    By default the policy sees "policy"; the critic sees the group "critic" if there is one, as in Isaac Lab, else
    "policy" and "privileged". Raises ValueError for groups that the task does not have.
    """
    given = given or {}
    if not isinstance(given, Mapping) or not {*given} <= {POLICY, "critic"}:
        raise ValueError(f"obs_groups is a dict of lists of groups for {POLICY!r} and 'critic', not {given!r}")
    usual = {POLICY: [POLICY], "critic": ["critic"] if "critic" in there else [POLICY, PRIVILEGED]}
    found: dict[str, list[str]] = {}
    for who in usual:
        if who in given:
            groups = list(given[who])
        else:
            groups = [x for x in usual[who] if x in there or x == POLICY]
        wrong = [x for x in groups if x not in there or groups.count(x) > 1]
        if wrong or not groups:
            what = f"{wrong} are not, once each, among them" if wrong else "at least one is needed"
            raise ValueError(f"obs_groups: {who!r} sees {groups}, and the groups are {[*there]}: {what}")
        found[who] = groups
    return found


def as_form(form: Any) -> str:
    """Read the argument `observation`. Raises ValueError."""
    if not isinstance(form, str) or form not in FORMS:
        raise ValueError(f"observation must be 'dict' or 'flat', not {form!r}")
    return str(form)


def _paths(shapes: Tree) -> Iterator[tuple[tuple[str, ...], Shape]]:
    if isinstance(shapes, Mapping):
        for name, inside in shapes.items():
            yield from (((name, *path), shape) for path, shape in _paths(inside))
    else:
        yield (), shapes


def _table(what: str, given: Any, known: Mapping[str, int], shapes: Tree) -> Mapping[str, Any]:
    """Return a task's table after checking that all its names are known. Raises TypeError or ValueError."""
    if not isinstance(given, Mapping):
        if isinstance(shapes, Mapping) and given is not None:
            raise TypeError(f"{what} must be a dict by the names of observe, not {given!r}: rename a field of your own")
        return {}  # a task whose observation is a list may have a field of that name
    unknown = [name for name in given if name not in known]
    group = f" of the group {POLICY!r}" if is_grouped(shapes) else ""
    if unknown and is_grouped(shapes) and POLICY not in shapes:
        raise ValueError(f"{what} is about names of the group {POLICY!r}, and the groups of observe are {[*shapes]}")
    if unknown and not known:
        raise ValueError(f"{what} names {unknown}, and observe gives no names{group}, but a list of numbers")
    if unknown:
        raise ValueError(f"{what} names {unknown}, and observe has the names {[*known]}{group}")
    return given


def _amounts(name: str, given: Any, shape: Shape) -> tuple[tuple[Noise, float], ...]:
    """Return the noise of each number of an entry; empty where there is none."""
    kind = given if isinstance(given, Normal) else _Uniform(given)
    values = kind.std if isinstance(kind, Normal) else kind.width
    if not all(map(is_number, np.asarray(values, object).ravel().tolist())):
        raise TypeError(f"noise {name!r} must be a number, lists of numbers, or a Normal of those, not {values!r}")
    found = np.asarray(values, float)
    if found.shape not in ((), shape):
        raise ValueError(f"noise {name!r} is of shape {found.shape}, and the entry of shape {shape}")
    if not (np.isfinite(found) & (found >= 0)).all():
        raise ValueError(f"noise {name!r} must be of finite numbers from 0 on, not {values!r}")
    each = np.broadcast_to(found, shape).ravel().tolist()
    return tuple((kind, by) for by in each) if any(each) else ()
