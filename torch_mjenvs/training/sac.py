"""SAC on one of the Torch tasks, in plain torch: it learns from far fewer frames than PPO, but takes longer for each.

    python -m torch_mjenvs train --algorithm sac --env TorchHalfCheetah-v0

A stochastic policy within the bounds of actions is rewarded for its entropy, at a price that holds the entropy at -A.
Two value networks of state and action learn from past frames; the lower value counts, since both are optimistic.

Shapes: N worlds, T steps of a rollout, B frames of an update, O observations, A actions.
"""

from __future__ import annotations

import argparse
import itertools
import math
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from gymnasium.spaces import Box, Space
from torch import Tensor, nn

from ..checks import check_memory
from ..envs.entries import BAD_STATE
from ..envs.rollout import Observations, Rollout
from ..envs.vector_env import TorchVectorEnv
from ..networks.layers import EPS
from ..policy import ACTIVATIONS, network_entries
from .episodes import Episodes, now, random_state, set_random_state
from .health import Faults, count_bad_rewards
from .networks import Adam, RunningMoments
from .renewed import Renewed
from .seen import Seen
from .settings import tabled
from .sharing import Share

NAME = "SAC"
TABLES = Path(__file__).with_name("sac.toml")
LOG_STD = -5.0, 2.0  # between which the policy chooses the size of its noise
MEASURES = ("actor_loss", "critic_loss", "value", "entropy", "alpha")  # of an update


@dataclass(frozen=True)
class Settings:
    """The settings of SAC for a task, as in its table in sac.toml."""

    num_envs: int
    total_steps: int
    horizon: int  # steps per world and iteration
    updates: int  # per iteration
    batch: int  # frames that an update learns from
    buffer: int  # frames that are kept
    random_frames: int  # with random actions, before anything is learned
    learning_rate: float
    gamma: float
    tau: float  # by which the target networks follow at each update
    actor: tuple[int, ...]  # widths of the policy's hidden layers
    critic: tuple[int, ...]  # and of each value network's
    activation: str
    norm: str  # of hidden layers, before their activation: "none" or "layer"


