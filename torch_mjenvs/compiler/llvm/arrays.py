"""Tables of constants, and arrays of vectors: both are read at a place known only when the kernel runs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..arrays import Table
from ..expr import Expr
from ..region_ops import array_of
from .buffers import in_every_lane
from .loops import count_to
from .transpose import columns_of
from .writer import Row, Writer

WRITTEN = 512  # constants of an array from which on a loop puts them: LLVM takes 3 ms for each that is written out
LONG = 4096  # numbers from which on a processor's table is written as bytes, which LLVM reads much faster


def lookup(w: Writer, e: Expr) -> None:
    """Write the reading of a constant: the same for all worlds, or at a place per world."""
    place = e.args[0]
    if type(place) is Expr and place.type == "i":
        w.names[e] = _gathered(w, e.attr, w.value(place, "i"))
    elif e.type == "s":
        w.names[e] = _entry(w, e, "i32", table_of(w, "i32", [str(x) for x in e.attr.values]))
    else:
        name, element = _constants(w, e.attr)
        entry = _as_number(w, _entry(w, e, element, name), element, w.types.element)
        w.names[e] = in_every_lane(w, entry, w.types.element)


def row(w: Writer, e: Expr) -> None:
    """Write the reading of a whole row of a table per world.

    The rows of a vector's worlds are read one by one and transposed, which takes less time than a gather for each
    column. (On a GPU, and where a vector has fewer lanes than a row has columns, the columns are read one by one.)
    """
    table, lanes, index = e.attr, w.types.lanes, w.value(e.args[0], "i")
    name, element = _constants(w, table)
    first = w.assign(f"mul {w.types.of('i')} {index}, {w.types.constant('i', table.columns)}")
    if lanes < table.columns:
        at = [w.assign(f"add {w.types.of('i')} {first}, {w.types.constant('i', k)}") for k in range(table.columns)]
        w.read_rows[e] = [_gathered(w, table, place) for place in at]
        return
    steps, size = in_memory(w, first, "i"), {"float": 4, "double": 8}[element]
    rows = [
        w.assign(f"getelementptr {element}, {w.types.shared} {name}, i32 {of_lane(w, steps, 'i32', str(lane))}")
        for lane in range(lanes)
    ]
    found = columns_of(w, (element, size), table.columns, rows, w.types.shared)
    w.read_rows[e] = [_as_number(w, x, w.types.vector(element), w.types.of("f")) for x in found]


def column(w: Writer, e: Expr) -> None:
    """Name a number of a row that has been read."""
    w.names[e] = w.read_rows[e.args[0]][e.attr]


def spread(w: Writer, e: Expr) -> None:
    """Write a counter as a number."""
    x = w.assign(f"sitofp i32 {w.value(e.args[0], 's')} to {w.types.element}")
    w.names[e] = in_every_lane(w, x, w.types.element)


def _gathered(w: Writer, table: Table, place: str) -> str:
    """Write the reading of a table at a place per world."""
    name, element = _constants(w, table)
    step = w.assign(f"sext {w.types.of('i')} {place} to {w.types.vector('i64')}")  # see `own_places`
    at = w.assign(f"getelementptr {element}, {w.types.shared} {name}, {w.types.vector('i64')} {step}")
    x = _gather(w, at, w.types.shared, element, *(("f32", 4) if element == "float" else ("f64", 8)))
    return _as_number(w, x, w.types.vector(element), w.types.of("f"))


def _constants(w: Writer, table: Table) -> tuple[str, str]:
    """Return the name of a table of numbers, and their type: in a processor's long table of doubles that single
    precision has, as those of meshes are, it is that, which takes half the space.
    """
    if table not in w.constants:
        element = w.types.element
        values: list[str] | bytes
        if len(table.values) < LONG or w.gpu is not None:
            values = [w.types.number(x) for x in table.values]
        else:
            numbers = np.asarray(table.values)
            with np.errstate(over="ignore"):
                single = numbers.astype(np.float32)
            if element == "float" or (single == numbers).all():
                numbers, element = single, "float"
            values = numbers.tobytes()
        w.constants[table] = table_of(w, element, values), element
    return w.constants[table]


def _as_number(w: Writer, x: str, kind: str, wanted: str) -> str:
    """Write a number, or a vector of numbers, in the program's precision."""
    return x if kind == wanted else w.assign(f"fpext {kind} {x} to {wanted}")


