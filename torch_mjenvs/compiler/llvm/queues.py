"""Queues: the entries of all worlds of a vector stand in one line, and each lane takes one at a time."""

from __future__ import annotations

from ..expr import Expr
from ..region_ops import Queue
from .arrays import in_memory, of_lane
from .buffers import in_every_lane
from .control import named_by_its_form, put_own, select
from .loops import Variables, count_to
from .writer import Moved, Row, Writer


def queue(w: Writer, e: Expr) -> None:
    """Write the line, and a loop that takes as many entries at a time as there are lanes."""
    region_op: Queue = e.attr
    count = w.assign(f"fptosi {w.types.of('f')} {w.value(e.args[0], 'f')} to {w.types.of('i')}")
    if w.types.lanes == 1:
        i, close = count_to(w, count)
        w.names[region_op.counter], w.names[region_op.there] = i, "true"
        w.region(region_op.body)
        put_own(w, region_op, region_op.there)
        close()
        return
    if e.region.mask is not True:
        count = select(w, w.value(e.region.mask, "b"), count, w.types.constant("i", 0), "i")
    rows, lanes, total = _line_up(w, count, region_op.most)
    i, close = count_to(w, total, w.types.lanes)
    row, lane = (_vector_at(w, line, i) for line in (rows, lanes))
    w.names[region_op.counter] = row
    numbers = ", ".join(f"i32 {k}" for k in range(w.types.lanes))
    at = w.assign(f"add {w.types.of('i')} {in_every_lane(w, i, 'i32')}, <{numbers}>")
    w.names[region_op.there] = w.assign(f"icmp slt {w.types.of('i')} {at}, {in_every_lane(w, total, 'i32')}")
    assert w.moved is None, "a queue in a queue"
    w.moved = Moved(region_op.body, lane, in_memory(w, lane, "i"))
    w.region(region_op.body)
    put_own(w, region_op, region_op.there)
    w.moved = None
    close()


def _line_up(w: Writer, count: str, most: int) -> tuple[str, str, str]:
    """Write two arrays, of the number of each entry in its world's list and of its world's lane, and how many entries
    there are. The first entry comes again after the last, for lanes that none is left for.
    """
    lanes, own = w.types.lanes, w.types.own
    rows, worlds = (w.array((most + 1) * lanes, "i32") for _ in range(2))
    counts = in_memory(w, count, "i")
    before, (head, inner, following, out) = w.block, w.fresh_labels("head", "inner", "next", "out")
    w.put(f"br label %{head}")
    w.label(head)
    outer = Variables(w, before)
    lane, first = (outer.add(w.fresh(), "i32", "0") for _ in range(2))
    n = of_lane(w, counts, "i32", w.assign(f"zext i32 {lane} to i64"))
    w.put(f"br i1 {w.assign(f'icmp sgt i32 {n}, 0')}, label %{inner}, label %{following}")
    w.label(inner)
    entries = Variables(w, head)
    k, place = entries.add(w.fresh(), "i32", "0"), entries.add(w.fresh(), "i32", first)
    for array, x in ((rows, k), (worlds, lane)):
        w.put(f"store i32 {x}, {own} {w.assign(f'getelementptr i32, {own} {array}, i32 {place}')}")
    more, after = (w.assign(f"add i32 {x}, 1") for x in (k, place))
    entries.close([more, after])
    w.put(f"br i1 {w.assign(f'icmp slt i32 {more}, {n}')}, label %{inner}, label %{following}")
    w.label(following)
    total = w.assign(f"phi i32 [ {first}, %{head} ], [ {after}, %{inner} ]")
    lane = w.assign(f"add i32 {lane}, 1")
    outer.close([lane, total])
    w.put(f"br i1 {w.assign(f'icmp slt i32 {lane}, {lanes}')}, label %{head}, label %{out}")
    w.label(out)
    for array in (rows, worlds):
        again = in_every_lane(w, w.assign(f"load i32, {own} {array}"), "i32")
        end = w.assign(f"getelementptr i32, {own} {array}, i32 {total}")
        w.put(f"store {w.types.of('i')} {again}, {own} {end}, align 4")
    return rows, worlds, total


def _vector_at(w: Writer, array: str, i: str) -> str:
    at = w.assign(f"getelementptr i32, {w.types.own} {array}, i32 {i}")
    return w.assign(f"load {w.types.of('i')}, {w.types.own} {at}, align 4")


ROWS: dict[str, Row] = {"queue": queue, "entry": named_by_its_form}
