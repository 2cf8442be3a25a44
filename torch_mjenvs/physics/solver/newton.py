"""Newton's method on the acceleration, for the cost of MuJoCo's engine_solver.c, without a constraint Jacobian.

The cost 1/2 (a - a0)' M (a - a0) + that of the rows e = J a + y0 is convex, and quadratic piece by piece: a row costs
1/2 D min(0, e)**2, one of an equality 1/2 D e**2, one of friction loss the same up to where its force is at its
greatest, and grows linearly from there. A full Newton step after which each row is still in its piece (pressed or free,
sticking or sliding one way or the other) therefore lands on the minimum itself, whatever the starting point: that, and
not a small gradient, is what ends the iteration.

The rows are made by `constraints`. Letters: a acceleration and dx step (V dofs).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...compiler.active_sets import active_set, fold_each, for_all
from ...compiler.control import apart, when_any, while_any, worlds_go_together
from ...compiler.implicit import Confined, Equation, solves
from ...compiler.scalar import Mask, Scalar, absolute, logical_and, logical_not, logical_or, quotient, rounded, select
from ...compiler.tiles import TileMatrix, elimination, pays
from ..algebra.spatial import add, cross, dot, quat_directions, sub, zeros
from ..constraints.batch.contact_pool import ContactPool
from ..constraints.friction import FrictionLoss, hold_turning
from ..constraints.limbs import CouplingRows, IdleRows
from ..constraints.rows import Constraint, Hessian
from ..constraints.world_contacts import WorldContacts
from ..dynamics.forces import applied_wrench, driving
from ..dynamics.inertia import Matrix, dof_columns, factor, mul_m, solve
from ..dynamics.integrator import rotations
from ..dynamics.reflected import dof_armature
from ..dynamics.tendons.bias import armature_wrenches
from ..dynamics.tendons.tendon import tendons_with_armature
from ..dynamics.velocity import rne
from ..model.data import Data, stage
from ..model.model import Model
from .warmstart import start

# The file's `iterations` and tolerances are not used: MuJoCo stops there, converged or not. A search that has not ended
# after these is left at its last point, where the cost is lowest; the tests' models need at most 5 from a cold start.
ITERATIONS, LS_ITERATIONS = 100, 50
LS_TOLERANCE = 0.01  # the share of the first slope at which a line search ends
# Iterations that take the full step even if it does not end the search; fewer where sliding contacts' cost is curved.
FULL_STEPS = {"pyramidal": 4, "elliptic": 2}

MOST_CONTACTS = 100  # with the world, written out one by one, for which there may be two loops


@stage(
    reads="precision qpos qvel act ctrl qacc_warmstart odof M qfrc_smooth constraints",
    computes="qacc_solver solver_niter",
)
def newton(m: Model, d: Data) -> None:
    """Compute d.qacc_solver from the warm start d.qacc_warmstart, and d.solver_niter. mj_fwdConstraint."""
    if not m.nv:  # nothing moves
        d.qacc_solver, d.solver_niter = [], 0.0
        return
    tolerance = d.precision.tolerance * m.meaninertia * m.nv
    uncertain = [where for c in d.constraints for where in c.needs_refinement]
    # With pyramids such rounding is 1e-12 of accelerations, with elliptic cones 4e-11.
    if d.constraints and m.cone == "elliptic" and _lightest(m.nominal or m) > d.precision.light:
        uncertain.append(True)
    certain = logical_not(logical_or(*uncertain))
    inertia = inertia_of(d)

    full_steps = FULL_STEPS[m.cone]
    # Mostly limbs do not meet, and without the rows that couple them the Hessian has M's pattern: its factors take half
    # the time. So there are two loops, the second for vectors of worlds in which no limbs meet; for vectors that took
    # the first, it has nothing left to do. A world's bits are the same in both.
    idle = [c.idle(m) for c in d.constraints]
    two_loops = worlds_go_together() and any(idle) and _is_small(m, d, inertia, idle)

    def step(carry: list[Any], among: Sequence[Constraint]) -> list[Any]:
        a, _, count, ways, *landed = carry
        full = count < full_steps
        last_full = logical_and(count > full_steps - 1.5, full)
        constraints, ways = hold_turning(among, a, ways, last_full)
        gradient, hessian = linearise(m, d, a, constraints, inertia)
        if two_loops:
            gradient = [rounded(x) for x in gradient]
            hessian = [{j: rounded(x) for j, x in row.items()} for row in hessian]
        dx = [-x for x in solve(factor(hessian, m.dof_clamped, straight=two_loops), gradient)]
        if two_loops:
            dx = [rounded(x) for x in dx]
        alpha, flipped = line_search(m, d, constraints, a, dx, dot(gradient, dx), tolerance, full)
        done = logical_not(flipped > tolerance)
        a = [x + alpha * s for x, s in zip(a, dx, strict=True)]
        if uncertain:  # the step is repeated
            landed, done = [done], logical_and(done, logical_or(landed[0], certain))
        return [a, done, count + 1.0, ways, *landed]

    def search(carry: list[Any], among: Sequence[Constraint]) -> list[Any]:
        return while_any(lambda c: logical_not(c[1]), lambda c: step(c, among), carry, ITERATIONS)

    ways = [0.0 for c in d.constraints if isinstance(c, FrictionLoss)]
    carry = [start(m, d), False, 0.0, ways] + [False] * bool(uncertain)
    among: Sequence[Constraint] = d.constraints
    if two_loops:
        meet = for_all(active_set([logical_or(*(c.acts for c, x in zip(among, idle, strict=True) if x))]))
        whole = [CouplingRows(c, x, apart()) if x else c for c, x in zip(among, idle, strict=True)]

        def search_whole(_: Any, carry: list[Any]) -> list[Any]:
            a, _, *others = search(carry, whole)
            return [a, True, *others]  # also where the iterations did not suffice

        carry = fold_each(meet, search_whole, carry)
        among = [x or c for c, x in zip(among, idle, strict=True)]
    d.qacc_solver, _, d.solver_niter, *_ = search(carry, among)

    given = [*d.qpos, *d.qvel, *(d.act if m.na else []), *(d.ctrl if m.nu else [])]
    solves(d.qacc_solver, given, lambda: optimum(m, d, d.qacc_solver), lambda: _quaternions(m, d))


def _is_small(m: Model, d: Data, inertia: Matrix, idle: Sequence[Constraint | None]) -> bool:
    """Return whether the code is small enough for two loops. Each has that of all contacts with the world, and of the
    Hessian's factors, entry by entry; the first one has those of all rows that may be idle, too.
    """
    written = sum(len(c.contacts) for c in d.constraints if isinstance(c, WorldContacts))
    if isinstance(inertia, TileMatrix) or written > MOST_CONTACTS:
        return False
    columns = [set(own) for own in dof_columns(m)]
    for u, v in (entry for x in idle if isinstance(x, IdleRows) for entry in x.entries):
        columns[u].add(v)
    return not pays(columns, elimination(columns), sum(map(len, columns)))


def _quaternions(m: Model, d: Data) -> list[Confined]:
    quats = [d.qpos[q : q + 4] for q, _ in rotations(m)]
    return [Confined(quat, quat_directions(quat)) for quat in quats]


def _lightest(m: Model) -> float:
    """Return the mean inertia over that of the lightest dof."""
    return float(m.meaninertia) * max(map(float, m.dof_invweight0))


def optimum(m: Model, d: Data, a: list[Scalar]) -> Equation:
    """Return the equation of the acceleration a at which the cost is lowest: the gradient is 0, the Hessian its matrix.

    It keeps no lists of contacts between loops, since their derivatives would be as many again for each dof.
    """
    constraints = [c.recomputed() for c in d.constraints]
    gradient, hessian = linearise(m, d, a, constraints, inertia_of(d), _unbalanced(m, d, a))
    factors = factor(hessian, m.dof_clamped)
    return gradient, lambda b: solve(factors, list(b))


def _unbalanced(m: Model, d: Data, a: list[Scalar]) -> list[Scalar]:
    """Return M a - qfrc_smooth, body by body, since of M's many derivatives only those of this product are needed."""
    if isinstance(d.M, TileMatrix) or tendons_with_armature(m):  # MuJoCo drops some of the latter's entries of M
        return sub(mul_m(d.M, a), d.qfrc_smooth)
    driven = zip(rne(m, d, a), driving(m, d), strict=True)
    return [x - f + dof_armature(m, v) * a[v] for v, (x, f) in enumerate(driven)]


