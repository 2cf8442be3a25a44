"""Vector wrappers that change observations, rewards and actions, for tensors, in all three autoreset modes.

Names, arguments and meaning are Gymnasium's where it has such a wrapper. In SAME_STEP mode info["final_obs"] is changed
like the observation. State that is kept over steps begins anew with each episode. A step never waits for the device.

N worlds, A numbers in an action.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.error import InvalidBound
from gymnasium.spaces import Box
from gymnasium.vector import VectorEnv
from gymnasium.vector.utils import batch_space

from ..calls import exclusive, lasting
from ..checks import as_count, as_seeds, as_tensor
from .engine import draw_seed, mark_static_address, wrap64
from .parts import mapped
from .rollout import Observations, Step
from .spaces import boxes, by_alphabet, each_box, in_dtypes_of, parts_of
from .wrappers import TorchVectorWrapper, without_bounds

Seed = int | Sequence[int | None] | None
Tensors = Callable[[torch.Tensor], torch.Tensor]


def _torch_dtype(space: gymnasium.Space[Any]) -> torch.dtype:
    kinds = np.result_type(*(box.dtype for box in boxes(space)))
    return torch.from_numpy(np.empty(0, kinds)).dtype


class _Observations(TorchVectorWrapper):
    """Base of the wrappers that change observations: `_shown` changes them."""

    @cached_property
    def observation_space(self) -> gymnasium.Space[Any]:  # type: ignore[override]
        return batch_space(self.single_observation_space, self.num_envs)

    @exclusive
    def reset(self, *, seed: Seed = None, options: dict[str, Any] | None = None) -> tuple[Observations, dict[str, Any]]:
        """Reset the environment, and return changed observations and info."""
        obs, info = self.env.reset(seed=seed, options=options)  # type: ignore[arg-type]
        return self._shown(obs), info

    @exclusive
    def step(self, actions: torch.Tensor | np.ndarray | Sequence[Any]) -> Step:
        """Step the environment, and return its results with changed observations, final ones too."""
        obs, reward, terminated, truncated, info = self.env.step(actions)
        if self._same_step:
            info["final_obs"] = self._shown(info["final_obs"])
        return self._shown(obs), reward, terminated, truncated, info


class TransformObservation(_Observations):
    """Apply `func` to the observations (N, ...), or to all of them by name, as Gymnasium's wrapper of that name.

    `single_observation_space` is the space of one world's result; None if it stays the environment's. `func` must
    depend on its argument only: final observations, and a captured rollout's first one, go through it, too.

    Raises ValueError if the result is not of that shape.
    """

    @lasting
    def __init__(
        self,
        env: VectorEnv,
        func: Callable[[Any], Any],
        *,
        single_observation_space: gymnasium.Space[Any] | None = None,
    ):
        super().__init__(env)
        self.func = func
        self.single_observation_space = single_observation_space or env.single_observation_space

    def _shown(self, obs: Observations) -> Observations:
        changed = self.func(mapped(torch.clone, obs))  # func may work in place
        expected = mapped(lambda shape: (self.num_envs, *shape), parts_of(self.single_observation_space).shapes)
        given = mapped(lambda x: tuple(x.shape), changed)
        if given != expected:
            raise ValueError(f"func gave shape {given}, not {expected}: say so by single_observation_space")
        return changed


class FlattenObservation(_Observations):
    """Flatten observations of any shape to (N, size), as Gymnasium's wrapper of that name.

    Dict observations become one row, in the order of the space, which is the task's. With `sort_keys` they are in
    alphabetical order, group by group, as Gymnasium sorts the names of a `Dict` by default. Policies that were trained
    on dm_control's tasks through Shimmy read this order.
    """

    @lasting
    def __init__(self, env: VectorEnv, *, sort_keys: bool = False):
        super().__init__(env)
        inside = by_alphabet(env.single_observation_space) if sort_keys else env.single_observation_space
        each_box(inside, lambda box: box, self)  # refuses spaces other than Boxes
        low, high = (np.concatenate([getattr(x, end).ravel() for x in boxes(inside)]) for end in ("low", "high"))
        self._parts = parts_of(inside)
        self.single_observation_space = Box(low, high, dtype=low.dtype.type)

    def _shown(self, obs: Observations) -> Observations:
        return self._parts.join(obs).reshape(self.num_envs, -1)


class DtypeObservation(_Observations):
    """Convert observations to `dtype`, torch's or NumPy's, as Gymnasium's wrapper of that name.

    Raises TypeError for a dtype that only one of torch and NumPy has: Gymnasium's spaces are NumPy's.
    """

    @lasting
    def __init__(self, env: VectorEnv, dtype: torch.dtype | type[Any] | np.dtype[Any] | str):
        super().__init__(env)
        try:
            asked = () if dtype is None else dtype  # None would be NumPy's default
            self.dtype = asked if isinstance(asked, torch.dtype) else torch.from_numpy(np.empty(0, asked)).dtype
            kind = torch.empty(0, dtype=self.dtype, device="cpu").numpy().dtype
        except TypeError as error:
            raise TypeError(f"dtype must be one that both torch and NumPy have, not {dtype!r}") from error
        self.single_observation_space = each_box(
            env.single_observation_space,
            lambda box: Box(box.low.astype(kind), box.high.astype(kind), dtype=kind.type),
            self,
        )

    def _shown(self, obs: Observations) -> Observations:
        return mapped(lambda x: x.to(self.dtype), obs)


class FrameStackObservation(_Observations):
    """Stack the last `stack_size` observations of the episode, (N, stack_size, ...), the latest last.

    It does for each world what Gymnasium's wrapper of that name does for one environment. While an episode has had
    fewer observations, padding_type="reset" repeats its first one, and "zero" fills up with zeros.

    Raises ValueError for a stack_size below 1 or another padding_type.
    """

    @lasting
    def __init__(self, env: VectorEnv, stack_size: int, *, padding_type: str = "reset"):
        super().__init__(env)
        stack_size = as_count("stack_size", stack_size)
        if padding_type not in ("reset", "zero"):
            raise ValueError(f"padding_type must be 'reset' or 'zero', not {padding_type!r}")
        zero = padding_type == "zero"

        def stacked(box: Box) -> Box:
            low, high = (np.repeat(x[None], stack_size, 0) for x in (box.low, box.high))
            low, high = (np.minimum(low, 0), np.maximum(high, 0)) if zero else (low, high)
            return Box(low, high, dtype=box.dtype.type)

        inside = env.single_observation_space
        self.single_observation_space = each_box(inside, stacked, self)
        self._parts = parts_of(inside)
        shape = (self.num_envs, stack_size, *self._parts.row_shape)
        self._frames = mark_static_address(torch.zeros(shape, dtype=_torch_dtype(inside), device=self.device))
        self._repeats = padding_type == "reset"

    def _begin(self, worlds: torch.Tensor, obs: torch.Tensor) -> None:
        """Begin the episodes of these worlds, (N,) bool, with these observations."""
        latest = obs.unsqueeze(1)
        before = latest if self._repeats else torch.zeros_like(latest)
        first = torch.cat([before.expand_as(self._frames[:, 1:]), latest], 1)
        self._frames.copy_(torch.where(worlds.view(-1, *[1] * obs.ndim), first, self._frames))

    @exclusive
    def reset(self, *, seed: Seed = None, options: dict[str, Any] | None = None) -> tuple[Observations, dict[str, Any]]:
        """Reset the environment; the stacks of the worlds that are reset begin anew."""
        obs, info = self.env.reset(seed=seed, options=options)  # type: ignore[arg-type]
        chosen = self._chosen(options)
        self._begin(self._all_worlds() if chosen is None else chosen, self._parts.join(obs))
        return self._shown(obs), info

    @exclusive
    def step(self, actions: torch.Tensor | np.ndarray | Sequence[Any]) -> Step:
        """Step the environment, and return its results with stacks for observations, final ones too."""
        restarting = self._restarting()
        obs, reward, terminated, truncated, info = self.env.step(actions)
        latest = self._parts.join(info["final_obs"] if self._same_step else obs)
        self._frames.copy_(torch.cat([self._frames[:, 1:], latest.unsqueeze(1)], 1))
        if self._same_step:
            info["final_obs"] = self._shown(obs)
            restarting = terminated | truncated
        if restarting is not None:
            self._begin(restarting, self._parts.join(obs))
        return self._shown(obs), reward, terminated, truncated, info

    def _shown(self, obs: Observations) -> Observations:
        shown: Observations = in_dtypes_of(self.single_observation_space, self._parts.split(self._frames.clone()))
        return shown

    def _state(self) -> dict[str, torch.Tensor]:
        return {"frames": self._frames}


# SplitMix64's constants, as signed numbers
GOLDEN, FIRST, SECOND = (wrap64(x) for x in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))
BITS = 24  # of a uniform number: as many as float32 holds


def _mixed(x: torch.Tensor) -> torch.Tensor:
    """Apply SplitMix64's finalizer: every bit of the result depends on every bit of int64 x."""
    x = (x ^ ((x >> 30) & (2**34 - 1))) * FIRST
    x = (x ^ ((x >> 27) & (2**37 - 1))) * SECOND
    return x ^ ((x >> 31) & (2**33 - 1))


