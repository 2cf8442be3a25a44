"""Limits of joints and tendons. mj_instantiateLimit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...compiler.control import when_any
from ...compiler.scalar import Mask, Scalar, maximum, minimum, select
from ..data import Data
from ..model import BALL, JOINT, TENDON, Model
from ..sparse import Row, row_times
from ..spatial import MINVAL, add_scaled, norm, normalize, quat_normalize, quat_sub, scale
from ..tendons.tendon import met_by_tendon
from .rows import Constraint, bounded_stiffness, fold_row, impedance, may_show, reference, row_stiffness


@dataclass
class Limit(Constraint):
    """One row: sign J a + y0 >= 0. D is 0 where what is limited is inside its range."""

    of: tuple[int, int]  # (JOINT, which) or (TENDON, which)
    jacobian: Row
    sign: Scalar
    D: Scalar
    y0: Scalar
    room: Scalar  # how far it is from where the limit begins to act
    shown: Mask  # see `shows`

    @property
    def shows(self) -> list[Mask]:
        return [] if self.shown is False else [self.shown]

    def add_rows(self, m: Model, d: Data, a: list, gradient: list, hessian: list[dict]) -> None:
        e = self._along(a) + self.y0
        pressed = select(e < 0.0, self.D, 0.0)
        push = self.sign * (pressed * e)
        for u, x in self.jacobian.items():
            gradient[u] = gradient[u] + push * x
            for v, y in self.jacobian.items():
                if v <= u:
                    hessian[u][v] = hessian[u].get(v, 0.0) + pressed * x * y

    def fold_rows(self, m: Model, d: Data, a: list, dx: list, alpha: Scalar, total: list) -> list:
        return fold_row(total, self._along(a) + self.y0, self._along(dx), self.D, alpha)

    def add_wrenches(self, m: Model, d: Data, a: list, wrench: list[list]) -> None:
        kind, t = self.of
        if kind == TENDON:
            for body, pull in d.ten_wrench[t].items():
                wrench[body] = add_scaled(wrench[body], pull, self.sign * self.force(a))

    def force(self, a: list) -> Scalar:
        """What the limit pushes with, 0 or more."""
        return -(self.D * minimum(self._along(a) + self.y0, 0.0))

    def _along(self, x: list) -> Scalar:
        return self.sign * row_times(self.jacobian, x)


@dataclass(frozen=True)
class Soft:
    """How a limit gives way: MuJoCo's margin, solref and solimp, whether solref is direct, and the inverse inertia:
    that at qpos0, and where that says little, what is met now.
    """

    margin: float
    solref: Sequence
    solimp: Sequence
    direct: bool
    invweight0: Scalar
    met: Scalar | None = None

    def row(self, m: Model, d: Data, of: tuple[int, int], jacobian: Row, sign: Scalar, position: Scalar) -> Limit:
        """The row of an end that is so far away."""
        k, b = reference(self.solref, self.solimp, self.direct, m.timestep)

        def compute(_: Any) -> list[Scalar]:
            imp = impedance(self.solimp, position - self.margin)
            if self.met is None:
                D = row_stiffness(imp, self.invweight0)
            else:
                D = bounded_stiffness(d, imp, self.invweight0, self.met)
            velocity = sign * row_times(jacobian, d.qvel)
            return [D, b * velocity + k * imp * (position - self.margin)]

        D, y0 = when_any(position < self.margin, compute, [0.0, 0.0])
        if self.met is not None:
            shown = D * self.met > d.precision.stiff
        else:
            shown = D * self.invweight0 > d.precision.stiff if may_show(d, self.solimp) else False
        return Limit(of, jacobian, sign, D, y0, position - self.margin, shown)

    def rows(
        self, m: Model, d: Data, of: tuple[int, int], jacobian: Row, at: Scalar, span: Sequence, usual: Sequence
    ) -> list[Limit]:
        """One row for whichever end of the range is near, two where both can be at once: the usual range says so."""
        low, high = span
        if usual[1] - usual[0] <= 2 * self.margin:
            ends = [(1.0, at - low), (-1.0, high - at)]
        else:
            ends = [(select(at - low < high - at, 1.0, -1.0), minimum(at - low, high - at))]
        return [self.row(m, d, of, jacobian, sign, position) for sign, position in ends]


def joint_limits(m: Model, d: Data) -> list[Limit]:
    """The limits of all joints that have any."""
    return [row for j in range(m.njnt) if m.jnt_limited[j] for row in _joint_limit(m, d, j)]


def _joint_limit(m: Model, d: Data, j: int) -> list[Limit]:
    v, q = m.jnt_dofadr[j], d.qpos[m.jnt_qposadr[j] :]
    soft = Soft(m.jnt_margin[j], m.jnt_solref[j], m.jnt_solimp[j], m.jnt_direct[j], m.dof_invweight0[v])
    if m.jnt_type[j] == BALL:  # the angle has one end only
        turn = quat_sub(quat_normalize(q[:4]), (1.0, 0.0, 0.0, 0.0))
        back = scale(normalize(turn, [1.0, 0.0, 0.0]), -1.0)
        room = maximum(*m.jnt_range[j]) - norm(turn)
        return [soft.row(m, d, (JOINT, j), dict(enumerate(back, start=v)), 1.0, room)]
    return soft.rows(m, d, (JOINT, j), {v: 1.0}, q[0], m.jnt_range[j], (m.nominal or m).jnt_range[j])


def tendon_limits(m: Model, d: Data) -> list[Limit]:
    """The limits of all tendons that have any, but of those that nothing moves."""
    return [row for t in range(m.ntendon) if m.tendon_limited[t] and d.ten_J[t] for row in _tendon_limit(m, d, t)]


def _tendon_limit(m: Model, d: Data, t: int) -> list[Limit]:
    weight = maximum(m.tendon_invweight0[t], MINVAL)
    how = m.tendon_margin[t], m.tendon_solref_lim[t], m.tendon_solimp_lim[t], m.tendon_direct_lim[t]
    soft = Soft(*how, weight, met_by_tendon(m, d, t))
    usual = (m.nominal or m).tendon_range[t]
    return soft.rows(m, d, (TENDON, t), d.ten_J[t], d.ten_length[t], m.tendon_range[t], usual)
