"""From a recorded program to code that a back end only has to write out: the passes, one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .expr import Expr
from .fuse import Fused, Order, fuse
from .ops import OPS
from .program import Program
from .schedule import schedule
from .sink_loads import sink_loads
from .sink_stores import SunkStores, sink_stores


@dataclass(frozen=True)
class Code:
    """A program with the order of its nodes in each region, and the sums that became fused multiply-adds."""

    program: Program
    order: Order
    sums: dict[Expr, Fused]


def lower(program: Program) -> Code:
    """Run all passes over a program, which itself stays as it was recorded."""
    program, sunk = sink_stores(program)
    order = schedule(program, sink_loads(program, sunk))
    order = place_stores(program, order, sunk)
    order, sums = fuse(program, order)
    return Code(program, order, sums)


def place_stores(program: Program, order: Order, sunk: Sequence[SunkStores]) -> Order:
    """Put each value's stores right after it, where it is at hand, but those of constants and loaded values at the end.

    A loaded value may go into the very buffer that is loaded from, so its stores come after all loads.
    """
    at_once: dict[Expr, list[Expr]] = {}
    at_the_end: list[Expr] = []
    top = program.trace.top
    for buffer, column, x in program.stores:
        store = Expr("store", (x,), (buffer, column), OPS["store"].gives, top)
        if type(x) is Expr and x.op != "load":
            at_once.setdefault(x, []).append(store)
        else:
            at_the_end.append(store)
    placed = [y for e in order[top] for y in (e, *at_once.get(e, ()))]
    blocks = {x.body: order[x.body] + x.code() for x in sunk}
    return order | blocks | {top: placed + at_the_end}
