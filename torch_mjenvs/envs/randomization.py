"""Parameters of a model that differ from world to world and are drawn anew when an episode begins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..compiler.random import Random
from ..compiler.scalar import Scalar

Bound = float | Sequence  # a number, or nested lists of them that fit the parameter as in NumPy


@dataclass(frozen=True)
class Draw:
    """Each number of a parameter by a number of its own from `low` to `high`, or with `together` all by the same."""

    low: Any
    high: Any
    together: bool = False

    def __post_init__(self) -> None:
        for name in ("low", "high"):
            object.__setattr__(self, name, _frozen(np.asarray(getattr(self, name), dtype=float).tolist()))

    def applied(self, x: float, by: Scalar) -> Scalar:
        """The parameter's number x, changed by what was drawn."""
        raise NotImplementedError

    def bounds(self, name: str, shape: tuple[int, ...]) -> tuple[list[float], list[float]]:
        """`low` and `high` for each number of a parameter. Raises ValueError where they do not fit."""
        try:
            low, high = (np.broadcast_to(np.array(x, float), shape).ravel() for x in (self.low, self.high))
        except ValueError as error:
            raise ValueError(f"randomize {name!r}: the bounds do not fit its shape {shape}: {error}") from error
        if not (np.isfinite([low, high]).all() and (low <= high).all()):
            raise ValueError(f"randomize {name!r}: bounds must be finite and in order, not {self.low} and {self.high}")
        return low.tolist(), high.tolist()

    def draw(self, name: str, nominal: list[float], shape: tuple[int, ...], rng: Random) -> list[Scalar]:
        """The parameter's numbers, drawn."""
        one = rng.uniform() if self.together else None
        out = []
        for x, low, high in zip(nominal, *self.bounds(name, shape), strict=True):
            by = low if low == high else low + (high - low) * (rng.uniform() if one is None else one)
            out.append(self.applied(x, by))
        return out


class Scale(Draw):
    """Multiplies the model's number by one from `low` to `high`."""

    def applied(self, x: float, by: Scalar) -> Scalar:
        return x * by


class Shift(Draw):
    """Adds a number from `low` to `high` to the model's."""

    def applied(self, x: float, by: Scalar) -> Scalar:
        return x + by


class Uniform(Draw):
    """A number from `low` to `high`, whatever the model's is."""

    def applied(self, x: float, by: Scalar) -> Scalar:
        return by


def as_draws(randomize: Mapping[str, Any] | None) -> dict[str, Draw]:
    """What users hand in: a pair (low, high) is a Scale. Raises TypeError for anything else."""
    if randomize is None:
        return {}
    if not isinstance(randomize, Mapping):
        raise TypeError(f"randomize must be a dict by names of parameters, not {randomize!r}")
    out = {}
    for name, x in randomize.items():
        pair = isinstance(x, (tuple, list)) and len(x) == 2 and all(isinstance(y, (int, float)) for y in x)
        if not (pair or isinstance(x, Draw)):
            raise TypeError(f"randomize {name!r}: (low, high) to multiply by, Scale, Shift or Uniform, not {x!r}")
        out[name] = Scale(*x) if pair else x
    return out


def _frozen(x: Any) -> Any:
    return tuple(map(_frozen, x)) if isinstance(x, list) else x
