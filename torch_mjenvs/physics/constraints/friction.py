"""Friction loss of joints and tendons: dry friction, a force of limited size that opposes motion.

mj_instantiateFriction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...compiler.scalar import Mask, Scalar, absolute, clip, maximum, select
from ..data import Data
from ..model import Model
from ..sparse import Row, row_times
from ..spatial import MINVAL, add_scaled
from ..tendons.tendon import met_by_tendon
from .rows import Constraint, bounded_stiffness, impedance, reference, row_stiffness


@dataclass
class FrictionLoss(Constraint):
    """One row, of residual e = J a + y0, that pulls either way by up to `most`.

    Its cost is Huber's: while it sticks (|D e| < most) it is 1/2 D e**2, and the force is -D e; while it slides,
    the cost is linear in e, and the force is `most`, the other way. The slope is continuous, so the cost is convex.
    """

    jacobian: Row
    D: Scalar
    y0: Scalar
    most: Scalar
    shown: Mask  # see `shows`
    tendon: int = -1  # which it is of; -1: of a dof

    @property
    def shows(self) -> list[Mask]:
        return [] if self.shown is False else [self.shown]

    def add_rows(self, m: Model, d: Data, a: list, gradient: list, hessian: list[dict]) -> None:
        slope = self._slope(a)
        pull, stiffness = clip(slope, -self.most, self.most), select(absolute(slope) < self.most, self.D, 0.0)
        for u, x in self.jacobian.items():
            gradient[u] = gradient[u] + pull * x
            for v, y in self.jacobian.items():
                if v <= u:
                    hessian[u][v] = hessian[u].get(v, 0.0) + stiffness * x * y

    def fold_rows(self, m: Model, d: Data, a: list, dx: list, alpha: Scalar, total: list) -> list:
        v, most = row_times(self.jacobian, dx), self.most
        before = self._slope(a)
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

    def add_wrenches(self, m: Model, d: Data, a: list, wrench: list[list]) -> None:
        if self.tendon >= 0:
            self.pull(d, self.force(a), wrench)

    def pull(self, d: Data, force: Scalar, wrench: list[list]) -> None:
        """Add to `wrench` what a force of this row is to bodies, if it is a tendon's."""
        if self.tendon >= 0:
            for body, pull in d.ten_wrench[self.tendon].items():
                wrench[body] = add_scaled(wrench[body], pull, force)

    def force(self, a: list) -> Scalar:
        """What the row pulls with."""
        return clip(-self._slope(a), -self.most, self.most)

    def _slope(self, a: list) -> Scalar:
        return self.D * (row_times(self.jacobian, a) + self.y0)


def friction_losses(m: Model, d: Data) -> list[FrictionLoss]:
    """Of each dof, and then of each tendon that moves, if it has any in the model as it was loaded."""
    nominal = m.nominal or m
    of_dofs = [_of_dof(m, d, v) for v in range(m.nv) if nominal.dof_frictionloss[v] > 0.0]
    tendons = [t for t in range(m.ntendon) if nominal.tendon_frictionloss[t] > 0.0 and d.ten_J[t]]
    return of_dofs + [_of_tendon(m, d, t) for t in tendons]


def _of_dof(m: Model, d: Data, v: int) -> FrictionLoss:
    how = m.dof_solref[v], m.dof_solimp[v], m.dof_direct[v]
    return _row(m, d, {v: 1.0}, *how, m.dof_invweight0[v], m.dof_frictionloss[v])


def _of_tendon(m: Model, d: Data, t: int) -> FrictionLoss:
    how = m.tendon_solref_fri[t], m.tendon_solimp_fri[t], m.tendon_direct_fri[t]
    return _row(m, d, d.ten_J[t], *how, m.tendon_invweight0[t], m.tendon_frictionloss[t], t, met_by_tendon(m, d, t))


def _row(
    m: Model, d: Data, jacobian: Row, solref: Sequence, solimp: Sequence, direct: bool,
    weight: Scalar, most: Scalar, tendon: int = -1, met: Scalar | None = None,
) -> FrictionLoss:  # fmt: skip
    imp = impedance(solimp, 0.0)  # of a row without a position, which has no stiffness k either
    _, b = reference(solref, solimp, direct, m.timestep)
    weight = maximum(weight, MINVAL)
    D = row_stiffness(imp, weight) if met is None else bounded_stiffness(d, imp, weight, met)
    shown = D * (weight if met is None else met) > d.precision.stiff
    return FrictionLoss(jacobian, D, b * row_times(jacobian, d.qvel), most, shown, tendon)
