"""The scalar vocabulary: what physics and tasks are written in.

In addition to `+ - * / %`, `abs` and `< <= > >=`, and `& | ^ ~` of masks, these functions are all that is done with
scalars. A scalar is one of

- a Python `float` (a mask: `bool`): one world, in plain Python, or a constant of the model;
- a `torch.Tensor` of shape (B,) (a mask: bool): B worlds, differentiable, on any torch device: the reference;
- an `Expr`: a value of a kernel being traced.

Constants can be mixed with the other two. Each function has the same meaning in all three uses.

A type checker tells a Python `float` from a `bool`, so a number is refused as a mask. It cannot tell a tensor or an
`Expr` that is a mask from one that is a number, as both are of one class.
"""

from __future__ import annotations

import math as _m
from typing import Any, TypeAlias, TypeVar

import numpy as np
import torch

from . import math as _traced
from .expr import Expr, current, is_tracing, node, type_of

Scalar: TypeAlias = float | torch.Tensor | Expr  # a number; an Expr of a kernel that is being recorded
Mask: TypeAlias = bool | torch.Tensor | Expr  # whether something holds
_Either = TypeVar("_Either", Mask, Scalar)
KNOWN = (bool, np.bool_)  # types of masks of one world; the second is what comparing numbers of an mjData gives


def _kind(*xs: Scalar) -> type | None:
    for x in xs:
        if type(x) is Expr:
            return Expr
        if isinstance(x, torch.Tensor):
            return torch.Tensor
    return None


def _like(x: Scalar, other: torch.Tensor) -> torch.Tensor:
    return x if isinstance(x, torch.Tensor) else torch.as_tensor(x, dtype=other.dtype, device=other.device)


def _tensors(*xs: Scalar) -> list[torch.Tensor]:
    one = next(x for x in xs if isinstance(x, torch.Tensor))
    return [_like(x, one) for x in xs]


def sqrt(x: Scalar) -> Scalar:
    """Return the square root of x; NaN where x is negative."""
    if type(x) is Expr:
        return node("sqrt", x)
    if isinstance(x, torch.Tensor):
        # The derivative at 0 is 0, not infinite, so that it makes no NaN if the root is used in a branch that is not
        # taken.
        return torch.where(x == 0, 0.0, torch.sqrt(torch.where(x == 0, 1.0, x)))
    return _m.sqrt(x) if x >= 0 else _m.nan


def absolute(x: Scalar) -> Scalar:
    """Return the absolute value of x."""
    if type(x) is Expr:
        return node("abs", x)
    return torch.abs(x) if isinstance(x, torch.Tensor) else abs(x)


def sin(x: Scalar) -> Scalar:
    """Return the sine of x, in radians."""
    if type(x) is Expr:
        return _traced.sin(x)
    return torch.sin(x) if isinstance(x, torch.Tensor) else _m.sin(x)


def cos(x: Scalar) -> Scalar:
    """Return the cosine of x, in radians."""
    if type(x) is Expr:
        return _traced.cos(x)
    return torch.cos(x) if isinstance(x, torch.Tensor) else _m.cos(x)


def exp(x: Scalar) -> Scalar:
    """Return e to the power of x."""
    if type(x) is Expr:
        return _traced.exp(x)
    return torch.exp(x) if isinstance(x, torch.Tensor) else _m.exp(x)


def log(x: Scalar) -> Scalar:
    """Return the natural logarithm of x; -infinity at 0, NaN below. In kernels a subnormal x counts as 0."""
    if type(x) is Expr:
        return _traced.log(x)
    if isinstance(x, torch.Tensor):
        return torch.log(x)
    return _m.log(x) if x > 0 else -_m.inf if x == 0 else _m.nan


def log_of_normal(x: Scalar) -> Scalar:
    """Return the natural logarithm of an x known to be positive and normal, a little faster than `log` does."""
    return _traced.log_of_normal(x) if type(x) is Expr else log(x)


def split_exponent(x: Scalar) -> tuple[Scalar, Scalar]:
    """Return m, from 1 to below 2, and a whole number k with x = m 2**k, for a positive normal x."""
    if type(x) is Expr:
        return node("mantissa", x), node("i2f", node("exponent", x))
    if isinstance(x, torch.Tensor):
        m, k = torch.frexp(x)
        return 2.0 * m, (k - 1).to(x.dtype)
    half, e = _m.frexp(x)
    return 2.0 * half, float(e - 1)


def expm1(x: Scalar) -> Scalar:
    """Return e to the power of x, minus 1, accurate to rounding also near 0."""
    if type(x) is Expr:
        return _traced.expm1(x)
    if isinstance(x, torch.Tensor):
        return torch.expm1(x)
    return _m.expm1(x) if x < 709.0 else _m.exp(x) if x < 709.78 else x * _m.inf


