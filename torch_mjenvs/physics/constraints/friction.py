"""Friction loss of joints and tendons: dry friction, a force of limited size that opposes motion.

mj_instantiateFriction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ...compiler.scalar import Mask, Scalar, logical_and, maximum
from ..algebra.sparse import Row, row_times
from ..algebra.spatial import MINVAL, Vec
from ..model.data import Data
from ..model.model import Model
from .laws import Huber
from .rows import Constraint, impedance, reference
from .scalar_row import ScalarRow
from .softening import RowBound, tendon_bound


class FrictionLoss(ScalarRow):
    """Friction loss of a dof or a tendon: a row that pulls either way, by `law.most` where it slides."""

    law: Huber

    def way(self, a: Vec) -> Scalar:
        """Return which way the row slides at the acceleration a (nv): 1 or -1, and 0 where it sticks."""
        return self.law.way(self._residual(a))

    def held(self, where: Mask) -> FrictionLoss:
        """Return a copy of the row that counts as sticking in these worlds, whatever the acceleration."""
        return replace(self, law=replace(self.law, held=where))


def hold_turning(
    constraints: Sequence[Constraint], a: Vec, before: Sequence[Scalar], when: Mask
) -> tuple[list[Constraint], list[Scalar]]:
    """Return the constraints for a Newton step from a, and which way each friction loss slides at a.

    before: which way each slid at the step before. A row sticks in so narrow a range of accelerations that full steps
    jump over it, to and fro. So in worlds of the mask `when`, rows whose way has just reversed count as sticking.
    """
    ways: list[Scalar] = []
    out: list[Constraint] = []
    for c in constraints:
        if isinstance(c, FrictionLoss):
            ways.append(c.way(a))
            c = c.held(logical_and(when, ways[-1] * before[len(ways) - 1] < 0.0))
        out.append(c)
    return out, ways


def friction_losses(m: Model, d: Data) -> list[FrictionLoss]:
    """Make the friction loss of each dof, and then of each tendon that moves, that has any in the model as loaded."""
    nominal = m.nominal or m
    of_dofs = [_of_dof(m, d, v) for v in range(m.nv) if nominal.dof_frictionloss[v] > 0.0]
    tendons = [t for t in range(m.ntendon) if nominal.tendon_frictionloss[t] > 0.0 and d.ten_J[t]]
    return of_dofs + [_of_tendon(m, d, t) for t in tendons]


def _of_dof(m: Model, d: Data, v: int) -> FrictionLoss:
    how = m.dof_solref[v], m.dof_solimp[v], m.dof_direct[v]
    bound = RowBound(maximum(m.dof_invweight0[v], MINVAL))
    return _row(m, d, {v: 1.0}, *how, m.dof_frictionloss[v], bound, {})


def _of_tendon(m: Model, d: Data, t: int) -> FrictionLoss:
    how = m.tendon_solref_fri[t], m.tendon_solimp_fri[t], m.tendon_direct_fri[t]
    return _row(m, d, d.ten_J[t], *how, m.tendon_frictionloss[t], tendon_bound(m, d, t), d.ten_wrench[t])


def _row(
    m: Model, d: Data, jacobian: Row, solref: Vec, solimp: Vec, direct: bool,
    most: Scalar, bound: RowBound, wrenches: Mapping[int, list[Scalar]],
) -> FrictionLoss:  # fmt: skip
    imp = impedance(solimp, 0.0)  # the row has no position, and so no stiffness k either
    _, b = reference(solref, solimp, direct, m.timestep)
    D = bound.stiffness(imp)
    refine = bound.needs_refinement(d.precision, D, solimp)
    return FrictionLoss(jacobian, Huber(D, most), b * row_times(jacobian, d.qvel), refine, wrenches=wrenches)
