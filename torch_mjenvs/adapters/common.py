"""Checks and conversions that all adapters share."""

from __future__ import annotations

from typing import Any

import torch
from gymnasium.spaces import Box
from gymnasium.vector import AutoresetMode, VectorEnv

from ..envs.vector_env import TorchVectorEnv


def bare(env: VectorEnv) -> TorchVectorEnv:
    """Return the `TorchVectorEnv` inside of any wrappers."""
    inner = env.unwrapped
    assert isinstance(inner, TorchVectorEnv)
    return inner


def check(env: VectorEnv, mode: AutoresetMode, adapter: str) -> None:
    """Raise TypeError unless `env` is a `TorchVectorEnv`, ValueError for another autoreset mode or copy=False."""
    if not isinstance(env, VectorEnv) or not isinstance(env.unwrapped, TorchVectorEnv):
        raise TypeError(f"{adapter} goes around a TorchVectorEnv and wrappers of it, not around {env}")
    if env.unwrapped.autoreset_mode is not mode:
        raise ValueError(f"{adapter} needs an environment made with autoreset_mode={mode.value!r}")
    if not env.unwrapped.copy:
        raise ValueError(f"{adapter} hands on what a step gives, which with copy=False the next step would overwrite")


def box(space: object) -> Box:
    """Return a space that is known to be a Box, as all of this package's are, typed as one."""
    assert isinstance(space, Box)
    return space


def dicts(info: dict[str, Any], worlds: torch.Tensor) -> list[dict[str, Any]]:
    """Return a dict for each of these worlds, with the entries of `info` that the world gave."""
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
    """Return a dict for each of these worlds, made from a dict of (N,) tensors that has no masks."""
    columns = {name: _values(y[worlds]) for name, y in x.items()}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _values(x: torch.Tensor) -> list[Any]:
    """Return a list of Python numbers, or of arrays where a world has several numbers."""
    return x.tolist() if x.ndim == 1 else list(x.cpu().numpy())
