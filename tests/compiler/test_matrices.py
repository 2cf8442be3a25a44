"""Kernels over matrices: each step against torch, at several widths of vectors, and any number of threads."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from kernels import numbers

from torch_mjenvs.compiler import cpu
from torch_mjenvs.compiler.matrices import (
    Apply,
    Call,
    Gather,
    Loop,
    Matrix,
    Memory,
    Multiply,
    Pairs,
    Phase,
    Plan,
    Regroup,
    RowSums,
    Step,
    Transpose,
    build,
    can_build,
)
from torch_mjenvs.compiler.matrices import kernel as kernels
from torch_mjenvs.compiler.matrices.ahead import fetching_ahead
from torch_mjenvs.compiler.matrices.steps import even, runs
from torch_mjenvs.compiler.matrices.text import MatrixText
from torch_mjenvs.compiler.program import Buffer, record
from torch_mjenvs.compiler.scalar import exp

pytestmark = [
    pytest.mark.usefixtures("no_default_device"),
    pytest.mark.cpu,
    pytest.mark.skipif(not can_build(), reason="this processor has no fused multiply-add"),
]
LANES = [lanes for lanes in (4, 8, 16) if 4 * lanes <= cpu.host().vector_bytes]
SLACK = 16  # numbers after a matrix, which a step must leave alone


def run(steps: Sequence[Step], lanes: int, **tensors: torch.Tensor) -> None:
    types = {torch.float32: "f", torch.int64: "l"}
    memories = tuple(Memory(name, types[x.dtype]) for name, x in tensors.items())
    plan = Plan("test", memories, (Phase("item", 1, tuple(steps)),))
    build(plan, replace(cpu.host(), vector_bytes=4 * lanes))(tensors)


def wide(x: torch.Tensor, lanes: int) -> torch.Tensor:
    """Rows that reach to whole vectors."""
    return torch.nn.functional.pad(x, (0, -x.shape[1] % lanes))


SHAPES = [(64, 17, 32), (1, 64, 32), (13, 1, 5), (25, 32, 100)]  # rows, inner, columns
CASES = list(itertools.product(SHAPES, ("zeros", "column", "out"), (False, True)))


@pytest.mark.parametrize("lanes", LANES)
def test_a_product_is_that_of_torch(lanes):
    """All of them are steps of one kernel, each with memories of its own."""
    steps, tensors, expected = [], {}, {}
    for k, ((rows, inner, columns), start, transposed) in enumerate(CASES):
        a, b, column = numbers(rows, inner), numbers(inner, columns, seed=1), numbers(rows, seed=2)
        out = numbers(rows * columns + SLACK, seed=3)
        left = Matrix(f"a{k}", inner, rows, rows).T if transposed else Matrix(f"a{k}", rows, inner, inner)
        result = Matrix(f"out{k}", rows, columns, columns)  # without a gap: the next row begins amid a vector
        begun = {"zeros": None, "column": Matrix(f"column{k}", rows, 1, 1, 0), "out": result}[start]
        right = wide(b, lanes)
        steps.append(Multiply(result, left, Matrix(f"b{k}", inner, columns, right.shape[1]), begun))
        tensors |= {f"out{k}": out, f"a{k}": a.T.contiguous() if transposed else a, f"b{k}": right}
        tensors[f"column{k}"] = column
        first = {"zeros": torch.zeros(1, 1), "column": column[:, None], "out": out[:-SLACK].view(rows, columns)}
        expected[k] = torch.cat([(a @ b + first[start]).flatten(), out[-SLACK:]])
    run(steps, lanes, **tensors)
    for k, case in enumerate(CASES):
        assert (tensors[f"out{k}"] - expected[k]).abs().max() < 2e-5, case
        assert torch.equal(tensors[f"out{k}"][-SLACK:], expected[k][-SLACK:]), case


def targets_with_bfloat16() -> dict[str, cpu.Target]:
    """This processor with all that it has, and without AMX."""
    host = cpu.host()
    if host.vector_bytes < 64 or "+avx512bf16" not in host.features.split(","):
        return {}
    plain = replace(host, features=host.features.replace("+amx-bf16", "-amx-bf16"))
    return {"AMX": host, "AVX512-BF16": plain} if kernels._has_tiles(host) else {"AVX512-BF16": plain}


PAIRED = list(itertools.product([(64, 17, 32), (1, 64, 32), (13, 1, 5), (40, 71, 100)], ("zeros", "column", "out")))


@pytest.mark.parametrize(("name", "target"), targets_with_bfloat16().items())
def test_a_product_of_bfloat16_is_that_of_rounded_numbers(name, target):
    """Factors are rounded and paired from rows and from columns of matrices that fill no block."""
    steps, tensors, expected = [], {}, {}
    for k, (((rows, inner, columns), start), across) in enumerate(itertools.product(PAIRED, (False, True))):
        a, b = numbers(rows, inner), numbers(inner, columns, seed=1)
        high, deep, broad = (-(-n // 16) * 16 for n in (rows, -(-inner // 2), columns))
        out, column = torch.zeros(high, broad), torch.zeros(high, 16)
        out[:rows, :columns], column[:rows] = numbers(rows, columns, seed=2), numbers(rows, 1, seed=3)
        first = {"zeros": torch.zeros(1, 1), "column": column[:rows, :1], "out": out[:rows, :columns].clone()}[start]
        result = Matrix(f"out{k}", rows, columns, broad)
        left = Matrix(f"left{k}", rows, -(-inner // 2), deep)
        right = Matrix(f"right{k}", -(-inner // 2), columns, broad)
        factor = Matrix(f"b{k}", columns, inner, inner).T if across else Matrix(f"b{k}", inner, columns, columns)
        begun = {"zeros": None, "column": Matrix(f"column{k}", rows, 1, 16, 0), "out": result}[start]
        steps += [Pairs(left.T, Matrix(f"a{k}", rows, inner, inner).T), Pairs(right, factor)]
        steps.append(Multiply(result, left, right, begun))
        tensors |= {f"a{k}": a, f"b{k}": b.T.contiguous() if across else b, f"out{k}": out, f"column{k}": column}
        pairs = torch.zeros(high, deep, dtype=torch.int32), torch.zeros(deep, broad, dtype=torch.int32)
        tensors |= {f"left{k}": pairs[0], f"right{k}": pairs[1]}
        expected[k] = a.bfloat16().float() @ b.bfloat16().float() + first, b
    types = {torch.float32: "f", torch.int32: "p"}
    memories = tuple(Memory(name, types[x.dtype]) for name, x in tensors.items())
    build(Plan("test", memories, (Phase("item", 1, tuple(steps)),)), target)(tensors)
    for k, (product, b) in expected.items():
        rows, columns = product.shape
        assert (tensors[f"out{k}"][:rows, :columns] - product).abs().max() < 2e-5
        right = tensors[f"right{k}"].view(torch.bfloat16).view(*tensors[f"right{k}"].shape, 2)
        unpaired = right.transpose(1, 2).flatten(0, 1)  # rows, each of a pair's first or second numbers
        assert torch.equal(unpaired[: len(b), :columns], b.bfloat16()) and not unpaired[len(b) :].any()


def test_bfloat16_is_for_processors_that_gain_by_it():
    host = cpu.host()
    without = replace(host, features="-avx512bf16,-amx-bf16")
    plan = Plan("test", (Memory("pairs", "p"),), ())
    with pytest.raises(ValueError, match="the plan 'test' has products of bfloat16, and the processor"):
        build(plan, without)
    assert "neither AMX nor a fast AVX512-BF16" in kernels.why_no_bfloat16(without)
    only = replace(host, features="+avx512bf16", vector_bytes=64)
    assert kernels.why_no_bfloat16(replace(only, cpu="znver4")) is None  # AMD's is fast
    assert kernels.why_no_bfloat16(replace(only, cpu="cooperlake"))


@pytest.mark.parametrize("lanes", LANES)
def test_rows_are_gathered_and_transposed_and_summed(lanes):
    source, order = numbers(50, 21), torch.randperm(50, generator=torch.Generator().manual_seed(1))[:32]
    row = -(-21 // lanes) * lanes
    rows, columns = torch.full((32, row), torch.nan), torch.full((row, 32), torch.nan)
    sums = numbers(21 + SLACK, seed=2)
    before = sums.clone()
    into, turned = Matrix("rows", 32, 21, row), Matrix("columns", 21, 32, 32)
    steps = (
        Gather(into, Matrix("source", 50, 21, 21), Matrix("order", 1, 32, 32)),
        Transpose(turned, into),
        RowSums(Matrix("sums", 21, 1, 1), turned),
    )
    run(steps, lanes, rows=rows, source=source, order=order, columns=columns, sums=sums)
    assert torch.equal(rows[:, :21], source[order]) and torch.equal(columns[:21], source[order].T)
    torch.testing.assert_close(sums[:21], before[:21] + source[order].sum(0))
    assert torch.equal(sums[21:], before[21:])


@pytest.mark.parametrize("lanes", LANES)
def test_rows_gathered_side_by_side_leave_what_follows_alone(lanes):
    source, order = numbers(50, 5), torch.randperm(50, generator=torch.Generator().manual_seed(1))[:32]
    rows = torch.full((32 * 5 + SLACK,), torch.nan)
    gather = Gather(Matrix("rows", 32, 5, 5), Matrix("source", 50, 5, 5), Matrix("order", 1, 32, 32))
    run([gather], lanes, rows=rows, source=source, order=order)
    assert torch.equal(rows[:160].view(32, 5), source[order]) and rows[160:].isnan().all()


@pytest.mark.parametrize("lanes", LANES)
def test_products_fetch_the_rows_of_the_next_turn(lanes, monkeypatch):
    """Here fetching writes 1: each line of the next turn's rows gets one, and no other line does."""
    monkeypatch.setattr(MatrixText, "fetch", lambda text, at: text.put(f"store float 1.0, ptr {at}"))
    columns, rows = 150, 20
    source, taken = torch.zeros(60, 160), torch.zeros(rows, 160)
    index = torch.arange(3 * rows).flip(0)
    order = Matrix("index", 1, rows, rows, at=(("turn", rows),))
    first = Multiply(Matrix("c", 25, 36, 48), Matrix("a", 25, 30, 30), Matrix("b", 30, 36, 48))
    second = Multiply(Matrix("d", 7, 64, 64), Matrix("a", 7, 25, 25), Matrix("b", 25, 64, 64))
    short = Multiply(Matrix("d", 40, 64, 64), Matrix("a", 40, 2, 2), Matrix("b", 2, 64, 64))
    gather = Gather(Matrix("taken", rows, columns, 160), Matrix("source", 1, columns, 160), order)
    plain = Loop("turn", 2, (gather, first, short, second))
    (made,) = fetching_ahead([plain])
    assert isinstance(made, Loop) and made.steps[0] == gather and made.steps[2] == short  # it has too few turns
    shares = [x.ahead[0][1] for x in (made.steps[1], made.steps[3]) if isinstance(x, Multiply)]
    assert [(x.offset, x.columns) for x in shares] == [(20, 14), (34, 6)]
    for turns in (1, 2):
        source.zero_()
        tensors = {name: numbers(4096, seed=k) for k, name in enumerate("abcd")}
        expected = {name: x.clone() for name, x in tensors.items()}
        run([replace(made, count=turns)], lanes, source=source, taken=taken, index=index, **tensors)
        lines = torch.stack([x.any(1) for x in source.split(16, 1)], 1)
        following = torch.arange(60) < 60 - rows if turns == 2 else (torch.arange(60) // rows) == 1
        assert torch.equal(lines, following[:, None].expand_as(lines))
        run([replace(plain, count=turns)], lanes, source=source, taken=taken, index=index, **expected)
        assert all(torch.equal(tensors[name], expected[name]) for name in tensors)


def test_other_kernels_are_called_in_their_turn():
    """Each turn of a loop calls a function of its own, here one of Python, between two steps that double a number."""
    seen: list[tuple[int, float]] = []
    x, function = torch.ones(16), ctypes.CFUNCTYPE(None, ctypes.c_void_p)
    calls = [function(lambda given, k=k: seen.append((given - 1000 * k, float(x[0])))) for k in range(3)]
    addresses = [(ctypes.cast(f, ctypes.c_void_p).value, 1000 * k + 7) for k, f in enumerate(calls)]
    one = Matrix("x", 1, 16, 16)
    twice = record("twice", [Buffer("x", 1)], lambda b: {"x": [2.0 * b["x"][0]]}, "float32")
    steps = (Apply(twice, (one,), 16), Call(Matrix("calls", 1, 2, 2, at=(("turn", 2),))), Apply(twice, (one,), 16))
    run([Loop("turn", 3, steps)], LANES[-1], x=x, calls=torch.tensor(addresses))
    assert seen == [(7, 2.0), (7, 8.0), (7, 32.0)] and torch.equal(x, torch.full((16,), 64.0))


def scaled() -> Apply:
    """y = exp(x) * factor, where the factor is one number."""
    buffers = [Buffer("x", 2), Buffer("factor", 1), Buffer("y", 2)]
    program = record("scaled", buffers, lambda b: {"y": [exp(x) * b["factor"][0] for x in b["x"]]}, "float32")
    return Apply(program, (Matrix("x", 2, 48, 48), Matrix("factor", 1, 48, 1, 0), Matrix("y", 2, 48, 48)), 48)


@pytest.mark.parametrize("lanes", LANES)
def test_a_program_is_applied_to_every_column(lanes):
    x, y, factor = numbers(2, 48), torch.full((2, 48), torch.nan), torch.tensor([3.0])
    run([scaled()], lanes, x=x, factor=factor, y=y)
    torch.testing.assert_close(y, x.exp() * 3)


def test_turns_are_shared_out_and_phases_follow_each_other_in_every_round():
    """Each turn copies a row to memory of its thread's own and adds that up; the next phase adds up all turns' sums."""
    items, rounds, width = 11, 50, 256
    x = numbers(items, width)
    row, own = Matrix("x", 1, width, width, at=(("item", width),)), Matrix("own", 1, width, width)
    copy = record("copy", [Buffer("x", 1), Buffer("y", 1)], lambda b: {"y": b["x"]}, "float32")
    each = Matrix("each", 1, 1, 1, at=(("item", 16),))
    total = RowSums(Matrix("total", 1, 1, 1), Matrix("each", 1, 16 * items, 16 * items))
    turn = Loop("turn", 3, (Apply(copy, (row, own), width), RowSums(each, own)))
    memories = *map(Memory, ("x", "each", "total")), Memory("own", each=width)
    kernel = build(Plan("test", memories, (Phase("item", items, (turn,)), Phase("one", None, (total,)))))
    found = []
    for threads in (1, 2, 3):
        sums = {"x": x, "each": torch.zeros(items, 16), "total": torch.zeros(16), "own": torch.zeros(threads, width)}
        kernel(sums, rounds, threads, turns=1)
        if cpu.team():  # else there is one thread
            assert sums["own"].any(1).all(), "each thread has written its own memory"
        found.append((sums["each"][:, 0].clone(), sums["total"][:1].clone()))
    torch.testing.assert_close(found[0][0], 3 * rounds * x.sum(1), rtol=1e-3, atol=1e-2)
    torch.testing.assert_close(found[0][1], (3 * rounds * (rounds + 1) / 2 * x.sum())[None], rtol=1e-3, atol=1)
    for each_sums, sum_of_all in found[1:]:
        assert torch.equal(each_sums, found[0][0]) and torch.equal(sum_of_all, found[0][1])


def test_what_cannot_be_is_refused():
    with pytest.raises(ValueError, match="a product of"):
        Multiply(Matrix("out", 2, 3, 3), Matrix("a", 2, 4, 4), Matrix("b", 5, 3, 3))
    with pytest.raises(ValueError, match="must be neighbours"):
        Multiply(Matrix("out", 2, 3, 3), Matrix("a", 2, 4, 4), Matrix("b", 3, 4, 4).T)
    with pytest.raises(ValueError, match="does not hold pairs of rows"):
        Pairs(Matrix("out", 2, 3, 3), Matrix("x", 5, 3, 3))
    with pytest.raises(ValueError, match="are not made of rows"):
        Pairs(Matrix("out", 4, 2, 2).T, Matrix("x", 4, 4, 4))
    with pytest.raises(ValueError, match="does not hold what"):
        Regroup(Matrix("out", 2, 5, 16), Matrix("x", 4, 2, 16))
    step = scaled()
    with pytest.raises(ValueError, match="cannot be"):
        replace(step, matrices=(Matrix("x", 1, 48, 48), *step.matrices[1:]))
    tensors = {"x": torch.zeros(2, 48), "factor": torch.zeros(1), "y": torch.zeros(2, 48)}
    kernel = build(Plan("test", tuple(map(Memory, tensors)), (Phase("item", 1, (step,)),)))
    with pytest.raises(ValueError, match="'y' must be a contiguous"):
        kernel(tensors | {"y": torch.zeros(2, 48).double()})


def test_parts_are_even():
    assert even(64, 12) == [11, 11, 11, 11, 10, 10] and even(64, 16) == [16] * 4 and even(3, 4) == [3]
    assert runs([11, 11, 10]) == [(0, 11, 2), (22, 10, 1)] and runs([]) == []
