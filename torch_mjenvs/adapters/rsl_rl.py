"""The adapter for rsl_rl, which takes tensors.

N worlds, D numbers in an observation, A numbers in an action.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import torch
from gymnasium.vector import AutoresetMode, VectorEnv
from rsl_rl.env import VecEnv
from tensordict import TensorDict

from ..envs.episode_log import EpisodeMeans
from .common import Groups, bare, box, check, warn_off_centre


class RslRlVecEnv(VecEnv):
    """N worlds as rsl_rl's `VecEnv`. Nothing leaves the device.

        env = RslRlVecEnv(gymnasium.make_vec("TorchAnt-v0", num_envs=4096, autoreset_mode="SameStep"), seed=0)
        OnPolicyRunner(env, config, log_dir=None, device=env.device).learn(200)

    Observations are a TensorDict of the task's groups, (N, D) each, float32; a task without groups has one, "policy".
    config["obs_groups"] says which of them actor and critic see: {"actor": ["policy"], "critic": ["policy",
    "privileged"]}. extras["time_outs"] (N,) marks episodes that were truncated: rsl_rl adds the value of the state
    before. extras["final_obs"] has the observations from which they would have gone on. If the task names terms of its
    reward, metrics or reasons for ending, extras["log"] has their numbers, as described in `wrappers.LogEpisodes`.

    The constructor resets all worlds with `seed`. `episode_length_buf` is the environment's own count of steps; writing
    into it, as the runner's `init_at_random_ep_len` does, changes when episodes are truncated.

    Raises TypeError for anything but a `TorchVectorEnv`, and ValueError for an autoreset mode other than "SameStep".
    """

    def __init__(self, env: VectorEnv, seed: int | None = None):
        check(env, AutoresetMode.SAME_STEP, type(self).__name__)
        warn_off_centre(env, type(self).__name__)
        self.env, self._bare = env, bare(env)
        self._log = EpisodeMeans(self._bare.engine)
        self.num_envs, self.device = env.num_envs, self._bare.device
        self.num_actions = box(env.single_action_space).shape[0]
        self.cfg = asdict(self._bare.engine.task)
        self._groups = Groups(env)
        self.reset(seed)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.env!r})"

    def reset(self, seed: int | None = None) -> tuple[TensorDict, dict[str, Any]]:
        """Start new episodes in all worlds; return their observations, and no extras. rsl_rl itself never calls it."""
        self._obs = self._named(self.env.reset(seed=seed)[0])
        return self._obs, {}

    def _named(self, obs: Any) -> TensorDict:
        groups = {name: rows.float() for name, rows in self._groups.rows(obs).items()}
        return TensorDict(groups, [self.num_envs], device=self.device)

    @property
    def max_episode_length(self) -> int:
        """The number of steps after which an episode is truncated. Raises ValueError if there is no limit."""
        limit = self._bare.engine.max_episode_steps
        if limit is None:
            raise ValueError("episodes have no largest length: make the environment with max_episode_steps")
        return limit

    @property
    def episode_length_buf(self) -> torch.Tensor:
        """Steps since each world's last reset, (N,) int32, in the environment's own memory."""
        return self._bare.elapsed_steps

    @episode_length_buf.setter
    def episode_length_buf(self, steps: torch.Tensor) -> None:
        self._bare.elapsed_steps.copy_(steps)

    def get_observations(self) -> TensorDict:
        """Return the observations of the last step, or of the first reset."""
        return self._obs

    def step(self, actions: torch.Tensor) -> tuple[TensorDict, torch.Tensor, torch.Tensor, dict[str, Any]]:
        """Step all worlds under actions (N, A).

        Returns observations, rewards (N,), flags of the episodes that ended (N,) int64, and extras.
        """
        obs, reward, terminated, truncated, info = self.env.step(actions)
        self._obs = self._named(obs)
        extras = {"time_outs": truncated & ~terminated, "final_obs": self._named(info["final_obs"])}
        ended = terminated | truncated
        if log := self._log.update(ended):
            extras["log"] = log
        return self._obs, reward.float(), ended.long(), extras

    def close(self) -> None:
        """Close the environment."""
        self.env.close()
