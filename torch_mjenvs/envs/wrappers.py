"""Gymnasium's vector wrappers that normalise, record and rescale, for tensors.

Gymnasium's own support NumPy only. Names, arguments and meaning are those of `gymnasium.wrappers.vector`; each
docstring says where a wrapper differs. They wrap a `TorchVectorEnv`, each other, and stock wrappers that work on
tensors (`TransformObservation`, ...), in all three autoreset modes. Their state is in tensors at fixed addresses, and a
step never waits for the device.

N worlds.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, cast

import gymnasium
import numpy as np
import torch
from gymnasium.error import InvalidBound
from gymnasium.spaces import Box
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper
from gymnasium.vector.utils import batch_space
from gymnasium.wrappers.utils import rescale_box

from ..by_value import ByValue, Held
from ..calls import exclusive, lasting
from ..checks import as_count, as_mask, as_tensor, check_state
from .engine import mark_static_address
from .entries import END, MEAN, REWARD, SUCCESS
from .episode_log import EpisodeMeans, of_last_step
from .layers import refuse_arrays
from .rollout import Act, Observations, Rollout, Step
from .spaces import each_box, parts_of
from .vector_env import TorchVectorEnv


class TorchVectorWrapper(ByValue, VectorWrapper):
    """Base of the wrappers here. `state_dict` and `load_state_dict` include whatever they wrap.

    Raises TypeError for an environment that is not, within other wrappers, a `TorchVectorEnv`, and for one whose
    wrappers make arrays of its tensors.
    """

    @lasting
    def __init__(self, env: VectorEnv):
        super().__init__(env)
        if not isinstance(env.unwrapped, TorchVectorEnv):
            raise TypeError(f"{type(self).__name__} goes around a TorchVectorEnv, not around {env.unwrapped}")
        refuse_arrays(env, type(self).__name__)
        self.device, self._lock = env.unwrapped.device, env.unwrapped._lock
        self._dtype, self._mode = env.unwrapped.dtype, env.unwrapped.autoreset_mode
        self._same_step = self._mode is AutoresetMode.SAME_STEP

    @property
    def unwrapped(self) -> TorchVectorEnv:  # type: ignore[override]
        """The environment without its wrappers."""
        return cast(TorchVectorEnv, super().unwrapped)

    @property
    def obs(self) -> Observations:
        """The observations that `reset` or `step` returned last.

        Raises TypeError if a wrapper is inside that is not of this package.
        """
        if not isinstance(self.env, (TorchVectorEnv, TorchVectorWrapper)):
            raise TypeError(
                f"what {type(self.env).__name__} shows at present is not known: take the wrapper of that name, or "
                "TransformObservation, from torch_mjenvs.wrappers"
            )
        return self._shown(self.env.obs)

    def _shown(self, obs: Observations) -> Observations:
        """Return an observation as this wrapper changes it, without changing what the wrapper keeps."""
        return obs

    def capture(self, policy: Act, steps: int, info_keys: Sequence[str] = ()) -> Rollout:
        """Capture `steps` steps of `policy` and this environment as one call, as `TorchVectorEnv.capture` does.

        The policy sees, and the rollout records, what the wrappers return. `info_keys` names entries of the task's
        info. Entries that wrappers add to info are not recorded: read what a wrapper keeps, such as
        `RecordEpisodeStatistics.return_queue`. The seconds that it records do not advance while a GPU replays.

        Raises ResetNeeded before the first reset, TypeError if a wrapper is inside that is not of this package.
        """
        bare = self.unwrapped
        parts = parts_of(self.single_observation_space)
        return Rollout(bare.engine, bare._check_ready, policy, steps, parts, around=self, info_keys=info_keys)

    def _choices(self) -> list[Any]:
        """Return what may be changed here and decides what steps do. A CUDA graph holds one choice."""
        return self.env._choices() if isinstance(self.env, TorchVectorWrapper) else []

    def _restarting(self) -> torch.Tensor | None:
        """Return the worlds, (N,) bool, that the next step will only reset; None in modes without such steps."""
        if self._mode is not AutoresetMode.NEXT_STEP:
            return None
        return self.unwrapped.engine.done.clone()

    def _all_worlds(self) -> torch.Tensor:
        return torch.ones(self.num_envs, dtype=torch.bool, device=self.device)

    def _state(self) -> dict[str, torch.Tensor]:
        """Return the tensors that this wrapper itself keeps, by name."""
        return {}

    def _inner(self) -> Any:
        """Return the next environment inside that keeps a state."""
        inner: Any = self.env
        while not hasattr(inner, "load_state_dict"):
            inner = inner.env
        return inner

    @exclusive
    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return copies of this wrapper's state and, with names that begin with "env.", of the environment inside."""
        own = {name: x.clone() for name, x in self._state().items()}
        return own | {f"env.{name}": x for name, x in self._inner().state_dict().items()}

    @exclusive
    def load_state_dict(self, state: Mapping[str, torch.Tensor]) -> None:
        """Go on, bit for bit, from what `state_dict` of the same wrappers gave, on whatever device.

        Raises ValueError for the state of others, and changes nothing then.
        """
        own, given = self._state(), state
        if isinstance(state, Mapping):
            given = {name: x for name, x in state.items() if not str(name).startswith("env.")}
        check_state(given, own, type(self).__name__)
        inner = {name.removeprefix("env."): x for name, x in state.items() if name.startswith("env.")}
        self._inner().load_state_dict(inner)
        for name, x in own.items():
            x.copy_(given[name].detach())

    def _chosen(self, options: dict[str, Any] | None) -> torch.Tensor | None:
        """Return the worlds, (N,) bool, that a reset with these options concerns; None for all."""
        if options is None or "reset_mask" not in options:
            return None
        return as_mask("options['reset_mask']", options["reset_mask"], self.num_envs, self.device)


