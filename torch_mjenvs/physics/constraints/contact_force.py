"""Contacts written out one by one: the base of `world_contacts` and `body_contacts`.

motion: spatial acceleration or velocity (angular, linear) of each body, at the moving origin of its tree.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...compiler.control import when_any
from ...compiler.scalar import Mask, Scalar, logical_and, logical_or
from ..algebra.spatial import Vec, add, scale, zeros
from ..model.data import Data
from ..model.model import Model, Pair
from .cones.pyramid import Cone
from .listed import ByBody, Listed, PerBody, Visit, of_bodies
from .rows import Constraint

# Pairs of which a GPU writes out no more. Its threads skip code one by one, which gains nothing and spills more; and so
# robots of few pairs have one program everywhere.
FEW = 12


class Touch:
    """One contact, or the contacts of one pair in a loop.

    bodies: of the pair's geom1 and geom2; the normal points from the first to the second. active: mask of the worlds
    where it touches.
    """

    pair: Pair
    bodies: tuple[int, int]
    active: Mask

    def each(self, do: Callable[[Any, Any], Any], carry: Any) -> Any:
        """Run `carry = do(contact, carry)` for each `ContactForce`, in the worlds where it is active; return carry."""
        raise NotImplementedError

    @property
    def movers(self) -> tuple[int, ...]:
        """The bodies that it moves: both, or the one that touches the world."""
        return self.bodies

    @property
    def uncertain(self) -> Mask:
        """Mask of the worlds where a contact that is active needs refinement: see `Constraint.needs_refinement`."""
        raise NotImplementedError

    def pull(
        self, m: Model, d: Data, force: Callable[[ContactForce], list[Scalar]], wrench: list[list[Scalar]]
    ) -> None:
        """Add to `wrench` the wrenches on both bodies by the force of each contact along its axes (condim)."""
        touched = [(side, body) for side, body in enumerate(self.bodies) if body]

        def push(c: ContactForce, carry: list[list[Scalar]]) -> list[list[Scalar]]:
            pushed = c.wrenches(m, d, force(c))
            return [
                add(old, scale(pushed[side], (-1.0, 1.0)[side])) for old, (side, _) in zip(carry, touched, strict=True)
            ]

        new = self.each(push, [wrench[body] for _, body in touched])
        for (_, body), x in zip(touched, new, strict=True):
            wrench[body] = x


@dataclass
class ContactForce(Touch):
    """A contact that may touch. Where it is not `active`, what depends on the state is unspecified, or None in plain
    Python.

    number: its place among the pair's contacts. bodies: of geom1 and geom2; the normal points from the first to the
    second. frame: normal and two tangents. y0: the constant of the residual along each axis (condim; see `pyramid`).
    refine: see `Constraint.needs_refinement`. adhesion: the force with which it pulls; its cone pushes that much
    harder.
    """

    active: Mask
    pair: Pair
    number: Scalar
    bodies: tuple[int, int]
    dist: Scalar
    frame: list[list[Scalar]]
    cone: Cone
    y0: list[Scalar]
    refine: Mask
    adhesion: float

    @property
    def condim(self) -> int:
        return len(self.cone.friction) + 1

    def along(self, motion: list[list[Scalar]]) -> list[Scalar]:
        """Return J x, the motion of the contact's point along the axes (condim) if the bodies move by `motion`."""
        raise NotImplementedError

    def wrenches(self, m: Model, d: Data, force: list[Scalar]) -> list[list[Scalar]]:
        """Return the wrench (torque, force) on the second body by a force along the axes, about each tree's origin.

        First about the origin of the first body's tree, then about that of the second's.
        """
        raise NotImplementedError

    def each(self, do: Callable[[Any, Any], Any], carry: Any) -> Any:
        return when_any(self.active, lambda carry: do(self, carry), carry)

    @property
    def uncertain(self) -> Mask:
        return False if self.refine is False else logical_and(self.active, self.refine)

    def points(self, m: Model, d: Data) -> list[list[Scalar]]:
        """Return the contact's point, from the origins of the trees of the first body and of the second."""
        raise NotImplementedError

    def residual(self, motion: list[list[Scalar]]) -> list[Scalar]:
        """Return the residual J a + y0 along the axes (condim)."""
        return [x + y for x, y in zip(self.along(motion), self.y0, strict=True)]

    def force(self, motion: list[list[Scalar]]) -> list[Scalar]:
        """Return the force along the axes (condim), less the pull of adhesion. mj_contactForce."""
        pushed = self.cone.push(self.residual(motion))[0]
        return [pushed[0] - self.adhesion, *pushed[1:]] if self.adhesion else pushed


