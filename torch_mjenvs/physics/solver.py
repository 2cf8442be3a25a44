"""Newton's method on the acceleration, as MuJoCo's engine_solver.c, in a form that needs no constraint Jacobian.

The cost 1/2 (a - a0)' M (a - a0) + sum of 1/2 D min(0, e)**2 over rows e = J a + y0 is convex and quadratic piece by
piece. A full Newton step that changes the sign of no row therefore lands on the minimum itself, whatever the starting
point: that, and not a small gradient, is what ends the iteration.

For contacts with the world, J'DJ is a stiffness of the touching body: it adds to the body's inertia, and the Hessian
follows by the composite-rigid-body sum over the tree that also gives M. Its pattern is M's.

Letters: a acceleration and dx step (V dofs); motion: spatial acceleration of a body (angular, linear); S: a body's
contact stiffness, a symmetric 6 x 6 in blocks (angular 3 x 3, angular-linear 3 x 3, linear 3 x 3).
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from ..compiler.control import when_any, while_any
from ..compiler.scalar import Mask, Scalar, absolute, logical_and, logical_not, logical_or, minimum, select
from . import pairs, stiff
from .constraint import ContactForce, in_world, pyramid, residual, rows_of, stiffness_matrix
from .data import Data
from .inertia import factor, mul_m, solve
from .kinematics import between
from .model import Model
from .spatial import add, cross, dot, scale, sub

# The file's `iterations` and tolerances are not used: MuJoCo stops there, converged or not. A search that has not ended
# here is left at its last point, where the cost is lowest; the tests' models need 5 iterations at the most, cold.
ITERATIONS, LS_ITERATIONS = 100, 50
LS_TOLERANCE = 0.01  # the share of the first slope at which a line search ends
FULL_STEPS = 2  # iterations that take the full step even where it does not end the search


def newton(m: Model, d: Data) -> None:
    """d.qacc, from the warm start d.qacc_warmstart, and d.solver_niter. mj_fwdConstraint."""
    if not m.nv:  # nothing moves
        d.qacc, d.solver_niter = [], 0.0
        return
    tolerance = m.tolerance * m.meaninertia * m.nv
    uncertain = [c.active for c in d.contacts if c.bound.shows]

    def search(carry: list) -> list:
        a, _, count, *landed = carry
        gradient, hessian = linearise(m, d, a)
        dx = [-x for x in solve(factor(hessian, m.dof_clamped), gradient)]
        alpha, flipped = line_search(m, d, a, dx, dot(gradient, dx), tolerance, count < FULL_STEPS)
        done = logical_not(flipped > tolerance)
        a = [x + alpha * s for x, s in zip(a, dx, strict=True)]
        if not uncertain:
            return [a, done, count + 1.0]
        certain = logical_not(functools.reduce(logical_or, uncertain))
        return [a, logical_and(done, logical_or(landed[0], certain)), count + 1.0, done]  # else the step is repeated

    start = [list(d.qacc_warmstart), False, 0.0] + [False] * bool(uncertain)
    d.qacc, _, d.solver_niter, *_ = while_any(lambda c: logical_not(c[1]), search, start, ITERATIONS)


def constraint_force(m: Model, d: Data) -> None:
    """d.qfrc_constraint = J'f at d.qacc. mj_constraintUpdate."""
    d.qfrc_constraint = [-x for x in row_gradient(m, d, d.qacc)[0]]


