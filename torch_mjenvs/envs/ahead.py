"""Computes the beginnings of episodes in advance, for many worlds at a time."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from ..compiler import launch

AT_ONCE = launch.PADDING  # worlds of one launch: whole vectors, in which every world needs the result
EVERY = 16  # steps between two searches for worlds that need a new beginning


class Ahead:
    """Computes how the worlds' next episodes begin, and stores it in the buffers `next_start` and `next_episode`.

    What a reset computes depends only on seed, world and episode number, so it may be computed at any time. A step's
    kernel uses the stored beginning if there is one; otherwise it computes it, while the other worlds of the vector
    wait. So computing ahead changes no result, and does no harm if it comes late.
    """

    def __init__(self, kernel: launch.Kernel, buffers: Mapping[str, torch.Tensor], num_envs: int):
        """Allocate tensors for the worlds of one launch. `buffers` are those of an engine of `num_envs` worlds."""
        self._worlds = {b.name: buffers[b.name][:, :num_envs] for b in kernel.buffers}
        self._some = {b.name: kernel.allocate(b, AT_ONCE) for b in kernel.buffers}
        self._compute, self._steps = kernel.bind(self._some), 0

    def after_step(self) -> None:
        """Every few steps, compute ahead for the worlds that have begun an episode since, if they fill a launch."""
        self._steps += 1
        if self._steps % EVERY:
            return
        worlds = self._worlds
        begun = (worlds["next_episode"][0] != worlds["episode"][0] + 1).nonzero()[:, 0]
        for some in begun.split(AT_ONCE):
            if len(some) == AT_ONCE:
                for name, x in self._some.items():
                    torch.index_select(worlds[name], 1, some, out=x)
                self._compute()
                for name in ("next_start", "next_episode"):
                    worlds[name].index_copy_(1, some, self._some[name])
