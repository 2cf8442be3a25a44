"""The rules of derivatives: the tangent of each operation and elementary function, from those of its arguments."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

from . import math as elementary
from .expr import Expr, node
from .scalar import select

# By column; values are scalars that are not always 0.
Tangent = dict[Hashable, Any]
NONE: Tangent = {}

# Operations whose derivative is 0 wherever there is one: what they give is constant piece by piece.
STEPS = frozenset(("rint", "load", "lookup", "fetch", "i2f", "u2f", "spread", "pow2"))


def without_zeros(tangent: Tangent) -> Tangent:
    """Return a tangent without the columns in which it is always 0."""
    return {column: x for column, x in tangent.items() if type(x) is Expr or x != 0}


# Rules. e is the node; then come its arguments, then the arguments' tangents.


def _scaled(t: Tangent, by: Any) -> Tangent:
    return {column: x * by for column, x in t.items()}


def _sum(*tangents: Tangent) -> Tangent:
    out = dict(tangents[0])
    for t in tangents[1:]:
        for column, x in t.items():
            out[column] = out[column] + x if column in out else x
    return out


def _difference(a: Tangent, b: Tangent) -> Tangent:
    out = dict(a)
    for column, x in b.items():
        out[column] = out[column] - x if column in out else -x
    return out


def _chosen(mask: Any, a: Tangent, b: Tangent) -> Tangent:
    columns = dict.fromkeys((*a, *b))
    return {column: select(mask, a.get(column, 0.0), b.get(column, 0.0)) for column in columns}


def _div(e: Expr, a: Any, b: Any, ta: Tangent, tb: Tangent) -> Tangent:
    if not tb:
        return {column: x / b for column, x in ta.items()} if type(b) is not Expr else _scaled(ta, 1.0 / b)
    return _scaled(_difference(ta, _scaled(tb, e)), 1.0 / b)


def _sqrt(e: Any, x: Any, t: Tangent) -> Tangent:
    if not t:
        return NONE
    at_0 = e <= 0.0  # the derivative there is 0, not infinite: no NaN if a branch not taken uses the root
    return _scaled(t, select(at_0, 0.0, 0.5 / node("select", at_0, 1.0, e)))


def _abs(e: Expr, x: Any, t: Tangent) -> Tangent:
    """At 0 the derivative is the mean of both sides, as from centred differences: at rest all speeds are 0."""
    return _scaled(t, select(x < 0.0, -1.0, select(x > 0.0, 1.0, 0.0))) if t else NONE


def _min(e: Expr, a: Any, b: Any, ta: Tangent, tb: Tangent) -> Tangent:
    if not ta and not tb:
        return NONE
    return _chosen(node("le" if type(b) is not Expr else "lt", a, b), ta, tb)


def _max(e: Expr, a: Any, b: Any, ta: Tangent, tb: Tangent) -> Tangent:
    if not ta and not tb:
        return NONE
    return _chosen(node("le" if type(a) is not Expr else "lt", a, b), tb, ta)


RULES: dict[str, Callable[..., Tangent]] = {
    "add": lambda e, a, b, ta, tb: _sum(ta, tb),
    "sub": lambda e, a, b, ta, tb: _difference(ta, tb),
    "neg": lambda e, a, ta: {column: -x for column, x in ta.items()},
    "rounded": lambda e, a, ta: ta,
    "mul": lambda e, a, b, ta, tb: _sum(_scaled(ta, b), _scaled(tb, a)),
    "fma": lambda e, a, b, c, ta, tb, tc: _sum(_scaled(ta, b), _scaled(tb, a), tc),
    "div": _div,
    "sqrt": _sqrt,
    "abs": _abs,
    "min": _min,
    "max": _max,
    "select": lambda e, mask, a, b, tm, ta, tb: _chosen(mask, ta, tb),
}


def tangent_of(name: str, e: Expr, args: Sequence[Any], tangents: Sequence[Tangent]) -> Tangent:
    """Return the tangent of e, which is the elementary function `name` of these arguments."""
    if not any(tangents):
        return NONE
    return without_zeros(ELEMENTARY[name](e, *args, *tangents))


def _atan2(e: Expr, y: Any, x: Any, ty: Tangent, tx: Tangent) -> Tangent:
    square = y * y + x * x
    nowhere = square <= 0.0  # the origin, where every direction is as good
    inverse = select(nowhere, 0.0, 1.0 / select(nowhere, 1.0, square))
    return _scaled(_difference(_scaled(ty, x), _scaled(tx, y)), inverse)


ELEMENTARY: dict[str, Callable[..., Tangent]] = {
    "sin": lambda e, x, t: _scaled(t, elementary.cos(x)),
    "cos": lambda e, x, t: _scaled(t, -elementary.sin(x)),
    "exp": lambda e, x, t: _scaled(t, e),
    "expm1": lambda e, x, t: _scaled(t, e + 1.0),
    "tanh": lambda e, x, t: _scaled(t, 1.0 - e * e),
    "log": lambda e, x, t: _scaled(t, 1.0 / x),
    "log_of_normal": lambda e, x, t: _scaled(t, 1.0 / x),
    "log1p": lambda e, x, t: _scaled(t, 1.0 / (1.0 + x)),
    "atan2": _atan2,
}
