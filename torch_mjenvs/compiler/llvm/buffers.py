"""Buffers: loads and stores of a program's columns.

World-minor buffers are read where they stand. So are numbers that worlds share, which go into every lane or repeat with
a period, and so are rows if a thread is a world. If a world is a lane, the tile's rows are transposed into columns on
the stack before the program runs, and back afterwards.
"""

from __future__ import annotations

from ..expr import Expr
from .transpose import transpose
from .writer import Row, Writer


def load(w: Writer, e: Expr) -> None:
    """Load a column of the worlds at hand."""
    k, column = e.attr
    buffer = w.program.buffers[k]
    element, size = w.types.memory(buffer.type)
    vector = w.types.vector(element)
    if buffer.share > 1:
        at = w.assign(f"getelementptr {element}, {w.types.shared} %q{k}, i64 {column}")
        x = in_every_lane(w, w.assign(f"load {element}, {w.types.shared} {at}, align {size}"), element)
    else:
        x = w.assign(f"load {vector}, {w.types.shared} {_column(w, k, column)}, align {size}")
    if buffer.type == "b":
        x = w.assign(f"icmp ne {vector} {x}, {w.types.splat('i8', 0)}")
    w.names[e] = x


def store(w: Writer, e: Expr) -> None:
    """Store a value into a column."""
    k, column = e.attr
    buffer = w.program.buffers[k]
    element, size = w.types.memory(buffer.type)
    vector = w.types.vector(element)
    x = w.value(e.args[0], buffer.type)
    if buffer.type == "b":
        x = w.assign(f"zext {w.types.of('b')} {x} to {vector}")
    w.put(f"store {vector} {x}, {w.types.shared} {_column(w, k, column)}, align {size}")


def _column(w: Writer, k: int, column: int) -> str:
    """Write the address of a column of buffer k, from the world at hand on. The buffer itself is at %pk."""
    element = w.types.memory(w.program.buffers[k].type)[0]
    if w.program.buffers[k].rows:
        base = f"%q{k}" if w.types.lanes == 1 else f"%s{k}"
        return w.assign(f"getelementptr {w.types.vector(element)}, {w.types.shared} {base}, i64 {column}")
    if w.program.buffers[k].period:
        place = column * w.program.buffers[k].period
        return w.assign(f"getelementptr {element}, {w.types.shared} %q{k}, i64 {place}")
    offset = w.assign(f"mul i64 %worlds, {column}")
    index = w.assign(f"add i64 {offset}, %world")
    return w.assign(f"getelementptr {element}, {w.types.shared} %p{k}, i64 {index}")


def buffers_used(w: Writer) -> list[int]:
    fetched = {e.attr[0] for e in w.live if e.op == "fetch"}
    return sorted(set(_loaded(w)) | set(_stored(w)) | fetched)


def rows_used(w: Writer) -> list[int]:
    """Return the numbers of the buffers in use whose worlds are rows."""
    return [k for k in buffers_used(w) if w.program.buffers[k].rows]


def in_every_lane(w: Writer, x: str, element: str) -> str:
    """Write a vector that has a number in every lane."""
    if w.types.lanes == 1:
        return x
    vector = w.types.vector(element)
    one = w.assign(f"insertelement {vector} poison, {element} {x}, i32 0")
    return w.assign(f"shufflevector {vector} {one}, {vector} poison, <{w.types.lanes} x i32> zeroinitializer")


def find_rows(w: Writer) -> None:
    """Write the address %qk of the row of the first world at hand, or of its place within the period."""
    for k in rows_used(w):
        buffer = w.program.buffers[k]
        w.put(f"%o{k} = mul i64 %world, {buffer.size}")
        w.put(f"%q{k} = getelementptr {w.types.memory(buffer.type)[0]}, {w.types.shared} %p{k}, i64 %o{k}")
    for k in buffers_used(w):
        buffer = w.program.buffers[k]
        if buffer.read_only and not buffer.table:
            place = f"mul i64 %row{k}, {buffer.size}" if buffer.share > 1 else f"urem i64 %world, {buffer.period}"
            if buffer.share > 1:
                w.put(f"%row{k} = udiv i64 %world, {buffer.share}")
            w.put(f"%o{k} = {place}")
            w.put(f"%q{k} = getelementptr {w.types.memory(buffer.type)[0]}, {w.types.shared} %p{k}, i64 %o{k}")


def column_arrays(w: Writer) -> list[str]:
    """Return the arrays %sk, in which the columns of a tile's rows stand."""
    if w.types.lanes == 1:
        return []
    buffers = [(k, w.program.buffers[k]) for k in rows_used(w)]
    return [f"  %s{k} = {w.types.array(b.size, w.types.vector(w.types.memory(b.type)[0]))}" for k, b in buffers]


def rows_to_columns(w: Writer) -> None:
    _transpose(w, set(_loaded(w)), "in")


def columns_to_rows(w: Writer) -> None:
    _transpose(w, set(_stored(w)), "out")


def _transpose(w: Writer, which: set[int], to: str) -> None:
    if w.types.lanes > 1:
        for k in sorted(which.intersection(rows_used(w))):
            buffer = w.program.buffers[k]
            transpose(w, w.types.memory(buffer.type), buffer.size, rows=f"%q{k}", columns=f"%s{k}", name=f"{to}{k}")


def _loaded(w: Writer) -> list[int]:
    return [e.attr[0] for e in w.live if e.op == "load"]


def _stored(w: Writer) -> list[int]:
    return [k for k, _, _ in w.program.stores]


ROWS: dict[str, Row] = {"load": load, "store": store}
