"""Large matrices in tiles: the same for floats and in kernels, and what NumPy finds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from graph_eval import run_compiled, run_ptx, trace

from torch_mjenvs.compiler.active_sets import active_set, change_each
from torch_mjenvs.compiler.arrays import Array, Table
from torch_mjenvs.compiler.control import repeat
from torch_mjenvs.compiler.tiles import SIDE, Blocks, Pattern, SumsLayout, TileMatrix, elimination

Columns = list[list[int]]


def full(n: int) -> Columns:
    """The lower triangle of a matrix without zeros."""
    return [list(range(i + 1)) for i in range(n)]


def tree(parents: list[int]) -> Columns:
    """The lower triangle of a matrix in which two rows meet where one is above the other in a tree."""
    found: Columns = []
    for i, parent in enumerate(parents):
        found.append([*(found[parent] if parent >= 0 else []), i])
    return found


# a trunk of 5, branches of 3 and 6 from its middle and its end, one of 2 on a branch, and a tree of its own
BRANCHES = tree([-1, 0, 1, 2, 3, 2, 5, 6, 4, 8, 9, 10, 11, 12, 9, 14, -1, 16])
SHAPES = {"1": full(1), "4": full(4), "5": full(5), "13": full(13), "tree": BRANCHES}
WORLDS, WIDTH = 3, 2


def asked(b: dict[str, list], columns: Columns, least: list[float]) -> list:
    """All that a matrix can be asked for: products of vectors and a matrix by rows, one after the other."""
    n = len(columns)
    lower = [(i, j) for i in range(n) for j in columns[i]]
    rows = [{j: b["rows"][lower.index((i, j))] for j in columns[i]} for i in range(n)]
    left, right = ([b[name][WIDTH * i : WIDTH * i + WIDTH] for i in range(n)] for name in ("left", "right"))
    further = {i: [x + 1.0 for x in left[i]] for i in (0, n - 1)}
    matrix = TileMatrix.of_products(left, right, columns).plus(rows)
    moved = matrix.plus_products(further, columns)
    factor, alone = moved.factor(least), TileMatrix.of(rows)
    L = [x for row, own in zip(factor.L, columns, strict=True) for x in (row.get(j, 0.0) for j in own[:-1])]
    entries = [row[j] for row, own in zip(moved, columns, strict=True) for j in own]
    return [*factor.solve(b["x"]), *factor.inverse, *L, *moved.times(b["x"]), *alone.times(b["x"]), *entries]


def wanted(inputs: dict[str, np.ndarray], columns: Columns, world: int) -> np.ndarray:
    n = len(columns)
    left, right = (inputs[name][:, world].reshape(n, WIDTH).copy() for name in ("left", "right"))
    alone, products = np.zeros((n, n)), np.zeros((n, n))
    places = [(i, j) for i in range(n) for j in columns[i]]
    for (i, j), x in zip(places, inputs["rows"][:, world], strict=True):
        extra = left[i] + 1.0 if i in (0, n - 1) else 0.0 * left[i]
        alone[i, j] = alone[j, i] = x
        products[i, j] = products[j, i] = (left[i] + extra) @ right[j]
    whole, x = alone + products, inputs["x"][:, world]
    held = whole.copy()
    held[-1, -1] = max(held[-1, -1], 500.0)
    L, pivots, rest = np.eye(n), np.zeros(n), held.copy()
    for k in range(n - 1, -1, -1):
        pivots[k], L[k, :k] = rest[k, k], rest[k, :k] / rest[k, k]
        rest[:k, :k] -= np.outer(L[k, :k], rest[k, :k])
    lower = [L[i, j] for i, j in places if i != j]
    entries = [whole[i, j] for i, j in places]
    return np.array([*np.linalg.solve(held, x), *(1 / pivots), *lower, *(whole @ x), *(alone @ x), *entries])


@pytest.mark.parametrize("name", SHAPES)
def test_a_matrix_in_tiles_is_added_to_multiplied_factored_and_solved_with(name: str) -> None:
    """With a pivot that is held from below."""
    columns, rng = SHAPES[name], np.random.default_rng(0)
    n = len(columns)
    lower = [(i, j) for i in range(n) for j in columns[i]]
    inputs = {
        "rows": np.array([[rng.normal() + 40.0 * (i == j) for _ in range(WORLDS)] for i, j in lower]),
        **{name: rng.normal(size=(n * WIDTH, WORLDS)) for name in ("left", "right")},
        "x": rng.normal(size=(n, WORLDS)),
    }
    least = [-1e10] * (n - 1) + [500.0]
    want = np.stack([wanted(inputs, columns, world) for world in range(WORLDS)], 1)
    outputs = {"y": (len(want), "f")}
    program = trace(lambda b: {"y": asked(b, columns, least)}, inputs, outputs, "float64")
    np.testing.assert_allclose(run_compiled(program, inputs)["y"], want, rtol=0, atol=1e-12)
    if n < 6:
        np.testing.assert_allclose(run_ptx(program, inputs)["y"], want, rtol=0, atol=1e-12)
    numbers = {key: [float(x) for x in value[:, 0]] for key, value in inputs.items()}
    np.testing.assert_allclose(asked(numbers, columns, least), want[:, 0], rtol=0, atol=1e-12)


def test_tiles_of_branches_that_do_not_meet_take_no_products() -> None:
    trunk, branch = 8, 12
    parents = [*range(-1, trunk - 1)]
    for _ in range(4):
        parents += [trunk - 1, *range(len(parents), len(parents) + branch - 1)]
    star = tree(parents)
    pattern = Pattern.of(star)
    assert pattern.blocks.count == (trunk + 4 * branch) // SIDE
    assert [len(x) for x in pattern.before] == [0, 1] + [2, 3, 4] * 4
    assert pattern.products < 1.01 * elimination(star)


def test_the_same_is_not_computed_twice() -> None:
    """A product and factors are found again where they were asked for before, though they are loops."""

    def body(b: dict[str, list]) -> dict[str, list]:
        vectors = [b["x"][i : i + 1] for i in range(9)]
        found, products = [], TileMatrix.of_products(vectors, vectors, full(9))
        for _ in range(2):
            matrix = products.plus([{i: 1.0} for i in range(9)])
            found += [*matrix.times(b["x"]), *matrix.factor([0.0] * 9).solve(b["x"])]
        return {"y": found}

    program = trace(body, {"x": np.zeros((9, 1))}, {"y": (36, "f")}, "float64")
    loops = [e for e in program.live if e.op == "repeat" and e.region is program.trace.top]
    assert len(loops) == 3 + 2 * 2, "products, a product with a vector, factors, and two solutions in two loops each"


def test_tiles_that_nothing_was_added_to_are_passed_over() -> None:
    """A matrix with tiles that loops may add to: each world adds to others, or to none.

    On a GPU each world goes its own way, and what it passes over is there NaN.
    """
    columns, rng = BRANCHES, np.random.default_rng(1)
    n, blocks, worlds = len(columns), Blocks.of(columns), 5
    between = [(7, 4), (13, 7), (15, 13), (17, 7)]  # the last rows of branches that meet nowhere else
    at = [(blocks.of_row[i], blocks.of_row[j]) for i, j in between]
    held = sorted({(I, J) for (I, _), (J, _) in at})
    layout = SumsLayout(blocks, held, [sorted({j for a, j in between if a == i}) for i in range(n)])
    rows = Table([held.index((I, J)) + 1 for (I, _), (J, _) in at])
    where = Table([[float((i, j) == (k, m)) for k in range(SIDE) for m in range(SIDE)] for (_, i), (_, j) in at])
    lower = [(i, j) for i in range(n) for j in columns[i]]
    more = np.array([[0.0] * worlds, [0, 1, 0, 3, 0], [0, 0, 2, 0, 0], [0, 0, 0, 1.5, 0.5]])
    entries = np.array([[rng.normal() + 40.0 * (i == j) for _ in range(worlds)] for i, j in lower])
    inputs = {"entries": entries, "more": more, "x": rng.normal(size=(n, worlds))}

    def solve(b: dict[str, list]) -> list:
        sums, given = layout.zeros(), Array(b["more"])

        def add(k: Any) -> None:
            def put(_: int, nothing: list) -> list:
                tile = sums.get(rows[k])
                sums.put(rows[k], [x + given[k] * where[k, e] for e, x in enumerate(tile)])
                return nothing

            repeat(1, put, [], sums.arrays)

        change_each(active_set([x > 0.0 for x in b["more"]]), add, sums.arrays)
        own = [{j: b["entries"][lower.index((i, j))] for j in columns[i]} for i in range(n)]
        matrix = TileMatrix.of(own, blocks).stored().plus_part(sums, layout.columns)
        entries = [matrix[i][j] for i, j in between]
        return [*matrix.times(b["x"]), *matrix.factor([-1e10] * n).solve(b["x"]), *entries]

    want = []
    for world in range(worlds):
        whole, x = np.zeros((n, n)), inputs["x"][:, world]
        for places, values in ((lower, entries), (between, more)):
            for (i, j), value in zip(places, values[:, world], strict=True):
                whole[i, j] = whole[j, i] = whole[i, j] + value
        want.append([*(whole @ x), *np.linalg.solve(whole, x), *(whole[i, j] for i, j in between)])
    program = trace(lambda b: {"y": solve(b)}, inputs, {"y": (len(want[0]), "f")}, "float64")
    for run in (run_compiled, run_ptx):
        np.testing.assert_allclose(run(program, inputs)["y"].T, want, rtol=0, atol=1e-12)
    numbers = {key: [float(x) for x in value[:, 3]] for key, value in inputs.items()}
    np.testing.assert_allclose(solve(numbers), want[3], rtol=0, atol=1e-12)