def fetch(w: Writer, e: Expr) -> None:
    """Write the reading of a number of a buffer that is a table."""
    place, buffer = e.args[0], f"%p{e.attr[0]}"
    element, shared = w.types.memory(e.type)[0], w.types.shared
    if type(place) is Expr and place.type == "i":
        step = w.assign(f"sext {w.types.of('i')} {w.names[place]} to {w.types.vector('i64')}")  # x86 gathers at these
        at = w.assign(f"getelementptr {element}, {shared} {buffer}, {w.types.vector('i64')} {step}")
        w.names[e] = gather(w, at, shared, e.type)
        return
    at = w.assign(f"getelementptr {element}, {shared} {buffer}, i32 {w.value(place, 's')}")
    w.names[e] = in_every_lane(w, w.assign(f"load {element}, {shared} {at}"), element)


def table_of(w: Writer, element: str, values: list[str] | bytes) -> str:
    """Return the name of a table of these constants."""
    space = w.types.shared.removeprefix("ptr")
    head = f"private unnamed_addr{space} constant"
    if isinstance(values, bytes):
        text = f'{head} [{len(values)} x i8] c"\\{values.hex(chr(92))}", align 64'
    else:
        entries = ", ".join(f"{element} {x}" for x in values)
        text = f"{head} [{len(values)} x {element}] [{entries}]"
    if text not in w.tables:
        w.tables[text] = f"@table{len(w.tables)} = {text}"
    return w.tables[text].split(" ", 1)[0]


def _entry(w: Writer, e: Expr, element: str, name: str) -> str:
    at = w.assign(f"getelementptr {element}, {w.types.shared} {name}, i32 {w.names[e.args[0]]}")
    return w.assign(f"load {element}, {w.types.shared} {at}")


def add_indices(w: Writer, e: Expr) -> None:
    a, b = (w.value(x, "s") for x in e.args)
    w.names[e] = w.assign(f"add i32 {a}, {b}")


def place(w: Writer, array: Expr, row: object, column: int) -> str:
    """Write the address of a number, in steps that many numbers share: the row, what is added to it, the column."""
    own, columns, at = w.types.own, array.attr.columns, w.names[array]
    entry = w.entry(w.types.of("f"))
    positions = w.positions if w.in_list_order and array_of(array) in w.in_list_order else {}
    for part in _parts(row):
        index = w.assign(f"zext i32 {positions.get(part) or w.value(part, 's')} to i64")
        if columns > 1:
            index = w.assign(f"mul i64 {index}, {columns}")
        at = w.assign(f"getelementptr {entry}, {own} {at}, i64 {index}")
    return w.assign(f"getelementptr {entry}, {own} {at}, i64 {column}") if column else at


def _parts(row: object) -> Sequence[object]:
    """Return what an index is the sum of."""
    return row.args if type(row) is Expr and row.op in ("sadd", "iadd") else (row,)


def is_own(w: Writer, row: object) -> bool:
    """Return whether each world has a row of its own, and not all, or the only one, that of a loop over a list."""
    own = type(row) is Expr and row.type == "i"
    return own and not (w.types.lanes == 1 and any(x in w.positions for x in _parts(row)))


def array(w: Writer, e: Expr) -> None:
    """Write an array, with what it holds from the start."""
    vector, own = w.types.of("f"), w.types.own
    w.names[e] = w.array(e.attr.rows * e.attr.columns, vector)
    entry = w.entry(vector)
    copied = sum(type(x) is not Expr for x in e.args) >= WRITTEN
    if copied:
        _copy(w, e, Table([0.0 if type(x) is Expr else x for x in e.args]))
    for k, x in enumerate(e.args):
        if copied and type(x) is not Expr:
            continue
        at = w.assign(f"getelementptr {entry}, {own} {w.names[e]}, i32 {k}")
        w.put(f"store {vector} {w.value(x, 'f')}, {own} {at}")


def _copy(w: Writer, e: Expr, numbers: Table) -> None:
    """Write a loop that puts these numbers into the array."""
    name, element = _constants(w, numbers)
    k, end = count_to(w, str(len(numbers.values)))
    at = w.assign(f"getelementptr {element}, {w.types.shared} {name}, i32 {k}")
    x = _as_number(w, w.assign(f"load {element}, {w.types.shared} {at}"), element, w.types.element)
    at = w.assign(f"getelementptr {w.entry(w.types.of('f'))}, {w.types.own} {w.names[e]}, i32 {k}")
    w.put(f"store {w.types.of('f')} {in_every_lane(w, x, w.types.element)}, {w.types.own} {at}")
    end()


