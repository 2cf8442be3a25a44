"""In which order a region's nodes are computed: each just before its first use, so that few values live at a time.

Humanoid's step has some 8,000 values in one region and 32 registers to keep them in. In the order in which physics
asks for them most are spilled and fetched again. Here a value that a block, a loop or a store needs is computed depth
first when the turn of that block, loop or store comes.
"""

from __future__ import annotations

from .expr import Expr, Region
from .program import FORMS, Program, put_and_chosen, regions_of

LEAVES = ("phi", "counter", "load")


def schedule(program: Program) -> dict[Region, list[Expr]]:
    """The live nodes of every region, operands before their users."""
    stored = {value for _, _, value in program.stores if type(value) is Expr}
    orders: dict[Region, list[Expr]] = {}
    _Region(program.trace.top, program.live, stored, orders)
    return orders


class _Region:
    """Schedules a region and those in it; `needs` are the nodes outside of it that it uses, in order."""

    def __init__(self, region: Region, live: set[Expr], stored: set[Expr], orders: dict[Region, list[Expr]]):
        self.region = region
        self.nodes = [e for e in region.nodes if e in live]
        self.done: set[Expr] = set()
        self.order: list[Expr] = []
        self.needs: dict[Expr, None] = {}
        self.operands = {e: self._operands_of(e, live, stored, orders) for e in self.nodes if e.op in FORMS}
        for e in self.nodes:
            if e.op in LEAVES:
                self._compute(e)
        for e in self.nodes:
            if e.op in FORMS or e in stored:
                self._compute(e)
        for e in self.nodes:  # what a loop carries on, or an inner region's results
            self._compute(e)
        orders[region] = self.order

    def _operands_of(self, form: Expr, live: set[Expr], stored: set[Expr], orders: dict) -> list[Expr]:
        """What must be there before a block or loop is entered."""
        head, body = regions_of(form)
        inner = [_Region(r, live, stored, orders) for r in ((head,) if head is body else (head, body))]
        needs = dict.fromkeys(a for a in form.args if type(a) is Expr)
        for part in inner:
            needs |= part.needs
        if form.op == "each":
            needs |= dict.fromkeys(x for x in put_and_chosen(form) if type(x) is Expr)
        for entry in form.attr[-1]:
            needs |= dict.fromkeys(x for x in (entry[0], entry[-1]) if type(x) is Expr and x in live)
        return [x for x in needs if x.region not in (head, body)]

    def _compute(self, target: Expr) -> None:
        todo = [(target, False)]
        while todo:
            e, ready = todo.pop()
            if e in self.done:
                continue
            if e.region is not self.region:
                self.needs[e] = None
                continue
            if ready:
                self.done.add(e)
                self.order.append(e)
                continue
            todo.append((e, True))
            if e.op in FORMS:
                operands = self.operands[e]
            elif e.op in LEAVES:
                operands = []
            else:
                operands = [a for a in e.args if type(a) is Expr]
            todo += [(a, False) for a in reversed(operands) if a not in self.done]