def settings(env_id: str = "", device: str = "", **instead: Any) -> dict[str, Any]:
    """Return SAC's settings for a task: the arguments, else its table in sac.toml, else the defaults.

    device: the kind whose own settings override the task's others, such as "cpu".

    Raises ValueError for an invalid setting, for a buffer smaller than a rollout, and for a run that would end before
    it learns.
    """
    found = tabled(TABLES, env_id, device, instead)
    rollout = found["num_envs"] * found["horizon"]
    if found["buffer"] < rollout:
        raise ValueError(
            f"buffer: {found['buffer']} frames are fewer than a rollout has, {rollout} = "
            f"{found['num_envs']} worlds (num_envs) x {found['horizon']} steps (horizon)"
        )
    first = -(-found["random_frames"] // rollout) * rollout  # when that many were seen, at the end of a rollout
    if first >= found["total_steps"]:
        raise ValueError(
            f"random_frames: nothing is learned before {first:,} frames, and the run has {found['total_steps']:,} "
            "(total_steps)"
        )
    return found


class Networks(nn.Module):
    """Networks of the same widths, run side by side: a layer of all of them is one batched product.

    With `norm` "layer", hidden layers are normalised before their activation, by gains and shifts of their own.
    """

    def __init__(self, count: int, widths: Sequence[int], activation: str, norm: str, device: torch.device):
        super().__init__()
        self.activation = ACTIVATIONS[activation]()
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()
        for i, o in itertools.pairwise(widths):  # as nn.Linear begins
            for parameters, shape in ((self.weights, (count, o, i)), (self.biases, (count, 1, o))):
                parameters.append(torch.empty(shape).uniform_(-1, 1).div_(math.sqrt(i)).to(device))
        self.gains, self.shifts = nn.ParameterList(), nn.ParameterList()
        for o in widths[1:-1] if norm == "layer" else ():
            self.gains.append(torch.ones(count, 1, o, device=device))
            self.shifts.append(torch.zeros(count, 1, o, device=device))

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs (n, B, out) for inputs (B, in)."""
        x = x.expand(len(self.weights[0]), -1, -1)
        for k, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            x = torch.baddbmm(bias, self.activation(x) if k else x, weight.mT)
            if k < len(self.gains):
                x = torch.addcmul(self.shifts[k], nn.functional.layer_norm(x, x.shape[-1:], eps=EPS), self.gains[k])
        return x


class Replay:
    """The latest frames, as rows (size, columns) that keep their addresses."""

    def __init__(self, size: int, columns: int, device: torch.device):
        self.rows = torch.zeros(size, columns, device=device)
        self.filled = self.next = 0

    def put(self, rows: Tensor) -> None:
        """Add rows, at most `size`, in place of the oldest ones."""
        size = len(self.rows)
        first = min(len(rows), size - self.next)
        self.rows[self.next : self.next + first] = rows[:first]
        self.rows[: len(rows) - first] = rows[first:]
        self.next = (self.next + len(rows)) % size
        self.filled = min(self.filled + len(rows), size)

    def draw(self, count: int) -> Tensor:
        """Return this many random rows, possibly with repetitions."""
        return self.rows[torch.randint(self.filled, (count,), device=self.rows.device)]

    def state_dict(self) -> dict[str, Any]:
        rows = self.rows[: self.filled] if self.filled else None
        if rows is not None and len(rows) < len(self.rows):
            rows = rows.clone()  # else torch would save all the memory that they are in
        return {"rows": rows, "next": self.next}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        rows = state["rows"]
        self.filled, self.next = 0 if rows is None else len(rows), state["next"]
        if rows is not None:
            self.rows[: self.filled] = rows


class SAC:
    """Soft Actor-Critic (Haarnoja et al., 2018) in the worlds of `env`: a `Learner`."""

    LEARNED = ("actor", "critic", "target", "log_alpha", "obs_moments")
    acts_by_rows = False

    def __init__(
        self, env: TorchVectorEnv, settings: Settings, seed: int, obs_groups: Mapping[str, Sequence[str]] | None = None
    ):
        """Make the networks, and reset the worlds; `obs_groups` are as those of PPO.

        Raises ValueError for groups that the task does not have, and for actions without bounds.
        """
        self.env, self.settings = env, settings
        self.seen = Seen(env.engine.layout.observation, obs_groups)
        s, device = settings, env.device
        O, A = env.engine.layout.obs, env.engine.layout.action
        self.low, self.high = (x.to(device) for x in bounds(env.single_action_space))
        self.columns = [O, A, 1, 1, O]  # observation, action in [-1, 1], reward, 1 if it goes on, next observation
        check_memory("buffer", s.buffer, 4 * sum(self.columns), device)
        self.sees = [torch.arange(O, device=device)] * 2  # the columns of policy and critics
        if self.seen.columns is not None:
            self.sees = [torch.nonzero(row)[:, 0].to(device) for row in self.seen.columns]
        acting, valuing = map(len, self.sees)
        self.actor = Networks(1, (acting, *s.actor, 2 * A), s.activation, s.norm, device)
        self.critic, self.target = (
            Networks(2, (valuing + A, *s.critic, 1), s.activation, s.norm, device) for _ in range(2)
        )
        self.target.load_state_dict(self.critic.state_dict())
        self.log_alpha = torch.zeros((), device=device, requires_grad=True)
        self.parameters = [*self.actor.parameters(), *self.critic.parameters(), self.log_alpha]
        for x in self.parameters:
            x.grad = torch.zeros_like(x)
        self.optimizer = Adam(self.parameters, s.learning_rate, fused=True)
        self.obs_moments = RunningMoments(O, device=device)
        self.replay = Replay(s.buffer, sum(self.columns), device)

        env.reset(seed=seed)
        self.episodes, self.tables = Episodes(env), Renewed(env.engine)
        self.frames_seen = self.frames_before = 0
        self.seconds = 0.0, 0.0  # for which the last iteration collected, and learned
        self.found = torch.zeros(len(MEASURES), device=device)  # means over the last iteration's updates
        # Of an iteration: steps into bad states, bad rewards, and updates whose losses were not finite.
        zeros = (torch.zeros((), dtype=torch.int64, device=device) for _ in range(3))
        self.bad_states, self.bad_rewards, self.bad_updates = zeros
        self.at_random = torch.ones((), dtype=torch.bool, device=device)  # a tensor: the graph of a rollout reads it
        self.rollout = Rollout(env.engine, env._check_ready, self.policy, s.horizon)

    @property
    def finished(self) -> Collection[float]:
        """The returns of the latest episodes that ended."""
        return self.episodes.finished

    def iterate(self) -> None:
        """Collect a few steps of every world, and learn from what was kept."""
        s, start = self.settings, time.perf_counter()
        learning = self.frames_seen >= s.random_frames
        self.at_random.fill_(not learning)
        self.bad_updates.zero_()
        self.keep(self.rollout())
        self.tables.renew()
        collected = now(self.env.device)
        if learning:
            self.found.zero_()
            for _ in range(s.updates):
                self.found += self.learn_from(self.replay.draw(s.batch)) / s.updates
        self.seconds = collected - start, now(self.env.device) - collected
        self.frames_seen += s.num_envs * s.horizon

    def policy(self, obs: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Return random actions (N, A) for observations (N, O), and a dict with them in [-1, 1]."""
        unit = self.sample(self.obs_moments.normalise(obs))[0]
        unit = torch.where(self.at_random, torch.rand_like(unit) * 2 - 1, unit)
        return self.stretched(unit), {"unit": unit}

    def stretched(self, unit: Tensor) -> Tensor:
        """Return numbers from -1 to 1 scaled to the range of actions."""
        return self.low + (unit + 1) * ((self.high - self.low) / 2)

    def keep(self, data: dict[str, Tensor]) -> None:
        """Put the frames of a rollout's tensors (T, N, ...) into the buffer.

        A truncated episode would have gone on: the next observation of its last step, too, is the one before the reset.
        """
        torch.sum(data[BAD_STATE], (0, 1), out=self.bad_states)
        self.bad_rewards.copy_(count_bad_rewards(data["reward"]))
        done = data["terminated"] | data["truncated"]
        self.episodes.record(self.episodes.add(data["reward"], done), done, data)
        frames = self.settings.num_envs * self.settings.horizon
        parts = (data["obs"], data["unit"], data["reward"], ~data["terminated"], data["final_obs"])
        self.replay.put(torch.cat([part.reshape(frames, -1).float() for part in parts], 1))
        self.obs_moments.update(data["obs"].flatten(0, 1))

    def sample(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Return random actions in [-1, 1] (B, A) for normalised observations (B, O), and log-probabilities (B, 1)."""
        mean, spread = self.actor(obs[:, self.sees[0]])[0].chunk(2, 1)
        low, high = LOG_STD
        log_std = low + (high - low) / 2 * (spread.tanh() + 1)
        noise = torch.randn_like(mean)
        x = mean + log_std.exp() * noise
        # The logarithm of tanh's slope at x, 1 - tanh²(x), in a form that holds even if tanh(x) is rounded to 1
        slope = 2 * (math.log(2) - x - nn.functional.softplus(-2 * x))
        log_prob = -0.5 * noise.square() - log_std - 0.5 * math.log(2 * math.pi) - slope
        return x.tanh(), log_prob.sum(1, keepdim=True)

    def values(self, networks: Networks, obs: Tensor, action: Tensor) -> Tensor:
        """Return two values (2, B, 1) of actions in [-1, 1], at normalised observations."""
        found: Tensor = networks(torch.cat([obs[:, self.sees[1]], action], 1))
        return found

    def learn_from(self, rows: Tensor) -> Tensor:
        """Take one step of all networks and of the entropy's price, with rows of the buffer; return MEASURES (5,)."""
        s = self.settings
        obs, action, reward, going_on, next_obs = rows.split(self.columns, 1)
        obs, next_obs = self.obs_moments.normalise(obs), self.obs_moments.normalise(next_obs)
        alpha = self.log_alpha.detach().exp()
        next_action, next_log_prob = self.sample(next_obs)
        after = self.values(self.target, next_obs, next_action).amin(0) - alpha * next_log_prob
        wanted = reward + s.gamma * going_on * after
        with torch.enable_grad():
            critic_loss = (self.values(self.critic, obs, action) - wanted).square().mean((1, 2)).sum()
            chosen, log_prob = self.sample(obs)
            value = self.values(self.critic, obs, chosen).amin(0)
            actor_loss = (alpha * log_prob - value).mean()
            surplus = log_prob.detach().mean() - action.shape[1]  # by how much the entropy falls short of -A
            alpha_loss = -self.log_alpha * surplus
        for loss, learned in (
            (critic_loss, list(self.critic.parameters())),
            (actor_loss, list(self.actor.parameters())),
            (alpha_loss, [self.log_alpha]),
        ):
            for x, grad in zip(learned, torch.autograd.grad(loss, learned), strict=True):
                assert x.grad is not None
                x.grad.copy_(grad)  # copied: grad may be transposed in memory, which torch's fused Adam does not see
        self.optimizer.step()
        for x, y in zip(self.target.parameters(), self.critic.parameters(), strict=True):
            x.lerp_(y, s.tau)
        found = torch.stack([actor_loss, critic_loss, value.mean(), -log_prob.mean(), alpha]).detach()
        self.bad_updates += ~found.isfinite().all()
        return found

    def act(self, obs: Observations) -> Tensor:
        """Return the mean actions (N, A) for observations, (N, O) or by name, for scoring."""
        rows = self.obs_moments.normalise(self.seen.parts.join(obs))
        return self.stretched(self.actor(rows[:, self.sees[0]])[0].chunk(2, 1)[0].tanh())

    def measures(self) -> dict[str, float]:
        """Return numbers to plot over the run, by name: means of the last iteration's updates, and of `Episodes`.

        "value" is that of the policy's actions; "alpha" is the price of entropy; "collection_seconds" and
        "learning_seconds" are the times of the last iteration.
        """
        found = dict(zip(MEASURES, self.found.tolist(), strict=True)) | {"learning_rate": self.settings.learning_rate}
        found |= dict(zip(("collection_seconds", "learning_seconds"), self.seconds, strict=True))
        return found | self.episodes.measures()

    def faults(self) -> Faults:
        """Count what went wrong in the last iteration."""
        bad = torch.stack([(~x.isfinite()).sum() for x in (*self.parameters, self.log_alpha.exp())]).sum()
        counts = [self.bad_states, self.bad_updates, bad, self.bad_rewards, self.obs_moments.wrong]
        return Faults(*torch.stack(counts).tolist())

    def networks(self) -> dict[str, Any]:
        """Return the entries of policy.pt except the task's id, in the format of `torch_mjenvs.policy`, as copies."""
        found: dict[str, Any] = {"activation": self.settings.activation}
        found |= network_entries(self._acting(), zip(self.actor.gains, self.actor.shifts, strict=True))
        found |= self.obs_moments.entries() | {"action_low": self.low, "action_high": self.high}
        return found | self.seen.entries()

    def _acting(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield weights and biases of each layer that leads to a mean action, for all observations."""
        last = len(self.actor.weights) - 1
        for k, (weight, bias) in enumerate(zip(self.actor.weights, self.actor.biases, strict=True)):
            w, b = weight.detach(), bias.detach()
            if k == last:  # the other half is the size of the noise
                w, b = w.chunk(2, 1)[0], b.chunk(2, 2)[0]
            if k == 0:
                w = torch.zeros(*w.shape[:2], self.columns[0], device=w.device).index_copy_(2, self.sees[0], w)
            yield w, b

    def state_dict(self) -> dict[str, Any]:
        """Return the whole state of training: a fresh SAC that loads it ends with the same bits."""
        state = {
            "actor": self.actor.state_dict(),
            "critic": self.critic.state_dict(),
            "target": self.target.state_dict(),
            "log_alpha": self.log_alpha.detach(),
            "optimizer": self.optimizer.state_dict(),
            "obs_moments": self.obs_moments.state_dict(),
            "replay": self.replay.state_dict(),
            "env": self.env.state_dict(),
            "frames_seen": self.frames_seen,
            "frames_before": self.frames_before,
        }
        return state | self.tables.state_dict() | self.episodes.state_dict() | random_state(self.env.device)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.begin_with(state)
        self.optimizer.load_state_dict(state["optimizer"])
        self.optimizer.param_groups[0]["lr"] = self.settings.learning_rate  # which may be another one now
        self.replay.load_state_dict(state["replay"])
        self.env.load_state_dict(state["env"])
        self.tables.load_state_dict(state)
        self.episodes.load_state_dict(state)
        self.frames_seen, self.frames_before = state["frames_seen"], state["frames_before"]
        set_random_state(state, self.env.device)

    def begin_with(self, state: Mapping[str, Any]) -> None:
        """Begin with what another run has learned: the entries LEARNED of its state."""
        for name in ("actor", "critic", "target"):
            getattr(self, name).load_state_dict(state[name])
        self.log_alpha.detach().copy_(state["log_alpha"])
        self.obs_moments.load_state_dict(state["obs_moments"])


def bounds(space: Space[Any]) -> tuple[Tensor, Tensor]:
    """Return the lowest and the highest action, (A,) each. Raises ValueError if actions are unbounded."""
    assert isinstance(space, Box)  # a TorchVectorEnv's
    low, high = (torch.from_numpy(x).float() for x in (space.low, space.high))
    if not (low.isfinite() & high.isfinite()).all():
        raise ValueError(f"SAC needs actions with bounds, and these are from {space.low.tolist()} to "
                         f"{space.high.tolist()}: take PPO, or controls with a range")  # fmt: skip
    return low, high


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of SAC that are not settings: there are none."""


def ways(args: argparse.Namespace, settings: Mapping[str, Any], share: Share) -> dict[str, str]:
    """Return how SAC is run: always in torch."""
    return {"learner": "torch", "precision": "float32"}


def make(
    env: TorchVectorEnv, settings: Mapping[str, Any], seed: int, obs_groups: Mapping[str, Sequence[str]], share: Share,
    **ways: str,
) -> SAC:  # fmt: skip
    """Make an SAC of these settings. Raises ValueError as SAC does, and for a run shared among processes."""
    if share.ranks > 1:
        raise ValueError("a run of SAC is not shared out: start it without torchrun, or take PPO")
    torch.set_float32_matmul_precision("highest")  # as `ways` says, whatever ran in this process before
    return SAC(env, Settings(**settings), seed, obs_groups)
