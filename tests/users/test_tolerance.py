"""`tolerance` against dm_control's, where that is installed, and against formulas in NumPy everywhere."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable

import numpy as np
import pytest
import torch
from graph_eval import run_compiled, trace

from torch_mjenvs.rewards import tolerance

pytestmark = pytest.mark.usefixtures("no_default_device")

X = np.concatenate([np.linspace(-12, 12, 481), [1e3, -1e3, 1e-9, 0.3, -0.3, 2.0]])
ARGUMENTS: list[dict] = [
    {},
    {"bounds": (-0.3, 2.0)},
    {"bounds": (-0.3, 2.0), "margin": 1.5},
    {"bounds": (1.0, 1.0), "margin": 4.0, "value_at_margin": 0.5},
    {"bounds": (2.0, float("inf")), "margin": 2.0},
    {"bounds": (float("-inf"), 2.0), "margin": 2.0, "value_at_margin": 0.01},
    {"bounds": (float("-inf"), float("inf")), "margin": 2.0},
]
# How each falls from 1 at a distance of 0 to v at 1.
FALLS: dict[str, Callable[[np.ndarray, float], np.ndarray]] = {
    "gaussian": lambda d, v: v ** (d * d),
    "hyperbolic": lambda d, v: 1 / np.cosh(np.arccosh(1 / v) * np.minimum(d, 100)),
    "long_tail": lambda d, v: 1 / (1 + d * d * (1 - v) / v),
    "reciprocal": lambda d, v: 1 / (1 + d * (1 - v) / v),
    "cosine": lambda d, v: np.cos(np.minimum(d * np.arccos(2 * v - 1), np.pi) / 2) ** 2,
    "linear": lambda d, v: np.clip(1 - (1 - v) * d, 0, None),
    "quadratic": lambda d, v: np.clip(1 - (1 - v) * d * d, 0, None),
    "tanh_squared": lambda d, v: 1 / np.cosh(np.arctanh(np.sqrt(1 - v)) * np.minimum(d, 100)) ** 2,
}
CASES = [pytest.param(name, arguments, id=f"{name}-{k}") for name in FALLS for k, arguments in enumerate(ARGUMENTS)]


def in_numpy(x: np.ndarray, sigmoid: str, bounds=(0.0, 0.0), margin=0.0, value_at_margin=0.1) -> np.ndarray:
    outside = np.maximum(np.maximum(bounds[0] - x, x - bounds[1]), 0.0)
    return FALLS[sigmoid](outside / margin, value_at_margin) if margin else (outside == 0).astype(float)


@pytest.mark.parametrize(("sigmoid", "arguments"), CASES)
def test_values_are_dm_controls(sigmoid: str, arguments: dict) -> None:
    want = in_numpy(X, sigmoid, **arguments)
    plain = [tolerance(x, sigmoid=sigmoid, **arguments) for x in X.tolist()]
    np.testing.assert_allclose(plain, want, atol=1e-15, rtol=1e-13)
    tensors = tolerance(torch.from_numpy(X), sigmoid=sigmoid, **arguments)
    np.testing.assert_allclose(torch.as_tensor(tensors).expand(len(X)).numpy(), want, atol=1e-15, rtol=1e-13)
    inputs = {"x": X[None]}

    def body(b: dict) -> dict:
        return {"y": [tolerance(b["x"][0], sigmoid=sigmoid, **arguments)]}

    program = trace(body, inputs, {"y": (1, "f")}, "float64")
    np.testing.assert_allclose(run_compiled(program, inputs)["y"][0], want, atol=1e-15, rtol=1e-13)


@pytest.fixture
def original() -> Callable:
    """dm_control's own, by its file: the rest of the library is not needed."""
    spec = importlib.util.find_spec("dm_control")
    if spec is None:
        pytest.skip("dm_control is not installed")
    place = importlib.util.spec_from_file_location("rewards", f"{spec.submodule_search_locations[0]}/utils/rewards.py")
    module = importlib.util.module_from_spec(place)
    place.loader.exec_module(module)
    return module.tolerance


@pytest.mark.parametrize(("sigmoid", "arguments"), CASES)
@pytest.mark.filterwarnings("ignore")
def test_values_are_those_of_dm_control(original, sigmoid: str, arguments: dict) -> None:
    got = [tolerance(x, sigmoid=sigmoid, **arguments) for x in X.tolist()]
    np.testing.assert_allclose(got, original(X, sigmoid=sigmoid, **arguments), atol=1e-15, rtol=0)


WRONG = [
    ({"bounds": (1.0, 0.0)}, r"bounds must be in order, \(low, high\), not \(1.0, 0.0\)"),
    ({"margin": -1.0}, "margin must be a number from 0 on, not -1.0"),
    ({"margin": 1.0, "sigmoid": "round"}, "there is no sigmoid 'round': choose from gaussian, hyperbolic"),
    ({"margin": 1.0, "value_at_margin": 0.0}, "value_at_margin must be above 0 and below 1 for a gaussian"),
    ({"margin": 1.0, "value_at_margin": 1.0}, "value_at_margin must be above 0 and below 1 for a gaussian"),
    ({"margin": 1.0, "sigmoid": "linear", "value_at_margin": -0.1}, "from 0 on, and below 1 for a linear sigmoid"),
    ({"margin": 1.0, "sigmoid": "cosine", "value_at_margin": 1.0}, "from 0 on, and below 1 for a cosine sigmoid"),
]


@pytest.mark.parametrize(("arguments", "said"), WRONG)
def test_what_makes_no_sense_is_refused(arguments: dict, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        tolerance(0.5, **arguments)


@pytest.mark.parametrize("arguments", [x for x, _ in WRONG])
def test_what_is_refused_is_what_dm_control_refuses(original, arguments: dict) -> None:
    with pytest.raises(ValueError):
        original(0.5, **arguments)


def test_bounds_may_differ_from_world_to_world() -> None:
    x, low = np.linspace(-3, 3, 50), np.linspace(2, -2, 50)
    inputs = {"x": np.stack([x, low])}

    def body(b: dict) -> dict:
        speed, command = b["x"]
        return {"y": [tolerance(speed, (command, command + 0.5), margin=1.0)]}

    got = run_compiled(trace(body, inputs, {"y": (1, "f")}, "float64"), inputs)["y"][0]
    want = [in_numpy(a, "gaussian", (b, b + 0.5), 1.0) for a, b in zip(x, low, strict=True)]
    np.testing.assert_allclose(got, want, atol=1e-15, rtol=1e-13)


@pytest.mark.parametrize("sigmoid", FALLS)
def test_margins_may_differ_from_world_to_world(sigmoid: str) -> None:
    x, margin = np.linspace(-3, 3, 51), np.linspace(-0.5, 2, 51).round(2)
    assert (margin == 0).any()
    inputs = {"x": np.stack([x, margin])}

    def body(b: dict) -> dict:
        return {"y": [tolerance(b["x"][0], (-0.5, 0.5), b["x"][1], sigmoid)]}

    got = run_compiled(trace(body, inputs, {"y": (1, "f")}, "float64"), inputs)["y"][0]
    want = [in_numpy(a, sigmoid, (-0.5, 0.5), max(b, 0.0)) for a, b in zip(x, margin, strict=True)]
    np.testing.assert_allclose(got, want, atol=1e-15, rtol=1e-12)
    tensors = tolerance(torch.from_numpy(x), (-0.5, 0.5), torch.from_numpy(margin), sigmoid)
    np.testing.assert_allclose(tensors.numpy(), want, atol=1e-15, rtol=1e-12)