class ObservationNoise(_Observations):
    """Add normal noise of standard deviation `scale`, a number or an array of a world's shape, to the observations.

    For observations by name, the array is (D,), a number for each in the order of the space. A task's own table `noise`
    gives it by name, and is applied within the kernel.

    The noise is a function of seed, world and number of the observation alone, as the environment's reset noise:
    `reset(seed=...)` fixes it, and a world's noise does not depend on how many others there are. In SAME_STEP mode a
    step returns both a world's final observation and the first one of its next episode; these two get the same noise.

    Raises ValueError for a negative scale or one of another shape.
    """

    @lasting
    def __init__(self, env: VectorEnv, scale: float | np.ndarray):
        super().__init__(env)
        inside = env.single_observation_space
        self.single_observation_space = each_box(inside, without_bounds, self)
        self._parts = parts_of(inside)
        self._shape = self._parts.row_shape
        scales = np.asarray(scale, np.float64)
        if not (scales >= 0).all() or not np.isfinite(scales).all() or scales.shape not in ((), self._shape):
            raise ValueError(
                f"scale must be a number from 0 on, or an array of them of shape {self._shape}, not {scale}"
            )
        self._scale = mark_static_address(torch.tensor(scales, dtype=_torch_dtype(inside), device=self.device))
        self._key = mark_static_address(torch.zeros(self.num_envs, dtype=torch.int64, device=self.device))
        self._count = mark_static_address(torch.zeros(self.num_envs, dtype=torch.int64, device=self.device))
        columns = torch.arange(self._parts.size, device=self.device) * GOLDEN
        self._columns = mark_static_address(columns)
        self._seed(draw_seed(), None)

    def _seed(self, seed: Seed, chosen: torch.Tensor | None) -> None:
        if seed is None:
            return
        given = as_seeds(seed, self.num_envs)
        first = self.unwrapped.engine.first_world
        seeds = [given] * self.num_envs if isinstance(given, int) else given
        numbers = torch.arange(first, first + self.num_envs, device="cpu")
        if not isinstance(given, int):  # each world is like a single one with its seed
            numbers.zero_()
        key = torch.tensor([wrap64(s or 0) for s in seeds], dtype=torch.int64, device="cpu")
        key = _mixed(_mixed(key) + numbers * GOLDEN)
        mask = torch.tensor([s is not None for s in seeds], device="cpu").to(self.device)
        mask = mask if chosen is None else mask & chosen
        self._key.copy_(torch.where(mask, key.to(self.device), self._key))
        self._count.masked_fill_(mask, 0)

    @exclusive
    def reset(self, *, seed: Seed = None, options: dict[str, Any] | None = None) -> tuple[Observations, dict[str, Any]]:
        """Reset the environment, and return noisy observations; worlds that are not reset keep their noise."""
        obs, info = self.env.reset(seed=seed, options=options)  # type: ignore[arg-type]
        chosen = self._chosen(options)
        self._seed(seed, chosen)
        self._count.add_(1 if chosen is None else chosen)
        return self._shown(obs), info

    @exclusive
    def step(self, actions: torch.Tensor | np.ndarray | Sequence[Any]) -> Step:
        """Step the environment, and return its results with noisy observations, final ones too."""
        obs, reward, terminated, truncated, info = self.env.step(actions)
        self._count.add_(1)
        noise = self._noise()
        if self._same_step:
            info["final_obs"] = self._noisy(info["final_obs"], noise)
        return self._noisy(obs, noise), reward, terminated, truncated, info

    def _noise(self) -> torch.Tensor:
        """Return the noise of the present observations, (N, ...), by Box and Muller."""
        bits = _mixed(_mixed(self._key + self._count * FIRST)[:, None] + self._columns)
        first, second = (((bits >> shift) & (2**BITS - 1)).to(self._scale.dtype) for shift in (40, 8))
        radius = ((first + 1) / 2**BITS).log().mul(-2).sqrt()
        normal: torch.Tensor = radius * (second * (2 * np.pi / 2**BITS)).cos()
        return normal.view(self.num_envs, *self._shape) * self._scale

    def _noisy(self, obs: Observations, noise: torch.Tensor) -> Observations:
        return self._parts.split(self._parts.join(obs) + noise)

    def _shown(self, obs: Observations) -> Observations:
        return self._noisy(obs, self._noise())

    def _state(self) -> dict[str, torch.Tensor]:
        return {"key": self._key, "count": self._count}


