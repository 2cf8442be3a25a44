"""How far Gymnasium's stock Humanoid, whose PGS solver stops early, is from the same problem solved to convergence.

python benchmarks/humanoid_pgs.py > docs/humanoid_pgs.md
"""

from __future__ import annotations

import gymnasium
import numpy as np
import torch
from scipy.stats import bootstrap, ks_2samp

from torch_mjenvs import TorchVectorEnv

STATES, EPISODES = 2000, 2000


def one_step() -> np.ndarray:
    """Largest |difference| of qvel after one environment step (float64), from states along random rollouts."""
    stock = gymnasium.make("Humanoid-v5", terminate_when_unhealthy=False).unwrapped
    rng = np.random.default_rng(0)
    qpos, qvel, actions, after = [], [], [], []
    for step in range(STATES):
        if step % 100 == 0:
            stock.reset(seed=step)
        action = rng.uniform(-0.4, 0.4, 17)
        qpos.append(stock.data.qpos.copy())
        qvel.append(stock.data.qvel.copy())
        stock.step(action)
        actions.append(action)
        after.append(stock.data.qvel.copy())
    ours = TorchVectorEnv("Humanoid", STATES, dtype=torch.float64, autoreset_mode="Disabled", device="cpu")
    ours.reset(seed=0)
    ours.set_state(torch.tensor(np.array(qpos)), torch.tensor(np.array(qvel)))
    ours.step(torch.tensor(np.array(actions)))
    return np.abs(ours.qvel.numpy() - np.array(after)).max(1)


def our_episodes() -> tuple[np.ndarray, np.ndarray]:
    n = EPISODES
    env = TorchVectorEnv("Humanoid", n, dtype=torch.float64, autoreset_mode="SameStep", device="cpu")
    env.reset(seed=1)
    generator = torch.Generator().manual_seed(2)
    returns, lengths, alive = torch.zeros(n, dtype=torch.float64), torch.zeros(n), torch.ones(n, dtype=torch.bool)
    while alive.any():
        _, reward, terminated, truncated, _ = env.step(torch.rand(n, 17, generator=generator) * 0.8 - 0.4)
        returns += torch.where(alive, reward, 0.0)
        lengths += alive
        alive &= ~(terminated | truncated)
    return returns.numpy(), lengths.numpy()


def stock_episodes() -> tuple[np.ndarray, np.ndarray]:
    env = gymnasium.make("Humanoid-v5")
    env.action_space.seed(3)
    returns, lengths = np.zeros(EPISODES), np.zeros(EPISODES)
    for k in range(EPISODES):
        env.reset(seed=k)
        over = False
        while not over:
            _, reward, terminated, truncated, _ = env.step(env.action_space.sample())
            returns[k] += reward
            lengths[k] += 1
            over = terminated or truncated
    return returns, lengths


def interval(x: np.ndarray) -> str:
    low, high = bootstrap((x,), np.mean, n_resamples=2000, rng=0).confidence_interval
    return f"{x.mean():.2f} [{low:.2f}, {high:.2f}]"


def main() -> None:
    d = one_step()
    (returns, lengths), (stock_returns, stock_lengths) = our_episodes(), stock_episodes()
    print(f"""# Humanoid: converged here, PGS there

Written by `python benchmarks/humanoid_pgs.py`. Gymnasium's `humanoid.xml` asks for MuJoCo's PGS solver with at most 50
iterations. Both solve the same convex problem; PGS stops before its solution, and here it is reached.

**One environment step**, float64, {STATES:,} states along random rollouts that go on after a fall: the largest
difference in qvel is {np.median(d):.1e} in the median, {np.quantile(d, 0.99):.1e} at the 99th percentile, {d.max():.1e}
at the worst.

**Episodes**, uniform random actions, {EPISODES:,} in each, mean and its 95% interval; p of the Kolmogorov-Smirnov test
that the distributions are one:

| | here | Gymnasium's Humanoid-v5 | p |
|---|--:|--:|--:|
| return | {interval(returns)} | {interval(stock_returns)} | {ks_2samp(returns, stock_returns).pvalue:.2f} |
| length | {interval(lengths)} | {interval(stock_lengths)} | {ks_2samp(lengths, stock_lengths).pvalue:.2f} |""")


if __name__ == "__main__":
    main()
