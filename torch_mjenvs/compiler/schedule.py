"""The order in which a region's nodes are computed: each just before its first use, so that few values live at a time.

Humanoid's step has some 8,000 values in one region and 32 registers to keep them in. In the order in which physics
asks for them most are spilled and fetched again. Here a value that a block, a loop or a store needs is computed depth
first, when that block, loop or store is reached.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .expr import Expr, Region
from .program import Program
from .region_ops import PuttingLoop, RegionOp, array_of
from .sink_loads import Homes

LEAVES = ("phi", "counter", "load")


def schedule(program: Program, homes: Homes) -> dict[Region, list[Expr]]:
    """Return the live nodes of every region, operands before their users. homes: the regions of late loads."""
    task = _Task(program.live, {value for _, _, value in program.stores if type(value) is Expr}, homes)
    _Region(program.trace.top, task)
    return task.orders


@dataclass(frozen=True)
class _Task:
    """The input of a scheduling that all regions share, and the orders found so far."""

    live: set[Expr]
    stored: set[Expr]
    homes: Homes
    orders: dict[Region, list[Expr]] = field(default_factory=dict)


class _Region:
    """Schedules a region and those in it; `needs` are the nodes outside of it that it uses, in order."""

    def __init__(self, region: Region, task: _Task):
        self.region, self.homes = region, task.homes
        self.nodes = [e for e in region.nodes if e in task.live and e not in task.homes]
        self.done: set[Expr] = set()
        self.order: list[Expr] = []
        self.needs: dict[Expr, None] = {}
        self.written: set[Expr] = set()  # arrays into which its loops put values
        self.reads: dict[Expr, Expr] = {}  # what is read from arrays here, and from which
        self.operands: dict[Expr, list[Expr]] = {}
        for e in self.nodes:
            if e.op == "get":
                self.reads[e] = array_of(e.args[0])
            elif isinstance(e.attr, RegionOp):
                self.operands[e] = self._operands_of(e, task)
        for e in self.nodes:
            if e.op in LEAVES:
                self._compute(e)
        for e in self.nodes:
            if e in self.operands or e in task.stored:
                self._compute(e)
        for e in self.nodes:  # what a loop carries on, or an inner region's results
            self._compute(e)
        task.orders[region] = self.order

    def _operands_of(self, region_op: Expr, task: _Task) -> list[Expr]:
        """Return the nodes that must be computed before a block or loop is entered."""
        record: RegionOp = region_op.attr
        needs: dict[Any, None] = dict.fromkeys(region_op.args)
        written = {array_of(put.array) for put in record.puts} if isinstance(record, PuttingLoop) else set()
        for region in record.regions:
            inner = _Region(region, task)
            needs, written = needs | inner.needs, written | inner.written
        self.written |= written
        needs |= dict.fromkeys(e for e, array in self.reads.items() if array in written)  # these must precede the loop
        needs |= dict.fromkeys(x for x, _, _ in record.reads())
        for arg in record.iter_args:
            needs |= dict.fromkeys(x for x in (arg.before, arg.after) if x in task.live)
        return [x for x in needs if type(x) is Expr and self.homes.get(x, x.region) not in record.regions]

    def _compute(self, target: Expr) -> None:
        todo = [(target, False)]
        while todo:
            e, ready = todo.pop()
            if e in self.done:
                continue
            if self.homes.get(e, e.region) is not self.region:
                self.needs[e] = None
                continue
            if ready:
                self.done.add(e)
                self.order.append(e)
                continue
            todo.append((e, True))
            if e in self.operands:
                operands = self.operands[e]
            elif e.op in LEAVES:
                operands = []
            else:
                operands = [a for a in e.args if type(a) is Expr]
            todo += [(a, False) for a in reversed(operands) if a not in self.done]
