"""Noslip's rules: the force of friction with which nothing slips, as far as friction allows, all else as it is.

Letters: as in `noslip`. For an axis of a pyramid A, v and F have one entry; an elliptic cone has all its axes at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...compiler.control import while_any
from ...compiler.scalar import Mask, Scalar, clip, logical_not, logical_or, maximum, select, sqrt
from ..algebra.spatial import MINVAL, dot, scale, sub, sum_of, zeros
from ..dynamics.inertia import factor, solve

Mat = list[list[Scalar]]  # by row
Hold = Callable[[Mat, list[Scalar], list[Scalar]], list[Scalar]]  # takes A, v and F, returns the next F
LEAST = 1e-10  # in MuJoCo's QCQP, the least diagonal entry or determinant of A, and the least that remains to be done
ITERATIONS = 20  # in MuJoCo's QCQP


def shares(cone: Any, y: list[Scalar]) -> list[Scalar]:
    """Return the most that friction may be on each axis of a pyramid: its two edges' forces, times its coefficient."""
    f = cone.edges(y)
    return [mu * (one + two) for mu, one, two in zip(cone.friction, f[::2], f[1::2], strict=True)]


def edges(mu: Scalar, most: Scalar) -> Hold:
    """Return the rule for friction along one axis of a pyramid: mu its coefficient, `most` the most it may be."""

    def hold(A: Mat, slip: list[Scalar], force: list[Scalar]) -> list[Scalar]:
        loose = (4.0 * mu * mu) * A[0][0] < MINVAL
        return [select(loose, 0.0, clip(force[0] - slip[0] / maximum(A[0][0], MINVAL), -most, most))]

    return hold


def ellipse(friction: list[Scalar], normal: Scalar, least: float, dofs: Scalar) -> Hold:
    """Return the rule for all axes of an elliptic cone: minimize 1/2 F'AF + F'b where |F / friction| <= `normal`.

    mju_QCQP: with x = F / friction, x is -(A + la)^-1 b, where la >= 0 makes |x| equal to `normal` and is found by
    Newton's method. It ends where MuJoCo's does, which may be early.

    There is no friction where A is singular. least: the smallest pivot, as a share of its row's diagonal entry; a
    smaller one is rounding, and A is singular. dofs: how many move the bodies apart; if they can move along more axes
    than that, A is singular, too, whatever rounding makes of it.
    """
    n = len(friction)

    def hold(A: Mat, slip: list[Scalar], force: list[Scalar]) -> list[Scalar]:
        can_move = sum_of(select(row[i] > LEAST, 1.0, 0.0) for i, row in enumerate(A))
        dependent = False if isinstance(dofs, int) and dofs >= n else can_move > dofs
        A = [[maximum(x, LEAST) if i == j else x for j, x in enumerate(row)] for i, row in enumerate(A)]
        b = [f * (s - dot(row, force)) for f, s, row in zip(friction, slip, A, strict=True)]
        scaled = [[x * f * g for x, g in zip(row, friction, strict=True)] for row, f in zip(A, friction, strict=True)]

        def iterate(carry: list[Any]) -> list[Any]:
            la, _, _, _ = carry
            shifted = [{j: scaled[i][j] + (la if i == j else 0.0) for j in range(i + 1)} for i in range(n)]
            f = factor(shifted)
            pivots = [1.0 / x for x in f.inverse]
            singular = logical_or(_singular(pivots), *(x < least * shifted[i][i] for i, x in enumerate(pivots)))
            x = scale(solve(f, b), -1.0)
            beyond = dot(x, x) - normal * normal
            more = beyond / maximum(2.0 * dot(x, solve(f, x)), MINVAL)
            done = logical_or(singular, beyond < LEAST, more < LEAST)
            return [select(done, la, la + more), x, singular, done]

        start = [0.0, zeros(n), dependent, dependent]
        la, x, singular, _ = while_any(lambda c: logical_not(c[3]), iterate, start, ITERATIONS)
        onto = sqrt(normal * normal / maximum(dot(x, x), MINVAL))
        by = select(la > 0.0, onto, 1.0)
        none = logical_or(singular, normal < MINVAL)
        new = [select(none, 0.0, xk * by * f) for xk, f in zip(x, friction, strict=True)]
        return _unless_worse(A, slip, force, new)

    return hold


def _unless_worse(A: Mat, slip: list[Scalar], force: list[Scalar], new: list[Scalar]) -> list[Scalar]:
    change = sub(new, force)
    worse = dot(change, [0.5 * dot(row, change) + s for row, s in zip(A, slip, strict=True)]) > LEAST
    return [select(worse, old, x) for old, x in zip(force, new, strict=True)]


def _singular(pivots: list[Scalar]) -> Mask:
    """Return where MuJoCo takes A for singular: by the determinant of 2 or 3 rows, by the pivots of more."""
    if len(pivots) > 3:
        return logical_or(*(x < LEAST for x in pivots))
    product: Scalar = 1.0
    for x in pivots:
        product = product * x
    return product < LEAST
