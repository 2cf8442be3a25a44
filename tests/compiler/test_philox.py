"""Philox against published answers and a NumPy twin; the distributions drawn from it."""

from __future__ import annotations

import kernels
import numpy as np
import pytest
from graph_eval import RUNNERS, evaluate, run_compiled, trace
from scipy import stats

from torch_mjenvs.compiler.program import Buffer, record
from torch_mjenvs.compiler.random import Random, philox, signed

DTYPES = ["float32", "float64"]
RUNS = [(r, d) for r in RUNNERS for d in DTYPES]
WORLDS = 20000
# counter, key, output: the known answers published with Random123
KNOWN = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]


def words(text: str) -> list[int]:
    return [int(w, 16) for w in text.split()]


def reference(counter: np.ndarray, key: np.ndarray) -> np.ndarray:
    """Philox4x32-10 on uint64 arrays of 32-bit words: counter (4, n), key (2, n) -> (4, n)."""
    low = np.uint64(0xFFFFFFFF)
    c0, c1, c2, c3 = counter.astype(np.uint64)
    k0, k1 = key.astype(np.uint64)
    for _ in range(10):
        p0, p1 = c0 * np.uint64(0xD2511F53), c2 * np.uint64(0xCD9E8D57)
        c0, c1, c2, c3 = (p1 >> np.uint64(32)) ^ c1 ^ k0, p1 & low, (p0 >> np.uint64(32)) ^ c3 ^ k1, p0 & low
        k0, k1 = (k0 + np.uint64(0x9E3779B9)) & low, (k1 + np.uint64(0xBB67AE85)) & low
    return np.stack([c0, c1, c2, c3]).astype(np.uint32)


@pytest.mark.parametrize(("counter", "key", "out"), KNOWN)
def test_known_answers(counter: str, key: str, out: str) -> None:
    column = lambda text: np.array(words(text), np.uint64)[:, None]  # noqa: E731
    assert reference(column(counter), column(key))[:, 0].tolist() == words(out)
    constant = philox(tuple(map(signed, words(counter))), tuple(map(signed, words(key))))  # type: ignore[arg-type]
    assert [w % 2**32 for w in constant] == words(out)  # type: ignore[operator]


@pytest.mark.parametrize("runner", RUNNERS)
def test_words_of_traced_counters_and_keys(runner: str) -> None:
    known = [words(f"{c} {k}") for c, k, _ in KNOWN]
    more = np.random.default_rng(0).integers(0, 2**32, (6, 500))
    x = np.concatenate([np.array(known).T, more], axis=1).astype(np.uint32)
    inputs = {"x": x.view(np.int32)}
    program = trace(lambda b: {"y": list(philox(b["x"][:4], b["x"][4:]))}, inputs, {"y": (4, "i")}, "float32")  # type: ignore[arg-type]
    got = RUNNERS[runner](program, inputs)["y"].view(np.uint32)
    np.testing.assert_array_equal(got, reference(x[:4], x[4:]))
    assert [got[:, i].tolist() for i in range(3)] == [words(out) for _, _, out in KNOWN]


def draw(runner: str, dtype: str, body, n: int, type_: str = "f") -> np.ndarray:
    """n numbers by a generator keyed with (7, world) and counting from (0, 5, -3, 0)."""
    inputs = {"world": np.arange(WORLDS, dtype=np.int32)[None]}
    program = trace(lambda b: {"y": body(Random(7, b["world"][0], 5, -3))}, inputs, {"y": (n, type_)}, dtype)
    return RUNNERS[runner](program, inputs)["y"]


def twin(n_blocks: int) -> np.ndarray:
    """The words that `draw` should have used, (4 n_blocks, worlds)."""
    world = np.arange(WORLDS)
    key = np.stack([np.full(WORLDS, 7), world])
    block = lambda i: np.stack([np.full(WORLDS, c % 2**32) for c in (i, 5, -3, 0)])  # noqa: E731
    return np.concatenate([reference(block(i), key) for i in range(n_blocks)])


@pytest.mark.parametrize("runner", RUNNERS)
def test_words_in_order(runner: str) -> None:
    got = draw(runner, "float32", lambda r: [r.word() for _ in range(6)], 6, "i")
    np.testing.assert_array_equal(got.view(np.uint32), twin(2)[:6])


@pytest.mark.parametrize(("runner", "dtype"), RUNS)
def test_uniform_draws_are_made_of_the_words_of_philox(runner: str, dtype: str) -> None:
    got = draw(runner, dtype, lambda r: [r.uniform() for _ in range(4)], 4)
    w = twin(2).astype(np.float64)
    if dtype == "float32":
        want = np.floor(w[:4] / 2**8) / 2**24
    else:
        want = (np.floor(w[0::2] / 2**5) * 2**26 + np.floor(w[1::2] / 2**6)) / 2**53
    np.testing.assert_array_equal(got, want)
    assert stats.kstest(got.ravel().astype(np.float64), "uniform").pvalue > 0.01
    assert np.max(np.abs(np.corrcoef(got) - np.eye(4))) < 0.03  # four standard deviations


