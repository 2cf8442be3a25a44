"""Derivatives of a graph being recorded, in forward mode: each node's tangent is recorded beside the node itself.

A tangent is sparse: {column: derivative by that column's input}, without those that are always 0. It is recorded in the
region of its node. What a block carries out gets a carry for each entry of its tangent, under the same mask, so that a
block that no world needs is skipped with its derivatives; and so does what a `repeat` carries on. Elementary functions
have the derivatives that calculus gives them, not those of their polynomials. What a search found has the derivative
that the equation gives which it solves (see `implicit`); the search itself is never entered.

A kink has the derivative of the piece that the value is in; where it lies right on one, `min` and `max` with a constant
follow the value that is not constant. What is constant piece by piece (comparisons, roundings, integers) has derivative
0. Anything else has a rule here or is refused: no derivative is silently 0.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any

from . import math as elementary
from .expr import Expr, current, fresh, node
from .implicit import Solution
from .region_ops import IterArg, PuttingLoop, RegionOp, Repeat, When
from .scalar import Scalar, select

Tangent = dict[Hashable, Any]  # by column; the values are scalars that are not always 0
NONE: Tangent = {}


class NotDifferentiable(NotImplementedError):
    """Raised for a value whose derivative has no rule here; the message says what the value is."""


# Operations whose derivative is 0 wherever there is one: what they give is constant piece by piece.
STEPS = frozenset(("rint", "load", "lookup", "fetch", "i2f", "u2f", "spread", "pow2"))


class Tangents:
    """The tangents of nodes of the present trace, by seeds: what is known of the tangents of some of them.

    They are recorded where they are first asked for by `of`.
    """

    def __init__(self, seeds: Mapping[Expr, Tangent]):
        self._columns = list(dict.fromkeys(column for tangent in seeds.values() for column in tangent))
        self._known: dict[Expr, Tangent] = dict(seeds)
        self._equations: dict[Solution, tuple[list[Any], Callable[[Sequence[Scalar]], Sequence[Scalar]]]] = {}

    def of(self, values: Sequence[Any]) -> list[Tangent]:
        """Return the tangents of these values. Raises NotDifferentiable."""
        todo: list[tuple[Any, bool]] = [(x, False) for x in reversed(values)]
        while todo:
            e, ready = todo.pop()
            if type(e) is not Expr or e in self._known:
                continue
            if ready:
                with current().inside(e.region):
                    self._record(e)
            else:
                todo.append((e, True))
                todo += [(x, False) for x in reversed(self._operands(e))]
        return [self.known(x) for x in values]

    def known(self, x: Any) -> Tangent:
        """Return the tangent of a value that `of` has been asked for, or of a constant."""
        return self._known[x] if type(x) is Expr else NONE

    def _operands(self, e: Expr) -> Sequence[Any]:
        """Return the values whose tangents that of e is made of."""
        trace = current()
        if e.type != "f":
            return ()
        if e in trace.solutions:
            return self._solution_operands(trace.solutions[e])
        if e in trace.elementary:
            return trace.elementary[e][1]
        if e.op == "result":
            return self._result_operands(e)
        return e.args if e.op in RULES else ()

    def _solution_operands(self, solution: Solution) -> Sequence[Any]:
        return solution.given if self._in_loop(solution) else self._before_search(solution)

    def _result_operands(self, e: Expr) -> Sequence[Any]:
        arg: IterArg = e.attr
        return (arg.before, arg.after) if isinstance(arg.region_op.attr, When) else ()

    def _record(self, e: Expr) -> None:
        """Make the tangent of e, whose operands' are known."""
        trace = current()
        if e.type != "f":
            self._known[e] = NONE
        elif e in trace.solutions:
            self._solve(trace.solutions[e])
        elif e in trace.elementary:
            name, args = trace.elementary[e]
            self._known[e] = _elementary(name, e, args, [self.known(x) for x in args])
        elif e.op in RULES:
            self._known[e] = _without_zeros(RULES[e.op](e, *e.args, *(self.known(x) for x in e.args)))
        elif e.op == "result" and isinstance(e.attr.region_op.attr, When):
            self._known[e] = self._of_block(e.attr)
        elif e.op == "result" and isinstance(e.attr.region_op.attr, Repeat):
            self._of_repeat(e.attr)
        elif e.op in STEPS or not self._depends(e):
            self._known[e] = NONE
        else:
            raise NotDifferentiable(_described(e))

    # blocks and loops

    def _of_block(self, arg: IterArg) -> Tangent:
        """Return the tangent of what a block carries out: under the block's mask, that of what the block makes."""
        before, after = self.known(arg.before), self.known(arg.after)
        out: Tangent = {}
        for column in dict.fromkeys((*before, *after)):
            old, new = before.get(column, 0.0), after.get(column, 0.0)
            if old is new:
                out[column] = new
            else:
                out[column] = _carried(arg.region_op, IterArg(None if arg.before is None else old, new))
        return out

    def _of_repeat(self, wanted: IterArg) -> None:
        """Make the tangents of what a `repeat` carries: of this value, and of those that it is made of on the way.

        Which entries are always 0 is not known before the end of the loop: so the loop carries those of all columns.
        """
        region_op: Expr = wanted.region_op
        loop: Repeat = region_op.attr
        args = [arg for arg in self._carried_with(wanted) if arg.variable not in self._known]
        with current().inside(region_op.region):
            starts = self.of([arg.before for arg in args])
        made: list[tuple[IterArg, Hashable, IterArg]] = []
        for arg, start in zip(args, starts, strict=True):
            tangent: Tangent = {}
            for column in self._columns:
                carry = IterArg(start.get(column, 0.0))
                with current().inside(loop.body):
                    carry.variable = fresh("phi", attr=carry, type_="f")
                tangent[column] = carry.variable
                made.append((arg, column, carry))
            self._known[arg.variable] = tangent
        ends = dict(zip(args, self.of([arg.after for arg in args]), strict=True))
        for arg, column, carry in made:
            carry.after = ends[arg].get(column, 0.0)
            result = _carried(region_op, carry)
            self._known.setdefault(arg.result, {})[column] = result

    def _carried_with(self, wanted: IterArg) -> list[IterArg]:
        """List what a loop carries that this value of it is made of, itself the first."""
        loop: Repeat = wanted.region_op.attr
        variables = {arg.variable: arg for arg in loop.iter_args}
        found, todo = {wanted: None}, [wanted]
        while todo:
            seen: dict[Expr, None] = {}
            reach = [todo.pop().after]
            while reach:
                e = reach.pop()
                if type(e) is not Expr or e in seen or e in self._known:
                    continue
                seen[e] = None
                if e in variables:
                    if variables[e] not in found:
                        found[variables[e]] = None
                        todo.append(variables[e])
                elif e.op == "result" and isinstance(e.attr.region_op.attr, RegionOp) and not self._is_solution(e):
                    reach += [e.attr.before, e.attr.after]
                else:
                    reach += self._operands(e)
        return list(found)

    def _is_solution(self, e: Expr) -> bool:
        return e in current().solutions

    # solutions of equations

    def _in_loop(self, solution: Solution) -> bool:
        return solution.values[-1].region is not current().top

    def _equation(self, solution: Solution) -> tuple[list[Any], Callable[[Sequence[Scalar]], Sequence[Scalar]]]:
        """Return the residual of an equation at its solution, whose own tangent is none, and what solves with it."""
        if solution not in self._equations:
            with current().inside(solution.values[-1].region):
                residual, solve = solution.equation()
            self._equations[solution] = list(residual), solve
        return self._equations[solution]

    def _before_search(self, solution: Solution) -> list[Expr]:
        """List the nodes from which the residual follows and that do not depend on the solution themselves."""
        residual = self._equation(solution)[0]
        users: dict[Expr, list[Expr]] = {}
        todo: list[Any] = list(residual)
        seen: dict[Expr, None] = {x: None for x in solution.values if type(x) is Expr}
        while todo:
            e = todo.pop()
            if type(e) is not Expr or e in seen:
                continue
            seen[e] = None
            if e not in self._known:  # else it was computed before the search
                for x in _made_of(e):
                    if type(x) is Expr:
                        users.setdefault(x, []).append(e)
                        todo.append(x)
        after: dict[Expr, None] = {}
        todo = list(solution.values)
        while todo:
            e = todo.pop()
            if e not in after:
                after[e] = None
                todo += users.get(e, ())
        own = dict.fromkeys(solution.values)
        found = [x for e in after if e not in own for x in self._operands(e)]
        return list(dict.fromkeys(x for x in (*residual, *found) if type(x) is Expr and x not in after))

    def _solve(self, solution: Solution) -> None:
        """Make the tangents of a solution: minus the inverse of the equation's matrix, times the residual's tangents.

        In a loop that is done by the few values from which the equation follows, and then multiplied with their
        tangents: these have entries in all columns, while those of the equation are sparse.
        """
        residual, solve = self._equation(solution)
        if not self._in_loop(solution):
            held = Tangents({})
            held._known = self._known | {x: NONE for x in solution.values if type(x) is Expr}
            found = _solved(solve, held.of(residual))
        else:
            local = _Local(solution, self)
            by_given = _solved(solve, local.of(residual))
            found = [_chained(tangent, self) for tangent in by_given]
        for x, tangent in zip(solution.values, found, strict=True):
            if type(x) is Expr:
                self._known[x] = tangent

    # what has no rule

    def _is_leaf(self, e: Expr) -> bool:
        """True for a node that is a column of its own."""
        return False

    def _depends(self, e: Expr) -> bool:
        """True if e may depend on a seed at all."""
        seen: dict[Expr, None] = {}
        todo: list[Any] = [e]
        while todo:
            x = todo.pop()
            if type(x) is not Expr or x in seen:
                continue
            if self._is_leaf(x):
                return True
            if x in self._known:
                if self._known[x]:
                    return True
                continue
            seen[x] = None
            todo += _made_of(x)
        return False