def same(w: Writer, e: Expr) -> None:
    """Give an array a second name, under which it is read after a loop has changed it."""
    w.names[e] = w.names[e.args[0]]


def get(w: Writer, e: Expr) -> None:
    """Write the reading of an entry, in a row that all worlds share or in a row per world."""
    held, row = e.args
    own = is_own(w, row)
    if own or w.moved_for(held):
        rows = w.value(row, "i") if own else in_every_lane(w, w.value(row, "s"), "i32")
        w.names[e] = gather(w, own_places(w, held, rows, e.attr), w.types.own)
    else:
        w.names[e] = w.assign(f"load {w.types.of('f')}, {w.types.own} {place(w, held, row, e.attr)}")


def own_places(w: Writer, array: Expr, row: str, column: int) -> str:
    """Write a vector of pointers to each world's own number, where worlds may be in different rows.

    Steps are signed 32-bit integers, unless the array is too long for these: with such steps x86 reads and writes 16
    numbers at a time, with 64-bit steps only 8.
    """
    lanes, columns, at = w.types.lanes, array.attr.columns, w.names[array]
    kind = "i32" if array.attr.rows * columns * lanes < 2**31 else "i64"
    integers, wide = w.types.vector(kind), w.types.vector("i64")
    step = row if kind == "i32" else w.assign(f"sext {w.types.of('i')} {row} to {integers}")
    step = w.assign(f"mul {integers} {step}, {w.types.splat(kind, columns * lanes)}")
    first = [column * lanes + k for k in range(lanes)]
    offset = str(first[0]) if lanes == 1 else "<" + ", ".join(f"{kind} {x}" for x in first) + ">"
    if moved := w.moved_for(array):
        lane = moved.lane if kind == "i32" else w.assign(f"sext {w.types.of('i')} {moved.lane} to {integers}")
        offset = w.assign(f"add {integers} {lane}, {w.types.splat(kind, column * lanes)}")
    step = w.assign(f"add {integers} {step}, {offset}")
    if kind == "i32":
        step = w.assign(f"sext {integers} {step} to {wide}")
    return w.assign(f"getelementptr {w.entry(w.types.element)}, {w.types.own} {at}, {wide} {step}")


def gather(w: Writer, at: str, pointer: str, t: str = "f") -> str:
    """Write the reading of a vector of what stands in these places."""
    element, size = w.types.memory(t)
    return _gather(w, at, pointer, element, f"{t}{8 * size}", size)


def _gather(w: Writer, at: str, pointer: str, element: str, kind: str, size: int) -> str:
    vector, pointers, masks = w.types.vector(element), w.types.vector(pointer), w.types.of("b")
    if w.types.lanes == 1:
        return w.assign(f"load {vector}, {pointers} {at}")
    name = f"@llvm.masked.gather.v{w.types.lanes}{kind}.v{w.types.lanes}p0"
    everywhere = w.types.splat("i1", "true")
    return w.assign(f"call {vector} {name}({pointers} {at}, i32 {size}, {masks} {everywhere}, {vector} poison)")


def in_memory(w: Writer, x: str, t: str) -> str:
    """Store a vector, and return where it is."""
    at = w.array(1, w.types.of(t))
    w.put(f"store {w.types.of(t)} {x}, {w.types.own} {at}")
    return at


def of_lane(w: Writer, at: str, element: str, lane: str) -> str:
    """Write the reading of a lane's number of a vector in memory."""
    at = w.assign(f"getelementptr {element}, {w.types.own} {at}, i64 {lane}")
    return w.assign(f"load {element}, {w.types.own} {at}")


def place_in_lane(w: Writer, array: Expr, row: str, column: int, lane: str) -> str:
    """Write the address of the number of one lane, in a row of its own."""
    lanes, element, own = w.types.lanes, w.types.element, w.types.own
    step = w.assign(f"sext i32 {row} to i64")
    step = w.assign(f"mul i64 {step}, {array.attr.columns * lanes}")
    at = w.assign(f"getelementptr {element}, {own} {w.names[array]}, i64 {step}")
    at = w.assign(f"getelementptr {element}, {own} {at}, i64 {lane}")
    return w.assign(f"getelementptr {element}, {own} {at}, i64 {column * lanes}") if column else at


ROWS: dict[str, Row] = {
    "lookup": lookup,
    "row": row,
    "column": column,
    "fetch": fetch,
    "sadd": add_indices,
    "spread": spread,
    "array": array,
    "filled": same,
    "version": same,
    "get": get,
}
