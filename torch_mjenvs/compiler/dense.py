"""Large matrices without zeros: their factors by loops, whose code does not grow with them.

Written out, to factor a matrix of 81 rows is 180,000 operations, which take a minute to compile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .arrays import Array, Table
from .control import count_while
from .expr import Expr, is_tracing
from .scalar import Scalar, maximum, number

BLOCK = 8  # entries of a row that are done at once
Row = Mapping[int, Scalar]


def factor_dense(rows: Sequence[Row], least: Sequence[float]) -> tuple[list[dict[int, Scalar]], list[Scalar]]:
    """Factor A = L^T D L into L and 1 / D. A's lower triangle is given by rows; L without its diagonal, which is 1.

    least: of each pivot.
    """
    n = len(rows)
    full = [[row.get(j, 0.0) for j in range(i + 1)] for i, row in enumerate(rows)]
    if not is_tracing():
        return _factor(full, least)
    return _factor_in_loops(full, least, n)


def _factor(a: list[list[Scalar]], least: Sequence[float]) -> tuple[list[dict[int, Scalar]], list[Scalar]]:
    inverse: list[Scalar] = [0.0] * len(a)
    for k in range(len(a) - 1, -1, -1):
        inverse[k] = 1.0 / maximum(a[k][k], least[k])
        for i in range(k):
            for j in range(i + 1):
                a[i][j] = a[i][j] - a[k][i] * inverse[k] * a[k][j]
    return [{j: x * inverse[k] for j, x in enumerate(row[:k])} for k, row in enumerate(a)], inverse


def _factor_in_loops(
    full: list[list[Scalar]], least: Sequence[float], n: int
) -> tuple[list[dict[int, Scalar]], list[Scalar]]:
    """Factor in loops over blocks of rows: from the last on, each row is taken off those before it."""
    blocks = [i // BLOCK + 1 for i in range(n)]  # of each row
    starts = [sum(blocks[:i]) for i in range(n)]
    held = [
        (row + [0.0] * BLOCK)[BLOCK * b : BLOCK * b + BLOCK] for row in full for b in range((len(row) - 1) // BLOCK + 1)
    ]
    a, pivot_row, inverse = Array(held), Array(rows=BLOCK * blocks[-1]), Array(rows=n)
    backwards = range(n - 1, -1, -1)

    def take_off(t: Expr, c: Scalar) -> Scalar:
        k, row = Table(backwards)[t], Table([starts[k] for k in backwards])[t]
        wide, before = (Table([float(x) for x in xs])[t] for xs in ([blocks[k] for k in backwards], backwards))

        def copy(b: Expr, c: Scalar) -> Scalar:
            at = Table([BLOCK * b for b in range(blocks[-1])])[b]
            for m, x in enumerate(a[row + b]):
                pivot_row.put(at + m if m else at, x, None)
            return c

        count_while(lambda b, _: number(b) < wide, copy, 0.0, blocks[-1], [pivot_row])
        share = 1.0 / maximum(pivot_row[k], Table([least[k] for k in backwards])[t])
        inverse.put(k, share, None)

        def scale(b: Expr, c: Scalar) -> Scalar:
            a.put(row + b, [x * share for x in a[row + b]], None)
            return c

        count_while(lambda b, _: number(b) < wide, scale, 0.0, blocks[-1], [a])

        def from_row(i: Expr, c: Scalar) -> Scalar:
            target, x = Table(starts)[i], pivot_row[i]

            def from_block(b: Expr, c: Scalar) -> Scalar:
                new = [y - x * z for y, z in zip(a[target + b], a[row + b], strict=True)]
                a.put(target + b, new, None)
                return c

            width = Table([float(x) for x in blocks])[i]
            done: Scalar = count_while(lambda b, _: number(b) < width, from_block, c, blocks[-1], [a])
            return done

        done: Scalar = count_while(lambda i, _: number(i) < before, from_row, c, n, [a])
        return done

    count_while(lambda t, c: True, take_off, 0.0, n, [a, pivot_row, inverse])
    factors = [{j: a[starts[k] + j // BLOCK, j % BLOCK] for j in range(k)} for k in range(n)]
    return factors, [inverse[k] for k in range(n)]