@stage(reads="odof constraints qacc_solver slips", computes="qfrc_constraint")
def constraint_force(m: Model, d: Data) -> None:
    """Compute d.qfrc_constraint = J'f. mj_constraintUpdate."""
    d.qfrc_constraint = [-x for x in _add_rows(m, d, d.qacc_solver, Hessian(m.nv, in_tiles=True))]  # it is not read
    for slip in d.slips:
        d.qfrc_constraint = slip.add_force(d.qfrc_constraint)


@stage(
    reads="origin comrel odof constraints qacc_solver slips qacc xfrc_applied xirel tendon_wrench ten_wrench ten_J "
    "ten_bias",
    computes="cfrc_ext",
)
def rne_post_constraint(m: Model, d: Data) -> None:
    """Compute d.cfrc_ext, the wrench (torque, force) on each body about its root's subtree_com. mj_rnePostConstraint.

    It is the sum of those of contacts, equalities, xfrc_applied and spatial tendons.
    """
    wrench = [zeros(6) for _ in range(m.nbody)]
    for c in d.constraints:
        c.add_wrenches(m, d, d.qacc_solver, wrench)
    for slip in d.slips:
        slip.add_wrenches(m, d, wrench)
    if d.xfrc_applied is not None:
        wrench = [add(w, applied_wrench(d, b)) if b else w for b, w in enumerate(wrench)]
    for pulls in (d.tendon_wrench, armature_wrenches(m, d, d.qacc)):
        for b, w in pulls.items():
            wrench[b] = add(wrench[b], w)
    d.cfrc_ext = [
        [*sub(w[:3], cross(d.comrel[m.body_originid[b]], w[3:])), *w[3:]] if b else w for b, w in enumerate(wrench)
    ]


