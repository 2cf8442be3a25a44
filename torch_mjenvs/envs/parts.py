"""Rows of numbers whose parts have names: a tree of shapes, and conversion from rows to named views and back."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

Shape = tuple[int, ...]
Tree = Any  # a leaf (a shape, a tensor, an array), or a dict of such trees by name


def mapped(function: Callable[[Any], Any], tree: Tree) -> Tree:
    """Return a tree of the same names with `function` applied to every leaf."""
    if isinstance(tree, Mapping):
        return {name: mapped(function, x) for name, x in tree.items()}
    return function(tree)


def leaves(tree: Tree) -> list[Any]:
    """Return the leaves of a tree, in order."""
    return [y for x in tree.values() for y in leaves(x)] if isinstance(tree, Mapping) else [tree]


class Parts:
    """The named parts of a row of numbers, in order: `shapes` is a dict of shapes by name, or of such dicts.

    If `shapes` is a single shape, there are no names: `split` and `join` then return what they are given.
    """

    def __init__(self, shapes: Tree):
        self.shapes = shapes
        self.named = isinstance(shapes, Mapping)
        self.size = sum(map(math.prod, leaves(shapes)))  # numbers in a row
        self.row_shape: Shape = (self.size,) if self.named else tuple(shapes)

    def split(self, rows: Any) -> Tree:
        """Return the parts of rows (..., size), a tensor or an array, by name: views (..., *shape) of them."""
        return _split(self.shapes, rows, 0)[0] if self.named else rows

    def join(self, tree: Tree) -> Any:
        """Return rows (..., size) made of tensors or arrays (..., *shape) by name: the inverse of `split`.

        A dict may be given as its rows. Names that are not in `shapes` are ignored. Raises ValueError if one is
        missing.
        """
        if not self.named:
            return tree
        rows = _rows(self.shapes, tree)
        if len(rows) == 1:
            return rows[0]
        return torch.cat(rows, -1) if isinstance(rows[0], torch.Tensor) else np.concatenate(rows, -1)

    def columns(self, names: Sequence[str]) -> list[int]:
        """Return the columns of these parts in a row, one part after the other, in the order of `names`."""
        places, at = {}, 0
        for name, inside in self.shapes.items():
            size = sum(map(math.prod, leaves(inside)))
            places[name] = range(at, at + size)
            at += size
        return [i for name in names for i in places[name]]


def _split(shapes: Tree, rows: Any, at: int) -> tuple[Tree, int]:
    if not isinstance(shapes, Mapping):
        end = at + math.prod(shapes)
        return rows[..., at:end].reshape((*rows.shape[:-1], *shapes)), end
    out = {}
    for name, inside in shapes.items():
        out[name], at = _split(inside, rows, at)
    return out, at


def _rows(shapes: Tree, tree: Tree) -> list[Any]:
    if not isinstance(tree, Mapping):
        tree = tree if isinstance(tree, torch.Tensor) else np.asarray(tree)
        shape = (sum(map(math.prod, leaves(shapes))),) if isinstance(shapes, Mapping) else shapes
        lead = tree.shape[: max(0, tree.ndim - len(shape))]
        if tree.shape != (*lead, *shape):
            raise ValueError(f"an observation of shape (..., {', '.join(map(str, shape))}), not {tuple(tree.shape)}")
        return [tree.reshape(*lead, math.prod(shape))]
    missing = [name for name in shapes if name not in tree] if isinstance(shapes, Mapping) else ["numbers"]
    if missing:
        raise ValueError(f"the observation must have {', '.join(map(repr, missing))}, and has {list(tree)}")
    return [x for name, inside in shapes.items() for x in _rows(inside, tree[name])]
