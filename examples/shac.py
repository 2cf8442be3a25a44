"""SHAC (Xu et al., 2022) on HalfCheetah: a policy learns by exact gradients through short stretches of the simulation.

    python examples/shac.py                  # SHAC and PPO, 100 s of a core each, and their curves in shac.png
    python examples/shac.py --horizons       # how far gradients through the simulation can be trusted

All worlds continue from their current states for a few steps under the policy. Their rewards, plus the critic's value
of the last state, are differentiated by the policy's parameters, through `Engine.transition`. `clip_adjoint` bounds the
adjoint that goes back from a step to the one before it, in each world.

Shapes: T steps of a stretch, N worlds, O observations, A actions.
"""

from __future__ import annotations

import argparse
import copy
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn

from torch_mjenvs import TorchVectorEnv, pretrained
from torch_mjenvs.envs.engine import Engine
from torch_mjenvs.training import ppo
from torch_mjenvs.training.worlds import make

Policy = Callable[[Tensor], Tensor]
CLIPS = 1000.0, 100.0, 10.0  # of adjoints, the derivatives of rewards by positions and velocities
WORTH = 100.0  # the unit of the critic's values, in rewards


class Scaled(nn.Module):
    """Observations less their mean, over their standard deviation, both as seen until now."""

    def __init__(self, size: int):
        super().__init__()
        self.count = 1e-4
        self.register_buffer("mean", torch.zeros(size))
        self.register_buffer("var", torch.ones(size))

    def see(self, x: Tensor) -> None:
        """Take observations (n, O) into the moments."""
        total, delta = self.count + len(x), x.mean(0) - self.mean
        spread = self.var * self.count + x.var(0, correction=0) * len(x) + delta.square() * self.count * len(x) / total
        self.mean += delta * len(x) / total
        self.var, self.count = spread / total, total

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.mean) / (self.var + 1e-4).sqrt()


def network(inputs: int, outputs: int, last: float) -> nn.Sequential:
    """Return a network of two hidden layers of 64 units, whose last weights begin at `last` times their usual size."""
    net = nn.Sequential(nn.Linear(inputs, 64), nn.ELU(), nn.Linear(64, 64), nn.ELU(), nn.Linear(64, outputs))
    with torch.no_grad():
        net[-1].weight.mul_(last)
        net[-1].bias.zero_()
    return net


class SHAC:
    """Short-horizon actor-critic."""

    def __init__(
        self, worlds: int = 256, horizon: int = 8, clip: float = 300.0, gamma: float = 0.99, lam: float = 0.95
    ):
        env = TorchVectorEnv("HalfCheetah", worlds, autoreset_mode="SameStep")
        env.reset(seed=0)
        self.engine, self.horizon, self.clip, self.gamma, self.lam = env.engine, horizon, clip, gamma, lam
        observations, actions = env.engine.layout.obs, env.engine.layout.action
        self.scaled, self.frames = Scaled(observations), 0
        self.actor, self.log_std = network(observations, actions, 0.01), nn.Parameter(torch.full((actions,), -1.0))
        self.critic = network(observations, 1, 1.0)
        self.target = copy.deepcopy(self.critic)
        self.actor_adam = torch.optim.Adam(
            [*self.actor.parameters(), self.log_std], 2e-3, betas=(0.7, 0.95), fused=True
        )
        self.critic_adam = torch.optim.Adam(self.critic.parameters(), 1e-3, betas=(0.7, 0.95), fused=True)
        self.state = env.engine.state_dict()

    def act(self, obs: Tensor) -> Tensor:
        """Return mean actions for observations."""
        return torch.tanh(self.actor(self.scaled(obs)))

    def iterate(self) -> None:
        """Go on for a stretch, and learn from it."""
        seen, rewards, dones, ends = [], [], [], []
        state = self.state
        for _ in range(self.horizon):
            x = self.scaled(state["obs"])
            seen.append(x.detach())
            mean = self.actor(x)
            action = torch.tanh(mean + self.log_std.exp() * torch.randn_like(mean))
            state = self.engine.transition(state, action, clip_adjoint=self.clip / WORTH)
            rewards.append(state["reward"])
            dones.append(state["terminated"] | state["truncated"])
            ends.append(state["final_obs"])
        done = torch.stack(dones)
        # Of the states that steps led to, before any reset.
        values = WORTH * self.target(self.scaled(torch.stack(ends)))[..., 0]
        total = values[-1]
        for t in reversed(range(self.horizon)):  # a truncated episode would have gone on
            total = rewards[t] + self.gamma * torch.where(
                done[t], values[t], total if t < self.horizon - 1 else values[t]
            )
        self.actor_adam.zero_grad()
        (-total.sum() / WORTH).backward()  # a sum: adjoints are a world's own, whatever N is
        for p in self.actor_adam.param_groups[0]["params"]:
            p.grad /= len(total)
        nn.utils.clip_grad_norm_(self.actor_adam.param_groups[0]["params"], 1.0)
        self.actor_adam.step()
        self.state = {name: x.detach() for name, x in state.items()}
        self.learn_values(torch.stack(seen), torch.stack(rewards).detach(), done, values.detach())
        self.scaled.see(torch.stack(ends).detach().flatten(0, 1))
        self.frames += self.horizon * len(total)

    def learn_values(self, x: Tensor, rewards: Tensor, done: Tensor, values: Tensor) -> None:
        """Have the critic learn TD(lambda)'s targets of a stretch, from scaled observations (T, N, O)."""
        targets, ahead = torch.empty_like(rewards), values[-1]
        for t in reversed(range(len(rewards))):
            mixed = torch.where(done[t], values[t], (1 - self.lam) * values[t] + self.lam * ahead)
            targets[t] = ahead = rewards[t] + self.gamma * mixed
        x, wanted = x.flatten(0, 1), targets.flatten() / WORTH
        for _ in range(2):
            for rows in torch.randperm(len(x)).chunk(4):
                self.critic_adam.zero_grad()
                (self.critic(x[rows])[:, 0] - wanted[rows]).square().mean().backward()
                nn.utils.clip_grad_norm_(self.critic.parameters(), 1.0)
                self.critic_adam.step()
        with torch.no_grad():
            for old, new in zip(self.target.parameters(), self.critic.parameters(), strict=True):
                old.lerp_(new, 0.8)


