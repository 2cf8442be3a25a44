"""Constraints: joint limits and contacts, as MuJoCo's engine_core_constraint.c makes them.

MuJoCo's solver minimises 1/2 (a - a0)' M (a - a0) + sum over rows of 1/2 D min(0, J a - aref)**2. A row's residual
`J a - aref` is kept as `J a + y0`, y0 = b vel + k imp (pos - margin), and no Jacobian is stored: J a is the
acceleration of a point, which follows from the accelerations of bodies.

What rounding does not bear is softened: see `stiff`.

Letters: n, t1, t2 the contact frame's normal and tangents; r a point as seen from its tree's moving origin.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..compiler.control import compute_any, when_any
from ..compiler.scalar import Mask, Scalar, absolute, minimum, power, select
from . import stiff
from .collision import NEVER, Candidate
from .contact_param import contact_param
from .data import Data
from .model import PLANE, Model, Pair
from .spatial import add, cross, dot, scale, sub

FEWEST = 8  # pairs for which tables are worth while
MIN_IMP, MAX_IMP, MIN_VAL = 1e-4, 0.9999, 1e-15


@dataclass
class Limit:
    """One row: sign a[dof] + y0 >= 0. D is 0 where the joint is inside its range."""

    dof: int
    sign: Scalar
    D: Scalar
    y0: Scalar


@dataclass
class ContactForce:
    """A contact that may touch. What `compute` gave (None: nothing did) holds where `active`.

    The normal points from bodies[0] to bodies[1]. `sides` are the bodies whose dofs move the point, each with +1 or -1
    for the direction in which the normal counts, and the dofs that belong to it alone. bound: what rounding bears.
    """

    active: Mask
    condim: int
    mu: float
    bodies: tuple[int, int]
    sides: list[tuple[int, float, list[int]]]
    bound: stiff.Bound
    computed: Any  # (place, D, y0 in n, t1, t2); place: (r, frame) against the world, else lines by side, by axis

    @property
    def world(self) -> bool:
        """One body against the world."""
        return len(self.sides) == 1


def make_constraint(m: Model, d: Data) -> None:
    """d.limits and d.contacts. mj_makeConstraint, mj_referenceConstraint."""
    d.limits = [row for j in range(m.njnt) if m.jnt_limited[j] for row in joint_limit(m, d, j)]
    grouped = {id(p) for pairs in many_alike(m) for p in pairs}
    d.contacts = [c for x in d.candidates if id(x.pair) not in grouped for c in contacts(m, d, x)]


def many_alike(m: Model) -> list[list[Pair]]:
    """The pairs that are many and alike, for `pairs.py`: without friction, of one tree, of one impedance."""
    found: dict[tuple, list[Pair]] = {}
    for p in m.pairs:
        bodies, solimp = (m.geom_bodyid[p.geom1], m.geom_bodyid[p.geom2]), contact_param(m, p.geom1, p.geom2).solimp
        one_tree = m.body_originid[bodies[0]] == m.body_originid[bodies[1]]
        rods = m.geom_type[p.geom1] != PLANE and len(sides_of(m, *bodies)) == 2
        if p.condim == 1 and rods and one_tree and not bound_of(m, p).shows:
            found.setdefault(tuple(solimp), []).append(p)
    return [pairs for pairs in found.values() if len(pairs) >= FEWEST]


def reference(solref: Sequence, solimp: Sequence, direct: bool, timestep: float) -> tuple[float, float]:
    """Stiffness k and damping b of a constraint. getsolparam and mj_makeImpedance, with `refsafe`."""
    dmax = min(max(solimp[1], MIN_IMP), MAX_IMP)
    if direct:
        return -solref[0] / max(MIN_VAL, dmax * dmax), -solref[1] / max(MIN_VAL, dmax)
    time, ratio = max(solref[0], 2 * timestep), solref[1]
    return 1 / max(MIN_VAL, (dmax * time * ratio) ** 2), 2 / max(MIN_VAL, dmax * time)


def impedance(solimp: Sequence, distance: Scalar) -> Scalar:
    """d(|pos - margin|), a power curve from dmin to dmax. getimpedance."""
    dmin, dmax = (min(max(x, MIN_IMP), MAX_IMP) for x in solimp[:2])
    width, mid, p = solimp[2], min(max(solimp[3], MIN_IMP), MAX_IMP), max(1.0, solimp[4])
    if dmin == dmax or width <= MIN_VAL:
        return 0.5 * (dmin + dmax)
    x = minimum(absolute(distance) * (1 / width), 1.0)
    if p == 1:
        return dmin + x * (dmax - dmin)
    below = power(x, p) * (1 / mid ** (p - 1))
    above = 1.0 - power(1.0 - x, p) * (1 / (1 - mid) ** (p - 1))
    return dmin + select(x <= mid, below, above) * (dmax - dmin)


def joint_limit(m: Model, d: Data, j: int) -> list[Limit]:
    """Limits of a slide or hinge joint: one row for whichever end is near, two where both can be at once."""
    v, q = m.jnt_dofadr[j], d.qpos[m.jnt_qposadr[j]]
    low, high = m.jnt_range[j]
    margin = m.jnt_margin[j]
    k, b = reference(m.jnt_solref[j], m.jnt_solimp[j], m.jnt_direct[j], m.timestep)

    def row(sign: Scalar, position: Scalar) -> Limit:
        def compute(_: Any) -> list[Scalar]:
            imp = impedance(m.jnt_solimp[j], position - margin)
            stiffness = imp / ((1.0 - imp) * m.dof_invweight0[v])
            return [stiffness, b * (sign * d.qvel[v]) + k * imp * (position - margin)]

        stiffness, y0 = when_any(position < margin, compute, [0.0, 0.0])
        return Limit(v, sign, stiffness, y0)

    if high - low <= 2 * margin:
        return [row(1.0, q - low), row(-1.0, high - q)]
    return [row(select(q - low < high - q, 1.0, -1.0), minimum(q - low, high - q))]


def contacts(m: Model, d: Data, candidate: Candidate) -> list[ContactForce]:
    """The contacts that a pair of geoms may have; nothing is computed for pairs that are far apart in all worlds."""
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
    param, weight, bound = contact_param(m, pair.geom1, pair.geom2), row_weight(m, pair), bound_of(m, pair)
    k, b = reference(param.solref, param.solimp, param.direct, m.timestep)
    ovel = d.ovel

    def contact(distance: Scalar, where: Callable[[], Any]) -> ContactForce:
        active = distance < param.margin

        def compute() -> tuple:
            arm1, arm2, frame = where()
            axes = frame[: pair.condim]
            depth = distance - param.margin
            imp = impedance(param.solimp, depth)
            stiffness = imp / ((1.0 - imp) * weight)
            if bound.row < math.inf:
                stiffness = minimum(stiffness, bound.row)
            if len(sides) == 1:
                r = arm2 if sides[0][1] > 0 else arm1
                place: Any = r, frame
                velocity = [dot(axis, v) for v in [signed_point(sides[0], r, ovel)] for axis in axes]
            else:
                place = [[cross(r, axis) + axis for axis in axes] for r in (arm2, arm1)]
                velocity = line_motion(sides, place, ovel)
            y0 = [b * v for v in velocity]
            y0[0] = y0[0] + k * imp * depth
            return place, stiffness, y0

        return ContactForce(active, pair.condim, param.friction[0], bodies, sides, bound, compute_any(active, compute))

    return [contact(distance, where) for distance, where in places]


def bodies_weight(m: Model, pair: Pair) -> float:
    """The inverse inertia of both bodies' centres of mass."""
    return sum(m.body_invweight0[m.geom_bodyid[geom]][0] for geom in (pair.geom1, pair.geom2))


