"""Equalities of joints and of tendons, which hold one at a fixed place, or at a polynomial of another one's place.

mj_instantiateEquality (mjEQ_JOINT, mjEQ_TENDON). A place is counted from where it is at qpos0.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ...compiler.scalar import Mask, Scalar, logical_or, maximum, select
from ..algebra.sparse import Row, row_times
from ..algebra.spatial import MINVAL, add, scale, zeros
from ..dynamics.tendons.tendon import stretches
from ..model.data import Data
from ..model.enums import EqType
from ..model.model import Model
from .equality import Equality
from .laws import TwoSided
from .rows import impedance, reference
from .scalar_row import ScalarRow
from .softening import RowBound


@dataclass
class _Coupled:
    """A joint or a tendon.

    place: where it is. rate: the derivative of its place by each dof. weight: its inverse inertia. moves: mask of the
    worlds where its rate is not 0. wrenches: as of `ScalarRow`.
    """

    place: Scalar
    rate: Row
    weight: Scalar
    moves: Mask = True
    wrenches: dict[int, list[Scalar]] = field(default_factory=dict)


def coupling(m: Model, d: Data, i: int) -> Equality:
    """Make equality i, of joints or of tendons: mj_instantiateEquality."""
    first = _coupled(m, d, i, m.eq_obj1id[i])
    at: Scalar = m.eq_data[i][0]
    slope: Scalar = 0.0
    diagonal = first.weight
    row, wrenches, moves, effective = dict(first.rate), dict(first.wrenches), first.moves, None
    if m.eq_obj2id[i] >= 0:
        second = _coupled(m, d, i, m.eq_obj2id[i])
        x, moves = second.place, logical_or(moves, second.moves)
        power: Scalar = 1.0
        for degree, c in enumerate(m.eq_data[i][1:5], 1):
            slope, power = slope + degree * c * power, power * x
            at = at + c * power
        diagonal, effective = diagonal + second.weight, first.weight + slope * slope * second.weight
        for v, y in second.rate.items():
            row[v] = row.get(v, 0.0) - slope * y
        for body, pull in second.wrenches.items():
            wrenches[body] = add(wrenches.get(body, zeros(6)), scale(pull, -slope))
    position = first.place - at
    k, b = reference(m.eq_solref[i], m.eq_solimp[i], m.eq_direct[i], m.timestep)
    imp = impedance(m.eq_solimp[i], position)
    bound = RowBound(maximum(diagonal, MINVAL), effective)
    D = select(moves, bound.stiffness(imp), 0.0)
    y0 = b * row_times(row, d.qvel) + k * imp * position
    rows = [ScalarRow(row, TwoSided(D), y0, wrenches=wrenches)] if row else []  # else nothing moves it
    return Equality(rows, bound.needs_refinement(d.precision, D, m.eq_solimp[i]))


def _coupled(m: Model, d: Data, i: int, k: int) -> _Coupled:
    """Look up joint or tendon k: its place, rate, inverse inertia and wrenches."""
    if m.eq_type[i] != EqType.JOINT:
        place = d.ten_length[k] - m.tendon_length0[k]
        return _Coupled(place, d.ten_J[k], m.tendon_invweight0[k], stretches(m, d, k), d.ten_wrench[k])
    v, q = m.jnt_dofadr[k], m.jnt_qposadr[k]
    return _Coupled(d.qpos[q] - m.qpos0[q], {v: 1.0}, m.dof_invweight0[v])
