"""Activations and their slopes, as functions of scalars."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..compiler.scalar import Scalar, exp, maximum, minimum, select


@dataclass(frozen=True)
class Activation:
    """A function y = value(x), and its derivative slope(x, y)."""

    value: Callable[[Scalar], Scalar]
    slope: Callable[[Scalar, Scalar], Scalar]


def tanh(x: Scalar) -> Scalar:
    """Return the hyperbolic tangent of x, to 1e-7 of 1: small results have fewer digits, as suits a network."""
    return 1.0 - 2.0 / (exp(2.0 * x) + 1.0)


def sigmoid(x: Scalar) -> Scalar:
    """Return 1 / (1 + exp(-x))."""
    return 1.0 / (exp(-x) + 1.0)


def elu(x: Scalar) -> Scalar:
    """Return x where it is positive, and exp(x) - 1 elsewhere."""
    return select(x > 0.0, x, exp(minimum(x, 0.0)) - 1.0)


def silu_slope(x: Scalar, y: Scalar) -> Scalar:
    """Return the derivative of y = x sigmoid(x)."""
    s = sigmoid(x)
    return s + y * (1.0 - s)


ACTIVATIONS = {
    "none": Activation(lambda x: x, lambda x, y: 1.0),
    "tanh": Activation(tanh, lambda x, y: 1.0 - y * y),
    "relu": Activation(lambda x: maximum(x, 0.0), lambda x, y: select(y > 0.0, 1.0, 0.0)),
    "elu": Activation(elu, lambda x, y: select(y > 0.0, 1.0, y + 1.0)),
    "silu": Activation(lambda x: x * sigmoid(x), silu_slope),
}
