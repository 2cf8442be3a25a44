"""Elementary functions of traced values, as polynomials over the primitive nodes: the same bits on every target.

There is no table, no branch and no call of a library, and every fused multiply-add is asked for by name, so that what
is computed does not depend on the expressions around it. Coefficients are relative minimax fits (Remez), found in
order of power, each rounded to the precision before the next ones are fitted (plain rounding where that gains
nothing). In a comment "rel 4.6e-9" is the error of the rounded polynomial relative to the function, by itself.

The stated bounds are in units in the last place (ulp) of the result in the kernel's precision.
"""

from __future__ import annotations

import functools
import math as _m
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar

from .expr import Expr, choose, current, node, remainder

# Each table: float32, float64. pi / 2 and log 2 are each a rounded number and what it lacks.
_HALF_PI = {
    "float32": (1.5707963705062866, -4.371138828673793e-08),
    "float64": (1.5707963267948966, 6.123233995736766e-17),
}
_LOG_2 = {
    "float32": (0.6931471824645996, -1.9046542121259336e-09),
    "float64": (0.6931471805599453, 2.3190468138462996e-17),
}
_TINY = {"float32": 2.0**-126, "float64": 2.0**-1022}  # the smallest normal number
# Beyond this, rounding x * 2 / pi in float32 would lead out of the polynomials' interval.
_TURNS_LIMIT = 1e5

