"""Computes the beginnings of episodes in advance, for many worlds at a time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

import torch

from ..compiler import launch

AT_ONCE = launch.PADDING  # worlds of one launch on a CPU: whole vectors, in which every world needs the result
EVERY = 16  # steps between two searches, on a CPU, for worlds that need a new beginning
TURNS, LONGEST_WAIT = 7, 64  # on a GPU: launches until each world has had its turn, steps between two launches at most


class Ahead(ABC):
    """Computes how the worlds' next episodes begin, and stores it in the buffers `next_start` and `next_episode`.

    What a reset computes depends only on seed, world and episode number, so it may be computed at any time. A step's
    kernel uses the stored beginning if there is one; otherwise it computes it, while the other worlds of the vector, or
    of the warp, wait. So computing ahead changes no result, and does no harm if it comes late.
    """

    def __init__(self, kernel: launch.Kernel, buffers: Mapping[str, torch.Tensor], num_envs: int, at_once: int):
        """Allocate tensors for the worlds of one launch. `buffers` are those of an engine of `num_envs` worlds."""
        self.worlds = {b.name: buffers[b.name][:, :num_envs] for b in kernel.buffers}
        self._some = {b.name: kernel.allocate(b, at_once) for b in kernel.buffers}
        self._compute = kernel.bind(self._some)

    @abstractmethod
    def after(self, steps: int) -> None:
        """Compute ahead what is due after so many further steps."""

    @abstractmethod
    def at_the_end_of_a_graph(self, steps: int) -> None:
        """While a CUDA graph of so many steps is captured, have each replay compute ahead what is due after it."""

    def compute(self, some: torch.Tensor) -> None:
        """Compute ahead for these worlds, as many as a launch is for."""
        for name, x in self._some.items():
            torch.index_select(self.worlds[name], 1, some, out=x)
        self._compute()
        for name in ("next_start", "next_episode"):
            self.worlds[name].index_copy_(1, some, self._some[name])


class AheadOnCpu(Ahead):
    """Every few steps, computes ahead for the worlds that have begun an episode since, if they fill a vector."""

    def __init__(self, kernel: launch.Kernel, buffers: Mapping[str, torch.Tensor], num_envs: int):
        super().__init__(kernel, buffers, num_envs, AT_ONCE)
        self._steps = 0

    def after(self, steps: int) -> None:
        due, self._steps = divmod(self._steps + steps, EVERY)
        if due:
            worlds = self.worlds
            begun = (worlds["next_episode"][0] != worlds["episode"][0] + 1).nonzero()[:, 0]
            for some in begun.split(AT_ONCE):
                if len(some) == AT_ONCE:
                    self.compute(some)

    def at_the_end_of_a_graph(self, steps: int) -> None:
        raise AssertionError("there are no graphs on a CPU")


class AheadOnGpu(Ahead):
    """Every few steps, computes ahead for the next worlds in turn, whether they need it or not: to find those that do,
    the host would have to wait for the GPU.

    Each world has its turn twice or more in an episode of full length. That is more than it needs, but a launch for a
    seventh of the worlds takes no longer than one reset, for which nearly every step would otherwise wait.
    """

    def __init__(
        self, kernel: launch.Kernel, buffers: Mapping[str, torch.Tensor], num_envs: int, max_episode_steps: int | None
    ):
        at_once = launch.padded(-(-num_envs // TURNS))
        super().__init__(kernel, buffers, num_envs, at_once)
        self._num_envs, self._steps = num_envs, 0
        self._wait = LONGEST_WAIT
        if max_episode_steps is not None:
            self._wait = max(1, min(LONGEST_WAIT, max_episode_steps // (2 * TURNS)))
        self._next = torch.arange(at_once, device=kernel.device)

    def after(self, steps: int) -> None:
        if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
            return
        due, self._steps = divmod(self._steps + steps, self._wait)
        self._take_turns(due)

    def at_the_end_of_a_graph(self, steps: int) -> None:
        self._take_turns(max(1, steps // self._wait))

    def _take_turns(self, turns: int) -> None:
        for _ in range(turns):
            some = self._next % self._num_envs
            self.compute(some)
            self._next.copy_(some + len(some))
