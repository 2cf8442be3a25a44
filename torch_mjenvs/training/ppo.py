"""PPO on one of the Torch tasks, scored at the end in Gymnasium's or dm_control's original.

    python -m torch_mjenvs train --env TorchHalfCheetah-v0

Simulation is cheap here, so the learner decides how long training takes. It is therefore written for speed: networks of
the same widths run as one batched product, gradients are written by hand, and buffers are allocated once. A rollout and
the update of a minibatch always do the same operations on the same memory and never wait for the device. On the CPU,
update and networks are compiled kernels (`compiled/`) of the same computation; on a GPU the update can be one, too.

Shapes: N worlds, T steps of a rollout, B = N T frames, O observations, A actions.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from gymnasium.spaces import Box, Space
from torch import Tensor

from ..checks import check_memory
from ..envs.entries import BAD_STATE
from ..envs.rollout import Observations, Rollout
from ..envs.vector_env import TorchVectorEnv
from ..policy import network_entries
from . import large_pages
from .compiled import (
    Acting,
    Forward,
    Loss,
    Sweep,
    Update,
    advantages,
    fits,
    networks_of,
    on_gpu,
    returns,
    trained,
    why_no_bfloat16,
    why_not,
)
from .episodes import Episodes, now, random_state, set_random_state
from .health import Faults, count_bad_rewards
from .networks import (
    ROUNDED,
    ActorCritic,
    Adam,
    Replayed,
    RunningMoments,
    load_optimizer,
    parameters,
    rounded_to,
)
from .renewed import Renewed
from .seen import Seen
from .settings import SETTINGS as TABLES
from .settings import settings
from .sharing import ALONE, Share
from .statistics import STATISTICS, measures

__all__ = ["NAME", "PPO", "TABLES", "Settings", "add_flags", "make", "settings", "ways"]

NAME = "PPO"
RATES = 1e-5, 1e-2  # between which target_kl moves the learning rate, as rsl_rl does
WIDEST = 256  # units of a hidden layer; with it, kernels are 2 to 10 times as fast as torch on an H200, with 512 slower


@dataclass(frozen=True)
class Settings:
    """The settings of PPO for a task, as in its table in settings.toml."""

    num_envs: int
    total_steps: int
    horizon: int  # steps per world and iteration; no longer than an episode may be
    epochs: int
    minibatch: int
    learning_rate: float  # falls linearly to a tenth, unless there is a target_kl
    target_kl: float  # the divergence that the learning rate is adapted to; 0 is none
    gamma: float
    lam: float
    clip: float
    value_weight: float
    value_clip: float  # 0 is none
    entropy: float  # the weight of its bonus
    max_grad_norm: float
    log_std: float  # at the start
    log_std_min: float
    log_std_max: float
    actor: tuple[int, ...]  # widths of the policy's hidden layers
    critic: tuple[int, ...]  # and of the value network's
    activation: str
    norm: str  # of hidden layers, before their activation: "none" or "layer"


class PPO:
    """Proximal Policy Optimization (Schulman et al., 2017) in the worlds of `env`: a `Learner`."""

    LEARNED = ("theta", "obs_moments", "return_moments")
    share = ALONE
    learn_in: Callable[[Tensor], Any]
    learn_compiled: Callable[[Tensor], Any]
    compute_gradient: Callable[[Tensor], Any]
    take_step: Callable[[Tensor], Any]

    def __init__(
        self,
        env: TorchVectorEnv,
        settings: Settings,
        seed: int,
        obs_groups: Mapping[str, Sequence[str]] | None = None,
        compiled: bool | None = None,
        rounded: bool = False,
        share: Share = ALONE,
    ):
        """Make the networks, and reset the worlds.

        `obs_groups` says which groups of the task's observations "policy" and "critic" see: by default the group
        "policy" for the policy and, for the critic, "critic" if there is such a group, else "policy" and "privileged".
        With `compiled`, compiled kernels do the networks' work on the CPU, and the update on a GPU, where they can;
        None means True on the CPU. With `rounded`, the CPU's kernels round the factors of products to bfloat16. If a
        run is shared among processes, `env` has this process's `share` of the worlds. All learn from all frames, and
        have the same numbers. Raises ValueError for groups that the task does not have, for a horizon longer than an
        episode, and for compiled kernels where torch's default dtype is not float32.
        """
        self.env, self.settings, self.share = env, settings, share
        self.seen = Seen(env.engine.layout.observation, obs_groups)
        T, N, device = settings.horizon, env.num_envs, env.device
        O, A, limit = env.engine.layout.obs, env.engine.layout.action, env.engine.max_episode_steps
        if limit is not None and limit < T:
            raise ValueError(f"a horizon of {T} steps is longer than an episode of {limit}")
        on_cpu = device.type == "cpu"
        kernels = not why_not(device) and (on_cpu if compiled is None else compiled)
        if kernels and torch.get_default_dtype() != torch.float32:
            raise ValueError(
                f"compiled kernels learn in float32, and torch's default dtype is {torch.get_default_dtype()}: call "
                "torch.set_default_dtype(torch.float32), or learn in torch, with compiled=False"
            )
        for name, hidden, outputs in (("actor", settings.actor, A), ("critic", settings.critic, 1)):
            check_memory(f"{name} units", sum(hidden), bytes_a_unit(settings, (O, *hidden, outputs)), device)
        total = N * share.ranks
        check_memory("horizon", T, 4 * total * (4 * O + 4 * A + 12), device)  # a rollout, and its frames twice
        s = settings
        self.net = ActorCritic(O, A, s.actor, s.critic, s.activation, s.log_std, device, self.seen.columns, s.norm)
        self.net.policy[-1][1].copy_(first_action(env.single_action_space).to(device))
        self.lr = torch.tensor(settings.learning_rate, device=device)  # a tensor: the graph of an update reads it
        capturable = device.type == "cuda"
        self.optimizer = Adam([self.net.theta], self.lr, eps=1e-5, fused=True, capturable=capturable)
        self.obs_moments = RunningMoments(O, device=device)
        self.return_moments = RunningMoments(device=device)
        self.begin_graphs()
        self.advantages_in_torch, self.returns_in_torch = Replayed(self._advantages), Replayed(self._returns)

        env.reset(seed=seed)
        self.episodes, self.tables = Episodes(env, share), Renewed(env.engine, share)
        self.discounted_return = torch.zeros(N, device=device)
        # Whether an episode that is truncated in a rollout may be followed by another one in the same world.
        self.cut_often = env.engine.layout.truncates

        # Of an iteration: steps into bad states, bad rewards, and updates whose losses or gradient were not finite.
        zeros = (torch.zeros((), dtype=torch.int64, device=device) for _ in range(3))
        self.bad_states, self.bad_rewards, self.bad_updates = zeros

        self.columns = [O, A, 1, 1, 1]  # observation, action, log-probability, advantage, value target
        shape = T * total, sum(self.columns)
        on_cpu = device.type == "cpu"
        self.frames = large_pages.zeros(*shape) if on_cpu else torch.empty(shape, device=device)
        self.shuffled = torch.empty(shape, device=device)
        self.frames_seen = 0
        self.seconds = 0.0, 0.0  # for which the last iteration collected, and learned
        self.frames_before = 0  # seen by runs that this one started from
        self.compiled_update: Update | on_gpu.Update | None = None
        self.compiled_forward: Forward | on_gpu.Forward | None = None
        self.compiled_advantages: Sweep | None = None
        self.compiled_returns: Sweep | None = None
        self.learned, self.sums = (torch.zeros(len(STATISTICS), device=device) for _ in range(2))
        if kernels:
            self.compile(rounded)
        self.rollout = Rollout(env.engine, env._check_ready, self.policy, T)  # of rows, whatever names they have
        if kernels and on_cpu and fits(N, torch.get_num_threads()):
            self.rollout.run_by(self.acting)

    def compile(self, rounded: bool = False) -> None:
        """Compile what the networks do, advantages and returns; with `rounded`, factors of products are bfloat16."""
        s, net, networks = self.settings, self.net, networks_of(self.net)
        loss = Loss(s.clip, s.value_weight, s.max_grad_norm, s.entropy, s.value_clip)
        size = min(len(self.frames), s.minibatch)
        log_std = int(net.log_std.storage_offset())
        what = networks, net.theta, log_std, self.optimizer, self.columns, size, loss, trained(net)
        gpu = self.gpu
        if gpu:
            self.compiled_update = on_gpu.Update(*what, self.share)
            self.compiled_forward = on_gpu.Forward(networks, net.theta, self.columns[0])
        else:
            self.compiled_update = Update(*what, rounded, self.share)
            self.compiled_forward = Forward(networks, net.theta, self.columns[0], rounded)
        shape, carried = (s.horizon, s.num_envs // self.share.ranks), ("next_value", "next_advantage")
        self.compiled_advantages = Sweep(advantages(s.gamma, s.lam), carried, *shape, backward=True, gpu=gpu)
        self.compiled_returns = Sweep(returns(s.gamma), ("whole", "discounted"), *shape, gpu=gpu)

    def begin_graphs(self) -> None:
        """Have the next updates make CUDA graphs of what they do."""
        if self.share.ranks == 1:
            self.learn_in, self.learn_compiled = Replayed(self._learn_in), Replayed(self._learn_compiled)
            self.compute_gradient, self.take_step = self.gradient, self._take_step
        else:  # no graph holds what processes exchange: NCCL cannot end before such a graph is freed
            self.learn_in, self.learn_compiled = self._learn_in, self._learn_compiled
            self.compute_gradient, self.take_step = Replayed(self.gradient), Replayed(self._take_step)

    @property
    def gpu(self) -> torch.device | None:
        """The GPU that the networks are on, None if they are on the CPU."""
        return self.net.theta.device if self.net.theta.is_cuda else None

    def acting(self, launches: Sequence[Callable[[int], None]], rows: Mapping[str, Tensor]) -> Callable[[], None]:
        """Return a function that makes all steps of a rollout in one launch, with the bits of `policy` step by step."""
        moments, log_std, noise = self.obs_moments, self.net.log_std, rows["noise"]
        rounded = isinstance(self.compiled_forward, Forward) and self.compiled_forward.rounded is not None
        whole = Acting(networks_of(self.net), self.net.theta, rounded, launches, rows)

        def make() -> None:
            if self.share.ranks == 1:  # for whole tiles, these are the same numbers as drawn step by step
                torch.randn(noise.shape, out=noise)
            else:
                for one in noise:
                    one.copy_(self.noise())
            whole(moments.mean, moments.var, log_std)

        return make

    def noise(self) -> Tensor:
        """Return the noise of a step (N, A), before it is scaled by the policy's spread."""
        share, (worlds, actions) = self.share, self.env.engine.action.shape
        return share.mine(torch.randn(worlds * share.ranks, actions, device=self.lr.device))

    @property
    def acts_by_rows(self) -> bool:
        """Whether `act` gives a row the same bits whatever the other rows; torch's products do not."""
        return self.compiled_forward is not None

    @property
    def finished(self) -> Collection[float]:
        """The returns of the latest episodes that ended."""
        return self.episodes.finished

    def iterate(self) -> None:
        """Collect a rollout, and learn from it."""
        s, start = self.settings, time.perf_counter()
        if not s.target_kl:
            self.lr.fill_(s.learning_rate * (1 - 0.9 * self.frames_seen / s.total_steps))
        self.net.log_std.clamp_(s.log_std_min, s.log_std_max)  # now: `faults` is to see what an update made of it
        self.bad_updates.zero_()
        self.prepare(self.rollout())
        self.tables.renew()
        collected = now(self.frames.device)
        self.update()
        self.seconds = collected - start, now(self.frames.device) - collected
        self.frames_seen += len(self.frames)

    def policy(self, obs: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Return random actions (N, A) for observations (N, O), and a dict with their noise and the values (N,)."""
        mean, value = self.forward(obs)
        noise = self.noise()
        return torch.addcmul(mean, noise, self.net.log_std.exp()), {"noise": noise, "value": value}

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean actions (N, A) and values (N,) for observations (N, O), valid until the next call for N."""
        moments = self.obs_moments
        if self.compiled_forward is None:
            return self.net.forward(moments.normalise(obs))
        mean, value = self.compiled_forward(obs, moments.mean, moments.var)
        return mean, value[:, 0]

    def prepare(self, data: dict[str, Tensor]) -> None:
        """Fill `frames` with what the update needs, from a rollout's tensors (T, N, ...)."""
        s, net = self.settings, self.net
        torch.sum(data[BAD_STATE], (0, 1), out=self.bad_states)
        self.bad_rewards.copy_(count_bad_rewards(data["reward"]))
        self.share.add(self.bad_states, self.bad_rewards)
        done = data["terminated"] | data["truncated"]
        cut = data["truncated"] & ~data["terminated"]
        rewards = data["reward"] * self.reward_scale(data, done)
        next_value = self.forward(data["next_obs"])[1].clone()
        # A truncated episode would have gone on: what it was still worth counts. By the time limit alone, no world has
        # two in one rollout.
        worlds, order = torch.arange(self.env.num_envs, device=done.device), cut.cumsum(0)
        for k in range(int(order[-1].max()) if self.cut_often else 1):
            this = cut & (order == k + 1)
            final_obs = data["final_obs"][this.int().argmax(0), worlds]
            rewards += s.gamma * this * self.forward(final_obs)[1]

        advantages = self.advantages(rewards, data["value"], done, next_value)
        # Constants are left out of log-probabilities, as they cancel in ratios.
        log_prob = -0.5 * data["noise"].square().sum(2) - net.log_std.sum()
        others = (log_prob, advantages, advantages + data["value"])
        rest = torch.cat([data["action"], *(x[:, :, None] for x in others)], 2)
        obs, rest = (self.share.gathered(x, 1).flatten(0, 1) for x in (data["obs"], rest))
        torch.cat([self.obs_moments.normalise(obs), rest], 1, out=self.frames)
        self.obs_moments.update(obs)  # from here on

    def reward_scale(self, data: dict[str, Tensor], done: Tensor) -> Tensor:
        """Return one over the spread of discounted returns; record the episodes that ended.

        The spread is the standard deviation, but at least a tenth of the mean: returns that are all equal have none.
        """
        rewards = data["reward"]
        returns, discounted = self.returns(rewards, done)
        self.episodes.record(returns, done, data)
        moments = self.return_moments
        moments.update(self.share.gathered(discounted, 1).flatten())
        return (torch.maximum(moments.var, (0.1 * moments.mean).square()) + 1e-8).rsqrt()

    def advantages(self, rewards: Tensor, values: Tensor, done: Tensor, next_value: Tensor) -> Tensor:
        """Estimate generalised advantages (T, N) (Schulman et al., 2016); `next_value` (N,) follows the last step."""
        if self.compiled_advantages:
            found = self.compiled_advantages(
                reward=rewards, value=values, done=done, next_value=next_value,
                next_advantage=torch.zeros_like(next_value),
            )  # fmt: skip
            return found["advantage"]
        found_there: Tensor = self.advantages_in_torch(rewards, values, done, next_value)
        return found_there

    def _advantages(self, rewards: Tensor, values: Tensor, done: Tensor, next_value: Tensor) -> Tensor:
        s, advantages, advantage = self.settings, torch.empty_like(rewards), torch.zeros_like(next_value)
        going_on = s.gamma * ~done
        for t in reversed(range(s.horizon)):
            delta = rewards[t] + going_on[t] * next_value - values[t]
            advantages[t] = advantage = delta + s.lam * going_on[t] * advantage
            next_value = values[t]
        return advantages

    def returns(self, rewards: Tensor, done: Tensor) -> tuple[Tensor, Tensor]:
        """Return the sums of rewards (T, N) since each episode began: plain, and with earlier rewards discounted."""
        if self.compiled_returns:
            found = self.compiled_returns(
                reward=rewards, done=done, whole=self.episodes.returns, discounted=self.discounted_return
            )
            self.episodes.returns.copy_(found["whole"])
            self.discounted_return.copy_(found["discounted"])
            return found["return"], found["discounted_return"]
        whole, discounted = self.returns_in_torch(rewards, done)
        return whole, discounted

    def _returns(self, rewards: Tensor, done: Tensor) -> tuple[Tensor, Tensor]:
        discounted = torch.empty_like(rewards)
        for t in range(self.settings.horizon):
            discounted[t] = self.discounted_return.mul_(self.settings.gamma).add_(rewards[t])
            self.discounted_return.masked_fill_(done[t], 0)
        return self.episodes.add(rewards, done), discounted

    def update(self) -> None:
        """Learn from the frames in `epochs` passes over shuffled minibatches. `learned` is then the mean STATISTICS."""
        s, total = self.settings, len(self.frames)
        size = min(total, s.minibatch)
        whole = total // size * size  # what is too few for a minibatch is left out this time
        epochs = [torch.randperm(total, device=self.frames.device)[:whole] for _ in range(s.epochs)]
        if not s.target_kl:  # nothing is to be done between epochs
            self.learned = self.epoch(torch.cat(epochs), size)
            return
        self.learned.zero_()
        for order in epochs:
            found = self.epoch(order, size)
            self.learned += found / s.epochs
            self.adapt(found[STATISTICS.index("approx_kl")])

    def epoch(self, order: Tensor, size: int) -> Tensor:
        """Learn from minibatches of this many frames, taken in `order`. Returns the means of STATISTICS (8,)."""
        if self.compiled_update:
            rounds = self.learn_compiled(order)
            self.bad_updates += (~rounds.isfinite().all(1)).sum()
            return rounds.mean(0)
        self.learn_in(order)
        return self.sums / (len(order) // size)

    def adapt(self, kl: Tensor) -> None:
        """Raise or lower the learning rate by half after an epoch in which the policy moved too little or too far.

        This is the rule of rsl_rl (Rudin et al., 2022), which applies it after each minibatch: with as many minibatches
        as here, that would move the rate back and forth.
        """
        target = self.settings.target_kl
        self.lr *= torch.where(kl > 2 * target, 1 / 1.5, torch.where(kl < target / 2, 1.5, 1.0))
        self.lr.clamp_(*RATES)

    def _learn_compiled(self, order: Tensor) -> Tensor:
        assert self.compiled_update
        return self.compiled_update(self.frames, order)

    def _learn_in(self, order: Tensor) -> None:
        """Learn in torch from the frames of one or several epochs, taken in `order`; add up their means."""
        size = min(len(self.frames), self.settings.minibatch)
        self.sums.zero_()
        for epoch in order.split(len(self.frames) // size * size):
            shuffled = torch.index_select(self.frames, 0, epoch, out=self.shuffled[: len(epoch)])
            for rows in shuffled.split(size):
                self._learn_from(rows)

    def _learn_from(self, rows: Tensor) -> None:
        means = self.compute_gradient(rows)
        self.share.add(self.net.grad, means)
        self.take_step(means)

    def _take_step(self, means: Tensor) -> None:
        """Clip the gradient, make a step of Adam, and add up statistics: the means of SUMS (7,), and the norm."""
        grad = self.net.grad
        norm = grad.norm()
        found = torch.cat([means, norm[None]])
        self.sums += found
        self.bad_updates += ~found.isfinite().all()
        grad *= (self.settings.max_grad_norm / (norm + 1e-6)).clamp(max=1)
        self.optimizer.step()

    def gradient(self, rows: Tensor) -> Tensor:
        """Compute the gradient of mean(-min(r a, clip(r) a)) + value_weight mean((v - target)²) - entropy H.

        r is the probability ratio, a the normalised advantage, v the value, H the policy's entropy. With `value_clip`
        the value's loss is the larger one of this and the same with v held to the rollout's value ± value_clip (as in
        the code of Schulman et al., 2017). Returns the means that SUMS names (7,). In a run shared among processes,
        gradient and means are this process's summands.
        """
        s, net = self.settings, self.net
        advantages = rows.split(self.columns, 1)[3]
        obs, action, old_log_prob, advantage, target = self.share.mine(rows).split(self.columns, 1)
        mean, value = net.forward(obs)
        inv_std = (-net.log_std).exp()
        noise = (action - mean) * inv_std
        log_prob = -0.5 * noise.square().sum(1, keepdim=True) - net.log_std.sum()
        log_ratio = log_prob - old_log_prob
        ratio = log_ratio.exp()
        normalised = (advantage - advantages.mean()) / (advantages.std() + 1e-8)
        gain = ratio * normalised
        bounded = ratio.clamp(1 - s.clip, 1 + s.clip) * normalised

        log_prob_grad = gain * (gain <= bounded) * (-1 / len(rows))
        noise_grad = log_prob_grad * noise
        torch.sum(noise_grad * noise - log_prob_grad, 0, out=net.log_std_grad)
        net.log_std_grad -= s.entropy / self.share.ranks
        target = target[:, 0]
        error = value - target
        value_grad = error * (2 * s.value_weight / len(rows))
        if s.value_clip:
            before = target - advantage[:, 0]
            move = value - before
            held = before + move.clamp(-s.value_clip, s.value_clip) - target
            value_grad *= (move.abs() <= s.value_clip) | (held.abs() <= error.abs())  # else the loss is constant
        net.backward(noise_grad * inv_std, value_grad)

        found = [ratio - 1 - log_ratio, (ratio - 1).abs() > s.clip, torch.minimum(gain, bounded)]
        found = [x[:, 0] for x in found] + [error, error.square(), target, target.square()]
        return torch.stack(found).mean(1) / self.share.ranks

    def act(self, obs: Observations) -> Tensor:
        """Return the mean actions (N, A) for observations, (N, O) or by name, for scoring."""
        return self.forward(self.seen.parts.join(obs))[0]

    def measures(self) -> dict[str, float]:
        """Return numbers to plot over the run, by name: the learning rate, the policy's spread, and the last update's.

        "std" is the mean standard deviation of the noise, "entropy" that of an action; "collection_seconds" and
        "learning_seconds" are the times of the last iteration. Those of `Episodes` are added.
        """
        log_std = self.net.log_std
        rate, std, size = torch.stack([self.lr, log_std.exp().mean(), log_std.sum()]).tolist()
        entropy = size + 0.5 * len(log_std) * (1 + math.log(2 * math.pi))
        found = {"learning_rate": rate, "std": std, "entropy": entropy} | measures(self.learned)
        found |= dict(zip(("collection_seconds", "learning_seconds"), self.seconds, strict=True))
        return found | self.episodes.measures()

    def faults(self) -> Faults:
        """Count what went wrong in the last iteration. The size of the noise and its inverse must be finite, too."""
        log_std = self.net.log_std
        finite = torch.cat([self.net.theta, log_std.exp(), (-log_std).exp()]).isfinite()
        bad_rewards = torch.maximum(self.bad_rewards, self.return_moments.wrong)  # sums may be too large, too
        counts = [self.bad_states, self.bad_updates, (~finite).sum(), bad_rewards, self.obs_moments.wrong]
        return Faults(*torch.stack(counts).tolist())

    def networks(self) -> dict[str, Any]:
        """Return the entries of policy.pt except the task's id, in the format of `torch_mjenvs.policy`, as copies.

        The names of the value network's entries begin with "value_".
        """
        layers: dict[str, Tensor | str] = {"activation": self.net.activation}
        networks = zip(("", "value_"), (self.net.policy, self.net.value), self.net.norms, strict=True)
        for name, network, norms in networks:
            layers |= network_entries(network, norms, name)
        return {**layers, "log_std": self.net.log_std.clone(), **self.obs_moments.entries(), **self.seen.entries()}

    def state_dict(self) -> dict[str, Any]:
        """Return the whole state of training: a fresh PPO that loads it ends with the same bits."""
        s = self.settings
        state = {
            "theta": self.net.theta,
            "optimizer": self.optimizer.state_dict(),
            "obs_moments": self.obs_moments.state_dict(),
            "return_moments": self.return_moments.state_dict(),
            "env": self.share.whole(self.env.state_dict()),
            "discounted_return": self.share.gathered(self.discounted_return),
            "frames_seen": self.frames_seen,
            "frames_before": self.frames_before,
        }
        state |= self.tables.state_dict() | self.episodes.state_dict() | random_state(self.frames.device)
        return state | ({"rate": self.lr, "first_rate": s.learning_rate} if s.target_kl else {})

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.net.theta.copy_(state["theta"])
        load_optimizer(self.optimizer, state["optimizer"], self.lr)
        self.begin_graphs()  # the moments are other tensors now
        if self.settings.target_kl and state["first_rate"] == self.settings.learning_rate:
            self.lr.copy_(state["rate"])  # else the run was resumed with another one
        self.obs_moments.load_state_dict(state["obs_moments"])
        self.return_moments.load_state_dict(state["return_moments"])
        self.env.load_state_dict(self.share.part(state["env"]))
        self.tables.load_state_dict(state)
        self.episodes.load_state_dict(state)
        self.discounted_return.copy_(self.share.mine(state["discounted_return"]))
        self.frames_seen, self.frames_before = state["frames_seen"], state["frames_before"]
        set_random_state(state, self.frames.device)

    def begin_with(self, state: Mapping[str, Any]) -> None:
        """Begin with what another run has learned: the entries LEARNED of its state."""
        self.net.theta.copy_(state["theta"])
        self.obs_moments.load_state_dict(state["obs_moments"])
        self.return_moments.load_state_dict(state["return_moments"])


def first_action(space: Space[Any]) -> Tensor:
    """Return the action (A,) that the policy begins with: 0, or the middle of a range that does not contain 0.

    For a range with one end it is 1 beyond that end, the mean of what Gymnasium's `Box.sample` draws.
    """
    assert isinstance(space, Box)  # a TorchVectorEnv's
    low, high = torch.from_numpy(space.low), torch.from_numpy(space.high)
    middle = torch.where(low.isfinite() & high.isfinite(), (low + high) / 2, torch.where(low > 0, low + 1, high - 1))
    return torch.where((low <= 0) & (high >= 0), 0.0, middle)


def bytes_a_unit(s: Settings, widths: Sequence[int]) -> int:
    """Return the bytes of a network of these widths, divided by its number of hidden units.

    These are weights, moments, sums of gradients, and activations of all rows.
    """
    return 4 * 16 * parameters(1, widths, s.norm) // sum(widths[1:-1]) + 4 * 4 * (s.num_envs + s.minibatch)


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of PPO that are not settings."""
    parser.add_argument(
        "--learner", choices=("compiled", "torch"),
        help="what runs the networks on the CPU, and the update on a GPU; default compiled, but on a GPU torch for "
        f"hidden layers of more than {WIDEST} units",
    )  # fmt: skip
    parser.add_argument(
        "--precision", choices=("float32", "bfloat16"),
        help="precision to which factors of products are rounded; sums are float32. Default bfloat16 if this processor "
        "is faster with it; in torch, what torch is fastest with: bfloat16 by AMX, TF32 on a GPU",
    )  # fmt: skip


def ways(args: argparse.Namespace, settings: Mapping[str, Any], share: Share) -> dict[str, str]:
    """Return the "learner" and the "precision" of a run; a resumed one keeps them where no flag says otherwise, and
    they are possible here. Raises SystemExit for a learner that is given and not possible.
    """
    device = torch.device(args.device)
    reason, on_cpu = why_not(device), device.type == "cpu"
    if args.learner == "compiled" and reason:
        raise SystemExit(f"--learner compiled cannot be: {reason}")
    before = getattr(args, "before", {})
    learner, precision = (getattr(args, name) or before.get(name) for name in ("learner", "precision"))
    usual = on_cpu or max([*settings["actor"], *settings["critic"]], default=0) <= WIDEST
    compiled = not reason and (learner == "compiled" or (usual and learner is None))
    if compiled:
        why = why_no_bfloat16() if on_cpu else "it is for the CPU"
        fastest = "float32" if why else "bfloat16"
    else:
        why = "torch does not round to it on this processor" if on_cpu else "it is for the CPU"
        fastest = rounded_to(device)
    if args.precision == "bfloat16" and fastest != "bfloat16":
        print(f"--precision bfloat16 is {fastest} here: {why}", file=sys.stderr)
    return {
        "learner": "compiled" if compiled else "torch",
        "precision": "float32" if precision == "float32" else fastest,
    }


def make(
    env: TorchVectorEnv, settings: Mapping[str, Any], seed: int, obs_groups: Mapping[str, Sequence[str]],
    share: Share, learner: str, precision: str,
) -> PPO:  # fmt: skip
    """Make a PPO of these settings, and of what `ways` returned.

    Raises ValueError as PPO does, and if the update cannot be shared among the processes.
    """
    size = settings["minibatch"]
    if learner == "torch" and size % share.ranks:
        raise ValueError(f"--minibatch {size} cannot be shared out: use a multiple of {share.ranks}")
    torch.set_float32_matmul_precision("highest" if precision == "float32" else ROUNDED)
    return PPO(env, Settings(**settings), seed, obs_groups, learner == "compiled", precision == "bfloat16", share)
