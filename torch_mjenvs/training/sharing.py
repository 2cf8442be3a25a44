"""Divides a run among processes by torch.distributed: each steps some of the worlds, and all learn the same networks.

    torchrun --nproc-per-node 2 -m torch_mjenvs train --env TorchHalfCheetah-v0

Every process draws the same random numbers for all worlds and frames, and takes its own share of them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor

PATIENCE = timedelta(hours=1)  # for the first process, which evaluates and writes, while the others wait


@dataclass(frozen=True)
class Share:
    """The share of a process in a run: it is number `rank` of `ranks`. If it is alone, nothing is exchanged."""

    rank: int = 0
    ranks: int = 1

    @property
    def first(self) -> bool:
        """Whether this is the process that writes, evaluates and reports."""
        return self.rank == 0

    def of(self, count: int) -> slice:
        """Return this process's part of this many things, about as many as the others'."""
        return slice(self.rank * count // self.ranks, (self.rank + 1) * count // self.ranks)

    def mine(self, x: Tensor) -> Tensor:
        """Return this process's part of rows that all have."""
        return x if self.ranks == 1 else x[self.of(len(x))]

    def gathered(self, x: Tensor, dim: int = 0) -> Tensor:
        """Return the tensors of all processes, of one shape, concatenated along `dim`."""
        if self.ranks == 1:
            return x
        given = x.contiguous().view(torch.uint8) if x.dtype == torch.bool else x.contiguous()
        parts = [torch.empty_like(given) for _ in range(self.ranks)]
        torch.distributed.all_gather(parts, given)
        return torch.cat(parts, dim).view(x.dtype)

    def add(self, *tensors: Tensor) -> None:
        """Replace each of these tensors, which are contiguous, by its sum over all processes."""
        if self.ranks > 1:
            for x in tensors:
                torch.distributed.all_reduce(x)

    def broadcast(self, x: Any) -> Any:
        """Return the first process's value to all processes."""
        if self.ranks == 1:
            return x
        found = [x]
        torch.distributed.broadcast_object_list(found)
        return found[0]

    def told(self, x: Any) -> list[Any]:
        """Return the values of all processes, in their order."""
        if self.ranks == 1:
            return [x]
        found: list[Any] = [None] * self.ranks
        torch.distributed.all_gather_object(found, x)
        return found

    def whole(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the state of all worlds, (N, ...) each, from those of each process."""
        return {name: self.gathered(x) for name, x in state.items()}

    def part(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the state of this process's worlds, from that of all."""
        return {name: self.mine(x) for name, x in state.items()}


ALONE = Share()


def local(device: str) -> str:
    """Return the device of this process among those of its machine: cuda is cuda:1 for the machine's second process."""
    return f"cuda:{os.environ['LOCAL_RANK']}" if device == "cuda" and "LOCAL_RANK" in os.environ else device


@contextmanager
def joined(device: str) -> Iterator[Share]:
    """Join the processes that `torchrun` has started, until the block ends; without it, the share is everything."""
    ranks = int(os.environ.get("WORLD_SIZE", 1))
    if ranks == 1:
        yield ALONE
        return
    cuda = torch.device(device).type == "cuda"
    if cuda:
        torch.cuda.set_device(device)
    # By device: tensors of a GPU go by NCCL, and objects, which are in memory, by gloo.
    torch.distributed.init_process_group("cpu:gloo,cuda:nccl" if cuda else "gloo", timeout=PATIENCE)
    try:
        yield Share(torch.distributed.get_rank(), ranks)
    finally:
        torch.distributed.destroy_process_group()
