"""Noslip: `noslip_iterations` sweeps over friction after the solver, so that it does not creep. mj_solNoSlip.

Rows give way a little to the force that holds them, so what friction holds creeps. A sweep goes through all friction in
MuJoCo's order, and sets each force to the one with which nothing slips while all other forces stay the same, as far as
friction allows. There are always that many sweeps, as with `noslip_tolerance` 0: if they have not converged, the result
depends on their number and order.

Forces other than friction are those where the solver ended, d.qacc_solver. All that a sweep needs to know of them is
the acceleration a = M^-1 (qfrc_smooth + J'f), which is updated along the way.

Letters: F forces of friction; J their rows, v = J a + y0: how fast they slip; A = J M^-1 J'.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ...compiler.control import compute_any, repeat, when_any
from ...compiler.scalar import Mask, Scalar, clip, maximum
from ..algebra.sparse import Row, row_times
from ..algebra.spatial import MINVAL, add_scaled, sub, zeros
from ..constraints.body_contacts import dofs_apart
from ..constraints.cones.elliptic import EllipticCone
from ..constraints.contact_force import ContactForce, Contacts, body_motion
from ..constraints.friction import FrictionLoss
from ..dynamics.inertia import factor, solve
from ..model.data import Data, stage
from ..model.model import Model, dofs_of
from .noslip_rules import Hold, Mat, edges, ellipse, shares
from .noslip_slots import grips_in_slots


@dataclass
class Grip:
    """Friction that is computed at once: a pyramid's axis, all axes of an elliptic cone, or friction loss.

    rows: J. images: M^-1 J'. start: F where the solver ended. Where it is not `active` they are unspecified.
    """

    of: ContactForce | FrictionLoss
    axes: list[int]
    active: Mask
    rows: list[Row]
    images: Mat
    y0: list[Scalar]
    start: list[Scalar]
    hold: Hold

    def visit(self, carry: list[Any]) -> list[Any]:
        """Return [a, F] after this grip's force was computed anew."""
        a, old = carry
        slip = [row_times(row, a) + y for row, y in zip(self.rows, self.y0, strict=True)]
        A = [[row_times(row, image) for image in self.images] for row in self.rows]
        new = self.hold(A, slip, old)
        for image, x, y in zip(self.images, new, old, strict=True):
            a = add_scaled(a, image, x - y)
        return [a, new]


@dataclass
class Slip:
    """The change that sweeps made to the force of a grip."""

    grip: Grip
    force: list[Scalar]

    def add_force(self, qfrc: list[Scalar]) -> list[Scalar]:
        """Return qfrc plus J' times the change of force."""

        def push(old: list[Scalar]) -> list[Scalar]:
            new = list(old)
            for row, f in zip(self.grip.rows, self.force, strict=True):
                for v, x in row.items():
                    new[v] = new[v] + x * f
            return new

        return when_any(self.grip.active, push, qfrc)

    def add_wrenches(self, m: Model, d: Data, wrench: Mat) -> None:
        """Add the wrenches of the change of force to `wrench`, by body. See `Constraint.add_wrenches`."""
        of = self.grip.of
        if isinstance(of, FrictionLoss):
            of.push_bodies(self.force[0], wrench)
            return
        force = zeros(of.condim)
        for axis, f in zip(self.grip.axes, self.force, strict=True):
            force[axis] = f
        of.pull(m, d, lambda _: force, wrench)


@stage(reads="qacc_solver M odof constraints", computes="qacc slips")
def no_slip(m: Model, d: Data) -> None:
    """Compute d.qacc, and d.slips: the changes to the forces of friction. mj_solNoSlip."""
    d.qacc, d.slips = d.qacc_solver, []
    if not m.noslip_iterations:
        return
    grips, pooled = _grips(m, d), grips_in_slots(m, d)

    def sweep(_: Any, carry: list[Any]) -> list[Any]:
        a, forces = carry[0], list(carry[1])
        for k, grip in enumerate(grips):
            a, forces[k] = when_any(grip.active, grip.visit, [a, forces[k]])
        return [pooled.sweep(a) if pooled else a, forces]

    start = [grip.start for grip in grips]
    changed = [pooled.force] if pooled else []
    d.qacc, forces = repeat(m.noslip_iterations, sweep, [d.qacc, start], changed)
    d.slips = [Slip(grip, sub(new, old)) for grip, new, old in zip(grips, forces, start, strict=True)]
    d.slips += [pooled] if pooled else []


def _grips(m: Model, d: Data) -> list[Grip]:
    """Return all friction, in MuJoCo's order."""
    inverse = factor(d.M, m.dof_clamped)

    def image(row: Row) -> list[Scalar]:
        return solve(inverse, [row.get(v, 0.0) for v in range(m.nv)])

    out = [_friction_loss(c, d.qacc, image) for c in d.constraints if isinstance(c, FrictionLoss)]
    motion = body_motion(m, d, d.qacc)
    of_kinds = [c for kind in d.constraints if isinstance(kind, Contacts) for c in kind.contacts]
    contacts = [c for c in of_kinds if isinstance(c, ContactForce) and c.condim > 1]
    for c in sorted(contacts, key=lambda c: (c.pair.rank, c.number)):
        out += _contact(m, d, c, motion, image)
    return out


def _friction_loss(c: FrictionLoss, a: list[Scalar], image: Callable[[Row], list[Scalar]]) -> Grip:
    def hold(A: Mat, slip: list[Scalar], force: list[Scalar]) -> list[Scalar]:
        return [clip(force[0] - slip[0] / maximum(A[0][0], MINVAL), -c.law.most, c.law.most)]

    return Grip(c, [0], True, [c.jacobian], [image(c.jacobian)], [c.y0], [c.force(a)], hold)


def _contact(m: Model, d: Data, c: ContactForce, motion: Mat, image: Callable[[Row], list[Scalar]]) -> list[Grip]:
    """Return the grips of a contact: one of an elliptic cone, or one for each axis of friction of a pyramid."""
    axes = list(range(1, c.condim))

    def compute() -> dict[str, Any]:
        rows = _jacobian(m, d, c)
        y = c.residual(motion)
        force = c.cone.push(y)[0]
        most = [force[0]] if isinstance(c.cone, EllipticCone) else shares(c.cone, y)
        return {"rows": rows, "images": [image(row) for row in rows], "start": force[1:], "most": most}

    made = compute_any(c.active, compute)
    if not made:  # in plain Python, where it does not touch
        return []
    rows, images, start, most = (made[name] for name in ("rows", "images", "start", "most"))
    if isinstance(c.cone, EllipticCone):
        hold = ellipse(c.cone.friction, most[0], d.precision.pivot, dofs_apart(m, *c.bodies))
        return [Grip(c, axes, c.active, rows, images, c.y0[1:], start, hold)]
    return [
        Grip(c, [k + 1], c.active, rows[k : k + 1], images[k : k + 1], [c.y0[k + 1]], [start[k]], edges(mu, most[k]))
        for k, mu in enumerate(c.cone.friction)
    ]


def _jacobian(m: Model, d: Data, c: ContactForce) -> list[Row]:
    """Return J of each axis but the normal."""
    moved = {body: set(dofs_of(m, body)) for body in range(m.nbody)}
    rows: list[Row] = [{} for _ in range(c.condim - 1)]
    for v in sorted({v for body in c.bodies for v in moved[body]}):
        motion = [d.odof[v] if v in moved[body] else zeros(6) for body in range(m.nbody)]
        for row, x in zip(rows, c.along(motion)[1:], strict=True):
            row[v] = x
    return rows
