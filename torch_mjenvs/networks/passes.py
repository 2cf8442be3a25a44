"""The steps of a network's passes over a tile of frames: forward, and backward to the gradients of its parameters.

A tile has FRAMES frames. Numbers of a layer are a matrix (units, FRAMES): a vector holds one unit's for many frames, so
that what follows the product needs no sums across lanes. Only a weight's gradient sums over frames: for it, the
inputs of each layer are kept transposed as well.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..compiler.matrices import Apply, Matrix, Multiply, RowSums, Step, Transpose
from ..compiler.program import Buffer, Program, record
from .activations import ACTIVATIONS
from .layers import Dense, Network

FRAMES = 32  # of a tile: activations of common networks stay in the nearest caches, and vectors of 4, 8, 16 fit in


class Scratch:
    """Memory of a thread's own, handed out from the start. `lanes` is how many numbers a vector holds."""

    def __init__(self, memory: str, lanes: int):
        self.memory, self.lanes, self.size = memory, lanes, 0

    def padded(self, n: int) -> int:
        """Return n, rounded up to whole vectors."""
        return -(-n // self.lanes) * self.lanes

    def matrix(self, rows: int, columns: int) -> Matrix:
        """Hand out a matrix. Rows, and columns of each row, reach to whole vectors."""
        row = self.padded(columns)
        found = Matrix(self.memory, rows, columns, row, offset=self.size)
        self.size += self.padded(rows) * row
        return found


class Pass:
    """A network over a tile, in `scratch`: the inputs `x` (inputs, FRAMES), and the same transposed, `rows`."""

    def __init__(self, network: Network, theta: Matrix, x: Matrix, rows: Matrix, scratch: Scratch):
        self.layers, self.theta, self.scratch = network.layers, theta, scratch
        self.inputs = [x.part(network.first, network.layers[0].inputs)]
        first = replace(rows, columns=network.layers[0].inputs, offset=rows.offset + network.first)
        self.transposed = [first]
        self.before: list[Matrix] = []  # what each layer's activation is applied to
        for layer in self.layers:
            y = scratch.matrix(layer.outputs, FRAMES)
            self.before.append(scratch.matrix(layer.outputs, FRAMES) if _needs_input(layer.activation) else y)
            self.inputs.append(y)
            if layer is not self.layers[-1]:
                self.transposed.append(scratch.matrix(FRAMES, layer.outputs))
        self.output = self.inputs[-1]

    def forward(self, training: bool = True) -> list[Step]:
        """Return the steps from the inputs to `output`; for training also to what `backward` needs."""
        steps: list[Step] = []
        last = len(self.layers) - 1
        for k, layer in enumerate(self.layers):
            before, after = self.before[k], self.inputs[k + 1]
            steps.append(Multiply(before, _weight(self.theta, layer), self.inputs[k], _bias(self.theta, layer)))
            if layer.activation != "none":
                steps.append(_whole(activate(layer.activation), before, after))
            if k < last and training:
                steps.append(Transpose(self.transposed[k + 1], after))
        return steps

    def backward(self, gradient: Matrix, sums: Matrix) -> list[Step]:
        """Return the steps from the loss's gradient by `output`, which they overwrite, to the sums of gradients.

        `sums` is laid out as the parameters are; gradients are added to what it holds.
        """
        steps: list[Step] = []
        for k, layer in reversed(list(enumerate(self.layers))):
            if layer.activation != "none":
                steps.append(_whole(slope(layer.activation), self.before[k], self.inputs[k + 1], gradient))
            weight, bias = _weight(sums, layer), replace(_bias(sums, layer), column=1)
            steps += [RowSums(bias, gradient), Multiply(weight, gradient, self.transposed[k], weight)]
            if k > 0:
                below = self.scratch.matrix(layer.inputs, FRAMES)
                steps.append(Multiply(below, _weight(self.theta, layer).T, gradient))
                gradient = below
        return steps


def _weight(theta: Matrix, layer: Dense) -> Matrix:
    return replace(
        theta, rows=layer.outputs, columns=layer.inputs, row=layer.inputs, offset=theta.offset + layer.weight
    )


def _bias(theta: Matrix, layer: Dense) -> Matrix:
    return replace(theta, rows=layer.outputs, columns=1, row=1, column=0, offset=theta.offset + layer.bias)


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
    """Record how a gradient by y = activation(x) becomes one by x."""

    def body(b: dict[str, list[Any]]) -> dict[str, list[Any]]:
        x, y, gradient = b["x"][0], b["y"][0], b["gradient"][0]
        return {"gradient": [gradient * ACTIVATIONS[name].slope(x, y)]}

    return record(f"{name} slope", [Buffer("x", 1), Buffer("y", 1), Buffer("gradient", 1)], body, "float32")


def _needs_input(name: str) -> bool:
    """Say whether an activation's slope follows from its input, which then is kept beside its output."""
    return any(e.op == "load" and e.attr == (0, 0) for e in slope(name).live)
