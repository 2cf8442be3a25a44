"""Derivatives of a graph being recorded, in forward mode: each node's tangent is recorded beside the node itself.

A tangent is sparse: {column: derivative by that column's input}, without those that are always 0. It is recorded in the
region of its node. A value that a block carries out gets a carry for each entry of its tangent, under the same mask, so
that a block that no world needs is skipped with its derivatives. The same holds for what a `repeat` or a loop over an
active set carries on. For each column of its tangent, an array has another array, which holds the tangents of its
entries. Elementary functions have the derivatives that calculus gives them, not those of their polynomials. The result
of a search has the derivative that follows from the equation that it solves (see `implicit`); the search itself is
never entered.

A function with kinks has the derivative of the piece that the value is in; right on a kink, `min` and `max` with a
constant follow the value that is not constant, and |x| has the mean of both sides, 0. What is constant piece by piece
(comparisons, roundings, integers) has derivative 0. Anything else has a rule here or is refused: no derivative is
silently 0.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from .arrays import Array, Table
from .control import repeat
from .derivative_rules import NONE, RULES, STEPS, Tangent, tangent_of, without_zeros
from .expr import Expr, current, fresh, node
from .implicit import Solution
from .region_ops import ForEach, IterArg, Put, PuttingLoop, RegionOp, Repeat, Shape, When
from .scalar import Scalar

# One column of an array's tangent: for each of the array's own columns, where its tangents are, as another array (or a
# table, if they are constants) and the column there.
Places = dict[int, tuple[Any, int]]


class NotDifferentiable(NotImplementedError):
    """Raised for a value whose derivative has no rule here; the message says what the value is."""


LARGE = 5000  # columns times the square of the unknowns, from which equations are solved in a loop over the columns


class Tangents:
    """The tangents of nodes of the present trace, given seeds: the known tangents of some of them.

    They are recorded when they are first asked for by `of`.
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
        """Return the values whose tangents make up that of e."""
        trace = current()
        if e.type not in "fa" or e in trace.held:
            return ()
        if e in trace.solutions:
            return self._solution_operands(trace.solutions[e])
        if e in trace.elementary:
            return trace.elementary[e][1]
        if e.op == "result":
            return self._result_operands(e)
        return e.args if e.op in RULES or e.op == "array" else e.args[:1] if e.op == "get" else ()

    def _solution_operands(self, solution: Solution) -> Sequence[Any]:
        return solution.given if self._in_loop(solution) else self._before_search(solution)

    def _result_operands(self, e: Expr) -> Sequence[Any]:
        arg: IterArg = e.attr
        return (arg.before, arg.after) if isinstance(arg.region_op.attr, When) else ()

    def _record(self, e: Expr) -> None:
        """Record the tangent of e; those of its operands are known."""
        trace = current()
        if e.type == "a":
            self._of_array(e)
        elif e.type != "f" or e in trace.held:
            self._known[e] = NONE
        elif e in trace.solutions:
            self._solve(trace.solutions[e])
        elif e in trace.elementary:
            name, args = trace.elementary[e]
            self._known[e] = tangent_of(name, e, args, [self.known(x) for x in args])
        elif e.op in RULES:
            self._known[e] = without_zeros(RULES[e.op](e, *e.args, *(self.known(x) for x in e.args)))
        elif e.op == "result" and isinstance(e.attr.region_op.attr, When):
            self._known[e] = self._of_block(e.attr)
        elif e.op == "result" and isinstance(e.attr.region_op.attr, Repeat | ForEach):
            self._of_loop(e.attr)
        elif e.op == "get":
            self._known[e] = _got(self.known(e.args[0]), e.args[1], e.attr)
        elif e.op in STEPS or not self._depends(e):
            self._known[e] = NONE
        else:
            raise NotDifferentiable(described(e))

    # blocks and loops

    def _of_block(self, arg: IterArg) -> Tangent:
        """Return the tangent of a value that a block carries out: under the block's mask, that of what it makes."""
        before, after = self.known(arg.before), self.known(arg.after)
        out: Tangent = {}
        for column in dict.fromkeys((*before, *after)):
            old, new = before.get(column, 0.0), after.get(column, 0.0)
            if old is new:
                out[column] = new
            else:
                out[column] = _carried(arg.region_op, IterArg(None if arg.before is None else old, new))
        return out

    def _of_loop(self, wanted: IterArg) -> None:
        """Record the tangents of this value that a loop carries, and of the others that it is made of on the way.

        Which entries are always 0 is known only at the end of the loop, so the loop carries those of all possible
        columns.
        """
        region_op: Expr = wanted.region_op
        loop: Repeat | ForEach = region_op.attr
        args = [arg for arg in self._carried_with(wanted) if arg.variable not in self._known]
        with current().inside(region_op.region):
            starts = self.of([arg.before for arg in args])
        self._known |= {arg.variable: NONE for arg in args}
        columns = self._columns_of([x for arg in args for x in (arg.before, arg.after)])
        made: list[tuple[IterArg, Hashable, IterArg]] = []
        for arg, start in zip(args, starts, strict=True):
            tangent: Tangent = {}
            for column in columns:
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
        for arg in args:
            self._known.setdefault(arg.result, NONE)

    def _columns_of(self, values: Sequence[Any]) -> list[Hashable]:
        """List the columns in which these values may have a derivative."""
        found: dict[Hashable, None] = {}

        def inside(x: Expr) -> Iterable[Any]:
            return () if x in self._known or self._is_leaf(x) else _made_of(x)

        for x in _reached(values, inside):
            if x in self._known:
                found.update(dict.fromkeys(self._known[x]))
            elif self._is_leaf(x):
                found[x] = None
        return list(found)

    # arrays

    def _of_array(self, e: Expr) -> None:
        if e.op == "array":
            self._known[e] = _as_tables(e.attr, [self.known(x) for x in e.args])
        elif e.op == "filled" and e.args[0].op == "array" and isinstance(e.args[1].attr, ForEach):
            self._of_filled(e)
        elif self._depends(e):
            raise NotDifferentiable(described(e))
        else:
            self._known[e] = NONE

    def _of_filled(self, e: Expr) -> None:
        """Record the tangents of what a loop over an active set puts into an array: it puts those into other arrays.

        If the loop reads what it puts, as where it adds to a sum, it keeps tangents for all possible columns.
        """
        before, region_op = e.args
        loop: ForEach = region_op.attr
        puts = [put for put in loop.puts if put.array is before]
        values = [x for put in puts for x in (put.value, put.otherwise)]
        first = self.of(before.args)
        self._known[before] = NONE
        kept: dict[Hashable, Places] = {}
        if self._reach(values, before):
            columns = dict.fromkeys([*(column for t in first for column in t), *self._columns_of(values)])
            kept = self._known[before] = self._room(before, first, columns, range(before.attr.columns))
        tangents = iter(self.of(values))
        made = [(put, next(tangents), next(tangents)) for put in puts]
        if not kept:
            columns = dict.fromkeys(column for _, *both in made for t in both for column in t)
            for column in [*columns, *(column for t in first for column in t if column not in columns)]:
                used = {put.column for put, *both in made if any(column in t for t in both)}
                used |= {k % before.attr.columns for k, t in enumerate(first) if column in t}
                kept |= self._room(before, first, [column], sorted(used))
        for put, value, otherwise in made:
            for column, places in kept.items():
                if put.column in places:
                    array, k = places[put.column]
                    old = None if put.otherwise is None else otherwise.get(column, 0.0)
                    loop.puts.append(Put(array, put.row, k, value.get(column, 0.0), old))
        with current().inside(e.region):
            self._known[e] = {column: _filled(places, region_op) for column, places in kept.items()}

    def _room(
        self, e: Expr, first: Sequence[Tangent], columns: Iterable[Hashable], used: Sequence[int]
    ) -> dict[Hashable, Places]:
        """Make arrays for the tangents of what is put into array e; those of its first entries are `first`."""
        found = {}
        with current().inside(e.region):
            for column in columns:
                values = [t.get(column, 0.0) for k, t in enumerate(first) if k % e.attr.columns in used]
                array = fresh("array", *values, attr=Shape(e.attr.rows, len(used)))
                found[column] = {c: (array, k) for k, c in enumerate(used)}
        return found

    def _reach(self, values: Sequence[Any], wanted: Expr) -> bool:
        """Return whether one of these values is made of `wanted`, through nodes whose tangents are not known yet."""
        return any(x is wanted for x in _reached(values, lambda x: () if x in self._known else _made_of(x)))

    def _carried_with(self, wanted: IterArg) -> list[IterArg]:
        """List the values carried by a loop that this one is made of, itself first."""
        loop: Repeat | ForEach = wanted.region_op.attr
        variables = {arg.variable: arg for arg in loop.iter_args}
        found, todo = {wanted: None}, [wanted]

        def inside(e: Expr) -> Iterable[Any]:
            if e in self._known or e in variables:
                return ()
            through = e.type in "ac" or (e.op == "result" and e not in current().solutions)
            return _made_of(e) if through else self._operands(e)

        while todo:
            for e in _reached([todo.pop().after], inside):
                arg = None if e in self._known else variables.get(e)
                if arg is not None and arg not in found:
                    found[arg] = None
                    todo.append(arg)
        return list(found)

    # solutions of equations

    def _in_loop(self, solution: Solution) -> bool:
        return solution.values[-1].region is not current().top

    def _equation(self, solution: Solution) -> tuple[list[Any], Callable[[Sequence[Scalar]], Sequence[Scalar]]]:
        """Return an equation's residual at its solution, held constant, and the function that solves with the
        equation's matrix.
        """
        if solution not in self._equations:
            with current().inside(solution.values[-1].region):
                residual, solve = solution.equation()
            self._equations[solution] = list(residual), solve
        return self._equations[solution]

    def _before_search(self, solution: Solution) -> list[Expr]:
        """List the nodes from which the residual follows and that do not depend on the solution themselves."""
        residual = self._equation(solution)[0]
        own = dict.fromkeys(solution.values)
        users: dict[Expr, list[Expr]] = {}

        def inside(e: Expr) -> Iterable[Any]:
            return () if e in own or e in self._known else _made_of(e)  # what is known was computed before the search

        for e in _reached(residual, inside):
            for x in inside(e):
                if type(x) is Expr:
                    users.setdefault(x, []).append(e)
        after = dict.fromkeys(_reached(solution.values, lambda e: users.get(e, ())))
        sums = {e.args[0] for e in after if e.op == "filled"}  # their tangents become known with those of the loop
        found = [x for e in after if e not in own for x in (_made_of(e) if e.type in "ac" else self._operands(e))]
        return [
            x
            for x in dict.fromkeys((*residual, *found))
            if type(x) is Expr and x not in after and x not in sums and not (x.op == "get" and x.args[0] in sums)
        ]

    def _solve(self, solution: Solution) -> None:
        """Record the tangents of a solution: minus the inverse of the equation's matrix, times the residual's tangents.

        In a loop, the residual is differentiated with respect to the few values from which the equation follows, and
        the result is multiplied by their tangents: these have entries in all columns, while those of the equation are
        sparse.
        """
        residual, solve = self._equation(solution)
        if not self._in_loop(solution):
            held = Tangents({})
            held._known = self._known | {x: NONE for x in solution.values if type(x) is Expr}
            found = _each_column(held.of(residual), len(residual), lambda row: solve([-x for x in row]))
        else:
            local = _Local(solution, self)
            by_given = local.of(residual)
            parts = {c: local.parts.get(c, {c: 1.0}) for c in dict.fromkeys(c for t in by_given for c in t)}
            given: list[Any] = list(dict.fromkeys(x for part in parts.values() for x in part))
            place = {x: k for k, x in enumerate(given)}

            def solved(row: list[Scalar]) -> Sequence[Scalar]:
                changes = {c: _total(row[place[x]] * rate for x, rate in part.items()) for c, part in parts.items()}
                return solve([-_total(changes[c] * rate for c, rate in tangent.items()) for tangent in by_given])

            found = _each_column(self.of(given), len(residual), solved)
        for x, tangent in zip(solution.values, found, strict=True):
            if type(x) is Expr:
                self._known[x] = tangent

    # what has no rule

    def _is_leaf(self, e: Expr) -> bool:
        """Return whether a node is a column of its own."""
        return False

    def _depends(self, e: Expr) -> bool:
        """Return whether e may depend on a seed at all."""

        def may(x: Expr) -> bool:
            if x in self._known and not self._is_leaf(x):
                return bool(self._known[x])
            return self._is_leaf(x) or x.op == "version"  # an array that its loop puts into

        return any(map(may, _reached([e], lambda x: () if x in self._known else _made_of(x))))


