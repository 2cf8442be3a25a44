"""The description of a network: its dense layers, and where their weights stand among all parameters."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

from .activations import ACTIVATIONS


@dataclass(frozen=True)
class Dense:
    """A layer y = activation(W x + b). Numbers of the vector of parameters from `weight` on are W (outputs, inputs),
    row by row, and those from `bias` on are b. A row of W begins `row` numbers after the one above it; 0 is `inputs`.
    """

    inputs: int
    outputs: int
    weight: int
    bias: int
    activation: str = "none"
    row: int = 0

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


class Layout:
    """A memory in which parameters of networks stand in whole vectors, or in whole blocks of as many rows.

    `theta` lists places of parameters in the vector that the networks describe, and `own` those of the same ones here:
    first the networks', then `others`, so many numbers of that vector from a place on. Here `networks` describes the
    former, and the latter stand from `others` on. All are within `size` numbers; what lies between them is 0.
    """

    def __init__(self, networks: Sequence[Network], others: tuple[int, int], lanes: int, blocks: bool = False):
        self.theta: list[int] = []
        self.own: list[int] = []
        self.size = 0

        def put(theta: int, rows: int, columns: int) -> int:
            """Make room for a matrix that stands at a place in theta, and return where."""
            start, row = self.size, -(-columns // lanes) * lanes
            self.theta += range(theta, theta + rows * columns)
            self.own += [start + i * row + j for i in range(rows) for j in range(columns)]
            self.size += row * (-(-rows // lanes) * lanes if blocks else rows)
            return start

        def moved(layer: Dense) -> Dense:
            weight = put(layer.weight, layer.outputs, layer.inputs)
            row = -(-layer.inputs // lanes) * lanes
            return replace(layer, weight=weight, bias=put(layer.bias, 1, layer.outputs), row=row)

        self.networks = tuple(replace(network, layers=tuple(map(moved, network.layers))) for network in networks)
        self.others = put(others[0], 1, others[1])
