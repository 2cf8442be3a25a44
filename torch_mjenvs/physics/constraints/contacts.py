"""Makes the contacts that are written out one by one, against the world and between two moving bodies.

Nothing is computed for pairs that are far apart in all worlds, nor rows for those that do not touch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from ...compiler.active_sets import active_set
from ...compiler.arrays import Array, Table
from ...compiler.control import compute_any
from ...compiler.scalar import Mask, Scalar, logical_and, logical_or, select
from ..algebra.spatial import is_zero
from ..collision.candidates import Candidate
from ..collision.colliders import NEVER
from ..collision.contact_param import contact_param
from ..collision.shapes import most_contacts
from ..model.data import Data
from ..model.model import Model, Pair, bodies_of
from . import body_contacts, world_contacts
from .batch.records import records_each
from .body_contacts import BodyContact, BodyContacts, Side, sides_of
from .cones.elliptic import EllipticCone
from .cones.pyramid import Cone, Pyramid
from .cones.spring_pyramid import SpringPyramid
from .contact_row import ContactRow, row_param
from .softening import ContactBound, contact_bound
from .surface import with_surfaces
from .world_contacts import WorldContact, WorldContactLoop, WorldContacts

MANY = 4  # contacts of a pair with the world that are written out one by one; more share a loop
_NOTHING: Any = (None, None), None, None, None  # what is known, in plain Python, of a contact that does not touch


def contacts(m: Model, d: Data, candidates: list[Candidate]) -> tuple[WorldContacts, BodyContacts]:
    """Make the contacts that the candidates may come to: with the world, and of two bodies. mj_instantiateContact."""
    found = [c for candidate in candidates for c in _contacts(m, d, candidate)]
    return (
        WorldContacts([c for c in found if isinstance(c, WorldContact | WorldContactLoop)]),
        BodyContacts([c for c in found if isinstance(c, BodyContact)]),
    )


def in_loop(m: Model, pair: Pair) -> bool:
    """Return whether a pair's contacts share a loop: they are with the world, and many.

    Noslip needs each contact by itself, and so does adhesion.
    """
    if contact_param(m, pair).adhesion:
        return False
    one_moves = len(sides_of(m, *bodies_of(m, pair))) == 1
    return one_moves and most_contacts(m, pair) > MANY and not m.noslip_iterations


def _contacts(m: Model, d: Data, candidate: Candidate) -> list[WorldContact | WorldContactLoop | BodyContact]:
    sides = sides_of(m, *bodies_of(m, candidate.pair))
    if not sides:
        return []
    if in_loop(m, candidate.pair):
        return [_loop(m, d, candidate, sides[0])]
    param = contact_param(m, candidate.pair)
    held = param.adhesion and not is_zero(param.gap)  # it pulls in the gap, too
    near = candidate.near(param.gap) if held else candidate.near()
    if near is True:  # nothing is saved by a block of its own
        places = [(c.dist, c.oarms) for c in candidate.contacts()]
    else:
        found = compute_any(near, lambda: [[c.dist, c.oarms()] for c in candidate.contacts()])
        found = found or [[NEVER, None]] * candidate.ncon  # in plain Python, where nothing was near
        places = [(select(near, dist, NEVER), _always(where)) for dist, where in found]

    def contact(
        maker: _Maker, active: Mask, number: int, distance: Scalar, where: Callable[[], Any]
    ) -> WorldContact | BodyContact:
        def compute() -> tuple[Any, Any, Scalar, list[Scalar]]:
            arm1, arm2, frame = where()
            if len(sides) == 1:
                return maker.on_world(sides[0], distance, arm1, arm2, frame)
            stiffness, row = maker.row(distance)
            lines = body_contacts.lines_of((arm1, arm2), frame, maker.pair.condim)
            velocity = body_contacts.along(lines, (sides[0], sides[1]), d.ovel)
            velocity = with_surfaces(m, d, maker.pair, velocity, (arm1, arm2), frame)
            return (lines, (arm1, arm2)), frame, stiffness, maker.y0(stiffness, row, velocity)

        place, frame, stiffness, y0 = compute_any(active, compute) or _NOTHING
        cone, refine = maker.cone(stiffness), maker.bound.needs_refinement
        common = active, maker.pair, number, maker.bodies, distance, frame, cone, y0, refine, param.adhesion
        if len(sides) == 1:
            return WorldContact(*common, sides[0].body, sides[0].sign, place)
        return BodyContact(*common, (sides[0], sides[1]), *place)

    maker = _Maker(m, d, candidate.pair)
    out: list[WorldContact | WorldContactLoop | BodyContact] = []
    for number, (dist, where) in enumerate(places):
        out.append(contact(maker, dist < param.margin, number, dist, where))
    if held:  # in the gap there is no friction, since surfaces that are apart do not rub
        maker, reach = _Maker(m, d, dataclasses.replace(candidate.pair, condim=1)), param.margin + param.gap
        for number, (dist, where) in enumerate(places):
            out.append(contact(maker, logical_and(dist >= param.margin, dist < reach), number, dist, where))
    return out


def _loop(m: Model, d: Data, candidate: Candidate, side: Side) -> WorldContactLoop:
    """Make a loop over the contacts of a pair that may touch the world in many points."""
    near, maker = candidate.near(), _Maker(m, d, candidate.pair)
    found = compute_any(near, lambda: [[dist, spot] for dist, spot in candidate.spots()])
    if not found:  # in plain Python, where nothing was near
        return WorldContactLoop(maker.pair, maker.bodies, False, side.body, [], _no_contact, False)
    spots = Array([[dist, *spot] for dist, spot in found])
    active = [logical_and(near, dist < maker.param.margin) for dist, _ in found]
    touching, numbers = active_set(active), Table([float(k) for k in range(len(found))])

    def rows(i: Any) -> dict[str, Any]:
        dist, *spot = spots[i]
        found = candidate.contact(dist, spot)
        r, frame, stiffness, y0 = maker.on_world(side, found.dist, *found.oarms())
        return {"r": r, "D": stiffness, "y0": y0} | {f"axis{k}": axis for k, axis in enumerate(frame)}

    kept = records_each(touching, rows)

    def contact(i: Any) -> WorldContact:
        r, stiffness, y0 = (kept.at(i, name) for name in ("r", "D", "y0"))
        frame, cone = [kept.at(i, f"axis{k}") for k in range(3)], maker.cone(stiffness)
        common = True, maker.pair, numbers[i], maker.bodies, spots[i, 0], frame, cone, y0, False, 0.0
        return WorldContact(*common, side.body, side.sign, r)

    anywhere, refine = logical_or(*active), maker.bound.needs_refinement
    uncertain = False if refine is False else logical_and(anywhere, refine)
    return WorldContactLoop(maker.pair, maker.bodies, anywhere, side.body, touching, contact, uncertain)


class _Maker:
    """Makes the contacts of a pair from what they have in common."""

    def __init__(self, m: Model, d: Data, pair: Pair):
        self.m, self.d, self.pair, self.bodies = m, d, pair, bodies_of(m, pair)
        self.param, self.bound = row_param(m, pair), contact_bound(m, pair, d.precision)
        param = contact_param(m, pair)
        self.friction, self.adhesion = param.friction[: pair.condim - 1], param.adhesion

    def row(self, distance: Scalar) -> tuple[Scalar, ContactRow]:
        """Return the stiffness and the row at a distance."""
        row = ContactRow(self.param, distance)
        return row.stiffness(self.bound.give), row

    def y0(self, stiffness: Scalar, row: ContactRow, velocity: Sequence[Scalar]) -> list[Scalar]:
        """Return the constant y0 along each axis. Adhesion lowers the normal's: the cone pushes that much harder."""
        y0 = row.y0(velocity)
        if self.adhesion:
            y0[0] = y0[0] - self.adhesion * self.cone(stiffness).compliance
        return y0

    def cone(self, stiffness: Scalar) -> Cone:
        return cone_of(self.m, self.friction, stiffness, self.bound)

    def on_world(
        self, side: Side, distance: Scalar, arm1: list[Scalar], arm2: list[Scalar], frame: list[list[Scalar]]
    ) -> tuple[list[Scalar], list[list[Scalar]], Scalar, list[Scalar]]:
        """Return the place, the frame, the stiffness and y0 of a contact with the world."""
        stiffness, row = self.row(distance)
        r = arm2 if side.sign > 0 else arm1
        velocity = world_contacts.along(r, frame, self.pair.condim, side.sign, self.d.ovel[side.body])
        velocity = with_surfaces(self.m, self.d, self.pair, velocity, (arm1, arm2), frame)
        return r, frame, stiffness, self.y0(stiffness, row, velocity)


def cone_of(m: Model, friction: list[Scalar], D: Scalar, bound: ContactBound) -> Cone:
    """Make a contact's cone from its friction and the stiffness D of its rows (of an elliptic cone, of the normal)."""
    if m.cone == "elliptic" and friction:
        return EllipticCone(friction, D, friction[0] * friction[0] / m.impratio, bound.slip)
    return Pyramid(friction, D) if is_zero(bound.spring) else SpringPyramid(friction, D, bound.spring)


def _no_contact(i: Any) -> WorldContact:
    raise IndexError(i)


def _always(x: Any) -> Callable[[], Any]:
    return lambda: x
