"""Kernels over matrices for GPUs: each step run by the interpreter of PTX, against the CPU's kernel of the plan."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
import torch
from kernels import numbers
from ptx import Machine

from torch_mjenvs.compiler import cpu, cuda
from torch_mjenvs.compiler.matrices import (
    Apply,
    Gather,
    Loop,
    Matrix,
    Memory,
    Multiply,
    Pairs,
    Phase,
    Plan,
    RowSums,
    Step,
    Transpose,
    build,
    can_build,
)
from torch_mjenvs.compiler.matrices.blocks import LANES, THREADS, Grid, render
from torch_mjenvs.compiler.program import Buffer, Program, record
from torch_mjenvs.compiler.scalar import exp

pytestmark = [
    pytest.mark.usefixtures("no_default_device"),
    pytest.mark.cpu,
    pytest.mark.skipif(not can_build(), reason="this processor has no fused multiply-add"),
]
SAME = cpu.host().vector_bytes == 4 * LANES  # sums of rows are then the CPU's to the bit
SHARED = 48 * 1024


def interpret(plan: Plan, tensors: Mapping[str, torch.Tensor], shared: int = SHARED) -> list[Grid]:
    """Do a plan's phases once, as PTX."""
    grids = render(plan, shared)
    machines = [Machine(cuda.translate(grid.ir).decode()) for grid in grids]
    for grid, machine in zip(grids, machines, strict=True):
        held = dict(tensors)
        for m in plan.memories:
            if m.each:
                held[m.name] = torch.full((0 if grid.shared else grid.blocks * grid.own,), torch.nan)
        given = [held[m.name] for m in plan.memories]
        memory = [(x.data_ptr(), x.numel() * x.element_size()) for x in given]
        machine.run([*(x.data_ptr() for x in given), 0], grid.blocks, THREADS, memory, shared=grid.shared)
    return grids


def same(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    if SAME:
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0)
    else:
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


def run(steps: Sequence[Step], **tensors: torch.Tensor) -> dict[str, torch.Tensor]:
    """Do steps on the CPU and as PTX, in a copy of the tensors each; the latter, which are to be the same."""
    types = {torch.float32: "f", torch.int64: "l"}
    memories = tuple(Memory(name, types[x.dtype]) for name, x in tensors.items())
    plan = Plan("test", memories, (Phase("item", 1, tuple(steps)),))
    ours, theirs = ({name: x.clone() for name, x in tensors.items()} for _ in range(2))
    build(plan)(theirs)
    interpret(plan, ours)
    for name, x in ours.items():
        same(x, theirs[name])
    return ours


def wide(x: torch.Tensor) -> torch.Tensor:
    """Rows that reach to whole vectors."""
    return torch.nn.functional.pad(x, (0, -x.shape[1] % LANES))


SHAPES = [(64, 17, 32), (1, 64, 32), (13, 1, 5), (25, 32, 100), (65, 9, 64), (130, 4, 33)]  # rows, inner, columns
CASES = list(itertools.product(SHAPES, ("zeros", "column", "out"), (False, True)))


