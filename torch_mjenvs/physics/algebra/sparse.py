"""A sparse row over the dofs: one row of a Jacobian, of which most entries are 0 in every state."""

from __future__ import annotations

from ...compiler.scalar import Scalar
from .spatial import Vec

Row = dict[int, Scalar]  # {dof: entry}


def row_times(row: Row, x: Vec) -> Scalar:
    """The product of a row and a vector (nv)."""
    total: Scalar = 0.0
    for v, entry in row.items():
        total = total + entry * x[v]
    return total
