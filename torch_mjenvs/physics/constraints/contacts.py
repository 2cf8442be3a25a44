"""Makes the contacts that are written out one by one, against the world and between two moving bodies.

Nothing is computed for pairs that are far apart in all worlds, nor rows for those that do not touch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...compiler.control import compute_any
from ...compiler.scalar import Scalar, select
from ..algebra.spatial import is_zero
from ..collision.candidates import Candidate
from ..collision.colliders import NEVER
from ..collision.contact_param import contact_param
from ..model.data import Data
from ..model.model import Model
from . import body_contacts, world_contacts
from .body_contacts import BodyContact, BodyContacts, sides_of
from .cones.elliptic import EllipticCone
from .cones.pyramid import Cone, Pyramid
from .cones.spring_pyramid import SpringPyramid
from .contact_row import ContactRow, row_param
from .softening import ContactBound, contact_bound
from .world_contacts import WorldContact, WorldContacts

_NOTHING: Any = (None, None), None, None, None  # what is known, in plain Python, of a contact that does not touch


def contacts(m: Model, d: Data, candidates: list[Candidate]) -> tuple[WorldContacts, BodyContacts]:
    """Make the contacts that the candidates may come to: with the world, and of two bodies. mj_instantiateContact."""
    found = [c for candidate in candidates for c in _contacts(m, d, candidate)]
    return (
        WorldContacts([c for c in found if isinstance(c, WorldContact)]),
        BodyContacts([c for c in found if isinstance(c, BodyContact)]),
    )


def _contacts(m: Model, d: Data, candidate: Candidate) -> list[WorldContact | BodyContact]:
    pair = candidate.pair
    bodies = m.geom_bodyid[pair.geom1], m.geom_bodyid[pair.geom2]
    sides = sides_of(m, *bodies)
    if not sides:
        return []
    near = candidate.near()
    if near is True:  # nothing is saved by a block of its own
        places = [(c.dist, c.oarms) for c in candidate.contacts()]
    else:
        found = compute_any(near, lambda: [[c.dist, c.oarms()] for c in candidate.contacts()])
        found = found or [[NEVER, None]] * candidate.ncon  # in plain Python, where nothing was near
        places = [(select(near, dist, NEVER), _always(where)) for dist, where in found]
    param, bound, ovel = row_param(m, pair), contact_bound(m, pair, d.precision), d.ovel
    friction = contact_param(m, pair).friction[: pair.condim - 1]

    def contact(number: int, distance: Scalar, where: Callable[[], Any]) -> WorldContact | BodyContact:
        active = distance < param.margin

        def compute() -> tuple[Any, Any, Scalar, list[Scalar]]:
            arm1, arm2, frame = where()
            row = ContactRow(param, distance)
            stiffness = row.stiffness(bound.give)
            place: Any
            if len(sides) == 1:
                (side,) = sides
                r = arm2 if side.sign > 0 else arm1
                place = r
                velocity = world_contacts.along(r, frame, pair.condim, side.sign, ovel[side.body])
            else:
                lines = body_contacts.lines_of((arm1, arm2), frame, pair.condim)
                place = lines, (arm1, arm2)
                velocity = body_contacts.along(lines, (sides[0], sides[1]), ovel)
            return place, frame, stiffness, row.y0(velocity)

        place, frame, stiffness, y0 = compute_any(active, compute) or _NOTHING
        cone = cone_of(m, friction, stiffness, bound)
        common = active, pair, number, bodies, distance, frame, cone, y0, bound.needs_refinement
        if len(sides) == 1:
            return WorldContact(*common, sides[0].body, sides[0].sign, place)
        return BodyContact(*common, (sides[0], sides[1]), *place)

    return [contact(number, distance, where) for number, (distance, where) in enumerate(places)]


def cone_of(m: Model, friction: list[Scalar], D: Scalar, bound: ContactBound) -> Cone:
    """Make the cone of a contact of this friction, with D of its rows; of an elliptic cone, D of the normal."""
    if m.cone == "elliptic" and friction:
        return EllipticCone(friction, D, friction[0] * friction[0] / m.impratio, bound.slip)
    return Pyramid(friction, D) if is_zero(bound.spring) else SpringPyramid(friction, D, bound.spring)


def _always(x: Any) -> Callable[[], Any]:
    return lambda: x
