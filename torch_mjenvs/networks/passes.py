"""The steps of a network's passes over a tile of frames: forward, and backward to the gradients of its parameters.

Numbers of a layer are a matrix (units, frames): a vector holds one unit's for many frames, so that what follows the
product needs no sums across lanes. Only a weight's gradient sums over frames: for it, the inputs of each layer are kept
transposed as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..compiler.matrices import Apply, Matrix, Multiply, Pairs, Regroup, RowSums, Step, Transpose
from ..compiler.program import Buffer, Program, record
from .activations import ACTIVATIONS
from .layers import Dense, Network
from .norms import LayerNorm
from .tiles import Scratch


class Pass:
    """A network over a tile, in `scratch`: the inputs `x` (columns, frames), and the same transposed, `rows`."""

    def __init__(self, network: Network, theta: Matrix, x: Matrix, rows: Matrix, scratch: Scratch):
        self.layers, self.theta, self.scratch = network.layers, theta, scratch
        inputs = network.layers[0].inputs
        self.inputs = [x.part(network.first, inputs)]
        self.transposed = [replace(rows, columns=inputs, offset=rows.offset + network.first)]
        self.before: list[Matrix] = []  # what each layer's activation is applied to
        self.norms: list[LayerNorm | None] = []  # of each layer
        for layer in self.layers:
            y = scratch.matrix(layer.outputs, scratch.frames)
            self.before.append(scratch.matrix(layer.outputs, scratch.frames) if _needs_input(layer.activation) else y)
            self.norms.append(LayerNorm(layer.norm, layer.outputs, theta, scratch) if layer.norm else None)
            self.inputs.append(y)
            if layer is not self.layers[-1]:
                self.transposed.append(scratch.matrix(scratch.frames, layer.outputs))
        self.output = self.inputs[-1]

    def forward(self, training: bool = True) -> list[Step]:
        """Return the steps from the inputs to `output`; for training also to what `backward` needs."""
        steps: list[Step] = []
        for k, layer in enumerate(self.layers):
            before, after, norm = self.before[k], self.inputs[k + 1], self.norms[k]
            steps.append(self._product(k, norm.x if norm else before))
            if norm:
                steps += norm.forward(before)
            if layer.activation != "none":
                steps.append(_whole(activate(layer.activation), before, after))
            if layer is not self.layers[-1]:
                steps += self._kept(k + 1, training)
        return steps

    def backward(self, gradient: Matrix, sums: Matrix, alone: bool = False) -> list[Step]:
        """Return the steps from the loss's gradient with respect to `output`, which they overwrite, to the sums of
        gradients.

        `sums` is laid out as the parameters are; gradients are added to what it holds. If the tile is `alone`,
        gradients of weights replace what it holds; `vectors_of` has all other parameters.
        """
        steps: list[Step] = []
        for k, layer in reversed(list(enumerate(self.layers))):
            if layer.activation != "none":
                steps.append(_whole(slope(layer.activation), self.before[k], self.inputs[k + 1], gradient))
            if norm := self.norms[k]:
                steps += norm.backward(gradient, sums)
            steps.append(RowSums(replace(bias_of(sums, layer), column=1), gradient))
            weights = weight_of(sums, layer)
            steps += self._weight_sums(k, gradient, weights, None if alone else weights)
            if k > 0:
                below = self.scratch.matrix(layer.inputs, gradient.columns)
                steps += self._below(k, gradient, below)
                gradient = below
        return steps

    def _product(self, k: int, out: Matrix) -> Step:
        layer = self.layers[k]
        return Multiply(out, weight_of(self.theta, layer), self.inputs[k], bias_of(self.theta, layer))

    def _kept(self, k: int, training: bool) -> list[Step]:
        """Return the steps that prepare a layer's inputs before it runs."""
        return [Transpose(self.transposed[k], self.inputs[k])] if training else []

    def _weight_sums(self, k: int, gradient: Matrix, sums: Matrix, start: Matrix | None) -> list[Step]:
        return [Multiply(sums, gradient, self.transposed[k], start)]

    def _below(self, k: int, gradient: Matrix, below: Matrix) -> list[Step]:
        """Return the steps from the gradient with respect to W x + b of a layer to that with respect to its inputs."""
        return [Multiply(below, weight_of(self.theta, self.layers[k]).T, gradient)]


