"""NumPy around an environment of tensors: a wrapper that converts, and the error for wrappers that need it."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from types import FrameType
from typing import Any

import numpy as np
import torch
from gymnasium.vector import VectorEnv, VectorWrapper

# Gymnasium's vector wrappers that compute in NumPy, and the wrappers that this package has for tensors.
OURS = {"NormalizeObservation", "NormalizeReward", "RecordEpisodeStatistics"}
IN_NUMPY = OURS | {
    "DictInfoToList", "GrayscaleObservation", "RescaleObservation", "ReshapeObservation", "ResizeObservation",
}  # fmt: skip
OURS |= {"DtypeObservation", "FlattenObservation", "RescaleAction"}


class TorchToNumpy(VectorWrapper):
    """Returns NumPy arrays, and takes them as actions: for code that does not work on tensors, such as Gymnasium's
    wrappers.

        env = gymnasium.wrappers.vector.DictInfoToList(wrappers.TorchToNumpy(env))

    Tensors in `info` become arrays, too; other values are left as they are. On a GPU every step waits for the device.
    """

    def __init__(self, env: VectorEnv):
        super().__init__(env)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start new episodes, as the environment's `reset`; a "reset_mask" of the options may be an array."""
        obs, info = self.env.reset(seed=seed, options=options)  # type: ignore[arg-type]
        return as_arrays(obs), as_arrays(info)

    def step(self, actions: Any) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Step every world under actions (N, A)."""
        obs, reward, terminated, truncated, info = map(as_arrays, self.env.step(actions))
        return obs, reward, terminated, truncated, info


def as_arrays(x: Any) -> Any:
    """Return a tensor, or nested dicts of them, as arrays on the host; anything else as it is."""
    if isinstance(x, torch.Tensor):
        return x.cpu().numpy()
    return {name: as_arrays(y) for name, y in x.items()} if isinstance(x, Mapping) else x


def refuse_wrappers_in_numpy() -> None:
    """Raise TypeError if the method that calls this was called by a wrapper of Gymnasium's that computes in NumPy.

    An environment does not know its wrappers, and such a wrapper fails only within its own step, with an error that
    does not explain itself. So this looks at the callers: each wrapper's `reset` calls that of the one inside.
    """
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code.co_name in ("reset", "watched"):  # `exclusive` makes "watched"
        wrapper = frame.f_locals.get("self")
        module = "gymnasium.wrappers.vector"
        kinds = {x.__name__ for x in type(wrapper).__mro__ if x.__module__.startswith(module)}
        if isinstance(wrapper, TorchToNumpy) or "ArrayConversion" in kinds:
            return
        # Wrappers that call a single environment's wrapper write into the observations that they get if the space stays
        # the same.
        if kinds & IN_NUMPY or (kinds and getattr(wrapper, "same_out", False)):
            name = type(wrapper).__name__
            ours = f"use torch_mjenvs.wrappers.{name}, or " if name in OURS else ""
            raise TypeError(
                f"{module}.{name} computes in NumPy, and this environment gives tensors: {ours}put "
                "torch_mjenvs.wrappers.TorchToNumpy(env) in between"
            )
        frame = frame.f_back