class _Local(Tangents):
    """Tangents by the values that an equation is made of, each a column of its own.

    What the equation rests on besides, of a loop around or of the seeds, becomes a column, too.
    """

    def __init__(self, solution: Solution, around: Tangents):
        given = [x for x in dict.fromkeys(solution.given) if type(x) is Expr]
        seeds: dict[Expr, Tangent] = {x: {x: 1.0} for x in given}
        super().__init__(seeds | {x: NONE for x in solution.values if type(x) is Expr})
        self._around = around

    def _operands(self, e: Expr) -> Sequence[Any]:
        return () if self._is_leaf(e) else super()._operands(e)

    def _record(self, e: Expr) -> None:
        if self._is_leaf(e):
            self._known[e] = {e: 1.0} if e.type == "f" else NONE
        else:
            super()._record(e)

    def _is_leaf(self, e: Expr) -> bool:
        return e.op == "phi" or (e.op == "load" and bool(self._around._known.get(e)))


def _solved(solve: Callable[[Sequence[Scalar]], Sequence[Scalar]], residual: Sequence[Tangent]) -> list[Tangent]:
    """Return minus the solutions, column by column."""
    found: list[Tangent] = [{} for _ in residual]
    for column in dict.fromkeys(column for tangent in residual for column in tangent):
        for tangent, x in zip(found, solve([-tangent.get(column, 0.0) for tangent in residual]), strict=True):
            tangent[column] = x
    return [_without_zeros(tangent) for tangent in found]


