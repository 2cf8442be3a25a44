"""`FluidFrame`: the axes of a body or geom, along which a fluid's forces are computed; and the wind."""

from __future__ import annotations

from dataclasses import dataclass

from ...compiler.scalar import Scalar, power
from ..algebra.spatial import Vec, add, cross, is_number, mat_vec, scale, sub, transpose, zeros
from ..model.data import Data
from ..model.model import Model


@dataclass(frozen=True)
class FluidFrame:
    """The axes of a body or geom (a rotation matrix, 9) and its centre r, measured from the origin of its tree (3)."""

    axes: Vec
    r: Vec

    def velocity(self, motion: Vec, wind: Vec) -> tuple[list[Scalar], list[Scalar]]:
        """Return angular velocity and the centre's velocity in the wind, along the axes, for `motion` (6)."""
        local = transpose(self.axes)
        w = mat_vec(local, motion[:3])
        return w, mat_vec(local, sub(add(motion[3:], cross(motion[:3], self.r)), wind))

    def unit_velocities(self) -> list[tuple[list[Scalar], list[Scalar]]]:
        """Return angular and linear velocity along the axes for a unit motion along each of the six coordinates."""
        return [self.velocity([float(k == n) for n in range(6)], zeros(3)) for k in range(6)]

    def wrench(self, torque: Vec, force: Vec, share: Scalar = 1.0) -> list[Scalar]:
        """Return `share` times the torque and force at the centre, as (torque, force) about the tree's origin."""
        torque, force = (scale(mat_vec(self.axes, x), share) for x in (torque, force))
        return add(torque, cross(self.r, force)) + force


def wind(m: Model, d: Data) -> Vec:
    """Return the velocity of the fluid, m/s."""
    return m.wind if d.wind is None else d.wind


def fourth(x: Scalar) -> Scalar:
    """Return x to the fourth power."""
    return x**4 if is_number(x) else power(x, 4)
