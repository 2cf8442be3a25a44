"""Arrays, in which each world has numbers of its own, and tables: the same for floats, tensors and kernels."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
import torch
from graph_eval import run_compiled, run_ptx, trace
from kernels import LANES, build, record_list
from ptx import Machine
from test_control import WORLDS, check

from torch_mjenvs.compiler import cuda
from torch_mjenvs.compiler.arrays import Array, NumberTable, RowTable, Table
from torch_mjenvs.compiler.control import count_while, repeat
from torch_mjenvs.compiler.llvm import render
from torch_mjenvs.compiler.program import Buffer, record
from torch_mjenvs.compiler.scalar import logical_and, number, select
from torch_mjenvs.physics.algebra.spatial import choose


def sieve(limit):
    """The sum of the primes below limit, each world's own: numbers are crossed out in an array."""
    crossed = Array([0.0] * 40)

    def cross_out(i, k):
        prime = crossed[k] < 0.5

        def every(j, _):
            crossed.put(k * number(j + 2), 1.0, logical_and(prime, k * number(j + 2) < limit))
            return _

        count_while(lambda j, _: k * number(j + 2) < limit, every, 0.0, 40, [crossed])
        return k + 1.0

    count_while(lambda i, k: k < limit, cross_out, 2.0, 40, [crossed])

    def add_up(i, carry):
        return [carry[0] + select(crossed[i] < 0.5, number(i), 0.0), carry[1] + 1.0]

    total, _ = count_while(lambda i, c: number(i) < limit, add_up, [0.0, 0.0], 40)
    return total - 1.0  # without 0 and 1


def primes(limit: int) -> float:
    return float(sum(n for n in range(2, limit) if all(n % k for k in range(2, n))))


LIMITS = [2, 3, 10, 40, 17, 31, 5, 23, 8, 39]


def test_each_world_writes_rows_of_its_own_on_floats():
    assert [sieve(float(limit)) for limit in LIMITS] == [primes(limit) for limit in LIMITS]


def test_each_world_writes_rows_of_its_own_on_tensors():
    assert sieve(torch.tensor(LIMITS, dtype=torch.float64)).tolist() == [primes(limit) for limit in LIMITS]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("run", [run_compiled, pytest.param(run_ptx, marks=pytest.mark.cpu)])
def test_each_world_writes_rows_of_its_own_in_a_kernel(dtype, run):
    inputs = {"limit": np.array([LIMITS], dtype=dtype)}
    program = trace(lambda b: {"total": [sieve(b["limit"][0])]}, inputs, {"total": (1, "f")}, dtype)
    assert run(program, inputs)["total"][0].tolist() == [primes(limit) for limit in LIMITS]


def swap(n):
    """What was read before a loop changes it is what was there before, wherever it is used."""
    rows = Array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [7.0, 8.0]])
    before = rows[n]

    def put(i, c):
        rows.put(n, [rows[n, 0] + 10.0])
        return c

    count_while(lambda i, c: number(i) < n, put, 0.0, 4, [rows])
    return [*before, *rows[n], rows[0, 0]]


def test_what_is_read_before_a_loop_stays():
    want = [[1, 2, 1, 2, 1], [3, 4, 13, 4, 1], [5, 6, 25, 6, 1], [7, 8, 37, 8, 1]]
    assert [swap(float(n)) for n in range(4)] == want
    inputs = {"n": np.array([[0, 1, 2, 3]], dtype="float64")}
    program = trace(lambda b: {"out": swap(b["n"][0])}, inputs, {"out": (5, "f")}, "float64")
    assert run_compiled(program, inputs)["out"].T.tolist() == want


def triangle(carry):
    """Rows filled by a loop within a loop, whose length a table says: 0 and 1 times, 2 and so on."""
    rows, sizes = Array([0.0] * 6), Table([0, 1, 0, 3, 2])

    def outer(i, c):
        def inner(j, c):
            rows.put(j, rows[j] + carry * number(i + 1), None)
            return [c[0] + rows[j], c[1] + 1.0]

        return repeat(sizes[i], inner, c, [rows])

    total, count = repeat(5, outer, [0.0 * carry, carry], [rows])
    return [total, count, *(rows[k] for k in range(6))]


