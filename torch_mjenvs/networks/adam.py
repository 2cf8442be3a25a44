"""Adam (Kingma and Ba, 2015) with the clipping of the gradient's norm, as programs of scalars."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..compiler.program import Buffer, Program, record
from ..compiler.scalar import Scalar, minimum, sqrt


def total(parts: Sequence[Scalar]) -> Scalar:
    """Add up numbers in pairs, then pairs of pairs."""
    if len(parts) == 1:
        return parts[0]
    half = len(parts) // 2
    return total(parts[:half]) + total(parts[half:])


def gradient(parts: int) -> Program:
    """Record the sum of parts of a gradient, times `trained` (0 for parameters that stay, else 1), and its square."""

    def body(b: dict[str, list[Any]]) -> dict[str, list[Any]]:
        g = total(b["parts"]) * b["trained"][0]
        return {"gradient": [g], "square": [g * g]}

    sizes = {"parts": parts, "trained": 1, "gradient": 1, "square": 1}
    return record("gradient", [Buffer(name, size) for name, size in sizes.items()], body, "float32")


def clipping(parts: int, most: float) -> Program:
    """Record the factor that holds a gradient's norm to `most`, from this many sums of squares."""

    def body(b: dict[str, list[Any]]) -> dict[str, list[Any]]:
        return {"factor": [minimum(most / (sqrt(total(b["squares"])) + 1e-6), 1.0)]}

    return record("clipping", [Buffer("squares", parts), Buffer("factor", 1)], body, "float32")


def adam(betas: tuple[float, float], eps: float) -> Program:
    """Record a step of Adam, as torch.optim.Adam takes it.

    `rates` has two numbers: the learning rate over 1 - beta1**t, and one over the square root of 1 - beta2**t.
    """

    def body(b: dict[str, list[Any]]) -> dict[str, list[Any]]:
        (x,), (m,), (v,), (g,), (factor,), (rate, spread) = (
            b[name] for name in ("theta", "mean", "square", "gradient", "factor", "rates")
        )
        g = g * factor
        m = m + (1.0 - betas[0]) * (g - m)
        v = betas[1] * v + (1.0 - betas[1]) * (g * g)
        return {"theta": [x - rate * m / (sqrt(v) * spread + eps)], "mean": [m], "square": [v]}

    sizes = {"theta": 1, "mean": 1, "square": 1, "gradient": 1, "factor": 1, "rates": 2}
    return record("adam", [Buffer(name, size) for name, size in sizes.items()], body, "float32")
