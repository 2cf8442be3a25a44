"""Queues: the entries of all worlds of a vector stand in one line, and each lane takes one at a time."""

from __future__ import annotations

from ..expr import Expr
from ..region_ops import Queue
from .arrays import in_memory, of_lane
from .buffers import in_every_lane
from .control import each_lane, named_by_its_form, not_0, put_own, select
from .for_each import numbered
from .loops import Variables, count_to
from .writer import Moved, Row, Writer


def queue(w: Writer, e: Expr) -> None:
    """Write the line of as many entries as each world has, and a loop that takes as many as there are lanes."""
    region_op: Queue = e.attr
    count = w.assign(f"fptosi {w.types.of('f')} {w.value(e.args[0], 'f')} to {w.types.of('i')}")
    if w.types.lanes == 1:
        i, close = count_to(w, count)
        _alone(w, region_op, i)
        close()
        return
    if e.region.mask is not True:
        count = select(w, w.value(e.region.mask, "b"), count, w.types.constant("i", 0), "i")
    _work_off(w, region_op, *_line_up(w, count, region_op.most))


def queue_each(w: Writer, e: Expr) -> None:
    """Write the line of what the worlds need of an active set, number by number, and a loop as above."""
    region_op: Queue = e.attr
    which, around = e.args
    numbers, masks, count = w.active_sets[which]
    if w.types.lanes == 1:  # a thread that is a world is here because it is among those that the code around is for
        i, close = count_to(w, count)
        number, _ = numbered(w, numbers, "", i)
        w.positions[region_op.counter] = i
        _alone(w, region_op, number)
        close()
        return
    rows, lanes = (w.array((region_op.most + 1) * w.types.lanes, "i32") for _ in range(2))
    total = w.array(1, "i32")
    own = w.types.own
    w.put(f"store i32 0, {own} {total}")
    i, close = count_to(w, count)
    number, here = numbered(w, numbers, masks, i)
    here = here or w.types.constant("b", True)
    if around is not True:
        here = w.assign(f"and {w.types.of('b')} {here}, {w.value(around, 'b')}")
    first = w.assign(f"bitcast {w.types.of('b')} {here} to {w.types.mask}")
    body, out = w.fresh_labels("body", "out")
    w.put(f"br i1 {not_0(w, first)}, label %{body}, label %{out}")
    w.label(body)
    with each_lane(w, first, out) as lane:
        at = w.assign(f"load i32, {own} {total}")
        for array, x in ((rows, number), (lanes, w.assign(f"trunc i64 {lane} to i32"))):
            w.put(f"store i32 {x}, {own} {w.assign(f'getelementptr i32, {own} {array}, i32 {at}')}")
        w.put(f"store i32 {w.assign(f'add i32 {at}, 1')}, {own} {total}")
    close()
    found = w.assign(f"load i32, {own} {total}")
    _end_line(w, (rows, lanes), found)
    _work_off(w, region_op, rows, lanes, found)


def _alone(w: Writer, region_op: Queue, number: str) -> None:
    """Write the code for an entry of the only lane."""
    w.names[region_op.counter], w.names[region_op.there] = number, "true"
    w.region(region_op.body)
    put_own(w, region_op, region_op.there)


def _work_off(w: Writer, region_op: Queue, rows: str, lanes: str, total: str) -> None:
    """Write the loop that takes entries of a line, as many at a time as there are lanes."""
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
    there are.
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
    _end_line(w, (rows, worlds), total)
    return rows, worlds, total


def _end_line(w: Writer, line: tuple[str, str], total: str) -> None:
    """Write the first entry of a line again behind its last ones, for lanes that none is left for."""
    for array in line:
        again = in_every_lane(w, w.assign(f"load i32, {w.types.own} {array}"), "i32")
        end = w.assign(f"getelementptr i32, {w.types.own} {array}, i32 {total}")
        w.put(f"store {w.types.of('i')} {again}, {w.types.own} {end}, align 4")


def _vector_at(w: Writer, array: str, i: str) -> str:
    at = w.assign(f"getelementptr i32, {w.types.own} {array}, i32 {i}")
    return w.assign(f"load {w.types.of('i')}, {w.types.own} {at}, align 4")


ROWS: dict[str, Row] = {"queue": queue, "queue_each": queue_each, "entry": named_by_its_form}
