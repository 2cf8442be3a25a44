"""A row that stands alone: one residual e = sign J a + y0 under one law. Limits, friction loss, rows of equalities."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ...compiler.scalar import Mask, Scalar
from ..algebra.sparse import Row, row_times
from ..algebra.spatial import Vec, add_scaled
from ..model.data import Data
from ..model.model import Model
from .laws import Law
from .rows import Constraint, Hessian


@dataclass
class ScalarRow(Constraint):
    """One row under a `Law` of its residual e = sign J a + y0, by which it pushes along sign J.

    jacobian: J. refine: see `needs_refinement`. wrenches: by body, the wrench on it by a unit force along J, (torque,
    force) about the origin of the body's tree; empty if MuJoCo does not count the row among the forces on bodies.
    """

    jacobian: Row
    law: Law
    y0: Scalar
    refine: Mask = False
    sign: Scalar = 1.0
    wrenches: Mapping[int, list[Scalar]] = field(default_factory=dict)

    @property
    def D(self) -> Scalar:
        """The stiffness of the row: MuJoCo's efc_D, unless the row is softened."""
        return self.law.D

    @property
    def needs_refinement(self) -> list[Mask]:
        return [] if self.refine is False else [self.refine]

    def force(self, a: Vec) -> Scalar:
        """Return the force along sign J at the acceleration a (nv): MuJoCo's efc_force."""
        return -self.law.at(self._residual(a))[0]

    def add_rows(self, m: Model, d: Data, a: Vec, gradient: list[Scalar], hessian: Hessian) -> None:
        slope, curvature = self.law.at(self._residual(a))
        push = self.sign * slope
        for u, x in self.jacobian.items():
            gradient[u] = gradient[u] + push * x
            for v, y in self.jacobian.items():
                if v <= u:
                    hessian[u][v] = hessian[u].get(v, 0.0) + curvature * x * y

    def add_slope(self, a: Vec, gradient: list[Scalar]) -> Scalar:
        """Add the row's share of the gradient (nv) at a, and return the curvature of its law there."""
        slope, curvature = self.law.at(self._residual(a))
        push = self.sign * slope
        for v, x in self.jacobian.items():
            gradient[v] = gradient[v] + push * x
        return curvature

    def fold_rows(self, m: Model, d: Data, a: Vec, dx: Vec, alpha: Scalar, total: list[Scalar]) -> list[Scalar]:
        return self.law.fold(total, self._residual(a), self._along(dx), alpha)

    def add_wrenches(self, m: Model, d: Data, a: Vec, wrench: list[list[Scalar]]) -> None:
        if self.wrenches:
            self.push_bodies(self.force(a), wrench)

    def push_bodies(self, force: Scalar, wrench: list[list[Scalar]]) -> None:
        """Add to `wrench` the wrenches on bodies of a force along sign J."""
        for body, unit in self.wrenches.items():
            wrench[body] = add_scaled(wrench[body], unit, self.sign * force)

    def _residual(self, a: Vec) -> Scalar:
        return self._along(a) + self.y0

    def _along(self, x: Vec) -> Scalar:
        return self.sign * row_times(self.jacobian, x)