def log1p(x: Scalar) -> Scalar:
    """Return the natural logarithm of 1 + x, accurate to rounding also near 0; -infinity at -1, NaN below."""
    if type(x) is Expr:
        return _traced.log1p(x)
    if isinstance(x, torch.Tensor):
        return torch.log1p(x)
    return _m.log1p(x) if x > -1 else -_m.inf if x == -1 else _m.nan


def tanh(x: Scalar) -> Scalar:
    """Return the hyperbolic tangent of x."""
    if type(x) is Expr:
        return _traced.tanh(x)
    return torch.tanh(x) if isinstance(x, torch.Tensor) else _m.tanh(x)


def asin(x: Scalar) -> Scalar:
    """Return the angle in [-pi/2, pi/2] whose sine is x; NaN where x is not in [-1, 1]."""
    if type(x) is Expr:
        return _traced.asin(x)
    if isinstance(x, torch.Tensor):
        return torch.asin(x)
    return _m.asin(x) if -1 <= x <= 1 else _m.nan


def acos(x: Scalar) -> Scalar:
    """Return the angle in [0, pi] whose cosine is x; NaN where x is not in [-1, 1]."""
    if type(x) is Expr:
        return _traced.acos(x)
    if isinstance(x, torch.Tensor):
        return torch.acos(x)
    return _m.acos(x) if -1 <= x <= 1 else _m.nan


def atan2(y: Scalar, x: Scalar) -> Scalar:
    """Return the angle of the point (x, y) from the x axis, radians in [-pi, pi]."""
    kind = _kind(y, x)
    if kind is Expr:
        return _traced.atan2(y, x)
    return torch.atan2(*_tensors(y, x)) if kind else _m.atan2(y, x)