def rne_post_constraint(m: Model, d: Data) -> None:
    """d.cfrc_ext: the wrench (torque, force) of all contacts on each body, about its root's subtree_com.

    mj_rnePostConstraint.
    """
    motion = body_motion(m, d, d.qacc)
    wrench = [[0.0] * 6 for _ in range(m.nbody)]
    for c in d.contacts:
        touched = [(body, sign) for body, sign in zip(c.bodies, (-1.0, 1.0), strict=True) if body]

        def push(carry: list, c: ContactForce = c, touched: list = touched) -> list:
            place, D, y0 = c.computed
            force = pyramid(c, D, residual(c, motion, y0))[0][: c.condim]
            if c.world:
                r, frame = place
                f = in_world(frame, force)
                here = m.body_originid[c.sides[0][0]]
                arms = [add(r, between(d, m.body_originid[body], here)) for body in c.bodies]
                sides = [cross(arm, f) + f for arm in arms]
            else:
                sides = [in_world(lines, force) for lines in reversed(place)]
            pushed = {body: side for body, side in zip(c.bodies, sides, strict=True)}
            return [add(old, scale(pushed[body], sign)) for old, (body, sign) in zip(carry, touched, strict=True)]

        new = when_any(c.active, push, [wrench[body] for body, _ in touched])
        for (body, _), x in zip(touched, new, strict=True):
            wrench[body] = x
    for group in d.groups:
        pairs.add_wrenches(group, d.qacc, wrench)
    d.cfrc_ext = [
        [*sub(w[:3], cross(d.comrel[m.body_originid[b]], w[3:])), *w[3:]] if b else w for b, w in enumerate(wrench)
    ]


def linearise(m: Model, d: Data, a: list) -> tuple[list, list[dict]]:
    """Gradient and Hessian of the cost at a."""
    pushes, hessian = row_gradient(m, d, a)
    inertial = mul_m(d.M, a)
    gradient = [ma - tau + p for ma, tau, p in zip(inertial, d.qfrc_smooth, pushes, strict=True)]
    for i, row in enumerate(d.M):
        for j, x in row.items():
            hessian[i][j] = hessian[i].get(j, 0.0) + x
    return gradient, hessian


def row_gradient(m: Model, d: Data, a: list) -> tuple[list, list[dict]]:
    """What the constraint rows add to gradient (-J'f) and Hessian (J'DJ, rows of its lower triangle)."""
    gradient: list = [0.0] * m.nv
    hessian: list[dict] = [{} for _ in range(m.nv)]
    for row in d.limits:
        v = row.dof
        e = row.sign * a[v] + row.y0
        pressed = select(e < 0.0, row.D, 0.0)
        gradient[v] = gradient[v] + row.sign * (pressed * e)
        hessian[v][v] = hessian[v].get(v, 0.0) + pressed
    world_contacts(m, d, a, gradient, hessian)
    for c in d.contacts:
        if not c.world:
            pair_contact(m, d, c, a, gradient, hessian)
    for group in d.groups:
        pairs.add_rows(group, a, gradient, hessian)
    return gradient, hessian


def world_contacts(m: Model, d: Data, a: list, gradient: list, hessian: list[dict]) -> None:
    """Contacts of one body with the world: a wrench and a stiffness of each body, summed over its subtree."""
    contacts = [c for c in d.contacts if c.world]
    motion = body_motion(m, d, a)
    wrench: dict[int, list] = {}
    stiffness: dict[int, list] = {}
    for c in contacts:
        body = c.sides[0][0]

        def push(carry: list, c: ContactForce = c, body: int = body) -> list:
            (r, frame), D, y0 = c.computed
            force, weight = pyramid(c, D, residual(c, motion, y0))
            f = scale(in_world(frame, force), -c.sides[0][1])
            k = stiffness_matrix(frame, weight)
            return [add(carry[0], cross(r, f) + f), add(carry[1], _at(k, r))]

        old = [wrench.get(body, [0.0] * 6), stiffness.get(body, [0.0] * 21)]
        wrench[body], stiffness[body] = when_any(c.active, push, old)
    for body in range(m.nbody - 1, 0, -1):  # a subtree's bodies come after its root
        parent = m.body_parentid[body]
        if body not in wrench:
            continue
        if parent:
            wrench[parent] = add(wrench.get(parent, [0.0] * 6), wrench[body])
            stiffness[parent] = add(stiffness.get(parent, [0.0] * 21), stiffness[body])
    for i in range(m.nv):
        body = m.dof_bodyid[i]
        if body not in wrench:
            continue
        gradient[i] = gradient[i] + dot(d.odof[i], wrench[body])
        image = _mul(stiffness[body], d.odof[i])
        j = i
        while j >= 0:
            hessian[i][j] = hessian[i].get(j, 0.0) + dot(d.odof[j], image)
            j = m.dof_parentid[j]


