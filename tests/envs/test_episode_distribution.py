"""Whole episodes: returns and lengths under random actions, beside Gymnasium's stock environments, solvers as they are.

Trajectories part after some dozens of steps, whatever the precision; distributions must not.
"""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
import torch
from scipy.stats import ks_2samp
from tasks import our_env

EPISODES = {"HalfCheetah": 60, "Walker2d": 400, "Hopper": 400, "Ant": 100, "Humanoid": 300}


def ours(name: str, n: int, dtype: torch.dtype = torch.float32) -> tuple[np.ndarray, np.ndarray]:
    """Return and length of the first episode of each of n worlds."""
    env = our_env(name, n, dtype)  # of the kernel that test_gymnasium_parity.py compares
    limit = gymnasium.spec(f"Torch{name}-v0").max_episode_steps
    env.reset(seed=1)
    generator = torch.Generator().manual_seed(2)
    low, high = torch.tensor(env.single_action_space.low), torch.tensor(env.single_action_space.high)
    returns, lengths, alive = torch.zeros(n, dtype=torch.float64), torch.zeros(n), torch.ones(n, dtype=torch.bool)
    while alive.any():
        action = low + (high - low) * torch.rand(n, len(low), generator=generator, device="cpu").to(env.device)
        _, reward, terminated, _, _ = env.step(action)
        returns += torch.where(alive, reward.double(), 0.0)
        lengths += alive
        alive &= ~terminated & (lengths < limit)
    return returns.cpu().numpy(), lengths.cpu().numpy()


def theirs(name: str, n: int) -> tuple[np.ndarray, np.ndarray]:
    env = gymnasium.make(f"{name}-v5")
    env.action_space.seed(3)
    returns, lengths = [], []
    for episode in range(n):
        env.reset(seed=episode)
        total, length, over = 0.0, 0, False
        while not over:
            _, reward, terminated, truncated, _ = env.step(env.action_space.sample())
            total, length, over = total + float(reward), length + 1, terminated or truncated
        returns.append(total)
        lengths.append(length)
    return np.array(returns), np.array(lengths)


@pytest.mark.parametrize("name", EPISODES)
def test_returns_and_lengths_are_distributed_as_gymnasium_s(name):
    n = EPISODES[name]
    (returns, lengths), (real_returns, real_lengths) = ours(name, 4 * n), theirs(name, n)
    assert ks_2samp(returns, real_returns).pvalue > 1e-3
    assert ks_2samp(lengths, real_lengths).pvalue > 1e-3
    if name in ("Walker2d", "Hopper", "Humanoid"):  # and the test can tell: episodes two steps longer would not pass
        assert ks_2samp(lengths, real_lengths + 2).pvalue < 1e-3
    error = np.hypot(returns.std() / np.sqrt(4 * n), real_returns.std() / np.sqrt(n))
    assert abs(returns.mean() - real_returns.mean()) < 4 * error
    print(f"{name}: return {returns.mean():.2f} and {real_returns.mean():.2f} +- {error:.2f}, "
          f"length {lengths.mean():.1f} and {real_lengths.mean():.1f}")  # fmt: skip
