"""Control flow means the same for floats, torch tensors and compiled kernels, at every number of lanes.

Most programs here compute with small whole numbers, where no rounding happens, so that all uses agree to the bit.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from kernels import DTYPES, GPU, LANES, at_lanes, bits, record_list, run

from torch_mjenvs.compiler.active_sets import (
    Packed,
    active_set,
    add_each,
    choose_each,
    compute_each,
    everything,
    fold_each,
    put_each,
)
from torch_mjenvs.compiler.arrays import Array, Table
from torch_mjenvs.compiler.control import choose_all, compute_any, here, repeat, when_any, while_any
from torch_mjenvs.compiler.llvm import render
from torch_mjenvs.compiler.own_lists import OwnList, merged
from torch_mjenvs.compiler.scalar import (
    absolute,
    clip,
    floor,
    logical_and,
    logical_not,
    logical_or,
    maximum,
    minimum,
    select,
)

WORLDS = 37  # the last vector is not full
Body = Callable[[list], list]


def whole_numbers(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(-20, 21, (n, WORLDS)).astype(np.float64)


def by_floats(body: Body, x: np.ndarray) -> np.ndarray:
    return np.array([body(column) for column in x.T.tolist()]).T


def by_torch(body: Body, x: np.ndarray, dtype: str) -> np.ndarray:
    n = x.shape[1]
    columns = body(list(torch.tensor(x, dtype=getattr(torch, dtype)).unbind()))
    return np.stack([torch.as_tensor(c).expand(n).cpu().numpy() for c in columns])


def by_kernel(body: Body, x: np.ndarray, dtype: str, lanes: int | torch.device) -> np.ndarray:
    n_out = len(body(x[:, 0].tolist()))
    program = record_list(body, len(x), n_out, dtype)
    return run(program, {"x": x}, at_lanes(dtype, lanes))["y"]


def check(body: Body, x: np.ndarray, lanes: tuple[int | torch.device, ...] = (1, 4, 16, *GPU)) -> np.ndarray:
    """All uses of a body agree; what they agree on."""
    want = by_floats(body, x)
    for dtype in DTYPES:
        np.testing.assert_array_equal(by_torch(body, x, dtype), want)
        for w in lanes:
            np.testing.assert_array_equal(by_kernel(body, x, dtype, w), want)
    return want


def test_when_any():
    def body(x):
        out = when_any(
            x[0] > 0.0, lambda c: {"a": c["a"] + x[1], "b": c["b"], "c": c["c"] - 1.0}, dict(a=x[1], b=x[0], c=5.0)
        )
        return [out["a"], out["b"], out["c"]]

    x = whole_numbers(2)
    want = check(body, x, LANES)
    np.testing.assert_array_equal(want, [np.where(x[0] > 0, 2 * x[1], x[1]), x[0], np.where(x[0] > 0, 4, 5)])


@dataclass
class Pair:
    """A carry, whose fields are in no alphabetical order."""

    second: Any
    first: list


def test_a_carry_may_hold_dataclasses():
    def body(x):
        one = when_any(x[0] > 0.0, lambda c: Pair(c.first[0], [c.second, 1.0]), Pair(x[0], [x[1], 2.0]))
        two = repeat(3, lambda i, c: {"in": Pair(c["in"].first[0], [c["in"].second + 1.0])}, {"in": Pair(x[0], [x[1]])})
        three = choose_all(x[0] > x[1], [one, two], [Pair(x[0], [x[0], 3.0]), two])
        assert type(three[0]) is Pair and type(three[1]["in"]) is Pair
        return [three[0].second, *three[0].first, two["in"].second, *two["in"].first]

    x = whole_numbers(2)
    want, (a, b) = check(body, x), x
    one = [np.where(a > 0, b, a), np.where(a > 0, a, b), np.where(a > 0, 1, 2)]
    chosen = [np.where(a > b, y, z) for y, z in zip(one, [a, a, np.full(WORLDS, 3)], strict=True)]
    np.testing.assert_array_equal(want, [*chosen, b + 1, a + 2])


def test_what_is_computed_here_may_be_used_outside_the_block_that_asked_for_it_first():
    """A product, and what a loop of its own finds."""

    def body(x):
        place, known = here(), {}

        def ask(name, compute):
            if name not in known:
                with place():
                    known[name] = compute()
            return known[name]

        def both():
            product = ask("product", lambda: x[0] * x[1])
            return [product, ask("gcd", lambda: gcd(1.0 + absolute(product), 1.0 + absolute(x[0]))[0])]

        inside = when_any(x[0] > 0.0, lambda c: when_any(x[1] > 0.0, lambda c: both(), c), [0.0, 0.0])
        looped = repeat(2, lambda i, c: [c[0] + ask("sum", lambda: x[0] + x[1])], [0.0])
        return [*inside, *both(), *looped, ask("sum", lambda: x[0] + x[1])]

    x = whole_numbers(2)
    want, (a, b) = check(body, x), x
    product, divisor = a * b, np.gcd((1 + np.abs(a * b)).astype(int), (1 + np.abs(a)).astype(int))
    asked = (a > 0) & (b > 0)
    rows = [np.where(asked, product, 0), np.where(asked, divisor, 0), product, divisor, 2 * (a + b), a + b]
    np.testing.assert_array_equal(want, rows)


@pytest.mark.parametrize("level", [-99.0, 99.0])
def test_when_any_for_no_world_and_for_all(level):
    x = whole_numbers(1)
    want = check(lambda x: when_any(x[0] > level, lambda c: [c[0] + 1.0], [x[0]]), x)
    np.testing.assert_array_equal(want, x + (level < 0))


def gcd(a, b):
    """By subtraction, so that the number of iterations depends on the data."""
    body = lambda c: [select(c[0] > c[1], c[0] - c[1], c[0]), select(c[0] > c[1], c[1], c[1] - c[0]), c[2] + 1.0]  # noqa: E731
    return while_any(lambda c: absolute(c[0] - c[1]) > 0.0, body, [a, b, 0.0], 100)


def test_while_any():
    x = 1 + absolute(whole_numbers(2))
    want = check(lambda x: gcd(x[0], x[1]), x, LANES)
    np.testing.assert_array_equal(want[0], np.gcd(*x.astype(int)))
    assert len(set(want[2])) > 5


@pytest.mark.parametrize("most", [0, 1, 3, 7])
def test_while_any_stops_at_its_limit(most):
    body = lambda x: while_any(lambda c: c[0] > 0.0, lambda c: [c[0] - 1.0, c[1] + 1.0], [x[0], 0.0], most)  # noqa: E731
    x = whole_numbers(1)
    np.testing.assert_array_equal(check(body, x)[1], np.clip(x[0], 0, most))


def test_a_world_whose_condition_was_false_is_done():
    """It stays as it is while the other lanes of its vector go on."""
    body = lambda x: while_any(lambda c: c[1] < x[0], lambda c: [c[0] + c[1], c[1] + 1.0], [0.0, 0.0], 50)  # noqa: E731
    x = whole_numbers(1)
    n = np.maximum(x[0], 0)
    np.testing.assert_array_equal(check(body, x)[0], n * (n - 1) / 2)


@pytest.mark.parametrize("n", [0, 1, 2, 5])
def test_repeat_carries_through_every_pass(n):
    table = (3.0, -1.0, 4.0, 1.0, -5.0)
    body = lambda x: repeat(n, lambda i, c: [c[1], c[0] + Table(table)[i]], [x[0], x[1]])  # noqa: E731
    x = whole_numbers(2)
    a, b = x
    for k in range(n):
        a, b = b, a + table[k]
    np.testing.assert_array_equal(check(body, x), [a, b])


def test_two_tables():
    body = lambda x: repeat(3, lambda i, c: [c[0] * Table((1.0, 2.0, 3.0))[i] + Table((5.0, 5.0, 6.0))[i]], x)  # noqa: E731
    check(body, whole_numbers(1))


def test_the_whole_number_below():
    x = whole_numbers(1) / 4
    np.testing.assert_array_equal(check(lambda x: [floor(x[0])], x), np.floor(x))


def test_what_is_computed_is_used_under_its_mask():
    def body(x):
        mask = x[0] < x[1]
        found = compute_any(mask, lambda: {"sum": x[0] + x[1], "same": x[0], "constant": 7.0})
        return when_any(mask, lambda c: [found["sum"], found["same"], found["constant"]], [0.0, 0.0, 0.0])

    x = whole_numbers(2)
    np.testing.assert_array_equal(check(body, x, LANES), np.where(x[0] < x[1], [x[0] + x[1], x[0], 7 + 0 * x[0]], 0))


def test_truth_values_and_loops_as_carry():
    def body(x):
        flag, count = while_any(
            lambda c: logical_not(c[0]), lambda c: [c[1] + 1.0 > x[0], c[1] + 1.0], [x[0] < 0.0, 0.0], 30
        )
        return [select(flag, 1.0, 0.0), count]

    x = whole_numbers(1)
    check(body, x, LANES)


# random programs

N = 5  # variables; one more is a truth value


class Source:
    """A random program as nested tuples, and its meaning over scalars."""

    def __init__(self, seed: int):
        self.rng = np.random.default_rng(seed)
        self.statements = self.block(3)

    def pick(self, n: int) -> int:
        return int(self.rng.integers(n))

    def block(self, depth: int) -> list:
        return [self.statement(depth) for _ in range(2 + self.pick(3))]

    def statement(self, depth: int) -> tuple:
        kinds = ["op", "op", "flag"] + (["when", "compute", "while", "repeat"] if depth else [])
        kind = kinds[self.pick(len(kinds))]
        i, j, k, n = self.pick(N), self.pick(N), self.pick(N), self.pick(8)
        inner = self.block(depth - 1) if kind in ("when", "compute", "while", "repeat") else None
        return kind, i, j, k, n, inner


OPERATIONS = (
    lambda a, b: a + b,
    lambda a, b: a - b,
    lambda a, b: a * b + 3.0,
    lambda a, b: 2.0 - a * b,
    lambda a, b: -a,
    minimum,
    maximum,
    lambda a, b: absolute(a) - 5.0,
)


def execute(block: list, state: list, counter: object = None) -> list:
    for statement in block:
        state = _execute(statement, state, counter)
    return state


def _execute(statement: tuple, s: list, counter: object) -> list:
    kind, i, j, k, n, inner = statement
    put = lambda x, at: [*s[:at], x, *s[at + 1 :]]  # noqa: E731
    mask = logical_or(logical_and(s[j] < s[k], logical_not(s[N])), s[i] <= -9.0)
    if kind == "op":
        x = OPERATIONS[n](s[j], s[k])
        x = x if counter is None else x + Table((1.0, -2.0, 5.0))[counter]
        return put(select(s[N], clip(x, -64.0, 64.0), s[i]), i)
    if kind == "flag":
        return put(mask, N)
    if kind == "when":
        return when_any(mask, lambda c: execute(inner, c, counter), s)
    if kind == "repeat":
        return repeat(3, lambda t, c: execute(inner, c, t), s)
    if kind == "while":
        turn = lambda c: execute(inner, [*c[:i], c[i] + 7.0, *c[i + 1 :]], counter)  # noqa: E731
        return while_any(lambda c: logical_or(c[i] < 9.0, c[N]), turn, s, n)
    found = compute_any(mask, lambda: execute(inner, s, counter))
    return when_any(mask, lambda c: [*c[:i], found[j], *c[i + 1 :]], s)


def random_body(x: list, seed: int) -> list:
    out = execute(_source(seed).statements, [*x, x[0] < x[1]])
    return [*out[:N], select(out[N], 1.0, 0.0)]


@functools.cache
def _source(seed: int) -> Source:
    return Source(seed)


@pytest.mark.parametrize("seed", range(25))
def test_random_programs(seed):
    check(functools.partial(random_body, seed=seed), whole_numbers(N, seed))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(25, 400))
def test_many_random_programs(seed):
    check(functools.partial(random_body, seed=seed), whole_numbers(N, seed))


# garbage stays where it is

GARBAGE = np.array([np.nan, np.inf, -np.inf, -0.0, 1e-310, 3.0])


def poisoned(dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """Worlds of the mask with good numbers among worlds of garbage; and the mask."""
    rng = np.random.default_rng(3)
    concerned = rng.random(WORLDS) < 0.4
    x = np.where(concerned, rng.uniform(1, 2, WORLDS), rng.choice(GARBAGE, WORLDS)).astype(dtype)
    return np.stack([np.where(concerned, 1.0, -1.0).astype(dtype), x]), concerned


def spoil(y):
    """NaN and infinity for the garbage, and for 0."""
    return (y - y * 1.5) / (y * 0.5 + absolute(y)) + 1.0 / y


SPOILERS: dict[str, Body] = {
    "when": lambda x: when_any(x[0] > 0.0, lambda c: [spoil(c[0]), 1.0 / x[1]], [x[1], x[1]]),
    "compute": lambda x: _use_computed(x),
    "while": lambda x: while_any(
        lambda c: c[2] > 0.0, lambda c: [spoil(c[0]), c[0], c[2] - 1.0], [x[1], x[1], 2 * x[0]], 9
    )[:2],
    "nested": lambda x: _nested(x),
    "repeat": lambda x: repeat(3, lambda i, c: when_any(x[0] > 0.0, lambda e: [e[1], spoil(e[0])], c), [x[1], x[1]]),
}


def _use_computed(x):
    found = compute_any(x[0] > 0.0, lambda: [spoil(x[1]), 1.0 / x[1]])
    return when_any(x[0] > 0.0, lambda c: [found[0] + found[1], found[1]], [x[1], x[1]])


def _nested(x):
    def turn(c):
        inner = when_any(c[0] > 1.0, lambda e: [spoil(e[0]), e[1] + 1.0], c[:2])
        return [*inner, c[2] - 1.0]

    return when_any(x[0] > 0.0, lambda c: while_any(lambda e: e[2] > 0.0, turn, [*c, 3.0], 9)[:2], [x[1], x[1]])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("form", SPOILERS)
def test_worlds_that_are_not_concerned_keep_their_bits(form, dtype):
    x, concerned = poisoned(dtype)
    outs = [by_torch(SPOILERS[form], x, dtype), *(by_kernel(SPOILERS[form], x, dtype, w) for w in LANES)]
    for out in outs:
        for row in out:
            np.testing.assert_array_equal(bits(row[~concerned]), bits(x[1][~concerned]))
            assert np.isfinite(row[concerned]).all() and not np.array_equal(row[concerned], x[1][concerned])
    for out in outs[2:]:
        np.testing.assert_array_equal(bits(out), bits(outs[1]))  # the number of lanes is of no account


@pytest.mark.parametrize("dtype", DTYPES)
def test_nan_chooses_alike_everywhere(dtype):
    body = lambda x: [minimum(x[0], x[1]), maximum(x[0], x[1]), select(x[0] < x[1], 1.0, 2.0), clip(x[0], -1.0, 1.0)]  # noqa: E731
    rng = np.random.default_rng(0)
    x = rng.choice([np.nan, np.inf, -np.inf, 0.0, 2.0, -3.0], (2, WORLDS)).astype(dtype)
    want = by_floats(body, x).astype(dtype)
    np.testing.assert_array_equal(by_torch(body, x, dtype), want)
    for lanes in (8, *GPU):
        np.testing.assert_array_equal(by_kernel(body, x, dtype, lanes), want)


def test_a_choice_of_constants_is_exact():
    """... in torch, too, whose default is 32 bits."""
    x = whole_numbers(1)
    want = np.where(x[0] < 0, 0.1, -1 / 3)
    got = by_torch(lambda x: [x[0] * 0.0 + select(x[0] < 0.0, 0.1, -1 / 3)], x, "float64")[0]
    np.testing.assert_array_equal(got, want)
    assert select(torch.tensor([True]), 1.0, 0.5).dtype == torch.float32


@pytest.mark.parametrize("dtype", DTYPES)
def test_real_numbers_agree_to_rounding(dtype):
    """A body as physics has them: roots, quotients, angles, and a Newton iteration."""
    from torch_mjenvs.compiler.scalar import cos, exp, log, sin, sqrt

    def body(x):
        r = sqrt(x[0] * x[0] + x[1] * x[1] + 1.0)
        root = while_any(lambda c: absolute(c[0] * c[0] - r) > 1e-6 * r, lambda c: [0.5 * (c[0] + r / c[0])], [r], 30)[
            0
        ]
        return [root, sin(x[0]) * cos(x[1]), exp(-r) + log(r)]

    x = np.random.default_rng(0).normal(size=(2, WORLDS)).astype(dtype)
    rtol = 1e-5 if dtype == "float32" else 1e-14
    want = by_floats(body, x.astype(np.float64))
    np.testing.assert_allclose(by_torch(body, x, dtype), want, rtol=rtol, atol=rtol)
    for lanes in (16, *GPU):
        np.testing.assert_allclose(by_kernel(body, x, dtype, lanes), want, rtol=rtol, atol=rtol)


def test_what_is_touched_is_computed_and_chosen_and_summed():
    """Rows of an array at numbers known only when the kernel runs; worlds not in a mask keep their bits."""
    partner, weight = [3, 0, 4, 1, 2], [1.0, -2.0, 3.0, 0.5, 1.0]

    def body(x: list) -> list:
        values = Array([[v, 2.0 * v] for v in x])
        which = active_set([v > 10.0 for v in x])
        rows = compute_each(which, lambda i: [values[Table(partner)[i], 1] + Table(weight)[i], values[i, 0]])
        chosen = choose_each(which, lambda i: [rows[i, 0] > 0.0, rows[i, 1] < 15.0], 5)

        def turn(i: object, carry: list) -> list:
            return [
                carry[0] + Table([1.0, 2.0, 4.0, 8.0, 16.0] * 2)[i],
                0.5 * carry[1] + values[Table([*range(5)] * 2)[i], 0],
            ]

        folded = fold_each(chosen, turn, [0.0, x[0]])
        (sums,) = add_each(
            chosen,
            lambda i: [
                [
                    (Table(partner * 2)[i], values[Table(partner * 2)[i], 0]),
                    (Table([5, 5, 6, 6, 7] * 2)[i] + 1, 1.0),
                ]
            ],
            [[*x, 0.0, 1.0, 2.0, 3.0]],
        )
        return [*folded, *sums]

    check(body, whole_numbers(5), LANES)


def test_sets_are_put_together_in_an_order_and_numbered_anew():
    """Two sets of numbers in the places of one order, without gaps; what loops put by slot is found by place."""
    orders = [[6, 1, 4, 9, 0], [8, 2, 5, 7, 3]]

    def body(x: list) -> list:
        values = Array(list(x))
        some = choose_each(everything(5), lambda i: [values[i] > 8.0], 5)
        others = active_set([v < 12.0 for v in x])
        both = Packed.of([some, others], orders, 10)
        rows = Array(rows=10, columns=2)
        for which, order in zip((some, others), orders, strict=True):
            put_each(which, lambda i, order=order: (both.slot(Table(order)[i]), [values[i], 10.0 * values[i]]), rows)

        def turn(i: object, carry: list) -> list:
            weight = Table([float(k) for k in range(10)])[both.place(i)]
            return [carry[0] + weight * rows[i, 0], 0.5 * carry[1] + rows[i, 1]]

        return fold_each(both.which, turn, [0.0, x[0]])

    check(body, whole_numbers(5), LANES)


def test_each_world_goes_through_a_list_of_its_own():
    """Two sets as lists, put together by their first numbers; what a loop within puts is there for the next entry."""
    orders = [[6.0, 1.0, 4.0, 9.0, 0.0], [8.0, 2.0, 5.0, 7.0, 3.0]]

    def body(x: list) -> list:
        values, kept = Array(list(x)), Array([0.0] * 10)
        some = choose_each(everything(5), lambda i: [values[i] > 8.0], 5)
        others = active_set([v < 12.0 for v in x])
        lists = [
            OwnList.of(which, 5, lambda i, order=order: [Table(order)[i], values[i]], 2)
            for which, order in zip((some, others), orders, strict=True)
        ]
        both = merged(lists, 2)

        def turn(k: object, carry: list) -> list:
            place, value = both.rows[k]

            def put(_: object, nothing: list) -> list:
                kept.put(place, kept[place] + value)
                return nothing

            repeat(2, put, [], [kept])
            return [0.5 * carry[0] + value, carry[1] + place * value]

        found = both.each(turn, [x[0], 0.0], [kept])
        return [both.count, *(one.count for one in lists), *found, *(kept[k] for k in range(10))]

    check(body, whole_numbers(5), LANES)
    x = whole_numbers(5)[:, 0].tolist()
    entries = [(order[k], v) for order, holds in zip(orders, (lambda v: v > 8, lambda v: v < 12), strict=True)
               for k, v in enumerate(x) if holds(v)]  # fmt: skip
    folded = x[0]
    for _, v in sorted(entries):
        folded = 0.5 * folded + v
    count, one, two, first, second, *kept = body(x)
    assert (count, one + two, first, second) == (len(entries), count, folded, sum(k * v for k, v in entries))
    assert kept == [2 * dict(entries).get(float(k), 0.0) for k in range(10)]


def test_what_is_touched_in_a_loop_is_touched_anew():
    def body(x: list) -> list:
        def turn(i: object, carry: list) -> list:
            which = active_set([v > Table([-5.0, 0.0, 5.0])[i] for v in carry])
            (sums,) = add_each(which, lambda k: [[(k, -3.0)]], [carry])
            return fold_each(which, lambda k, c: [c[0] + 1.0, *c[1:]], sums)

        return repeat(3, turn, x)

    check(body, whole_numbers(4), LANES)


def test_worlds_that_have_left_a_loop_are_not_touched_in_it():
    def body(x: list) -> list:
        which = active_set([v > 0.0 for v in x])

        def turn(carry: list) -> list:
            (sums,) = add_each(which, lambda k: [[(k, -3.0)]], [carry])
            found = choose_each(which, lambda k: [Array(carry)[k] > 4.0], len(x))
            return fold_each(found, lambda k, c: [c[0] + 1.0, *c[1:]], sums)

        return while_any(lambda c: c[0] + c[1] < 20.0, turn, x, 7)

    check(body, whole_numbers(4), LANES)


@pytest.mark.parametrize(
    "form",
    [
        lambda x, c: when_any(x[0] < 0.0, lambda c: [c[0] + 1.0], c),
        lambda x, c: fold_each(active_set([v < 0.0 for v in x]), lambda k, c: [c[0] + 1.0], c),
    ],
    ids=["when", "each"],
)
def test_a_block_in_a_loop_is_skipped_where_only_worlds_need_it_that_have_left(form):
    """What decides on the branch is the block's mask and the loop's."""

    def body(x: list) -> list:
        return while_any(lambda c: c[0] < 5.0, lambda c: form(x, [c[0] + 1.0]), [x[1]], 9)

    ir = render(record_list(body, 2, 1, "float32"), lanes=8)
    active = re.search(r"(%\w+) = fcmp olt <8 x float> %\w+, splat \(float 0x4014", ir)
    assert active
    both = re.search(rf"(%\w+) = and <8 x i1> .*{active[1]}\b", ir)
    assert both
    bits = re.search(rf"(%\w+) = bitcast <8 x i1> {both[1]} to i8", ir)
    assert bits and re.search(rf"icmp ne i8 {bits[1]}, 0", ir)


def test_nothing_touched():
    def body(x: list) -> list:
        which = active_set([v > 100.0 for v in x])
        rows = compute_each(which, lambda i: [1.0])
        (sums,) = add_each(which, lambda i: [[(i, rows[i, 0])]], [x])
        return [*sums, *fold_each(which, lambda i, c: [c[0] + rows[i, 0]], [x[0]])]

    check(body, whole_numbers(3))
