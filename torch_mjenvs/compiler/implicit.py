"""Solutions of equations: whoever searches for one says which equation it solves, so that its derivative is known.

A search has no derivative worth having: it ends where it ends, by however many iterations. By the implicit function
theorem the solution x of g(x, y) = 0 has the derivative dx = -(dg/dx)^-1 dg, where dg is at constant x. See
`derivatives`.

Some searches pick parts, from which what they find follows in closed form: corners of two shapes, from which follows
where these touch. Whoever picks says what follows, by `follows`, and marks what was picked as `held`: it is constant
piece by piece.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from .expr import Expr, current, fresh, is_tracing
from .scalar import Scalar

# The residual at the solution, and a function that solves with the matrix dg/dx.
Equation = tuple[Sequence[Scalar], Callable[[Sequence[Scalar]], Sequence[Scalar]]]


@dataclass(eq=False)
class Solution:
    """Values of a kernel that solve an equation, and what the equation is made of: few values from which all follows.

    `equation` records it, where a derivative is asked for.
    """

    values: list[Any]
    given: list[Any]
    equation: Callable[[], Equation]


def solves(values: Sequence[Scalar], given: Sequence[Scalar], equation: Callable[[], Equation]) -> None:
    """Note that these values were found by a search as the solution of an equation. It costs a kernel nothing."""
    if not is_tracing():
        return
    found = Solution(list(values), list(given), equation)
    for x in values:
        if type(x) is Expr:
            current().solutions[x] = found


def follows(values: Sequence[Scalar], given: Sequence[Scalar], formula: Callable[[], Sequence[Scalar]]) -> None:
    """Note that these values, which a search found, are those of a formula of what is `given`, and of `held` numbers.

    The formula is recorded where a derivative is asked for, in the region of the last value: it costs a kernel nothing.
    """
    found = [(k, x) for k, x in enumerate(values) if type(x) is Expr]
    assert all(x.op not in ("sub", "neg") for _, x in found), "-(a - b) is b - a, of which nothing would be known"

    def equation() -> Equation:
        computed = formula()
        return [x - computed[k] for k, x in found], list

    solves([x for _, x in found], given, equation)


def held(x: Scalar) -> Scalar:
    """Return a number for a formula that is taken as constant there, as the number of a corner is that was picked."""
    if type(x) is not Expr:
        return x
    out = fresh("add", x, 0.0)  # a node of its own: the same number may have derivatives elsewhere
    current().held.add(out)
    return out
