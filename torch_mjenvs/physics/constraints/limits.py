"""Limits of slide and hinge joints. mj_instantiateLimit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...compiler.control import when_any
from ...compiler.scalar import Scalar, minimum, select
from ..data import Data
from ..model import Model
from .rows import Constraint, fold_row, impedance, reference, row_stiffness


@dataclass
class Limit(Constraint):
    """One row: sign a[dof] + y0 >= 0. D is 0 where the joint is inside its range."""

    dof: int
    sign: Scalar
    D: Scalar
    y0: Scalar

    def add_rows(self, m: Model, d: Data, a: list, gradient: list, hessian: list[dict]) -> None:
        v = self.dof
        e = self.sign * a[v] + self.y0
        pressed = select(e < 0.0, self.D, 0.0)
        gradient[v] = gradient[v] + self.sign * (pressed * e)
        hessian[v][v] = hessian[v].get(v, 0.0) + pressed

    def fold_rows(self, m: Model, d: Data, a: list, dx: list, alpha: Scalar, total: list) -> list:
        return fold_row(total, self.sign * a[self.dof] + self.y0, self.sign * dx[self.dof], self.D, alpha)

    def force(self, a: list) -> Scalar:
        """What the limit pushes with, 0 or more."""
        return -(self.D * minimum(self.sign * a[self.dof] + self.y0, 0.0))


def joint_limits(m: Model, d: Data) -> list[Limit]:
    """The limits of all joints that have any."""
    return [row for j in range(m.njnt) if m.jnt_limited[j] for row in _joint_limit(m, d, j)]


def _joint_limit(m: Model, d: Data, j: int) -> list[Limit]:
    """One row for whichever end is near, two where both can be at once."""
    v, q = m.jnt_dofadr[j], d.qpos[m.jnt_qposadr[j]]
    low, high = m.jnt_range[j]
    margin = m.jnt_margin[j]
    k, b = reference(m.jnt_solref[j], m.jnt_solimp[j], m.jnt_direct[j], m.timestep)

    def row(sign: Scalar, position: Scalar) -> Limit:
        def compute(_: Any) -> list[Scalar]:
            imp = impedance(m.jnt_solimp[j], position - margin)
            return [row_stiffness(imp, m.dof_invweight0[v]), b * (sign * d.qvel[v]) + k * imp * (position - margin)]

        D, y0 = when_any(position < margin, compute, [0.0, 0.0])
        return Limit(v, sign, D, y0)

    first, last = (m.nominal or m).jnt_range[j]
    if last - first <= 2 * margin:
        return [row(1.0, q - low), row(-1.0, high - q)]
    return [row(select(q - low < high - q, 1.0, -1.0), minimum(q - low, high - q))]