def pair_contact(m: Model, d: Data, c: ContactForce, a: list, gradient: list, hessian: list[dict]) -> None:
    """A contact between two moving bodies, by its Jacobian along n, t1, t2 in the dofs that tell the bodies apart."""
    dofs = sorted(v for _, _, own in c.sides for v in own)
    entries = [(u, v) for u in dofs for v in dofs if v <= u]

    def push(carry: list) -> list:
        lines, D, y0 = c.computed
        sides = list(zip(lines, c.sides, strict=True))
        jacobian = [
            {v: dot(side[k], d.odof[v]) * sign for side, (_, sign, own) in sides for v in own} for k in range(c.condim)
        ]
        y = [sum_of(row[v] * a[v] for v in dofs) + y for row, y in zip(jacobian, y0, strict=True)]
        force, weight = pyramid(c, D, y)
        nn, n1, n2, w11, w22, w12 = weight
        weights = [[nn, n1, n2], [n1, w11, w12], [n2, w12, w22]]
        rows = range(c.condim)
        g = [old - sum_of(force[k] * jacobian[k][v] for k in rows) for v, old in zip(dofs, carry[0], strict=True)]
        image = [{v: sum_of(weights[k][i] * jacobian[i][v] for i in rows) for v in dofs} for k in rows]
        h = [
            old + sum_of(jacobian[k][u] * image[k][v] for k in rows)
            for (u, v), old in zip(entries, carry[1], strict=True)
        ]
        return [g, h]

    g, h = when_any(c.active, push, [[gradient[v] for v in dofs], [hessian[u].get(v, 0.0) for u, v in entries]])
    for v, x in zip(dofs, g, strict=True):
        gradient[v] = x
    for (u, v), x in zip(entries, h, strict=True):
        hessian[u][v] = x


def line_search(
    m: Model, d: Data, a: list, dx: list, slope: Scalar, tolerance: float, full: Mask
) -> tuple[Scalar, Scalar]:
    """The share of the step dx to take, and the force that is out of place after a full one.

    That force, summed over the rows that are pressed at a + dx but were free at a, or the reverse, is the gradient at
    a + dx: where it is next to nothing, or where `full` asks for it, the share is 1. Else it is the minimum along dx,
    by Newton's method with a bracket: the derivative, `slope` at first, is linear piece by piece. PrimalSearch.
    """
    inertial = dot(dx, [ma - tau for ma, tau in zip(mul_m(d.M, a), d.qfrc_smooth, strict=True)])
    enough = absolute(slope) * LS_TOLERANCE

    def step(carry: list) -> list:
        alpha, low, high, at_end, _ = carry

        def row(total: list, e: Scalar, v: Scalar, D: Scalar) -> list:
            at = e + alpha * v
            force = D * minimum(at, 0.0)
            expected = select(e < 0.0, D * at, 0.0)
            change = D * v * v
            return [
                total[0] + force * v,
                total[1] + select(at < 0.0, change, 0.0),
                total[2] + absolute(force - expected),
                total[3] + select(e < 0.0, change, 0.0),
            ]

        def whole(total: list, c: ContactForce, D: Scalar, y: list, v: list) -> list:
            """The same for a contact whose rows share a spring."""
            at = add(y, scale(v, alpha))
            before, now = stiff.pressed_rows(c, D, y), stiff.pressed_rows(c, D, at)
            force, weight = stiff.push(c, D, at, now)
            expected, before_weight = stiff.push(c, D, at, before)
            return [
                total[0] - dot(force, v),
                total[1] + curvature(weight, v),
                total[2] + sum_of(absolute(x - y) for x, y in zip(force, expected, strict=True)),
                total[3] + curvature(before_weight, v),
            ]

        total = [0.0] * 4
        for limit in d.limits:
            total = row(total, limit.sign * a[limit.dof] + limit.y0, limit.sign * dx[limit.dof], limit.D)
        first, second, flipped, pressed = fold_contacts(m, d, a, dx, row, whole, total)
        curve = -slope - pressed  # dx' M dx, since dx' (M + J'DJ) dx = -slope
        first, second = first + inertial + alpha * curve, second + curve
        flipped = select(at_end < 0.0, flipped, at_end)  # what the first turn found, at the full step
        low, high = select(first < 0.0, alpha, low), select(first < 0.0, high, alpha)
        trial = alpha - first / second
        inside = logical_and(low < trial, trial < high)
        done = logical_or(full, logical_not(flipped > tolerance), logical_not(absolute(first) > enough))
        return [select(done, alpha, select(inside, trial, 0.5 * (low + high))), low, high, flipped, done]

    start = [1.0, 0.0, 1e10, -1.0, False]
    alpha, _, _, flipped, _ = while_any(lambda c: logical_not(c[4]), step, start, LS_ITERATIONS)
    return alpha, flipped


