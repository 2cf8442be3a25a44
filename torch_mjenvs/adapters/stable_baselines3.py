"""The adapter for Stable-Baselines3, which takes NumPy arrays and a list of dicts.

N worlds, D numbers in an observation, A numbers in an action.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.spaces import Box, Dict
from gymnasium.vector import AutoresetMode, VectorEnv, VectorRewardWrapper
from stable_baselines3.common.vec_env.base_vec_env import VecEnv

from ..checks import as_seed
from ..envs.contract import COMPUTE_REWARD, OF_GOALS
from ..envs.entries import SUCCESS, chosen_info
from ..envs.layers import layers
from ..envs.observation import POLICY, chosen_groups
from ..envs.parts import mapped
from ..envs.spaces import each_box, in_dtypes_of, parts_of
from ..envs.transforms import FrameStackObservation, ObservationNoise, TransformReward
from ..envs.wrappers import NormalizeObservation, NormalizeReward
from .common import attributes, bare, check, check_bounded, dicts, each_world, warn_off_centre

Indices = int | Iterable[int] | None
AT_END, IS_SUCCESS = f"{SUCCESS}at_end", "is_success"  # the name here, and that of Stable-Baselines3's logs
# Wrappers that change rewards, or all that is observed: what is inside them computes other rewards than theirs.
CHANGED = (
    NormalizeObservation, ObservationNoise, FrameStackObservation,
    NormalizeReward, TransformReward, VectorRewardWrapper,
)  # fmt: skip


class SB3VecEnv(VecEnv):
    """N worlds as Stable-Baselines3's `VecEnv`, as its DummyVecEnv would give them, except the dicts of `infos`.

        env = SB3VecEnv(gymnasium.make_vec("TorchHopper-v0", num_envs=256, autoreset_mode="SameStep"))
        model = PPO("MlpPolicy", VecMonitor(env)).learn(1_000_000)

    `infos` is a list of N dicts. They hold what `info_keys` names of the task's info, such as costs; by default
    nothing, since filling all dicts may take longer than the step. Those of worlds that ended in this step also
    hold the info of the episode's last step, "terminal_observation" (D,), and "TimeLimit.truncated", which is True
    where the episode was only truncated; also "is_success", if the task says when it is done: 1 if it was at the end.
    What a task names is in the info, too, as "episode_reward/NAME" and so on: `VecMonitor(env, info_keywords=(...))`
    keeps it. After a step, `reset_infos` is filled only for the same worlds.

    A task that names its observations has a Dict of them, for "MultiInputPolicy", in which a single number has shape
    (1,). For a task with groups that is the group "policy" alone, since policy and value share their observations
    there.

    Seeds are Stable-Baselines3's: `seed(s)` has world i start from s + i at the next reset, as a lone world would.
    Options of a reset are accepted and ignored, as by Gymnasium's own MuJoCo tasks. As all worlds share one
    environment, `env_method` calls a method once, and `set_attr` sets an attribute for all of them.

    An environment of any autoreset mode gives the same; in "SameStep" a step is one launch, in the others the adapter
    resets the worlds that ended.

    Raises TypeError for anything but a `TorchVectorEnv`, and ValueError for actions without bounds, which
    Stable-Baselines3 does not accept, and for names that are not in a step's info.
    """

    def __init__(self, env: VectorEnv, info_keys: str | Sequence[str] = ()):
        check(env, None, type(self).__name__)
        check_bounded(env, type(self).__name__)
        warn_off_centre(env, type(self).__name__)
        self.env, self._bare = env, bare(env)
        self._same_step = self._bare.autoreset_mode is AutoresetMode.SAME_STEP
        self._actions: np.ndarray | None = None
        self._info_keys = chosen_info(info_keys, self._bare.engine.layout.step_info)
        self._all_worlds = torch.arange(self._bare.num_envs, device=self._bare.device)
        space: Any = env.single_observation_space
        self._group = self._bare.engine.layout.observation.grouped and isinstance(space, Dict)
        if self._group:
            chosen_groups([*space])  # refuses groups without "policy"
            space = space[POLICY]
        self._parts, space = parts_of(space), each_box(space, with_an_axis, self)
        self._shown = parts_of(space)
        super().__init__(env.num_envs, space, env.single_action_space)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.env!r})"

    def _to_numpy(self, obs: Any) -> Any:
        """Return observations as NumPy arrays, by name if they have names; of groups, what the policy sees."""
        rows: torch.Tensor = self._parts.join(obs[POLICY] if self._group else obs)
        return in_dtypes_of(self.observation_space, self._shown.split(rows.cpu().numpy()))

    def seed(self, seed: int | None = None) -> list[int | None]:
        """Have world i start from seed + i at the next reset; None draws a seed. Raises TypeError or ValueError."""
        found: list[int | None] = super().seed(None if seed is None else as_seed(seed))
        return found

    def reset(self) -> Any:
        """Start new episodes in all worlds, and return their observations, (N, D) or by name."""
        seeds = None if all(seed is None for seed in self._seeds) else self._seeds
        obs, info = self.env.reset(seed=seeds)
        self.reset_infos = dicts(info, self._all_worlds)
        self._reset_seeds()
        self._reset_options()
        return self._to_numpy(obs)

    def step_async(self, actions: np.ndarray) -> None:
        """Store the actions (N, A) that `step_wait` is to take."""
        self._actions = actions

    def step_wait(self) -> tuple[Any, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        """Step all worlds under the actions of `step_async`.

        Returns observations, (N, D) or by name, rewards (N,), flags of the episodes that ended (N,) bool, and N dicts.
        """
        obs, reward, terminated, truncated, info = self.env.step(self._actions)
        done = terminated | truncated
        if not self._same_step and done.any():
            last_obs, last_info = obs, info
            obs, begun_info = self.env.reset(options={"reset_mask": done})
            info = last_info | begun_info | {"final_obs": last_obs, "final_info": last_info}
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        if self._info_keys:
            infos = each_world({name: info[name] for name in self._info_keys}, self._all_worlds)
        ended = done.nonzero()[:, 0]
        if len(ended):
            final, cut = info.pop("final_info"), (truncated & ~terminated)[ended].tolist()
            last = self._to_numpy(mapped(lambda x: x[ended], info.pop("final_obs")))
            layout = self._bare.engine.layout
            begun = dicts({name: info[name] for name in _with_masks(layout.reset_info)}, ended)
            wrappers = info.keys() - _with_masks(layout.info) - final.keys()  # entries such as "episode"
            told = dicts({name: info[name] for name in wrappers} | final, ended)
            for k, i in enumerate(ended.tolist()):
                ends = {"terminal_observation": mapped(itemgetter(k), last), "TimeLimit.truncated": cut[k]}
                if IS_SUCCESS not in told[k] and AT_END in told[k]:
                    ends[IS_SUCCESS] = told[k][AT_END]
                infos[i] = told[k] | ends  # which has what `info_keys` names, as it was before the reset
                self.reset_infos[i] = begun[k]
        return self._to_numpy(obs), reward.cpu().numpy(), done.cpu().numpy(), infos

    def close(self) -> None:
        """Close the environment."""
        self.env.close()

    def get_attr(self, attr_name: str, indices: Indices = None) -> list[Any]:
        """Return an attribute of the environment or of a wrapper, a value for each of some worlds.

        Of a tensor (N, ...) it is the world's row. A method is returned, not called. Raises AttributeError if there is
        none of this name.
        """
        return attributes(self.env, attr_name, list(self._get_indices(indices)))

    def set_attr(self, attr_name: str, value: Any, indices: Indices = None) -> None:
        """Set an attribute, as `TorchVectorEnv.set_attr`. Raises ValueError for some of the worlds alone."""
        self._all(indices)
        self._bare.set_attr(attr_name, value)

    def env_method(
        self, method_name: str, *method_args: Any, indices: Indices = None, **method_kwargs: Any
    ) -> list[Any]:
        """Call a method once, as `TorchVectorEnv.call`. Raises ValueError for some of the worlds alone.

        `compute_reward`, which `HerReplayBuffer` calls for one world, `compute_terminated` and `compute_truncated` are
        functions of their arguments: the task's, or those of your subclass of `TorchVectorEnv` or of your wrapper.
        Raises ValueError if a wrapper around them changes rewards or goals.
        """
        if method_name in OF_GOALS:
            self._check_unchanged()
            (function,) = self.get_attr(method_name, 0)
            return [function(*method_args, **method_kwargs) for _ in self._get_indices(indices)]
        self._all(indices)
        return list(self._bare.call(method_name, *method_args, **method_kwargs))

    def _check_unchanged(self) -> None:
        """Raise ValueError if a wrapper changes rewards or goals, and does not compute rewards itself."""
        for layer in layers(self.env):
            if hasattr(layer, COMPUTE_REWARD):
                return
            if isinstance(layer, CHANGED):
                raise ValueError(
                    f"rewards for other goals would not be {type(layer).__name__}'s, which changes rewards or goals: "
                    "leave it out (HerReplayBuffer knows Stable-Baselines3's VecNormalize), or give a wrapper outside "
                    f"of it a {COMPUTE_REWARD}"
                )

    def _all(self, indices: Indices) -> None:
        if sorted(self._get_indices(indices)) != list(range(self.num_envs)):
            raise ValueError("all worlds share one environment: this cannot be done for some of them alone")

    def env_is_wrapped(self, wrapper_class: type[gymnasium.Wrapper], indices: Indices = None) -> list[bool]:
        """Say, for each of some worlds, whether a wrapper of this class is around the environment."""
        there = any(isinstance(layer, wrapper_class) for layer in layers(self.env))
        return [there for _ in self._get_indices(indices)]

    def get_images(self) -> Sequence[np.ndarray | None]:
        """Return a picture of each of the environment's `render_worlds`."""
        if self.render_mode != "rgb_array":
            warnings.warn(f"pictures need render_mode='rgb_array', not {self.render_mode!r}", stacklevel=2)
            return [None]
        frames: Any = self.env.render()
        return list(frames)


def with_an_axis(box: Box) -> Box:
    """Return the Box of a single number with shape (1,), which Stable-Baselines3 can flatten; others unchanged."""
    return box if box.shape else Box(box.low[None], box.high[None], dtype=box.dtype.type)


def _with_masks(names: Iterable[str]) -> set[str]:
    return {x for name in names for x in (name, f"_{name}")}
