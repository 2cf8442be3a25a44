"""Equalities of two bodies: connect keeps a point of each together, and weld keeps orientations, too.

mj_instantiateEquality (mjEQ_CONNECT, mjEQ_WELD), mj_Jdotv. Three rows are the distance of the two points along the
world's axes. A weld has three more, for what is left between the orientations: the vector part of a quaternion,

    q = conjugate(q2) q1 relpose,    dq/dt = 1/2 conjugate(q2) (w1 - w2) q1 relpose,    each times torquescale.

A row has a line for each body, a spatial vector at the origin of the body's tree. The product of the first line with
the first body's motion, less that of the second line with the second's, is how fast the row's position changes.

Letters: r a point from the origin of its tree; w an angular velocity; q a quaternion.
"""

from __future__ import annotations

import functools
import weakref
from dataclasses import dataclass

from ...compiler.scalar import Mask, Scalar, logical_or
from ..algebra.sparse import Row, row_times
from ..algebra.spatial import add, cross, dot, is_zero, mat_vec, norm, quat_conjugate, quat_mul, scale, sub, zeros
from ..dynamics.inertia import solve
from ..dynamics.kinematics import between
from ..dynamics.set_const import at_qpos0
from ..dynamics.velocity import at_point, unforced_acceleration
from ..model.data import Data
from ..model.enums import EqType, ObjType
from ..model.model import Model, dofs_of
from .equality import Equality
from .laws import TwoSided
from .rows import impedance, reference
from .scalar_row import ScalarRow
from .softening import RowBound, tie_bound

AXES: list[list[Scalar]] = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
TORQUESCALE = 10  # its place in eq_data


@dataclass(frozen=True)
class Line:
    """A row of a connect or weld: its position, and its line in the tree of each body (6).

    kind: which of a body's inverse inertias counts, that of its translation (0) or of its rotation (1).
    """

    kind: int
    position: Scalar
    first: list[Scalar]
    second: list[Scalar]


@dataclass(frozen=True)
class Tie:
    """A connect or weld: it holds a point of each body, and where `quats` are given, orientations."""

    bodies: tuple[int, int]
    r: tuple[list[Scalar], list[Scalar]]
    quats: tuple[list[Scalar], list[Scalar]] | None  # q1 relpose, conjugate(q2)
    torquescale: Scalar = 1.0

    def lines(self, m: Model, d: Data) -> list[Line]:
        """Make the lines of all rows, in MuJoCo's order."""
        origin1, origin2 = (m.body_originid[body] for body in self.bodies)
        apart = sub(add(self.r[0], between(d, origin2, origin1)), self.r[1])
        r1, r2 = self.r
        out = [Line(0, x, cross(r1, axis) + axis, cross(r2, axis) + axis) for x, axis in zip(apart, AXES, strict=True)]
        if self.quats:
            positions = scale(self.left, self.torquescale)
            for k, x in enumerate(positions):
                line = self.turning[3 * k : 3 * k + 3] + zeros(3)
                out.append(Line(1, x, line, line))
        return out

    @functools.cached_property
    def left(self) -> list[Scalar]:
        """The vector part of q, the rotation that is left between the orientations (3)."""
        q1, conjugate2 = self.quats or ([], [])
        return quat_mul(conjugate2, q1)[1:]

    @functools.cached_property
    def turning(self) -> list[Scalar]:
        """The matrix (9) that turns w1 - w2 into the rate of a weld's last three positions."""
        q1, conjugate2 = self.quats or ([], [])
        columns = [quat_mul(quat_mul(conjugate2, [0.0, *axis]), q1)[1:] for axis in AXES]
        return [column[k] * (self.torquescale * 0.5) for k in range(3) for column in columns]

    def drift(self, m: Model, d: Data) -> list[Scalar]:
        """Return the acceleration of each row's position while no dof accelerates: the rate of J times the velocity."""
        points, turns, unforced = [], [], unforced_acceleration(m, d)
        for body, r in zip(self.bodies, self.r, strict=True):
            bias, w = unforced[body], d.ovel[body][:3]
            points.append(add(at_point(bias, r), cross(w, at_point(d.ovel[body], r))))
            turns.append(bias[:3])
        out = sub(*points)
        if not self.quats:
            return out
        w1, w2 = (d.ovel[body][:3] for body in self.bodies)
        apart = sub(w1, w2)
        square = dot(apart, apart) * (self.torquescale * -0.25)
        turned = mat_vec(self.turning, add(sub(*turns), cross(w1, w2)))
        return out + add(turned, scale(self.left, square))

    def jacobian(self, m: Model, d: Data, line: Line) -> Row:
        """Return the line's row of the Jacobian, without what is 0 in every state."""
        dofs1, dofs2 = (dofs_of(m, body) for body in self.bodies)
        row = {v: dot(line.first, d.odof[v]) for v in dofs1 if v not in dofs2}
        row |= {v: -dot(line.second, d.odof[v]) for v in dofs2 if v not in dofs1}
        if line.first is not line.second:  # a dof that moves both bodies turns the vector between the points
            row |= {v: dot(sub(line.first, line.second), d.odof[v]) for v in dofs1 if v in dofs2}
        return {v: x for v, x in row.items() if not is_zero(x)}

    def wrenches(self, line: Line) -> dict[int, list[Scalar]]:
        """Return the wrench (torque, force) on each body, except for the world, of a unit of the row's force."""
        out = {body: zeros(6) for body in self.bodies if body}
        for body, pull in zip(self.bodies, (line.first, scale(line.second, -1.0)), strict=True):
            if body:
                out[body] = add(out[body], pull)
        return out


