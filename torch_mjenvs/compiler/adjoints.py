"""Derivatives of a graph being recorded, in reverse mode: from the adjoints of its results to those of its inputs.

A node's adjoint is the derivative of a number with respect to the node. It is recorded after the adjoints of all nodes
that use the node. The rules are those of `derivatives`: an operation's derivative is a number, by which a tangent is
multiplied in forward mode and an adjoint in reverse mode.

- A block's adjoints are in another block under the same mask, which gives 0 to other worlds. The first block carries
  out whatever values the second needs of it.
- The adjoints of a loop over an active set are in another such loop, which recomputes what it needs.
- The adjoint of an equation's residual is that of its solution, solved with the equation's matrix and negated.
- A value that follows from what a search picked passes its adjoint on to its formula (see `implicit`).

Anything without a rule is refused: no derivative is silently 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .derivative_rules import ELEMENTARY, NONE, RULES, STEPS
from .derivatives import NotDifferentiable, Tangents, described
from .expr import Expr, Region, current, fresh, node
from .implicit import Formula
from .region_ops import ForEach, IterArg, Put, RegionOp, When, While
from .scalar import Scalar, logical_and, select

Bars = dict[Expr, Scalar]


@dataclass(eq=False)
class Solved:
    """Values that solve an equation. Its residual was recorded before, from other nodes that hold the same numbers.

    `solve` solves with the equation's matrix, which is symmetric.
    """

    values: Sequence[Expr]
    residual: Sequence[Any]
    solve: Callable[[Sequence[Scalar]], Sequence[Scalar]]


class Adjoints:
    """The adjoints of the nodes recorded so far, computed from those of some of them, the roots.

    inputs: the nodes with respect to which derivatives are wanted; adjoints are not passed on beyond them. They and all
    roots are in the present region, and no node outside of it depends on an input.
    """

    def __init__(self, inputs: Iterable[Expr], solutions: Sequence[Solved]):
        self._inputs, self._root = dict.fromkeys(inputs), current().region
        self._active: dict[Expr, None] = dict(self._inputs)
        self._solutions = {solution.values[-1]: solution for solution in solutions if solution.values}
        self._of_solutions = {x: solution for solution in solutions for x in solution.values}
        self._nodes: dict[Region, list[Expr]] = {}
        self._blocks: dict[Region, Expr] = {}
        self._exported: dict[Expr, Expr] = {}
        self._computed: dict[Expr, Any] = {}  # by value of a formula: what the recorded formula gives for it
        self._again: dict[Expr, Any] = {}  # by node of a loop's body: the node that computes it again
        self._arrays: dict[Expr, _ArrayBar] = {}
        self._scan(self._root)

    def of(self, roots: Sequence[tuple[Any, Scalar]]) -> list[Scalar]:
        """Return the adjoints of the inputs, given those of the roots. Raises NotDifferentiable."""
        bars: Bars = {}
        for x, bar in roots:
            self._add(bars, x, bar)
        self._sweep(self._root, bars)
        if self._arrays:  # nothing has passed on the adjoints in these
            raise NotDifferentiable("what loops put into arrays has no derivative in reverse mode yet")
        return [bars.get(x, 0.0) for x in self._inputs]

    def _scan(self, region: Region) -> None:
        """Find the nodes that depend on an input."""
        nodes: list[Expr] = []
        self._nodes[region] = nodes
        with current().inside(region):
            self._scan_nodes(list(region.nodes), nodes)

    def _scan_nodes(self, new: Sequence[Expr], nodes: list[Expr]) -> None:
        for e in new:
            solution = current().solutions.get(e)
            if isinstance(solution, Formula) and e is solution.values[0]:
                self._scan_formula(solution, nodes)
            self._scan_node(e, nodes)

    def _scan_formula(self, solution: Formula, nodes: list[Expr]) -> None:
        """Record the formula of values that depend on an input, as if it had been recorded before them."""
        if any(self._is_active(x) for x in solution.given):
            recorded = current().region.nodes
            start = len(recorded)
            self._computed |= dict(zip(solution.values, solution.computed(), strict=True))
            self._scan_nodes(recorded[start:], nodes)

    def _scan_node(self, e: Expr, nodes: list[Expr]) -> None:
        nodes.append(e)
        made_of: Sequence[Any] = ()
        if e.op == "when":
            self._blocks[e.attr.body] = e
            self._scan(e.attr.body)
        elif e.op == "for_each":
            self._scan(e.attr.body)
        elif e in self._of_solutions:
            made_of = self._of_solutions[e].residual
        elif e in current().solutions:
            made_of = [self._computed[e]] if e in self._computed else current().solutions[e].given
        elif e.type in "fa" and e not in current().held:
            made_of = self._made_of(e)
        if any(self._is_active(x) for x in made_of):
            self._active[e] = None

    def _made_of(self, e: Expr) -> Sequence[Any]:
        if e.op == "result" and isinstance(e.attr.region_op.attr, When):
            return e.attr.before, e.attr.after
        if e.op == "filled" and isinstance(e.args[1].attr, ForEach):
            puts = [put for put in e.args[1].attr.puts if put.array is e.args[0]]
            return [e.args[0], *(put.value for put in puts)]
        if e.op in ("result", "phi", "version", "filled") and self._depends(e):
            return [*self._inputs][:1]
        return e.args

    def _depends(self, e: Expr) -> bool:
        known = Tangents({x: {0: 1.0} for x in self._active if x.type == "f"})
        return known._depends(e)

    def _is_active(self, x: Any) -> bool:
        return type(x) is Expr and x in self._active

    def _add(self, bars: Bars, x: Any, bar: Scalar) -> None:
        if self._is_active(x) and (type(bar) is Expr or bar != 0):
            bars[x] = bars[x] + bar if x in bars else bar

    def _sweep(self, region: Region, bars: Bars) -> None:
        """Pass on the adjoints of a region's nodes, from the last to the first, to their operands."""
        for e in reversed(self._nodes[region]):
            if e in self._inputs:
                continue
            if e.op == "when":
                self._of_block(e, bars)
            elif e.op == "for_each":
                self._of_loop(e, bars)
            elif e.op == "array":
                self._of_array(e, bars)
            elif e in self._of_solutions:
                if e in self._solutions:
                    self._of_solution(self._solutions[e], bars)
            elif e in bars and not (e.op == "result" and _hands_on(e)):
                self._of_node(e, bars.pop(e), bars)

    def _of_node(self, e: Expr, bar: Scalar, bars: Bars) -> None:
        elementary = current().elementary
        if e in self._computed:
            self._add(bars, self._computed[e], bar)
        elif e in current().solutions:
            raise NotDifferentiable("forces and accelerations at a state from which no step was taken have none yet")
        elif e.op == "get":
            self._into_array(e, bar)
        elif e in elementary:
            name, args = elementary[e]
            self._by_rule(ELEMENTARY[name], e, args, bar, bars)
        elif e.op in RULES:
            self._by_rule(RULES[e.op], e, e.args, bar, bars)
        elif e.op == "result" and not isinstance(e.attr.region_op.attr, While):
            raise NotDifferentiable("what a loop carries has no derivative in reverse mode yet")
        elif e.op not in STEPS:
            raise NotDifferentiable(described(e))

    def _by_rule(self, rule: Callable[..., Any], e: Expr, args: Sequence[Any], bar: Scalar, bars: Bars) -> None:
        for k, x in enumerate(args):
            if self._is_active(x):
                tangents = [{0: bar} if j == k else NONE for j in range(len(args))]
                self._add(bars, x, rule(self._value(e), *map(self._value, args), *tangents).get(0, 0.0))

    def _of_solution(self, solution: Solved, bars: Bars) -> None:
        given = [bars.pop(x, 0.0) for x in solution.values]
        if all(type(x) is not Expr and x == 0 for x in given):
            return
        for x, y in zip(solution.residual, solution.solve(given), strict=True):
            self._add(bars, x, -y)

    # blocks

    def _of_block(self, e: Expr, bars: Bars) -> None:
        block: When = e.attr
        seeds = [(arg, bars.pop(arg.result)) for arg in list(block.iter_args) if arg.result in bars]
        if not seeds:
            return
        mask, trace = self._value(e.args[0]), current()
        region = Region(trace.region, logical_and(trace.region.mask, mask))
        inner: Bars = {}
        with trace.inside(region):
            for arg, bar in seeds:
                self._add(inner, arg.after, bar)
            self._sweep(block.body, inner)
        made = [IterArg(0.0, bar) for bar in inner.values()]
        if made:
            needed = region.mask
            op = fresh("when", *((mask,) if needed is mask else (mask, needed)), attr=When(region, made))
            for x, arg in zip(inner, made, strict=True):
                arg.region_op, arg.result = op, fresh("result", op, attr=arg, type_="f")
                self._add(bars, x, arg.result)
        for arg, bar in seeds:
            if arg.before is not None:
                self._add(bars, arg.before, select(mask, 0.0, bar))

    def _value(self, x: Any) -> Any:
        """Return this value as a node that the present region may use."""
        if type(x) is not Expr:
            return x
        if x in self._again:
            return self._again[x]
        region: Region | None = current().region
        while region is not None:
            if region is x.region:
                return x
            region = region.parent
        if x not in self._exported:
            op = self._blocks.get(x.region)
            if op is None:
                raise NotDifferentiable("what a loop within a loop computes has no derivative in reverse mode yet")
            with current().inside(op.region):
                arg = IterArg(None, x, region_op=op)
                self._exported[x] = arg.result = fresh("result", op, attr=arg, type_=x.type)
            op.attr.iter_args.append(arg)
        return self._value(self._exported[x])

    # arrays, and loops over what is needed

    def _bar(self, array: Expr) -> _ArrayBar:
        return self._arrays.setdefault(array, _ArrayBar(array, self._root))

    def _into_array(self, e: Expr, bar: Scalar) -> None:
        array, row = e.args
        if not self._is_active(array):
            return
        if type(row) is int and current().region is self._root:
            self._bar(array).fixed[row, e.attr] = bar
            return
        raise NotDifferentiable("an array that is read within a block has no derivative in reverse mode yet")

    def _of_array(self, e: Expr, bars: Bars) -> None:
        if e not in self._arrays:
            return
        bar = self._arrays.pop(e)
        for k, x in enumerate(e.args):
            self._add(bars, x, bar.at(*divmod(k, e.attr.columns)))

    def _of_loop(self, e: Expr, bars: Bars) -> None:
        loop: ForEach = e.attr
        filled = {x.args[0]: x for x in self._nodes[e.region] if x.op == "filled" and x.args[1] is e}
        wanted = {before: self._arrays.pop(x) for before, x in filled.items() if x in self._arrays}
        carried = [(arg, bars.pop(arg.result)) for arg in loop.iter_args if arg.result in bars]
        if not wanted and not carried:
            return
        for arg, bar in carried:  # iterations only add to these, so the values before the loop have the same adjoints
            self._add(bars, arg.before, bar)
        trace, outer = current(), self._again
        region = Region(trace.region, trace.region.mask)
        with trace.inside(region):
            counter = fresh("counter")
            self._again = outer | {loop.counter: counter}
            inner, reads = self._of_body(loop, carried, wanted)
            puts = self._puts(reads)
            iter_args = []
            for bar in inner.values():
                variable = fresh("phi", type_="f")
                iter_args.append(IterArg(0.0, variable + bar, variable))
        self._again = outer
        op = fresh("for_each", e.args[0], region.mask, attr=ForEach(region, iter_args, counter, puts))
        for x, arg in zip(inner, iter_args, strict=True):
            arg.variable.attr, arg.region_op = arg, op
            arg.result = fresh("result", op, attr=arg, type_="f")
            self._add(bars, x, arg.result)
        for array in dict.fromkeys(x.args[0] for x, _ in reads if self._is_active(x.args[0])):
            bar_of = self._bar(array)
            bar_of.held = fresh("filled", bar_of.held, op, attr=array.attr)
        for before, bar_of in wanted.items():  # likewise for an array that iterations only add to
            if before.args and self._is_active(before):
                self._arrays[before] = bar_of

    def _of_body(
        self, loop: ForEach, carried: Sequence[tuple[IterArg, Scalar]], wanted: Mapping[Expr, _ArrayBar]
    ) -> tuple[Bars, list[tuple[Expr, Scalar]]]:
        """Compute a loop's body again, in the present region, and go back through it.

        carried: iteration arguments with the adjoints of their results. wanted: the adjoints of the arrays that the
        loop has filled. Return the adjoints of nodes outside of the body, and those of its reads of arrays.
        """
        inner: Bars = {}
        for x in self._nodes[loop.body]:
            self._compute_again(x)
        for arg, bar in carried:
            part, sign = _added_to(arg.after, arg.variable)
            self._add(inner, part, sign * bar)
        for put in loop.puts:
            if put.array in wanted:
                part, sign = _added(put)
                self._add(inner, part, sign * wanted[put.array].get(self._value(put.row), put.column))
        reads: list[tuple[Expr, Scalar]] = []
        for x in reversed(self._nodes[loop.body]):
            if x in inner:
                bar = inner.pop(x)
                if x.op == "get":
                    reads.append((x, bar))
                else:
                    self._of_node(x, bar, inner)
        return inner, reads

    def _puts(self, reads: Sequence[tuple[Expr, Scalar]]) -> list[Put]:
        """Add the adjoints of a body's reads to those of their arrays. Raises NotDifferentiable for rows read twice."""
        puts: list[Put] = []
        for k, (x, bar) in enumerate(reads):
            if self._is_active(x.args[0]):
                if any(_may_be_one(x, y) for y, _ in reads[:k]):
                    why = "a loop that reads a row of an array in two ways has no derivative in reverse mode yet"
                    raise NotDifferentiable(why)
                held, row = self._bar(x.args[0]).held, self._value(x.args[1])
                old = node("get", held, row, attr=x.attr)
                puts.append(Put(held, row, x.attr, old + bar, old))
        return puts

    def _compute_again(self, x: Expr) -> None:
        if x.op in ("counter", "phi", "result", "filled", "array") or isinstance(x.attr, RegionOp):
            return
        try:
            args = [self._value(a) for a in x.args]
        except NotDifferentiable:
            return  # if the node is needed, an error is raised there
        self._again[x] = node(x.op, *args, attr=x.attr, type_=x.type)