def test_a_product_is_that_of_the_cpu():
    """Of matrices with gaps after their rows, and without, where four neighbours are no whole four."""
    steps, tensors, expected = [], {}, {}
    for k, ((rows, inner, columns), start, transposed) in enumerate(CASES):
        a, b, column = numbers(rows, inner), numbers(inner, columns, seed=1), numbers(rows, seed=2)
        left = (a.T if transposed else a).contiguous()
        left = wide(left) if k % 4 < 2 else left
        row = columns if k % 3 else columns + -columns % LANES
        out = numbers(rows * row + LANES, seed=3)
        size = (inner, rows) if transposed else (rows, inner)
        matrix = Matrix(f"a{k}", *size, left.shape[1])
        result = Matrix(f"out{k}", rows, columns, row)
        begun = {"zeros": None, "column": Matrix(f"column{k}", rows, 1, 1, 0), "out": result}[start]
        right = wide(b)
        steps.append(
            Multiply(result, matrix.T if transposed else matrix, Matrix(f"b{k}", *b.shape, right.shape[1]), begun)
        )
        tensors |= {f"out{k}": out, f"a{k}": left, f"b{k}": right}
        tensors |= {f"column{k}": column} if start == "column" else {}
        was = out[: rows * row].view(rows, row)[:, :columns]
        expected[f"out{k}"] = a @ b + {"zeros": 0.0, "column": column[:, None], "out": was}[start]
    types = {torch.float32: "f"}
    memories = tuple(Memory(name, types[x.dtype]) for name, x in tensors.items())
    ours, theirs = ({name: x.clone() for name, x in tensors.items()} for _ in range(2))
    for k, step in enumerate(steps):
        some = {m.memory for m in step.matrices}
        plan = Plan("test", tuple(m for m in memories if m.name in some), (Phase("item", 1, (step,)),))
        build(plan)(theirs)
        interpret(plan, ours)
        out, size = step.out, expected[f"out{k}"].shape
        every = (x[f"out{k}"][: out.rows * out.row] for x in (ours, theirs, tensors))
        found, wanted, was = (x.view(out.rows, out.row) for x in every)
        assert torch.equal(found[:, : size[1]], wanted[:, : size[1]])  # chains of the same operations
        assert torch.equal(found[:, size[1] :], was[:, size[1] :])
        assert torch.equal(ours[f"out{k}"][out.rows * out.row :], tensors[f"out{k}"][out.rows * out.row :])
        torch.testing.assert_close(found[:, : size[1]], expected[f"out{k}"], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("rows", "columns"), [(32, 64), (5, 32), (48, 7), (3, 3), (70, 20)])
