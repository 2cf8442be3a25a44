"""The reward and the ends that a task gives for any goals, as kernels over batches: for hindsight experience replay."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

import numpy as np
import torch

from ..compiler.build import Recipe, prepare
from ..compiler.functions import Pure
from ..compiler.launch import Kernel, name_of
from ..compiler.program import Buffer, Program, record
from .contract import COMPUTE_REWARD, OF_GOALS, Contract
from .layout import BufferLayout
from .packing import by_name, size_of
from .parts import Shape

GOALS = ("achieved_goal", "desired_goal")  # the names that goals have in an observation


class GoalFunction:
    """A task's function of OF_GOALS as one of batches. It is traced at once, and compiled when first called."""

    def __init__(
        self, function: str, contract: Contract, layout: BufferLayout, dtype: torch.dtype, device: torch.device
    ):
        self._function, self._contract, self._dtype, self._device = function, contract, dtype, device
        self._shapes = shapes_of_goals(layout)
        self._widths = {name: layout.info[name] for name in layout.step_info}
        self._reads: set[str] = set()  # the entries of info that the task's function reads
        info = [Buffer("info", size_of(self._widths), rows=True)] if self._widths else []
        takes = [*(Buffer(goal, math.prod(shape), rows=True) for goal, shape in self._shapes.items()), *info]
        self._takes, kind = len(takes), name_of(dtype)
        gives = function.removeprefix("compute_")
        buffers, name = (*takes, Buffer(gives, 1)), f"{type(contract.task).__name__.lower()}-{gives}"
        recipe = Recipe(name, buffers, kind, lambda: self._program(name, buffers, kind), None)
        self._make: Callable[[], Kernel] | None = prepare(recipe, device)
        self._run: Pure | None = None

    def _program(self, name: str, buffers: Sequence[Buffer], kind: str) -> Program:
        def body(b: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
            achieved, desired = (nested(b[goal], shape) for goal, shape in self._shapes.items())
            info = Told(by_name(self._widths, b.get("info", [])), self._reads)
            return {buffers[-1].name: [self._contract.of_goals(self._function, achieved, desired, info)]}

        return record(name, buffers, body, kind)

    def __call__(self, achieved_goal: Any, desired_goal: Any, info: Any = None) -> Any:
        """Return rewards or flags (...) for goals (..., *shape), as `TorchVectorEnv.compute_reward` describes it."""
        given = [self._tensor(x) for x in (achieved_goal, desired_goal)]
        if torch.is_grad_enabled() and any(x.requires_grad for x in given):
            raise ValueError(f"{self._function} has no gradients: detach the goals")
        leads = [_lead(name, x, shape) for x, (name, shape) in zip(given, self._shapes.items(), strict=True)]
        lead, n = leads[0], leads[0].numel()
        if leads[1] != lead:
            raise ValueError(f"there are {tuple(lead)} achieved goals, and {tuple(leads[1])} desired ones")
        rows = [x.reshape(n, math.prod(shape)) for x, shape in zip(given, self._shapes.values(), strict=True)]
        if self._widths:
            rows.append(self._info(info, lead))
        found = self._kernel()(rows)[0].reshape(lead) if n else rows[0].new_empty(lead)
        if self._function != COMPUTE_REWARD:
            found = found > 0.5
        return found if isinstance(achieved_goal, torch.Tensor) else found.cpu().numpy()[()]

    def _kernel(self) -> Pure:
        if self._run is None:
            assert self._make is not None
            self._run, self._make = Pure(self._make(), self._takes), None
        return self._run

    def _info(self, info: Any, lead: torch.Size) -> torch.Tensor:
        """Return the entries of info as rows; those that the task's function does not read are 0."""
        n, columns = lead.numel(), []
        for name, width in self._widths.items():
            size = max(1, width)
            if name in self._reads:
                x, what = self._tensor(self._entry(info, name)), f"info[{name!r}]"
                if (found := _lead(what, x, (width,) if width else ())) != lead:
                    raise ValueError(f"{what} is for {tuple(found)} goals, and there are {tuple(lead)}")
            else:
                x = torch.zeros(n, size, dtype=self._dtype, device=self._device)
            columns.append(x.reshape(n, size))
        return torch.cat(columns, 1)

    def _entry(self, info: Any, name: str) -> Any:
        """Return an entry of info: a dict, or dicts in a list or an array. Raises KeyError if it is not there."""
        info = [{}] if info is None else info
        try:
            return info[name] if isinstance(info, Mapping) else [told[name] for told in info]
        except KeyError:
            text = f"{self._function} reads info[{name!r}], which is not in the info that it was given"
            raise KeyError(text) from None

    def _tensor(self, x: Any) -> torch.Tensor:
        if isinstance(x, torch.Tensor):
            if x.device != self._device:
                raise ValueError(f"goals and info must be on {self._device}, not on {x.device}")
            return x.to(self._dtype)
        return torch.tensor(np.asarray(x), dtype=self._dtype, device=self._device)


class Told(Mapping[str, Any]):
    """Entries of info by name, which notes those that are read."""

    def __init__(self, entries: Mapping[str, Any], read: set[str]):
        self._entries, self._read = entries, read

    def __getitem__(self, name: str) -> Any:
        x = self._entries[name]
        self._read.add(name)
        return x

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


def functions_of_goals(
    contract: Contract, layout: BufferLayout, dtype: torch.dtype, device: torch.device
) -> dict[str, GoalFunction]:
    """Return the functions of OF_GOALS that a task has, by name; none if it does not observe both goals.

    It warns if the task has such functions, and seems to observe goals, but not by their names.
    """
    there = [name for name in OF_GOALS if hasattr(contract.task, name)]
    if there and not shapes_of_goals(layout):
        _warn_of_misspelt(type(contract.task).__name__, there[0], layout)
        return {}
    return {name: GoalFunction(name, contract, layout, dtype, device) for name in there}


def shapes_of_goals(layout: BufferLayout) -> dict[str, Shape]:
    """Return the shapes of both goals in a task's observation; empty if they are not there."""
    entries = {entry.path[-1]: entry.shape for entry in layout.observation.entries if entry.path}
    return {name: entries[name] for name in GOALS} if entries.keys() >= {*GOALS} else {}


def _warn_of_misspelt(task: str, function: str, layout: BufferLayout) -> None:
    seen = [entry.path[-1] for entry in layout.observation.entries if entry.path]
    missing = [name for name in GOALS if name not in seen]
    near = {name: get_close_matches(name, [x for x in seen if x not in GOALS], 1, 0.8) for name in missing}
    if len(missing) == len(GOALS) and not any(near.values()):
        return  # a function for the task's own use
    meant = "".join(f"; by {found[0]!r}, did you mean {name!r}?" for name, found in near.items() if found)
    warnings.warn(
        f"{task}.{function} means nothing to an environment, since observe names no "
        f"{' and no '.join(map(repr, missing))}{meant}",
        stacklevel=2,
    )


def nested(values: Sequence[Any], shape: Shape) -> Any:
    """Return numbers in lists of this shape; of the shape () the only one."""
    if not shape:
        return values[0]
    size = len(values) // shape[0]
    return [nested(values[i * size : (i + 1) * size], shape[1:]) for i in range(shape[0])]


def _lead(name: str, x: torch.Tensor, shape: Shape) -> torch.Size:
    """Return the leading dimensions of x (..., *shape); numbers may be (..., 1), as adapters and TorchRL have them."""
    at = x.ndim - len(shape)
    if at < 0 or tuple(x.shape[at:]) != shape:
        raise ValueError(f"{name} must be of shape (..., {', '.join(map(str, shape))}), not {tuple(x.shape)}")
    with_an_axis = shape == () and x.ndim > 1 and x.shape[-1] == 1
    return x.shape[:-1] if with_an_axis else x.shape[:at]