class _Local(Tangents):
    """Tangents with respect to the values that an equation is made of, each a column of its own.

    For values that change only along few directions, each direction is a column. Whatever else the equation depends on,
    from a surrounding loop or the seeds, becomes a column, too.
    """

    def __init__(self, solution: Solution, around: Tangents):
        given = [x for x in dict.fromkeys(solution.given) if type(x) is Expr]
        seeds: dict[Expr, Tangent] = {x: {x: 1.0} for x in given}
        self.parts: dict[Hashable, dict[Expr, Scalar]] = {}  # by direction: its change per change of each value
        for n, (values, directions) in enumerate(solution.confined()):
            seeds |= {x: NONE for x in values if type(x) is Expr}
            for k, direction in enumerate(directions):
                along = {x: rate for x, rate in zip(values, direction, strict=True) if type(x) is Expr}
                square = _total(rate * rate for rate in direction)
                self.parts[n, k] = {x: rate / square for x, rate in along.items()}
                for x, rate in along.items():
                    seeds[x] = seeds[x] | {(n, k): rate}
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
        around = self._around
        return e.op == "phi" or (e.op == "load" and (bool(around._known.get(e)) or around._is_leaf(e)))


def _each_column(given: Sequence[Tangent], n: int, linear: Callable[[list[Scalar]], Sequence[Scalar]]) -> list[Tangent]:
    """Return the tangents of n values that are a linear function of values with these tangents.

    Where that takes much code, it is a loop over the columns, so that the code exists only once.
    """
    columns = list(dict.fromkeys(column for tangent in given for column in tangent))
    rows = [[tangent.get(column, 0.0) for tangent in given] for column in columns]
    if len(rows) * n * n < LARGE:
        found = [list(linear(row)) for row in rows]
    else:
        held, made = Array(rows), Array(rows=len(rows), columns=n)

        def one(k: Any, carry: list[Scalar]) -> list[Scalar]:
            made.put(k, list(linear(held[k])), None)
            return carry

        repeat(len(rows), one, [], [made])
        found = [made[k] for k in range(len(rows))]
    return [without_zeros({c: row[i] for c, row in zip(columns, found, strict=True)}) for i in range(n)]