def test_a_loop_is_repeated_as_often_as_a_table_says_and_fills_an_array():
    """On floats, tensors, in a kernel and on a GPU; an iteration reads what was there when it began."""
    want = [[12.0 * x, x + 6.0, 11.0 * x, 9.0 * x, 4.0 * x, 0.0, 0.0, 0.0] for x in (1.0, 2.0, -3.0)]
    assert [triangle(x) for x in (1.0, 2.0, -3.0)] == want
    assert torch.stack(triangle(torch.tensor([1.0, 2.0, -3.0])), 1).tolist() == want
    inputs = {"x": np.array([[1.0, 2.0, -3.0]])}
    program = trace(lambda b: {"y": triangle(b["x"][0])}, inputs, {"y": (8, "f")}, "float64")
    for run in (run_compiled, run_ptx):
        assert run(program, inputs)["y"].T.tolist() == want


def test_a_loop_puts_into_an_array_only_for_the_worlds_that_the_code_around_it_is_for():
    """Unless it says that nobody reads the others'."""

    def body(x):
        rows = Array([x])

        def put(i, c):
            rows.put(0, rows[0] + 1.0)
            return c

        def iteration(i, c):
            repeat(3, put, 0.0, [rows])
            return c + 1.0

        count_while(lambda i, c: c < 2.0, iteration, x, 9, [rows])
        return [rows[0]]

    want = [6.0, 4.0, 2.0, 5.0]
    assert [body(x)[0] for x in (0.0, 1.0, 2.0, 5.0)] == want
    assert body(torch.tensor([0.0, 1.0, 2.0, 5.0]))[0].tolist() == want
    inputs = {"x": np.array([[0.0, 1.0, 2.0, 5.0]])}
    program = trace(lambda b: {"y": body(b["x"][0])}, inputs, {"y": (1, "f")}, "float64")
    for run in (run_compiled, run_ptx):
        assert run(program, inputs)["y"].tolist() == [want]


ROWS = [[3.0, -1.0], [4.0, 1.5], [-5.0, 9.0]]
ASKED_FOR = [0.0, 2.0, 1.0, 1.9, -3.0, 7.0, 1e30, -1e30, float("inf"), float("nan")]
GOT = [ROWS[k] for k in (0, 2, 1, 1, 0, 2, 2, 0, 2, 2)]


def test_each_world_reads_a_row_of_a_table_of_its_own():
    """Of a row that is not there, the nearest is read."""
    table = Table(ROWS)
    assert [table[k] for k in ASKED_FOR] == GOT
    columns = table[torch.tensor(ASKED_FOR, dtype=torch.float64)]
    assert torch.stack(columns, 1).tolist() == GOT


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("run", [run_compiled, pytest.param(run_ptx, marks=pytest.mark.cpu)])
def test_a_table_in_a_kernel(dtype, run):
    inputs = {"row": np.array([ASKED_FOR], dtype=dtype)}
    program = trace(lambda b: {"got": Table(ROWS)[b["row"][0]]}, inputs, {"got": (2, "f")}, dtype)
    assert run(program, inputs)["got"].T.tolist() == GOT


@pytest.mark.cpu
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("exact", [True, False])
def test_a_long_table_in_a_kernel(exact, dtype):
    """It is written as bytes, in single precision where that has all of its numbers: no number changes."""
    numbers = np.random.default_rng(0).normal(size=(2000, 3))
    numbers[7] = [-0.0, 1e30, -1e-30]
    if exact:
        numbers = numbers.astype(np.float32).astype(np.float64)
    elif dtype == "float64":
        numbers[8, 1] = 1e300  # no float at all
    rows = np.random.default_rng(1).integers(0, 2000, 97)
    inputs = {"row": rows[None].astype(dtype)}
    program = trace(lambda b: {"got": Table(numbers.tolist())[b["row"][0]]}, inputs, {"got": (3, "f")}, dtype)
    np.testing.assert_array_equal(run_compiled(program, inputs)["got"].T, numbers[rows].astype(dtype))
    size = 4 if exact or dtype == "float32" else 8
    assert f"constant [{size * numbers.size} x i8] c" in render(program, 8)


@pytest.mark.parametrize("columns", [2, 4])
def test_whole_rows_of_a_table_are_read_as_rows(columns):
    """Those of 2 and 4 columns, by all of them or some; the numbers are the table's, at any number of lanes."""
    numbers = np.random.default_rng(0).integers(-99, 99, (31, columns)).astype(float)
    table = Table(numbers.tolist())

    def body(x: list) -> list:
        own = count_while(lambda k, c: number(k) < x[1], lambda k, c: c + table[x[0] + number(k), :2][1], 0.0, 3)
        return [*table[x[0]], *table[x[0] + 1.0, 1:], own]

    x = np.random.default_rng(1).integers(0, 31, (2, WORLDS)).astype(float)
    want = check(body, x, LANES)
    np.testing.assert_array_equal(want[:columns].T, numbers[x[0].astype(int)])
    program = record_list(body, 2, 2 * columns, "float32")
    assert [e.attr.columns for e in program.live if e.op == "row"] == [columns] * (2 if columns == 2 else 3)
    assert sum(e.op == "lookup" for e in program.live) == (1 if columns == 2 else 0)


