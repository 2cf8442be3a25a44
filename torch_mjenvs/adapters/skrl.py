"""The adapter for skrl, which takes tensors, and has states besides observations for a critic that sees more.

N worlds, D numbers in an observation, S in a state, A in an action.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import torch
from gymnasium.spaces import Box
from gymnasium.vector import AutoresetMode, VectorEnv
from skrl import config
from skrl.envs.wrappers.torch.base import Wrapper

from ..envs.episode_log import EpisodeMeans
from .common import Groups, bare, check, warn_off_centre


class SkrlVecEnv(Wrapper):
    """N worlds as a wrapped environment of skrl. Nothing leaves the device.

        env = SkrlVecEnv(gymnasium.make_vec("TorchAnt-v0", num_envs=4096))
        Runner(env, config).run()

    Observations (N, D) are the task's, float32; if it has groups, those that the policy sees. States (N, S) are then
    what the critic sees: set `input: STATES` in the config of the value network. `obs_groups` says which groups these
    are: {"policy": ["policy"], "critic": ["policy", "privileged"]} unless you say otherwise. Without groups there is no
        state space.

    If the task names terms of its reward, metrics or reasons for ending, info["episode"] has their numbers for skrl's
    trainers to log, as described in `wrappers.LogEpisodes`.

    `skrl.utils.set_seed`, called before this is constructed, seeds the first reset, as with skrl's own wrappers. Later
    calls of `reset` return the present observations, since the worlds reset themselves.

    Raises TypeError for anything but a `TorchVectorEnv`, and ValueError for an autoreset mode other than "NextStep" and
    for groups that the task does not have.
    """

    def __init__(self, env: VectorEnv, obs_groups: Mapping[str, Sequence[str]] | None = None):
        check(env, AutoresetMode.NEXT_STEP, type(self).__name__)
        warn_off_centre(env, type(self).__name__)
        super().__init__(env)
        self._groups = Groups(env, obs_groups)
        self._groups.seen  # noqa: B018 (refuses groups that are not there)
        self._log = EpisodeMeans(bare(env).engine)
        self._device, self._seed = bare(env).device, config.torch.key
        self._rows: dict[str, torch.Tensor] | None = None
        self._info: dict[str, Any] = {}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._env!r})"

    @property
    def observation_space(self) -> Box:
        """The space of one world's observation, (D,)."""
        return self._groups.space("policy")

    @property
    def state_space(self) -> Box | None:
        """The space of one world's state, (S,); None for a task without groups."""
        return self._groups.space("critic") if self._groups.there else None

    @property
    def action_space(self) -> gymnasium.Space[Any]:
        """The space of one world's action, (A,)."""
        return self._env.single_action_space

    def _taken(self, obs: Any) -> torch.Tensor:
        self._rows = {name: rows.float() for name, rows in self._groups.rows(obs).items()}
        return self._groups.of("policy", self._rows)

    def reset(self) -> tuple[torch.Tensor, dict[str, Any]]:
        """Return the observations (N, D) and info of a first reset; later, those of the last step."""
        if self._rows is not None:
            return self._groups.of("policy", self._rows), self._info
        obs, self._info = self._env.reset(seed=self._seed)
        return self._taken(obs), self._info

    def step(self, actions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, Any]:
        """Step all worlds under actions (N, A).

        Returns observations (N, D), rewards (N, 1), terminated and truncated (N, 1) bool, and info.
        """
        obs, reward, terminated, truncated, self._info = self._env.step(actions)
        if log := self._log.update(terminated | truncated):
            self._info["episode"] = self._info.get("episode", {}) | log
        reward, terminated, truncated = (x[:, None] for x in (reward.float(), terminated, truncated))
        return self._taken(obs), reward, terminated, truncated, self._info

    def state(self) -> torch.Tensor | None:
        """Return the states (N, S) of the last step or reset; None before, and for a task without groups."""
        if self._rows is None or not self._groups.there:
            return None
        return self._groups.of("critic", self._rows)

    def render(self, *args: Any, **kwargs: Any) -> Any:
        """Return a picture of each of the environment's `render_worlds`."""
        return self._env.render()

    def close(self) -> None:
        """Close the environment."""
        self._env.close()