def _total(xs: Iterable[Scalar]) -> Scalar:
    total: Scalar = 0.0
    for x in xs:
        total = total + x
    return total


def _got(tangent: Tangent, row: Any, c: int) -> Tangent:
    """Return the tangent of an array's entry in this row and its column c."""
    found: Tangent = {}
    for column, places in tangent.items():
        if c in places:
            held, k = places[c]
            found[column] = held[row, k] if isinstance(held, Table) else node("get", held, row, attr=k)
    return without_zeros(found)


def _as_tables(shape: Shape, first: Sequence[Tangent]) -> Tangent:
    """Return the tangent of an array from those of its first entries, row by row. Constants are put into tables."""
    found: Tangent = {}
    for column in dict.fromkeys(column for t in first for column in t):
        used = sorted({k % shape.columns for k, t in enumerate(first) if column in t})
        values = [t.get(column, 0.0) for k, t in enumerate(first) if k % shape.columns in used]
        if any(type(x) is Expr for x in values) or len(first) < shape.rows * shape.columns:
            held: Any = fresh("array", *values, attr=Shape(shape.rows, len(used)))
        else:
            held = Table([values[k : k + len(used)] for k in range(0, len(values), len(used))])
        found[column] = {c: (held, k) for k, c in enumerate(used)}
    return found


