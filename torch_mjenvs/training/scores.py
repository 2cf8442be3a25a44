"""What a policy is worth: returns of whole episodes, in the Torch task and in Gymnasium's own."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
import torch
from gymnasium.vector import VectorEnv
from torch import Tensor

from .worlds import make, make_original, original

Act = Callable[[Tensor], Tensor]  # observations (N, O) to actions (N, A)


def scores(act: Act, env_id: str, episodes: int, device: str, seed: int) -> dict[str, Tensor]:
    """The returns (episodes,) of a policy in the Torch task, and in Gymnasium's own where there is one."""
    found = {env_id: score(act, make(env_id, episodes, device), seed, device)}
    name = original(env_id)
    return found | ({name: score(act, make_original(name, episodes), seed, device)} if name else {})


def score(act: Act, env: VectorEnv, seed: int, device: str) -> Tensor:
    """The return of the first episode in each world (N,). Closes `env`, which may speak torch or NumPy."""
    obs, _ = env.reset(seed=seed)
    numpy = isinstance(obs, np.ndarray)
    returns, alive = torch.zeros(env.num_envs, dtype=torch.float64), torch.ones(env.num_envs, dtype=torch.bool)
    while alive.any():
        action = act(torch.as_tensor(obs, dtype=torch.float32, device=device))
        obs, *rest, _ = env.step(action.cpu().numpy() if numpy else action)
        reward, terminated, truncated = (torch.as_tensor(x).cpu() for x in rest)
        returns += torch.where(alive, reward, 0)
        alive &= ~(terminated | truncated)
    env.close()
    return returns


def interval(returns: Tensor) -> float:
    """Half the width of the mean's 95 % confidence interval; NaN for a single episode."""
    return float(1.96 * returns.std() / math.sqrt(len(returns))) if len(returns) > 1 else math.nan


def show(found: Mapping[str, Tensor]) -> None:
    """Print `scores`."""
    for name, returns in found.items():
        spread, many = f" ± {interval(returns):.0f}", f"{len(returns)} episodes"
        spread, many = (spread, many) if len(returns) > 1 else ("", "1 episode")
        print(f"score in {name}: {returns.mean():.0f}{spread} ({many}, mean action)")
