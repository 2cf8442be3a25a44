"""Friction loss of joints: dry friction, a force of limited size that opposes motion. mj_instantiateFriction."""

from __future__ import annotations

from dataclasses import dataclass

from ...compiler.scalar import Mask, Scalar, absolute, clip, maximum, select
from ..data import Data
from ..model import Model
from .rows import MIN_VAL, Constraint, impedance, reference, row_stiffness


@dataclass
class FrictionLoss(Constraint):
    """One row, of residual e = a[dof] + y0, that pulls either way by up to `most`.

    Its cost is Huber's: while the joint sticks (|D e| < most) it is 1/2 D e**2, and the force is -D e; while it slides,
    the cost is linear in e, and the force is `most`, the other way. The slope is continuous, so the cost is convex.
    """

    dof: int
    D: Scalar
    y0: Scalar
    most: Scalar
    shown: Mask  # see `shows`

    @property
    def shows(self) -> list[Mask]:
        return [] if self.shown is False else [self.shown]

    def add_rows(self, m: Model, d: Data, a: list, gradient: list, hessian: list[dict]) -> None:
        v = self.dof
        slope = self.D * (a[v] + self.y0)
        gradient[v] = gradient[v] + clip(slope, -self.most, self.most)
        hessian[v][v] = hessian[v].get(v, 0.0) + select(absolute(slope) < self.most, self.D, 0.0)

    def fold_rows(self, m: Model, d: Data, a: list, dx: list, alpha: Scalar, total: list) -> list:
        v, most = dx[self.dof], self.most
        before = self.D * (a[self.dof] + self.y0)
        at = before + self.D * (alpha * v)
        slope, change = clip(at, -most, most), self.D * v * v
        sticks = absolute(before) < most
        expected = select(sticks, at, clip(before, -most, most))  # what slides, and which way, as at 0
        return [
            total[0] + slope * v,
            total[1] + select(absolute(at) < most, change, 0.0),
            total[2] + absolute(slope - expected),
            total[3] + select(sticks, change, 0.0),
        ]


def friction_losses(m: Model, d: Data) -> list[FrictionLoss]:
    """Of each dof that has any in the model as it was loaded."""
    nominal = (m.nominal or m).dof_frictionloss
    return [_friction_loss(m, d, v) for v in range(m.nv) if nominal[v] > 0.0]


def _friction_loss(m: Model, d: Data, v: int) -> FrictionLoss:
    imp = impedance(m.dof_solimp[v], 0.0)  # of a row without a position, which has no stiffness k either
    _, b = reference(m.dof_solref[v], m.dof_solimp[v], m.dof_direct[v], m.timestep)
    weight = maximum(m.dof_invweight0[v], MIN_VAL)
    D = row_stiffness(imp, weight)
    shown = D * weight > d.precision.stiff
    return FrictionLoss(v, D, b * d.qvel[v], m.dof_frictionloss[v], shown)
