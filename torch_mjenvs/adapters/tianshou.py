"""The adapter for Tianshou, which takes NumPy arrays, may step only some of the worlds, and resets ended ones itself.

N worlds, R of them in a call, D numbers in an observation, A numbers in an action.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Any

import numpy as np
import torch
from gymnasium.vector import AutoresetMode, VectorEnv
from tianshou.env.venvs import BaseVectorEnv

from ..envs.layers import layers
from ..envs.parts import mapped
from ..envs.wrappers import TorchVectorWrapper
from .common import attributes, bare, box, check, check_bounded, dicts

Ids = int | Sequence[int] | np.ndarray | None
SINGLE = {"action_space": "single_action_space", "observation_space": "single_observation_space"}


class TianshouVectorEnv(BaseVectorEnv):
    """N worlds as Tianshou's `BaseVectorEnv`, as its DummyVectorEnv would give them.

        env = TianshouVectorEnv(gymnasium.make_vec("TorchHopper-v0", num_envs=64, autoreset_mode="Disabled"))
        Collector(algorithm, env, VectorReplayBuffer(100_000, 64)).collect(n_step=6400, reset_before_collect=True)

    info is an array of R dicts. Each has "env_id"; those of worlds that ended also have the info of the episode's last
    step (filling all dicts would take longer than the step). Worlds that a step leaves out are unchanged. Seeds are
    Tianshou's: `seed(s)` resets all worlds, world i as a lone world with seed s + i. As all worlds share one
    environment, attributes are set for all of them.

    A task that names its observations gives an array of R dicts, nested if there are groups: networks see a Batch.

    Of the wrappers in `torch_mjenvs.wrappers`, those without a state may be around the environment. The others would
    count the worlds that a step leaves out: put Tianshou's own `VectorEnvNormObs` around this instead.

    Raises TypeError for anything but a `TorchVectorEnv`, and for a wrapper with a state; ValueError for an autoreset
    mode other than "Disabled", and for actions without bounds, since Tianshou's policies scale theirs to them.
    """

    def __init__(self, env: VectorEnv):
        check(env, AutoresetMode.DISABLED, type(self).__name__)
        self.env, self._bare = env, bare(env)
        self._refuse_what_keeps()
        check_bounded(env, type(self).__name__)
        self.env_num = self.wait_num = env.num_envs
        self.timeout, self.is_async, self.is_closed = None, False, False
        self.waiting_id: list[int] = []
        self.ready_id = list(range(self.env_num))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.env!r})"

    def _refuse_what_keeps(self) -> None:
        for layer in layers(self.env):
            if layer is not self._bare and (not isinstance(layer, TorchVectorWrapper) or layer._state()):
                raise TypeError(
                    f"{type(layer).__name__} keeps something of every world, and Tianshou steps some of them alone: "
                    "put Tianshou's own wrapper around the adapter instead"
                )

    def reset(self, env_id: Ids = None, **kwargs: Any) -> tuple[np.ndarray, Any]:
        """Start new episodes in some worlds, or all; with `seed`, one seed for each of them.

        Returns observations (R, D) and info.
        """
        self._assert_is_not_closed()
        ids, mask = self._chosen(env_id)
        seed = kwargs.get("seed")
        chosen = mask.tolist()
        seeds = None if seed is None else [seed if there else None for there in chosen]
        return self._reset(ids, mask, seeds)

    def _reset(self, ids: np.ndarray, mask: torch.Tensor, seeds: list[int | None] | None) -> tuple[np.ndarray, Any]:
        # A mask of all worlds is dropped: the first reset has to be without one.
        options = None if bool(mask.all()) else {"reset_mask": mask}
        obs, _ = self.env.reset(seed=seeds, options=options)  # type: ignore[arg-type]
        return _rows(obs, ids), _named(ids)

    def _chosen(self, given: Ids) -> tuple[np.ndarray, torch.Tensor]:
        """Return the numbers of the worlds that a call names (all for None), and their (N,) bool mask."""
        ids = np.atleast_1d(np.arange(self.env_num) if given is None else np.asarray(given, dtype=np.int64))
        mask = torch.zeros(self.env_num, dtype=torch.bool, device="cpu")
        mask[torch.from_numpy(ids)] = True
        return ids, mask.to(self._bare.device)

    def step(
        self, action: np.ndarray | torch.Tensor | None, id: Ids = None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, Any]:
        """Step some worlds, or all, under actions (R, A), in the order of `id`.

        Returns observations (R, D), rewards, terminated and truncated (R,), and info.
        """
        self._assert_is_not_closed()
        ids, mask = self._chosen(id)
        bare, engine = self._bare, self._bare.engine
        given = torch.as_tensor(action, dtype=bare.dtype, device=bare.device)
        actions = torch.zeros(
            self.env_num, *box(self.env.single_action_space).shape, dtype=bare.dtype, device=bare.device
        )
        if given.shape != (len(ids), *actions.shape[1:]):
            raise ValueError(f"action must be of shape {(len(ids), *actions.shape[1:])}, not {tuple(given.shape)}")
        actions[torch.from_numpy(ids)] = given
        before = None if len(ids) == self.env_num else bare.state_dict()
        if before is not None:
            engine.done.masked_fill_(~mask, False)  # worlds that are left out may have ended, and stay ended
        try:
            *results, info = self.env.step(actions)
        except BaseException:
            if before is not None:
                engine.done.copy_(before["done"].view_as(engine.done))
            raise
        if before is not None:
            after = bare.state_dict()
            for name, x in after.items():
                x.copy_(torch.where(mask.view(-1, *[1] * (x.ndim - 1)), x, before[name]))
            bare.load_state_dict(after)
        obs, (reward, terminated, truncated) = _rows(results[0], ids), (x.cpu().numpy()[ids] for x in results[1:])
        infos = _named(ids)
        ended = np.flatnonzero(terminated | truncated)
        if len(ended):
            for k, told in zip(ended, dicts(info, torch.from_numpy(ids[ended]).to(bare.device)), strict=True):
                infos[k] |= told
        return obs, reward, terminated, truncated, infos

    def seed(self, seed: int | list[int] | None = None) -> list[list[int] | None]:
        """Reset all worlds with seeds s, s + 1, ..., or with the seeds of a list."""
        self._assert_is_not_closed()
        seeds: list[int | None] = [None] * self.env_num
        if seed is not None:
            seeds = [seed + i for i in range(self.env_num)] if isinstance(seed, int) else list(seed)
        self.env.single_action_space.seed(seeds[0])
        self.env.reset(seed=None if seed is None else seeds)  # type: ignore[arg-type]
        return [None if x is None else [x] for x in seeds]

    def get_env_attr(self, key: str, id: Ids = None) -> list[Any]:
        """Return an attribute of some worlds, a value for each: of a tensor (N, ...) its row.

        A space is that of one world; a method is returned, not called.
        """
        self._assert_is_not_closed()
        return attributes(self.env, SINGLE.get(key, key), self._chosen(id)[0].tolist())

    def set_env_attr(self, key: str, value: Any, id: Ids = None) -> None:
        """Set an attribute, as `TorchVectorEnv.set_attr`. Raises ValueError for some of the worlds alone."""
        self._assert_is_not_closed()
        if len(set(self._chosen(id)[0].tolist())) < self.env_num:
            raise ValueError("all worlds share one environment: an attribute cannot be set for some of them alone")
        self._bare.set_attr(key, value)

    def render(self, **kwargs: Any) -> list[Any]:
        """Return a picture of each of the environment's `render_worlds`."""
        self._assert_is_not_closed()
        return list(self.env.render() or ())

    def close(self) -> None:
        """Close the environment."""
        self._assert_is_not_closed()
        self.env.close()
        self.is_closed = True


def _rows(obs: Any, ids: np.ndarray) -> np.ndarray:
    """Return the observations of these worlds, (R, D); if they have names, an array of R dicts, as in Tianshou's."""
    if not isinstance(obs, dict):
        rows: np.ndarray = obs.cpu().numpy()[ids]
        return rows
    there = mapped(lambda x: x.cpu().numpy(), obs)
    rows = np.empty(len(ids), object)
    rows[:] = [mapped(itemgetter(i), there) for i in ids]
    return rows


def _named(ids: np.ndarray) -> np.ndarray:
    """Return an array of one dict for each world, with its "env_id"."""
    infos = np.empty(len(ids), object)
    infos[:] = [{"env_id": i} for i in ids]
    return infos
