"""Sparse rows over the dofs, such as a row of a Jacobian: {dof: entry}, without the entries that are always 0."""

from __future__ import annotations

from ...compiler.scalar import Scalar
from .spatial import Vec

Row = dict[int, Scalar]  # {dof: entry}


def row_times(row: Row, x: Vec) -> Scalar:
    """Return the product of a sparse row and a vector (nv)."""
    total: Scalar = 0.0
    for v, entry in row.items():
        total = total + entry * x[v]
    return total