@pytest.mark.parametrize(
    ("low", "high"), [(0.0, 0.1), (-0.1, 0.1), (-1.0, 0.0), (-2.0, -1.0), (5.0, 5.001), (1e3, 1e4)]
)
@pytest.mark.parametrize(("runner", "dtype"), RUNS)
def test_uniform_bounds(runner: str, dtype: str, low: float, high: float) -> None:
    x = draw(runner, dtype, lambda r: [r.uniform(low, high)], 1)[0]
    assert x.dtype == dtype
    assert np.all((x >= np.dtype(dtype).type(low)) & (x < np.dtype(dtype).type(high)))
    assert abs(np.mean(x, dtype=np.float64) - (low + high) / 2) < 0.01 * (high - low)


@pytest.mark.parametrize(
    ("low", "high"), [(0.0, 1.0), (0.0, 0.1), (-0.3, 0.3), (-1.0, 0.0), (-2.0, -1.0), (5.0, 5.001)]
)
@pytest.mark.parametrize("dtype", DTYPES)
def test_extreme_words_stay_in_bounds(monkeypatch: pytest.MonkeyPatch, dtype: str, low: float, high: float) -> None:
    inputs = {"w": np.array([[0, -1]], np.int32)}
    monkeypatch.setattr(Random, "_word", lambda self, i: self._key[0])
    program = trace(lambda b: {"y": [Random(b["w"][0], 0).uniform(low, high)]}, inputs, {"y": (1, "f")}, dtype)
    first, last = run_compiled(program, inputs)["y"][0]
    f = np.dtype(dtype).type
    assert first == f(low)
    assert f(high) - 3e-7 * max(abs(low), abs(high)) < last < f(high)


def test_an_empty_interval_is_refused() -> None:
    with pytest.raises(ValueError, match="low <= high"):
        draw("graph", "float32", lambda r: [r.uniform(1.0, 0.9)], 1)


@pytest.mark.parametrize(("runner", "dtype"), RUNS)
def test_bounds_that_are_equal_or_a_worlds_own(runner: str, dtype: str) -> None:
    """What is drawn later does not depend on them."""

    def body(r: Random) -> list:
        same, level = r.uniform(0.5, 0.5), r.uniform(1.0, 2.0)
        return [same, level, r.uniform(-level, level), r.uniform(level, level)]

    same, level, own, none = draw(runner, dtype, body, 4)
    assert np.all(same == 0.5) and np.all(none == level) and np.all(np.abs(own) <= level) and np.abs(own).max() > 1.5
    assert np.array_equal(level, draw(runner, dtype, lambda r: [r.uniform(0.0, 0.1), r.uniform(1.0, 2.0)], 2)[1])


@pytest.mark.parametrize(("runner", "dtype"), RUNS)
def test_normal_draws_are_normal(runner: str, dtype: str) -> None:
    got = draw(runner, dtype, lambda r: [r.normal() for _ in range(5)], 5).astype(np.float64)
    n = got.size
    assert stats.kstest(got.ravel(), "norm").pvalue > 0.01
    assert abs(got.mean()) < 4 / n**0.5
    assert abs(got.var() - 1) < 4 * (2 / n) ** 0.5
    assert abs((got**4).mean() - 3) < 4 * (96 / n) ** 0.5
    assert np.max(np.abs(np.corrcoef(got) - np.eye(5))) < 0.03
    assert np.max(np.abs(np.corrcoef(got**2) - np.eye(5))) < 0.03


