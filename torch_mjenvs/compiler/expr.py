"""Expression graph: what the tracer records while ordinary Python runs over `Expr`s.

An `Expr` is one value per world: a float ("f"), a truth value ("b") or a 32-bit integer ("i"). Constants stay plain
Python numbers, so that they fold away as soon as they meet: a structural zero is the float `0.0`, and `0.0 * x` is
`0.0` again. (This drops the NaN of `0 * inf`: the caller ends a world that is not finite.)

A `Region` is a straight piece of code: the kernel itself, the body of a loop, or a block that may be skipped. An
expression that equals an earlier one in the same region, or in one around it, is the same node.
"""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Callable, Iterator
from typing import Any, NoReturn, final

from .ops import OPS

PYTHON_TYPE = {float: "f", int: "i", bool: "b"}


@final
class Expr:
    """One node; the table `OPS` has the operations. `args` are `Expr`s and Python numbers; `attr` is anything else that
    the operation needs.
    """

    __slots__ = ("args", "attr", "op", "region", "type")

    def __init__(self, op: str, args: tuple[Any, ...], attr: Any, type_: str, region: Region):
        self.op, self.args, self.type, self.region = op, args, type_, region
        self.attr: Any = attr

    def __add__(self, other: Any) -> Expr | float:
        if self.type in "is":
            return node(self.type + "add", self, other)
        if type(other) is not Expr:
            if other == 0:
                return self
        elif other.op == "neg":
            return self - other.args[0]
        if self.op == "neg":
            return other - self.args[0]
        return node("add", self, other)

    def __radd__(self, other: Any) -> Expr | float:
        if self.type in "is":
            return node(self.type + "add", self, other)
        if other == 0:
            return self
        if self.op == "neg":
            return node("sub", other, self.args[0])
        return node("add", self, other)

    def __sub__(self, other: Any) -> Expr | float:
        if type(other) is not Expr:
            if other == 0:
                return self
        elif other is self:
            return 0.0
        elif other.op == "neg":
            return self + other.args[0]
        return node("sub", self, other)

    def __rsub__(self, other: Any) -> Expr | float:
        if other == 0:
            return -self
        if self.op == "neg":
            return self.args[0] + other
        return node("sub", other, self)

    def __mul__(self, other: Any) -> Expr | float:
        if type(other) is not Expr:
            if other == 0:
                return 0.0
            if other == 1:
                return self
            if other == -1:
                return -self
            if self.op == "neg":
                return node("mul", self.args[0], -other)
        elif other.op == "neg":
            return -(self * other.args[0])
        elif self.op == "neg":
            return -(self.args[0] * other)
        return node("mul", self, other)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Expr | float:
        if type(other) is not Expr:
            return self * (1.0 / other)
        return node("div", self, other)

    def __rtruediv__(self, other: Any) -> Expr | float:
        if other == 0:
            return 0.0
        return node("div", other, self)

    def __neg__(self) -> Expr | float:
        if self.op == "neg":
            return self.args[0]
        if self.op == "sub":
            return self.args[1] - self.args[0]
        return node("neg", self)

    def __pow__(self, n: float | Expr) -> Expr | float:
        if type(n) is not Expr and n == 2:
            return self * self
        raise TypeError("only x**2 is an operator; use power(x, p), or for a p of a world's own exp(p * log(x))")

    def __rpow__(self, x: float) -> Expr:
        raise TypeError("only x**2 is an operator; use exp(p * log(x)) for a power p of a world's own")

    def __abs__(self) -> Expr:
        return node("abs", self)

    def __round__(self) -> Expr:
        return node("rint", self)

    def __floor__(self) -> Expr | float:
        nearest = node("rint", self)
        return nearest - node("select", self < nearest, 1.0, 0.0)

    def __ceil__(self) -> Expr | float:
        nearest = node("rint", self)
        return nearest + node("select", nearest < self, 1.0, 0.0)

    def __mod__(self, other: Any) -> Expr | float:
        return _modulo(self, other)

    def __rmod__(self, other: Any) -> Expr | float:
        return _modulo(other, self)

    def __lt__(self, other: Any) -> Expr:
        return node("ilt" if self.type == "i" else "lt", self, other)

    def __gt__(self, other: Any) -> Expr:
        return node("ilt" if self.type == "i" else "lt", other, self)

    def __le__(self, other: Any) -> Expr:
        return node("le", self, other)

    def __ge__(self, other: Any) -> Expr:
        return node("le", other, self)

    def __and__(self, other: Any) -> Expr | bool:
        _check_masks(self, other)
        if type(other) is bool or other is self:
            return self if other else False
        return node("and", self, other)

    __rand__ = __and__

    def __or__(self, other: Any) -> Expr | bool:
        _check_masks(self, other)
        if type(other) is bool or other is self:
            return True if other is True else self
        return node("or", self, other)

    __ror__ = __or__

    def __xor__(self, other: Any) -> Expr | bool:
        _check_masks(self, other)
        if type(other) is bool:
            return ~self if other else self
        return False if other is self else node("bselect", self, ~other, other)

    __rxor__ = __xor__

    def __invert__(self) -> Expr:
        _check_masks(self)
        inner: Expr = self.args[0] if self.op == "not" else node("not", self)
        return inner

    def __eq__(self, other: object) -> bool:
        """Compare identities, so that nodes can be keys of dicts. A comparison of values raises TypeError: its result
        would nearly always be False.
        """
        if self is not other and (type(other) in PYTHON_TYPE or (type(other) is Expr and is_tracing())):
            raise TypeError(
                "a traced value cannot be compared by == or !=: ask for a range, as absolute(x - 3.0) < 1e-6"
            )
        return self is other

    def __ne__(self, other: object) -> bool:
        """Negate `==`. Raises TypeError for the same, and for `x != x`, the usual test for NaN."""
        if self is other and is_tracing():
            raise TypeError("a traced value is not compared with itself by !=: of NaN ~(absolute(x) < math.inf) holds")
        return not self == other

    __hash__ = object.__hash__

    def __bool__(self) -> NoReturn:
        _count_refused()
        raise TypeError(
            "a traced value has no truth value: use select, when_any or while_any for if and while, and &, | and ~ of "
            "masks for and, or and not: (low < x) & (x < high)"
        )

    def __float__(self) -> NoReturn:
        _count_refused()
        raise TypeError("a traced value is not a number: it is only known when the kernel runs")

    def __repr__(self) -> str:
        return f"<{self.op}:{self.type}>"


