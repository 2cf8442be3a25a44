"""The adapter for rl_games, which takes tensors.

N worlds (rl_games' actors), D numbers in an observation, A numbers in an action.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from gymnasium.spaces import Box
from gymnasium.vector import AutoresetMode, VectorEnv
from rl_games.common import env_configurations, vecenv
from rl_games.common.ivecenv import IVecEnv

from ..checks import as_seed
from ..envs.episode_log import EpisodeMeans
from .common import Groups, bare, check, check_bounded


class RlGamesVecEnv(IVecEnv):
    """N worlds as rl_games' `IVecEnv`. Nothing leaves the device.

        RlGamesVecEnv.register("hopper", lambda num_envs, **config: gymnasium.make_vec(
            "TorchHopper-v0", num_envs=num_envs, autoreset_mode="SameStep", **config))

    Then config["env_name"] = "hopper" names it, `num_actors` is the number of worlds, and `env_config` is passed on to
    `make`. infos["time_outs"] (N,) marks episodes that were truncated: if the config has `value_bootstrap: True`,
    rl_games adds the value of the state before. infos["final_obs"] has the observations from which they would have gone
    on. If the task names terms of its reward, metrics or reasons for ending, infos["episode"] has their numbers, as
    described in `wrappers.LogEpisodes`.

    Observations are (N, D); if the task has groups, they are a dict: "obs" is what the policy sees, and "states" what a
    central value network sees (`central_value_config`). `obs_groups` says which groups these are: {"policy":
    ["policy"], "critic": ["policy", "privileged"]} unless you say otherwise.

    The first reset uses `seed`, which rl_games hands over if its config has `env_config`. Its checkpoints hold the
    worlds' state.

    Raises TypeError for anything but a `TorchVectorEnv`, and ValueError for an autoreset mode other than "SameStep",
    for actions without bounds, and for groups that the task does not have.
    """

    def __init__(self, env: VectorEnv, seed: int | None = None, obs_groups: Mapping[str, Sequence[str]] | None = None):
        check(env, AutoresetMode.SAME_STEP, type(self).__name__)
        check_bounded(env, type(self).__name__)
        self.env, self._bare, self._seed = env, bare(env), seed
        self._log = EpisodeMeans(self._bare.engine)
        self._groups = Groups(env, obs_groups)
        space = env.single_observation_space
        self.observation_space = space if isinstance(space, Box) else self._groups.space("policy")
        self.action_space = env.single_action_space

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.env!r})"

    @classmethod
    def register(cls, name: str, make: Callable[..., VectorEnv]) -> None:
        """Register `make(num_envs, **env_config)` with rl_games under this name."""

        def create(num_envs: int, seed: int | None = None, **config: Any) -> RlGamesVecEnv:
            return cls(make(num_envs, **config), seed)

        vecenv.register(name, lambda config_name, num_actors, **config: create(num_actors, **config))
        # A player that is not told to `use_vecenv` makes a single world by itself.
        env_configurations.register(name, {"vecenv_type": name, "env_creator": lambda **config: create(1, **config)})

    def get_env_info(self) -> dict[str, Any]:
        """Return the observation space and action space of one world, by name."""
        spaces = {"observation_space": self.observation_space, "action_space": self.action_space}
        return spaces | ({"state_space": self._groups.space("critic")} if self._groups.there else {})

    def _given(self, obs: Any) -> Any:
        # Bytes stay bytes, as the space says: rl_games divides pictures by 255 then, and only then.
        rows = {name: x if x.dtype == torch.uint8 else x.float() for name, x in self._groups.rows(obs).items()}
        if not self._groups.there:
            return rows["policy"]
        return {"obs": self._groups.of("policy", rows), "states": self._groups.of("critic", rows)}

    def seed(self, seed: int) -> None:
        """Make the next reset use this seed."""
        self._seed = None if seed is None else as_seed(seed)

    def reset(self) -> Any:
        """Start new episodes in all worlds, and return their observations (N, D), float32, pictures as bytes; if the
        task has groups, a dict of two such tensors, "obs" and "states".
        """
        seed, self._seed = self._seed, None
        return self._given(self.env.reset(seed=seed)[0])

    def step(self, actions: torch.Tensor) -> tuple[Any, torch.Tensor, torch.Tensor, dict[str, Any]]:
        """Step all worlds under actions (N, A).

        Returns observations as `reset` does, rewards (N,), flags of the episodes that ended (N,) uint8, and infos.
        """
        obs, reward, terminated, truncated, info = self.env.step(actions)
        infos = {"time_outs": truncated & ~terminated, "final_obs": self._given(info["final_obs"])}
        ended = terminated | truncated
        if log := self._log.update(ended):
            infos["episode"] = log
        return self._given(obs), reward.float(), ended.to(torch.uint8), infos

    def get_env_state(self) -> dict[str, torch.Tensor]:
        """Return the state of all worlds, from which `set_env_state` continues, bit for bit."""
        state: dict[str, torch.Tensor] = self.env.state_dict()  # type: ignore[attr-defined]
        return state

    def set_env_state(self, env_state: dict[str, torch.Tensor] | None) -> None:
        """Continue from the state in a checkpoint; None, from a checkpoint without one, changes nothing.

        A state of another number of worlds, as when a player's one world shows a policy of many, changes nothing but
        what wrappers learnt of all worlds, such as means of observations. A warning says so.
        """
        if env_state is None:
            return
        worlds = next(len(x) for name, x in env_state.items() if name.endswith("qpos"))
        if worlds != self._bare.num_envs:
            warnings.warn(
                f"the checkpoint has the states of {worlds} worlds, and here are {self._bare.num_envs}, which go on "
                "with their own episodes",
                stacklevel=2,
            )
            env_state = self._own_worlds_in(env_state)
        self.env.load_state_dict(env_state)  # type: ignore[attr-defined]

    def _own_worlds_in(self, state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Return a state in which everything that has a row for each world is this environment's own."""
        own, of_worlds = self.get_env_state(), self._bare.state_dict()
        return {
            name: x if name.replace("env.", "") in of_worlds or state[name].shape != x.shape else state[name]
            for name, x in own.items()
        }

    def render(self, **options: Any) -> Any:
        """Return a picture of each of the environment's `render_worlds`."""
        return self.env.render()

    def close(self) -> None:
        """Close the environment."""
        self.env.close()