def _filled(places: Places, region_op: Expr) -> Places:
    """Return where the tangents of an array are after a loop has put them there."""
    arrays = dict.fromkeys(array for array, _ in places.values())
    after = {array: fresh("filled", array, region_op, attr=array.attr) for array in arrays}
    return {c: (after[array], k) for c, (array, k) in places.items()}


def _carried(region_op: Expr, carry: IterArg) -> Expr:
    """Make a block or loop carry one more value, and return what the code after it sees of that."""
    carry.region_op = region_op
    with current().inside(region_op.region):
        carry.result = fresh("result", region_op, attr=carry, type_="f")
    region_op.attr.iter_args.append(carry)
    result: Expr = carry.result
    return result


def _reached(values: Iterable[Any], inside: Callable[[Expr], Iterable[Any]]) -> Iterator[Expr]:
    """List the nodes among these values, those inside them, and so on, each once."""
    seen: set[Expr] = set()
    todo = list(values)
    while todo:
        x = todo.pop()
        if type(x) is Expr and x not in seen:
            seen.add(x)
            yield x
            todo += inside(x)


def _made_of(x: Expr) -> Iterator[Any]:
    """List the numbers that a value is made of, without masks and integers: these only decide which piece it is in."""
    if x.type not in "fac" or x in current().held:
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


def described(e: Expr) -> str:
    """Return what has no derivative, for the message of an error."""
    if e.type == "a":
        return "what loops put into arrays has no derivative yet"
    if e.op in ("result", "phi"):
        return "a search that runs until it has ended has no derivative yet"
    return f"the operation {e.op!r} has no derivative"