def power(x: Scalar, p: float) -> Scalar:
    """Raise x to a constant power p; NaN for a negative x, unless p is whole and at most 16.

    Whole and half powers are products and square roots. Raises TypeError for a power that differs from world to world.
    """
    given: object = p  # whatever its type says
    if isinstance(given, (Expr, torch.Tensor)):
        raise TypeError("power(x, p) takes a constant p, which is the same in all worlds: else write exp(p * log(x))")
    if p == 0:
        return 1.0
    if p < 0:
        return 1.0 / power(x, -p)
    if p == int(p) and p <= 16:
        half = power(x, p // 2)
        return half * half * x if int(p) % 2 and p > 1 else (x if p == 1 else half * half)
    if p == 0.5:
        return sqrt(x)
    if type(x) is not Expr:
        return x**p if isinstance(x, torch.Tensor) or x >= 0 else _m.nan
    tiny = 1e-37 if current().dtype == "float32" else 1e-300  # below it the power is 0, and so is its derivative
    return select(x >= tiny, exp(p * log_of_normal(maximum(x, tiny))), select(x >= 0.0, 0.0, _m.nan))


def minimum(a: Scalar, b: Scalar) -> Scalar:
    """Return the smaller of a and b; b where either is NaN."""
    if type(a) is type(b) is float:
        return a if a < b else b
    kind = _kind(a, b)
    if kind is Expr:
        return a if a is b else node("min", a, b)
    if kind is None:
        return a if a < b else b
    a, b = _tensors(a, b)
    return torch.where(a < b, a, b)


def maximum(a: Scalar, b: Scalar) -> Scalar:
    """Return the larger of a and b; a where either is NaN."""
    if type(a) is type(b) is float:
        return b if a < b else a
    kind = _kind(a, b)
    if kind is Expr:
        return a if a is b else node("max", a, b)
    if kind is None:
        return b if a < b else a
    a, b = _tensors(a, b)
    return torch.where(a < b, b, a)


def clip(x: Scalar, low: Scalar, high: Scalar) -> Scalar:
    """Clip x to [low, high]; NaN stays NaN. An infinite bound costs nothing. Raises ValueError if low is above high."""
    if isinstance(low, float) and isinstance(high, float) and low > high:
        raise ValueError(f"clip(x, low, high) with low above high: {low} and {high}")
    if not isinstance(high, float) or high < _m.inf:
        x = minimum(high, x)
    return maximum(x, low) if not isinstance(low, float) or low > -_m.inf else x


def floor(x: Scalar) -> Scalar:
    """Return the largest whole number not above x, as a float; x itself where it is not finite."""
    if type(x) is Expr:
        return x.__floor__()
    if isinstance(x, torch.Tensor):
        return torch.floor(x)
    return float(_m.floor(x)) if _m.isfinite(x) else x


def ceil(x: Scalar) -> Scalar:
    """Return the smallest whole number not below x, as a float; x itself where it is not finite."""
    if type(x) is Expr:
        return x.__ceil__()
    if isinstance(x, torch.Tensor):
        return torch.ceil(x)
    return float(_m.ceil(x)) if _m.isfinite(x) else x


def round(x: Scalar) -> Scalar:
    """Return the whole number nearest to x, as a float, halves to even; x itself where it is not finite."""
    if type(x) is Expr:
        return x.__round__()
    if isinstance(x, torch.Tensor):
        return torch.round(x)
    return float(x.__round__()) if _m.isfinite(x) else x


def fmod(x: Scalar, y: Scalar) -> Scalar:
    """Return the remainder of x / y with the sign of x, like C's fmod; exact.

    `x % y` has the sign of y, as in Python. NaN where y is 0 or x is infinite, and, in kernels, where |x / y| is
    beyond 2**46 (float32) or 2**104 (float64).
    """
    kind = _kind(x, y)
    if kind is Expr:
        return _traced.fmod(x, y)
    if kind is not None:
        return torch.fmod(*_tensors(x, y))
    return _m.fmod(x, y) if y != 0 and not _m.isinf(x) else _m.nan


def quotient(a: Scalar, b: Scalar) -> Scalar:
    """a / b; NaN or infinite where b is 0, also for Python floats, whose a / b would raise ZeroDivisionError."""
    if type(b) is float and b == 0.0 and type(a) is float:
        return _m.copysign(_m.inf, a) * _m.copysign(1.0, b) if a < 0.0 or a > 0.0 else _m.nan
    return a / b


def rounded(x: Scalar) -> Scalar:
    """Return x; if it is a product, it is rounded by itself, and not fused with a sum."""
    return node("rounded", x) if type(x) is Expr and x.op in ("mul", "neg") else x


def opaque(x: Scalar) -> Scalar:
    """Return x as a value that is opaque to the compiler, like an array's entry: the code after it knows neither how x
    was computed nor, if x is a constant, its value.
    """
    return node("rounded", x) if is_tracing() else x


def sign(x: Scalar) -> Scalar:
    """Return 1 where x is positive, -1 where it is negative, 0 where it is 0; NaN where it is NaN."""
    return select(x > 0.0, 1.0, select(x < 0.0, -1.0, x))


def select(mask: Mask, a: _Either, b: _Either) -> _Either:
    """Take a where the mask is true, b elsewhere; the other one may be anything there, even NaN."""
    if isinstance(mask, KNOWN):
        return a if mask else b
    _checked(mask)
    if a is b or (type(a) is type(b) is float and a == b):
        return a
    if type(mask) is Expr:
        if type(a) is bool and type(b) is bool:
            return mask if a else logical_not(mask)
        kind = "f" if "f" in (type_of(a), type_of(b)) else type_of(a)
        return node({"f": "select", "i": "iselect", "b": "bselect"}[kind], mask, a, b)
    one = next((x for x in (a, b) if isinstance(x, torch.Tensor)), None)
    if one is not None:
        return torch.where(mask, _like(a, one), _like(b, one))
    numbers = [x for x in (a, b) if isinstance(x, (float, int))]
    dtype = _exact_dtype(*numbers) if float in map(type, numbers) else None
    x, y = (torch.as_tensor(x, dtype=dtype, device=mask.device) for x in (a, b))
    return torch.where(mask, x, y)


def _exact_dtype(*xs: float) -> torch.dtype:
    """Return the dtype for constants: torch's default, or float64 if that rounds them, as they may meet float64."""
    default = torch.get_default_dtype()
    return default if all(float(torch.tensor(x, dtype=default)) == x for x in xs) else torch.float64


def _checked(m: Any) -> Any:
    """Return the mask, Python's own in place of NumPy's. Raises TypeError for a number."""
    if type(m) is int or type(m) is float:
        text = "; ~ of Python's own True and False gives -2 and -1: use logical_not" if m in (-1, -2) else ""
        raise TypeError(f"a mask is True, False, a bool tensor or a comparison, not {m!r}{text}")
    if type(m) is Expr and m.type != "b":
        raise TypeError("a mask is a comparison, such as x > 0.5, not a traced number")
    return bool(m) if isinstance(m, np.bool_) else m


def logical_and(*masks: Mask) -> Mask:
    """Return a mask that is true where all of these masks are; True if there are none."""
    out: Mask = True
    for x in masks:
        m = _checked(x)
        if m is False or out is False:
            return False
        if m is True or m is out:
            continue
        out = m if out is True else (node("and", out, m) if type(out) is Expr or type(m) is Expr else out & m)
    return out


def logical_or(*masks: Mask) -> Mask:
    """Return a mask that is true where any of these masks is; False if there are none."""
    out: Mask = False
    for x in masks:
        m = _checked(x)
        if m is True or out is True:
            return True
        if m is False or m is out:
            continue
        out = m if out is False else (node("or", out, m) if type(out) is Expr or type(m) is Expr else out | m)
    return out


def logical_not(mask: Mask) -> Mask:
    """Return a mask that is true where this one is false."""
    if isinstance(mask, KNOWN):
        return not mask
    _checked(mask)
    if type(mask) is Expr:
        return mask.args[0] if mask.op == "not" else node("not", mask)
    return ~mask


def number(i: Any) -> Scalar:
    """Make a loop's counter, which all worlds share, a scalar to compute with."""
    return node("spread", i) if type(i) is Expr else float(i)
