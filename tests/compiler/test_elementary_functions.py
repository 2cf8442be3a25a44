"""The elementary functions against mpmath, by NumPy node for node and as machine code."""

from __future__ import annotations

from collections.abc import Callable

import mpmath
import numpy as np
import pytest
import torch
from graph_eval import RUNNERS, evaluate, run_compiled, trace
from kernels import dtype_of

from torch_mjenvs.compiler import math as traced
from torch_mjenvs.compiler.scalar import log, power

DTYPES = ["float32", "float64"]
RUNS = [(r, d) for r in RUNNERS for d in DTYPES]
FUNCTIONS: dict[str, tuple[Callable, Callable]] = {
    "sin": (traced.sin, mpmath.sin),
    "cos": (traced.cos, mpmath.cos),
    "exp": (traced.exp, mpmath.exp),
    "log": (traced.log, mpmath.log),
    "atan2": (traced.atan2, mpmath.atan2),
    "expm1": (traced.expm1, mpmath.expm1),
    "log1p": (traced.log1p, mpmath.log1p),
    "tanh": (traced.tanh, mpmath.tanh),
    "asin": (traced.asin, mpmath.asin),
    "acos": (traced.acos, mpmath.acos),
}
WORST = [1391.9768, 1368.4156]  # 1.54 ulp in float32, the most among all of 0.25..16 and 5e7 up to 1e4
TINY = [0.0, -0.0, 1e-300, -1e-300, 5e-324, 1e-40, -1e-40, 1e-20, 1e-8, -1e-4]


def apply(runner: str, dtype: str, name: str, *args: np.ndarray) -> np.ndarray:
    inputs = {"x": np.stack(args)}
    program = trace(lambda b: {"y": [FUNCTIONS[name][0](*b["x"])]}, inputs, {"y": (1, "f")}, dtype)
    return RUNNERS[runner](program, inputs)["y"][0]