class _ArrayBar:
    """The adjoints of an array's entries: one by one, in fixed rows, or in another array, which loops add to."""

    def __init__(self, array: Expr, root: Region):
        self.shape, self._root = array.attr, root
        self.fixed: dict[tuple[int, int], Scalar] = {}
        self._held: Expr | None = None

    @property
    def held(self) -> Expr:
        """The array of adjoints."""
        if self._held is None:
            rows, columns = self.shape.rows, self.shape.columns
            values = [self.fixed.get((r, c), 0.0) for r in range(rows) for c in range(columns)]
            with current().inside(self._root):
                self._held = fresh("array", *values, attr=self.shape)
            self.fixed = {}
        return self._held

    @held.setter
    def held(self, array: Expr) -> None:
        self._held = array

    def get(self, row: Any, column: int) -> Scalar:
        """Return the adjoint of an entry in a row that a loop chooses."""
        found: Scalar = node("get", self.held, row, attr=column)
        return found

    def at(self, row: int, column: int) -> Scalar:
        """Return the adjoint of an entry."""
        if self._held is None:
            return self.fixed.get((row, column), 0.0)
        if self.fixed:
            raise NotDifferentiable("an array read in loops and outside has no derivative in reverse mode yet")
        found: Scalar = node("get", self._held, row, attr=column)
        return found


