"""Steps that move numbers from lane to lane: transposes and sums of rows; and the gathering of rows."""

from __future__ import annotations

from ..llvm.transpose import transposed
from .steps import Gather, RowSums, Transpose
from .text import Counted, MatrixText


def transpose(text: MatrixText, step: Transpose) -> None:
    """Write a transpose, in squares as wide as a vector."""
    lanes = text.lanes
    with text.loop(-(-step.x.rows // lanes)) as down, text.loop(-(-step.x.columns // lanes)) as right:
        x = text.at("%p1", (down, lanes * step.x.row), (right, lanes))
        out = text.at("%p0", (right, lanes * step.out.row), (down, lanes))
        square = [text.load(text.at(x, (k, step.x.row))) for k in range(lanes)]
        for k, vector in enumerate(transposed(square, lanes, text.shuffle)):
            text.store(vector, text.at(out, (k, step.out.row)))


def row_sums(text: MatrixText, step: RowSums) -> None:
    """Write the sums of rows, as many rows at a time as a vector has lanes."""
    lanes = text.lanes
    blocks, few = divmod(step.x.rows, lanes)
    if blocks:
        with text.loop(blocks) as block:
            _add_sums(text, step, block, lanes)
    if few:
        _add_sums(text, step, blocks, few)


def _add_sums(text: MatrixText, step: RowSums, block: str | int, rows: int) -> None:
    lanes = text.lanes
    x = text.at("%p1", (block, lanes * step.x.row))
    out = text.at("%p0", (block, lanes))
    vectors = [_row_sum(text, text.at(x, (k, step.x.row)), step.x.columns // lanes) for k in range(rows)]
    vectors += ["zeroinitializer"] * (lanes - rows)
    distance = 1
    while distance < lanes:  # each turn halves the vectors, and doubles the rows that share one
        pairs = zip(vectors[::2], vectors[1::2], strict=True)
        low = [_place(i, distance, lanes) for i in range(lanes)]
        high = [place + distance for place in low]
        vectors = [
            a if a == b == "zeroinitializer" else text.add(text.shuffle(a, b, low), text.shuffle(a, b, high))
            for a, b in pairs
        ]
        distance *= 2
    few = rows % lanes
    text.store(text.add(text.load(out, few), vectors[0]), out, few)


def _place(i: int, distance: int, lanes: int) -> int:
    """Find where lane i comes from: parts of a and b take turns, each `distance` wide."""
    start, within = i - i % (2 * distance), i % (2 * distance)
    return start + within % distance + (lanes if within >= distance else 0)


def _row_sum(text: MatrixText, at: str, vectors: int) -> str:
    """Write the sum of a row's vectors."""
    if vectors <= 4:
        total = text.load(at)
        for k in range(1, vectors):
            total = text.add(total, text.load(text.at(at, (k, text.lanes))))
        return total
    loop = Counted(text, vectors, [(text.vector, "zeroinitializer")])
    total = text.add(loop.values[0], text.load(text.at(at, (loop.index, text.lanes))))
    loop.close([total])
    return total


def gather(text: MatrixText, step: Gather) -> None:
    """Write the copying of rows, by their numbers."""
    vectors, few = divmod(step.source.columns, text.lanes)
    with text.loop(step.out.rows) as i:
        number = text.assign(f"load i64, ptr {text.at('%p2', (i, 1), of='i64')}")
        source, out = text.at("%p1", (number, step.source.row)), text.at("%p0", (i, step.out.row))
        if vectors:
            with text.loop(vectors) as k:
                text.store(text.load(text.at(source, (k, text.lanes))), text.at(out, (k, text.lanes)))
        if few:
            at, whole = (vectors, text.lanes), step.out.row >= (vectors + 1) * text.lanes
            text.store(text.load(text.at(source, at), few), text.at(out, at), 0 if whole else few)
