"""Products of matrices: blocks of rows and vectors of the result stay in registers while their sums grow."""

from __future__ import annotations

from collections.abc import Sequence

from .steps import Multiply, even, runs
from .text import Counted, MatrixText

ROWS = 12  # of a block, at most
Terms = tuple[tuple[str | int, int], ...]  # of an address: an index, and by how much it counts


def multiply(text: MatrixText, step: Multiply, registers: int, pairs: bool = False) -> None:
    """Write a product; of pairs of bfloat16 if `pairs` is True.

    Blocks are as large as this many vector registers allow: 24 of 32 hold sums, or 12 of 16.
    """
    sums = registers * 3 // 4
    vectors, few = -(-step.out.columns // text.lanes), step.out.columns % text.lanes
    whole = step.out.row >= vectors * text.lanes  # nothing else stands where a row's last vector reaches to
    groups = even(vectors, 4 if registers == 32 else 2)
    last = len(groups) - 1
    wide = runs(groups if whole or not few else groups[:last])
    parts = [(first, size, count, 0) for first, size, count in wide]
    if few and not whole:
        parts.append((sum(groups[:last]), groups[last], 1, few))
    downs = {width: runs(even(step.out.rows, min(ROWS, sums // width))) for _, width, _, _ in parts}
    below = {width: sum(blocks for _, _, blocks in down) for width, down in downs.items()}
    total, done = sum(below[width] * count for _, width, count, _ in parts), 0
    for first, width, count, masked in parts:
        with text.loop(count) as group:
            terms = (first, text.lanes), (group, width * text.lanes)
            out, b = (text.at(pointer, *terms) for pointer in ("%p0", "%p2"))
            for row, height, blocks in downs[width]:
                with text.loop(blocks) as block:
                    ahead = _ahead(text, step, total, ((done, 1), (group, below[width]), (block, 1)))
                    _block(text, step, out, b, ((row, 1), (block, height)), height, width, masked, pairs, ahead)
                done += blocks
        done += below[width] * (count - 1)


def _ahead(text: MatrixText, step: Multiply, blocks: int, number: Terms) -> list[tuple[str, int]]:
    """Write the addresses of the rows that one of `blocks` blocks fetches, and list them with the numbers by which a
    turn of the block's loop moves on in them. The block's number is the sum of the products of `number`.
    """
    found = []
    names = [f"%p{k}" for k in range(len(step.matrices))][len(step.matrices) - 2 * len(step.ahead) :]
    for (source, index), of, at in zip(step.ahead, names[::2], names[1::2], strict=True):
        each = -(-index.columns // blocks)
        for k in range(each):
            place = text.total((k, 1), *((n, by * each) for n, by in number))
            place = text.assign(f"call i64 @llvm.umin.i64(i64 {place}, i64 {index.columns - 1})")
            row = text.assign(f"load i64, ptr {text.at(at, (place, 1), of='i64')}")
            found.append((text.at(of, (row, source.row)), -(-source.columns // step.a.columns)))
    return found


def _block(
    text: MatrixText,
    step: Multiply,
    out: str,
    b: str,
    row: Terms,
    height: int,
    width: int,
    masked: int,
    pairs: bool,
    ahead: Sequence[tuple[str, int]],
) -> None:
    """Write the product of some rows of `a` and some vectors of `b`."""
    places = [(m, n) for m in range(height) for n in range(width)]
    few = {n: masked if n == width - 1 else 0 for n in range(width)}

    def rows_from(pointer: str, stride: int) -> str:
        return text.at(pointer, *((index, size * stride) for index, size in row))

    out, a = rows_from(out, step.out.row), rows_from("%p1", step.a.row)
    ends = [text.at(out, (m, step.out.row), (n, text.lanes)) for m, n in places]
    if step.start is None:
        before = ["zeroinitializer"] * len(places)
    elif step.start == step.out:
        before = [text.load(end, few[n]) for end, (_, n) in zip(ends, places, strict=True)]
    else:
        start = rows_from("%p3", step.start.row)
        one = [text.spread(text.at(start, (m, step.start.row))) for m in range(height)]
        before = [one[m] for m, _ in places]
    loop = Counted(text, step.a.columns, [(text.vector, x) for x in before])
    a, b = text.at(a, (loop.index, step.a.column)), text.at(b, (loop.index, step.b.row))
    for fetched, by in ahead:
        text.fetch(text.at(fetched, (loop.index, by)))
    right = [text.load(text.at(b, (n, text.lanes))) for n in range(width)]
    sums, add = [], text.dot if pairs else text.fma
    for m in range(height):
        left = text.spread(text.at(a, (m, step.a.row)))
        sums += [add(left, right[n], loop.values[m * width + n]) for n in range(width)]
    loop.close(sums)
    for x, end, (_, n) in zip(sums, ends, places, strict=True):
        text.store(x, end, few[n])
