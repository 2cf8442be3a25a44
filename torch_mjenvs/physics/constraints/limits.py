"""Limits of joints and tendons: mj_instantiateLimit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...compiler.control import when_any
from ...compiler.scalar import Mask, Scalar, logical_and, maximum, minimum, select
from ..algebra.sparse import Row, row_times
from ..algebra.spatial import Vec, norm, normalize, quat_normalize, quat_sub, scale
from ..dynamics.tendons.tendon import stretches
from ..model.data import Data
from ..model.enums import JointType, TrnType
from ..model.model import Model
from .laws import OneSided
from .rows import impedance, reference
from .scalar_row import ScalarRow
from .softening import RowBound, tendon_bound


@dataclass
class Limit(ScalarRow):
    """A limit at one end of a range: sign J a + y0 >= 0. D is 0 where what is limited is inside its range.

    of: (TrnType.JOINT, which) or (TrnType.TENDON, which). distance: how far it is from where the limit begins to act,
    in metres or radians.
    """

    of: tuple[int, int] = (TrnType.JOINT, -1)
    distance: Scalar = 0.0


@dataclass(frozen=True)
class Soft:
    """The softness of a limit: MuJoCo's margin, solref and solimp, solref's form, and the bound of its stiffness.

    acts: mask of the worlds where there is anything to hold.
    """

    margin: float
    solref: Vec
    solimp: Vec
    direct: bool
    bound: RowBound
    acts: Mask = True

    def row(self, m: Model, d: Data, of: tuple[int, int], jacobian: Row, sign: Scalar, position: Scalar) -> Limit:
        """Make the row of an end that is `position` away, metres or radians."""
        k, b = reference(self.solref, self.solimp, self.direct, m.timestep)

        def compute(_: Any) -> list[Scalar]:
            imp = impedance(self.solimp, position - self.margin)
            D = self.bound.stiffness(imp)
            velocity = sign * row_times(jacobian, d.qvel)
            return [D, b * velocity + k * imp * (position - self.margin)]

        D, y0 = when_any(logical_and(self.acts, position < self.margin), compute, [0.0, 0.0])
        refine = self.bound.needs_refinement(d.precision, D, self.solimp)
        wrenches = d.ten_wrench[of[1]] if of[0] == TrnType.TENDON else {}
        distance = select(self.acts, position - self.margin, 0.0)
        return Limit(jacobian, OneSided(D), y0, refine, sign, wrenches, of, distance)

    def rows(
        self, m: Model, d: Data, of: tuple[int, int], jacobian: Row, at: Scalar, span: Vec, usual: Vec
    ) -> list[Limit]:
        """Make one row for the nearer end of the range, or two if both ends of the usual range can be near at once."""
        low, high = span
        if usual[1] - usual[0] <= 2 * self.margin:
            ends: list[tuple[Scalar, Scalar]] = [(1.0, at - low), (-1.0, high - at)]
        else:
            ends = [(select(at - low < high - at, 1.0, -1.0), minimum(at - low, high - at))]
        return [self.row(m, d, of, jacobian, sign, position) for sign, position in ends]


def joint_limits(m: Model, d: Data) -> list[Limit]:
    """Make the limits of all joints that have any."""
    return [row for j in range(m.njnt) if m.jnt_limited[j] for row in _joint_limit(m, d, j)]


def _joint_limit(m: Model, d: Data, j: int) -> list[Limit]:
    v, q = m.jnt_dofadr[j], d.qpos[m.jnt_qposadr[j] :]
    soft = Soft(m.jnt_margin[j], m.jnt_solref[j], m.jnt_solimp[j], m.jnt_direct[j], RowBound(m.dof_invweight0[v]))
    if m.jnt_type[j] == JointType.BALL:  # the angle has one end only
        turn = quat_sub(quat_normalize(q[:4]), (1.0, 0.0, 0.0, 0.0))
        back = scale(normalize(turn, [1.0, 0.0, 0.0]), -1.0)
        distance = maximum(*m.jnt_range[j]) - norm(turn)
        return [soft.row(m, d, (TrnType.JOINT, j), dict(enumerate(back, start=v)), 1.0, distance)]
    return soft.rows(m, d, (TrnType.JOINT, j), {v: 1.0}, q[0], m.jnt_range[j], (m.nominal or m).jnt_range[j])


def tendon_limits(m: Model, d: Data) -> list[Limit]:
    """Make the limits of all tendons that have any and that something moves."""
    return [row for t in range(m.ntendon) if m.tendon_limited[t] and d.ten_J[t] for row in _tendon_limit(m, d, t)]


def _tendon_limit(m: Model, d: Data, t: int) -> list[Limit]:
    how = m.tendon_margin[t], m.tendon_solref_lim[t], m.tendon_solimp_lim[t], m.tendon_direct_lim[t]
    soft = Soft(*how, tendon_bound(m, d, t), stretches(m, d, t))
    usual = (m.nominal or m).tendon_range[t]
    return soft.rows(m, d, (TrnType.TENDON, t), d.ten_J[t], d.ten_length[t], m.tendon_range[t], usual)
