"""Domain randomization: parameters of a model that are drawn anew in each world when an episode begins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..compiler.random import Random
from ..compiler.scalar import Scalar

Bound = float | Sequence[Any]  # a number, or nested lists of them that fit the parameter as in NumPy


@dataclass(frozen=True)
class Draw:
    """Base of the ways to draw a parameter, from uniform numbers between `low` and `high`.

    Each number of the parameter gets a draw of its own; with `together` all of them share one.
    """

    low: Bound
    high: Bound
    together: bool = False

    def __post_init__(self) -> None:
        for name in ("low", "high"):
            object.__setattr__(self, name, _frozen(np.asarray(getattr(self, name), dtype=float).tolist()))

    def applied(self, x: float, by: Scalar) -> Scalar:
        """Return the parameter's number x, changed by the drawn number `by`."""
        raise NotImplementedError

    def as_json(self) -> dict[str, Any]:
        """Return the draw in a form that JSON can hold, and `as_draws` takes."""
        return {"draw": type(self).__name__, "low": self.low, "high": self.high, "together": self.together}

    def bounds(self, name: str, shape: tuple[int, ...]) -> tuple[list[float], list[float]]:
        """Return `low` and `high` for each number of a parameter. Raises ValueError if they do not fit."""
        try:
            low, high = (np.broadcast_to(np.array(x, float), shape).ravel() for x in (self.low, self.high))
        except ValueError as error:
            raise ValueError(f"randomize {name!r}: the bounds do not fit its shape {shape}: {error}") from error
        if not (np.isfinite([low, high]).all() and (low <= high).all()):
            raise ValueError(f"randomize {name!r}: bounds must be finite and in order, not {self.low} and {self.high}")
        return low.tolist(), high.tolist()

    def draw(self, name: str, nominal: list[float], shape: tuple[int, ...], rng: Random) -> list[Scalar]:
        """Draw the numbers of a parameter of this shape, whose values in the model are `nominal`."""
        one = rng.uniform() if self.together else None
        out = []
        for x, low, high in zip(nominal, *self.bounds(name, shape), strict=True):
            by = low if low == high else low + (high - low) * (rng.uniform() if one is None else one)
            out.append(self.applied(x, by))
        return out


class Scale(Draw):
    """Multiply the model's numbers by numbers drawn uniformly from `low` to `high`.

    low, high: a number for all of the parameter's, or nested lists of them that fit its shape as in NumPy.
    together: False draws for each number of the parameter anew; True draws once, for a place between `low` and `high`
        that all its numbers share.
    """

    def applied(self, x: float, by: Scalar) -> Scalar:
        return x * by


class Shift(Draw):
    """Add numbers drawn uniformly from `low` to `high` to the model's.

    low, high: a number for all of the parameter's, or nested lists of them that fit its shape as in NumPy.
    together: False draws for each number of the parameter anew; True draws once, for a place between `low` and `high`
        that all its numbers share.
    """

    def applied(self, x: float, by: Scalar) -> Scalar:
        return x + by


class Uniform(Draw):
    """Replace the model's numbers by numbers drawn uniformly from `low` to `high`.

    low, high: a number for all of the parameter's, or nested lists of them that fit its shape as in NumPy.
    together: False draws for each number of the parameter anew; True draws once, for a place between `low` and `high`
        that all its numbers share.
    """

    def applied(self, x: float, by: Scalar) -> Scalar:
        return by


def as_draws(randomize: Mapping[str, Any] | None) -> dict[str, Draw]:
    """Return the argument `randomize` as draws by name; a pair (low, high) becomes a Scale.

    Raises TypeError for anything else.
    """
    if randomize is None:
        return {}
    if not isinstance(randomize, Mapping):
        raise TypeError(f"randomize must be a dict by names of parameters, not {randomize!r}")
    out = {}
    for name, x in randomize.items():
        pair = isinstance(x, (tuple, list)) and len(x) == 2 and all(isinstance(y, (int, float)) for y in x)
        if isinstance(x, Mapping) and x.keys() == {"draw", "low", "high", "together"} and x["draw"] in KINDS:
            x = KINDS[x["draw"]](x["low"], x["high"], x["together"])
        if not (pair or isinstance(x, Draw)):
            raise TypeError(f"randomize {name!r}: (low, high) to multiply by, Scale, Shift or Uniform, not {x!r}")
        out[name] = Scale(*x) if pair else x
    return out


KINDS: dict[str, type[Draw]] = {kind.__name__: kind for kind in (Scale, Shift, Uniform)}


def _frozen(x: Any) -> Any:
    return tuple(map(_frozen, x)) if isinstance(x, list) else x