def fold_contacts(m: Model, d: Data, a: list, dx: list, row: Callable, whole: Callable, total: list) -> list:
    """`total = row(total, residual at a, change along dx, D)` over the rows of every touching contact.

    A contact whose rows share a spring is a `whole`, by its residual and change along n, t1, t2.
    """
    motion, change = body_motion(m, d, a), body_motion(m, d, dx)
    for c in d.contacts:

        def push(carry: list, c: ContactForce = c) -> list:
            _, D, y0 = c.computed
            if c.bound.spring:
                return whole(carry, c, D, residual(c, motion, y0), residual(c, change, [0.0] * c.condim))
            es = rows_of(c, residual(c, motion, y0))
            vs = rows_of(c, residual(c, change, [0.0] * c.condim))
            for (e, *_), (change_e, *_) in zip(es, vs, strict=True):
                carry = row(carry, e, change_e, D)
            return carry

        total = when_any(c.active, push, total)
    for group in d.groups:
        total = pairs.fold_rows(group, a, dx, row, total)
    return total


def curvature(weight: list, v: list) -> Scalar:
    """v'Wv of a contact's stiffness, given as by `pyramid`."""
    nn, n1, n2, w11, w22, w12 = weight
    n, one, two = v
    across = n * (n1 * one + n2 * two) + w12 * one * two
    return nn * n * n + w11 * one * one + w22 * two * two + 2.0 * across


def body_motion(m: Model, d: Data, x: list) -> list[list]:
    """Spatial motion of every body for the dof values x."""
    motion = [[0.0] * 6 for _ in range(m.nbody)]
    for b in range(1, m.nbody):
        motion[b] = motion[m.body_parentid[b]]
        for v in range(m.body_dofadr[b], m.body_dofadr[b] + m.body_dofnum[b]):
            motion[b] = [s + c * x[v] for s, c in zip(motion[b], d.odof[v], strict=True)]
    return motion


def sum_of(values) -> Scalar:
    """The sum; 0 of nothing."""
    out: Scalar = 0.0
    for x in values:
        out = out + x
    return out


# A symmetric 6 x 6 as 21 numbers: angular block (lower triangle, 6), angular-linear block (9), linear block (6).
_LOWER = [(0, 0), (1, 0), (1, 1), (2, 0), (2, 1), (2, 2)]


def _at(k: list[list], r: list) -> list:
    """The stiffness k of the point r as one of spatial motion."""
    columns = [cross(r, [k[0][j], k[1][j], k[2][j]]) for j in range(3)]  # [r]k
    rows = [[columns[j][i] for j in range(3)] for i in range(3)]
    angular = [cross(r, rows[j])[i] for i, j in _LOWER]  # [r]k[r]'
    return angular + [x for row in rows for x in row] + [k[i][j] for i, j in _LOWER]


def _mul(s: list, v: list) -> list:
    """S v."""

    def symmetric(t: list, x: list) -> list:
        return [
            t[0] * x[0] + t[1] * x[1] + t[3] * x[2],
            t[1] * x[0] + t[2] * x[1] + t[4] * x[2],
            t[3] * x[0] + t[4] * x[1] + t[5] * x[2],
        ]

    mixed = [s[6:9], s[9:12], s[12:15]]
    w, u = v[:3], v[3:]
    angular = add(symmetric(s[:6], w), [dot(row, u) for row in mixed])
    linear = add([dot([mixed[i][j] for i in range(3)], w) for j in range(3)], symmetric(s[15:], u))
    return angular + linear
