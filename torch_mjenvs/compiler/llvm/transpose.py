"""Transposes: of rows in memory, one per world, into columns, which are vectors with a lane per world; and back.

It is done in windows of columns, as wide as the widest power of two that fits into a row and into a vector: whole
vectors are loaded, transposed in registers, and stored. The last window ends where the rows end, so it may have columns
in common with the one before it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence

from .writer import Writer


def transpose(w: Writer, memory: tuple[str, int], size: int, *, rows: str, columns: str, name: str) -> None:
    """Copy rows of `size` numbers, one per lane, into `size` vectors; back into rows if `name` begins with "out".

    memory: a number's type, and its size in bytes. rows, columns: where they begin; `columns` belongs to this thread
    alone.
    """
    lanes, (element, _) = w.types.lanes, memory
    width = min(lanes, 1 << (size.bit_length() - 1))
    before, top = w.block, f"{name}.window"
    w.put(f"br label %{top}")
    w.label(top)
    w.put(f"%{top}.at = phi i64 [ 0, %{before} ], [ %{top}.next, %{top} ]")
    inside = w.assign(f"icmp slt i64 %{top}.at, {size - width}")
    at = w.assign(f"select i1 {inside}, i64 %{top}.at, i64 {size - width}")
    start = w.assign(f"getelementptr {element}, ptr {rows}, i64 {at}")
    in_rows = [w.assign(f"getelementptr {element}, ptr {start}, i64 {lane * size}") for lane in range(lanes)]
    first = w.assign(f"getelementptr {w.types.vector(element)}, ptr {columns}, i64 {at}")
    in_columns = [w.assign(f"getelementptr {w.types.vector(element)}, ptr {first}, i64 {k}") for k in range(width)]
    places = [[in_rows[k + first] for first in range(0, lanes, width)] for k in range(width)]
    if name.startswith("out"):
        squares = _transposed(w, element, [_load(w, memory, lanes, x) for x in in_columns])
        for vector, parts in zip(squares, places, strict=True):
            for k, place in enumerate(parts):
                part = _shuffle(w, element, lanes, vector, "poison", range(k * width, (k + 1) * width))
                _store(w, memory, width, part, place)
    else:
        squares = [_joined(w, element, width, [_load(w, memory, width, x) for x in parts]) for parts in places]
        for vector, place in zip(_transposed(w, element, squares), in_columns, strict=True):
            _store(w, memory, lanes, vector, place)
    w.put(f"%{top}.next = add i64 %{top}.at, {width}")
    more = w.assign(f"icmp slt i64 %{top}.next, {size}")
    w.put(f"br i1 {more}, label %{top}, label %{top}.done")
    w.label(f"{top}.done")


def _transposed(w: Writer, element: str, vectors: Sequence[str]) -> list[str]:
    lanes = w.types.lanes
    return transposed(vectors, lanes, functools.partial(_shuffle, w, element, lanes))


def transposed(vectors: Sequence[str], lanes: int, shuffle: Callable[[str, str, Sequence[int]], str]) -> list[str]:
    """Transpose squares that lie side by side: the vectors are their rows, as many as a square is wide.

    shuffle: writes the vector of these lanes of two others. Each turn of the loop swaps two quarters of ever larger
    squares.
    """
    found, half = list(vectors), 1
    while half < len(found):
        one = [j if not j & half else lanes + j - half for j in range(lanes)]
        other = [j + half if not j & half else lanes + j for j in range(lanes)]
        for i in (i for i in range(len(found)) if not i & half):
            a, b = found[i], found[i + half]
            found[i], found[i + half] = (shuffle(a, b, places) for places in (one, other))
        half *= 2
    return found


def _joined(w: Writer, element: str, width: int, parts: Sequence[str]) -> str:
    """Join vectors of this width, one behind the other."""
    while len(parts) > 1:
        pairs = zip(parts[::2], parts[1::2], strict=True)
        parts = [_shuffle(w, element, width, a, b, range(2 * width)) for a, b in pairs]
        width *= 2
    return parts[0]


def _shuffle(w: Writer, element: str, width: int, a: str, b: str, places: Iterable[int]) -> str:
    vector, of = f"<{width} x {element}>", [f"i32 {k}" for k in places]
    return w.assign(f"shufflevector {vector} {a}, {vector} {b}, <{len(of)} x i32> <{', '.join(of)}>")


def _load(w: Writer, memory: tuple[str, int], width: int, place: str) -> str:
    return w.assign(f"load <{width} x {memory[0]}>, ptr {place}, align {memory[1]}")


def _store(w: Writer, memory: tuple[str, int], width: int, x: str, place: str) -> None:
    w.put(f"store <{width} x {memory[0]}> {x}, ptr {place}, align {memory[1]}")
