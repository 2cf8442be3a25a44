"""Gymnasium's spaces for the engine's buffers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.spaces import Box, Dict

from .engine import Engine
from .parts import Parts, Tree


def observation_space(engine: Engine, parts: Parts) -> Box | Dict:
    """Return the space of one world's observation in these parts, without bounds, in the engine's dtype.

    A Box; where the parts have names, a Dict of such spaces in the task's order.
    """
    dtype = np.float32 if engine.dtype == torch.float32 else np.float64
    return _space(parts.shapes, dtype)


def _space(shapes: Tree, dtype: Any) -> Any:
    if isinstance(shapes, Mapping):
        return Dict({name: _space(inside, dtype) for name, inside in shapes.items()}, sort_keys=False)
    return Box(-np.inf, np.inf, shapes, dtype)


def each_box(space: gymnasium.Space[Any], change: Callable[[Box], Box], owner: object) -> Any:
    """Return a space of the same names with `change` applied to every Box. Raises TypeError for other spaces."""
    if isinstance(space, Dict):
        return Dict({name: each_box(x, change, owner) for name, x in space.items()}, sort_keys=False)
    if not isinstance(space, Box):
        raise TypeError(f"{type(owner).__name__} takes observations of a Box, or of a Dict of them, not of {space}")
    return change(space)


def by_alphabet(space: Any) -> Any:
    """Return the same space with the names of each Dict in alphabetical order."""
    if isinstance(space, Dict):
        return Dict({name: by_alphabet(inside) for name, inside in space.items()}, sort_keys=True)
    return space


def boxes(space: gymnasium.Space[Any]) -> list[Box]:
    """Return the Boxes of a space, in order."""
    if isinstance(space, Dict):
        return [box for inside in space.values() for box in boxes(inside)]
    assert isinstance(space, Box)
    return [space]


def in_dtypes_of(space: gymnasium.Space[Any], tree: Tree) -> Tree:
    """Return observations, tensors or arrays, in the dtypes of their space.

    They lose them in a row of numbers: the bytes of pictures beside a state become floating-point numbers there.
    """
    if isinstance(space, Dict):
        return {name: in_dtypes_of(inside, tree[name]) for name, inside in space.items()}
    if isinstance(tree, np.ndarray):
        return tree.astype(space.dtype, copy=False)
    return tree.to(torch.from_numpy(np.empty(0, space.dtype)).dtype)


def parts_of(space: gymnasium.Space[Any]) -> Parts:
    """Return the parts that observations of this space consist of; of a space without names, one."""
    return Parts(_shapes(space))


def _shapes(space: gymnasium.Space[Any]) -> Tree:
    if isinstance(space, Dict):
        return {name: _shapes(inside) for name, inside in space.items()}
    return space.shape or ()


def action_space(engine: Engine) -> Box:
    """Return the space of one world's action, (A,) float32, between the bounds that the task gives."""
    bounds = np.array(engine.layout.bounds, np.float32).reshape(-1, 2)
    return Box(bounds[:, 0], bounds[:, 1], dtype=np.float32)
