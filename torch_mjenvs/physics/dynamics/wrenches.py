"""Wrenches on bodies, summed over subtrees and turned into forces on the dofs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...compiler.scalar import Scalar
from ..algebra.spatial import add, dot, zeros
from ..model.data import Data
from ..model.model import Model

OfBody = Callable[[int], list[Scalar] | None]


def subtree_sums(m: Model, of: OfBody) -> list[list[Scalar] | None]:
    """Return for each body with joints the sum over it and all that it carries; None if nothing acts."""
    total: list[Any] = [None] * m.nbody
    for i in range(m.nbody - 1, 0, -1):  # a subtree's bodies come after its root
        carrier, parent = m.body_weldid[i], m.body_weldid[m.body_parentid[i]]
        if carrier == 0:
            continue
        own = of(i)
        if own:
            total[carrier] = add(total[carrier], own) if total[carrier] else own
        if carrier == i and parent > 0 and total[i]:
            total[parent] = add(total[parent], total[i]) if total[parent] else total[i]
    return total


def forces_of_wrenches(m: Model, d: Data, wrench_on: OfBody) -> list[Scalar]:
    """Return the force on each dof of (torque, force) on bodies about their tree's origin."""
    wrench = subtree_sums(m, wrench_on)
    return [dot(d.odof[v], wrench[m.dof_bodyid[v]] or zeros(6)) for v in range(m.nv)]
