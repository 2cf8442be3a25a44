"""What all adapters ask of the environment that they go around."""

from __future__ import annotations

from typing import Any

import torch
from gymnasium.spaces import Box
from gymnasium.vector import AutoresetMode, VectorEnv

from ..envs.vector_env import TorchVectorEnv


def bare(env: VectorEnv) -> TorchVectorEnv:
    """The environment within its wrappers."""
    inner = env.unwrapped
    assert isinstance(inner, TorchVectorEnv)
    return inner


def check(env: VectorEnv, mode: AutoresetMode, adapter: str) -> None:
    """Raises TypeError for what is no `TorchVectorEnv`, ValueError for one that was made otherwise than is needed."""
    if not isinstance(env, VectorEnv) or not isinstance(env.unwrapped, TorchVectorEnv):
        raise TypeError(f"{adapter} goes around a TorchVectorEnv and wrappers of it, not around {env}")
    if env.unwrapped.autoreset_mode is not mode:
        raise ValueError(f"{adapter} needs an environment made with autoreset_mode={mode.value!r}")
    if not env.unwrapped.copy:
        raise ValueError(f"{adapter} hands on what a step gives, which with copy=False the next step would overwrite")


def box(space: object) -> Box:
    """A space that is a Box, as all of this package's are."""
    assert isinstance(space, Box)
    return space


def dicts(info: dict[str, Any], worlds: torch.Tensor) -> list[dict[str, Any]]:
    """The entries of `info` that these worlds gave, as a dict for each."""
    dicts: list[dict[str, Any]] = [{} for _ in range(len(worlds))]
    for name, x in info.items():
        mask = info.get(f"_{name}")
        if mask is None:  # a mask itself
            continue
        given = mask[worlds].tolist()
        rows = _inner(x, worlds) if isinstance(x, dict) else _values(x[worlds])
        for entries, row, there in zip(dicts, rows, given, strict=True):
            if there:
                entries[name] = row
    return dicts


def _inner(x: dict[str, torch.Tensor], worlds: torch.Tensor) -> list[dict[str, Any]]:
    """As `dicts`, of a dict without masks."""
    columns = {name: _values(y[worlds]) for name, y in x.items()}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _values(x: torch.Tensor) -> list[Any]:
    """Python numbers, or arrays where a world has several."""
    return x.tolist() if x.ndim == 1 else list(x.cpu().numpy())
