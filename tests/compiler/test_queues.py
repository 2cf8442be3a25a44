"""A queue does in any lane what some world has to do, and each world finds what it would have found by itself."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from graph_eval import run_ptx, trace
from kernels import LANES
from test_control import check, whole_numbers

from torch_mjenvs.compiler.active_sets import active_set, compute_parts, fold_each, part
from torch_mjenvs.compiler.arrays import Array, Table
from torch_mjenvs.compiler.control import count_while, when_any, while_any
from torch_mjenvs.compiler.program import Buffer, record
from torch_mjenvs.compiler.queues import Needed, compute_queued, queued
from torch_mjenvs.compiler.scalar import absolute, floor, number

MOST = 5


def _entries(x: list) -> tuple[Array, object]:
    """The numbers of a list above 0, and how many they are: from none to all of them."""
    rows = Array(rows=MOST + 1, columns=2)

    def put(i: object, count: object) -> object:
        rows.put(count, [values[i], 10.0 * values[i]], values[i] > 0.0)
        return count + when_any(values[i] > 0.0, lambda _: 1.0, 0.0)

    values = Array(list(x))
    return rows, count_while(lambda i, _: number(i) < 5.0, put, 0.0, 5, [rows])


def _work(k: object, given: list, rows: Array, found: Array, whose: Array) -> None:
    """What takes a while, differs from entry to entry, and reads the world's own arrays, tables, and arrays within."""
    shift, constant = given
    value, tenfold = rows[k]
    inner = Array([value, shift, constant])
    halved = while_any(lambda c: c[0] > 1.5, lambda c: [c[0] * 0.5, c[1] + 1.0], [absolute(value), 0.0], 9)
    last = when_any(tenfold > 50.0, lambda c: c + Table([1.0, 2.0, 3.0])[1.0], inner[1.0])
    total = count_while(lambda i, _: number(i) < halved[1], lambda i, c: c + inner[number(i)], last, 3)
    found.put(k, [value, halved[1], total + whose[0], whose[1]], None)


def _sums(found: Array, count: object) -> list:
    def add(i: object, c: list) -> list:
        return [x + (number(i) + 1.0) * y for x, y in zip(c, found[i], strict=True)]

    return count_while(lambda i, _: number(i) < count, add, [0.0] * 4, MOST)


def test_each_world_finds_what_it_would_have_by_itself():
    def body(x: list) -> list:
        rows, count = _entries(x)
        found, whose = Array(rows=MOST, columns=4), Array([x[0], 3.0 * x[4]])
        queued(count, lambda k, given: _work(k, given, rows, found, whose), [x[2] - x[3], 4.0], MOST, [found])
        return [count, *_sums(found, count)]

    x = whole_numbers(5)
    want = check(body, x, LANES)
    ptx = run_ptx(trace(lambda b: {"y": body(b["x"])}, {"x": x}, {"y": (5, "f")}, "float64"), {"x": x})
    np.testing.assert_array_equal(ptx["y"], want)  # a thread goes through its own list
    assert set(want[0]) == {0.0, 1.0, 2.0, 3.0, 4.0, 5.0}
    first = np.where(x > 0, x, 0)
    np.testing.assert_array_equal(want[1], (first * np.cumsum(x > 0, 0)).sum(0))


def test_a_queue_in_a_loop_is_for_the_worlds_that_go_on():
    def body(x: list) -> list:
        kept = Array([[0.0, 0.0]] * 5)

        def turn(c: list) -> list:
            rows, count = _entries([v - c[0] for v in x])
            queued(count, lambda k, _: kept.put(k, [rows[k, 0] + kept[k, 0], kept[k, 1] + 1.0], None), [], MOST, [kept])
            return [c[0] + 4.0]

        out = count_while(lambda i, c: c[0] < x[0], lambda i, c: turn(c), [0.0], 6, [kept])
        return [*out, *(kept[k, j] for k in range(5) for j in range(2))]

    want = check(body, whole_numbers(5, 1), LANES)
    assert want[0].min() == 0.0 and want[0].max() > 12.0


def test_a_queue_may_be_in_a_block_and_in_a_loop_over_an_active_set():
    def body(x: list) -> list:
        which = active_set([v > 5.0 for v in x])

        def turn(i: object, c: list) -> list:
            found = Array(rows=MOST, columns=1)
            rows, count = _entries([v + c[0] * 0.25 for v in x])

            def within(c: list) -> list:
                queued(count, lambda k, given: found.put(k, [rows[k, 1] + given[0]], None), [c[1]], MOST, [found])
                total = count_while(lambda j, _: number(j) < count, lambda j, t: t + found[j, 0], 0.0, MOST)
                return [floor(total), c[1] + 1.0]

            return when_any(c[1] < 2.5, within, c)

        return fold_each(which, turn, [0.0, x[4] * 0.0])

    check(body, whole_numbers(5, 2), LANES)


