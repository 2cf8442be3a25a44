"""The axes along which a fluid's forces on a body or geom are worked out: its own, through its centre."""

from __future__ import annotations

from dataclasses import dataclass

from ...compiler.scalar import Scalar, power
from ..algebra.spatial import Vec, add, cross, is_number, mat_vec, scale, sub, transpose, zeros


@dataclass(frozen=True)
class FluidFrame:
    """Axes of a body or geom (a rotation matrix, 9) and its centre r, measured from the origin of its tree (3)."""

    axes: Vec
    r: Vec

    def velocity(self, motion: Vec, wind: Vec) -> tuple[list[Scalar], list[Scalar]]:
        """Angular velocity, and the centre's in the wind, along the axes, where the body moves by `motion` (6)."""
        local = transpose(self.axes)
        w = mat_vec(local, motion[:3])
        return w, mat_vec(local, sub(add(motion[3:], cross(motion[:3], self.r)), wind))

    def unit_velocities(self) -> list[tuple[list[Scalar], list[Scalar]]]:
        """Angular velocity and that of the centre, for a motion of 1 along each of the six coordinates."""
        return [self.velocity([float(k == n) for n in range(6)], zeros(3)) for k in range(6)]

    def wrench(self, torque: Vec, force: Vec, share: Scalar = 1.0) -> list[Scalar]:
        """(torque, force) about the tree's origin: a share of those along the axes at the centre."""
        torque, force = (scale(mat_vec(self.axes, x), share) for x in (torque, force))
        return add(torque, cross(self.r, force)) + force


def fourth(x: Scalar) -> Scalar:
    """x to the fourth power."""
    return x**4 if is_number(x) else power(x, 4)