def pieces(x, row):
    """An entry, the last one, a row, and a part of it."""
    return [x[row, 0], x[row, -1], *x[row], *x[row, 1:]]


@pytest.mark.parametrize("kind", [Table, Array])
def test_entries_are_asked_for_as_of_numpys_arrays(kind):
    """At a shared row and at a world's own, on floats, tensors and in a kernel."""
    want = [pieces(np.array(ROWS), k) for k in range(3)]
    assert [pieces(kind(ROWS), k) for k in range(3)] == want
    assert [pieces(kind(ROWS), float(k)) for k in range(3)] == want
    own = pieces(kind(ROWS), torch.arange(3, dtype=torch.float64))
    assert torch.stack(own, 1).tolist() == want

    def body(b):
        shared = lambda i, c: choose(number(i) < b["row"][0] + 0.5, pieces(x, i), c)  # noqa: E731
        x = kind(ROWS)
        return {"own": pieces(x, b["row"][0]), "shared": repeat(3, shared, [0.0] * 5)}

    inputs = {"row": np.array([[0.0, 1.0, 2.0]])}
    got = run_compiled(trace(body, inputs, {"own": (5, "f"), "shared": (5, "f")}, "float64"), inputs)
    assert got["own"].T.tolist() == got["shared"].T.tolist() == want


def test_a_table_of_ints_gives_rows():
    """They are rows of other tables, not numbers; so it is no table of the same floats."""
    order, values = [2, 0, 1], [5.0, 7.0, 9.0]
    turn = lambda i, c: c + Table(values)[Table(order)[i]] * Table([2.0, 0.0, 1.0])[i]  # noqa: E731
    want = 9.0 * 2.0 + 7.0
    assert repeat(3, turn, 0.0) == want
    inputs = {"x": np.zeros((1, 3))}
    program = trace(lambda b: {"y": [repeat(3, turn, b["x"][0])]}, inputs, {"y": (1, "f")}, "float64")
    assert run_compiled(program, inputs)["y"].tolist() == [[want] * 3]
    for own in (1.0, torch.tensor([1.0])):
        with pytest.raises(TypeError, match="at a row that all worlds share"):
            Table(order)[own]


@pytest.mark.parametrize("x", [Table(ROWS), Array(ROWS)])
def test_neither_can_be_gone_through_by_python(x):
    """In a kernel that would not end."""
    with pytest.raises(TypeError, match="not iterable"):
        list(x)


@pytest.mark.parametrize("start", [0.0, torch.zeros(2)])
def test_what_a_loop_puts_into_an_array_that_it_was_not_told_of_is_refused(start):
    """Rather than forgotten, as it was; on floats, tensors and in a kernel."""

    def filled(start, told):
        rows = Array([start])

        def body(i, c):
            rows.put(0, c + 1.0)
            return c + 1.0

        count_while(lambda i, c: number(i) < 3.0, body, start, 4, [rows] if told else [])
        return rows[0]

    assert torch.all(torch.as_tensor(filled(start, True)) == 3.0)
    with pytest.raises(ValueError, match="no loop around was told of"):
        filled(start, False)
    with pytest.raises(ValueError, match="no loop around was told of"):
        trace(lambda b: {"y": [filled(b["x"][0], False)]}, {"x": np.zeros((1, 1))}, {"y": (1, "f")}, "float64")


@pytest.mark.cpu
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_all_worlds_read_one_buffer_at_places_of_their_own(dtype):
    """Those beyond its ends read its ends, and a place that all worlds share is read, too. The same as PTX."""
    values = torch.tensor([5.0, 7.0, 9.0, 4.0], dtype=getattr(torch, dtype))

    def body(b):
        (place,) = b["place"]
        return {"got": [b["table"][place], repeat(4, lambda i, c: c + b["table"][i], 0.0 * place)]}

    buffers = [Buffer("place", 1), Buffer("table", 4, table=True), Buffer("got", 2)]
    kernel = build(record("reading", buffers, body, dtype), torch.device("cpu"))
    held = {b.name: kernel.allocate(b, 6) for b in buffers}
    held["place"][0, :6] = torch.tensor([2.0, 0.0, 3.0, -8.0, 99.0, 1.0])
    held["table"].copy_(values)
    theirs = [x.clone() for x in held.values()]
    kernel.bind(held)()
    assert held["got"][:, :6].tolist() == [[9.0, 5.0, 4.0, 5.0, 4.0, 7.0], [25.0] * 6]
    Machine(cuda.assembly(record("reading", buffers, body, dtype))).launch(theirs, 16)
    assert torch.equal(theirs[2], held["got"])
    with pytest.raises(ValueError, match="'table' of size 4 cannot be of shape"):
        kernel.bind(held | {"table": values[:3]})
    with pytest.raises(ValueError, match="read only"):
        record("writing", buffers, lambda b: {"table": [b["place"][0]] * 4}, dtype)