def refused_questions() -> int:
    """Return how often this thread asked for the value or truth of something traced, which raises TypeError.

    Whoever calls code that may catch such an error compares the number before and after.
    """
    return getattr(_local, "refused", 0)


def _count_refused() -> None:
    _local.refused = refused_questions() + 1


def _check_masks(*xs: Any) -> None:
    """Refuse `&`, `|`, `^` and `~` of anything but masks."""
    if not all(type(x) is bool or (type(x) is Expr and x.type == "b") for x in xs):
        raise TypeError("&, |, ^ and ~ are of masks: put comparisons in brackets, (x > 0) & (y < 1)")


def remainder(x: Any, y: Any) -> Expr:
    """Return the remainder of |x| / |y|, C's fmod without its sign. At least one of them is traced.

    It is exact while |x / y| is below 2**46 (float32) or 2**104 (float64). It is NaN beyond, and where C's is NaN.
    """
    a, b = abs(x), abs(y)
    quotient = node("div", a, b)
    # Both differences are exact: they are whole multiples of the last place of b, no more than the precision can hold.
    # A quotient so large may be off by its rounding; the second step takes off what that leaves.
    left = node("fma", -node("rint", quotient), b, a)
    left = node("fma", -math.floor(node("div", left, b)), b, left)
    left = node("select", left < 0.0, left + b, node("select", node("le", b, left), left - b, left))
    known = quotient < (2.0**46 if current().dtype == "float32" else 2.0**104)
    return node("select", node("lt", a, b), a, node("select", known, left, math.nan))


def _modulo(x: Any, y: Any) -> Expr | float:
    """Return Python's x % y, which has the sign of y. One of x, y is traced."""
    left = remainder(x, y)
    other_signs = (x < 0.0) ^ (y < 0.0)
    beyond: Expr | float = node("select", (left > 0.0) & other_signs, abs(y) - left, left)
    return choose(y < 0.0, -beyond, beyond)


def choose(mask: Expr | bool, a: Any, b: Any) -> Any:
    """Return a where the mask holds, b elsewhere: what `scalar.select` is of traced values and numbers."""
    return node("select", mask, a, b) if type(mask) is Expr else (a if mask else b)


class Region:
    """A straight piece of code and the expressions in it, in the order in which they were asked for."""

    __slots__ = ("mask", "nodes", "parent", "table")

    def __init__(self, parent: Region | None, mask: Any = True):
        self.parent = parent
        self.mask = mask  # an `Expr`, or True: worlds for which the code here counts
        self.nodes: list[Expr] = []
        self.table: dict[tuple[Any, ...], Any] = {}  # what was recorded here, by key


