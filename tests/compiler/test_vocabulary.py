"""The vocabulary of tasks means the same for Python floats, torch tensors and kernels, special values included."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable

import numpy as np
import pytest
import torch
from graph_eval import RUNNERS, trace
from kernels import dtype_of

from torch_mjenvs import scalar
from torch_mjenvs.compiler.scalar import split_exponent

pytestmark = pytest.mark.usefixtures("no_default_device")

DTYPES = ["float32", "float64"]
RUNS = [(r, d) for r in RUNNERS for d in DTYPES]
ROUNDING: dict[str, Callable] = {"floor": np.floor, "ceil": np.ceil, "round": np.rint, "sign": np.sign}
SPECIAL = [0.0, -0.0, 0.5, -0.5, 1.5, 2.5, -2.5, 1e-30, -1e-30, np.inf, -np.inf, np.nan]


def numbers(dtype: str) -> np.ndarray:
    rng = np.random.default_rng(0)
    near = rng.integers(-(2**20), 2**20, 300).astype(dtype)
    sizes = 10.0 ** rng.uniform(-20, 20, 500) * rng.choice([-1, 1], 500)
    around = [np.nextafter(near, np.inf, dtype=dtype), np.nextafter(near, -np.inf, dtype=dtype), near + 0.5]
    return np.concatenate([SPECIAL, near, *around, sizes, rng.uniform(-10, 10, 500)]).astype(dtype)


def run(runner: str, function: Callable, *args: np.ndarray) -> np.ndarray:
    """The results of a function, by a kernel."""
    inputs = {"x": np.stack(args)}
    program = trace(lambda b: {"y": [function(*b["x"])]}, inputs, {"y": (1, "f")}, str(args[0].dtype))
    return RUNNERS[runner](program, inputs)["y"][0]


@pytest.mark.parametrize("name", ROUNDING)
@pytest.mark.parametrize(("runner", "dtype"), RUNS)
def test_rounding_is_exact(name: str, runner: str, dtype: str) -> None:
    x, function = numbers(dtype), getattr(scalar, name)
    want = ROUNDING[name](x)
    np.testing.assert_array_equal(run(runner, function, x), want)
    np.testing.assert_array_equal(function(torch.from_numpy(x)).numpy(), want)
    if dtype == "float64":
        got = [function(y) for y in x.tolist()]
        assert all(type(y) is float for y in got)
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    ("builtin", "name"), [(abs, "absolute"), (round, "round"), (math.floor, "floor"), (math.ceil, "ceil")]
)
def test_pythons_own_functions_work_in_a_kernel(builtin: Callable, name: str) -> None:
    x = numbers("float64")
    np.testing.assert_array_equal(run("compiled", builtin, x), run("compiled", getattr(scalar, name), x))


def divisions(dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """Pairs whose quotient is as large as is known, of whole and broken numbers; every pair of special ones."""
    rng = np.random.default_rng(1)
    top = 13 if dtype == "float32" else 31
    y = 10.0 ** rng.uniform(-4, 4, 2000) * rng.choice([-1, 1], 2000)
    x = y * 10.0 ** rng.uniform(-3, top, 2000) * rng.choice([-1, 1], 2000)
    whole = rng.integers(-1000, 1000, (2, 2000))
    grid = np.array(list(itertools.product([0.0, 1.0, -1.0, 0.3, -7.5, np.inf, -np.inf, np.nan], repeat=2))).T
    a, b = (np.concatenate(p).astype(dtype) for p in zip((x, y), whole, grid, strict=True))
    steps = np.arange(-50, 50).astype(dtype)  # quotients that round to the next whole number, or just below it
    a = np.concatenate([a, steps * dtype_of(dtype)(0.1), np.nextafter(steps, np.inf, dtype=dtype)])
    return a, np.concatenate([b, np.full(100, 0.1, dtype), np.full(100, 1 / 3, dtype)])


@pytest.mark.parametrize("name", ["fmod", "mod"])
@pytest.mark.parametrize(("runner", "dtype"), RUNS)
def test_what_is_left_by_a_division_is_exact(name: str, runner: str, dtype: str) -> None:
    x, y = divisions(dtype)
    with np.errstate(all="ignore"):
        want = np.fmod(x, y) if name == "fmod" else np.mod(x, y)
    function = scalar.fmod if name == "fmod" else operator.mod
    got = run(runner, function, x, y)
    np.testing.assert_array_equal(got, want)
    tensors = function(torch.from_numpy(x), torch.from_numpy(y)).numpy()
    np.testing.assert_array_equal(tensors, want)
    if name == "fmod" and dtype == "float64":
        np.testing.assert_array_equal([function(a, b) for a, b in zip(x.tolist(), y.tolist(), strict=True)], want)


@pytest.mark.parametrize(("dtype", "quotient"), [("float32", 2.0**46), ("float64", 2.0**104)])
def test_a_quotient_too_large_to_be_exact_gives_nan_in_a_kernel(dtype: str, quotient: float) -> None:
    x = np.array([quotient, -quotient, quotient / 2.1], dtype)
    got = run("compiled", lambda a: scalar.fmod(a, 1.0), x)
    np.testing.assert_array_equal(got, [np.nan, np.nan, np.fmod(x[2], 1.0)])


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_division_by_or_of_a_constant(dtype: str) -> None:
    x = np.linspace(-20, 20, 401).astype(dtype)
    for c in (3.0, -0.7):
        rounded, some = dtype_of(dtype)(c), x[x != 0]
        c = float(rounded)
        np.testing.assert_array_equal(run("compiled", lambda a, c=c: scalar.fmod(a, c), x), np.fmod(x, rounded))
        np.testing.assert_array_equal(run("compiled", lambda a, c=c: a % c, x), np.mod(x, rounded))
        np.testing.assert_array_equal(run("compiled", lambda a, c=c: c % a, some), np.mod(rounded, some))


def test_a_number_is_split_at_its_exponent() -> None:
    x = np.abs(numbers("float64"))
    x = np.concatenate([x[np.isfinite(x) & (x > 1e-300)], 2.0 ** np.arange(-20, 20), [1.5, np.nextafter(2.0, 1.0)]])
    want = np.frexp(x)
    for k, part in enumerate([2.0 * want[0], want[1] - 1.0]):
        np.testing.assert_array_equal(split_exponent(torch.from_numpy(x))[k].numpy(), part)
        np.testing.assert_array_equal([split_exponent(y)[k] for y in x.tolist()], part)
        np.testing.assert_array_equal(run("compiled", lambda y, k=k: split_exponent(y)[k], x), part)


FUNCTIONS = ["expm1", "log1p", "tanh", "asin", "acos", "sin", "cos", "absolute"]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_floats_tensors_and_kernels_agree(name: str) -> None:
    """As far as their roundings do: NaN and infinity are in the same places."""
    x = np.concatenate([numbers("float64"), np.linspace(-1.2, 1.2, 241), [-1.0, 709.5, 709.9, 1000.0]])
    if name in ("sin", "cos"):
        x = x[np.abs(x) < 1e9]
    function = getattr(scalar, name)
    want = function(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose([function(y) for y in x.tolist()], want, rtol=1e-15, atol=1e-16)
    np.testing.assert_allclose(run("compiled", function, x), want, rtol=2e-15, atol=1e-16)


MASKS: dict[str, Callable] = {
    "and": lambda a, b: a & b, "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b, "not": lambda a, b: ~a,
    "both": lambda a, b: ~(a | b) ^ (a & ~b),
}  # fmt: skip


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("runner", RUNNERS)
def test_masks_have_operators(name: str, runner: str) -> None:
    x = np.array([[1.0, 1, -1, -1], [1, -1, 1, -1]])
    want = MASKS[name](x[0] > 0, x[1] > 0)
    got = run(runner, lambda a, b: scalar.select(MASKS[name](a > 0, b > 0), 1.0, 0.0), *x)
    np.testing.assert_array_equal(got, want)
    for c in (True, False):  # a mask that is known beforehand, on either side
        for swap in (False, True):
            if name in ("and", "or", "xor"):
                call = lambda a, _b, c=c, swap=swap: MASKS[name](*((c, a > 0) if swap else (a > 0, c)))  # noqa: E731
                got = run(runner, lambda a, b, call=call: scalar.select(call(a, b), 1.0, 0.0) + 0.0 * b, *x)
                np.testing.assert_array_equal(got, MASKS[name](x[0] > 0, c))


def test_what_is_no_mask_is_refused() -> None:
    x = np.ones((1, 2))

    def traced(function: Callable) -> None:
        trace(lambda b: {"y": [scalar.select(function(b["x"][0]), 1.0, 0.0)]}, {"x": x}, {"y": (1, "f")}, "float64")

    for function in (lambda a: a > 0 & (a < 1), lambda a: a & (a > 0), lambda a: (a > 0) | 1, lambda a: ~a):
        with pytest.raises(TypeError, match=r"put comparisons in brackets, \(x > 0\) & \(y < 1\)"):
            traced(function)
    with pytest.raises(TypeError, match=r"& and|, \| and ~ of masks for and, or and not"):
        traced(lambda a: a > 0 and a < 1)
    minus_two = ~True  # what `~` makes of a comparison of Python floats
    for call in (
        lambda: scalar.select(minus_two, 1.0, 0.0),
        lambda: scalar.logical_and(True, minus_two),
        lambda: scalar.logical_or(minus_two, False),
        lambda: scalar.logical_not(minus_two),
    ):
        with pytest.raises(TypeError, match=r"not -2; ~ of Python's own True .* use logical_not"):
            call()


def test_numbers_and_masks_of_numpy_are_one_world_s() -> None:
    """A task's functions also run beside MuJoCo C, on an mjData, whose numbers are NumPy's."""
    one = np.float64(1.0)
    for x in (one, -one):
        positive = bool(x > 0.0)
        assert scalar.select(x > 0.0, x, 3.0) == (1.0 if positive else 3.0)
        assert scalar.logical_not(x > 0.0) is not positive
        for combined in (scalar.logical_and(x > 0.0, x < 2.0), scalar.logical_or(x > 0.0, x < -2.0)):
            assert combined is positive
        assert scalar.when_any(x > 0.0, lambda c: c + 1.0, 0.0) == (1.0 if positive else 0.0)
    assert scalar.while_any(lambda c: c < np.float64(3.5), lambda c: c + 1.0, 0.0, 10**9) == 4.0