# sin r = r + r z p(z), z = r^2: degree 7 on |r| <= 0.8, rel 4.6e-9; degree 13 on |r| <= 0.7855, rel 3.8e-18
_SIN = {
    "float32": (-1.6666654e-01, 8.332095e-03, -1.9505528e-04),
    "float64": (
        -0.1666666666666663, 0.008333333333321842, -0.00019841269829360783, 2.755731353958731e-06,
        -2.505073457554665e-08, 1.5895443421623046e-10,
    ),
}  # fmt: skip
# cos r = 1 - z / 2 + z^2 p(z): degree 8 on |r| <= 0.8, rel 1.5e-10; degree 14 on |r| <= 0.7855, rel 5.8e-20
_COS = {
    "float32": (4.166664e-02, -1.388713e-03, 2.4412091e-05),
    "float64": (
        0.041666666666666595, -0.0013888888888873338, 2.4801587288997404e-05, -2.755731421524163e-07,
        2.0875705100815605e-09, -1.135873161353585e-11,
    ),
}  # fmt: skip
# exp r = 1 + r + r^2 p(r) on -0.3467 <= r <= 0.6932: degree 7, rel 3.8e-9; degree 12, rel 2.2e-17
_EXP = {
    "float32": (4.9999994e-01, 1.66667e-01, 4.1668065e-02, 8.326787e-03, 1.3838876e-03, 2.3249982e-04),
    "float64": (
        0.500000000000001, 0.16666666666665794, 0.04166666666658334, 0.008333333333811623, 0.0013888888905428788,
        0.00019841268886286264, 2.4801579395588705e-05, 2.755812433997e-06, 2.7552273656993e-07,
        2.4829285278440252e-08, 2.4640469033377997e-09,
    ),
}  # fmt: skip
# 2 atanh s = 2 s + s z p(z), z = s^2, |s| <= 0.1716: degree 7, rel 8.2e-10; degree 15, rel 1.3e-18
_LOG = {
    "float32": (6.6666776e-01, 3.997758e-01, 2.9870972e-01),
    "float64": (
        0.6666666666666734, 0.3999999999941653, 0.28571428742071575, 0.22222198599008666, 0.18183563235509054,
        0.1531407435776222, 0.14795729851092182,
    ),
}  # fmt: skip
# atan q = q + q z p(z), z = q^2, |q| <= 1: degree 19, rel 2.9e-9; degree 41, rel 1.2e-17
_ATAN = {
    "float32": (
        -3.33333e-01, 1.999853e-01, -1.4264016e-01, 1.09508805e-01, -8.399298e-02, 5.7880495e-02, -3.1094467e-02,
        1.0865958e-02, -1.7817988e-03,
    ),
    "float64": (
        -0.3333333333333307, 0.19999999999951748, -0.1428571428258794, 0.11111111007335982, -0.09090907007662982,
        0.0769227988701075, -0.06666404405395991, 0.0588052968860871, -0.05253526199876811, 0.04722346245012907,
        -0.04219237709746896, 0.03664303492775673, -0.02990554157458332, 0.02198681635042377, -0.013902323288212318,
        0.007197698556565972, -0.0028855097969592487, 0.0008315232002801251, -0.0001522030427939371,
        1.3229171806502632e-05,
    ),
}  # fmt: skip

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def _elementary(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """Let the trace record which function a result comes from: its derivative must not be that of the polynomials."""

    @functools.wraps(function)
    def noting(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
        result = function(*args, **kwargs)
        if isinstance(result, Expr):
            current().elementary[result] = function.__name__, args
        return result

    return noting


@_elementary
def sin(x: Expr) -> Expr:
    """Return the sine of x. With `cos` of the same x it costs little more than alone.

    float32: 1.6 ulp + 2e-15 |x| for |x| <= 1e5, and sin(+-1e5) beyond. float64: 1.6 ulp for |x| <= 1e10.
    Zero has no sign here; infinity gives NaN in float64.
    """
    s, c, a, b = _reduced(x)
    return _fma(a, s, b * c)


@_elementary
def cos(x: Expr) -> Expr:
    """Return the cosine of x, within the bounds of `sin`."""
    s, c, a, b = _reduced(x)
    return _fma(a, c, -(b * s))


def _reduced(x: Expr) -> tuple[Expr, Expr | float, Expr | float, Expr]:
    """Return sin r, cos r, cos(n pi / 2) and sin(n pi / 2) for x = r + n pi / 2 with |r| <= pi / 4.

    The last two are 0, 1 or -1, so that a product with them is exact: on vectors of any width that costs less than the
    masks that would swap and negate.
    """
    dtype = current().dtype
    if dtype == "float32":
        x = node("max", node("min", _TURNS_LIMIT, x), -_TURNS_LIMIT)  # in this order a NaN stays one
    high, low = _HALF_PI[dtype]
    n = node("rint", x * (2.0 / _m.pi))
    # The first difference is exact: a multiple of ulp(1/2) less than 1.
    r = _fma(n, -low, _fma(n, -high, x))
    z = r * r
    s = _fma(r * z, _horner(_SIN[dtype], z), r)
    c = _horner((1.0, -0.5, *_COS[dtype]), z)
    # n mod 4 in -2..2, either end for 2; the turns come from x, not n, to be ready as early as n.
    quarter = _fma(node("rint", x * (0.5 / _m.pi)), -4.0, n)
    a = 1.0 - node("abs", quarter)
    return s, c, a, _fma(quarter, a, quarter)


@_elementary
def exp(x: Expr) -> Expr | float:
    """Return e to the power of x: 1.5 ulp where that is normal; below, the least normal number; above, infinity."""
    p, n = _exp_parts(x)
    y = p + 1.0
    return y * node("pow2", node("f2i", n))


@_elementary
def expm1(x: Expr) -> Expr:
    """Return e to the power of x, less 1: 3 ulp; infinity above the range."""
    p, n = _exp_parts(x)
    power = node("pow2", node("f2i", n))
    return _fma(p, power, power - 1.0)


@_elementary
def tanh(x: Expr) -> Expr:
    """Return the hyperbolic tangent: 4 ulp."""
    t = expm1(node("min", 50.0, 2.0 * node("abs", x)))  # in this order a NaN stays one; from 2 * 19.1 on it is 1
    y = t / (t + 2.0)
    return node("select", x < 0.0, -y, y)


def _exp_parts(x: Expr) -> tuple[Expr, Expr]:
    """Return p and n, where e to the power of x is (1 + p) 2**n."""
    dtype = current().dtype
    high, low = _LOG_2[dtype]
    most, least = (127.0, -87.33654) if dtype == "float32" else (1023.0, -708.3964185322641)
    # 2**n must be normal. For the last half power of two below infinity that leaves r up to log 2: the fit covers it.
    # Above, every term is positive and the product overflows by itself.
    x = node("max", x, least)
    n = node("min", node("rint", x * (1.0 / _m.log(2.0))), most)
    r = _fma(n, -low, _fma(n, -high, x))
    return _fma(r * r, _horner(_EXP[dtype], r), r), n


@_elementary
def log(x: Expr) -> Expr:
    """Return the natural logarithm: 1.5 ulp; NaN below 0, -infinity at 0 and for subnormal x."""
    tiny = _TINY[current().dtype]
    y = node("select", x < _m.inf, log_of_normal(x), x)
    return node("select", node("le", tiny, x), y, node("select", x > -tiny, -_m.inf, _m.nan))


@_elementary
def log_of_normal(x: Expr) -> Expr:
    """Return the natural logarithm of a positive normal x: 1.5 ulp; of anything else, some number or NaN."""
    dtype = current().dtype
    high, low = _LOG_2[dtype]
    m = node("mantissa", x)
    large = m > _m.sqrt(2.0)
    k = node("i2f", node("exponent", x)) + node("select", large, 1.0, 0.0)
    f = node("select", large, 0.5 * m, m) - 1.0  # exact; x = 2**k (1 + f), |log(1 + f)| <= log(2) / 2
    s = f / (f + 2.0)  # log(1 + f) = 2 atanh(s), and 2 s = f - s f: so that f, which is exact, leads the sum
    z = s * s
    correction = s * _fma(-z, _horner(_LOG[dtype], z), f)
    return _fma(k, high, f - _fma(k, -low, correction))


@_elementary
def log1p(x: Expr) -> Expr:
    """Return the natural logarithm of 1 + x: 3 ulp; -infinity for x = -1, NaN below."""
    u = node("add", x, 1.0)
    rounded = u - 1.0
    lost = (1.0 - (u - rounded)) + (x - rounded)  # 1 + x = u + lost, exactly
    y = log_of_normal(u) + lost / u
    y = node("select", x < _m.inf, y, x)
    return node("select", x > -1.0, y, node("select", x < -1.0, _m.nan, x - _m.inf))


def asin(x: Expr) -> Expr | float:
    """Return the angle in [-pi/2, pi/2] whose sine is x: 4 ulp; NaN where |x| > 1."""
    return atan2(x, node("sqrt", (1.0 - x) * (1.0 + x)))


def acos(x: Expr) -> Expr | float:
    """Return the angle in [0, pi] whose cosine is x: 4 ulp; NaN where |x| > 1."""
    return atan2(node("sqrt", (1.0 - x) * (1.0 + x)), x)


def fmod(x: Any, y: Any) -> Expr | float:
    """Return C's fmod, with the sign of x; one of x, y is traced. `expr.remainder` says how far it is exact."""
    left = remainder(x, y)
    return choose(x < 0.0, -left, left)


@_elementary
def atan2(y: Any, x: Any) -> Expr | float:
    """Return the angle of a finite point (x, y) in [-pi, pi]: 2 ulp; atan2(0, 0) = 0; zeros' signs do not count."""
    dtype = current().dtype
    high, low = _HALF_PI[dtype]
    steep = node("lt", _abs(x), _abs(y))
    over, under = choose(steep, -x, y), choose(steep, y, x)  # rotated by a quarter where steep
    q = over / node("select", node("le", _abs(x) + _abs(y), 0.0), 1.0, under)
    z = q * q
    a = _fma(q * z, _horner(_ATAN[dtype], z), q)
    axis = choose(steep, high, choose(x < 0, 2.0 * high, 0.0))
    axis = choose(y < 0, -axis, axis)
    return axis + _fma(axis, low / high, a)


def _fma(a: Any, b: Any, c: Any) -> Expr:
    return node("fma", a, b, c)


def _horner(coefficients: Sequence[float], x: Expr | float) -> Expr | float:
    """Return the sum of coefficients[k] * x**k."""
    total: Expr | float = coefficients[-1]
    for c in reversed(coefficients[:-1]):
        total = _fma(total, x, c)
    return total


def _abs(x: Expr | float) -> Expr | float:
    return node("abs", x) if isinstance(x, Expr) else abs(x)
