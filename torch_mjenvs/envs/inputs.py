"""What users hand in, checked and made into what the engine takes. Errors speak of the user's terms."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import torch


def as_tensor(name: str, x: Any, shape: tuple[int, ...], device: torch.device) -> torch.Tensor:
    """x as a real tensor of this shape. NumPy arrays and lists may come from the host, a tensor must be on the device.

    Raises TypeError for what is not numeric, ValueError for another shape or device.
    """
    if not isinstance(x, torch.Tensor):
        x = _from_numpy(name, x, device)
    elif x.device != device:
        raise ValueError(f"{name} must be on {device}, not on {x.device}")
    if x.shape != shape:
        raise ValueError(f"{name} must be of shape {shape}, not {tuple(x.shape)}")
    if not x.dtype.is_floating_point and (x.dtype == torch.bool or x.dtype.is_complex):
        raise TypeError(f"{name} must be of real numbers, not of {x.dtype}")
    return x.detach() if x.requires_grad else x


def _from_numpy(name: str, x: Any, device: torch.device) -> torch.Tensor:
    try:
        array = np.asarray(x)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name} must be a tensor, an array or nested lists of numbers: {error}") from error
    if array.dtype.kind not in "fiu":
        raise TypeError(f"{name} must be of real numbers, not of {array.dtype}")
    return torch.from_numpy(np.array(array, dtype=np.float64)).to(device)


def as_mask(name: str, x: Any, num_envs: int, device: torch.device) -> torch.Tensor:
    """x as an (N,) bool tensor. Raises TypeError for another type, ValueError for another shape or device."""
    if isinstance(x, np.ndarray):
        if x.dtype != np.bool_:
            raise TypeError(f"{name} must have dtype=bool, not {x.dtype}")
        x = torch.from_numpy(x.copy()).to(device)
    if not isinstance(x, torch.Tensor):
        raise TypeError(f"{name} must be a tensor or a NumPy array, not {type(x)}")
    if x.dtype != torch.bool:
        raise TypeError(f"{name} must have dtype=bool, not {x.dtype}")
    if x.shape != (num_envs,):
        raise ValueError(f"{name} must have shape {(num_envs,)}, not {tuple(x.shape)}")
    if x.device != device:
        raise ValueError(f"{name} must be on {device}, not on {x.device}")
    return x


def as_seed(seed: Any) -> int:
    """A whole number from 0 on. Raises TypeError or ValueError."""
    if isinstance(seed, (bool, np.bool_)):
        raise TypeError(f"seed must be a whole number, not {seed!r}")
    try:
        seed = operator.index(seed)
    except TypeError as error:
        raise TypeError(f"seed must be a whole number, not {seed!r}") from error
    if seed < 0:
        raise ValueError(f"seed must not be negative, but is {seed}")
    return seed
