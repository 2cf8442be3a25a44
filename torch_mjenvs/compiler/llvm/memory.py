"""Constant tables, and memories: arrays of vectors that are read at an index known only when the kernel runs."""

from __future__ import annotations

from ..expr import Expr
from .writer import Row, Writer


def lookup(w: Writer, e: Expr) -> None:
    """The same float for every lane."""
    x = _entry(w, e, w.types.element, [w.types.number(x) for x in e.attr])
    if w.types.lanes > 1:
        vector = w.types.of("f")
        one = w.assign(f"insertelement {vector} poison, {w.types.element} {x}, i32 0")
        x = w.assign(f"shufflevector {vector} {one}, {vector} poison, <{w.types.lanes} x i32> zeroinitializer")
    w.names[e] = x


def lookup_index(w: Writer, e: Expr) -> None:
    w.names[e] = _entry(w, e, "i32", [str(x) for x in e.attr])


def _entry(w: Writer, e: Expr, element: str, values: list[str]) -> str:
    entries = ", ".join(f"{element} {x}" for x in values)
    space = w.types.shared.removeprefix("ptr")
    text = f"private unnamed_addr{space} constant [{len(values)} x {element}] [{entries}]"
    if text not in w.tables:
        w.tables[text] = f"@table{len(w.tables)} = {text}"
    name = w.tables[text].split(" ", 1)[0]
    at = w.assign(f"getelementptr {element}, {w.types.shared} {name}, i32 {w.names[e.args[0]]}")
    return w.assign(f"load {element}, {w.types.shared} {at}")


def add_indices(w: Writer, e: Expr) -> None:
    a, b = (w.value(x, "s") for x in e.args)
    w.names[e] = w.assign(f"add i32 {a}, {b}")


def place(w: Writer, memory: Expr, row: object, column: int) -> str:
    """Where a number stands, in steps that many numbers share: the row, what is added to it, the column."""
    vector, own, columns, at = w.types.of("f"), w.types.own, memory.attr.columns, w.names[memory]
    for part in row.args if type(row) is Expr and row.op == "sadd" else (row,):
        index = w.assign(f"zext i32 {w.value(part, 's')} to i64")
        if columns > 1:
            index = w.assign(f"mul i64 {index}, {columns}")
        at = w.assign(f"getelementptr {vector}, {own} {at}, i64 {index}")
    return w.assign(f"getelementptr {vector}, {own} {at}, i64 {column}") if column else at


def memory(w: Writer, e: Expr) -> None:
    """An array, with what it holds from the start."""
    vector, own = w.types.of("f"), w.types.own
    w.names[e] = w.array(e.attr.rows * e.attr.columns, vector)
    for k, x in enumerate(e.args):
        at = w.assign(f"getelementptr {vector}, {own} {w.names[e]}, i32 {k}")
        w.put(f"store {vector} {w.value(x, 'f')}, {own} {at}")


def filled(w: Writer, e: Expr) -> None:
    w.names[e] = w.names[e.args[0]]


def get(w: Writer, e: Expr) -> None:
    w.names[e] = w.assign(f"load {w.types.of('f')}, {w.types.own} {place(w, e.args[0], e.args[1], e.attr)}")


def after(w: Writer, e: Expr) -> None:
    w.names[e] = w.assign(f"load {w.types.of('f')}, {w.types.own} {place(w, e.args[0], e.attr, 0)}")


ROWS: dict[str, Row] = {
    "lookup": lookup,
    "slookup": lookup_index,
    "sadd": add_indices,
    "memory": memory,
    "filled": filled,
    "get": get,
    "after": after,
}