class TransformReward(TorchVectorWrapper):
    """Apply `func` to the rewards (N,), as Gymnasium's wrapper of that name.

    Raises ValueError if the result is not (N,).
    """

    @lasting
    def __init__(self, env: VectorEnv, func: Tensors):
        super().__init__(env)
        self.func = func

    @exclusive
    def step(self, actions: torch.Tensor | np.ndarray | Sequence[Any]) -> Step:
        """Step the environment, and return its results with changed rewards."""
        obs, reward, terminated, truncated, info = self.env.step(actions)
        changed = self.func(reward)
        if changed.shape != (self.num_envs,):
            raise ValueError(f"func must give a reward a world, ({self.num_envs},), not {tuple(changed.shape)}")
        return obs, changed, terminated, truncated, info


class ClipReward(TransformReward):
    """Clip rewards to min_reward and max_reward, either of which may be None, as Gymnasium's wrapper of that name.

    Raises `InvalidBound` if both are None, or min_reward is above max_reward.
    """

    @lasting
    def __init__(self, env: VectorEnv, min_reward: float | None = None, max_reward: float | None = None):
        if min_reward is None and max_reward is None:
            raise InvalidBound("min_reward and max_reward cannot both be None")
        ends = [x for x in (min_reward, max_reward) if x is not None]
        if not ends[0] <= ends[-1]:  # catches NaN, too
            raise InvalidBound(f"min_reward {min_reward} must not be above max_reward {max_reward}")
        super().__init__(env, lambda reward: reward.clamp(min_reward, max_reward))