def without_bounds(box: Box) -> Box:
    """Return a Box of the same shape and dtype without bounds. Raises TypeError for whole numbers, as in pictures."""
    if not np.issubdtype(box.dtype, np.floating):
        raise TypeError(
            f"observations of {box.dtype} cannot be normalised or made noisy: wrap the environment in "
            "wrappers.DtypeObservation(env, np.float32) first"
        )
    return Box(-np.inf, np.inf, box.shape, box.dtype.type)


class RunningMeanStd(ByValue):
    """Mean and variance of all rows seen so far, in float64, like Gymnasium's class of that name.

    `update` takes batches of n rows of the shape `shape`. `mean` and `var` have that shape, `count` is one number. They
    begin as `epsilon` rows of mean 0 and variance 1.
    """

    @lasting
    def __init__(self, n: int, shape: tuple[int, ...], device: torch.device, epsilon: float = 1e-4):
        self.mean = mark_static_address(torch.zeros(shape, dtype=torch.float64, device=device))
        self.var = mark_static_address(torch.ones_like(self.mean))
        self.count = mark_static_address(torch.tensor(epsilon, dtype=torch.float64, device=device))
        self._ones = mark_static_address(torch.ones(n, dtype=torch.float64, device=device))
        # A buffer, since allocating for each update would cost more.
        self._rows = mark_static_address(torch.empty(n, self.mean.numel(), dtype=torch.float64, device=device))

    def update(self, rows: torch.Tensor, mask: torch.Tensor | None = None) -> None:
        """Add n rows, or those of the (n,) bool mask."""
        weights = self._ones if mask is None else mask.double()
        n = weights.sum()
        x = self._rows.copy_(rows.reshape(self._rows.shape))
        batch_mean = weights @ x / n.clamp(min=1)
        squares = weights @ x.sub_(batch_mean).square_()
        # Chan's formula for the moments of two sets together
        total = self.count + n
        delta = batch_mean.view_as(self.mean) - self.mean
        self.mean.add_(delta * (n / total))
        self.var.mul_(self.count).add_(squares.view_as(self.var)).add_(delta.square() * (self.count * n / total))
        self.var.div_(total)
        self.count.copy_(total)

    def state(self, prefix: str) -> dict[str, torch.Tensor]:
        """Return the tensors themselves, not copies, with names that begin with `prefix`."""
        return {f"{prefix}.mean": self.mean, f"{prefix}.var": self.var, f"{prefix}.count": self.count}