def row_weight(m: Model, pair: Pair) -> float:
    """A row's diagApprox: D is imp / (1 - imp) by this. mj_makeImpedance."""
    mu, weight = contact_param(m, pair.geom1, pair.geom2).friction[0], bodies_weight(m, pair)
    if pair.condim == 3:
        weight *= (1 + mu * mu) * 2 * mu * mu / m.impratio
    return max(weight, MIN_VAL)


def bound_of(m: Model, pair: Pair) -> stiff.Bound:
    """Whether rounding bears the pair's contacts, at their stiffest."""
    most = min(max(*contact_param(m, pair.geom1, pair.geom2).solimp[:2], MIN_IMP), MAX_IMP)
    return stiff.bound(m, pair, most / ((1 - most) * row_weight(m, pair)), bodies_weight(m, pair))


def _always(x: Any) -> Callable[[], Any]:
    return lambda: x


def signed_point(side: tuple, r: list, motion: list) -> list:
    """Motion of the point r of a side's body; the normal counts from the first body to the second."""
    body, sign, _ = side
    return scale(point_motion(motion[body], r), sign)


def line_motion(sides: list, lines: list, motion: list) -> list:
    """Relative motion of two bodies along each axis, given as lines (r x axis, axis) from either body's tree."""
    (body2, _, _), (body1, _, _) = sides
    if all(x is y for two, one in zip(*lines, strict=True) for x, y in zip(two, one, strict=True)):  # one tree
        apart = sub(motion[body2], motion[body1])
        return [dot(line, apart) for line in lines[0]]
    return [dot(two, motion[body2]) - dot(one, motion[body1]) for two, one in zip(*lines, strict=True)]