def _chained(tangent: Tangent, inner: Tangents) -> Tangent:
    """Return a tangent by other nodes, by the columns of their own tangents."""
    out: Tangent = {}
    by: Any
    for by, x in tangent.items():
        (of_node,) = inner.of([by])
        for column, y in of_node.items():
            out[column] = out.get(column, 0.0) + x * y
    return _without_zeros(out)


def _carried(region_op: Expr, carry: IterArg) -> Expr:
    """Have a block or loop carry one value more, and return what the code after it sees of that."""
    carry.region_op = region_op
    with current().inside(region_op.region):
        carry.result = fresh("result", region_op, attr=carry, type_="f")
    region_op.attr.iter_args.append(carry)
    result: Expr = carry.result
    return result


def _made_of(x: Expr) -> Iterator[Any]:
    """List the numbers that a value is made of. A mask or an integer decides which piece it is in, and no more."""
    if x.type not in "fac":
        return
    if isinstance(x.attr, IterArg):
        yield from (x.attr.before, x.attr.after)
        return
    if isinstance(x.attr, RegionOp):
        puts = getattr(x.attr, "puts", ())
        for put in puts:
            yield put.value
            yield getattr(put, "otherwise", None)
        if isinstance(x.attr, PuttingLoop):
            yield from x.attr.left
        return
    yield from x.args


def _described(e: Expr) -> str:
    if e.op == "get":
        return "what loops put into arrays has no derivative yet"
    if e.op in ("result", "phi"):
        return "a search that runs until it has ended, or a loop over what is needed, has no derivative yet"
    return f"the operation {e.op!r} has no derivative"


def _without_zeros(tangent: Tangent) -> Tangent:
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
    at_0 = e <= 0.0  # there it is 0, not infinite: so it makes no NaN where the root goes into a branch not taken
    return _scaled(t, select(at_0, 0.0, 0.5 / node("select", at_0, 1.0, e)))


def _abs(e: Expr, x: Any, t: Tangent) -> Tangent:
    return {column: select(x < 0.0, -y, y) for column, y in t.items()}


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
    "mul": lambda e, a, b, ta, tb: _sum(_scaled(ta, b), _scaled(tb, a)),
    "fma": lambda e, a, b, c, ta, tb, tc: _sum(_scaled(ta, b), _scaled(tb, a), tc),
    "div": _div,
    "sqrt": _sqrt,
    "abs": _abs,
    "min": _min,
    "max": _max,
    "select": lambda e, mask, a, b, tm, ta, tb: _chosen(mask, ta, tb),
}


def _elementary(name: str, e: Expr, args: Sequence[Any], tangents: Sequence[Tangent]) -> Tangent:
    if not any(tangents):
        return NONE
    return _without_zeros(ELEMENTARY[name](e, *args, *tangents))


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
    "log1p": lambda e, x, t: _scaled(t, 1.0 / (1.0 + x)),
    "atan2": _atan2,
}