def _hands_on(result: Expr) -> bool:
    """Return whether the block or loop that a result comes from handles its adjoint."""
    return isinstance(result.attr.region_op.attr, When | ForEach)


def _may_be_one(x: Expr, y: Expr) -> bool:
    """Return whether two reads may be of the same entry, not counting entries that are constants."""
    (array, one), (other, two) = x.args, y.args
    if array is not other or x.attr != y.attr:
        return False
    shape = array.attr

    def rows(row: Any) -> Sequence[int] | None:
        if type(row) is not Expr:
            return [row] * shape.rows
        known = row.op == "lookup" and row.args[0].op == "counter"
        return row.attr.values if known else None

    ones, twos = rows(one), rows(two)
    if array.op != "array" or ones is None or twos is None:
        return True
    places = (r * shape.columns + x.attr for r, s in zip(ones, twos, strict=False) if r == s)
    return any(k >= len(array.args) or type(array.args[k]) is Expr for k in places)


def _added(put: Put) -> tuple[Any, float]:
    """Return what a put adds to the previous value, or else the value that it puts, and the sign."""
    return (put.value, 1.0) if put.otherwise is None else _added_to(put.value, put.otherwise)


def _added_to(value: Any, before: Any) -> tuple[Any, float]:
    """Return what was added to `before` to make `value`, and its sign."""
    if value is before:
        return 0.0, 1.0
    if type(value) is Expr and value.op == "add" and any(x is before for x in value.args):
        one, two = value.args
        return (two if one is before else one), 1.0
    if type(value) is Expr and value.op == "sub" and value.args[0] is before:
        return value.args[1], -1.0
    raise NotDifferentiable("what a loop makes of its results, and is no sum, has no derivative in reverse mode yet")