class RecordEpisodeStatistics(TorchVectorWrapper):
    """Record return, length and seconds of every episode, as Gymnasium's wrapper of that name.

    `step` gives info[stats_key], a dict of (N,) tensors, 0 where no episode ended: "r", the return, float64; "l", its
    steps, int64; "t", its seconds on the host's clock, float64. The mask of those that ended is under "_" + stats_key.
    Both are present in every step, like this environment's other entries of info. If the task names terms of its
    reward, metrics or reasons of its ends, there are dicts of these, (N,) by name: "rewards", the sum of a term over
    the episode; "metrics", the mean of a metric; "ends", 1 if the reason ended the episode. If it says when it is done,
    "success" has "once", 1 if it was in any step, and "at_end", 1 if it was in the last.

    `return_queue`, `length_queue` and `time_queue` are tensors of the last `buffer_length` episodes, the latest last;
    `episode_count` is a tensor of one number. Reading a queue or that number waits for the device; stepping does not.

    Raises ValueError for a `buffer_length` below 1, and in `step` where the key is in info already.
    """

    @lasting
    def __init__(self, env: VectorEnv, buffer_length: int = 100, stats_key: str = "episode"):
        super().__init__(env)
        buffer_length = as_count("buffer_length", buffer_length)
        self._stats_key, self._length, n = stats_key, buffer_length, self.num_envs
        self.episode_count = mark_static_address(torch.zeros((), dtype=torch.int64, device=self.device))
        self.episode_start_times = mark_static_address(torch.zeros(n, dtype=torch.float64, device=self.device))
        self.episode_returns = mark_static_address(torch.zeros(n, dtype=torch.float64, device=self.device))
        self.episode_lengths = mark_static_address(torch.zeros(n, dtype=torch.int64, device=self.device))
        self.prev_dones = mark_static_address(torch.zeros(n, dtype=torch.bool, device=self.device))
        # Return, length and seconds, used in a ring; worlds of which nothing is to be kept write into the last row.
        self._ring = mark_static_address(torch.zeros(buffer_length + 1, 3, dtype=torch.float64, device=self.device))

    @exclusive
    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observations, dict[str, Any]]:
        """Reset the environment; the statistics of the worlds that are reset begin anew."""
        obs, info = self.env.reset(seed=seed, options=options)  # type: ignore[arg-type]
        chosen = self._chosen(options)
        self._begin(torch.ones_like(self.prev_dones) if chosen is None else chosen, time.perf_counter())
        return obs, info

    def _begin(self, chosen: torch.Tensor, now: float) -> None:
        self.episode_start_times.masked_fill_(chosen, now)
        self.episode_returns.masked_fill_(chosen, 0.0)
        self.episode_lengths.masked_fill_(chosen, 0)
        self.prev_dones.masked_fill_(chosen, False)

    @exclusive
    def step(self, actions: torch.Tensor | np.ndarray | Sequence[Any]) -> Step:
        """Step the environment, and return its results with info[stats_key] and its mask."""
        obs, reward, terminated, truncated, info = self.env.step(actions)
        key, mask = self._stats_key, f"_{self._stats_key}"
        if key in info or mask in info:
            raise ValueError(f"info has an entry {key!r} already: choose another stats_key")
        now = time.perf_counter()
        if self._same_step:
            self.episode_returns.add_(reward)
            self.episode_lengths.add_(1)
        else:  # a world that had ended was only reset, in this step
            self.episode_returns.add_(reward.masked_fill(self.prev_dones, 0.0))
            self.episode_lengths.add_(~self.prev_dones)
            self._begin(self.prev_dones.clone(), now)
        done = terminated | truncated
        stats: dict[str, Any] = {
            "r": torch.where(done, self.episode_returns, 0.0),
            "l": torch.where(done, self.episode_lengths, 0),
            "t": torch.where(done, (now - self.episode_start_times).round(decimals=6), 0.0),
        }
        self._remember(done, stats)
        named = of_last_step(self.unwrapped.engine)
        for what, prefix in (("rewards", REWARD), ("metrics", MEAN), ("success", SUCCESS), ("ends", END)):
            if found := {name.removeprefix(prefix): x for name, x in named.items() if name.startswith(prefix)}:
                stats[what] = {name: torch.where(done, x, 0.0) for name, x in found.items()}
        if self._same_step:
            self._begin(done, now)
        self.prev_dones.copy_(done)
        info[key], info[mask] = stats, done
        return obs, reward, terminated, truncated, info

    def _remember(self, done: torch.Tensor, stats: dict[str, Any]) -> None:
        """Store the episodes that ended, in the order of worlds, as many of the last ones as the ring holds."""
        rank = done.cumsum(0)
        ended = rank[-1]
        kept = done & (rank > ended - self._length)
        place = torch.where(kept, (self.episode_count + rank - 1) % self._length, self._length)
        self._ring[place] = torch.stack([stats["r"], stats["l"].double(), stats["t"]], 1)
        self.episode_count.add_(ended)

    def _queue(self, column: int) -> torch.Tensor:
        count = int(self.episode_count)
        order = torch.arange(max(0, count - self._length), count, device=self.device) % self._length
        return self._ring[order, column]

    @property
    def return_queue(self) -> torch.Tensor:
        """The returns of the last episodes, (k,) float64."""
        return self._queue(0)

    @property
    def length_queue(self) -> torch.Tensor:
        """The lengths of the last episodes, (k,) int64."""
        return self._queue(1).long()

    @property
    def time_queue(self) -> torch.Tensor:
        """The seconds that the last episodes took, (k,) float64."""
        return self._queue(2)

    def _state(self) -> dict[str, torch.Tensor]:
        names = ("episode_count", "episode_start_times", "episode_returns", "episode_lengths", "prev_dones")
        return {name: getattr(self, name) for name in names} | {"ring": self._ring[: self._length]}

    @exclusive
    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return copies of all that is kept here and inside, with start times counted from now.

        Another process has another clock.
        """
        state = super().state_dict()
        state["episode_start_times"] -= time.perf_counter()
        return state

    @exclusive
    def load_state_dict(self, state: Mapping[str, torch.Tensor]) -> None:
        """Go on, bit for bit, from what `state_dict` of the same wrappers gave, on whatever device.

        Raises ValueError for the state of others, and changes nothing then.
        """
        super().load_state_dict(state)
        self.episode_start_times.add_(time.perf_counter())

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for `copy.deepcopy` and pickle, with start times counted from now."""
        return super().__getstate__() | {"episode_start_times": Held(self.episode_start_times - time.perf_counter())}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.episode_start_times.add_(time.perf_counter())


