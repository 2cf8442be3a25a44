"""Is a recorded program legal? Every node obeys the table of operations, and reads only what is sure to be computed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from .expr import Expr, Region
from .forms import Form, Read
from .ops import OPS

if TYPE_CHECKING:
    from .program import Program

CONSTANTS: dict[str, tuple[type, ...]] = {"f": (float, int), "i": (int,), "s": (int,), "b": (bool,)}


def verify(program: Program) -> None:
    """Raise TypeError or ValueError for the first node that is not."""
    try:
        for _, _, value in program.stores:
            _check_visible(value, program.trace.top)
        for e in program.live:
            _check_node(e)
    except (TypeError, ValueError) as error:
        raise type(error)(f"kernel {program.name}: {error}") from None


def _check_node(e: Expr) -> None:
    op = OPS[e.op]
    takes = op.takes[0] * len(e.args) if op.takes.endswith("*") else op.takes
    if len(takes) != len(e.args) or not all(map(_fits, e.args, takes)):
        raise TypeError(f"{e.op} takes {op.takes!r}, got {e.args}")
    if op.gives not in ("?", e.type):
        raise TypeError(f"{e.op} gives {op.gives!r}, not {e.type!r}")
    if type(e.attr) is not op.attr:
        raise TypeError(f"{e.op} needs a {op.attr.__name__}, got {e.attr!r}")
    region = e.region
    for x in e.args:
        if type(x) is Expr and x.region is not region:
            _check_visible(x, region)
    if isinstance(e.attr, Form):
        for x, type_, where in _reads(e.attr, region):
            if not _fits(x, type_):
                raise TypeError(f"{e.op} needs a {type_!r}, got {x!r}")
            _check_visible(x, where)


def _reads(form: Form, around: Region) -> Iterator[Read]:
    """What a form needs besides its arguments."""
    yield from form.reads()
    for carried in form.carries:
        if carried.before is not None:
            yield carried.before, carried.type, around
        yield carried.after, carried.type, form.body


def _fits(x: object, t: str) -> bool:
    if type(x) is Expr:
        return x.type == t
    return isinstance(x, CONSTANTS.get(t, ())) and isinstance(x, bool) == (t == "b")


def _check_visible(x: object, region: Region | None) -> None:
    if type(x) is not Expr:
        return
    while region is not None and region is not x.region:
        region = region.parent
    if region is None:
        raise ValueError(f"{x!r} is used outside the block or loop that computes it")
