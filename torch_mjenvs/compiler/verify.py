"""Checks a recorded program: every node obeys the table of operations, and reads only what is sure to be computed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from .expr import Expr, Region
from .ops import OPS
from .region_ops import Read, RegionOp

OUTSIDE = "is used outside the block or loop that computes it"
CONSTANTS: dict[str, tuple[type, ...]] = {"f": (float, int), "i": (int,), "s": (int,), "x": (int,), "b": (bool,)}


def verify(nodes: Iterable[Expr], stored: Iterable[object], top: Region) -> None:
    """Raise TypeError or ValueError for a node that is not legal. What is stored is read in the region `top`."""
    for x in stored:
        _check_visible(x, top)
    for e in nodes:
        _check_node(e)


def _check_node(e: Expr) -> None:
    op = OPS[e.op]
    takes = op.takes[0] * len(e.args) if op.takes.endswith("*") else op.takes
    if len(takes) != len(e.args) or not all(map(_fits, e.args, takes)):
        raise TypeError(f"{e.op} takes {op.takes!r}, got {e.args}")
    if op.gives not in ("?", e.type):
        raise TypeError(f"{e.op} gives {op.gives!r}, not {e.type!r}")
    if type(e.attr).__name__ != op.attr:
        raise TypeError(f"{e.op} needs a {op.attr}, got {e.attr!r}")
    region = e.region
    for x in e.args:
        if type(x) is Expr and x.region is not region:
            _check_visible(x, region)
    if isinstance(e.attr, RegionOp):
        for x, type_, where in _reads(e.attr, region):
            if not _fits(x, type_):
                raise TypeError(f"{e.op} needs a {type_!r}, got {x!r}")
            _check_visible(x, where)


def _reads(region_op: RegionOp, around: Region) -> Iterator[Read]:
    """List what a region op reads besides its arguments."""
    yield from region_op.reads()
    for arg in region_op.iter_args:
        if arg.before is not None:
            yield arg.before, arg.type, around
        yield arg.after, arg.type, region_op.body


def _fits(x: object, t: str) -> bool:
    if type(x) is Expr:
        return x.type in "si" if t == "x" else x.type == t
    return isinstance(x, CONSTANTS.get(t, ())) and isinstance(x, bool) == (t == "b")


def _check_visible(x: object, region: Region | None) -> None:
    if type(x) is not Expr:
        return
    while region is not None and region is not x.region:
        region = region.parent
    if region is None:
        raise ValueError(f"{x!r} {OUTSIDE}")
