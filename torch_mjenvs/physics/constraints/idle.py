"""Contacts in mjData.contact without a force: those in the gap, unless they adhere, and those of bodies that cannot
move relative to each other.
"""

from __future__ import annotations

from typing import Any

from ...compiler.control import when_any
from ...compiler.scalar import logical_and
from ..algebra.spatial import is_zero, zeros
from ..collision.candidates import Candidate, Contact
from ..collision.contact_param import contact_param
from ..collision.shapes import COLLIDERS
from ..model.model import Model, Pair, bodies_of
from .body_contacts import sides_of
from .listed import ByBody, Listed, Visit, of_bodies


def can_be_listed(m: Model, pair: Pair) -> bool:
    """Return whether the contacts of two geoms that are welded together are found as MuJoCo finds them."""
    geoms = pair.geom1, pair.geom2
    collider = COLLIDERS.get((m.geom_type[pair.geom1], m.geom_type[pair.geom2]))
    unread = any(m.geom_dataid[g] >= 0 for g in geoms)  # meshes and height fields that touch nothing else
    return not (collider is None or collider.hulls or collider.ccd or unread)


def fold_idle(m: Model, candidate: Candidate, by_body: ByBody, visit: Visit, carry: Any) -> Any:
    """Run `visit` over a pair's contacts that have no force, as `Constraint.fold_listed` does over those that act."""
    pair, param = candidate.pair, contact_param(m, candidate.pair)
    bodies = bodies_of(m, pair)
    acts = any(side.dofs for side in sides_of(m, *bodies))
    if acts and (is_zero(param.gap) or param.adhesion):
        return carry

    per_body = of_bodies(by_body, bodies)

    def look(carry: Any) -> Any:
        for number, contact in enumerate(candidate.contacts()):

            def step(carry: Any, number: int = number, contact: Contact = contact) -> Any:
                *points, frame = contact.oarms()
                nothing = zeros(pair.condim)
                listed = Listed(contact, lambda of: of(pair), number, contact.dist, points, frame, nothing, per_body)
                return visit(listed, carry)

            there = contact.dist < param.margin + param.gap
            idle = logical_and(there, contact.dist >= param.margin) if acts else there
            carry = when_any(idle, step, carry)
        return carry

    return when_any(candidate.near(param.gap), look, carry)
