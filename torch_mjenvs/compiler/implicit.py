"""Solutions of equations: whoever searches for one says which equation it solves, so that its derivative is known.

A search has no derivative worth having: it ends where it ends, by however many iterations. By the implicit function
theorem the solution x of g(x, y) = 0 has the derivative dx = -(dg/dx)^-1 dg, where dg is at constant x. See
`derivatives`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from .expr import Expr, current, is_tracing
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
