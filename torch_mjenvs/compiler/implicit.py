"""Solutions of equations: code that searches for one declares which equation it solves, so that its derivative is
known.

A search has no useful derivative: where it ends depends on the number of iterations. By the implicit function theorem
the solution x of g(x, y) = 0 has the derivative dx = -(dg/dx)^-1 dg, where dg is at constant x. See `derivatives`.

Some searches pick parts from which their result follows in closed form, such as the corners of two shapes that
determine where these touch. Such code declares the formula by `follows`, passes the picked numbers on by
`for_derivatives`, and marks them as `held`: they are piecewise constant. Values that loops and blocks compute have
derivatives of their own, but adjoints cannot go back through such code. For adjoints they are computed again in
straight code, by `straightened` and `for_adjoints`.

All of these take functions, which are called only where their results are needed; other kernels pay nothing. So code
need not ask whether there will be derivatives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from .expr import Expr, current, fresh, is_tracing
from .scalar import Scalar

# The residual at the solution, and a function that solves with the matrix dg/dx.
Equation = tuple[Sequence[Scalar], Callable[[Sequence[Scalar]], Sequence[Scalar]]]


class Confined(NamedTuple):
    """Values that can only change along few directions, as the four of a quaternion along three.

    directions: (n, k) for k values; orthogonal to each other.
    """

    values: Sequence[Scalar]
    directions: Sequence[Sequence[Scalar]]


@dataclass(eq=False)
class Solution:
    """Values of a kernel that solve an equation, and the few values that the equation is made of.

    `equation` records it where a derivative is asked for. `confined` says which of the given values change along few
    directions only: the equation then has fewer derivatives.
    """

    values: list[Any]
    given: list[Any]
    equation: Callable[[], Equation]
    confined: Callable[[], Sequence[Confined]] = list


class Formula(Solution):
    """Values that are the results of a formula: the equation says that each equals the formula's result."""

    def __init__(self, values: list[Any], given: list[Any], formula: Callable[[], Sequence[Scalar]], places: list[int]):
        super().__init__(values, given, self._equation)
        self.formula, self.places = formula, places

    def computed(self) -> list[Scalar]:
        """Record the formula, and return what it gives for each of the values."""
        made = self.formula()
        return [made[k] for k in self.places]

    def _equation(self) -> Equation:
        return [x - y for x, y in zip(self.values, self.computed(), strict=True)], list


def solves(
    values: Sequence[Scalar],
    given: Sequence[Scalar],
    equation: Callable[[], Equation],
    confined: Callable[[], Sequence[Confined]] = list,
) -> None:
    """Note that these values were found by a search as the solution of an equation. It costs a kernel nothing."""
    if not is_tracing():
        return
    found = Solution(list(values), list(given), equation, confined)
    for x in values:
        if type(x) is Expr:
            current().solutions[x] = found


Numbers = Callable[[], Sequence[Scalar]]


def for_derivatives(picked: Numbers) -> list[Scalar]:
    """Return the numbers that formulas of `follows` need if there will be derivatives, else none."""
    return list(picked()) if is_tracing() and current().derivatives else []


def for_adjoints(picked: Numbers) -> list[Scalar]:
    """Return the numbers that formulas of `straightened` need if there will be adjoints, else none."""
    return list(picked()) if is_tracing() and current().derivatives == "reverse" else []


def follows(values: Sequence[Scalar], given: Numbers, formula: Numbers) -> list[Scalar]:
    """Return these values, which a search found, as the results of a formula of `given` values and `held` numbers.

    The formula is recorded where a derivative is asked for, in the present region. Without derivatives the values are
    returned as they are.
    """
    return _by_formula(values, given, formula) if is_tracing() and current().derivatives else list(values)


def straightened(values: Sequence[Scalar], given: Numbers, formula: Numbers) -> list[Scalar]:
    """Return these values, which loops and blocks compute, as the results of a formula for adjoints: see `follows`."""
    in_reverse = is_tracing() and current().derivatives == "reverse"
    return _by_formula(values, given, formula) if in_reverse else list(values)


def _by_formula(values: Sequence[Scalar], given: Numbers, formula: Numbers) -> list[Scalar]:
    found = [fresh("add", x, 0.0) if type(x) is Expr else x for x in values]
    places = [k for k, x in enumerate(found) if type(x) is Expr]
    solution = Formula([found[k] for k in places], list(given()), formula, places)
    for x in solution.values:
        current().solutions[x] = solution
    return found


def held(x: Scalar) -> Scalar:
    """Return a number that a formula takes as constant, such as the number of a corner that was picked."""
    if type(x) is not Expr:
        return x
    out = fresh("add", x, 0.0)  # a node of its own: the same number may have derivatives elsewhere
    current().held.add(out)
    return out
