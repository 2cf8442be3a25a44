"""Scores of a policy: returns of whole episodes, in the Torch task and in Gymnasium's own."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from gymnasium.vector import VectorEnv
from torch import Tensor

from ..envs.episode_log import BAD_STATE
from .worlds import make, make_original, original

Act = Callable[[Tensor], Tensor]  # observations (N, O) to actions (N, A)


@dataclass(frozen=True)
class Score:
    """The returns (episodes,) of a policy, and the number of episodes that ended with a bad state or action.

    Gymnasium's own tasks do not tell of bad states: there the count is 0.
    """

    returns: Tensor
    bad_states: int = 0


def scores(act: Act, env_id: str, episodes: int, device: str, seed: int) -> dict[str, Score]:
    """Score a policy in the Torch task, and in Gymnasium's own where there is one; by the ids of the tasks."""
    found = {env_id: score(act, make(env_id, episodes, device), seed, device)}
    name = original(env_id)
    return found | ({name: score(act, make_original(name, episodes), seed, device)} if name else {})


def score(act: Act, env: VectorEnv, seed: int, device: str) -> Score:
    """Score a policy over the first episode in each world. Closes `env`, which may speak torch or NumPy."""
    obs, _ = env.reset(seed=seed)
    numpy = isinstance(obs, np.ndarray)
    returns, alive = torch.zeros(env.num_envs, dtype=torch.float64), torch.ones(env.num_envs, dtype=torch.bool)
    bad = torch.zeros(env.num_envs, dtype=torch.bool)
    while alive.any():
        action = act(torch.as_tensor(obs, dtype=torch.float32, device=device))
        obs, *rest, info = env.step(action.cpu().numpy() if numpy else action)
        reward, terminated, truncated = (torch.as_tensor(x).cpu() for x in rest)
        returns += torch.where(alive, reward, 0)
        if BAD_STATE in info:
            bad |= alive & info[BAD_STATE].cpu()
        alive &= ~(terminated | truncated)
    env.close()
    return Score(returns, int(bad.sum()))


def interval(returns: Tensor) -> float:
    """Return half the width of the mean's 95 % confidence interval; NaN for a single episode."""
    return float(1.96 * returns.std() / math.sqrt(len(returns))) if len(returns) > 1 else math.nan


def show(found: Mapping[str, Score]) -> None:
    """Print the scores, a line for each task."""
    for name, one in found.items():
        returns, bad = one.returns, one.bad_states
        spread, many = f" ± {interval(returns):.0f}", f"{len(returns)} episodes"
        spread, many = (spread, many) if len(returns) > 1 else ("", "1 episode")
        ended = f", {bad} of them ended by a bad state" if bad else ""
        print(f"score in {name}: {returns.mean():.0f}{spread} ({many}, mean action{ended})")
