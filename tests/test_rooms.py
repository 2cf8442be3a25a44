"""Rooms: memories that a loop changes, where each world has its own rows. The same for floats, tensors and kernels."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from graph_eval import run_compiled, run_ptx, trace

from torch_mjenvs.compiler.constants import Constants
from torch_mjenvs.compiler.control import count_while
from torch_mjenvs.compiler.dense import factor_dense
from torch_mjenvs.compiler.rooms import Room, number
from torch_mjenvs.compiler.scalar import logical_and, select


def sieve(limit):
    """The sum of the primes below limit, each world's own: numbers are crossed out in a room."""
    room = Room(40, 1, [[0.0]] * 40)

    def cross_out(i, k):
        (crossed,) = room.at(k, [0])

        def every(j, _):
            room.put(k * number(j + 2), [1.0], logical_and(crossed < 0.5, k * number(j + 2) < limit))
            return _

        count_while(lambda j, _: k * number(j + 2) < limit, every, 0.0, 40, [room])
        return k + 1.0

    count_while(lambda i, k: k < limit, cross_out, 2.0, 40, [room])

    def add_up(i, carry):
        (crossed,) = room.at(i, [0])
        return [carry[0] + select(crossed < 0.5, number(i), 0.0), carry[1] + 1.0]

    total, _ = count_while(lambda i, c: number(i) < limit, add_up, [0.0, 0.0], 40)
    return total - 1.0  # without 0 and 1


def primes(limit: int) -> float:
    return float(sum(n for n in range(2, limit) if all(n % k for k in range(2, n))))


LIMITS = [2, 3, 10, 40, 17, 31, 5, 23, 8, 39]


def test_a_room_on_floats():
    assert [sieve(float(limit)) for limit in LIMITS] == [primes(limit) for limit in LIMITS]


def test_a_room_on_tensors():
    assert sieve(torch.tensor(LIMITS, dtype=torch.float64)).tolist() == [primes(limit) for limit in LIMITS]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("run", [run_compiled, pytest.param(run_ptx, marks=pytest.mark.cpu)])
def test_a_room_in_a_kernel(dtype, run):
    inputs = {"limit": np.array([LIMITS], dtype=dtype)}
    program = trace(lambda b: {"total": [sieve(b["limit"][0])]}, inputs, {"total": (1, "f")}, dtype)
    assert run(program, inputs)["total"][0].tolist() == [primes(limit) for limit in LIMITS]


def swap(n):
    """What was read before a loop changes it is what was there before, wherever it is used."""
    room = Room(4, 2, [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [7.0, 8.0]])
    before = room.at(n, [0, 1])

    def put(i, c):
        old = room.at(n, [0])
        room.put(n, [old[0] + 10.0])
        return c

    count_while(lambda i, c: number(i) < n, put, 0.0, 4, [room])
    return [*before, *room.at(n, [0, 1]), *room.at(0, [0])]


def test_what_is_read_before_a_loop_stays():
    want = [[1, 2, 1, 2, 1], [3, 4, 13, 4, 1], [5, 6, 25, 6, 1], [7, 8, 37, 8, 1]]
    assert [swap(float(n)) for n in range(4)] == want
    inputs = {"n": np.array([[0, 1, 2, 3]], dtype="float64")}
    program = trace(lambda b: {"out": swap(b["n"][0])}, inputs, {"out": (5, "f")}, "float64")
    assert run_compiled(program, inputs)["out"].T.tolist() == want


@pytest.mark.parametrize("n", [1, 8, 9, 21])
def test_a_matrix_is_factored_by_loops(n):
    """L'DL is the matrix, on floats and in a kernel, with a pivot that is held from below."""
    rng = np.random.default_rng(n)
    roots = rng.normal(size=(4, n, n + 3))
    matrices = roots @ roots.transpose(0, 2, 1)
    matrices[:, -1, :] = matrices[:, :, -1] = 0.0
    lower = [(i, j) for i in range(n) for j in range(i + 1)]
    least = [-1e10] * (n - 1) + [1e-3]

    def factors(entries):
        rows = [{j: entries[lower.index((i, j))] for j in range(i + 1)} for i in range(n)]
        found, inverse = factor_dense(rows, least)
        return [*(row[j] for row in found for j in sorted(row)), *inverse]

    inputs = {"a": np.array([[a[i, j] for a in matrices] for i, j in lower])}
    program = trace(lambda b: {"f": factors(b["a"])}, inputs, {"f": (n * (n + 1) // 2, "f")}, "float64")
    compiled = run_compiled(program, inputs)["f"]
    for world, a in enumerate(matrices):
        for found in (compiled[:, world], np.array(factors([float(a[i, j]) for i, j in lower]))):
            L = np.eye(n)
            L[np.tril_indices(n, -1)] = found[: n * (n - 1) // 2]
            a[-1, -1] = 1e-3
            assert np.allclose(L.T @ np.diag(1 / found[n * (n - 1) // 2 :]) @ L, a, rtol=1e-12, atol=1e-12)


ROWS = [[3.0, -1.0], [4.0, 1.5], [-5.0, 9.0]]
ASKED_FOR = [0.0, 2.0, 1.0, 1.9, -3.0, 7.0, 1e30, -1e30, float("inf"), float("nan")]
GOT = [ROWS[k] for k in (0, 2, 1, 1, 0, 2, 2, 0, 2, 2)]


def test_each_world_reads_a_row_of_a_table_of_its_own():
    """What is not there gives another row's."""
    table = Constants(ROWS, 2)
    assert [table.at(k, (0, 1)) for k in ASKED_FOR] == GOT
    columns = table.at(torch.tensor(ASKED_FOR, dtype=torch.float64), (0, 1))
    assert torch.stack(columns, 1).tolist() == GOT


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("run", [run_compiled, pytest.param(run_ptx, marks=pytest.mark.cpu)])
def test_a_table_in_a_kernel(dtype, run):
    inputs = {"row": np.array([ASKED_FOR], dtype=dtype)}
    program = trace(lambda b: {"got": Constants(ROWS, 2).at(b["row"][0], (0, 1))}, inputs, {"got": (2, "f")}, dtype)
    assert run(program, inputs)["got"].T.tolist() == GOT
