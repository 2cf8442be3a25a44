"""The description of a network: its dense layers, and where their weights stand among all parameters."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from .activations import ACTIVATIONS


@dataclass(frozen=True)
class Dense:
    """A layer y = activation(W x + b). Numbers of the vector of parameters from `weight` on are W (outputs, inputs),
    row by row, and those from `bias` on are b.
    """

    inputs: int
    outputs: int
    weight: int
    bias: int
    activation: str = "none"

    def __post_init__(self) -> None:
        if self.activation not in ACTIVATIONS:
            raise ValueError(f"there is no activation {self.activation!r}: choose from {', '.join(ACTIVATIONS)}")


@dataclass(frozen=True)
class Network:
    """Dense layers one after the other. Its inputs are columns of a row of numbers, from `first` on."""

    layers: tuple[Dense, ...]
    first: int = 0

    def __post_init__(self) -> None:
        for below, above in itertools.pairwise(self.layers):
            if below.outputs != above.inputs:
                raise ValueError(f"a layer of {above.inputs} inputs cannot follow one of {below.outputs} outputs")
