"""Fuses sums with a product that they add, into one fused multiply-add each.

This is decided here, by the graph alone, and not by LLVM, so that a program is rounded the same way on every target.
"""

from __future__ import annotations

from dataclasses import dataclass

from .expr import Expr, Region
from .program import Program

Order = dict[Region, list[Expr]]
SUMS = ("add", "sub")


@dataclass(frozen=True, slots=True)
class Fused:
    """A fused multiply-add in place of a sum: a b + c, the product or c negated."""

    a: Expr
    b: object
    c: object
    negate_product: bool
    negate_c: bool


def fuse(program: Program, order: Order) -> tuple[Order, dict[Expr, Fused]]:
    """Return the order without the products that joined a sum, and what is computed in place of sums.

    A product joins if all its uses are sums in its own region: it is never computed twice.
    """
    uses: dict[Expr, int] = {}  # of products that may join
    for e in program.live:
        if e.op == "mul":
            region = e.region
            for u in program.uses[e]:
                if u is None or u.op not in SUMS or u.region is not region or u.args[0] is u.args[1]:
                    break
            else:
                uses[e] = len(program.uses[e])
    sums: dict[Expr, Fused] = {}
    taken = dict.fromkeys(uses, 0)
    for e in program.live:
        if e.op not in SUMS:
            continue
        left, right = e.args
        product = right if right in uses else left
        if product not in uses:
            continue
        if left in uses and uses[left] < uses[product]:
            product = left
        taken[product] += 1
        a, b = product.args
        if type(a) is not Expr:
            a, b = b, a
        minus = e.op == "sub"
        sums[e] = Fused(a, b, left, minus, False) if product is right else Fused(a, b, right, False, minus)
    gone = {e for e, n in taken.items() if n == uses[e]}
    return {region: [e for e in nodes if e not in gone] for region, nodes in order.items()}, sums
