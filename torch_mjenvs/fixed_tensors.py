"""Tensors by name that are written into, and never replaced: parameters of worlds, memory and tables of tasks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

import torch


def fixed(views: dict[str, torch.Tensor], called: str, hint: str) -> dict[str, torch.Tensor]:
    """Return the same tensors, none of which can be replaced. Code that torch compiles gets the plain dict, to trace
    it. hint: what to do where a name is missing.
    """
    return views if torch.compiler.is_compiling() else FixedTensors(views, called, hint)


class FixedTensors(dict[str, Any]):
    """Tensors by name, at fixed addresses. They may be written into. Replacing one raises an error, since kernels would
    not see the new tensor.
    """

    def __init__(self, views: Mapping[str, Any], called: str, hint: str):
        super().__init__(views)
        self._called, self._hint = called, hint

    def __missing__(self, name: str) -> NoReturn:
        raise KeyError(f"{self._called} has no {name!r}, but {', '.join(map(repr, self)) or 'nothing'}: {self._hint}")

    def __setitem__(self, name: str, x: Any) -> None:
        if x is not self.get(name):  # held[name] += 1 puts back the same tensor
            raise TypeError(
                f"{self._called}[{name!r}] = ... would change nothing: write into the tensor that is there, by "
                f"{self._called}[{name!r}].copy_(...), or [...][:] = ..."
            )

    def update(self, *args: Any, **named: Any) -> None:
        for name, x in dict(*args, **named).items():
            self[name] = x

    def __ior__(self, others: Any) -> FixedTensors:  # type: ignore[override, misc]
        self.update(others)
        return self