@pytest.mark.parametrize("dtype", DTYPES)
def test_normal_of_extreme_words(monkeypatch: pytest.MonkeyPatch, dtype: str) -> None:
    extremes = np.array([0, 1, 2**31 - 1, -(2**31), -1], np.int32)
    inputs = {"w": np.stack([g.ravel() for g in np.meshgrid(extremes, extremes)])}
    step = 1 if dtype == "float32" else 2
    monkeypatch.setattr(Random, "_word", lambda self, i: self._key[i // step % 2])

    def body(b: dict[str, list]) -> dict[str, list]:
        r = Random(*b["w"])
        return {"y": [r.normal(), r.normal()]}

    program = trace(body, inputs, {"y": (2, "f")}, dtype)
    for got in (evaluate(program, inputs)["y"], run_compiled(program, inputs)["y"]):
        radius = np.hypot(*got)
        assert np.all(np.isfinite(got))
        assert np.max(radius) == pytest.approx((2 * np.log(2) * (33 if dtype == "float32" else 54)) ** 0.5, rel=1e-6)


@pytest.mark.parametrize(("runner", "dtype"), RUNS)
def test_exponential_draws_are_exponential(runner: str, dtype: str) -> None:
    got = draw(runner, dtype, lambda r: [r.exponential(), r.exponential(3.0), r.uniform()], 3).astype(np.float64)
    assert stats.kstest(got[0], "expon").pvalue > 0.01 and stats.kstest(got[1] / 3, "expon").pvalue > 0.01
    assert np.max(np.abs(np.corrcoef(got) - np.eye(3))) < 0.03


@pytest.mark.parametrize("dtype", DTYPES)
def test_exponential_of_extreme_words(monkeypatch: pytest.MonkeyPatch, dtype: str) -> None:
    inputs = {"w": np.array([[0, -1]], np.int32)}
    monkeypatch.setattr(Random, "_word", lambda self, i: self._key[0])
    program = trace(lambda b: {"y": [Random(b["w"][0], 0).exponential()]}, inputs, {"y": (1, "f")}, dtype)
    most, least = run_compiled(program, inputs)["y"][0]
    assert most == pytest.approx(np.log(2) * (33 if dtype == "float32" else 54), rel=1e-6) and 0 <= least < 1e-9


@pytest.mark.parametrize(("runner", "dtype"), RUNS)
def test_integers_are_drawn_uniformly(runner: str, dtype: str) -> None:
    all_of = -(2**24), 2**24
    got = draw(runner, dtype, lambda r: [r.integers(6), r.integers(-3, 4), r.integers(5, 6), r.integers(*all_of)], 4)
    assert set(got[0]) == set(range(6)) and set(got[1]) == set(range(-3, 4)) and set(got[2]) == {5}
    for x in got[:2]:
        assert stats.chisquare(np.unique(x, return_counts=True)[1]).pvalue > 0.01
    assert np.all(got[3] == np.rint(got[3])) and got[3].min() < -0.99 * 2**24 and 0.99 * 2**24 < got[3].max() < 2**24


def test_integers_are_the_same_in_both_precisions() -> None:
    one, other = (draw("compiled", dtype, lambda r: [r.integers(1000), r.integers(1000)], 2) for dtype in DTYPES)
    np.testing.assert_array_equal(one, other)


def test_bounds_that_hold_no_integers_are_refused() -> None:
    for bounds, error, said in (
        ((3, 3), ValueError, "low < high"),
        ((0,), ValueError, "low < high"),
        ((2**25,), ValueError, r"-2\*\*24 to 2\*\*24"),
        ((0.5,), TypeError, "integer"),
    ):
        with pytest.raises(error, match=said):
            draw("graph", "float32", lambda r, bounds=bounds: [r.integers(*bounds)], 1)


def test_normals_come_in_pairs() -> None:
    """Another draw between the two of a pair moves neither."""
    plain = draw("graph", "float32", lambda r: [r.normal(), r.normal(), r.uniform()], 3)
    mixed = draw("graph", "float32", lambda r: [r.normal(), r.uniform(), r.normal()], 3)
    np.testing.assert_array_equal(plain[[0, 2, 1]], mixed)


@pytest.mark.parametrize("dtype", DTYPES)
def test_machine_code_gives_the_bits_of_the_graph(dtype: str) -> None:
    body = lambda r: [r.uniform(-0.1, 0.1), r.normal(), r.normal()]  # noqa: E731
    np.testing.assert_array_equal(draw("graph", dtype, body, 3), draw("compiled", dtype, body, 3))


def test_plain_numbers_are_those_of_a_float64_kernel() -> None:
    """Uniform and whole ones bit for bit, beside normal and exponential ones that are to rounding."""

    def draw(rng: Random) -> list:
        return [
            rng.uniform(),
            rng.uniform(-0.3, 0.7),
            rng.normal(),
            rng.normal(),
            rng.uniform(-2.0, -1.0),
            rng.normal(),
            rng.integers(-5, 100),
            rng.exponential(),
        ]

    worlds = np.arange(64, dtype=np.int32)
    program = record(
        "plain", [Buffer("x", 1, "i"), Buffer("y", 8)], lambda b: {"y": draw(Random(7, b["x"][0], 3, 0, -1))}, "float64"
    )
    found = kernels.run(program, {"x": worlds[None]})["y"]
    want = np.array([draw(Random(7, int(i), 3, 0, -1)) for i in worlds]).T
    exact = [0, 1, 4, 6]
    assert np.array_equal(found[exact], want[exact])
    np.testing.assert_allclose(found, want, rtol=1e-14, atol=1e-15)
