"""Contacts between moving bodies, all by the same code: what tells them apart is looked up in tables.

Humanoid has 109 pairs of geoms that may touch each other, and at any time next to none of them do. Written out they
would be three quarters of its code. Here a pair is a number, and loops run over those that are near, or touch.

A sphere is a capsule of no length. Of a pair of n, a second contact (of parallel capsules) has the number n + i.

Those without friction and of one tree have one row each, along one line, as in `ContactGroup`; all others are in
`cone_groups`.

i number of a pair or contact   J its row of the Jacobian, in the `dofs` that tell its bodies apart, `own` in number
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ...compiler.arrays import Array, Table
from ...compiler.control import active_set, add_each, choose_each, fold_each, part, when_any
from ...compiler.scalar import Mask, Scalar, absolute, logical_and, maximum, minimum, select
from ..collision.boxes_around import boxes_around, boxes_meet
from ..collision.colliders import Geom
from ..collision.contact_param import contact_param
from ..collision.hfield import Ground
from ..collision.shapes import Collider, collider_of, ground_of, may_touch_in_several, size_of
from ..collision.solids import Solids, solids_of
from ..data import Data
from ..model import HFIELD, Model, Pair
from ..precision import Precision
from ..spatial import Vec, add, add_scaled, choose, column, cross, dot, is_number, mat_vec, scale, sub
from .body_contacts import sides_of
from .contacts import bound_of
from .records import Records, records, records_each, records_parts
from .rows import MIN_VAL, Constraint, fold_row, impedance, reference

FEWEST = 8  # pairs for which tables are worth while


@dataclass
class Alike:
    """Pairs alike, as tables of the dofs that tell their bodies apart."""

    pairs: list[Pair]
    collider: Collider
    bodies: list[tuple[int, int]]
    dofs: list[int]  # all that occur; in arrays of dofs they come in this order, and then one that never moves
    own: list[list[int]]  # of each pair, places in `dofs`, all lists of one length
    signs: list[list[float]]
    condim: int
    one_tree: bool  # whether the bodies of each pair are of one tree

    @property
    def most(self) -> int:
        return len(self.own[0])

    def per_contact(self, values: Sequence, i: Any) -> Any:
        """The entry of a table of pairs for a contact."""
        return Table([*values] * self.collider.ncon)[i]

    def dof(self, i: Any, k: int) -> Any:
        """The place in `dofs` of a contact's k-th."""
        return self.per_contact([own[k] for own in self.own], i)


