"""A pass that moves stores of parameters: if only one block changes a buffer, the block itself stores it.

Parameters that are drawn when an episode begins stay for a thousand steps. A step carries them through the block that
draws them: it would load hundreds of columns, keep them until that block, and store them as they were. So the block
itself stores them, and a step in which no episode begins has nothing to do with it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from .expr import Expr, Region
from .ops import OPS
from .program import Program
from .region_ops import IterArg, When


@dataclass(frozen=True)
class SunkStores:
    """Stores moved into the block of a region op. `old`: loads of the same columns, to be done before it."""

    region_op: Expr
    stores: list[tuple[int, int, object]]
    old: list[Expr]

    @property
    def body(self) -> Region:
        """The region of the block that stores."""
        record: When = self.region_op.attr
        return record.body

    def code(self) -> list[Expr]:
        """Return the nodes for the end of the block. Old values are loaded again, rather than kept since the start."""
        out = []
        for buffer, column, new in self.stores:
            old = Expr("load", (), (buffer, column), "f", self.body)
            kept = Expr("select", (self.region_op.args[0], new, old), None, "f", self.body)
            out += [old, kept, Expr("store", (kept,), (buffer, column), OPS["store"].gives, self.body)]
        return out


def sink_stores(program: Program) -> tuple[Program, list[SunkStores]]:
    """Split off the stores that blocks take over; return the program without them, and a record of them."""
    other = {buffer for buffer, column, x in program.stores if not _can_sink(program, buffer, column, x)}
    found: dict[Expr, SunkStores] = {}
    gone, rest = set(), []
    for buffer, column, x in program.stores:
        if buffer in other:
            rest.append((buffer, column, x))
            continue
        assert type(x) is Expr
        arg: IterArg = x.attr
        assert type(arg.before) is Expr
        sunk = found.setdefault(arg.region_op, SunkStores(arg.region_op, [], []))
        sunk.stores.append((buffer, column, arg.after))
        sunk.old.append(arg.before)
        gone.add(x)
    if not found:
        return program, []
    return replace(program, stores=rest, live=program.live - gone), list(found.values())


def _can_sink(program: Program, buffer: int, column: int, x: object) -> bool:
    """Return whether x is what a block made of this very column, and is only stored."""
    if program.buffers[buffer].rows or program.buffers[buffer].type != "f":
        return False
    if type(x) is not Expr or not isinstance(x.attr, IterArg) or program.uses[x] != [None]:
        return False
    region_op, before = x.attr.region_op, x.attr.before
    if not isinstance(region_op.attr, When) or region_op.region is not program.trace.top or type(before) is not Expr:
        return False
    return before.op == "load" and before.attr == (buffer, column)
