"""Gymnasium's record of how an environment was made, so that it can be read, written as JSON and made from again."""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from typing import Any

import numpy as np
import torch
from gymnasium.envs.registration import EnvSpec


def telling(spec: EnvSpec | None, **truths: Any) -> EnvSpec | None:
    """The spec that `make` or `make_vec` hands over, with its arguments as JSON has them, and with these fields."""
    if spec is None:
        return None
    return replace(spec, kwargs={name: _plain(x) for name, x in spec.kwargs.items()}, **truths)


def _plain(x: Any) -> Any:
    """A constructor's argument as a string or number that it takes, too."""
    if isinstance(x, torch.dtype):
        return str(x).removeprefix("torch.")
    if isinstance(x, torch.device):
        return str(x)
    if isinstance(x, Enum):
        return x.value
    return x.item() if isinstance(x, np.generic) else x