class Trace:
    """A kernel being recorded: the region under construction and the precision of its floats.

    derivatives: "forward" or "reverse" if derivatives will be asked for in that mode, so that what they need is kept.
    """

    def __init__(self, dtype: str, derivatives: str = ""):
        if dtype not in ("float32", "float64"):
            raise ValueError(f"dtype must be 'float32' or 'float64', not {dtype!r}")
        self.dtype, self.derivatives = dtype, derivatives
        self.top = self.region = Region(None)
        # For derivatives: by node, the elementary function that it is, with the arguments, and the equation that it
        # solves.
        self.elementary: dict[Expr, tuple[str, tuple[Any, ...]]] = {}
        self.solutions: dict[Expr, Any] = {}
        self.held: set[Expr] = set()  # what formulas take as constant
        self.beside: frozenset[Region] = frozenset()  # regions whose nodes are not found again: see `beside`
        self.unrolled = False  # whether a `repeat` is written out

    @contextlib.contextmanager
    def inside(self, region: Region) -> Iterator[Region]:
        """Record into this region while the block runs."""
        outer, self.region = self.region, region
        try:
            yield region
        finally:
            self.region = outer


_local = threading.local()


def current() -> Trace:
    """Return the trace under construction in this thread."""
    trace: Trace | None = getattr(_local, "trace", None)
    if trace is None:
        raise RuntimeError("no kernel is being traced here")
    return trace


def is_tracing() -> bool:
    """Return whether this thread is recording a kernel."""
    return getattr(_local, "trace", None) is not None


@contextlib.contextmanager
def tracing(dtype: str, derivatives: str = "") -> Iterator[Trace]:
    """Record everything done with expressions in this block."""
    if is_tracing():
        raise RuntimeError("a kernel is being traced already")
    _local.trace = Trace(dtype, derivatives)
    try:
        yield _local.trace
    finally:
        _local.trace.elementary.clear()
        _local.trace.solutions.clear()  # they hold what holds the trace
        _local.trace.held.clear()
        _local.trace = None


@contextlib.contextmanager
def beside(region: Region) -> Iterator[None]:
    """Record code that shares no value with the code around it, up to this region, while the block runs."""
    trace, inner = current(), []
    r: Region | None = trace.region
    while r is not None and r is not region:
        inner.append(r)
        r = r.parent
    before, trace.beside = trace.beside, frozenset(inner)
    try:
        yield
    finally:
        trace.beside = before


_COMMUTES = frozenset(name for name, op in OPS.items() if op.commutes)
_OF_NUMBERS = frozenset(name for name, op in OPS.items() if set(op.takes) == {"f"})


def node(op: str, *args: Any, attr: object = None, type_: str | None = None) -> Expr:
    """Return the node `op(*args)`: the one recorded before, if there is one, or a new one in the current region."""
    region: Region = _local.trace.region
    key = (op, attr, *args)
    beside = _local.trace.beside
    r: Region | None = region
    try:
        while r is not None:
            found = r.table.get(key)
            if found is not None and r not in beside:
                return found
            r = r.parent
    except TypeError:  # of what cannot be a key, such as a list
        for x in args:
            _check_number(x)
        raise
    if op in _OF_NUMBERS:
        for x in args:
            if type(x) is not float and (type(x) is not Expr or x.type == "b"):
                _check_number(x)
    made = Expr(op, args, attr, type_ or OPS[op].gives, region)
    region.nodes.append(made)
    if region in beside:
        return made
    region.table[key] = made
    if op in _COMMUTES:
        region.table[(op, attr, args[1], args[0])] = made
    return made


def _check_number(x: Any) -> None:
    """Raise TypeError for anything that is not a number now, so that the traceback names the line that passed it."""
    if type(x) is Expr and x.type == "b":
        raise TypeError("a mask is not a number: select(mask, 1.0, 0.0) makes it one")
    if isinstance(x, list):
        raise TypeError("a list is not a number: torch_mjenvs.vectors has add, sub, scale, dot and norm for lists")
    if type(x) is not Expr and not isinstance(x, int | float):
        raise TypeError(
            f"a {type(x).__name__} is not part of a kernel: take Python's numbers, as float(x) or x.tolist()"
        )


def once(key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
    """Return `make()`, or what was made before by the same key, in the current region or in one around it.

    It is for values that `node` does not find again, since they have loops of their own.
    """
    if not is_tracing():
        return make()
    r: Region | None = _local.trace.region
    while r is not None:
        if key in r.table:
            return r.table[key]
        r = r.parent
    made = _local.trace.region.table[key] = make()
    return made


def fresh(op: str, *args: Any, attr: object = None, type_: str | None = None) -> Expr:
    """Make a node that is equal to no other: a loop's variable, a region op or one of its results."""
    region = _local.trace.region
    made = Expr(op, args, attr, type_ or OPS[op].gives, region)
    region.nodes.append(made)
    return made


def type_of(x: object) -> str:
    """Return the type of a node or Python number as a letter: "f", "b" or "i"; nodes may have others of `OPS`."""
    if type(x) is Expr:
        return x.type
    if type(x) not in PYTHON_TYPE:
        raise TypeError(f"not a scalar of a kernel: {x!r} of type {type(x).__name__}")
    return PYTHON_TYPE[type(x)]
