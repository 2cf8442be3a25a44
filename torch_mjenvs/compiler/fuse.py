"""The fusing of sums with a product that they take up, into one fused multiply-add each.

It is decided here, by the graph alone, and not by LLVM: so the same program is rounded the same way on every target.
"""

from __future__ import annotations

from dataclasses import dataclass

from .expr import Expr, Region
from .program import Program

Order = dict[Region, list[Expr]]


@dataclass(frozen=True, slots=True)
class Fused:
    """A fused multiply-add in place of a sum: a b + c, the product or c negated."""

    a: Expr
    b: object
    c: object
    negate_product: bool
    negate_c: bool


def fuse(program: Program, order: Order) -> tuple[Order, dict[Expr, Fused]]:
    """The order without the products that were taken up, and what is computed in place of sums.

    A product joins if all its uses are sums in its own region: it is never computed twice.
    """
    uses: dict[Expr, int] = {}  # of products that may join
    for e in program.live:
        if e.op == "mul":
            users = program.uses[e]
            if all(u is not None and _is_sum_beside(u, e) for u in users):
                uses[e] = len(users)
    sums: dict[Expr, Fused] = {}
    taken = dict.fromkeys(uses, 0)
    for e in program.live:
        if e.op not in ("add", "sub"):
            continue
        left, right = e.args
        options = [x for x in (right, left) if x in uses]
        if not options:
            continue
        product = min(options, key=lambda x: uses[x])
        taken[product] += 1
        a, b = product.args
        if type(a) is not Expr:
            a, b = b, a
        minus = e.op == "sub"
        sums[e] = Fused(a, b, left, minus, False) if product is right else Fused(a, b, right, False, minus)
    gone = {e for e, n in taken.items() if n == uses[e]}
    return {region: [e for e in nodes if e not in gone] for region, nodes in order.items()}, sums


def _is_sum_beside(u: Expr, product: Expr) -> bool:
    return u.op in ("add", "sub") and u.region is product.region and u.args[0] is not u.args[1]
