"""PPO in plain torch on one of the Torch tasks, scored at the end in Gymnasium's own.

    python examples/ppo.py --env TorchHalfCheetah-v0

Simulation is cheap here, so the learner decides how long training takes. It is therefore written for speed, within
reason: both networks run as one batched product, their gradient is written by hand, and buffers are allocated once.

Shapes: N worlds, T steps of a rollout, B = N T frames, O observations, A actions, H hidden units.
"""

from __future__ import annotations

import argparse
import itertools
import math
import sys
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path

import gymnasium
import matplotlib
import mujoco
import numpy as np
import torch
from gymnasium.vector import AutoresetMode, VectorEnv
from torch import Tensor
from tqdm import tqdm

import torch_mjenvs  # noqa: F401  (registers the Torch tasks)

matplotlib.use("Agg")
from matplotlib import pyplot


@dataclass(frozen=True)
class Settings:
    horizon: int = 32  # steps per world and iteration
    epochs: int = 4
    minibatch: int = 2048
    learning_rate: float = 1e-3  # falls linearly to a tenth
    gamma: float = 0.99
    lam: float = 0.95
    clip: float = 0.2
    value_weight: float = 0.5
    max_grad_norm: float = 1.0
    log_std: float = -1.0  # at the start; matters: -0.5 finds a slow gait on some seeds, 0 and -1.5 on all four tried
    hidden: int = 64


TASKS = {
    "TorchHalfCheetah-v0": Settings(),
    "TorchWalker2d-v0": Settings(horizon=64),
    "TorchHopper-v0": Settings(horizon=64),
}


def orthogonal(rows: int, columns: int, gain: float) -> Tensor:
    return torch.nn.init.orthogonal_(torch.empty(rows, columns), gain)


