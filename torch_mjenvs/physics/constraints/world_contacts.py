"""Contacts of one moving body with the world: J'DJ is a stiffness of the touching body.

It adds to the body's inertia, and the Hessian follows by the composite-rigid-body sum over the tree that also gives M.
Its pattern is M's, whatever the number of contacts.

Letters: r a point as seen from its tree's moving origin; S a body's contact stiffness, a symmetric 6 x 6 of 21 numbers:
angular block (lower triangle, 6), angular-linear block (9), linear block (lower triangle, 6).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...compiler.active_sets import fold_each
from ...compiler.control import compute_any, when_any
from ...compiler.scalar import Mask, Scalar, logical_or
from ..algebra.spatial import Vec, add, cross, dot, scale, sum_of, zeros
from ..dynamics.kinematics import between
from ..model.data import Data
from ..model.model import Model, Pair
from .contact_force import ContactForce, Contacts, Touch, body_motion, in_world
from .rows import Hessian

Sums = list[list[Scalar]]  # a wrench (6) and a stiffness (21)


@dataclass
class WorldContact(ContactForce):
    """A contact of `body` with the world. sign: +1 where the normal points to the body, else -1."""

    body: int
    sign: float
    r: list[Scalar]

    @property
    def movers(self) -> tuple[int, ...]:
        return (self.body,)

    def along(self, motion: list[list[Scalar]]) -> list[Scalar]:
        return along(self.r, self.frame, self.condim, self.sign, motion[self.body])

    def wrenches(self, m: Model, d: Data, force: list[Scalar]) -> list[list[Scalar]]:
        arms = self.points(m, d)
        f, torque = in_world(self.frame, force[:3]), in_world(self.frame, force[3:])
        return [add(cross(arm, f), torque) + f for arm in arms]

    def points(self, m: Model, d: Data) -> list[list[Scalar]]:
        here = m.body_originid[self.body]
        return [add(self.r, between(d, m.body_originid[body], here)) for body in self.bodies]


@dataclass
class WorldContactLoop(Touch):
    """The contacts of one pair that may touch in many points, in a loop over those that do.

    body: the one that moves. touching: the active set of their numbers. contact: makes the contact of a number.
    refine: mask of the worlds where one that is active needs refinement.
    """

    pair: Pair
    bodies: tuple[int, int]
    active: Mask
    body: int
    touching: Any
    contact: Callable[[Any], WorldContact]
    refine: Mask

    @property
    def movers(self) -> tuple[int, ...]:
        return (self.body,)

    @property
    def uncertain(self) -> Mask:
        return self.refine

    def each(self, do: Callable[[Any, Any], Any], carry: Any) -> Any:
        return fold_each(self.touching, lambda i, carry: do(self.contact(i), carry), carry)


@dataclass
class WorldContacts(Contacts):
    """The contacts with the world: a wrench and a stiffness of each body, summed over its subtree."""

    contacts: Sequence[WorldContact | WorldContactLoop]

    def add_rows(self, m: Model, d: Data, a: Vec, gradient: list[Scalar], hessian: Hessian) -> None:
        motion = body_motion(m, d, a)

        def push(c: WorldContact, carry: Sums) -> Sums:
            return add_stiffness(carry, c.r, c.frame, c.sign, *c.cone.push(c.residual(motion)))

        def of_body(touches: Sequence[Touch]) -> Sums:
            sums = [zeros(6), zeros(21)]
            for c in touches:
                sums = c.each(push, sums)
            return sums

        if self.many:
            own = {body: functools.partial(of_body, touches) for (body,), touches in self.by_movers.items()}
        else:  # one after the other, before they are added up
            made = {body: of_body(touches) for (body,), touches in self.by_movers.items()}
            own = {body: functools.partial(made.__getitem__, body) for body in made}
        spread(m, d, {body: active for (body,), active in self.active.items()}, own, gradient, hessian)


def add_stiffness(
    sums: Sums,
    r: list[Scalar],
    frame: list[list[Scalar]],
    sign: Scalar,
    force: list[Scalar],
    weight: list[list[Scalar]],
) -> Sums:
    """Return the sums of a body's wrenches (6) and stiffnesses (21), with those of a contact added.

    force, weight: as its cone gives them, along its axes.
    """
    f, torque = (scale(in_world(frame, part), -sign) for part in (force[:3], force[3:]))
    k = _in_world_axes(frame, [row[:3] for row in weight[:3]])
    pushing = add(cross(r, f), torque) + f
    return [add(sums[0], pushing), add(sums[1], add(_at(k, r), _of_turning(r, frame, weight)))]


def spread(
    m: Model,
    d: Data,
    acts: Mapping[int, Mask],
    own: Mapping[int, Callable[[], Sums]],
    gradient: list[Scalar],
    hessian: Hessian,
) -> None:
    """Add the wrenches (6) and stiffnesses (21) of bodies, which `own` computes, to the gradient and the Hessian.

    acts: masks of the worlds where something acts on a body. Of subtrees on which nothing acts, nothing is computed.
    """
    touched, sums = _of_subtrees(m, acts), dict[int, Sums]()
    for body in sorted(touched, reverse=True):  # a subtree's bodies come after its root
        children = [b for b in sums if m.body_parentid[b] == body]

        def of_subtree(body: int = body, children: list[int] = children) -> Sums:
            if body not in own and len(children) == 1:
                return sums[children[0]]
            total = own[body]() if body in own else [zeros(6), zeros(21)]
            for child in children:
                total = when_any(touched[child], functools.partial(_sum, sums[child]), total)
            return total

        sums[body] = compute_any(touched[body], of_subtree)
        _add_to_dofs(m, d, body, touched[body], sums[body], gradient, hessian)


def _of_subtrees(m: Model, acts: Mapping[int, Mask]) -> dict[int, Mask]:
    """Return the masks of the worlds where something acts on the subtree of a body."""
    touched = dict(acts)
    for body in range(m.nbody - 1, 0, -1):
        if (parent := m.body_parentid[body]) and body in touched:
            touched[parent] = logical_or(touched.get(parent, False), touched[body])
    return touched


def _sum(x: Sums, y: Sums) -> Sums:
    return [add(other, part) for part, other in zip(x, y, strict=True)]


def _add_to_dofs(
    m: Model, d: Data, body: int, where: Mask, sums: Sums, gradient: list[Scalar], hessian: Hessian
) -> None:
    """Add the sums of a body's subtree to the gradient and the Hessian of the body's dofs, in these worlds."""
    dofs = range(m.body_dofadr[body], m.body_dofadr[body] + m.body_dofnum[body])

    def put(carry: Any) -> None:
        for i, slope, row in zip(dofs, *carry, strict=True):
            gradient[i] = slope
            hessian.put_row(m, i, row)

    def rows() -> Any:
        return [[gradient[i] for i in dofs], [hessian.row(m, i) for i in dofs]]

    def added(carry: Any) -> Any:
        put(carry)
        for i in dofs:
            gradient[i] = gradient[i] + dot(d.odof[i], sums[0])
            hessian.add_image(m, d, i, _mul(sums[1], d.odof[i]))
        return rows()

    put(when_any(where, added, rows()))


def along(r: Vec, frame: list[list[Scalar]], condim: int, sign: float, motion: list[Scalar]) -> list[Scalar]:
    """Return the motion of a body's point r along the axes (condim): v + w x r, and w."""
    point, turning = scale(add(motion[3:], cross(motion[:3], r)), sign), scale(motion[:3], sign)
    return [dot(axis, point) for axis in frame[:condim]] + [dot(axis, turning) for axis in frame[: max(condim - 3, 0)]]


