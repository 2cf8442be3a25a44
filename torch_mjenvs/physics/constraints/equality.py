"""Joint equalities: one joint at a fixed place, or at a polynomial of another's. mj_instantiateEqual (mjEQ_JOINT)."""

from __future__ import annotations

from dataclasses import dataclass

from ...compiler.scalar import Mask, Scalar, maximum
from ..data import Data
from ..model import Model
from .rows import MIN_VAL, Constraint, impedance, reference, row_stiffness, sum_of


@dataclass
class JointEquality(Constraint):
    """One row that pulls either way: its residual is the sum over dofs of J a, and y0."""

    jacobian: dict[int, Scalar]  # by dof
    D: Scalar
    y0: Scalar
    shown: Mask  # see `shows`

    @property
    def shows(self) -> list[Mask]:
        return [self.shown]

    def add_rows(self, m: Model, d: Data, a: list, gradient: list, hessian: list[dict]) -> None:
        force = self.D * (self._along(a) + self.y0)
        for u, x in self.jacobian.items():
            gradient[u] = gradient[u] + force * x
            for v, y in self.jacobian.items():
                if v <= u:
                    hessian[u][v] = hessian[u].get(v, 0.0) + self.D * x * y

    def fold_rows(self, m: Model, d: Data, a: list, dx: list, alpha: Scalar, total: list) -> list:
        change = self._along(dx)
        force, curve = self.D * (self._along(a) + self.y0 + alpha * change), self.D * change * change
        return [total[0] + force * change, total[1] + curve, total[2], total[3] + curve]  # always pressed: none flips

    def _along(self, x: list) -> Scalar:
        return sum_of(y * x[v] for v, y in self.jacobian.items())


def joint_equalities(m: Model, d: Data) -> list[JointEquality]:
    """Those that are active when the model is loaded."""
    return [_joint_equality(m, d, i) for i in range(m.neq) if m.eq_active0[i]]


def _joint_equality(m: Model, d: Data, i: int) -> JointEquality:
    first, second = m.eq_obj1id[i], m.eq_obj2id[i]

    def moved(j: int) -> Scalar:
        return d.qpos[m.jnt_qposadr[j]] - m.qpos0[m.jnt_qposadr[j]]

    v = m.jnt_dofadr[first]
    jacobian: dict[int, Scalar] = {v: 1.0}
    weight = diagonal = m.dof_invweight0[v]
    at, slope = m.eq_data[i][0], 0.0
    if second >= 0:
        x, power = moved(second), 1.0
        for k, c in enumerate(m.eq_data[i][1:5], 1):
            slope, power = slope + k * c * power, power * x
            at = at + c * power
        v = m.jnt_dofadr[second]
        jacobian[v] = -slope
        diagonal = diagonal + m.dof_invweight0[v]
        weight = weight + slope * slope * m.dof_invweight0[v]
    position, velocity = moved(first) - at, sum_of(y * d.qvel[v] for v, y in jacobian.items())
    k, b = reference(m.eq_solref[i], m.eq_solimp[i], m.eq_direct[i], m.timestep)
    imp = impedance(m.eq_solimp[i], position)
    D = row_stiffness(imp, maximum(diagonal, MIN_VAL))
    return JointEquality(jacobian, D, b * velocity + k * imp * position, D * weight > d.precision.stiff)
