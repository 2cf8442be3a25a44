"""What every algorithm needs: the episodes of its worlds, the state of random numbers, and the time.

Shapes: N worlds, T steps of a rollout.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ..envs.vector_env import TorchVectorEnv
from .sharing import ALONE, Share

LAST = 100  # episodes, of which runs plot means


class Episodes:
    """The returns of the worlds' episodes so far (N,), and data of the latest ones that ended."""

    def __init__(self, env: TorchVectorEnv, share: Share = ALONE):
        """Begin with episodes of random ages, in worlds that were just reset; these are this process's share of all.

        Otherwise all worlds would reset together every 1,000 steps, and the data would come in waves. The returns of
        these first episodes are partial; NaN keeps them out of the statistics.
        """
        N, limit = env.num_envs, env.engine.max_episode_steps
        if limit is not None:
            env.elapsed_steps.copy_(share.mine(torch.randint(limit, (N * share.ranks,))))
        self.share = share
        self.returns = torch.full((N,), torch.nan, device=env.device)
        self.finished: deque[float] = deque(maxlen=LAST)  # returns
        self.named = env.engine.layout.logged  # what the task has logged of an episode
        self.told: deque[list[float]] = deque(maxlen=LAST)

    def add(self, rewards: Tensor, done: Tensor) -> Tensor:
        """Add a rollout's rewards (T, N) to the returns; return these as they were after each step (T, N)."""
        found = torch.empty_like(rewards)
        for t in range(len(rewards)):
            found[t] = self.returns.add_(rewards[t])
            self.returns.masked_fill_(done[t], 0)
        return found

    def record(self, returns: Tensor, done: Tensor, data: Mapping[str, Tensor]) -> None:
        """Record the episodes that ended in a rollout, from the returns after each step and the rollout's named
        entries.
        """
        returns = self.share.gathered(returns, 1)
        whole = self.share.gathered(done, 1) & ~returns.isnan()
        places = whole.nonzero(as_tuple=True)  # one wait for the device; indexing by the mask waits each time
        self.finished.extend(returns[places].tolist())
        if self.named:
            named = [self.share.gathered(data[name], 1)[places] for name in self.named]
            self.told.extend(torch.stack(named, 1).tolist())

    def measures(self) -> dict[str, float]:
        """Return the means, over the last episodes, of what the task names: the sums of its reward's terms, its
        metrics, the length, and the share of episodes that each reason ended.
        """
        means = torch.tensor(list(self.told)).mean(0).tolist() if self.told else []
        return dict(zip(self.named, means, strict=False))

    def state_dict(self) -> dict[str, Any]:
        """Return entries for the state of an agent."""
        told = {"told": list(self.told)} if self.named else {}
        return {"episode_return": self.share.gathered(self.returns), "finished": list(self.finished)} | told

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from the state of an agent."""
        self.returns.copy_(self.share.mine(state["episode_return"]))
        self.finished, self.told = deque(state["finished"], LAST), deque(state.get("told", ()), LAST)


def random_state(device: torch.device) -> dict[str, Any]:
    """Return the states of torch's random numbers, entries for the state of an agent."""
    cuda = torch.cuda.get_rng_state(device) if device.type == "cuda" else None
    return {"random": torch.get_rng_state(), "cuda_random": cuda}


def set_random_state(state: Mapping[str, Any], device: torch.device) -> None:
    """Set the state of torch's random numbers to that in an agent's state."""
    torch.set_rng_state(state["random"].cpu())
    if device.type == "cuda" and state["cuda_random"] is not None:  # None: of a run on the CPU
        torch.cuda.set_rng_state(state["cuda_random"].cpu(), device)


def now(device: torch.device) -> float:
    """Return the time in seconds, once the device has finished all its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()
