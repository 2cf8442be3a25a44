"""Products of matrices by a block of a GPU's threads: each keeps a block of the result in registers.

Per step along the sum, a thread of 4 x 4 results loads 8 numbers for 16 multiplications, four numbers at a time where
they are neighbours.
"""

from __future__ import annotations

from collections.abc import Sequence

from .block_text import FOUR, THREADS, BlockText, in_fours
from .steps import Multiply
from .text import Counted


def multiply(text: BlockText, step: Multiply, pointers: Sequence[str]) -> None:
    """Write a product."""
    out, a, b, start = step.out, step.a, step.b, step.start
    results = out.rows * out.columns
    height = next(h for h in (4, 2, 1) if h == 1 or results >= h * FOUR * THREADS)
    downs, rights = -(-out.rows // height), -(-out.columns // FOUR)
    with text.each(downs * rights) as item:
        down, right = text.split(item, rights)
        rows, columns = text.within(down, height, out.rows), text.within(right, FOUR, out.columns)
        left = text.assign(f"mul i64 {text.wide(right)}, {FOUR}")
        ends = [text.at(pointers[0], (row, out.row)) for row in rows]
        if start is None:
            sums = ["0.0"] * (height * FOUR)
        elif start == out:
            sums = [x for end in ends for x in _row(text, end, columns, left, in_fours(out))]
        else:
            sums = [text.load(text.at(pointers[3], (row, start.row))) for row in rows for _ in range(FOUR)]
        lefts = [text.at(pointers[1], (row, a.row)) for row in rows]
        wide = in_fours(b)
        by_rows = a.row == 1 and height > 1 and out.rows % height == 0 and in_fours(a)

        def add(sums: list[str], k: str | int, many: int) -> list[str]:
            """Write the next `many` terms of all sums, from number k on."""
            if many == FOUR and a.column == 1 and in_fours(a):
                of_a = [text.several(text.at(p, (k, 1))) for p in lefts]
            elif by_rows:
                at = [text.at(lefts[0], (k, a.column), (u, a.column)) for u in range(many)]
                of_a = [list(row) for row in zip(*(text.several(p, height) for p in at), strict=True)]
            else:
                of_a = [[text.load(text.at(p, (k, a.column), (u, a.column))) for u in range(many)] for p in lefts]
            for u in range(many):
                of_b = _row(text, text.at(pointers[2], (k, b.row), (u, b.row)), columns, left, wide)
                sums = [text.fma(of_a[m][u], of_b[n], sums[m * FOUR + n]) for m in range(height) for n in range(FOUR)]
            return sums

        whole, rest = divmod(a.columns, FOUR)
        if whole > 1:
            loop = Counted(text, whole, [("float", x) for x in sums])
            sums = add(loop.values, text.assign(f"mul i64 {loop.index}, {FOUR}"), FOUR)
            loop.close(sums)
        elif whole:
            sums = add(sums, 0, FOUR)
        if rest:
            sums = add(sums, whole * FOUR, rest)
        for m, end in enumerate(ends):
            some = f"icmp ult i32 {down}, {out.rows // height}" if m >= out.rows % height > 0 else None
            _store(text, step, sums[m * FOUR :][:FOUR], end, right, left, some)


def _row(text: BlockText, at: str, columns: Sequence[str], left: str, wide: bool) -> list[str]:
    """Write the load of four numbers of a row, which begins at an address."""
    if wide:
        return text.several(text.at(at, (left, 1)))
    return [text.load(text.at(at, (column, 1))) for column in columns]


def _store(
    text: BlockText, step: Multiply, sums: Sequence[str], end: str, right: str, left: str, some: str | None
) -> None:
    """Write the store of a row's results: only if the row exists, and only those whose columns exist."""
    whole, few = divmod(step.out.columns, FOUR)
    at = text.at(end, (left, 1))
    if whole:
        with text.when(some, f"icmp ult i32 {right}, {whole}" if few else None):
            if in_fours(step.out):
                text.put_four(sums, at)
            else:
                for n, x in enumerate(sums):
                    text.store(x, text.at(at, (n, 1)))
    if few:
        with text.when(some, f"icmp eq i32 {right}, {whole}" if whole else None):
            for n, x in enumerate(sums[:few]):
                text.store(x, text.at(at, (n, 1)))
