"""Gymnasium's spaces for the engine's buffers."""

from __future__ import annotations

import numpy as np
import torch
from gymnasium.spaces import Box

from .engine import Engine


def observation_space(engine: Engine) -> Box:
    """Return the space of one world's observation, (D,), without bounds, in the engine's dtype."""
    dtype = np.float32 if engine.dtype == torch.float32 else np.float64
    return Box(-np.inf, np.inf, (engine.layout.obs,), dtype)


def action_space(engine: Engine) -> Box:
    """Return the space of one world's action, (A,) float32, between the bounds that the task gives."""
    bounds = np.array(engine.layout.bounds, np.float32).reshape(-1, 2)
    return Box(bounds[:, 0], bounds[:, 1], dtype=np.float32)