class LogEpisodes(TorchVectorWrapper):
    """Add info[key], numbers by name for a trainer to log: means over the episodes that ended in the step.

    They are what the task names: "episode_reward/NAME", the sum of a term of the reward; "episode_mean/NAME", a metric;
    "episode_end/NAME", the share of the episodes that the reason ended, from 0 to 1; and "episode_length". Each is a
    tensor of one number, on the device. If no episode ended, they are those of the last step in which one did, and NaN
    before the first.

    Raises ValueError for a task that names none of these, and in `step` if the key is in info already.
    """

    @lasting
    def __init__(self, env: VectorEnv, key: str = "log"):
        super().__init__(env)
        self._key, self._log = key, EpisodeMeans(self.unwrapped.engine)
        if not self._log.names:
            raise ValueError("nothing to log: the task names no terms of its reward, metrics or reasons of ends")

    @exclusive
    def step(self, actions: torch.Tensor | np.ndarray | Sequence[Any]) -> Step:
        """Step the environment, and return its results with info[key]."""
        obs, reward, terminated, truncated, info = self.env.step(actions)
        if self._key in info:
            raise ValueError(f"info has an entry {self._key!r} already: choose another key")
        info[self._key] = self._log.update(terminated | truncated)
        return obs, reward, terminated, truncated, info

    def _state(self) -> dict[str, torch.Tensor]:
        return {"means": self._log.means}


