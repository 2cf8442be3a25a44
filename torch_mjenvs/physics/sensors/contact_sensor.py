"""Contact sensors: which contacts of mjData.contact they match, how these are reduced, and what is given of each.

A sensor goes through the contacts of the pairs that it may match, however they are computed, and carries along what it
keeps of them. matchContact and mjSENS_CONTACT of MuJoCo's engine_sensor.c.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ...compiler.control import when_any
from ...compiler.scalar import Mask, Scalar, logical_and, logical_or, maximum, select, sqrt
from ..algebra.spatial import MINVAL, add, choose, column, cross, dot, is_number, scale, sub, zeros
from ..collision.candidates import candidates_of
from ..collision.shapes import collider_of
from ..constraints.contact_force import in_world
from ..constraints.idle import can_be_listed, fold_idle
from ..constraints.listed import Listed, Visit
from ..dynamics.velocity import at_point
from ..model.data import Data
from ..model.enums import ConDataField, ContactReduce, GeomType, ObjType
from ..model.model import Model, Pair
from .objects import not_there
from .ray import INSIDE, inside

ROD_ON_PLANE = (GeomType.PLANE, GeomType.CAPSULE)
MOST = 64  # more than a pair has contacts
EMPTY = 1e30  # what an empty slot is sorted by


def contact_data(m: Model, d: Data, i: int) -> list[Scalar]:
    """Compute what contact sensor i gives, slot by slot; 0 where there is no contact. Raises `UnsupportedModel`."""
    sensor = ContactSensor(m, d, i)
    return sensor.net() if m.sensor_reduce[i] == ContactReduce.NETFORCE else sensor.slots()


def direction(m: Model, i: int, pair: Pair) -> int:
    """Return 1 where contact sensor i matches a pair's contacts as they are, -1 from their other side, else 0.

    A site is left out: it matches by where a contact is. matchContact.
    """
    one, two = (m.sensor_objtype[i], m.sensor_objid[i]), (m.sensor_reftype[i], m.sensor_refid[i])
    is_one, is_two = ([_is_of(m, geom, *sought) for geom in (pair.geom1, pair.geom2)] for sought in (one, two))
    if not (any(is_one) and any(is_two)):
        return 0
    if two[0] == ObjType.UNKNOWN:
        return 1 if is_one[0] else -1
    if one[0] == ObjType.UNKNOWN:
        return 1 if is_two[1] else -1
    if is_one[0] and is_two[1]:
        return 1
    return -1 if is_one[1] and is_two[0] else 0


def _is_of(m: Model, geom: int, kind: int, k: int) -> bool:
    """Return whether a geom belongs to object k of a kind: checkMatch."""
    body = m.geom_bodyid[geom]
    if kind == ObjType.GEOM:
        return geom == k
    if kind == ObjType.BODY:
        return body == k
    if kind == ObjType.XBODY:
        while body > k:
            body = m.body_parentid[body]
        return body == k
    return True


@dataclass
class ContactSensor:
    """Contact sensor i in the state d."""

    m: Model
    d: Data
    i: int

    def __post_init__(self) -> None:
        m, i = self.m, self.i
        self.fields = [name for name in DATA if m.sensor_dataspec[i] >> ConDataField[name] & 1]
        self.size = sum(SIZES[name] for name in self.fields)
        self.num = m.sensor_dim[i] // self.size
        self.site = m.sensor_objid[i] if m.sensor_objtype[i] == ObjType.SITE else None
        if self.site is not None and m.site_type[self.site] not in INSIDE:
            raise not_there(m, i, " of a mesh")
        for pair in m.idle_pairs:
            if self.may_match(pair) and not can_be_listed(m, pair):
                one, two = (m.geom_names[g] for g in (pair.geom1, pair.geom2))
                raise not_there(m, i, f" that matches <contact><pair> of {one!r} and {two!r}, welded together,")
        if m.sensor_reduce[i] == ContactReduce.NONE and self.fields != ["FOUND"]:
            self._refuse_loose_order()

    def _refuse_loose_order(self) -> None:
        """Raise `UnsupportedModel` if MuJoCo's order of contacts decides, and is not known."""
        m = self.m
        for pair in m.pairs:
            if collider_of(m, pair).loose and m.multiccd and self.may_match(pair):
                one, two = (m.geom_names[g] for g in (pair.geom1, pair.geom2))
                what = f" of contacts of {one!r} and {two!r} in MuJoCo's order, which is not known for their shapes,"
                raise not_there(m, self.i, what, "choose reduce='mindist', 'maxforce' or 'netforce'")

    def may_match(self, pair: Pair) -> bool:
        """Return whether the sensor matches a pair's contacts, or those in its site."""
        return direction(self.m, self.i, pair) != 0

    def slots(self) -> list[Scalar]:
        """Compute as many contacts as there are slots: the first ones in the order of `_keys`."""
        bare = self.fields == ["FOUND"]  # then their number says all
        blank = [EMPTY] * len(self._keys(None)) + zeros(self.size)

        def keep(c: Listed, carry: list[Any]) -> list[Any]:
            count, rows = carry
            new = [] if bare else self._keys(c) + [x for name in self.fields for x in DATA[name](self, c)]
            kept = []
            for row in rows:
                first = _before(new, row, len(blank) - self.size)
                kept.append(choose(first, new, row))
                new = choose(first, row, new)
            return [count + 1.0, kept]

        count, rows = self._fold(keep, [0.0, [list(blank) for _ in range(0 if bare else self.num)]])
        out: list[Scalar] = []
        for k in range(self.num):
            found = [select(count > k + 0.5, count, 0.0)] if "FOUND" in self.fields else []
            out += found if bare else found + rows[k][len(blank) - self.size + len(found) :]
        return out

    def net(self) -> list[Scalar]:
        """Compute one contact in the middle of all forces, in world axes, which has the effect of all of them."""
        m, d = self.m, self.d
        geoms = [g for pair in m.pairs if self.may_match(pair) for g in (pair.geom1, pair.geom2)]
        near = max((m.body_originid[m.geom_bodyid[g]] for g in geoms), default=0)  # that of a body that moves

        def sum_up(c: Listed, carry: list[Any]) -> list[Any]:
            count, weight, places, force, torque = carry
            push, twist = (scale(in_world(c.frame, part), self.way(c)) for part in (c.force[:3], c.force[3:]))
            share, place = sqrt(dot(c.force[:3], c.force[:3])), self.place(c, near)
            torque = add(torque, add(twist, cross(place, push)))
            return [count + 1.0, weight + share, add(places, scale(place, share)), add(force, push), torque]

        nothing = [0.0, 0.0, zeros(3), zeros(3), zeros(3)]
        count, weight, places, force, torque = self._fold(sum_up, nothing)
        centre = scale(places, 1.0 / maximum(weight, MINVAL))
        values: dict[str, list[Scalar]] = {
            "FOUND": [count],
            "FORCE": force,
            "TORQUE": sub(torque, cross(centre, force)),
            "DIST": [0.0],
            "POS": choose(weight > 0.0, add(d.origin[near], centre), zeros(3)),
            "NORMAL": [select(count > 0.5, 1.0, 0.0), 0.0, 0.0],
            "TANGENT": [0.0, select(count > 0.5, 1.0, 0.0), 0.0],
        }
        return [x for name in self.fields for x in values[name]] + zeros((self.num - 1) * self.size)

    def _keys(self, c: Listed | None) -> list[Scalar]:
        """Return what contacts are sorted by: distance or force, and then their rank in mjData.contact."""
        reduce = self.m.sensor_reduce[self.i]
        if c is None:
            return [0.0] * (1 if reduce == ContactReduce.NONE else 2)
        rank = c.of_pair(lambda pair: float(pair.rank * MOST)) + c.number
        if reduce == ContactReduce.NONE:
            return [rank]
        return [c.dist if reduce == ContactReduce.MINDIST else -dot(c.force[:3], c.force[:3]), rank]

    def _fold(self, visit: Visit, carry: Any) -> Any:
        """Run `visit` over the contacts that match, with force and torque along all axes (6)."""
        m, d = self.m, self.d
        by_body = {"origin": [d.origin[m.body_originid[body]] for body in range(m.nbody)], "velocity": d.ovel}

        def look(c: Listed, carry: Any) -> Any:
            return visit(_as_in_mujoco(m, d, c), carry)

        def matched(c: Listed, carry: Any) -> Any:
            s = self.site
            if s is None:
                return look(c, carry)
            zone = m.site_type[s], m.site_size[s], d.site_xrel[s], d.site_xmat[s]
            place = self.place(c, m.body_originid[m.site_bodyid[s]])
            return when_any(inside(*zone, place), lambda carry: look(c, carry), carry)

        for constraint in d.constraints:
            carry = constraint.fold_listed(m, d, d.qacc_solver, self.may_match, by_body, matched, carry)
        for candidate in (*d.candidates, *candidates_of(m, d, m.idle_pairs)):
            if self.may_match(candidate.pair):
                carry = fold_idle(m, candidate, by_body, matched, carry)
        return carry

    def way(self, c: Listed) -> Scalar:
        """Return -1 where the sensor sees a contact from its other side, else 1."""
        return c.of_pair(lambda pair: float(direction(self.m, self.i, pair)))

    def place(self, c: Listed, origin: int = 0) -> list[Scalar]:
        """Return where a contact is, as seen from the origin of a tree."""
        return add(c.points[1], sub(c.per_body("origin")[1], self.d.origin[origin]))

    def turned(self, c: Listed, x: list[Scalar]) -> list[Scalar]:
        """Return what one body does to the other, along the axes of a contact, as the sensor sees it.

        From the other side the axes are turned by half a turn about the second tangent, and what is done is reversed.
        """
        return [x[0], x[1], x[2] * self.way(c)]

    def velocity(self, c: Listed) -> tuple[list[Scalar], list[Scalar]]:
        """Return how the second body moves relative to the first at a contact: along its axes, and about them."""
        one, two = c.per_body("velocity")
        moving = sub(at_point(two, c.points[1]), at_point(one, c.points[0]))
        turning = sub(two[:3], one[:3])
        return [dot(axis, moving) for axis in c.frame], [dot(axis, turning) for axis in c.frame]