def inertia_of(d: Data) -> Matrix:
    """Return M; as tiles if contacts are added to tiles, so that it is put there once and not in each iteration."""
    layouts = [c.layout for c in d.constraints if isinstance(c, ContactPool)]
    if not layouts or isinstance(d.M, TileMatrix):
        return d.M
    return TileMatrix.of(list(d.M), layouts[0].blocks).stored()


def linearise(
    m: Model,
    d: Data,
    a: list[Scalar],
    constraints: Sequence[Constraint],
    inertia: Matrix,
    unbalanced: list[Scalar] | None = None,
) -> tuple[list[Scalar], Matrix]:
    """Return the gradient of the cost at the acceleration a, and its Hessian. inertia: as `inertia_of` gives it.

    unbalanced: M a - qfrc_smooth, if it is known.
    """
    hessian = Hessian(m.nv, isinstance(d.M, TileMatrix))
    pushes = _add_rows(m, d, a, hessian, constraints)
    if unbalanced is None:
        unbalanced = sub(mul_m(d.M, a), d.qfrc_smooth)
    return add(unbalanced, pushes), hessian.with_inertia(m, d, inertia)


def _add_rows(
    m: Model, d: Data, a: list[Scalar], hessian: Hessian, constraints: Sequence[Constraint] | None = None
) -> list[Scalar]:
    """Return the constraints' share of the cost's gradient at the acceleration a, and add theirs to its Hessian."""
    gradient: list[Scalar] = [0.0] * m.nv
    for c in d.constraints if constraints is None else constraints:
        c.add_rows(m, d, a, gradient, hessian)
    return gradient


def line_search(
    m: Model, d: Data, constraints: Sequence[Constraint],
    a: list[Scalar], dx: list[Scalar], slope: Scalar, tolerance: float, full: Mask,
) -> tuple[Scalar, Scalar]:  # fmt: skip
    """Return the share of the step dx to take, and the force that is out of place after a full step. PrimalSearch.

    That force, summed over the rows that are in another piece of their cost at a + dx than at a, is the gradient there.
    Where it is next to nothing, or where `full` asks for it, the share is 1. Elsewhere it is that of the minimum along
    dx, found by Newton's method with a bracket: the derivative, `slope` at first, is piecewise linear.
    """

    def fold(alpha: Scalar) -> list[Scalar]:
        total = zeros(4)
        for c in constraints:
            total = c.fold_rows(m, d, a, dx, alpha, total)
        return total

    def search(_: Any) -> list[Scalar]:
        inertial = dot(dx, [ma - tau for ma, tau in zip(mul_m(d.M, a), d.qfrc_smooth, strict=True)])
        enough = absolute(slope) * LS_TOLERANCE

        def step(carry: list[Any]) -> list[Any]:
            alpha, low, high, _ = carry
            first, second, _, pressed = fold(alpha)
            curve = -slope - pressed  # dx' M dx, since dx' (M + J'DJ) dx = -slope
            first, second = first + inertial + alpha * curve, second + curve
            low, high = select(first < 0.0, alpha, low), select(first < 0.0, high, alpha)
            trial = alpha - quotient(first, second)
            inside = logical_and(low < trial, trial < high)
            done = logical_not(absolute(first) > enough)
            return [select(done, alpha, select(inside, trial, 0.5 * (low + high))), low, high, done]

        alpha, *_ = while_any(lambda c: logical_not(c[3]), step, [1.0, 0.0, 1e10, False], LS_ITERATIONS)
        return [alpha]

    flipped = fold(1.0)[2]  # most steps are full and need nothing else of the rows: no slope, no curvature
    needed = logical_and(logical_not(full), flipped > tolerance)
    (alpha,) = when_any(needed, search, [1.0])
    return alpha, flipped