@dataclass
class Contacts(Constraint):
    """Contacts of one kind, one after the other.

    by_movers: the contacts of a body, or of two. active: masks of the worlds for which their shares are computed: those
    where one of them touches; of few pairs, all.
    """

    contacts: Sequence[Touch]
    by_movers: dict[tuple[int, ...], list[Touch]] = field(init=False)
    active: dict[tuple[int, ...], Mask] = field(init=False)

    def __post_init__(self) -> None:
        self.by_movers, self.active, many = {}, {}, self.many
        for c in self.contacts:
            self.by_movers.setdefault(c.movers, []).append(c)
        for movers, touches in self.by_movers.items():
            self.active[movers] = logical_or(*(c.active for c in touches)) if many else True

    @property
    def many(self) -> bool:
        """Whether it pays to ask whether a body touches anything."""
        return len({id(c.pair) for c in self.contacts}) > FEW

    @property
    def needs_refinement(self) -> list[Mask]:
        return [where for where in (c.uncertain for c in self.contacts) if where is not False]

    def fold_rows(self, m: Model, d: Data, a: Vec, dx: Vec, alpha: Scalar, total: list[Scalar]) -> list[Scalar]:
        motion, change = body_motion(m, d, a), body_motion(m, d, dx)

        def push(c: ContactForce, carry: list[Scalar]) -> list[Scalar]:
            rows = c.cone.rows
            return c.cone.fold(carry, rows(c.residual(motion)), rows(c.along(change)), alpha)

        for movers, touches in self.by_movers.items():

            def fold(total: list[Scalar], touches: list[Touch] = touches) -> list[Scalar]:
                for c in touches:
                    total = c.each(push, total)
                return total

            # Most bodies touch nothing: one question for all their contacts.
            total = when_any(self.active[movers], fold, total) if len(touches) > 1 else fold(total)
        return total

    def add_wrenches(self, m: Model, d: Data, a: Vec, wrench: list[list[Scalar]]) -> None:
        motion = body_motion(m, d, a)
        for c in self.contacts:
            c.pull(m, d, lambda c: c.force(motion), wrench)

    def add_adhesion(self, m: Model, d: Data, wrench: list[list[Scalar]]) -> None:
        """Add the pull of contacts that adhere to `wrench`, a list by body."""
        for c in self.contacts:
            if isinstance(c, ContactForce) and c.adhesion:
                c.pull(m, d, lambda c: [-c.adhesion], wrench)

    def fold_listed(
        self, m: Model, d: Data, a: Vec, wanted: Callable[[Pair], bool], by_body: ByBody, visit: Visit, carry: Any
    ) -> Any:
        """Run `visit` over the contacts of wanted pairs: see `Constraint.fold_listed`."""
        motion = body_motion(m, d, a)
        for touch in self.contacts:
            if not wanted(touch.pair):
                continue
            per_body = of_bodies(by_body, touch.bodies)

            def step(c: ContactForce, carry: Any, touch: Touch = touch, per_body: PerBody = per_body) -> Any:
                force = c.force(motion)
                source = c if c is touch else None  # in a loop one object stands for many
                listed = Listed(
                    source, lambda of: of(touch.pair), c.number, c.dist, c.points(m, d), c.frame, force, per_body
                )
                return visit(listed, carry)

            carry = touch.each(step, carry)
        return carry


def body_motion(m: Model, d: Data, x: Vec) -> list[list[Scalar]]:
    """Compute the spatial motion of every body (nbody x 6) for the dof values x (nv)."""
    motion = [zeros(6) for _ in range(m.nbody)]
    for b in range(1, m.nbody):
        motion[b] = motion[m.body_parentid[b]]
        for v in range(m.body_dofadr[b], m.body_dofadr[b] + m.body_dofnum[b]):
            motion[b] = [s + c * x[v] for s, c in zip(motion[b], d.odof[v], strict=True)]
    return motion


def in_world(frame: list[list[Scalar]], force: list[Scalar]) -> list[Scalar]:
    """Bring a vector given along n, t1, t2 into world axes; given lines in place of axes, return the wrench."""
    out = zeros(len(frame[0]))
    for axis, f in zip(frame, force, strict=False):
        out = add(out, scale(axis, f))
    return out
