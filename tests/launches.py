"""Counts what torch launches."""

from __future__ import annotations

from torch.utils._python_dispatch import TorchDispatchMode


class Launches(TorchDispatchMode):
    """Operations of torch that on a GPU launch something: all but those that make views or take memory."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        if not func.is_view and not name.startswith("empty"):
            self.names.append(name)
        return func(*args, **(kwargs or {}))
