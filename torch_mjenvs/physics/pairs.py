"""Contacts between the moving bodies of one tree, all by the same code: what tells them apart is looked up in tables.

Humanoid has 109 pairs of geoms that may touch each other, and at any time next to none of them do. Written out they
would be three quarters of its code. Here a pair is a number, and loops run over those that are near, or touch.

A sphere is a capsule of no length. Of a pair of n, a second contact (of parallel capsules) has the number n + i.

i number of a pair or contact   J its row of the Jacobian, in the `dofs` that tell its bodies apart, `own` in number
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..compiler.control import add_each, choose_each, compute_each, fold_each, get, get_row, memory, touched
from ..compiler.scalar import Scalar, logical_and, lookup, lookup_index, minimum, select
from .collision import NEVER, Rod, balls, half, nearest
from .constraint import MIN_VAL, impedance, many_alike, reference, sides_of
from .contact_param import contact_param
from .data import Data
from .model import Model, Pair
from .spatial import cross, dot, scale

DIST, S, T = range(3)
LINE, D, Y0, J = range(6), 6, 7, 8


@dataclass
class Group:
    """Pairs alike, as tables, and what is known of their contacts: `rows` of those that are `touching`."""

    pairs: list[Pair]
    bodies: list[tuple[int, int]]
    dofs: list[int]  # all that occur; in memories of dofs they come in this order, and then one that never moves
    own: list[list[int]]  # of each pair, places in `dofs`, all lists of one length
    signs: list[list[float]]
    touching: Any = None
    rows: Any = None

    def per_contact(self, values: Sequence, i: Any) -> Any:
        """The entry of a table of pairs for a contact."""
        find = lookup_index if isinstance(values[0], int) else lookup
        return find([*values, *values], i)

    def dof(self, i: Any, k: int) -> Any:
        return self.per_contact([own[k] for own in self.own], i)

    @property
    def most(self) -> int:
        return len(self.own[0])

    def of_dofs(self, x: list) -> Any:
        """A memory of one number a dof."""
        return memory([[x[v]] for v in self.dofs] + [[0.0]])

    def along(self, i: Any, x: Any) -> Scalar:
        """J x, where x is a memory of one number a dof."""
        return dot(get_row(self.rows, i, range(J, J + self.most)), [get(x, self.dof(i, k)) for k in range(self.most)])


def make_pairs(m: Model, d: Data) -> None:
    """d.groups: contacts of the pairs that are many and alike. mj_collision, mj_makeConstraint."""
    d.groups = [_group(m, pairs) for pairs in many_alike(m)]
    for g in d.groups:
        _touch(m, d, g)


def _group(m: Model, pairs: list[Pair]) -> Group:
    bodies = [(m.geom_bodyid[p.geom1], m.geom_bodyid[p.geom2]) for p in pairs]
    moved = [sorted((v, sign) for _, sign, own in sides_of(m, *b) for v in own) for b in bodies]
    dofs = sorted({v for own in moved for v, _ in own})
    place = {v: k for k, v in enumerate(dofs)}
    most = max(len(own) for own in moved)
    own = [[place[v] for v, _ in x] + [len(dofs)] * (most - len(x)) for x in moved]
    signs = [[sign for _, sign in x] + [0.0] * (most - len(x)) for x in moved]
    return Group(pairs, bodies, dofs, own, signs)


def _touch(m: Model, d: Data, g: Group) -> None:
    """g.touching and g.rows: the contacts of the pairs that touch."""
    geoms = sorted({x for p in g.pairs for x in (p.geom1, p.geom2)})
    place = {x: k for k, x in enumerate(geoms)}
    poses = memory([[*d.geom_xrel[x], d.geom_xmat[x][2], d.geom_xmat[x][5], d.geom_xmat[x][8]] for x in geoms])
    moving = memory([[*d.odof[v], d.qvel[v]] for v in g.dofs] + [[0.0] * 7])
    ends = [[p.geom1 for p in g.pairs], [p.geom2 for p in g.pairs]]
    params = [contact_param(m, p.geom1, p.geom2) for p in g.pairs]
    margin = [p.margin for p in params]
    twice = [1.0 if half(m, p.geom1) and half(m, p.geom2) else 0.0 for p in g.pairs]
    weight = [max(sum(m.body_invweight0[body][0] for body in b), MIN_VAL) for b in g.bodies]
    k, b = zip(*(reference(p.solref, p.solimp, p.direct, m.timestep) for p in params), strict=True)

    def rods(i: Any) -> list[Rod]:
        out = []
        for end in ends:
            pose = get_row(poses, g.per_contact([place[x] for x in end], i), range(6))
            shape = [g.per_contact(table, i) for table in ([half(m, x) for x in end], [m.geom_size[x][0] for x in end])]
            out.append(Rod(pose[:3], pose[3:], *shape))
        return out

    def measure(i: Any) -> list:
        one, two = rods(i)
        parallel, first, second = nearest(one, two)
        parallel = logical_and(parallel, lookup(twice, i) > 0.5)
        far = select(parallel, balls(one, two, *second)[0], NEVER)
        return [balls(one, two, *first)[0], *first, far, *second]

    def prepare(i: Any) -> list:
        # the second contact's numbers stand behind the first's
        pair, is_second = g.per_contact(range(n), i), lookup([0.0] * n + [1.0] * n, i) > 0.5
        at = [select(is_second, get(found, pair, 3 + c), get(found, pair, c)) for c in range(3)]
        dist, locate = balls(*rods(i), *at[S:])
        p, frame = locate()
        line = cross(p, frame[0]) + frame[0]
        depth = dist - g.per_contact(margin, i)
        imp = impedance(params[0].solimp, depth)
        row, speed = [], 0.0
        for c in range(g.most):
            dof = get_row(moving, g.dof(i, c), range(7))
            row.append(dot(line, dof[:6]) * g.per_contact([s[c] for s in g.signs], i))
            speed = speed + row[-1] * dof[6]
        stiffness = imp / ((1.0 - imp) * g.per_contact(weight, i))
        y0 = g.per_contact(b, i) * speed + g.per_contact(k, i) * imp * depth
        return [*line, stiffness, y0, *row]

    n = len(g.pairs)
    known = {id(p) for p in g.pairs}
    near = touched([c.bounds_meet() for c in d.candidates if id(c.pair) in known])
    found = compute_each(near, measure)

    def touching(i: Any) -> list:
        return [get(found, i, DIST) < lookup(margin, i), get(found, i, 3 + DIST) < lookup(margin, i)]

    g.touching = choose_each(near, touching, n)
    g.rows = compute_each(g.touching, prepare)


def add_rows(g: Group, a: list, gradient: list, hessian: list[dict]) -> None:
    """What the contacts add to gradient (-J'f) and Hessian (J'DJ) at a."""
    x = g.of_dofs(a)
    n = len(g.dofs)
    wanted = sorted({(u, v) for own in g.own for u in own for v in own if v <= u < n})

    def push(i: Any) -> list:
        row = get_row(g.rows, i, range(J, J + g.most))
        e = dot(row, [get(x, g.dof(i, c)) for c in range(g.most)]) + get(g.rows, i, Y0)
        pressed = select(e < 0.0, get(g.rows, i, D), 0.0)
        f = pressed * e
        places = [g.dof(i, c) for c in range(g.most)]
        starts = [g.per_contact([own[c] * (own[c] + 1) // 2 for own in g.own], i) for c in range(g.most)]
        image = scale(row, pressed)
        return [
            [(place, f * r) for place, r in zip(places, row, strict=True)],
            [(starts[u] + places[v], image[u] * row[v]) for u in range(g.most) for v in range(u + 1)],
        ]

    lower = [(u, v) for u in range(n) for v in range(u + 1)]
    old = [hessian[g.dofs[u]].get(g.dofs[v], 0.0) for u, v in lower] + [0.0] * (n + 1)
    pushed, stiffness = add_each(g.touching, push, [[gradient[v] for v in g.dofs] + [0.0], old])
    for k, v in enumerate(g.dofs):
        gradient[v] = pushed[k]
    for u, v in wanted:
        hessian[g.dofs[u]][g.dofs[v]] = stiffness[u * (u + 1) // 2 + v]


def fold_rows(g: Group, a: list, dx: list, row: Any, total: list) -> list:
    """`total = row(total, residual at a, change along dx, D)` over the contacts that touch."""
    x, change = g.of_dofs(a), g.of_dofs(dx)

    def push(i: Any, carry: list) -> list:
        return row(carry, g.along(i, x) + get(g.rows, i, Y0), g.along(i, change), get(g.rows, i, D))

    return fold_each(g.touching, push, total)


def add_wrenches(g: Group, a: list, wrench: list[list]) -> None:
    """The contacts' wrenches on the bodies at a."""
    x = g.of_dofs(a)

    def push(i: Any) -> list:
        force = get(g.rows, i, D) * minimum(g.along(i, x) + get(g.rows, i, Y0), 0.0)
        f = scale(get_row(g.rows, i, LINE), force)
        first, second = (g.per_contact([6 * body[side] for body in g.bodies], i) for side in (0, 1))
        return [[(first + c, y) for c, y in enumerate(f)] + [(second + c, -y) for c, y in enumerate(f)]]

    (flat,) = add_each(g.touching, push, [[y for w in wrench for y in w]])
    for body in {body for pair in g.bodies for body in pair}:
        wrench[body] = flat[6 * body : 6 * body + 6]
