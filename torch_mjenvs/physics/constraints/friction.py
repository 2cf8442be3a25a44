"""Friction loss of joints and tendons: dry friction, a force of limited size that opposes motion.

mj_instantiateFriction.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...compiler.scalar import Scalar, maximum
from ..algebra.sparse import Row, row_times
from ..algebra.spatial import MINVAL, Vec
from ..model.data import Data
from ..model.model import Model
from .laws import Huber
from .rows import impedance, reference
from .scalar_row import ScalarRow
from .softening import RowBound, tendon_bound


class FrictionLoss(ScalarRow):
    """Friction loss of a dof or a tendon: a row that pulls either way, by `law.most` where it slides."""

    law: Huber


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
    imp = impedance(solimp, 0.0)  # of a row without a position, which has no stiffness k either
    _, b = reference(solref, solimp, direct, m.timestep)
    D = bound.stiffness(imp)
    refine = bound.needs_refinement(d.precision, D, solimp)
    return FrictionLoss(jacobian, Huber(D, most), b * row_times(jacobian, d.qvel), refine, wrenches=wrenches)
