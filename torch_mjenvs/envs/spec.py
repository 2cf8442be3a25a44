"""Gymnasium's EnvSpec in a form that can be written as JSON, and from which the environment can be made again."""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from typing import Any

import numpy as np
import torch
from gymnasium.envs.registration import EnvSpec

from .randomization import Draw


def telling(spec: EnvSpec | None, **truths: Any) -> EnvSpec | None:
    """Return the spec that `make` or `make_vec` hands over, with arguments that JSON can hold, and these fields
    changed.
    """
    if spec is None:
        return None
    return replace(spec, kwargs={name: _plain(x) for name, x in spec.kwargs.items()}, **truths)


def _plain(x: Any) -> Any:
    """Return a constructor's argument in a form that JSON can hold and the constructor takes as well."""
    if isinstance(x, torch.dtype):
        return str(x).removeprefix("torch.")
    if isinstance(x, torch.device):
        return str(x)
    if isinstance(x, Enum):
        return x.value
    if isinstance(x, Draw):
        return x.as_json()
    if isinstance(x, dict):
        return {name: _plain(y) for name, y in x.items()}
    return x.item() if isinstance(x, np.generic) else x
