"""Arrays that a GPU's threads keep in the order of their lists: which these are, and that no bit tells."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from kernels import record_list
from test_cuda import on_both

from torch_mjenvs.compiler.active_sets import (
    active_set,
    choose_each,
    compute_each,
    compute_parts,
    everything,
    fold_each,
    for_all,
    part,
    put_each,
)
from torch_mjenvs.compiler.arrays import Array, Table
from torch_mjenvs.compiler.control import repeat, when_any
from torch_mjenvs.compiler.llvm.list_order import arrays_in_list_order
from torch_mjenvs.compiler.queues import Needed, compute_queued

N = 6
pytestmark = pytest.mark.cpu  # which interprets a GPU's code
WEIGHTS = Table([float(2**k) for k in range(2 * N)])


def positive(x: list) -> object:
    return active_set([v > 0.0 for v in x])


def twice(which: object, x: list) -> Array:
    values = Array(list(x))
    return compute_each(which, lambda i: [2.0 * values[i], WEIGHTS[i]])


def summed(which: object, row: Callable[[object], list]) -> list:
    return fold_each(which, lambda i, c: [0.5 * c[0] + row(i)[0], c[1] + row(i)[1]], [0.0, 0.0])


def one_list(x: list) -> list:
    which = positive(x)
    rows = twice(which, x)
    return summed(which, lambda i: rows[i]) + summed(which, lambda i: [rows[i, 1], 1.0])


def chosen(x: list) -> list:
    values = Array(list(x))
    which = choose_each(everything(N), lambda i: [values[i] < 0.5], N)
    rows = twice(which, x)
    return summed(which, lambda i: rows[i]) + [0.0, 0.0]


def parts(x: list) -> list:
    which, values = positive(x), Array(list(x))
    rows = compute_parts(which, lambda i: [[values[i], 1.0], [WEIGHTS[i], values[i]]], N)
    return summed(which, lambda i: rows[i]) + summed(which, lambda i: rows[part(i, 1, N)])


def queued(x: list) -> list:
    which, values = positive(x), Array(list(x))
    both = lambda given: [[3.0 * given[0], given[1]], [given[1], 5.0]]  # noqa: E731
    ((rows, _),) = compute_queued([Needed(which, N, lambda i: [values[i], WEIGHTS[i], 1.0])], both)
    return summed(which, lambda i: rows[i]) + summed(which, lambda i: rows[part(i, 1, N)])


def within_a_block(x: list) -> list:
    return when_any(x[0] > 0.0, lambda c: one_list(x), [0.0] * 4)


def read_in_a_part_of_it(x: list) -> list:
    which = positive(x)
    rows = twice(which, x)
    some = choose_each(which, lambda i: [rows[i, 0] > 1.0], N)
    return summed(which, lambda i: rows[i]) + summed(some, lambda i: rows[i])


def read_at_a_row(x: list) -> list:
    which = everything(N)
    rows = twice(which, x)
    return summed(which, lambda i: rows[i]) + [rows[2, 0], rows[5, 1]]


def read_at_a_partner(x: list) -> list:
    which = everything(N)
    rows, partner = twice(which, x), Table([3, 4, 5, 0, 1, 2])
    return summed(which, lambda i: rows[partner[i]]) + [0.0, 0.0]


def kept_from_list_to_list(x: list) -> list:
    """Rows of an iteration are read in the next one, when the list is another."""
    rows = Array(rows=N, columns=2)
    put_each(everything(N), lambda i: (i, [0.0, 0.0]), rows)

    def turn(k: object, carry: list) -> list:
        which = active_set([v > Table([-0.5, 0.0, 0.5])[k] for v in x])
        found = summed(which, lambda i: rows[i])

        def put(i: object, nothing: list) -> list:
            rows.put(i, [rows[i, 0] + WEIGHTS[i], 1.0])
            return nothing

        fold_each(which, lambda i, c: repeat(1, lambda _, n: put(i, n), c, [rows]), [], [rows])
        return [carry[0] + found[0], carry[1] + found[1], *carry[2:]]

    return repeat(3, turn, [0.0] * 4, [rows])


def with_contents(x: list) -> list:
    which, rows = positive(x), Array([[v, 3.0] for v in x])
    put_each(which, lambda i: (i, [rows[i, 0] + 1.0, WEIGHTS[i]]), rows)
    return summed(which, lambda i: rows[i]) + [0.0, 0.0]


IN_ORDER = [one_list, chosen, parts, queued, within_a_block]
BY_NUMBER = [read_in_a_part_of_it, read_at_a_row, read_at_a_partner, kept_from_list_to_list, with_contents]


@pytest.mark.parametrize("body", [*IN_ORDER, *BY_NUMBER], ids=lambda body: body.__name__)
def test_the_bits_are_those_of_rows_by_number(body):
    program = record_list(body, N, 4, "float32")
    of_two = [x for x in arrays_in_list_order(program.live) if x.attr.columns == 2]
    assert len(of_two) == (0 if body in BY_NUMBER else 2 if body is queued else 1)  # what is given stands in order, too
    x = torch.randn(N, 80, generator=torch.Generator().manual_seed(0)).numpy()
    y = on_both(program, {"x": x})["y"]
    assert np.isfinite(y).all() and len(np.unique(y[0])) > 30


def test_a_loop_for_all_worlds_goes_through_the_same_list():
    def body(x: list) -> list:
        which = positive(x)
        rows = twice(which, x)
        return summed(for_all(which), lambda i: rows[i])

    assert len(arrays_in_list_order(record_list(body, N, 2, "float32").live)) == 1
