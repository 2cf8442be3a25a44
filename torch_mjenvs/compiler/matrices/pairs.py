"""Products of bfloat16: how numbers are rounded and paired, and the product by AMX, a processor's unit for matrices.

AMX has eight registers, tiles of 16 rows of 64 bytes. Its product of two tiles has 16 x 16 results in float32, to each
of which it adds 16 products of pairs.
"""

from __future__ import annotations

from ..llvm.transpose import transposed
from .steps import Multiply, Pairs, Regroup, even, runs
from .text import MatrixText

TILE = 16  # rows of a tile, and numbers of 32 bits in each

# A configuration as eight i64: the first palette; for each tile, 64 bytes per row (16 bits each) and 16 rows (8 bits
# each).
CONFIGURATION = (1, 0, 0x0040_0040_0040_0040, 0x0040_0040_0040_0040, 0, 0, 0x1010_1010_1010_1010, 0)


def configure(text: MatrixText) -> None:
    """Write what a thread does before its first tile."""
    at = text.assign("alloca [64 x i8], align 64")
    for k, number in enumerate(CONFIGURATION):
        text.put(f"store i64 {number}, ptr {text.at(at, (k, 1), of='i64')}")
    text.put(f"call void @llvm.x86.ldtilecfg(ptr {at})")


def release(text: MatrixText) -> None:
    """Write what a thread does after its last tile."""
    text.put("call void @llvm.x86.tilerelease()")