def _of_turning(r: list[Scalar], frame: list[list[Scalar]], weight: list[list[Scalar]]) -> list[Scalar]:
    """Return the share of turning axes in a body's stiffness (21): their own, and what couples them with the others."""
    turning = _in_world_axes(frame, [row[3:] for row in weight[3:]])
    images = [in_world(frame, row[:3]) for row in weight[3:]]
    between = [
        [sum_of(axis[i] * u[j] for axis, u in zip(frame, images, strict=False)) for j in range(3)] for i in range(3)
    ]
    arms = [cross(r, row) for row in between]  # b[r]'
    angular = [turning[i][j] + (arms[i][j] + arms[j][i]) for i, j in _LOWER]
    return angular + [x for row in between for x in row] + [0.0] * 6


def _in_world_axes(frame: list[list[Scalar]], weight: list[list[Scalar]]) -> list[list[Scalar]]:
    """Bring a symmetric matrix given along n, t1, t2 into world axes (3 x 3)."""
    images = [in_world(frame, row) for row in weight]
    out = [zeros(3) for _ in range(3)]
    for i, j in _LOWER:
        out[i][j] = out[j][i] = sum_of(u[i] * axis[j] for u, axis in zip(images, frame, strict=False))
    return out


_LOWER = [(0, 0), (1, 0), (1, 1), (2, 0), (2, 1), (2, 2)]


def _at(k: list[list[Scalar]], r: list[Scalar]) -> list[Scalar]:
    """Turn the stiffness k (3 x 3) of the point r into one of spatial motion (21)."""
    columns = [cross(r, [k[0][j], k[1][j], k[2][j]]) for j in range(3)]  # [r]k
    rows = [[columns[j][i] for j in range(3)] for i in range(3)]
    angular = [cross(r, rows[j])[i] for i, j in _LOWER]  # [r]k[r]'
    return angular + [x for row in rows for x in row] + [k[i][j] for i, j in _LOWER]


def _mul(s: list[Scalar], v: list[Scalar]) -> list[Scalar]:
    """Return the product S v of a spatial stiffness (21) and a motion (6)."""

    def symmetric(t: list[Scalar], x: list[Scalar]) -> list[Scalar]:
        return [
            t[0] * x[0] + t[1] * x[1] + t[3] * x[2],
            t[1] * x[0] + t[2] * x[1] + t[4] * x[2],
            t[3] * x[0] + t[4] * x[1] + t[5] * x[2],
        ]

    mixed = [s[6:9], s[9:12], s[12:15]]
    w, u = v[:3], v[3:]
    angular = add(symmetric(s[:6], w), [dot(row, u) for row in mixed])
    linear = add([dot([mixed[i][j] for i in range(3)], w) for j in range(3)], symmetric(s[15:], u))
    return angular + linear