def trained_by_shac(seconds: float, learner: SHAC) -> Iterator[tuple[float, int, Policy]]:
    """Train for so many seconds of a core. Yields, after each iteration, the seconds, frames and policy until then."""
    learner.iterate()  # builds the kernels
    spent, rates = (
        0.0,
        [(group, group["lr"]) for adam in (learner.actor_adam, learner.critic_adam) for group in adam.param_groups],
    )
    while spent < seconds:
        for group, rate in rates:
            group["lr"] = rate * (1 - 0.9 * spent / seconds)
        begun = time.process_time()
        learner.iterate()
        spent += time.process_time() - begun
        yield spent, learner.frames, learner.act


def trained_by_ppo() -> Iterator[tuple[float, int, Policy]]:
    """Train as `python -m torch_mjenvs train` does, on one thread. Yields what `trained_by_shac` does."""
    settings = ppo.Settings(**ppo.settings("TorchHalfCheetah-v0"))
    learner = ppo.PPO(make("TorchHalfCheetah-v0", settings.num_envs, "cpu"), settings, seed=0)
    spent = 0.0
    while learner.frames_seen < settings.total_steps:
        begun = time.process_time()
        learner.iterate()
        spent += time.process_time() - begun
        yield spent, learner.frames_seen, learner.act


def score(act: Policy, episodes: int = 16) -> float:
    """Return the mean return of a policy's mean actions."""
    env = TorchVectorEnv("HalfCheetah", episodes)
    obs, _ = env.reset(seed=1)
    total = torch.zeros(episodes)
    with torch.no_grad():
        for _ in range(env.engine.max_episode_steps or 0):
            obs, reward, *_ = env.step(act(obs))
            total += reward
    return float(total.mean())


def curve(training: Iterator[tuple[float, int, Policy]], every: float = 10.0) -> list[tuple[float, int, float]]:
    """Return seconds of a core, frames and scores, at the start and then every so many seconds."""
    found: list[tuple[float, int, float]] = []
    for spent, frames, act in training:
        if not found or spent >= found[-1][0] + every:
            found.append((spent, frames, score(act)))
            print(f"{spent:6.1f} s  {frames / 1e6:6.2f} M frames  {found[-1][2]:7.0f}", flush=True)
    found.append((spent, frames, score(act)))
    print(f"{spent:6.1f} s  {frames / 1e6:6.2f} M frames  {found[-1][2]:7.0f}", flush=True)
    return found


# How far gradients can be trusted


class Agreement(NamedTuple):
    """How gradients over so many steps agree with differences, exact ones first, then those that are clipped at CLIPS.

    right: shares of right signs. same: cosines. known: the cosine of one half of the worlds' differences with the
    other's, which says how well differences themselves are known.
    """

    steps: int
    right: list[float]
    same: list[float]
    known: float


