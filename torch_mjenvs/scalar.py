"""The vocabulary of tasks: what may be done with the scalars of a world, beside `+ - * /` and `< <= > >=`.

A scalar stands for one number in each world. In a kernel it is known only when that runs, so Python's own `if`, `max`
and `math.sin` cannot be used on it; these can. `select(mask, a, b)` takes the place of `a if mask else b`,
`logical_and`, `logical_or` and `logical_not` that of `and`, `or` and `not`.

`when_any(mask, body, carry)` is `body(carry)` in the worlds of the mask, and costs nothing where no world needs it.
`repeat` and `while_any` are loops whose code is made once. `Random` is what `rng` is: `uniform(low, high)`, `normal()`.
"""

from .compiler.control import repeat, when_any, while_any
from .compiler.random import Random
from .compiler.scalar import (
    Mask,
    Scalar,
    absolute,
    atan2,
    clip,
    cos,
    exp,
    log,
    logical_and,
    logical_not,
    logical_or,
    maximum,
    minimum,
    power,
    select,
    sin,
    sqrt,
)

__all__ = [
    "Mask",
    "Random",
    "Scalar",
    "absolute",
    "atan2",
    "clip",
    "cos",
    "exp",
    "log",
    "logical_and",
    "logical_not",
    "logical_or",
    "maximum",
    "minimum",
    "power",
    "repeat",
    "select",
    "sin",
    "sqrt",
    "when_any",
    "while_any",
]
