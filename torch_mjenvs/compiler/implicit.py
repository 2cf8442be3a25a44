"""Solutions of equations: code that searches for one declares which equation it solves, so that its derivative is
known.

A search has no derivative worth having: it ends where it ends, by however many iterations. By the implicit function
theorem the solution x of g(x, y) = 0 has the derivative dx = -(dg/dx)^-1 dg, where dg is at constant x. See
`derivatives`.

Some searches pick parts, from which what they find follows in closed form: corners of two shapes, from which follows
where these touch. Whoever picks says what follows, by `follows`, hands what was picked over by `for_derivatives`, and
marks it as `held`: it is constant piece by piece. What loops and blocks compute has derivatives of its own, but
adjoints do not go back through them: for these it is computed again in straight code, by `straightened` and
`for_adjoints`.

All of it is functions, which are called where what they give is needed; else it costs a kernel nothing. So nobody has
to ask whether there are derivatives.
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
    """Values that change along few directions alone, as the four of a quaternion do along three.

    directions: (n, k) for k values; orthogonal to each other.
    """

    values: Sequence[Scalar]
    directions: Sequence[Sequence[Scalar]]


@dataclass(eq=False)
class Solution:
    """Values of a kernel that solve an equation, and what the equation is made of: few values from which all follows.

    `equation` records it, where a derivative is asked for, and `confined` which of what is given changes along few
    directions: the equation then has fewer derivatives.
    """

    values: list[Any]
    given: list[Any]
    equation: Callable[[], Equation]
    confined: Callable[[], Sequence[Confined]] = list


class Formula(Solution):
    """Values that are those of a formula: the equation says that each is what it gives at its place."""

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
    """Return the numbers that formulas of `follows` need, where there will be derivatives; else none."""
    return list(picked()) if is_tracing() and current().derivatives else []


def for_adjoints(picked: Numbers) -> list[Scalar]:
    """Return the numbers that formulas of `straightened` need, where there will be adjoints; else none."""
    return list(picked()) if is_tracing() and current().derivatives == "reverse" else []


def follows(values: Sequence[Scalar], given: Numbers, formula: Numbers) -> list[Scalar]:
    """Return these values, which a search found, as those of a formula of what is `given`, and of `held` numbers.

    The formula is recorded where a derivative is asked for, in the present region. Else they are returned as they are.
    """
    return _by_formula(values, given, formula) if is_tracing() and current().derivatives else list(values)


def straightened(values: Sequence[Scalar], given: Numbers, formula: Numbers) -> list[Scalar]:
    """Return these values, which loops and blocks compute, as those of a formula for adjoints: see `follows`."""
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
    """Return a number for a formula that is taken as constant there, as the number of a corner is that was picked."""
    if type(x) is not Expr:
        return x
    out = fresh("add", x, 0.0)  # a node of its own: the same number may have derivatives elsewhere
    current().held.add(out)
    return out