def test_a_transpose(rows, columns):
    out, x = (Matrix(*size, -(-size[2] // LANES) * LANES) for size in (("out", columns, rows), ("x", rows, columns)))
    given, made = wide(numbers(rows, columns)), torch.zeros(columns, out.row)
    plan = Plan("test", (Memory("out"), Memory("x")), (Phase("item", 1, (Transpose(out, x),)),))
    interpret(plan, {"out": made, "x": given})
    assert torch.equal(made[:, :rows], given[:, :columns].T)


@pytest.mark.parametrize(("rows", "columns"), [(64, 32), (7, 64), (17, 16), (1, 256), (1, 96)])
def test_sums_of_rows_are_those_of_the_cpu(rows, columns):
    x, out = numbers(rows, columns), numbers(rows + 3, seed=1)
    found = run([RowSums(Matrix("out", rows, 1, 1), Matrix("x", rows, columns, columns))], x=x, out=out)["out"]
    torch.testing.assert_close(found[:rows], out[:rows] + x.sum(1), rtol=1e-5, atol=1e-5)
    assert torch.equal(found[rows:], out[rows:])


def test_rows_are_gathered():
    x, order = numbers(40, 27), torch.randperm(40)[:32]
    step = Gather(Matrix("out", 32, 13, 16), Matrix("x", 1, 13, 27, offset=5), Matrix("order", 1, 32, 32))
    made = torch.zeros(32, 16)
    interpret(
        Plan("test", (Memory("out"), Memory("x"), Memory("order", "l")), (Phase("item", 1, (step,)),)),
        {"out": made, "x": x, "order": order},
    )
    assert torch.equal(made[:, :13], x[order][:, 5:18]) and not made[:, 13:].any()


def twice() -> Apply:
    """y = exp(-x) scale[0] + scale[1], and x doubles, for 300 numbers."""
    buffers = [Buffer("x", 1), Buffer("scale", 2), Buffer("y", 1)]
    program = record(
        "twice", buffers,
        lambda b: {"y": [exp(-b["x"][0]) * b["scale"][0] + b["scale"][1]], "x": [b["x"][0] + b["x"][0]]}, "float32",
    )  # fmt: skip
    return Apply(program, (Matrix("x", 1, 304, 304), Matrix("scale", 2, 304, 1, 0), Matrix("y", 1, 304, 304)), 300)


def test_a_program_runs_for_every_column():
    x, scale = numbers(304), torch.tensor([3.0, -1.0])
    held = {"x": x.clone(), "scale": scale, "y": torch.zeros(304)}
    interpret(Plan("test", tuple(map(Memory, held)), (Phase("item", 1, (twice(),)),)), held)
    torch.testing.assert_close(held["y"][:300], (-x).exp()[:300] * 3 - 1)
    assert torch.equal(held["x"][:300], 2 * x[:300]) and torch.equal(held["x"][300:], x[300:])
    assert not held["y"][300:].any()


def double() -> Program:
    """Record x = 2 x."""
    return record("double", [Buffer("x", 1)], lambda b: {"x": [2.0 * b["x"][0]]}, "float32")


def chain(count: int) -> Plan:
    """A block multiplies a matrix so many times by another one, in memory of its own; blocks have different matrices.

    A second phase of the same launch does the same with the other ones' transposes; a last one adds up all of them.
    """
    size, held = 32, 32 * 32
    x, y = (Matrix("own", size, size, size, offset=k * held) for k in range(2))
    here = (("item", held),)
    given, factor = Matrix("given", size, size, size, at=here), Matrix("factor", size, size, size)
    add = record("copy", [Buffer("x", 1), Buffer("y", 1)], lambda b: {"y": [b["x"][0]]}, "float32")

    def copied(a: Matrix, b: Matrix) -> Apply:
        return Apply(add, tuple(replace(m, rows=1, columns=held, row=held) for m in (a, b)), held)

    def steps(first: Step, place: int) -> tuple[Step, ...]:
        out = Matrix("out", size, size, size, offset=place, at=here)
        turn = Multiply(y, factor, x), copied(y, x)
        return first, Loop("turn", count, turn), copied(x, out)

    total = record(
        "total", [Buffer("parts", 6), Buffer("y", 1)], lambda b: {"y": [sum(b["parts"][1:], b["parts"][0])]}, "float32"
    )
    added = Apply(total, (Matrix("out", 6, held, held), Matrix("sum", 1, held, held)), held)
    phases = (
        Phase("item", 3, steps(copied(given, x), 0), wait=False),
        Phase("item", 3, (copied(given, y), *steps(Transpose(x, y), 3 * held))),
        Phase("item", 1, (added,)),
    )  # fmt: skip
    memories = *map(Memory, ("given", "factor", "out", "sum")), Memory("own", each=2 * held)
    return Plan("chain", memories, phases)


@pytest.mark.parametrize("shared", [SHARED, 0])
def test_phases_and_loops_in_memory_that_is_shared_or_not(shared):
    given, factor = numbers(3, 32, 32), numbers(32, 32, seed=1) / 6
    held = {"given": given, "factor": factor, "out": torch.zeros(6, 32, 32), "sum": torch.zeros(32, 32)}
    theirs = {name: x.clone() for name, x in held.items()}
    grids = interpret(chain(3), held, shared)
    assert [(grid.blocks, grid.own) for grid in grids] == [(6, 2048), (1, 0)]
    assert ("addrspace(3)" in grids[0].ir) == (shared > 0)
    build(chain(3))({**theirs, "own": torch.zeros(2 * 1024)})
    assert torch.equal(held["out"], theirs["out"]) and torch.equal(held["sum"], theirs["sum"])
    power = torch.linalg.matrix_power(factor, 3)
    torch.testing.assert_close(held["out"][:3], power @ given, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(held["out"][3:], power @ given.mT, rtol=1e-4, atol=1e-5)


def test_matrices_take_places_that_others_have_left():
    """Of a row of products, each of the one before; and not what a turn of a loop hands on to the next."""
    size = 32 * 32
    x = [Matrix("own", 32, 32, 32, offset=k * size) for k in range(8)]
    a, b, out = (Matrix(name, 32, 32, 32) for name in ("a", "b", "out"))
    row = Multiply(x[0], a, b), *(Multiply(x[k + 1], a, x[k]) for k in range(6)), Multiply(out, a, x[6])
    handed = (
        Transpose(x[7], a),
        Loop("turn", 3, (Multiply(x[0], x[7], b), Multiply(x[1], x[0], b), Multiply(x[2], a, x[1]),
                         Multiply(x[3], a, x[2]), Multiply(x[4], a, x[3]), Multiply(x[7], a, x[4]))),
        Multiply(out, x[7], b),
    )  # fmt: skip
    memories = *map(Memory, ("a", "b", "out")), Memory("own", each=8 * size)
    for steps, numbers_kept in ((row, 4 * size), (handed, 5 * size)):
        held = {"a": numbers(32, 32) / 6, "b": numbers(32, 32, seed=1) / 6, "out": torch.zeros(32, 32)}
        theirs = {name: tensor.clone() for name, tensor in held.items()}
        plan = Plan("test", memories, (Phase("item", 1, steps),))
        (grid,) = interpret(plan, held)
        build(plan)({**theirs, "own": torch.zeros(8 * size)})
        assert torch.equal(held["out"], theirs["out"]) and held["out"].any()
        assert grid.own == numbers_kept


def test_threads_wait_only_where_one_needs_what_another_has_made():
    size = 32 * 32
    x, y, z = (Matrix("own", 32, 32, 32, offset=k * size) for k in range(3))
    a, b = (Matrix(name, 32, 32, 32) for name in "ab")
    memories = *map(Memory, "ab"), Memory("own", each=3 * size)

    def waits(*steps: Step) -> int:
        (grid,) = render(Plan("test", memories, (Phase("item", 1, steps),)), SHARED)
        return grid.ir.count("barrier0")

    assert waits(Multiply(x, a, b), Multiply(y, a, b)) == 0
    assert waits(Multiply(x, a, b), Multiply(y, a, x)) == 1
    assert waits(Multiply(x, a, b), Multiply(y, a, x), Multiply(z, b, x)) == 1
    assert waits(Transpose(x, a), Transpose(y, x), Transpose(x, b)) == 2  # x is read until then
    assert waits(Multiply(x, a, b, x), Multiply(y, a, b)) == 0
    each = Apply(double(), (replace(x, rows=1, columns=size, row=size),), size)
    assert waits(each, each) == 0  # a thread has what it made itself
    assert waits(each, replace(each, matrices=(replace(each.matrices[0], offset=32),))) == 1
    assert waits(Loop("turn", 3, (each,))) == 0
    rows = replace(x, rows=1, row=32, at=(("turn", 32),))
    assert waits(Loop("turn", 3, (Apply(double(), (rows,), 32),))) == 0
    assert waits(Transpose(x, a), Loop("turn", 3, (Apply(double(), (rows,), 32),))) == 1
    some = Loop("turn", 2, (Transpose(replace(x, at=(("turn", 4),)), b),))
    assert waits(Transpose(x, a), Loop("turn", 1, some.steps)) == 1  # who knows where
    assert waits(some) == 1


@pytest.mark.parametrize(
    ("step", "why"),
    [
        (Pairs(Matrix("p", 1, 4, 4), Matrix("a", 2, 4, 4)), "is not for GPUs"),
        (RowSums(Matrix("b", 4, 1, 1), Matrix("a", 4, 20, 20)), "rows of 20 numbers have no sums of 16 lanes"),
        (Transpose(Matrix("b", 4, 4, 6), Matrix("a", 4, 4, 4)), "is not one of squares"),
    ],
)
def test_what_is_the_cpus_alone_is_refused(step, why):
    types = {"p": "p"} if isinstance(step, Pairs) else {}
    memories = tuple(Memory(m.memory, types.get(m.memory, "f")) for m in step.matrices)
    with pytest.raises(ValueError, match=why):
        render(Plan("test", memories, (Phase("item", 1, (step,)),)), SHARED)
    with pytest.raises(ValueError, match="a length that launches say"):
        render(Plan("test", memories[:0], (Phase("item", None, ()),)), SHARED)
