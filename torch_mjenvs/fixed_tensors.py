"""Tensors by name that are written into, and never replaced: parameters of worlds, and memory of tasks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch


def fixed(views: dict[str, torch.Tensor], called: str) -> dict[str, torch.Tensor]:
    """The same tensors, which cannot be replaced. Code that torch compiles gets the plain dict that it can trace."""
    return views if torch.compiler.is_compiling() else FixedTensors(views, called)


class FixedTensors(dict[str, Any]):
    """Tensors by name in memory that is kept. They may be written into; to put another in place of one is refused, as
    it would change nothing.
    """

    def __init__(self, views: Mapping[str, Any], called: str):
        super().__init__(views)
        self._called = called

    def __setitem__(self, name: str, x: Any) -> None:
        if x is not self.get(name):  # as it is after held[name] += 1
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