class NormalizeObservation(TorchVectorWrapper):
    """Normalise observations to mean 0 and variance 1: (obs - mean) / sqrt(var + epsilon).

    `obs_rms` has the mean and variance of all observations that `reset` and `step` have returned so far, including
    those being normalised; `update_running_mean = False` freezes them.

    Gymnasium's wrapper of that name works in NEXT_STEP mode, gives float32, and refuses to reset a part of the worlds.
    Here the dtype stays the environment's; a reset of a part adds only these worlds' observations; and in SAME_STEP
    mode info["final_obs"] is normalised, too, but not added to `obs_rms`, since no policy acts on it.

    Of observations by name, each number has moments of its own; `obs_rms` holds them in the order of the space.

    Raises `InvalidBound` unless epsilon is above 0.
    """

    @lasting
    def __init__(self, env: VectorEnv, epsilon: float = 1e-8):
        super().__init__(env)
        if not epsilon > 0:
            raise InvalidBound(f"`epsilon` should be strictly positive. Received {epsilon}")
        inside = env.single_observation_space
        self.single_observation_space = each_box(inside, without_bounds, self)
        self._parts = parts_of(inside)
        self.obs_rms = RunningMeanStd(self.num_envs, self._parts.row_shape, self.device)
        self.epsilon, self.update_running_mean = epsilon, True

    @cached_property
    def observation_space(self) -> gymnasium.Space[Any]:  # type: ignore[override]
        return batch_space(self.single_observation_space, self.num_envs)

    @exclusive
    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observations, dict[str, Any]]:
        """Reset the environment, and return normalised observations and info."""
        obs, info = self.env.reset(seed=seed, options=options)  # type: ignore[arg-type]
        return self._seen(obs, self._chosen(options)), info

    @exclusive
    def step(self, actions: torch.Tensor | np.ndarray | Sequence[Any]) -> Step:
        """Step the environment, and return its results with normalised observations, final ones too."""
        obs, reward, terminated, truncated, info = self.env.step(actions)
        obs = self._seen(obs, None)
        if self._same_step:
            info["final_obs"] = self.observations(info["final_obs"])
        return obs, reward, terminated, truncated, info

    def _seen(self, obs: Observations, chosen: torch.Tensor | None) -> Observations:
        rows = self._parts.join(obs)
        if self.update_running_mean:
            self.obs_rms.update(rows, chosen)
        return self._parts.split(self._normalised(rows))

    def _shown(self, obs: Observations) -> Observations:
        return self.observations(obs)

    def observations(self, observations: Observations) -> Observations:
        """Return observations (..., *shape), or a dict of them, normalised by the present `obs_rms`."""
        return self._parts.split(self._normalised(self._parts.join(observations)))

    def _normalised(self, rows: torch.Tensor) -> torch.Tensor:
        std = (self.obs_rms.var + self.epsilon).sqrt()
        return (rows - self.obs_rms.mean.to(rows.dtype)).div_(std.to(rows.dtype))

    def _state(self) -> dict[str, torch.Tensor]:
        return self.obs_rms.state("obs_rms")

    def _choices(self) -> list[Any]:
        return [*super()._choices(), self.update_running_mean, self.epsilon, self.obs_rms]


