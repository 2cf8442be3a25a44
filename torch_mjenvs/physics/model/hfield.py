"""`HField`, a height field as colliders and rays see it, and how it is read from an `mjModel`.

To MuJoCo such a field is a row of prisms: each cell of the grid is two triangles, and each of them stands on a flat
base.
"""

from __future__ import annotations

import functools
import hashlib
import math
from array import array
from dataclasses import dataclass

import mujoco

from ...compiler.arrays import Table
from ...compiler.scalar import Scalar
from ..algebra.spatial import is_number

MOST = 50  # mjMAXCONPAIR: how many contacts a pair has at the most


@dataclass(frozen=True, repr=False)
class HField:
    """A height field, in metres.

    size: half its extents along x and y, the height of its highest elevation, the depth of its base. data: heights row
    by row, from the least y to the greatest, each row from the least x to the greatest.
    """

    nrow: int
    ncol: int
    size: tuple[float, ...]
    data: tuple[float, ...]

    def __repr__(self) -> str:
        """Show all of it; the elevations, which may be a million, by a digest."""
        digest = hashlib.sha256(array("d", self.data).tobytes()).hexdigest()
        return f"HField(nrow={self.nrow}, ncol={self.ncol}, size={self.size}, data={digest})"

    @functools.cached_property
    def table(self) -> Table:
        """Return `data` as a table, which each world can read at its own index."""
        return Table(self.data)

    @property
    def within_bounds(self) -> bool:
        """Return whether all of it is between its base and its highest elevation, which MuJoCo's rays count on."""
        return min(self.data) >= 0.0 and max(self.data) <= self.size[2]

    @property
    def steps(self) -> tuple[float, float]:
        """Return the spacing of the grid along x and y, in metres."""
        return 2 * self.size[0] / (self.ncol - 1), 2 * self.size[1] / (self.nrow - 1)

    def cells(self, reach: Scalar) -> tuple[int, int]:
        """Return how many cells along x and y can lie under something that stays within `reach` of its centre."""
        most = self.ncol - 1, self.nrow - 1
        if not is_number(reach):  # it varies from world to world
            return most
        x, y = (min(n, math.ceil(2 * reach / step + 1e-6) + 1) for n, step in zip(most, self.steps, strict=True))
        return x, y

    def most_contacts(self, reach: Scalar) -> int:
        """Return the most contacts of something within `reach` of its centre, at most as many as MuJoCo keeps."""
        x, y = self.cells(reach)
        return min(2 * x * y, MOST)


@dataclass(frozen=True)
class Ground:
    """A height field as one pair's collider sees it, with the most contacts that the pair can have."""

    field: HField
    contacts: int


def read_hfields(mjm: mujoco.MjModel) -> tuple[HField, ...]:
    """Read the model's height fields."""
    return tuple(_read(mjm, k) for k in range(mjm.nhfield))


def _read(mjm: mujoco.MjModel, k: int) -> HField:
    nrow, ncol, start = int(mjm.hfield_nrow[k]), int(mjm.hfield_ncol[k]), int(mjm.hfield_adr[k])
    size = tuple(mjm.hfield_size[k].tolist())
    elevations = mjm.hfield_data[start : start + nrow * ncol].astype(float) * size[2]
    return HField(nrow, ncol, size, tuple(elevations.tolist()))
