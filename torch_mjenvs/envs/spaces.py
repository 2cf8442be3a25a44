"""Gymnasium's spaces and info, of the engine's buffers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from gymnasium.spaces import Box

from .engine import Engine
from .kernels import Layout


def observation_space(engine: Engine) -> Box:
    dtype = np.float32 if engine.dtype == torch.float32 else np.float64
    return Box(-np.inf, np.inf, (engine.layout.obs,), dtype)


def action_space(engine: Engine) -> Box:
    low, high = engine.mjmodel.actuator_ctrlrange.astype(np.float32).T
    return Box(low, high, dtype=np.float32)


def named_columns(values: torch.Tensor, layout: Layout) -> Sequence[torch.Tensor]:
    """The entries of info that lie under each other in `values`, world-minor: each (N,), or (N, width) for a list."""
    widths = layout.info.values()
    if not any(widths):
        return values.unbind()
    parts = values.split([max(1, width) for width in widths])
    return [part.T if width else part[0] for width, part in zip(widths, parts, strict=True)]