class NormalizeReward(TorchVectorWrapper):
    """Divide rewards by the standard deviation of the discounted return, as Gymnasium's wrapper of that name.

    reward / sqrt(var + epsilon), with the variance `return_rms` of `accumulated_reward` (N,), where `accumulated_reward
    = gamma * accumulated_reward * (1 - terminated) + reward`; `update_running_mean = False` freezes the variance. As in
    Gymnasium's, steps that only reset a world do not count, and except in SAME_STEP mode the sum continues after a
    truncation. A reset of a part of the worlds clears their sums; Gymnasium's clears all.

    Raises `InvalidBound` for a gamma outside 0 to 1, or unless epsilon is above 0.
    """

    @lasting
    def __init__(self, env: VectorEnv, gamma: float = 0.99, epsilon: float = 1e-8):
        super().__init__(env)
        if not 0 <= gamma <= 1:
            raise InvalidBound(f"`gamma` should be in the interval [0, 1]. Received {gamma}")
        if not epsilon > 0:
            raise InvalidBound(f"`epsilon` should be strictly positive. Received {epsilon}")
        self.return_rms = RunningMeanStd(self.num_envs, (), self.device)
        rewards = torch.zeros(self.num_envs, dtype=torch.float64, device=self.device)
        self.accumulated_reward = mark_static_address(rewards)
        self.gamma, self.epsilon, self.update_running_mean = gamma, epsilon, True
        self._prev_dones = mark_static_address(torch.zeros(self.num_envs, dtype=torch.bool, device=self.device))

    @exclusive
    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observations, dict[str, Any]]:
        """Reset the environment; the sums of the worlds that are reset begin anew."""
        obs, info = self.env.reset(seed=seed, options=options)  # type: ignore[arg-type]
        chosen = self._chosen(options)
        for x in (self.accumulated_reward, self._prev_dones):
            x.zero_() if chosen is None else x.masked_fill_(chosen, 0)
        return obs, info

    @exclusive
    def step(self, actions: torch.Tensor | np.ndarray | Sequence[Any]) -> Step:
        """Step the environment, and return its results with normalised rewards."""
        obs, reward, terminated, truncated, info = self.env.step(actions)
        total = self.accumulated_reward * self.gamma * ~terminated + reward
        stepped = None if self._same_step else ~self._prev_dones
        self.accumulated_reward.copy_(total if stepped is None else total.where(stepped, self.accumulated_reward))
        if self.update_running_mean:
            self.return_rms.update(self.accumulated_reward, stepped)
        torch.logical_or(terminated, truncated, out=self._prev_dones)
        if self._same_step:
            self.accumulated_reward.masked_fill_(self._prev_dones, 0.0)
        return obs, reward / (self.return_rms.var + self.epsilon).sqrt(), terminated, truncated, info

    def _state(self) -> dict[str, torch.Tensor]:
        own = {"accumulated_reward": self.accumulated_reward, "prev_dones": self._prev_dones}
        return self.return_rms.state("return_rms") | own

    def _choices(self) -> list[Any]:
        return [*super()._choices(), self.update_running_mean, self.epsilon, self.gamma, self.return_rms]


class RescaleAction(TorchVectorWrapper):
    """Scale actions linearly from [min_action, max_action] to the environment's own range, as Gymnasium's wrapper.

    Both bounds are numbers or NumPy arrays (A,). Actions beyond them are not clipped here.

    Raises `InvalidBound` if min_action equals max_action; ValueError if it is above, for arrays of another shape,
    and where the environment's own range is infinite.
    """

    @lasting
    def __init__(self, env: VectorEnv, min_action: float | np.ndarray, max_action: float | np.ndarray):
        super().__init__(env)
        inside = env.single_action_space
        assert isinstance(inside, Box)  # a TorchVectorEnv's
        if not np.isfinite([inside.low, inside.high]).all():
            raise ValueError(
                "there is no range to scale to: actions are unbounded. Give the actuators ctrlrange and "
                "ctrllimited='true' in the model, or the task an `action_space`"
            )
        bounds = (np.asarray(x, inside.dtype)[()] for x in (min_action, max_action))
        space, _, backward = rescale_box(inside, *bounds)
        if (space.low == space.high).any():
            raise InvalidBound(f"min_action {min_action} must be below max_action {max_action}")
        self.single_action_space = space
        offset = backward(np.zeros(space.shape))
        scale = backward(np.ones(space.shape)) - offset
        dtype = self.unwrapped.dtype
        self._offset, self._scale = (
            mark_static_address(torch.tensor(x, dtype=dtype, device=self.device)) for x in (offset, scale)
        )

    @cached_property
    def action_space(self) -> gymnasium.Space[Any]:  # type: ignore[override]
        return batch_space(self.single_action_space, self.num_envs)

    @exclusive
    def step(self, actions: torch.Tensor | np.ndarray | Sequence[Any]) -> Step:
        """Step the environment under actions (N, A) of this wrapper's range."""
        shape = (self.num_envs, *self._scale.shape)
        actions = as_tensor("actions", actions, shape, self.device)
        return self.env.step(torch.addcmul(self._offset, actions, self._scale))
