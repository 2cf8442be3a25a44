"""Scores of a policy: returns of whole episodes, in the Torch task and in Gymnasium's or dm_control's own."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from gymnasium.vector import VectorEnv
from torch import Tensor

from ..envs.entries import BAD_STATE
from ..envs.episode_log import of_last_step
from ..envs.parts import leaves, mapped
from ..envs.vector_env import TorchVectorEnv
from .originals import Shared, processes_for
from .task_flags import arguments
from .worlds import make, original

Act = Callable[[Any], Tensor]  # observations, (N, O) or by name, to actions (N, A)


@dataclass(frozen=True)
class Score:
    """The returns (episodes,) of a policy, and the number of episodes that ended with a bad state or action.

    Gymnasium's and dm_control's own tasks do not tell of bad states: there the count is 0. `named` has, by name,
    (episodes,) each, what the task names: the sums of its reward's terms, metrics, the length, and 1 for the reason
    that ended the episode.
    """

    returns: Tensor
    bad_states: int = 0
    named: dict[str, Tensor] = field(default_factory=dict)


def scores(
    act: Act, env_id: str, episodes: int, device: str, seed: int, task: Mapping[str, Any] | None = None,
    meanwhile: Callable[[], None] = lambda: None,
) -> dict[str, Score]:
    """Score a policy in the Torch task, and in the original where there is one; by the names of the tasks.

    `task` has fields of the task, as `task_flags` names them. Gymnasium's own task takes the same ones; dm_control's
    takes none, and is left out where there are any. Its worlds are stepped by as many processes as there are cores,
    which does not change the scores. `meanwhile` is called while those processes start.
    """
    given = arguments(env_id, task or {})
    name = original(env_id, given)
    # First, as processes take a second to start, in which the Torch task is made and scored.
    there = Shared(name, episodes, processes_for(name, episodes), given) if name else None
    try:
        meanwhile()
        found = {env_id: score(act, make(env_id, episodes, device, **given), seed, device)}
        return found | ({name: score(act, there, seed, device)} if name and there else {})
    finally:
        if there:
            there.close()


def score(act: Act, env: VectorEnv | Shared, seed: int, device: str) -> Score:
    """Score a policy over the first episode in each world. Closes `env`, which may speak torch or NumPy."""
    obs, _ = env.reset(seed=seed)
    numpy = isinstance(leaves(obs)[0], np.ndarray)
    returns, alive = torch.zeros(env.num_envs, dtype=torch.float64), torch.ones(env.num_envs, dtype=torch.bool)
    bad = torch.zeros(env.num_envs, dtype=torch.bool)
    inside = env.unwrapped if isinstance(env, VectorEnv) else None
    engine = inside.engine if isinstance(inside, TorchVectorEnv) else None
    named = {name: torch.zeros_like(returns) for name in engine.layout.logged} if engine else {}
    while alive.any():
        action = act(mapped(lambda x: torch.as_tensor(x, dtype=torch.float32, device=device), obs))
        obs, *rest, info = env.step(action.cpu().numpy() if numpy else action)
        reward, terminated, truncated = (torch.as_tensor(x).cpu() for x in rest)
        returns += torch.where(alive, reward, 0)
        if BAD_STATE in info:
            bad |= alive & info[BAD_STATE].cpu()
        ended = terminated | truncated
        if engine and named:
            last = of_last_step(engine)
            named = {name: torch.where(alive & ended, last[name].cpu(), x) for name, x in named.items()}
        alive &= ~ended
    env.close()
    return Score(returns, int(bad.sum()), named)


def interval(returns: Tensor) -> float:
    """Return half the width of the mean's 95 % confidence interval; NaN for a single episode."""
    return float(1.96 * returns.std() / math.sqrt(len(returns))) if len(returns) > 1 else math.nan


def show(found: Mapping[str, Score]) -> None:
    """Print the scores, a line for each task, and below it the means of what the task names."""
    for name, one in found.items():
        returns, bad = one.returns, one.bad_states
        spread, many = f" ± {interval(returns):.0f}", f"{len(returns)} episodes"
        spread, many = (spread, many) if len(returns) > 1 else ("", "1 episode")
        ended = f", {bad} of them ended by a bad state" if bad else ""
        print(f"score in {name}: {returns.mean():.0f}{spread} ({many}, mean action{ended})")
        for entry, x in one.named.items():
            print(f"  {entry}: {x.mean():.4g}")
