"""The description of a network: its dense layers, with layer norm or without, and where parameters are in memory."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

from .activations import ACTIVATIONS


@dataclass(frozen=True)
class Norm:
    """Layer norm with its parameters: g (x - mean) / sqrt(variance + EPS) + s, with mean and variance over all units.

    In the vector of parameters, g begins at `gain` and s at `shift`, each with one number per unit.
    """

    gain: int
    shift: int


EPS = 1e-5  # as in nn.LayerNorm


@dataclass(frozen=True)
class Dense:
    """A layer y = activation(W x + b). In the vector of parameters, W (outputs, inputs) begins at `weight`, row by row,
    and b at `bias`. A row of W begins `row` numbers after the one above it; 0 stands for `inputs`. A `norm` normalises
    W x + b before the activation.
    """

    inputs: int
    outputs: int
    weight: int
    bias: int
    activation: str = "none"
    row: int = 0
    norm: Norm | None = None

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

    @property
    def place(self) -> tuple[int, int]:
        """Its inputs in that row: the first one, and how many."""
        return self.first, self.layers[0].inputs


@dataclass(frozen=True)
class Block:
    """A matrix of parameters: its place `theta` in the vector that networks describe, and its place `own` elsewhere, in
    a memory where its rows begin `row` numbers apart.
    """

    theta: int
    own: int
    rows: int
    columns: int
    row: int


class ParameterLayout:
    """A memory in which parameters of networks stand in whole vectors, or in whole blocks of as many rows.

    It holds the networks' parameters, and after them others, which are given by their first place and their number in
    the vector that the networks describe. `blocks` lists all of them, `networks` describes the networks with their
    places in this memory, and `others` is where the others begin. All are within `size` numbers; gaps between them are
    0.
    """

    def __init__(self, networks: Sequence[Network], others: tuple[int, int], lanes: int, blocks: bool = False):
        self.blocks: list[Block] = []
        self.size = 0

        def put(theta: int, rows: int, columns: int, blocks: bool = blocks) -> int:
            """Make room for a matrix that stands at a place in theta, and return where."""
            self.blocks.append(Block(theta, self.size, rows, columns, -(-columns // lanes) * lanes))
            self.size += self.blocks[-1].row * (-(-rows // lanes) * lanes if blocks else rows)
            return self.blocks[-1].own

        def moved(layer: Dense) -> Dense:
            weight = put(layer.weight, layer.outputs, layer.inputs)
            found = replace(layer, weight=weight, row=self.blocks[-1].row, bias=put(layer.bias, 1, layer.outputs))
            if layer.norm is None:
                return found
            gain, shift = (put(place, 1, layer.outputs, False) for place in (layer.norm.gain, layer.norm.shift))
            return replace(found, norm=Norm(gain, shift))

        self.networks = tuple(replace(network, layers=tuple(map(moved, network.layers))) for network in networks)
        self.others = put(others[0], 1, others[1])