class RoundedWeights:
    """Weights and biases of networks in the form that products of bfloat16 take, made once for all tiles.

    Biases are read in whole vectors. The results stand in memories that all threads share: `pairs`, and `biases` of
    float32.
    """

    def __init__(
        self, networks: Sequence[Network], theta: Matrix, pairs: Scratch, biases: Scratch, training: bool = True
    ):
        self.steps: list[Step] = []  # what makes them
        self.forward: dict[Dense, Matrix] = {}  # W, and its transpose, in pairs of the numbers that a sum goes over
        self.backward: dict[Dense, Matrix] = {}
        self.bias: dict[Dense, Matrix] = {}
        for network in networks:
            for layer in network.layers:
                weight, outputs = weight_of(theta, layer), layer.outputs
                self.forward[layer] = pairs.matrix(outputs, -(-layer.inputs // 2))
                self.steps.append(Pairs(self.forward[layer].T, weight.T))
                if training and layer is not network.layers[0]:
                    paired = pairs.matrix(-(-outputs // 2), layer.inputs)
                    self.backward[layer] = pairs.matrix(layer.inputs, paired.rows)
                    self.steps += [Pairs(paired, weight), Transpose(self.backward[layer], paired)]
                copies = biases.matrix(outputs, biases.lanes)
                again = replace(bias_of(theta, layer), rows=copies.columns, columns=outputs, row=0, column=1)
                self.steps.append(Transpose(copies, again))
                self.bias[layer] = replace(copies, columns=1, column=0)


class RoundedInputs:
    """Columns of a tile's rows as factors of products of bfloat16. Networks with the same inputs share them."""

    def __init__(self, rows: Matrix, first: int, inputs: int, pairs: Scratch):
        self.rows = replace(rows, columns=inputs, offset=rows.offset + first)
        self.units = pairs.matrix(-(-inputs // 2), pairs.frames)  # pairs of inputs, for products with weights
        self.frames = pairs.matrix(pairs.frames // 2, inputs)  # pairs of frames, for products with gradients

    def steps(self, training: bool = True) -> list[Step]:
        """Return the steps that make them."""
        return [Pairs(self.units, self.rows.T), *([Pairs(self.frames, self.rows)] if training else [])]


class PairedInputs:
    """The same as `RoundedInputs`, from rows that are rounded and paired already, in `pairs`: one row per frame."""

    def __init__(self, inputs: int, pairs: Scratch):
        self.rows = pairs.matrix(pairs.frames, -(-inputs // 2))
        self.units = pairs.matrix(-(-inputs // 2), pairs.frames)
        self.frames = pairs.matrix(pairs.frames // 2, inputs)

    def steps(self) -> list[Step]:
        """Return the steps that make them of the rows."""
        return [Transpose(self.units, self.rows), Regroup(self.frames, self.rows)]


def rounded_inputs(networks: Sequence[Network], rows: Matrix, pairs: Scratch) -> list[RoundedInputs]:
    """Return each network's inputs from a tile's rows: one object for those that see the same columns."""
    seen = [(network.first, network.layers[0].inputs) for network in networks]
    found = {place: RoundedInputs(rows, *place, pairs) for place in dict.fromkeys(seen)}
    return [found[place] for place in seen]


class RoundedPass(Pass):
    """A network over a tile whose products have factors of bfloat16, and sums of float32.

    `sums` that its gradients are added to have whole blocks of 16 rows and columns for every layer.
    """

    def __init__(
        self, network: Network, theta: Matrix, inputs: RoundedInputs | PairedInputs, weights: RoundedWeights,
        scratch: Scratch, pairs: Scratch,
    ):  # fmt: skip
        super().__init__(replace(network, first=0), theta, inputs.rows.T, inputs.rows, scratch)
        self.weights, self.pairs = weights, pairs
        self.units, self.frames = [inputs.units], [inputs.frames]
        for layer in self.layers[1:]:
            self.units.append(pairs.matrix(-(-layer.inputs // 2), pairs.frames))
            self.frames.append(pairs.matrix(pairs.frames // 2, layer.inputs))

    def _product(self, k: int, out: Matrix) -> Step:
        layer = self.layers[k]
        return Multiply(out, self.weights.forward[layer], self.units[k], self.weights.bias[layer])

    def _kept(self, k: int, training: bool) -> list[Step]:
        y = self.inputs[k]
        return [Pairs(self.units[k], y), *([Pairs(self.frames[k], y.T)] if training else [])]

    def _weight_sums(self, k: int, gradient: Matrix, sums: Matrix, start: Matrix | None) -> list[Step]:
        rounded = self.pairs.matrix(gradient.rows, gradient.columns // 2)
        return [Pairs(rounded.T, gradient.T), Multiply(sums, rounded, self.frames[k], start)]

    def _below(self, k: int, gradient: Matrix, below: Matrix) -> list[Step]:
        paired = self.pairs.matrix(-(-gradient.rows // 2), gradient.columns)
        return [Pairs(paired, gradient), Multiply(below, self.weights.backward[self.layers[k]], paired)]


def weight_of(theta: Matrix, layer: Dense) -> Matrix:
    """Return a layer's weights, (outputs, inputs), among all parameters."""
    row, offset = layer.row or layer.inputs, theta.offset + layer.weight
    return replace(theta, rows=layer.outputs, columns=layer.inputs, row=row, offset=offset)


def bias_of(theta: Matrix, layer: Dense) -> Matrix:
    """Return a layer's biases, (outputs, 1), among all parameters; they count for every column of a product."""
    return replace(theta, rows=layer.outputs, columns=1, row=1, column=0, offset=theta.offset + layer.bias)


def vectors_of(theta: Matrix, layer: Dense) -> list[Matrix]:
    """Return those of a layer's parameters that are not weights, each as a row (1, outputs), among all parameters."""
    places = [layer.bias, *((layer.norm.gain, layer.norm.shift) if layer.norm else ())]
    columns = layer.outputs
    return [replace(theta, rows=1, columns=columns, row=columns, offset=theta.offset + place) for place in places]


def _whole(program: Program, *matrices: Matrix) -> Apply:
    """Apply a program to every number of matrices of one shape."""
    worlds = matrices[0].rows * matrices[0].row
    return Apply(program, tuple(replace(m, rows=1, columns=worlds, row=worlds) for m in matrices), worlds)


def activate(name: str) -> Program:
    """Record y = activation(x)."""

    def body(b: dict[str, list[Any]]) -> dict[str, list[Any]]:
        return {"y": [ACTIVATIONS[name].value(b["x"][0])]}

    return record(name, [Buffer("x", 1), Buffer("y", 1)], body, "float32")


def slope(name: str) -> Program:
    """Record how a gradient with respect to y = activation(x) becomes one with respect to x."""

    def body(b: dict[str, list[Any]]) -> dict[str, list[Any]]:
        x, y, gradient = b["x"][0], b["y"][0], b["gradient"][0]
        return {"gradient": [gradient * ACTIVATIONS[name].slope(x, y)]}

    return record(f"{name} slope", [Buffer("x", 1), Buffer("y", 1), Buffer("gradient", 1)], body, "float32")


def _needs_input(name: str) -> bool:
    """Return whether an activation's slope needs its input, which is then kept beside its output."""
    return any(e.op == "load" and e.attr == (0, 0) for e in slope(name).live)