def residual(c: ContactForce, motion: list, y0: list) -> list:
    """J a + y0 along n, t1, t2, where the bodies accelerate by `motion`."""
    place = c.computed[0]
    if c.world:
        r, frame = place
        point = signed_point(c.sides[0], r, motion)
        along = [dot(axis, point) for axis in frame[: c.condim]]
    else:
        along = line_motion(c.sides, place, motion)
    return [x + y for x, y in zip(along, y0, strict=True)]


def sides_of(m: Model, body1: int, body2: int) -> list[tuple[int, float, list[int]]]:
    """The moving bodies of a contact between body1 and body2 (the normal points from 1 to 2)."""
    dofs1, dofs2 = dofs_of(m, body1), dofs_of(m, body2)
    sides = [
        (moving_body(m, body2), 1.0, [v for v in dofs2 if v not in dofs1]),
        (moving_body(m, body1), -1.0, [v for v in dofs1 if v not in dofs2]),
    ]
    return [s for s in sides if s[0] != 0]


def dofs_of(m: Model, body: int) -> list[int]:
    """The dofs that move a body, from its own to the root's."""
    body = moving_body(m, body)
    v = m.body_dofadr[body] + m.body_dofnum[body] - 1 if body else -1
    out = []
    while v >= 0:
        out.append(v)
        v = m.dof_parentid[v]
    return out


def moving_body(m: Model, body: int) -> int:
    """The nearest body, from this one to the root, that has joints of its own; 0 where there is none."""
    while body and not m.body_dofnum[body]:
        body = m.body_parentid[body]
    return body


def point_motion(motion: list, r: list) -> list:
    """Linear part at the point r of a spatial motion: v + w x r."""
    return add(motion[3:], cross(motion[:3], r))


def rows_of(c: ContactForce, x: list) -> list[tuple[Scalar, float, float, float]]:
    """Each row of the pyramid for a quantity given along n, t1, t2: (value, and its share in n, t1, t2)."""
    if c.condim == 1:
        return [(x[0], 1.0, 0.0, 0.0)]
    rows = []
    for axis in (1, 2):
        for sign in (c.mu, -c.mu):
            share = (1.0, sign, 0.0) if axis == 1 else (1.0, 0.0, sign)
            rows.append((x[0] + sign * x[axis], *share))
    return rows


def pyramid(c: ContactForce, D: Scalar, y: list) -> tuple[list, list]:
    """Force along n, t1, t2 and stiffness (nn, n1, n2, 11, 22, 12) of the contact at residuals y."""
    if c.bound.spring:
        return stiff.push(c, D, y, stiff.pressed_rows(c, D, y))
    force = [0.0, 0.0, 0.0]
    weight = [0.0] * 6
    for e, n, t1, t2 in rows_of(c, y):
        pressed = select(e < 0.0, D, 0.0)
        f = -(pressed * e)
        force = [force[0] + f, force[1] + t1 * f, force[2] + t2 * f]
        weight = [
            weight[0] + n * pressed,
            weight[1] + t1 * pressed,
            weight[2] + t2 * pressed,
            weight[3] + t1 * t1 * pressed,
            weight[4] + t2 * t2 * pressed,
            0.0,
        ]
    return force, weight


def in_world(frame: list, force: list) -> list:
    """A vector given along n, t1, t2, in world axes; of lines, the wrench."""
    out = [0.0] * len(frame[0])
    for axis, f in zip(frame, force, strict=False):
        out = add(out, scale(axis, f))
    return out


def stiffness_matrix(frame: list, weight: list) -> list[list[Scalar]]:
    """The 3 x 3 stiffness in world axes."""
    n, t1, t2 = frame
    nn, n1, n2, w11, w22, w12 = weight
    un = add(add(scale(n, nn), scale(t1, n1)), scale(t2, n2))
    u1 = add(add(scale(n, n1), scale(t1, w11)), scale(t2, w12))
    u2 = add(add(scale(n, n2), scale(t1, w12)), scale(t2, w22))
    out = [[0.0] * 3 for _ in range(3)]
    for i in range(3):
        for j in range(i + 1):
            out[i][j] = out[j][i] = un[i] * n[j] + u1[i] * t1[j] + u2[i] * t2[j]
    return out
