"""Contacts between two moving bodies, by their Jacobians in the dofs that move one of the bodies but not the other.

A line is an axis of the contact (see `pyramid`) as a spatial vector. The product of (r x axis, axis) with a body's
motion is how fast the body's point r moves along the axis; that of (axis, 0), how fast the body turns about it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...compiler.control import when_any
from ...compiler.scalar import Mask, Scalar, logical_or
from ..algebra.spatial import Vec, cross, dot, sub, sum_of
from ..model.data import Data
from ..model.model import Model, dofs_of, moving_body
from .contact_force import ContactForce, Contacts, in_world
from .limbs import IdleRows
from .rows import Hessian


@dataclass(frozen=True)
class Side:
    """One side of a contact: the body that moves the point there, and the dofs that move it but not the other side.

    sign: +1 for the body that the normal points to, else -1.
    """

    body: int
    sign: float
    dofs: tuple[int, ...]


@dataclass
class BodyContact(ContactForce):
    """A contact of two moving bodies.

    sides: that of the second body, then that of the first. lines: for each side, a line for each axis (condim).
    arms: the point, from the origins of the trees of the first body and of the second.
    """

    sides: tuple[Side, Side]
    lines: list[list[list[Scalar]]]
    arms: tuple[list[Scalar], list[Scalar]]

    @property
    def dofs(self) -> list[int]:
        """The dofs that move one of the bodies but not the other, in order."""
        return sorted(v for side in self.sides for v in side.dofs)

    def along(self, motion: list[list[Scalar]]) -> list[Scalar]:
        return along(self.lines, self.sides, motion)

    def wrenches(self, m: Model, d: Data, force: list[Scalar]) -> list[list[Scalar]]:
        return [in_world(lines, force) for lines in reversed(self.lines)]

    def points(self, m: Model, d: Data) -> list[list[Scalar]]:
        return list(self.arms)


@dataclass
class BodyContacts(Contacts):
    """The contacts between moving bodies. Each adds the products of its rows of the Jacobian to the Hessian."""

    contacts: Sequence[BodyContact]

    @property
    def acts(self) -> Mask:
        return logical_or(*(c.active for c in self.contacts))

    def idle(self, m: Model) -> IdleRows | None:
        return IdleRows.of(m, (c.dofs for c in self.contacts))

    def add_rows(self, m: Model, d: Data, a: Vec, gradient: list[Scalar], hessian: Hessian) -> None:
        for c in self.contacts:
            _add_rows(c, d, a, gradient, hessian)


def _add_rows(c: BodyContact, d: Data, a: Vec, gradient: list[Scalar], hessian: Hessian) -> None:
    dofs = c.dofs
    entries = [(u, v) for u in dofs for v in dofs if v <= u]
    rows = range(c.condim)

    def push(carry: list[list[Scalar]]) -> list[list[Scalar]]:
        sides = list(zip(c.lines, c.sides, strict=True))
        jacobian = [{v: dot(lines[k], d.odof[v]) * side.sign for lines, side in sides for v in side.dofs} for k in rows]
        y = [sum_of(row[v] * a[v] for v in dofs) + y for row, y in zip(jacobian, c.y0, strict=True)]
        force, weight = c.cone.push(y)
        g = [old - sum_of(force[k] * jacobian[k][v] for k in rows) for v, old in zip(dofs, carry[0], strict=True)]
        image = [{v: sum_of(weight[k][i] * jacobian[i][v] for i in rows) for v in dofs} for k in rows]
        h = [
            old + sum_of(jacobian[k][u] * image[k][v] for k in rows)
            for (u, v), old in zip(entries, carry[1], strict=True)
        ]
        return [g, h]

    g, h = when_any(c.active, push, [[gradient[v] for v in dofs], [hessian[u].get(v, 0.0) for u, v in entries]])
    for v, x in zip(dofs, g, strict=True):
        gradient[v] = x
    for (u, v), x in zip(entries, h, strict=True):
        hessian[u][v] = x


def along(lines: list[list[list[Scalar]]], sides: tuple[Side, Side], motion: list[list[Scalar]]) -> list[Scalar]:
    """Return the relative motion of the two bodies along each line (condim)."""
    body2, body1 = (side.body for side in sides)
    if all(x is y for two, one in zip(*lines, strict=True) for x, y in zip(two, one, strict=True)):  # one tree
        apart = sub(motion[body2], motion[body1])
        return [dot(line, apart) for line in lines[0]]
    return [dot(two, motion[body2]) - dot(one, motion[body1]) for two, one in zip(*lines, strict=True)]


def lines_of(
    arms: tuple[list[Scalar], list[Scalar]], frame: list[list[Scalar]], condim: int
) -> list[list[list[Scalar]]]:
    """Make `BodyContact.lines` of a point. arms: the point from the origins of the first and the second body's tree."""
    arm1, arm2 = arms
    turning = [[*axis, 0.0, 0.0, 0.0] for axis in frame[: max(condim - 3, 0)]]
    return [[cross(r, axis) + axis for axis in frame[:condim]] + turning for r in (arm2, arm1)]


def sides_of(m: Model, body1: int, body2: int) -> list[Side]:
    """Find the sides that move of a contact of body1 and body2: first that of body2, to which the normal points."""
    dofs1, dofs2 = dofs_of(m, body1), dofs_of(m, body2)
    sides = [
        Side(moving_body(m, body2), 1.0, tuple(v for v in dofs2 if v not in dofs1)),
        Side(moving_body(m, body1), -1.0, tuple(v for v in dofs1 if v not in dofs2)),
    ]
    return [s for s in sides if s.body != 0]


def dofs_apart(m: Model, body1: int, body2: int) -> int:
    """Return how many dofs move one of the bodies and not the other."""
    return sum(len(side.dofs) for side in sides_of(m, body1, body2))