# What is given of a contact, in MuJoCo's order, and how many numbers it is. FOUND is known at the end.
DATA: dict[str, Callable[[ContactSensor, Listed], list[Scalar]]] = {
    "FOUND": lambda sensor, c: [0.0],
    "FORCE": lambda sensor, c: sensor.turned(c, c.force[:3]),
    "TORQUE": lambda sensor, c: sensor.turned(c, c.force[3:]),
    "DIST": lambda sensor, c: [c.dist],
    "POS": lambda sensor, c: sensor.place(c),
    "NORMAL": lambda sensor, c: scale(c.frame[0], sensor.way(c)),
    "TANGENT": lambda sensor, c: scale(c.frame[1], sensor.way(c)),
    "LINVEL": lambda sensor, c: sensor.turned(c, sensor.velocity(c)[0]),
    "ANGVEL": lambda sensor, c: sensor.turned(c, sensor.velocity(c)[1]),
}
SIZES = dict(zip(DATA, (1, 3, 3, 1, 3, 3, 3, 3, 3), strict=True))  # mjCONDATA_SIZE


def _before(one: list[Scalar], two: list[Scalar], keys: int) -> Mask:
    """Return where one row comes before another, by its first numbers."""
    out: Mask = False
    for k in reversed(range(keys)):
        less, same = one[k] < two[k], one[k] <= two[k]
        out = less if k == keys - 1 else logical_or(less, logical_and(same, out))
    return out


def _as_in_mujoco(m: Model, d: Data, c: Listed) -> Listed:
    """Return a contact with force and torque along all axes (6), as mj_contactForce gives them, and MuJoCo's tangents.

    A planar model's capsules on a plane have a tangent that may be the opposite of MuJoCo's: see `make_frame`.
    """
    force = [*c.force, *zeros(6 - len(c.force))]
    for slip in d.slips:
        if slip.grip.of is c.source:
            for axis, x in zip(slip.grip.axes, slip.force, strict=True):
                force[axis] = force[axis] + x
    pair = c.source.pair if c.source else None
    n, t1, t2 = c.frame
    if not (pair and is_number(*t1) and (m.geom_type[pair.geom1], m.geom_type[pair.geom2]) == ROD_ON_PLANE):
        return dataclasses.replace(c, force=force)
    sign = select(dot(t1, column(d.geom_xmat[pair.geom2], 2)) < 0.0, -1.0, 1.0)
    signs = [1.0, sign, sign] * 2
    frame = [n, scale(t1, sign), scale(t2, sign)]
    return dataclasses.replace(c, force=[x * s for x, s in zip(force, signs, strict=True)], frame=frame)
