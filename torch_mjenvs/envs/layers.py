"""The wrappers around an environment, one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gymnasium.vector import VectorEnv

from .to_numpy import TorchToNumpy


def layers(env: VectorEnv) -> Iterator[Any]:
    """Yield the wrappers of an environment from the outside in, and then the environment itself."""
    layer: Any = env
    while layer is not env.unwrapped:
        yield layer
        layer = layer.env
    yield layer


def refuse_arrays(env: VectorEnv, user: str) -> None:
    """Raise TypeError if a wrapper makes NumPy's arrays, or another library's, of the tensors that `user` is to get."""
    for layer in layers(env):
        target = getattr(layer, "_target_xp", None)  # of Gymnasium's ArrayConversion
        if target is not None and "torch" in target.__name__:
            return
        if target is not None or isinstance(layer, TorchToNumpy):
            raise TypeError(
                f"{user} works on tensors, and {type(layer).__name__} inside it gives arrays: leave it out, or put it "
                "around the outside"
            )
