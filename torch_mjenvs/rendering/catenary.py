"""The curve in which a string hangs. mjv_catenary."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..compiler.control import repeat
from ..compiler.scalar import Scalar, absolute, exp, log_of_normal, maximum, minimum, select, sqrt
from ..physics.algebra.spatial import MINVAL

NEWTON = 12  # steps of Newton's method; the equation is nearly linear, and 5 usually suffice


def catenary(h: Scalar, v: Scalar, longest: Scalar) -> Callable[[Scalar], Scalar]:
    """Return the height of a hanging chain as a function of the horizontal distance from its first end, relative to
    that end: below 0 where it sags.

    It is b cosh((x - x0) / b) - b cosh(x0 / b), where sinh(a) / a = sqrt(longest² - v²) / h with a = h / 2b.
    """
    excess = sqrt(maximum(longest * longest - v * v, 0.0)) / h - 1.0
    goal = 1.0 / sqrt(maximum(excess, MINVAL))

    def newton(i: Any, c: list[Scalar]) -> list[Scalar]:
        """One step to the root of 1 / sqrt(sinh(a) / a - 1) - goal, which is about linear in 1 / 2a."""
        a = 0.5 / c[0]
        more, slope = _sinh_over(a)
        residual = 1.0 / sqrt(maximum(more, MINVAL)) - goal
        rate = slope * a * a / maximum(more * sqrt(maximum(more, MINVAL)), MINVAL)
        return [maximum(c[0] - residual / maximum(rate, MINVAL), 0.5 * c[0])]

    (root,) = repeat(NEWTON, newton, [goal / 24.0**0.5])
    b = root * h
    x0 = 0.5 * (h - b * log_of_normal((longest + v) / maximum(longest - v, MINVAL)))
    return lambda x: 2.0 * b * _sinh(0.5 * (x - 2.0 * x0) / b) * _sinh(0.5 * x / b)


def _sinh_over(a: Scalar) -> tuple[Scalar, Scalar]:
    """Return sinh(a) / a - 1 and its slope, for a > 0: by their series where the terms would cancel."""
    square, more, slope, term = a * a, 0.0 * a, 0.0 * a, 1.0
    near = minimum(square, 1.0)
    for k in range(9, 0, -1):  # sum of a^2k / (2k + 1)!
        term = 1.0 / _factorial(2 * k + 1)
        more = (more + term) * near
        slope = slope * near + 2.0 * k * term
    wide = maximum(a, 1.0)
    sinh, cosh = _sinh(wide), 0.5 * (exp(wide) + exp(-1.0 * wide))
    large = square > 1.0
    return select(large, sinh / wide - 1.0, more), select(large, (cosh - sinh / wide) / wide, slope * minimum(a, 1.0))


def _sinh(a: Scalar) -> Scalar:
    """The hyperbolic sine, to rounding: by its series where exp(a) and exp(-a) are about equal."""
    near, series = minimum(a * a, 1.0), 0.0 * a
    for k in range(9, -1, -1):
        series = series * near + 1.0 / _factorial(2 * k + 1)
    return select(absolute(a) > 1.0, 0.5 * (exp(a) - exp(-1.0 * a)), a * series)


def _factorial(n: int) -> float:
    return float(n * _factorial(n - 1)) if n else 1.0
