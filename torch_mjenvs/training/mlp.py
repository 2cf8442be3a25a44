"""Dense layers as a torch module that compiled kernels run on the CPU, for the training loops of other libraries.

Shapes: N rows of I inputs and O outputs.
"""

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..compiler.functions import transformed
from ..compiler.matrices import (
    Apply,
    Gather,
    Loop,
    Matrix,
    Memory,
    Phase,
    Plan,
    PlanLaunch,
    Step,
    Transpose,
    build,
    can_build,
    why_no_bfloat16,
)
from ..compiler.matrices.kernel import lanes
from ..networks.layers import EPS, Dense, Network, Norm, ParameterLayout
from ..networks.passes import Pass, RoundedPass, RoundedWeights, rounded_inputs
from ..networks.tiles import FRAMES, Scratch, zeros

__all__ = ["MLP"]

NAMES = {nn.Tanh: "tanh", nn.ReLU: "relu", nn.ELU: "elu", nn.SiLU: "silu"}
PART = 2  # tiles whose gradients one thread adds up; their sums are added after that


class MLP(nn.Sequential):
    """`nn.Sequential` of dense layers that compiled kernels run on the CPU, forward and backward.

        net = MLP(nn.Linear(17, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 6))
        net = MLP(*sequential)  # the layers of an existing one, with their parameters

    It consists of `nn.Linear` with biases, and between them activations of one kind: `nn.Tanh`, `nn.ReLU`, `nn.ELU` or
    `nn.SiLU`. Either all or none of these have an `nn.LayerNorm` before them. Everything else is as in `nn.Sequential`:
    the names of parameters, what is saved, and how it may be used.

    A call is one launch, and the backward pass another, which recomputes activations instead of storing them. Results
    differ from torch's by rounding, and do not depend on the number of threads. After
    `torch.set_float32_matmul_precision("medium")`, the factors of products are rounded to bfloat16 on processors where
    that is faster; their sums are float32.

    Kernels are for float32 on the CPU, and for gradients with respect to parameters. Torch does the rest: other devices
    and dtypes, gradients with respect to inputs, autocast, `torch.compile`, `torch.func`. If kernels ran, gradients
    cannot be differentiated again.

    Raises ValueError for other layers.
    """

    def __init__(self, *layers: nn.Module):
        super().__init__(*layers)
        _read(self)

    def __getitem__(self, index: Any) -> Any:
        """Return a layer or, for a slice, an `nn.Sequential` of layers, whatever they are."""
        return nn.Sequential(*self)[index] if isinstance(index, slice) else super().__getitem__(index)

    def forward(self, input: Tensor) -> Tensor:
        """Return the outputs (..., O) for inputs (..., I)."""
        try:
            shape, parameters = _read(self)
        except ValueError:  # layers were changed
            return super().forward(input)
        if not _fit(input, parameters):
            return super().forward(input)
        rounded = torch.get_float32_matmul_precision() == "medium" and not _why_no_bfloat16()
        rows = input.reshape(-1, input.shape[-1])
        outputs: Tensor = _Run.apply(_passes(shape, rounded), rows, *parameters)
        return outputs.view(*input.shape[:-1], outputs.shape[1])


class _Shape(NamedTuple):
    """What a network's kernels depend on: its widths, inputs first, and what stands between its layers."""

    widths: tuple[int, ...]
    activation: str
    normed: bool  # whether layer norm comes before it


def _read(layers: Iterable[nn.Module]) -> tuple[_Shape, list[Tensor]]:
    """Return what the kernels of a network depend on, and its parameters in order.

    Raises ValueError for layers that kernels do not support, such as those with hooks.
    """
    widths: list[int] = []
    kinds: set[str] = set()
    normed: set[bool] = set()
    parameters: list[Tensor] = []
    dense = norm = False  # whether the last layer was a dense one, or one of layer norm after that
    for layer in layers:
        if layer._forward_hooks or layer._forward_pre_hooks or layer._backward_hooks or layer._backward_pre_hooks:
            raise ValueError(f"{layer} has hooks, of which an MLP's kernels know nothing")
        if dense and type(layer) is nn.LayerNorm:
            whole = layer.weight is not None and layer.bias is not None
            if layer.normalized_shape != (widths[-1],) or layer.eps != EPS or not whole:
                raise ValueError(f"in an MLP, {layer} must be an nn.LayerNorm({widths[-1]}) with gain and bias")
            parameters += layer.weight, layer.bias
            dense, norm = False, True
        elif dense or norm:
            kinds.add(NAMES.get(type(layer), "") if getattr(layer, "alpha", 1.0) == 1.0 else "")
            normed.add(norm)
            dense = norm = False
        elif type(layer) is nn.Linear and layer.bias is not None:
            weight, bias = layer.weight, layer.bias
            if widths and widths[-1] != weight.shape[1]:
                raise ValueError(f"{layer} cannot follow a layer of {widths[-1]} outputs")
            widths += weight.shape[0:1] if widths else (weight.shape[1], weight.shape[0])
            parameters += weight, bias
            dense = True
        else:
            raise ValueError(f"an MLP has an nn.Linear with a bias in the place of {layer}")
    if "" in kinds or len(kinds) > 1:
        raise ValueError(f"between its layers, an MLP has one kind of {', '.join(x.__name__ for x in NAMES)}")
    if len(normed) > 1:
        raise ValueError("an MLP has an nn.LayerNorm before each activation, or before none")
    if not dense:
        raise ValueError("an MLP begins and ends with an nn.Linear")
    return _Shape(tuple(widths), kinds.pop() if kinds else "none", True in normed), parameters


