"""Rows of numbers whose parts have names: a tree of shapes, and the way from rows to named views and back."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

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

    Where `shapes` is a single shape there are no names: `split` and `join` then return what they are given.
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
        """Return rows (..., size) made of tensors (..., *shape) by name: the inverse of `split`.

        Names that `shapes` does not have are left out. Raises ValueError where one is missing.
        """
        if not self.named:
            return tree
        return torch.cat(_rows(self.shapes, tree), -1)


def _split(shapes: Tree, rows: Any, at: int) -> tuple[Tree, int]:
    if not isinstance(shapes, Mapping):
        end = at + math.prod(shapes)
        return rows[..., at:end].reshape((*rows.shape[:-1], *shapes)), end
    out = {}
    for name, inside in shapes.items():
        out[name], at = _split(inside, rows, at)
    return out, at


def _rows(shapes: Tree, tree: Tree) -> list[torch.Tensor]:
    if not isinstance(shapes, Mapping):
        lead = tree.shape[: tree.ndim - len(shapes)]
        if tree.shape != (*lead, *shapes):
            raise ValueError(f"a part of the observation must be of shape (..., {', '.join(map(str, shapes))})")
        return [tree.reshape(*lead, math.prod(shapes))]
    missing = [name for name in shapes if not isinstance(tree, Mapping) or name not in tree]
    if missing:
        names = list(tree) if isinstance(tree, Mapping) else "no names"
        raise ValueError(f"the observation must have {', '.join(map(repr, missing))}, and has {names}")
    return [x for name, inside in shapes.items() for x in _rows(inside, tree[name])]
