"""Objects whose tensors are pickled by value."""

from __future__ import annotations

from typing import Any

import torch

from .compiler.launch import mark_static_address


class ByValue:
    """An object that is pickled, and copied by `copy.deepcopy`, with arrays in place of its tensors.

    Tensors themselves would be shared with a process that multiprocessing starts by "spawn" or "forkserver": what it
    writes into them would change here, too.
    """

    def __getstate__(self) -> dict[str, Any]:
        return {name: Held(x) if isinstance(x, torch.Tensor) else x for name, x in vars(self).items()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        # `copy.copy` hands over the state as it is, and a pickle tensors
        vars(self).update({name: x.tensor if isinstance(x, Held) else x for name, x in state.items()})


class Held:
    """A tensor that is pickled as an array, and becomes a tensor again."""

    def __init__(self, tensor: torch.Tensor):
        self.tensor = tensor

    def __reduce__(self) -> tuple[Any, ...]:
        return _tensor, (self.tensor.detach().cpu().numpy(), self.tensor.device)


def _tensor(array: Any, device: torch.device) -> torch.Tensor:
    return mark_static_address(torch.from_numpy(array).to(device))
