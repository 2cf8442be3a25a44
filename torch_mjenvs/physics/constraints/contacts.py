"""What becomes of the geoms that may touch: the contacts' rows, against the world and between two moving bodies.

Nothing is computed for pairs that are far apart in all worlds, nor rows for those that do not touch. What rounding
does not bear is softened: see `stiff`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...compiler.control import compute_any
from ...compiler.scalar import Scalar, clip, maximum, select
from ..collision.colliders import NEVER
from ..collision.contact_param import contact_param
from ..collision.driver import Candidate
from ..data import Data
from ..model import Model, Pair
from ..precision import Precision
from ..spatial import MINVAL, is_zero
from . import body_contacts, stiff, world_contacts
from .body_contacts import BodyContact, BodyContacts, sides_of
from .elliptic import EllipticCone
from .pyramid import Cone, Pyramid
from .rows import MAX_IMP, MIN_IMP, impedance, reference
from .world_contacts import WorldContact, WorldContacts

_NOTHING: Any = (None, None), None, None  # what is known, in plain Python, of a contact that does not touch


def contacts(m: Model, d: Data, candidates: list[Candidate]) -> tuple[WorldContacts, BodyContacts]:
    """The contacts that the candidates may come to. mj_instantiateContact."""
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
    param, weight, bound = contact_param(m, pair), row_weight(m, pair), bound_of(m, pair, d.precision)
    k, damping = reference_of(m, pair)
    ovel = d.ovel

    def contact(distance: Scalar, where: Callable[[], Any]) -> WorldContact | BodyContact:
        active = distance < param.margin

        def compute() -> tuple:
            arm1, arm2, frame = where()
            depth = distance - param.margin
            imp = impedance(param.solimp, depth)
            resistance = (1.0 - imp) * weight
            stiffness = imp / (resistance if is_zero(bound.give) else maximum(resistance, imp * bound.give))
            place: Any
            if len(sides) == 1:
                (side,) = sides
                r = arm2 if side.sign > 0 else arm1
                place = r, frame
                velocity = world_contacts.along(r, frame, pair.condim, side.sign, ovel[side.body])
            else:
                lines = body_contacts.lines_of((arm1, arm2), frame, pair.condim)
                place = lines, (arm1, arm2)
                velocity = body_contacts.along(lines, (sides[0], sides[1]), ovel)
            y0 = [b * v for b, v in zip(damping, velocity, strict=True)]
            y0[0] = y0[0] + k * imp * depth
            return place, stiffness, y0

        place, stiffness, y0 = compute_any(active, compute) or _NOTHING
        cone = cone_of(m, param.friction[: pair.condim - 1], stiffness, bound)
        if len(sides) == 1:
            r, frame = place
            return WorldContact(active, bodies, cone, y0, bound.shows, sides[0].body, sides[0].sign, r, frame)
        return BodyContact(active, bodies, cone, y0, bound.shows, (sides[0], sides[1]), *place)

    return [contact(distance, where) for distance, where in places]


def cone_of(m: Model, friction: list, D: Scalar, bound: stiff.Bound) -> Cone:
    """The cone of a contact of this friction, whose rows are of stiffness D: of an elliptic one, that of the normal."""
    if m.cone == "elliptic" and friction:
        return EllipticCone(friction, D, friction[0] * friction[0] / m.impratio, bound.slip)
    return Pyramid(friction, D) if is_zero(bound.spring) else stiff.SpringPyramid(friction, D, bound.spring)


def reference_of(m: Model, pair: Pair) -> tuple[Scalar, list[Scalar]]:
    """Stiffness k, and damping b along each axis: an elliptic cone may have another one where there is friction."""
    param = contact_param(m, pair)
    k, b = reference(param.solref, param.solimp, param.direct, m.timestep)
    own = param.solreffriction
    if m.cone == "pyramidal" or not any(own):
        return k, [b] * pair.condim
    return k, [b] + [reference(own, param.solimp, own[0] <= 0, m.timestep)[1]] * (pair.condim - 1)


def bodies_weights(m: Model, pair: Pair) -> tuple[Scalar, Scalar]:
    """The inverse inertia of both bodies: of their centres of mass, and against turning."""
    weights = [m.body_invweight0[m.geom_bodyid[geom]] for geom in (pair.geom1, pair.geom2)]
    return weights[0][0] + weights[1][0], weights[0][1] + weights[1][1]


def row_weight(m: Model, pair: Pair) -> Scalar:
    """A row's diagApprox: D is imp / (1 - imp) by this; of an elliptic cone, the normal's. mj_makeImpedance."""
    return maximum(bodies_weights(m, pair)[0] * _share_of_row(m, pair), MINVAL)


def _share_of_row(m: Model, pair: Pair) -> Scalar:
    """What friction makes of a row's weight."""
    mu = contact_param(m, pair).friction[0]
    return (1 + mu * mu) * 2 * mu * mu / m.impratio if pair.condim > 1 and m.cone == "pyramidal" else 1.0


def bound_of(m: Model, pair: Pair, precision: Precision) -> stiff.Bound:
    """Whether rounding bears the pair's contacts, at their stiffest."""
    dmin, dmax = contact_param(m, pair).solimp[:2]
    most = clip(maximum(dmin, dmax), MIN_IMP, MAX_IMP)
    if m.nominal is None:
        return stiff.bound(m, pair, precision, most / ((1 - most) * row_weight(m, pair)), bodies_weights(m, pair))
    usual, weights = bound_of(m.nominal, pair, precision), [bodies_weights(x, pair) for x in (m.nominal, m)]
    return stiff.bound_of_world(m, usual, pair, precision, most / (1 - most), _share_of_row(m, pair), weights)


def _always(x: Any) -> Callable[[], Any]:
    return lambda: x