class ClipAction(TorchVectorWrapper):
    """Clip actions of any size to the environment's own range, as Gymnasium's wrapper of that name."""

    @lasting
    def __init__(self, env: VectorEnv):
        super().__init__(env)
        inside = env.single_action_space
        assert isinstance(inside, Box)  # a TorchVectorEnv's
        self.single_action_space = Box(-np.inf, np.inf, inside.shape, inside.dtype.type)
        bounds = (torch.tensor(x, dtype=self._dtype, device=self.device) for x in (inside.low, inside.high))
        self._low, self._high = map(mark_static_address, bounds)

    @cached_property
    def action_space(self) -> gymnasium.Space[Any]:  # type: ignore[override]
        return batch_space(self.single_action_space, self.num_envs)

    @exclusive
    def step(self, actions: torch.Tensor | np.ndarray | Sequence[Any]) -> Step:
        """Step the environment under the clipped actions (N, A)."""
        shape = (self.num_envs, *self._low.shape)
        return self.env.step(as_tensor("actions", actions, shape, self.device).clamp(self._low, self._high))


class ActionDelay(TorchVectorWrapper):
    """Delay actions by `delay` steps; in the first `delay` steps of an episode actions are zeros.

    Raises ValueError for a delay below 1.
    """

    @lasting
    def __init__(self, env: VectorEnv, delay: int):
        super().__init__(env)
        delay = as_count("delay", delay)
        self._width = env.single_action_space.shape or ()
        shape = (self.num_envs, delay, *self._width)
        self._waiting = mark_static_address(torch.zeros(shape, dtype=self._dtype, device=self.device))

    @exclusive
    def reset(self, *, seed: Seed = None, options: dict[str, Any] | None = None) -> tuple[Observations, dict[str, Any]]:
        """Reset the environment; actions that wait in the worlds that are reset are forgotten."""
        results = self.env.reset(seed=seed, options=options)  # type: ignore[arg-type]
        chosen = self._chosen(options)
        self._forget(self._all_worlds() if chosen is None else chosen)
        return results

    def _forget(self, worlds: torch.Tensor) -> None:
        self._waiting.masked_fill_(worlds.view(-1, *[1] * (self._waiting.ndim - 1)), 0.0)

    @exclusive
    def step(self, actions: torch.Tensor | np.ndarray | Sequence[Any]) -> Step:
        """Step the environment under the actions of `delay` steps ago, and keep these actions (N, A) for later."""
        actions = as_tensor("actions", actions, (self.num_envs, *self._width), self.device)
        restarting = self._restarting()
        results = self.env.step(self._waiting[:, 0].clone())
        self._waiting.copy_(torch.cat([self._waiting[:, 1:], actions.to(self._dtype).unsqueeze(1)], 1))
        if self._same_step:
            restarting = results[2] | results[3]
        if restarting is not None:
            self._forget(restarting)
        return results

    def _state(self) -> dict[str, torch.Tensor]:
        return {"waiting": self._waiting}