def weld(m: Model, d: Data, i: int) -> Equality:
    """Make equality i, a connect or a weld: mj_instantiateEquality."""
    tie = _tie(m, d, i)
    lines = tie.lines(m, d)
    k, b = reference(m.eq_solref[i], m.eq_solimp[i], m.eq_direct[i], m.timestep)
    imp = impedance(m.eq_solimp[i], norm([line.position for line in lines]))
    bounds = _bounds(m, d, i, tie)
    stiffness = [bound.stiffness(imp) for bound in bounds]
    rows = []
    for line, drift in zip(lines, tie.drift(m, d), strict=True):
        row = tie.jacobian(m, d, line)
        y0 = b * row_times(row, d.qvel) + k * imp * line.position + drift
        rows.append(ScalarRow(row, TwoSided(stiffness[line.kind]), y0, wrenches=tie.wrenches(line)))
    if not any(row.jacobian for row in rows):  # nothing moves the bodies relative to each other
        return Equality([], False)
    refine: Mask = False
    for bound, D in zip(bounds, stiffness, strict=True):
        refine = logical_or(refine, bound.needs_refinement(d.precision, D, m.eq_solimp[i]))
    return Equality(rows, refine)


def _tie(m: Model, d: Data, i: int) -> Tie:
    objects, data = (m.eq_obj1id[i], m.eq_obj2id[i]), m.eq_data[i]
    welded = m.eq_type[i] == EqType.WELD
    if m.eq_objtype[i] == ObjType.SITE:
        one, two = (m.site_bodyid[site] for site in objects)
        anchors = [m.site_pos[site] for site in objects]
        quats = [quat_mul(d.xquat[body], m.site_quat[site]) for body, site in zip((one, two), objects, strict=True)]
    else:
        one, two = objects
        anchors = [data[3:6], data[:3]] if welded else [data[:3], data[3:6]]
        quats = [quat_mul(d.xquat[one], data[6:10]), d.xquat[two]]
    r = d.frame[one].point(anchors[0]), d.frame[two].point(anchors[1])
    return Tie((one, two), r, (quats[0], quat_conjugate(quats[1])) if welded else None, data[TORQUESCALE])


def _bounds(m: Model, d: Data, i: int, tie: Tie) -> list[RowBound]:
    """Bound the rows of equality i: those for points and, where there are any, those for orientations."""
    usual, bounds = m.nominal or m, []
    for kind, effective in enumerate(_effective_invweights(usual)[i][: 2 if tie.quats else 1]):
        invweight, nominal = (sum(x.body_invweight0[body][kind] for body in tie.bodies) for x in (m, usual))
        bounds.append(tie_bound(d.precision, invweight, nominal, effective))
    return bounds


_kept: weakref.WeakKeyDictionary[Model, dict[int, list[float]]] = weakref.WeakKeyDictionary()


def _effective_invweights(m: Model) -> dict[int, list[float]]:
    """Return the largest J M^-1 J' at qpos0 of the rows for points and of those for orientations, by equality."""
    if m not in _kept:
        d, inverse = at_qpos0(m)
        _kept[m] = {i: [0.0, 0.0] for i in range(m.neq) if m.eq_type[i] in (EqType.CONNECT, EqType.WELD)}
        for i, most in _kept[m].items():
            tie = _tie(m, d, i)
            for line in tie.lines(m, d):
                row = tie.jacobian(m, d, line)
                image = solve(inverse, [row.get(v, 0.0) for v in range(m.nv)])
                most[line.kind] = max(most[line.kind], float(row_times(row, image)))
    return _kept[m]