def test_more_entries_than_a_list_may_have_are_left_out():
    def body(x: list) -> list:
        found = Array([[0.0]] * 3)
        queued(absolute(x[0]), lambda k, _: found.put(k, [1.0], None), [], 3, [found])
        return [found[k, 0] for k in range(3)]

    want = check(body, whole_numbers(1), LANES)
    np.testing.assert_array_equal(want.sum(0), np.minimum(np.abs(whole_numbers(1)[0]), 3))


def _both_parts(given: dict) -> list:
    """Two rows of what takes a while: how often a number is halved, and what is left."""
    halved = while_any(lambda c: c[0] > 1.5, lambda c: [c[0] * 0.5, c[1] + 1.0], [absolute(given["x"]), given["y"]], 9)
    return [[halved[0], given["z"]], [halved[1], Table([1.0, 2.0, 3.0])[halved[1]]]]


def _each_of(x: list, compute: Callable) -> list:
    """The sums of both parts over three sets, weighted by number: `compute` is `compute_queued`, or does the same."""
    values = Array(list(x))
    sets = [
        Needed(active_set([v > 0.0 for v in x]), 5, lambda i: {"x": values[i], "y": x[0], "z": 3.0}),
        Needed(active_set([v < -4.0 for v in x[1:]]), 4, lambda i: {"x": 1.0, "y": values[part(i, 1, 1)], "z": 3.0}),
        Needed(active_set([x[3] > 12.0]), 1, lambda i: {"x": x[3], "y": 2.0, "z": 3.0}),
    ]
    total = [0.0] * 4
    for found, needed in zip(compute(sets, _both_parts), sets, strict=True):
        rows, start = found

        def add(i: object, c: list, rows: Array = rows, start: int = start, n: int = needed.n) -> list:
            weight = Table([1.0, 2.0, 4.0, 8.0, 16.0])[i]
            both = [*rows[part(i, 1, start)], *rows[part(i, 1, start + n)]]
            return [sum_ + weight * y for sum_, y in zip(c, both, strict=True)]

        total = fold_each(needed.which, add, total)
    return total


def _one_by_one(sets: list, compute: Callable) -> list:
    return [(compute_parts(x.which, lambda i, x=x: compute(x.prepare(i)), x.n), 0) for x in sets]


def test_what_worlds_need_of_sets_is_computed_in_any_lane_by_code_that_exists_once():
    x = whole_numbers(5, 3)
    want = check(lambda x: _each_of(x, compute_queued), x, LANES)
    np.testing.assert_array_equal(want, check(lambda x: _each_of(x, _one_by_one), x))
    program = trace(lambda b: {"y": _each_of(b["x"], compute_queued)}, {"x": x}, {"y": (4, "f")}, "float64")
    np.testing.assert_array_equal(run_ptx(program, {"x": x})["y"], want)
    assert sorted(e.op for e in program.live if e.op in ("queue_each", "while")) == ["queue_each", "while"]


def test_what_worlds_need_of_one_set_is_computed_in_any_lane():
    def body(x: list, compute: Callable) -> list:
        values, which = Array(list(x)), active_set([v > 0.0 for v in x])
        given = Needed(which, 5, lambda i: {"x": values[i], "y": x[0], "z": 3.0})
        ((rows, start),) = compute([given], _both_parts)
        assert start == 0
        return fold_each(
            which, lambda i, c: [0.5 * a + b for a, b in zip(c, [*rows[i], *rows[part(i, 1, 5)]], strict=True)],
            [0.0] * 4,
        )  # fmt: skip

    x = whole_numbers(5, 3)
    np.testing.assert_array_equal(
        check(lambda x: body(x, compute_queued), x, LANES), check(lambda x: body(x, _one_by_one), x)
    )


def test_a_set_in_a_block_is_queued_for_the_worlds_of_the_block():
    def body(x: list) -> list:
        return when_any(x[4] > 3.0, lambda c: [*_each_of(x, compute_queued)[1:], c[3]], [x[0], x[1], x[2], 7.0])

    check(body, whole_numbers(5, 4), LANES)


def test_of_a_set_what_is_not_given_is_refused():
    def body(columns: dict) -> dict:
        x = columns["x"]
        which = active_set([v > 0.0 for v in x])
        ((found, _),) = compute_queued([Needed(which, 2, lambda i: [])], lambda _: [[x[0] + 1.0]])
        return {"y": [found[0, 0]]}

    with pytest.raises(ValueError, match="from outside: give it"):
        record("test", [Buffer("x", 2), Buffer("y", 1)], body, "float32")


@pytest.mark.parametrize("value", [lambda x: x + 1.0, lambda x: x, lambda x: when_any(x > 0.0, lambda c: c + x, 1.0)])
def test_what_is_not_given_is_refused(value):
    def body(columns: dict) -> dict:
        (x,) = columns["x"]
        found = Array(rows=3, columns=1)
        queued(3.0, lambda k, _: found.put(k, [value(x)], None), [], 3, [found])
        return {"y": [found[0, 0]]}

    with pytest.raises(ValueError, match="from outside: give it"):
        record("test", [Buffer("x", 1), Buffer("y", 1)], body, "float32")
