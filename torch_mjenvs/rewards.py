"""`tolerance`, a building block for rewards between 0 and 1: dm_control's, on scalars of a world."""

from __future__ import annotations

import math
from collections.abc import Callable

from .scalar import Scalar, absolute, cos, exp, maximum, select, tanh

__all__ = ["tolerance"]


def _gaussian(x: Scalar, value: float) -> Scalar:
    scaled = x * math.sqrt(-2 * math.log(value))
    return exp(-0.5 * (scaled * scaled))


def _hyperbolic(x: Scalar, value: float) -> Scalar:
    e = exp(-absolute(x * math.acosh(1 / value)))  # 1 / cosh, without overflow
    return 2.0 * e / (1.0 + e * e)


def _long_tail(x: Scalar, value: float) -> Scalar:
    scaled = x * math.sqrt(1 / value - 1)
    return 1.0 / (scaled * scaled + 1.0)


def _reciprocal(x: Scalar, value: float) -> Scalar:
    return 1.0 / (absolute(x) * (1 / value - 1) + 1.0)


def _cosine(x: Scalar, value: float) -> Scalar:
    angle = x * math.acos(2 * value - 1)
    return select(absolute(angle) < math.pi, (1.0 + cos(angle)) * 0.5, 0.0)


def _linear(x: Scalar, value: float) -> Scalar:
    return maximum(0.0, 1.0 - absolute(x) * (1 - value))


def _quadratic(x: Scalar, value: float) -> Scalar:
    scaled = x * math.sqrt(1 - value)
    return maximum(0.0, 1.0 - scaled * scaled)


def _tanh_squared(x: Scalar, value: float) -> Scalar:
    t = tanh(x * math.atanh(math.sqrt(1 - value)))
    return 1.0 - t * t


# Each falls from 1 at 0 to `value` at 1.
_SIGMOIDS: dict[str, Callable[[Scalar, float], Scalar]] = {
    "gaussian": _gaussian,
    "hyperbolic": _hyperbolic,
    "long_tail": _long_tail,
    "reciprocal": _reciprocal,
    "cosine": _cosine,
    "linear": _linear,
    "quadratic": _quadratic,
    "tanh_squared": _tanh_squared,
}
_REACHING_0 = "cosine", "linear", "quadratic"


def tolerance(
    x: Scalar,
    bounds: tuple[Scalar, Scalar] = (0.0, 0.0),
    margin: Scalar = 0.0,
    sigmoid: str = "gaussian",
    value_at_margin: float = 0.1,
) -> Scalar:
    """Return 1 where x is within the bounds (low, high), and less the further it is outside.

    At a distance of `margin` it is `value_at_margin`, and in between it follows the `sigmoid`: "gaussian",
    "hyperbolic", "long_tail", "reciprocal", "tanh_squared", or, which reach 0, "cosine", "linear" and "quadratic". With
    a margin of 0 it is 0 outside. A bound may be infinite. Bounds and margin may differ from world to world, such as a
    command and how far it was at first; a margin that is below 0 in a world counts as 0 there.

    It is dm_control.utils.rewards.tolerance. Raises ValueError for bounds in the wrong order, a negative margin, an
    unknown sigmoid, or a value at the margin that is not between 0 and 1; 0 is allowed for the sigmoids that reach it.
    """
    low, high = bounds
    known = [float(b) for b in bounds if isinstance(b, (int, float))]
    if len(known) == 2 and not known[0] <= known[1]:
        raise ValueError(f"the bounds must be in order, (low, high), not ({low}, {high})")
    fixed = isinstance(margin, (int, float))
    if fixed and not margin >= 0:
        raise ValueError(f"margin must be a number from 0 on, not {margin}")
    # Leave out infinite bounds: x is outside of such a bound by minus infinity everywhere.
    outside = [d for d, b in ((low - x, low), (x - high, high)) if not (isinstance(b, float) and math.isinf(b))]
    inside = (low <= x) & (x <= high)
    if fixed and margin == 0:
        return select(inside, 1.0, 0.0)
    if sigmoid not in _SIGMOIDS:
        raise ValueError(f"there is no sigmoid {sigmoid!r}: choose from {', '.join(_SIGMOIDS)}")
    reaches_0 = sigmoid in _REACHING_0
    if not (0 <= value_at_margin < 1 if reaches_0 else 0 < value_at_margin < 1):
        rule = "a number from 0 on, and below 1" if reaches_0 else "above 0 and below 1"
        raise ValueError(f"value_at_margin must be {rule} for a {sigmoid} sigmoid, not {value_at_margin}")
    if not outside:
        return 1.0
    distance = maximum(*outside) if len(outside) == 2 else outside[0]
    if fixed:
        return select(inside, 1.0, _SIGMOIDS[sigmoid](distance / margin, value_at_margin))
    wide = margin > 0.0
    falling = _SIGMOIDS[sigmoid](distance / select(wide, margin, 1.0), value_at_margin)
    return select(inside, 1.0, select(wide, falling, 0.0))