def earned(
    engine: Engine, state: dict[str, Tensor], act: Policy, noise: Tensor, shift: Tensor, clip: float | None = None
) -> Tensor:
    """Return what each world earns (N,) in as many steps as there is noise (T, N, A), if its actions are shifted."""
    total = torch.zeros(())
    for x in noise:
        state = engine.transition(state, act(state["obs"]) + x + shift, clip_adjoint=clip)
        total = total + state["reward"]
    return total


def agreement(
    worlds: int = 4096, horizons: tuple[int, ...] = (1, 2, 4, 8, 16), batches: int = 4
) -> Iterator[Agreement]:
    """Compare gradients of mean rewards of several steps by a shift of all actions (A,) with differences over 0.1.

    States are those of a trained policy's rollouts, with noise of 0.2 in actions.
    """
    env = TorchVectorEnv("HalfCheetah", worlds, autoreset_mode="SameStep", dtype="float64")
    obs, _ = env.reset(seed=0)
    engine, act, size = env.engine, pretrained("TorchHalfCheetah-v0").double(), env.engine.layout.action
    found: dict[int, list[Tensor]] = {steps: [] for steps in horizons}
    for k in range(batches):
        with torch.no_grad():
            for _ in range(50 if k == 0 else 7):  # first into the gait, then to another phase of it
                obs, *_ = env.step(act(obs) + 0.2 * torch.randn(worlds, size, dtype=obs.dtype))
        state = engine.state_dict()
        for steps in horizons:
            noise, rows = 0.2 * torch.randn(steps, worlds, size, dtype=obs.dtype), []
            with torch.no_grad():
                for axis in 0.05 * torch.eye(size, dtype=obs.dtype):
                    up, down = (earned(engine, state, act, noise, sign * axis) for sign in (1, -1))
                    rows.append((up - down) / 0.1)
            of_all = [torch.stack(rows, 1)]
            for clip in (None, *CLIPS):
                shift = torch.zeros(worlds, size, dtype=obs.dtype, requires_grad=True)
                of_all += torch.autograd.grad(earned(engine, state, act, noise, shift, clip).sum(), shift)
            found[steps].append(torch.stack([halves(x) for x in of_all]))
    for steps, measured in found.items():
        both = torch.stack(measured, 1)  # (ways, batches, 2, A)
        by_way = both.mean(2).flatten(1)
        right = [float((x.sign() == by_way[0].sign()).double().mean()) for x in by_way[1:]]
        same = [cosine(x, by_way[0]) for x in by_way[1:]]
        yield Agreement(steps, right, same, cosine(*both[0].unbind(1)))


def halves(x: Tensor) -> Tensor:
    """Return the mean over the worlds (N, A) of each half (2, A)."""
    return x.unflatten(0, (2, -1)).mean(1)


def cosine(x: Tensor, y: Tensor) -> float:
    return float(torch.cosine_similarity(x.flatten(), y.flatten(), 0))


def draw(curves: dict[str, list[tuple[float, int, float]]], path: str) -> None:
    """Draw scores over processor time."""
    from matplotlib import pyplot as plt

    figure, ax = plt.subplots(figsize=(7, 3.5))
    for name, points in curves.items():
        seconds, frames, scores = zip(*points, strict=True)
        ax.plot(seconds, scores, marker=".", label=f"{name}, {frames[-1] / 1e6:.1f} M frames")
    ax.set(xlabel="seconds of a core", ylabel="mean return of 16 episodes")
    ax.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=100.0, help="of a core, for SHAC")
    parser.add_argument("--horizons", action="store_true", help="compare gradients with differences, and train nothing")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(given.seed)
    if given.horizons:
        ways = ["exact", *(f"clipped at {clip:g}" for clip in CLIPS)]
        print("right signs, and cosine with differences\nsteps", *(f"{x:>16}" for x in ways), " differences of halves")
        for x in agreement():
            columns = [f"{right:8.0%} {same:7.3f}" for right, same in zip(x.right, x.same, strict=True)]
            print(f"{x.steps:5}", *columns, f"{x.known:22.3f}")
        return
    print("SHAC")
    found = {"SHAC": curve(trained_by_shac(given.seconds, SHAC()))}
    print("PPO")
    found["PPO"] = curve(trained_by_ppo())
    draw(found, "shac.png")


if __name__ == "__main__":
    main()
