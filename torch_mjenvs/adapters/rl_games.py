"""For rl_games, which takes tensors.

N worlds (rl_games' actors), D numbers in an observation, nu actuators.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from gymnasium.vector import AutoresetMode, VectorEnv
from rl_games.common import env_configurations, vecenv
from rl_games.common.ivecenv import IVecEnv

from .common import bare, check


class RlGamesVecEnv(IVecEnv):
    """N worlds as rl_games' `IVecEnv`. Nothing leaves the device.

        RlGamesVecEnv.register("hopper", lambda num_envs, **config: gymnasium.make_vec(
            "TorchHopper-v0", num_envs=num_envs, autoreset_mode="SameStep", **config))

    Then config["env_name"] = "hopper" names it, `num_actors` is the number of worlds, and `env_config` what `make` is
    given. infos["time_outs"] (N,) marks episodes that were only cut off, to which rl_games adds the value of what came
    before where the config says `value_bootstrap: True`; infos["final_obs"] has what these would have gone on from.

    The first reset is with `seed`, which rl_games hands over where `env_config` is in its config. Its checkpoints hold
    the worlds' state.

    Raises TypeError for what is no `TorchVectorEnv`, ValueError for another autoreset mode than "SameStep".
    """

    def __init__(self, env: VectorEnv, seed: int | None = None):
        check(env, AutoresetMode.SAME_STEP, type(self).__name__)
        self.env, self._bare, self._seed = env, bare(env), seed
        self.observation_space, self.action_space = env.single_observation_space, env.single_action_space

    @classmethod
    def register(cls, name: str, make: Callable[..., VectorEnv]) -> None:
        """Have rl_games find `make(num_envs, **env_config)` by this name."""

        def create(num_envs: int, seed: int | None = None, **config: Any) -> RlGamesVecEnv:
            return cls(make(num_envs, **config), seed)

        vecenv.register(name, lambda config_name, num_actors, **config: create(num_actors, **config))
        # A player that is not told to `use_vecenv` makes a single world by itself.
        env_configurations.register(name, {"vecenv_type": name, "env_creator": lambda **config: create(1, **config)})

    def get_env_info(self) -> dict[str, Any]:
        """The spaces of one world."""
        return {"observation_space": self.observation_space, "action_space": self.action_space}

    def seed(self, seed: int) -> None:
        """Have the next reset begin with this seed."""
        self._seed = seed

    def reset(self) -> torch.Tensor:
        """Observations (N, D) of new episodes in all worlds, float32."""
        seed, self._seed = self._seed, None
        return self.env.reset(seed=seed)[0].float()

    def step(self, actions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, dict[str, Any]]:
        """One step under actions (N, nu): observations (N, D), reward (N,), whether episodes ended (N,), and infos."""
        obs, reward, terminated, truncated, info = self.env.step(actions)
        infos = {"time_outs": truncated & ~terminated, "final_obs": info["final_obs"].float()}
        return obs.float(), reward.float(), (terminated | truncated).to(torch.uint8), infos

    def get_env_state(self) -> dict[str, torch.Tensor]:
        """What `set_env_state` goes on from, bit for bit."""
        return self.env.state_dict()  # type: ignore[attr-defined]

    def set_env_state(self, env_state: dict[str, torch.Tensor] | None) -> None:
        """Go on from a checkpoint; None, of another environment's checkpoint, changes nothing."""
        if env_state is not None:
            self.env.load_state_dict(env_state)  # type: ignore[attr-defined]

    def render(self, **options: Any) -> Any:
        """A picture of each of the environment's `render_worlds`."""
        return self.env.render()

    def close(self) -> None:
        """Close the environment."""
        self.env.close()