@pytest.mark.cpu
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rows_of_a_buffer_are_read_by_place_and_by_counter(dtype):
    """A row that is not there is the nearest, also for a loop that goes further. The same as PTX."""
    numbers = np.arange(12.0).reshape(3, 2, 2) ** 2

    def body(b):
        (place,), table = b["place"], RowTable(b["table"], numbers.shape)
        total = repeat(5, lambda i, c: c + table[i, 1, 0], 0.0)
        return {"got": [*table[place, 0], *table[place, :, 1], table[2, 0, 1], total]}

    buffers = [Buffer("place", 1), Buffer("table", 12, table=True), Buffer("got", 6)]
    kernel = build(record("rows", buffers, body, dtype), torch.device("cpu"))
    held = {b.name: kernel.allocate(b, 6) for b in buffers}
    places = [2.0, 0.9, 1.0, -8.0, 99.0, math.nan]
    held["place"][0, :6] = torch.tensor(places)
    held["table"].copy_(torch.from_numpy(numbers.flatten()))
    theirs = [x.clone() for x in held.values()]
    kernel.bind(held)()
    rows = numbers[[2, 0, 1, 0, 2, 2]]
    total = numbers[[0, 1, 2, 2, 2], 1, 0].sum()
    wanted = [*rows[:, 0].T, *rows[:, :, 1].T, [numbers[2, 0, 1]] * 6, [total] * 6]
    np.testing.assert_array_equal(held["got"][:, :6].numpy(), wanted)
    Machine(cuda.assembly(record("rows", buffers, body, dtype))).launch(theirs, 16)
    assert torch.equal(theirs[2], held["got"])
    on_floats, on_tensors = NumberTable(numbers), NumberTable(numbers)
    for place, row in zip(places, rows, strict=True):
        assert on_floats[place] == row.tolist()
    assert torch.equal(torch.stack(on_tensors[torch.tensor(places), 0]).T, torch.from_numpy(rows[:, 0]))


@pytest.mark.parametrize(("rows", "bits"), [(2**27 - 1, 32), (2**27 + 1, 64)])
def test_places_are_as_wide_as_an_array_is_long(rows, bits):
    """x86 reads 16 numbers at places of 32 bits, and 8 at places of 64."""

    def body(b):
        array = Array(rows=rows)

        def put(i, nothing):
            array.put(b["x"][0], b["x"][1])
            return nothing

        repeat(2, put, [], [array])
        return {"y": [array[b["x"][0]]]}

    ir = render(record("long", [Buffer("x", 2), Buffer("y", 1)], body, "float32"), lanes=16)
    products = [line for line in ir.splitlines() if re.search(r"mul <16 x i\d+> .*splat \(i\d+ 16\)", line)]
    assert len(products) == 1 and f"<16 x i{bits}>" in products[0]


def test_rows_of_each_world_are_stored_for_those_worlds_alone_that_store():
    def body(b):
        array = Array([0.0] * 4)

        def put(i, nothing):
            array.put(b["x"][0], b["x"][1], b["x"][1] > 0.0)
            return nothing

        repeat(2, put, [], [array])
        return {"y": [array[k] for k in range(4)]}

    ir = render(record("few", [Buffer("x", 2), Buffer("y", 4)], body, "float32"), lanes=16)
    lane = re.search(r"\n(lane\d+):\n(.*?)\n  br i1 %v\d+, label %\1, ", ir, re.S)
    assert lane and "@llvm.cttz.i16" in lane[2] and lane[2].count("store float ") == 1, "a loop over lanes stores"
    before = ir[: lane.start()].rsplit("\nbody", 1)[0]
    assert re.search(r"br i1 %v\d+, label %body\d+, label %out\d+$", before), "which is behind a branch"
    assert "masked.scatter" not in ir