def multiply_tiles(text: MatrixText, step: Multiply) -> None:
    """Write a product by AMX: four tiles of the result at a time grow in registers 0 to 3."""
    out, a, b = step.out, step.a, step.b
    for top, height, downs in runs(even(-(-out.rows // TILE), 2)):
        for left, width, rights in runs(even(-(-out.columns // TILE), 2)):
            with text.loop(downs) as down, text.loop(rights) as right:
                rows, columns = ((top, TILE), (down, height * TILE)), ((left, TILE), (right, width * TILE))

                def place(pointer: str, row: int, column: int) -> str:
                    """Write the block's address in a matrix with rows `row` and columns `column` numbers apart."""
                    ways = [(n, size * row) for n, size in rows] + [(n, size * column) for n, size in columns]  # noqa: B023
                    return text.at(pointer, *ways)

                ends = place("%p0", out.row, 1)
                blocks = [(m, n) for m in range(height) for n in range(width)]
                start = place("%p3", step.start.row, 0 if step.start != out else 1) if step.start else ""
                for m, n in blocks:
                    if step.start is None:
                        text.put(f"call void @llvm.x86.tilezero(i8 {2 * m + n})")
                    else:
                        one = text.at(start, (m, TILE * step.start.row), (n, TILE if step.start == out else 0))
                        _move(text, "loadd", 2 * m + n, one, step.start.row)
                lefts, tops = place("%p1", a.row, 0), place("%p2", 0, 1)
                with text.loop(-(-a.columns // TILE)) as k:
                    for m in range(height):
                        _move(text, "loadd", 4 + m, text.at(lefts, (k, TILE), (m, TILE * a.row)), a.row)
                    for n in range(width):
                        _move(text, "loadd", 6 + n, text.at(tops, (k, TILE * b.row), (n, TILE)), b.row)
                    for m, n in blocks:
                        text.put(f"call void @llvm.x86.tdpbf16ps(i8 {2 * m + n}, i8 {4 + m}, i8 {6 + n})")
                for m, n in blocks:
                    _move(text, "stored", 2 * m + n, text.at(ends, (m, TILE * out.row), (n, TILE)), out.row)


def _move(text: MatrixText, how: str, tile: int, at: str, row: int) -> None:
    text.put(f"call void @llvm.x86.tile{how}64(i8 {tile}, ptr {at}, i64 {4 * row})")


def pairs(text: MatrixText, step: Pairs) -> None:
    """Write the rounding of numbers and their pairing."""
    if step.out.column != 1:
        _of_columns(text, step)
    elif step.x.column == 1:
        _of_rows(text, step)
    else:
        _transposed(text, step)


def _of_rows(text: MatrixText, step: Pairs) -> None:
    """Pair each row with the one below it."""
    whole, alone = divmod(step.x.rows, 2)
    vectors, few = divmod(step.x.columns, text.lanes)

    def row(i: str | int, both: bool) -> None:
        x, out = text.at("%p1", (i, 2 * step.x.row)), text.at("%p0", (i, step.out.row))

        def one(k: str | int, few: int) -> None:
            first = text.load(text.at(x, (k, text.lanes)), few)
            second = text.load(text.at(x, (k, text.lanes), (1, step.x.row)), few) if both else "zeroinitializer"
            text.store(text.paired(first, second), text.at(out, (k, text.lanes)))

        if vectors:
            with text.loop(vectors) as k:
                one(k, 0)
        if few:
            one(vectors, few)

    if whole:
        with text.loop(whole) as i:
            row(i, True)
    if alone:
        row(whole, False)


def _of_columns(text: MatrixText, step: Pairs) -> None:
    """Pair neighbours: the columns of both matrices are rows in memory."""
    lanes = text.lanes
    vectors, few = divmod(step.x.rows, 2 * lanes)
    with text.loop(step.x.columns) as i:
        x, out = text.at("%p1", (i, step.x.column)), text.at("%p0", (i, step.out.column))
        if vectors:
            with text.loop(vectors) as k:
                text.store(_packed(text, text.at(x, (k, 2 * lanes)), 2 * lanes), text.at(out, (k, lanes)))
        if few:
            text.store(_packed(text, text.at(x, (vectors, 2 * lanes)), few), text.at(out, (vectors, lanes)))


def _transposed(text: MatrixText, step: Pairs) -> None:
    """Pair neighbours in the columns of x, which are rows in memory, and transpose the pairs in squares."""
    lanes = text.lanes
    for first, size, downs in _blocks(step.x.columns, lanes):
        for begin, width, rights in _blocks(step.x.rows, 2 * lanes):
            with text.loop(downs) as down, text.loop(rights) as right:
                row, below = step.x.column, step.out.row
                x = text.at("%p1", (first, row), (down, lanes * row), (begin, 1), (right, 2 * lanes))
                out = text.at("%p0", (begin // 2, below), (right, lanes * below), (first, 1), (down, lanes))
                square = [_packed(text, text.at(x, (k, row)), width) for k in range(size)]
                square += ["zeroinitializer"] * (lanes - size)
                for k, vector in enumerate(transposed(square, lanes, text.shuffle)[: -(-width // 2)]):
                    text.store(vector, text.at(out, (k, below)))


def regroup(text: MatrixText, step: Regroup) -> None:
    """Write the regrouping of pairs along rows into pairs along columns: a vector of two rows at a time."""
    lanes = text.lanes
    whole, more = divmod(step.out.row, 2 * lanes)
    with text.loop(step.out.rows) as i:
        x, out = text.at("%p1", (i, 2 * step.x.row)), text.at("%p0", (i, step.out.row))

        def one(k: str | int, halves: int) -> None:
            a, b = (text.load(text.at(x, (k, lanes), (row, step.x.row))) for row in (0, 1))
            for half in range(halves):
                text.store(text.zipped(a, b, half), text.at(out, (k, 2 * lanes), (half, lanes)))

        if whole:
            with text.loop(whole) as k:
                one(k, 2)
        if more:
            one(whole, 1)


def _packed(text: MatrixText, at: str, many: int) -> str:
    """Write a vector of the pairs of this many neighbours, and zeros."""
    lanes = text.lanes
    a = text.load(at, many if many < lanes else 0)
    if many <= lanes:
        return text.packed(a, "zeroinitializer")
    return text.packed(a, text.load(text.at(at, (1, lanes)), many % lanes))


def _blocks(total: int, size: int) -> list[tuple[int, int, int]]:
    """List blocks of a size, and one of what is left: (where the first one starts, its size, how many there are)."""
    whole, few = divmod(total, size)
    return [(0, size, whole)] * (whole > 0) + [(whole * size, few, 1)] * (few > 0)