@dataclass
class ContactGroup(Constraint):
    """The contacts of pairs alike. rows: of those `touching`, line (r x n, n), D, y0 and J.

    seen: a contact's point, from the origins of the trees of both bodies, and its normal.
    """

    alike: Alike
    touching: Any
    rows: Records
    seen: Callable[[Any], tuple[list, list, list]]

    def add_rows(self, m: Model, d: Data, a: list, gradient: list, hessian: list[dict]) -> None:
        g, x = self.alike, self._of_dofs(a)
        n = len(g.dofs)
        wanted = sorted({(u, v) for own in g.own for u in own for v in own if v <= u < n})

        lower = [(u, v) for u in range(n) for v in range(u + 1)]
        old = [hessian[g.dofs[u]].get(g.dofs[v], 0.0) for u, v in lower] + [0.0] * (n + 1)
        pushed, stiffness = add_each(
            self.touching, lambda i: self._push(i, x), [[gradient[v] for v in g.dofs] + [0.0], old]
        )
        for k, v in enumerate(g.dofs):
            gradient[v] = pushed[k]
        for u, v in wanted:
            hessian[g.dofs[u]][g.dofs[v]] = stiffness[u * (u + 1) // 2 + v]

    def _push(self, i: Any, x: Any) -> list:
        """What a contact adds to the gradient, and to the Hessian's lower triangle row by row: (place, value)."""
        g, row = self.alike, self.rows.at(i, "J")
        e = dot(row, [x[g.dof(i, c)] for c in range(g.most)]) + self.rows.at(i, "y0")
        pressed = select(e < 0.0, self.rows.at(i, "D"), 0.0)
        f = pressed * e
        places, starts = self._places(i)
        image = scale(row, pressed)
        return [
            [(place, f * r) for place, r in zip(places, row, strict=True)],
            [(starts[u] + places[v], image[u] * row[v]) for u in range(g.most) for v in range(u + 1)],
        ]

    def _places(self, i: Any) -> tuple[list, list]:
        """Of a contact's dofs in the gradient, and of their rows in the Hessian's lower triangle."""
        g = self.alike
        places = [g.dof(i, c) for c in range(g.most)]
        return places, [g.per_contact([own[c] * (own[c] + 1) // 2 for own in g.own], i) for c in range(g.most)]

    def fold_rows(self, m: Model, d: Data, a: list, dx: list, alpha: Scalar, total: list) -> list:
        x, change = self._of_dofs(a), self._of_dofs(dx)

        def push(i: Any, carry: list) -> list:
            e, v = self._along(i, x) + self.rows.at(i, "y0"), self._along(i, change)
            return fold_row(carry, e, v, self.rows.at(i, "D"), alpha)

        return fold_each(self.touching, push, total)

    def add_wrenches(self, m: Model, d: Data, a: list, wrench: list[list]) -> None:
        x = self._of_dofs(a)

        def push(i: Any) -> list:
            force = self._pull(i, x)
            f = scale(self.rows.at(i, "line"), force)
            starts = [[6 * body[side] for body in self.alike.bodies] for side in (0, 1)]
            first, second = (self.alike.per_contact(start, i) for start in starts)
            return [[(first + c, y) for c, y in enumerate(f)] + [(second + c, -y) for c, y in enumerate(f)]]

        (flat,) = add_each(self.touching, push, [[y for w in wrench for y in w]])
        for body in {body for pair in self.alike.bodies for body in pair if body}:
            wrench[body] = flat[6 * body : 6 * body + 6]

    def sum_touch(
        self, m: Model, d: Data, a: list, body: int, felt: Callable[[list, list], Mask], total: Scalar
    ) -> Scalar:
        """As of `Contacts`."""
        bodies = self.alike.bodies
        if not any(body in pair for pair in bodies):
            return total
        x = self._of_dofs(a)

        def push(i: Any, carry: list) -> list:
            side = self.alike.per_contact([1.0 if body == b[0] else -1.0 if body == b[1] else 0.0 for b in bodies], i)

            def press(inner: list) -> list:
                force, (first, second, normal) = self._press(i, x), self.seen(i)
                hit = felt(choose(side > 0.0, first, second), scale(normal, side))
                return [inner[0] + select(logical_and(force > 0.0, hit), force, 0.0)]

            return when_any(absolute(side) > 0.5, press, carry)

        return fold_each(self.touching, push, [total])[0]

    def _press(self, i: Any, x: Any) -> Scalar:
        """The normal force of a contact."""
        return -self._pull(i, x)

    def _pull(self, i: Any, x: Any) -> Scalar:
        """Its opposite."""
        return self.rows.at(i, "D") * minimum(self._along(i, x) + self.rows.at(i, "y0"), 0.0)

    def _of_dofs(self, x: list) -> Array:
        """One number a dof."""
        return Array([x[v] for v in self.alike.dofs] + [0.0])

    def _along(self, i: Any, x: Any) -> Scalar:
        """J x, where x has one number a dof."""
        return dot(self.rows.at(i, "J"), [x[self.alike.dof(i, k)] for k in range(self.alike.most)])


def many_alike(m: Model, precision: Precision) -> list[list[Pair]]:
    """The pairs that are many and alike: of one impedance, both of one tree or not, with friction or without."""
    if m.noslip_iterations:  # which goes from contact to contact, in MuJoCo's order
        return []
    found: dict[tuple, list[Pair]] = {}
    varies, m = m.nominal is not None, m.nominal or m
    for p in m.pairs:
        bodies, solimp = (m.geom_bodyid[p.geom1], m.geom_bodyid[p.geom2]), contact_param(m, p).solimp
        one_tree = m.body_originid[bodies[0]] == m.body_originid[bodies[1]]
        loop, moving = collider_of(m, p).loop, len(sides_of(m, *bodies))
        if varies and p.condim > 1:  # what friction makes stiff is softened, world by world, one by one
            continue
        if loop and moving >= (1 if loop.many else 2) and not bound_of(m, p, precision).shows:
            found.setdefault((id(loop), _field_of(m, p), p.condim, one_tree, *solimp), []).append(p)
    return [pairs for pairs in found.values() if collider_of(m, pairs[0]).many or len(pairs) >= FEWEST]


def _field_of(m: Model, pair: Pair) -> int:
    """Which height field the pair touches, or -1."""
    return m.geom_dataid[pair.geom1] if m.geom_type[pair.geom1] == HFIELD else -1


def alike(m: Model, pairs: list[Pair]) -> Alike:
    """The tables of pairs alike."""
    bodies = [(m.geom_bodyid[p.geom1], m.geom_bodyid[p.geom2]) for p in pairs]
    moved = [sorted((v, side.sign) for side in sides_of(m, *b) for v in side.dofs) for b in bodies]
    dofs = sorted({v for own in moved for v, _ in own})
    place = {v: k for k, v in enumerate(dofs)}
    most = max(len(own) for own in moved)
    own = [[place[v] for v, _ in x] + [len(dofs)] * (most - len(x)) for x in moved]
    signs = [[sign for _, sign in x] + [0.0] * (most - len(x)) for x in moved]
    collider = collider_of(m, pairs[0]).loop
    assert collider
    if _field_of(m, pairs[0]) >= 0:
        collider = dataclasses.replace(collider, ncon=ground_of(m, pairs).contacts)
    one_tree = m.body_originid[bodies[0][0]] == m.body_originid[bodies[0][1]]
    return Alike(pairs, collider, bodies, dofs, own, signs, pairs[0].condim, one_tree)


@dataclass
class TableGeom:
    """A geom whose place and size come from tables."""

    centre: list[Scalar]
    mat: list
    size: dict[str, Scalar]
    looked_at: Callable[[], Scalar]
    solids: Solids
    on: Ground | None

    @property
    def margin(self) -> Scalar:
        return self.looked_at()

    @property
    def axis(self) -> list[Scalar]:
        return column(self.mat, 2)

    @property
    def ground(self) -> Ground:
        assert self.on, "not of a height field"
        return self.on

    def along(self, x: Scalar) -> list[Scalar]:
        return add_scaled(self.centre, self.axis, x)

    def point(self, x: Vec) -> list[Scalar]:
        return add(self.centre, mat_vec(self.mat, x))


def of_pairs(g: Alike, values: list) -> Callable[..., Scalar]:
    """What finds the entry for a contact, or, where `first`, for the first contact of a pair: its number is the pair's.

    From a table, or where the values vary from world to world, from an array.
    """
    rows = None if is_number(*values) else Array(values)

    def find(i: Any, first: bool = False) -> Scalar:
        if rows is None:
            return Table(values)[i] if first else g.per_contact(values, i)
        return rows[i if first else g.per_contact(range(len(values)), i)]

    return find


def touch(m: Model, d: Data, g: Alike, rows_of: Callable[..., dict] | None = None) -> tuple[Any, Records, Callable]:
    """Which of the pairs' contacts touch, their rows, as those of `ContactGroup` where `rows_of` makes no others, and
    how they are `seen`.

    rows_of: of a contact, its dist and point, and the frame.
    """
    n, per_contact = len(g.pairs), g.per_contact
    geoms = sorted({x for p in g.pairs for x in (p.geom1, p.geom2)})
    place = {x: k for k, x in enumerate(geoms)}
    sizes = {x: size_of(m, x, g.collider) for x in geoms}
    names = dict.fromkeys(name for size in sizes.values() for name in size)
    fixed_sizes = is_number(*(value for size in sizes.values() for value in size.values()))
    around = boxes_around(m, geoms) if g.collider.hulls else {}
    by_part = g.collider.many or g.collider.ncon == 1  # else a pair's two contacts are in one row

    def pose_of(x: int) -> dict:
        pose = {"centre": list(d.geom_xrel[x]), "mat": [d.geom_xmat[x][k] for k in entries]}
        pose |= {} if g.one_tree else {"origin": list(d.origin[m.body_originid[m.geom_bodyid[x]]])}
        return pose if fixed_sizes else pose | {name: sizes[x].get(name, 0.0) for name in names}

    entries = range(9) if g.collider.turned else (2, 5, 8)  # of orientations: those that it goes by
    poses = records([pose_of(x) for x in geoms])
    still: dict = {"odof": [0.0] * 6, "qvel": 0.0}
    moving = records([{"odof": list(d.odof[v]), "qvel": d.qvel[v]} for v in g.dofs] + [still])
    ends = [[p.geom1 for p in g.pairs], [p.geom2 for p in g.pairs]]
    params = [contact_param(m, p) for p in g.pairs]
    margin, looked_at = of_pairs(g, [p.margin for p in params]), of_pairs(g, [p.margin + p.gap for p in params])
    several = [float(may_touch_in_several(m, p, g.collider)) for p in g.pairs]
    solimp = [of_pairs(g, [p.solimp[k] for p in params]) for k in range(4)]
    moved = sorted({body for b in g.bodies for body in b})
    weights = [m.body_invweight0[body][0] for body in moved]
    references = [reference(p.solref, p.solimp, p.direct, m.timestep) for p in params]
    k, b = (of_pairs(g, [x[i] for x in references]) for i in (0, 1))

    def geom(end: list[int], i: Any) -> TableGeom:
        pose = per_contact([place[x] for x in end], i)
        centre, mat = poses.at(pose, "centre"), [None] * 9
        for k, x in zip(entries, poses.at(pose, "mat"), strict=True):
            mat[k] = x
        size = {
            name: per_contact([sizes[x][name] for x in end], i) if fixed_sizes else poses.at(pose, name)
            for name in sizes[end[0]]
        }
        return TableGeom(centre, mat, size, functools.partial(looked_at, i), solids_of(m.meshes), ground)

    def both(i: Any) -> tuple[Geom, Geom]:
        one, two = (geom(end, i) for end in ends)
        return one if g.one_tree else dataclasses.replace(one, centre=add(one.centre, offset(i))), two

    def offset(i: Any) -> list[Scalar]:
        """From the origin of the second geom's tree to that of the first's."""
        one, two = (poses.at(per_contact([place[x] for x in end], i), "origin") for end in ends)
        return sub(one, two)

    def boxes(i: Any) -> list:
        """Whether the boxes around both geoms meet."""
        one, two = (
            (x.point(vector([around[g].middle for g in end], i)), x.mat, vector([around[g].half for g in end], i))
            for end, x in zip(ends, both(i), strict=True)
        )
        return [boxes_meet(one, two, looked_at(i, True))]

    def vector(values: list, i: Any) -> list[Scalar]:
        return [Table([x[k] for x in values])[i] for k in range(3)]

    def measure(i: Any) -> list[dict]:
        found = g.collider.find(*both(i), Table(several)[i] > 0.5)
        if by_part:
            return [{"dist": dist, "spot": spot} for dist, spot in found]
        return [{(k, j): x for k, (dist, spot) in enumerate(found) for j, x in enumerate([dist, *spot])}]

    def dist_of(i: Any, k: int) -> Scalar:
        return found.at(part(i, k, n), "dist") if by_part else found.at(i, (k, 0))

    def spot_of(i: Any) -> list[Scalar]:
        if by_part:
            return found.at(i, "spot")
        # the second contact's numbers stand behind the first's
        pair, is_second = per_contact(range(n), i), Table([0.0] * n + [1.0] * n)[i] > 0.5
        return [
            select(is_second, found.at(pair, (1, j)), found.at(pair, (0, j))) for j in range(1, 1 + g.collider.spot)
        ]

    def prepare(i: Any) -> dict:
        spot = spot_of(i)
        dist, p, frame = g.collider.place(*both(i), spot)
        if rows_of:
            return rows_of(i, dist, p, frame, moving, None if g.one_tree else offset(i))
        line = cross(p, frame[0]) + frame[0]
        depth = dist - margin(i)
        alike = params[0].solimp  # all of them, where they are numbers
        imp = impedance(alike if is_number(*alike) else [*(x(i) for x in solimp), alike[4]], depth)
        row, speed = [], 0.0
        for c in range(g.most):
            dof = g.dof(i, c)
            odof, qvel = moving.at(dof, "odof"), moving.at(dof, "qvel")
            row.append(dot(line, odof) * per_contact([s[c] for s in g.signs], i))
            speed = speed + row[-1] * qvel
        D = imp / ((1.0 - imp) * weight(i))
        y0 = b(i) * speed + k(i) * imp * depth
        return {"line": line, "D": D, "y0": y0, "J": row}

    def seen(i: Any) -> tuple[list, list, list]:
        _, p, frame = g.collider.place(*both(i), spot_of(i))
        return p if g.one_tree else sub(p, offset(i)), p, frame[0]

    def weight(i: Any) -> Scalar:
        if is_number(*weights):
            return per_contact([maximum(sum(m.body_invweight0[body][0] for body in b), MIN_VAL) for b in g.bodies], i)
        one, two = (by_body[per_contact([moved.index(b[side]) for b in g.bodies], i)] for side in (0, 1))
        return maximum(one + two, MIN_VAL)

    ground = ground_of(m, g.pairs) if _field_of(m, g.pairs[0]) >= 0 else None
    by_body = Array([] if is_number(*weights) else weights)
    known = {id(p) for p in g.pairs}
    near = active_set([c.bounds_meet() for c in d.candidates if id(c.pair) in known])
    near = choose_each(near, boxes, n) if around else near
    found = records_parts(near, measure, n)

    def touching(i: Any) -> list:
        return [dist_of(i, k) < margin(i, True) for k in range(g.collider.ncon)]

    which = choose_each(near, touching, n)
    return which, records_each(which, prepare), seen
