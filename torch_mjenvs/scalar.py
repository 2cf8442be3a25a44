"""The vocabulary of tasks: functions of a world's scalars, in addition to `+ - * / %`, `abs` and `< <= > >=`.

A scalar is one number in each world. In a kernel it is known only when that runs, so Python's own `if`, `max` and
`math.sin` cannot be used on it; these can. `select(mask, a, b)` takes the place of `a if mask else b`, and `(low < x) &
(x < high)`, `|` and `~` that of `and`, `or` and `not`. So do `logical_and`, `logical_or` and `logical_not`, which also
take Python's own True and False.

`when_any(mask, body, carry)` is `body(carry)` in the worlds of the mask, and costs nothing where no world needs it.
`repeat` and `while_any` are loops whose code is made once. `Random` is what `rng` is: `uniform(low, high)`, `normal()`,
`exponential(scale)`, `integers(low, high)`. `NumberTable(array)` is what a world of plain numbers has in its `tables`.
"""

from .compiler.arrays import NumberTable
from .compiler.control import repeat, when_any, while_any
from .compiler.random import Random
from .compiler.scalar import (
    Mask,
    Scalar,
    absolute,
    acos,
    asin,
    atan2,
    ceil,
    clip,
    cos,
    exp,
    expm1,
    floor,
    fmod,
    log,
    log1p,
    logical_and,
    logical_not,
    logical_or,
    maximum,
    minimum,
    power,
    round,
    select,
    sign,
    sin,
    sqrt,
    tanh,
)

__all__ = [
    "Mask",
    "NumberTable",
    "Random",
    "Scalar",
    "absolute",
    "acos",
    "asin",
    "atan2",
    "ceil",
    "clip",
    "cos",
    "exp",
    "expm1",
    "floor",
    "fmod",
    "log",
    "log1p",
    "logical_and",
    "logical_not",
    "logical_or",
    "maximum",
    "minimum",
    "power",
    "repeat",
    "round",
    "select",
    "sign",
    "sin",
    "sqrt",
    "tanh",
    "when_any",
    "while_any",
]