def errors(name: str, got: np.ndarray, *args: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Absolute errors, and the spacing of numbers at the exact results."""
    with mpmath.workprec(160):
        exact = [FUNCTIONS[name][1](*map(mpmath.mpf, x)) for x in zip(*(a.tolist() for a in args), strict=True)]
        absolute = np.array([float(abs(mpmath.mpf(g) - e)) for g, e in zip(got.tolist(), exact, strict=True)])
        size = np.array([abs(float(e)) for e in exact])
    lowest = np.finfo(got.dtype).smallest_normal
    return absolute, np.spacing(np.maximum(size, lowest).astype(got.dtype)).astype(np.float64)


def angles(dtype: str) -> np.ndarray:
    rng = np.random.default_rng(1)
    limit = 1e5 if dtype == "float32" else 1e10
    turns = np.concatenate([np.arange(-40, 41), rng.integers(-limit / 1.6, limit / 1.6, 400)]) * (np.pi / 4)
    turns = turns.astype(dtype)
    near = [turns, np.nextafter(turns, dtype_of(dtype)(np.inf)), np.nextafter(turns, dtype_of(dtype)(-np.inf))]
    spread = np.exp(rng.uniform(-20, np.log(limit), 1000)) * rng.choice([-1, 1], 1000)
    x = np.concatenate(
        [np.linspace(-7, 7, 2001), rng.uniform(-1e3, 1e3, 1000), spread, [limit, -limit], WORST, TINY, *near]
    )
    return x.astype(dtype)


@pytest.mark.parametrize("name", ["sin", "cos"])
@pytest.mark.parametrize(("runner", "dtype"), RUNS)
def test_sin_cos(name: str, runner: str, dtype: str) -> None:
    x = angles(dtype)
    got = apply(runner, dtype, name, x)
    absolute, ulp = errors(name, got, x)
    beyond = 2e-15 * np.abs(x) if dtype == "float32" else 1e-32 * np.abs(x)
    assert np.max((absolute - beyond) / ulp) <= 1.6
    assert np.max(absolute) <= (1e-7 if dtype == "float32" else 2e-16)
    assert np.max(np.abs(got)) <= 1


@pytest.mark.parametrize("name", ["sin", "cos"])
@pytest.mark.parametrize(("runner", "dtype"), RUNS)
def test_huge_angles(name: str, runner: str, dtype: str) -> None:
    x = np.array([1.001e5, 3e6, 1e8, 2.2e9, 9.9e9, 1e10, np.nan], dtype)
    got = apply(runner, dtype, name, np.concatenate([x, -x]))
    assert np.array_equal(np.isnan(got), np.isnan(np.concatenate([x, x])))
    assert np.nanmax(np.abs(got)) <= 1


@pytest.mark.parametrize(("runner", "dtype"), RUNS)
def test_exp_is_accurate(runner: str, dtype: str) -> None:
    rng = np.random.default_rng(2)
    low, high = (-87.33, 88.7228) if dtype == "float32" else (-708.39, 709.7827)
    x = np.concatenate([np.linspace(-3, 3, 2001), rng.uniform(low, high, 2000), np.linspace(high - 1, high, 300), TINY])
    halves = (np.arange(-120, 127) + 0.5) * np.log(2)
    x = np.concatenate([x, halves, [low, high]]).astype(dtype)
    got = apply(runner, dtype, "exp", x)
    absolute, ulp = errors("exp", got, x)
    assert np.max(absolute / ulp) <= 1.5

    far = np.array([high + 0.1, 1e4, 1e30, np.inf, low - 0.1, -1e4, -1e30, -np.inf, np.nan], dtype)
    got = apply(runner, dtype, "exp", far)
    assert np.all(np.isposinf(got[:4]))
    assert np.all((got[4:8] >= 0) & (got[4:8] < 1.5 * np.finfo(dtype).smallest_normal))
    assert np.isnan(got[8])


@pytest.mark.parametrize(("runner", "dtype"), RUNS)
def test_log_is_accurate(runner: str, dtype: str) -> None:
    rng = np.random.default_rng(3)
    f = np.finfo(dtype)
    edge = np.log([float(f.smallest_normal), float(f.max)])
    x = np.concatenate([np.linspace(0.3, 3, 2001), np.exp(rng.uniform(edge[0] + 0.1, edge[1] - 0.1, 2000))])
    x = np.concatenate([x, 1 + rng.uniform(-1, 1, 300) * 10.0 ** rng.uniform(-7, -1, 300), 2.0 ** np.arange(-126, 128)])
    x = np.concatenate([x, 2.0 ** (np.arange(-20, 20) + 0.5)]).astype(dtype)
    x = np.concatenate([x, [f.smallest_normal, f.max], np.nextafter(np.ones(2, dtype), np.array([0, 2], dtype))])
    got = apply(runner, dtype, "log", x)
    absolute, ulp = errors("log", got, x)
    assert np.max(absolute / ulp) <= 1.5

    below = float(f.smallest_normal) / 8  # subnormal
    small = float(f.smallest_normal)
    edges = np.array([0.0, -0.0, below, -below, -small, -0.03, -1e30, -np.inf, np.inf, np.nan], dtype)
    wanted = [-np.inf] * 4 + [np.nan] * 4 + [np.inf, np.nan]
    np.testing.assert_array_equal(apply(runner, dtype, "log", edges), wanted)


def test_log_and_power_of_numbers_and_tensors_beyond_their_domain() -> None:
    """As in kernels."""
    assert log(0.0) == -np.inf and np.isnan(log(-1.0)) and np.isnan(power(-2.0, 0.3))
    x = torch.tensor([0.0, -1.0])
    assert torch.equal(log(x).nan_to_num(7.0), torch.tensor([-torch.inf, 7.0]).nan_to_num(7.0))
    assert power(x, 0.3)[1].isnan() and power(-2.0, 3) == -8.0


@pytest.mark.parametrize(("runner", "dtype"), RUNS)
def test_atan2_is_accurate(runner: str, dtype: str) -> None:
    rng = np.random.default_rng(4)
    t = rng.uniform(-np.pi, np.pi, 3000)
    size = 10.0 ** rng.uniform(-10, 10, 3000)
    y, x = np.sin(t) * size, np.cos(t) * size
    wide = 10.0 ** rng.uniform(-15, 15, (2, 1000)) * rng.choice([-1, 1], (2, 1000))
    grid = np.array([-2.0, -1.0, 0.0, 1.0, 2.0, 1e10, 1e-10])
    y, x = (np.concatenate(p).astype(dtype) for p in ((y, wide[0], np.repeat(grid, 7)), (x, wide[1], np.tile(grid, 7))))
    got = apply(runner, dtype, "atan2", y, x)
    absolute, ulp = errors("atan2", got, y, x)
    assert np.max(absolute / ulp) <= 2.0
    assert apply(runner, dtype, "atan2", np.zeros(1, dtype), np.zeros(1, dtype))[0] == 0
    for bad in ((np.nan, 1.0), (0.0, np.nan)):
        assert np.isnan(apply(runner, dtype, "atan2", *(np.full(1, v, dtype) for v in bad)))


def around_zero(dtype: str, largest: float) -> np.ndarray:
    """Numbers of all sizes and both signs, and evenly spaced ones."""
    rng = np.random.default_rng(7)
    f = np.finfo(dtype)
    sizes = np.exp(rng.uniform(np.log(float(f.smallest_normal)), np.log(largest), 1500)) * rng.choice([-1, 1], 1500)
    near = np.linspace(-min(largest, 3.0), min(largest, 3.0), 2001)
    return np.concatenate([near, sizes, rng.uniform(-largest, largest, 1500), [largest, -largest]]).astype(dtype)


@pytest.mark.parametrize(("runner", "dtype"), RUNS)
def test_expm1_is_accurate(runner: str, dtype: str) -> None:
    high = 88.7228 if dtype == "float32" else 709.7827
    x = np.concatenate([around_zero(dtype, high), (np.arange(-40, 120) + 0.5) * np.log(2)]).astype(dtype)
    absolute, ulp = errors("expm1", apply(runner, dtype, "expm1", x), x)
    assert np.max(absolute / ulp) <= 3
    far = np.array([high + 0.1, np.inf, -1e4, -np.inf, np.nan], dtype)
    np.testing.assert_array_equal(apply(runner, dtype, "expm1", far), [np.inf, np.inf, -1, -1, np.nan])


@pytest.mark.parametrize(("runner", "dtype"), RUNS)
def test_log1p_is_accurate(runner: str, dtype: str) -> None:
    x = around_zero(dtype, 1e30)
    first = np.nextafter(np.array([-1.0], dtype), np.array([0.0], dtype))
    x = np.concatenate([x[x > -1], np.linspace(-0.999, 3, 1001), first]).astype(dtype)
    absolute, ulp = errors("log1p", apply(runner, dtype, "log1p", x), x)
    assert np.max(absolute / ulp) <= 3
    special = np.array([-1, -1.5, -np.inf, np.inf, np.nan], dtype)
    want = [-np.inf, np.nan, np.nan, np.inf, np.nan]
    np.testing.assert_array_equal(apply(runner, dtype, "log1p", special), want)


@pytest.mark.parametrize(("runner", "dtype"), RUNS)
def test_tanh_is_accurate(runner: str, dtype: str) -> None:
    x = around_zero(dtype, 40.0)
    got = apply(runner, dtype, "tanh", x)
    absolute, ulp = errors("tanh", got, x)
    assert np.max(absolute / ulp) <= 4 and np.max(np.abs(got)) <= 1
    far = np.array([1e30, np.inf, -1e30, -np.inf, np.nan], dtype)
    np.testing.assert_array_equal(apply(runner, dtype, "tanh", far), [1, 1, -1, -1, np.nan])


@pytest.mark.parametrize("name", ["asin", "acos"])
@pytest.mark.parametrize(("runner", "dtype"), RUNS)
def test_asin_acos(name: str, runner: str, dtype: str) -> None:
    inside = np.linspace(-1, 1, 2001)
    edge = 1 - 10.0 ** np.random.default_rng(8).uniform(-15, 0, 500)
    x = np.concatenate([inside, edge, -edge, around_zero(dtype, 1.0)]).astype(dtype)
    absolute, ulp = errors(name, apply(runner, dtype, name, x), x)
    assert np.max(absolute / ulp) <= 4
    beyond = np.array([np.nextafter(1.0, 2.0, dtype=dtype), -2.0, np.inf, np.nan], dtype)
    assert np.isnan(apply(runner, dtype, name, beyond)).all()


@pytest.mark.parametrize("runner", RUNNERS)
def test_atan2_of_a_constant(runner: str) -> None:
    x = np.array([[-2.0, -0.5, 0.0, 0.5, 2.0]])

    def body(b: dict[str, list]) -> dict[str, list]:
        v = b["x"][0]
        return {"y": [angle for c in (-1.0, 0.0, 1.0) for angle in (traced.atan2(v, c), traced.atan2(c, v))]}

    got = RUNNERS[runner](trace(body, {"x": x}, {"y": (6, "f")}, "float64"), {"x": x})["y"]
    want = np.concatenate([[np.arctan2(x[0], c), np.arctan2(np.full(5, c), x[0])] for c in (-1.0, 0.0, 1.0)])
    np.testing.assert_allclose(got, want, rtol=1e-15)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("runner", RUNNERS)
def test_power_is_accurate(runner: str, dtype: str) -> None:
    """At 0, too, where it is computed by a logarithm."""
    x, powers = np.array([[0.0, 1e-25, 1e-6, 0.3, 1.0, 2.5]], dtype=dtype_of(dtype)), (0.1, 0.3, 0.9, 1.1, 1.7, 20.0)
    program = trace(lambda b: {"y": [power(b["x"][0], p) for p in powers]}, {"x": x}, {"y": (len(powers), "f")}, dtype)
    got, want = RUNNERS[runner](program, {"x": x})["y"], np.stack([x[0].astype(float) ** p for p in powers])
    np.testing.assert_allclose(got, want, rtol=2e-5 if dtype == "float32" else 1e-13, atol=1e-32)


@pytest.mark.parametrize("dtype", DTYPES)
def test_machine_code_gives_the_bits_of_the_graph(dtype: str) -> None:
    x = np.random.default_rng(5).uniform(0.01, 50, (2, 2000)).astype(dtype)

    def body(b: dict[str, list]) -> dict[str, list]:
        p, q = b["x"]
        return {"y": [f(p) for f in (traced.sin, traced.cos, traced.exp, traced.log)] + [traced.atan2(p, q)]}

    program = trace(body, {"x": x}, {"y": (5, "f")}, dtype)
    np.testing.assert_array_equal(run_compiled(program, {"x": x})["y"], evaluate(program, {"x": x})["y"])


@pytest.mark.parametrize(("dtype", "most"), [("float32", 25), ("float64", 29)])
def test_a_pair_shares_its_reduction(dtype: str, most: int) -> None:
    x = np.zeros((1, 1), dtype)
    program = trace(lambda b: {"y": [traced.sin(b["x"][0]), traced.cos(b["x"][0])]}, {"x": x}, {"y": (2, "f")}, dtype)
    assert sum(program.count_ops().values()) <= most