class ActorCritic:
    """Two separate tanh networks, run side by side: 0 gives the mean action, 1 (its first output) the value.

    All parameters are views of one vector, `theta`, and their gradients of `theta.grad`: clipping and Adam are then
    one operation each. Results of `forward` are valid until the next call.
    """

    def __init__(self, obs_dim: int, act_dim: int, settings: Settings, device: str):
        sizes = (obs_dim, settings.hidden, settings.hidden, act_dim)
        shapes = [(2, *shape) for i, o in itertools.pairwise(sizes) for shape in ((o, i), (1, o))]
        self.theta = torch.zeros(sum(map(math.prod, shapes)) + act_dim, device=device)
        self.theta.grad = torch.zeros_like(self.theta)
        *params, self.log_std = self._views(self.theta, [*shapes, (act_dim,)])
        *grads, self.log_std_grad = self._views(self.theta.grad, [*shapes, (act_dim,)])
        self.weights, self.biases = params[0::2], params[1::2]  # (2, out, in) and (2, 1, out) per layer
        self.weight_grads, self.bias_grads = grads[0::2], grads[1::2]
        self.buffers: dict[str, Tensor] = {}

        for net in itertools.chain(*self.weights[:-1]):
            net.copy_(orthogonal(*net.shape, math.sqrt(2)))
        policy, value = self.weights[-1]
        policy.copy_(orthogonal(*policy.shape, 0.01))
        value[:1].copy_(orthogonal(1, value.shape[1], 1.0))  # its other rows stay zero: they get no gradient
        self.log_std.fill_(settings.log_std)

    @staticmethod
    def _views(flat: Tensor, shapes: list[tuple[int, ...]]) -> list[Tensor]:
        parts = flat.split([math.prod(shape) for shape in shapes])
        return [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]

    def _buffer(self, name: str, *shape: int) -> Tensor:
        """Scratch memory that is kept: fresh megabytes cost more in page faults than the arithmetic done on them."""
        size = math.prod(shape)
        if name not in self.buffers or self.buffers[name].numel() < size:
            self.buffers[name] = torch.empty(size, device=self.theta.device)
        return self.buffers[name][:size].view(shape)

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Mean actions (B, A) and values (B,) for normalised observations (B, O)."""
        self.inputs = [obs.expand(2, -1, -1)]  # of each layer, for backward
        for layer, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            out = self._buffer(f"forward {layer}", 2, len(obs), weight.shape[1])
            torch.baddbmm(bias, self.inputs[-1], weight.mT, out=out)
            if layer < len(self.weights) - 1:
                out.mul_(2).sigmoid_().mul_(2).sub_(1)  # tanh; torch's own is ten times slower on the CPU
                self.inputs.append(out)
        return out[0], out[1, :, 0]

    def backward(self, mean_grad: Tensor, value_grad: Tensor) -> None:
        """Overwrites the gradient of every weight and bias, given the loss's with respect to `forward`'s results."""
        grad = self._buffer("backward", 2, *mean_grad.shape).zero_()
        grad[0], grad[1, :, 0] = mean_grad, value_grad
        for layer in reversed(range(len(self.weights))):
            hidden = self.inputs[layer]
            torch.bmm(grad.mT, hidden, out=self.weight_grads[layer])
            torch.sum(grad, 1, keepdim=True, out=self.bias_grads[layer])
            if layer > 0:
                below = self._buffer(f"backward {layer}", *hidden.shape)
                torch.bmm(grad, self.weights[layer], out=below)
                grad = torch.ops.aten.tanh_backward.grad_input(below, hidden, grad_input=below)


class RunningMoments:
    """Mean and variance of everything seen so far, per column."""

    def __init__(self, *shape: int, device: str):
        self.mean, self.var = torch.zeros(shape, device=device), torch.ones(shape, device=device)
        self.count = 0

    def update(self, rows: Tensor) -> None:
        var, mean = torch.var_mean(rows, dim=0, correction=0)
        share = len(rows) / (self.count + len(rows))
        delta = mean - self.mean
        self.var += share * (var - self.var) + share * (1 - share) * delta.square()
        self.mean += share * delta
        self.count += len(rows)
        if self.count == len(rows):  # nothing was seen before: forget the initial guess
            self.mean, self.var = mean, var

    def normalise(self, x: Tensor) -> Tensor:
        return ((x - self.mean) * (self.var + 1e-8).rsqrt()).clamp_(-10, 10)


class PPO:
    def __init__(self, env: VectorEnv, settings: Settings, device: str, seed: int):
        self.env, self.settings = env, settings
        T, N = settings.horizon, env.num_envs
        (O,), (A,) = env.single_observation_space.shape, env.single_action_space.shape
        self.net = ActorCritic(O, A, settings, device)
        self.optimizer = torch.optim.Adam([self.net.theta], lr=settings.learning_rate, eps=1e-5, fused=True)
        self.obs_moments = RunningMoments(O, device=device)
        self.return_moments = RunningMoments(device=device)

        self.obs = torch.empty(T, N, O, device=device)  # as the environment gave them
        self.noise = torch.empty(T, N, A, device=device)  # of the action, in standard deviations
        self.rewards, self.done, self.discounted = (torch.empty(T, N, device=device) for _ in range(3))
        self.values = torch.empty(T + 1, N, device=device)
        self.columns = [O, A, 1, 1, 1]  # observation, action, log-probability, advantage, value target
        self.frames, self.shuffled = (torch.empty(T * N, sum(self.columns), device=device) for _ in range(2))

        self.last_obs, _ = env.reset(seed=seed)
        # Worlds that reset together would keep doing so, every 1,000 steps, and the data would come in waves. So first
        # episodes start at random ages; their returns are partial, and NaN keeps them out of the statistics.
        limit = env.spec.max_episode_steps
        env.unwrapped.elapsed_steps.copy_(torch.randint(limit, (N,)))
        self.episode_return = torch.full((N,), torch.nan, device=device)
        self.discounted_return = torch.zeros(N, device=device)
        self.finished: deque[float] = deque(maxlen=100)

    def rollout(self) -> None:
        """Acts for T steps, then fills `frames` with what the update needs."""
        s, net, final = self.settings, self.net, []
        actions = torch.empty_like(self.noise)
        std = net.log_std.exp()
        for t in range(s.horizon):
            self.obs[t] = self.last_obs
            mean, self.values[t] = net.forward(self.obs_moments.normalise(self.obs[t]))
            torch.addcmul(mean, self.noise[t].normal_(), std, out=actions[t])
            self.last_obs, reward, terminated, truncated, info = self.env.step(actions[t])
            done = terminated | truncated
            self.rewards[t], self.done[t] = reward, done
            self.episode_return += reward
            self.discounted_return.mul_(s.gamma).add_(reward)
            self.discounted[t] = self.discounted_return
            if done.any():
                cut = truncated & ~terminated
                final.append((t, cut.nonzero()[:, 0], info["final_obs"][cut]))
                returns = self.episode_return[done]
                self.finished.extend(returns[~returns.isnan()].tolist())
                self.episode_return[done] = self.discounted_return[done] = 0

        self.return_moments.update(self.discounted.flatten())
        self.rewards *= (self.return_moments.var + 1e-8).rsqrt()
        self.values[-1] = net.forward(self.obs_moments.normalise(self.last_obs))[1]
        for t, worlds, obs in final:  # a truncated episode would have gone on: what it was still worth counts
            self.rewards[t, worlds] += s.gamma * net.forward(self.obs_moments.normalise(obs))[1]

        advantages, advantage = torch.empty_like(self.rewards), 0.0
        going_on = s.gamma * (1 - self.done)
        for t in reversed(range(s.horizon)):
            delta = self.rewards[t] + going_on[t] * self.values[t + 1] - self.values[t]
            advantages[t] = advantage = delta + s.lam * going_on[t] * advantage

        # Constants are left out of log-probabilities, as they cancel in ratios.
        log_prob = -0.5 * self.noise.square().sum(2) - net.log_std.sum()
        parts = (self.obs_moments.normalise(self.obs), actions, log_prob, advantages, advantages + self.values[:-1])
        torch.cat([part.view(len(self.frames), -1) for part in parts], 1, out=self.frames)
        self.obs_moments.update(self.obs.flatten(0, 1))  # from here on

    def update(self) -> None:
        for _ in range(self.settings.epochs):
            order = torch.randperm(len(self.frames), device=self.frames.device)
            torch.index_select(self.frames, 0, order, out=self.shuffled)
            for rows in self.shuffled.split(self.settings.minibatch):
                self.gradient(rows)
                grad = self.net.theta.grad
                grad *= (self.settings.max_grad_norm / (grad.norm() + 1e-6)).clamp(max=1)
                self.optimizer.step()

    def gradient(self, rows: Tensor) -> None:
        """The gradient of mean(-min(r a, clip(r) a)) + value_weight mean((v - target)²), r the probability ratio."""
        s, net = self.settings, self.net
        obs, action, old_log_prob, advantage, target = rows.split(self.columns, 1)
        mean, value = net.forward(obs)
        inv_std = (-net.log_std).exp()
        noise = (action - mean) * inv_std
        log_prob = -0.5 * noise.square().sum(1, keepdim=True) - net.log_std.sum()
        ratio = (log_prob - old_log_prob).exp()
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        gain = ratio * advantage
        unclipped = gain <= ratio.clamp(1 - s.clip, 1 + s.clip) * advantage

        log_prob_grad = gain * unclipped * (-1 / len(rows))
        noise_grad = log_prob_grad * noise
        torch.sum(noise_grad * noise - log_prob_grad, 0, out=net.log_std_grad)
        net.backward(noise_grad * inv_std, (value - target[:, 0]) * (2 * s.value_weight / len(rows)))

    def act(self, obs: Tensor) -> Tensor:
        """The mean action, for scoring."""
        return self.net.forward(self.obs_moments.normalise(obs))[0]

    def checkpoint(self) -> dict[str, Tensor]:
        """Layer i of the policy is weights{i}[0], biases{i}[0], and of the value weights{i}[1], biases{i}[1]."""
        weights = {f"weights{i}": weight.clone() for i, weight in enumerate(self.net.weights)}
        biases = {f"biases{i}": bias.clone() for i, bias in enumerate(self.net.biases)}
        moments = {"obs_mean": self.obs_moments.mean, "obs_var": self.obs_moments.var}
        return {**weights, **biases, "log_std": self.net.log_std.clone(), **moments}


def score(env: VectorEnv, agent: PPO, seed: int) -> Tensor:
    """The return of one episode in each world (N,). `env` may speak torch or NumPy."""
    device = agent.net.theta.device
    obs, _ = env.reset(seed=seed)
    numpy = isinstance(obs, np.ndarray)
    returns, alive = torch.zeros(env.num_envs), torch.ones(env.num_envs, dtype=torch.bool)
    while alive.any():
        action = agent.act(torch.as_tensor(obs, dtype=torch.float32, device=device))
        obs, *rest, _ = env.step(action.cpu().numpy() if numpy else action)
        reward, terminated, truncated = (torch.as_tensor(x).cpu() for x in rest)
        returns += torch.where(alive, reward, 0)
        alive &= ~(terminated | truncated)
    env.close()
    return returns


def mujoco_warning(message: str) -> None:
    if "settotalmass" not in message:  # about Gymnasium's half cheetah, once per copy; no news of the run
        print(f"MuJoCo: {message}", file=sys.stderr)


def save_curve(path: Path, title: str, curve: list[tuple[float, int, float]]) -> None:
    """`curve`: (seconds, frames, mean episode return)."""
    seconds, frames, returns = zip(*curve, strict=True) if curve else ((), (), ())
    figure, axes = pyplot.subplots(1, 2, figsize=(10, 4), sharey=True, layout="constrained")
    millions = [count / 1e6 for count in frames]
    for axis, x, label in zip(axes, (seconds, millions), ("wall time, s", "frames, millions"), strict=True):
        axis.plot(x, returns)
        axis.set_xlabel(label)
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("mean return of the last 100 episodes")
    figure.suptitle(title)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def train(env: VectorEnv, settings: Settings, args: argparse.Namespace, start: float) -> tuple[PPO, list]:
    agent, curve, frames, progress = PPO(env, settings, args.device, args.seed), [], 0, 0.0
    with tqdm(total=100, bar_format="{l_bar}{bar}| {elapsed}{postfix}") as bar:
        while progress < 1:
            agent.optimizer.param_groups[0]["lr"] = settings.learning_rate * (1 - 0.9 * progress)
            agent.rollout()
            agent.update()
            frames += agent.rewards.numel()
            seconds = time.perf_counter() - start
            progress = min(1, max(seconds / args.time_budget, frames / args.total_steps))
            if agent.finished:
                curve.append((seconds, frames, float(np.mean(agent.finished))))
            mean = f"{curve[-1][2]:,.0f}" if curve else "(no episode yet)"
            bar.set_postfix_str(f"return {mean}, {frames / 1e6:.1f} M frames, {frames / seconds:,.0f} steps/s", False)
            bar.update(100 * progress - bar.n)
    return agent, curve


@torch.no_grad()  # gradients are written out above
def main() -> None:
    start = time.perf_counter()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--env", default="TorchHalfCheetah-v0", help=f"settings are known for {', '.join(TASKS)}")
    parser.add_argument("--num-envs", type=int, default=1024)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--total-steps", type=float, default=math.inf, help="stop after so many frames")
    parser.add_argument("--time-budget", type=float, default=78, help="or after so many seconds, whichever is first")
    parser.add_argument("--episodes", type=int, default=10, help="to score in Gymnasium's own environment")
    parser.add_argument("--out", type=Path, help="folder for the results; default runs/ENV-SEED")
    args = parser.parse_args()
    out = args.out or Path("runs") / f"{args.env}-{args.seed}"
    out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(args.seed)
    mujoco.set_mju_user_warning(mujoco_warning)

    def make(num_envs: int) -> VectorEnv:
        kwargs = dict(device=args.device, dtype=torch.float32, autoreset_mode=AutoresetMode.SAME_STEP)
        return gymnasium.make_vec(args.env, num_envs=num_envs, **kwargs)

    env = make(args.num_envs)
    agent, curve = train(env, TASKS.get(args.env, Settings()), args, start)
    env.close()
    torch.save({"env": args.env, **agent.checkpoint()}, out / "policy.pt")
    save_curve(out / "curve.png", f"PPO, {args.env}, {args.num_envs:,} worlds, seed {args.seed}", curve)

    original = args.env.removeprefix("Torch").replace("-v0", "-v5")
    oracle = gymnasium.make_vec(original, num_envs=args.episodes, vectorization_mode="sync")
    for name, test_env in ((args.env, make(100)), (original, oracle)):
        returns = score(test_env, agent, seed=args.seed + 1)
        print(f"score in {name}: {returns.mean():.0f} ± {returns.std():.0f} ({len(returns)} episodes, mean action)")
    print(f"curve: {out / 'curve.png'}")
    print(f"policy: {out / 'policy.pt'}")
    print(f"time: {time.perf_counter() - start:.0f} s in all")


if __name__ == "__main__":
    main()