def _fit(x: Tensor, parameters: Sequence[Tensor]) -> bool:
    """Return whether kernels can run this call."""
    if x.requires_grad or torch.compiler.is_compiling() or transformed() or torch.is_autocast_enabled("cpu"):
        return False
    plain = all(y.dtype == torch.float32 and y.device.type == "cpu" for y in (x, *parameters))
    return plain and x.numel() > 0 and x.shape[-1] == parameters[0].shape[1] and _host_can()


_host_can, _why_no_bfloat16 = functools.cache(can_build), functools.cache(why_no_bfloat16)


class _Run(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, passes: _Passes, x: Tensor, *parameters: Tensor) -> Tensor:
        ctx.passes = passes
        ctx.save_for_backward(x, *parameters)
        return passes.forward(x, parameters)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, *parameters = ctx.saved_tensors
        return None, None, *ctx.passes.backward(x, gradient, parameters)


class _Passes:
    """The kernels of networks of one shape, and their memory for the parameters.

    With `rounded`, factors of products are bfloat16.
    """

    @torch.inference_mode(False)
    def __init__(self, shape: _Shape, rounded: bool):
        widths, last = shape.widths, len(shape.widths) - 2
        layers, at = [], 0
        for k, (inputs, outputs) in enumerate(itertools.pairwise(widths)):
            weight, bias, end = at, at + inputs * outputs, at + (inputs + 1) * outputs
            norm = Norm(end, end + outputs) if shape.normed and k < last else None
            kind = shape.activation if k < last else "none"
            layers.append(Dense(inputs, outputs, weight, bias, kind, norm=norm))
            at = end + (2 * outputs if norm else 0)
        layout = ParameterLayout([Network(tuple(layers))], (at, 0), lanes(), rounded)
        weights = {layer.weight for layer in layers}
        self.network, self.size = layout.networks[0], layout.size + lanes()  # last biases are read as a vector
        self.places: list[tuple[tuple[int, ...], tuple[int, ...], int]] = []  # each parameter's shape, strides, offset
        for block in layout.blocks[:-1]:
            if block.theta in weights:
                self.places.append(((block.rows, block.columns), (block.row, 1), block.own))
            else:
                self.places.append(((block.columns,), (1,), block.own))
        # Memory made from it is float32 on the CPU, too, whatever torch's defaults are.
        self.theta = torch.zeros(self.size, dtype=torch.float32, device="cpu")
        self.own = [self.theta.as_strided(*place) for place in self.places]
        self.inputs, self.outputs, self.rounded = widths[0], widths[-1], rounded
        self.scratch, self.pairs = Scratch("own", lanes()), Scratch("own pairs", lanes())
        self.weight_pairs, self.biases = Scratch("weight pairs", lanes()), Scratch("biases", lanes())
        self.width = self.scratch.padded(self.outputs)
        self.kernels = [build(plan) for plan in self._plans()]
        self.launches: list[PlanLaunch] = []  # with the memory of this many threads, for one call at a time
        self.threads, self.rows, self.nothing, self.lock = 0, 0, self.theta.new_zeros(0), threading.Lock()

    def _plans(self) -> tuple[Plan, Plan]:
        """Plan the forward pass, one tile a turn, and the backward pass, PART tiles a turn."""
        scratch, size, inputs, outputs = self.scratch, self.size, self.inputs, self.outputs
        theta = Matrix("theta", 1, size, size)
        x, rows = scratch.matrix(inputs, FRAMES), scratch.matrix(FRAMES, inputs)
        gradient, gradient_rows = scratch.matrix(outputs, FRAMES), scratch.matrix(FRAMES, outputs)
        first: tuple[Phase, ...] = ()
        if self.rounded:
            weights = RoundedWeights([self.network], theta, self.weight_pairs, self.biases)
            (seen,) = rounded_inputs([self.network], rows, self.pairs)
            one: Pass = RoundedPass(self.network, theta, seen, weights, scratch, self.pairs)
            first = (Phase("weights", 1, tuple(weights.steps)),)
        else:
            one = Pass(self.network, theta, x, rows, scratch)

        def gathered(name: str, tile: Matrix, turns: tuple[tuple[str, int], ...]) -> Step:
            columns, order = tile.columns, Matrix("order", 1, FRAMES, FRAMES, at=turns)
            return Gather(tile, Matrix(name, 1, columns, columns), order)

        def entrances(training: bool) -> list[Step]:
            return seen.steps(training) if self.rounded else [Transpose(x, rows)]

        out = Matrix("out", FRAMES, outputs, self.width, at=(("tile", FRAMES * self.width),))
        forward = (
            gathered("x", rows, (("tile", FRAMES),)), *entrances(False), *one.forward(False),
            Transpose(out, one.output),
        )  # fmt: skip
        turns, sums = (("part", PART * FRAMES), ("tile", FRAMES)), Matrix("sums", 1, size, size, at=(("part", size),))
        backward = (
            gathered("x", rows, turns), *entrances(True), *one.forward(),
            gathered("gradient", gradient_rows, turns), Transpose(gradient, gradient_rows),
            *one.backward(gradient, sums),
        )  # fmt: skip
        steps = Apply(zeros(), (sums,), size), Loop("tile", PART, backward)
        own = [Memory("own", each=scratch.size)]
        if self.rounded:
            own += [Memory("own pairs", "p", self.pairs.size), Memory("weight pairs", "p"), Memory("biases")]
        memories = Memory("x"), Memory("order", "l"), Memory("theta"), *own
        there, back = (*first, Phase("tile", None, forward)), (*first, Phase("part", None, steps))
        return (
            Plan("mlp", (*memories, Memory("out")), there),
            Plan("mlp gradients", (*memories, Memory("gradient"), Memory("sums")), back),
        )

    def forward(self, x: Tensor, parameters: Sequence[Tensor]) -> Tensor:
        """Return outputs (N, O) for inputs (N, I)."""
        tiles = -(-len(x) // FRAMES)
        out = self.theta.new_empty(tiles * FRAMES, self.width)
        self._launch(0, tiles, FRAMES, parameters, {"out": out}, x=x)
        return out[: len(x), : self.outputs].contiguous()

    def backward(self, x: Tensor, gradient: Tensor, parameters: Sequence[Tensor]) -> list[Tensor]:
        """Return the gradients of the parameters, from inputs (N, I) and the gradient of the outputs (N, O)."""
        parts = -(-len(x) // (PART * FRAMES))
        sums = self.theta.new_empty(parts, self.size)
        self._launch(1, parts, PART * FRAMES, parameters, {"sums": sums}, x=x, gradient=gradient)
        total, found = sums.sum(0), [torch.empty_like(p) for p in parameters]
        torch._foreach_copy_(found, [total.as_strided(*place) for place in self.places])
        return found

    def _launch(
        self, kernel: int, turns: int, frames: int, parameters: Sequence[Tensor], results: dict[str, Tensor],
        **given: Tensor,
    ) -> None:  # fmt: skip
        """Launch a kernel of which one turn takes this many of the given rows; rows missing in the last turn are 0."""
        total, threads = turns * frames, min(turns, torch.get_num_threads())
        missing = total - len(given["x"])
        with self.lock:
            if self.threads < threads or self.rows < total:
                self._reserve(max(self.threads, threads), max(self.rows, total))
            launch = self.launches[kernel]
            for name, rows in given.items():
                launch.take(name, nn.functional.pad(rows, (0, 0, 0, missing)) if missing else rows.contiguous())
            for name, rows in results.items():
                launch.take(name, rows)
            torch._foreach_copy_(self.own, list(parameters))
            launch(1, threads, turns)
            for name in (*given, *results):
                launch.take(name, self.nothing)

    @torch.inference_mode(False)
    def _reserve(self, threads: int, rows: int) -> None:
        """Allocate memory for this many threads, and row numbers for this many rows."""
        self.threads, self.rows = threads, rows
        new = self.theta.new_zeros
        tensors = {
            "own": new(threads * self.scratch.size),
            "biases": new(self.biases.size),
            "own pairs": new(threads * self.pairs.size, dtype=torch.int32),
            "weight pairs": new(self.weight_pairs.size, dtype=torch.int32),
            "order": torch.arange(rows, device=self.theta.device), "theta": self.theta,
            **dict.fromkeys(("x", "out", "gradient", "sums"), self.nothing),  # each call has its own
        }  # fmt: skip
        self.launches = [PlanLaunch(kernel, tensors) for kernel in self.kernels]


_passes = functools.cache(_Passes)
