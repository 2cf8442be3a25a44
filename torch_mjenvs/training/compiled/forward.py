"""Networks run on a batch of observations by a compiled kernel: normalisation and all layers in one launch, on the CPU.

Shapes: N observations, O numbers each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...compiler.matrices import Apply, Gather, Loop, Matrix, Memory, Phase, Plan, PlanLaunch, Step, Transpose, build
from ...compiler.matrices.kernel import lanes
from ...compiler.program import Buffer, Program, record
from ...compiler.scalar import clip, sqrt
from ...networks.layers import Network
from ...networks.passes import Pass, RoundedPass, RoundedWeights, rounded_inputs
from ...networks.tiles import FRAMES, Scratch


def normalise() -> Program:
    """Record what `RunningMoments.normalise` does to a number, whose column has this mean and variance."""

    def body(b: dict[str, list[Any]]) -> dict[str, list[Any]]:
        (x,), (mean,), (var,) = b["x"], b["mean"], b["var"]
        return {"x": [clip((x - mean) / sqrt(var + 1e-8), -10.0, 10.0)]}

    return record("normalise", [Buffer("x", 1), Buffer("mean", 1), Buffer("var", 1)], body, "float32")


class Weights:
    """The rounded weights of networks whose parameters are `theta`, computed again when theta has changed."""

    memories = Memory("weight pairs", "p"), Memory("biases")

    def __init__(self, networks: Sequence[Network], theta: Tensor):
        pairs, biases = Scratch("weight pairs", lanes()), Scratch("biases", lanes())
        size = len(theta) + lanes()  # the last biases are read as a whole vector
        self.made = RoundedWeights(networks, Matrix("theta", 1, size, size), pairs, biases, training=False)
        self.kernel = build(
            Plan("weights", (Memory("theta"), *self.memories), (Phase("all", 1, tuple(self.made.steps)),))
        )
        self.theta, self.version = theta, -1
        self.tensors = {
            "weight pairs": torch.zeros(pairs.size, dtype=torch.int32), "biases": torch.zeros(biases.size),
        }  # fmt: skip
        self.copy = torch.zeros(size)
        self.launch = PlanLaunch(self.kernel, {"theta": self.copy, **self.tensors})

    def refresh(self) -> None:
        """Compute `tensors`, one for each of `memories`, again if theta has been written to, which torch counts."""
        if self.version != self.theta._version:
            self.copy[: len(self.theta)] = self.theta
            self.launch()
            self.version = self.theta._version


class Networks:
    """Networks whose parameters are `theta`, with the same observations of `size` numbers, as parts of a plan.

    With `rounded`, factors of products are bfloat16. A vector has `vector` numbers (0: as many as the CPU's), and a
    tile `frames` frames.
    """

    def __init__(
        self, networks: Sequence[Network], theta: Tensor, size: int, rounded: bool = False, vector: int = 0,
        frames: int = FRAMES,
    ):  # fmt: skip
        self.networks, self.theta, self.size = networks, theta, size
        self.scratch, self.pairs = (Scratch(name, vector or lanes(), frames) for name in ("own", "own pairs"))
        self.outputs = [network.layers[-1].outputs for network in networks]
        self.widths = [self.scratch.padded(n) for n in self.outputs]
        self.moments = torch.zeros(2, self.scratch.padded(size))
        self.rounded = Weights(networks, theta) if rounded else None
        self.seen: tuple[Tensor, int, Tensor, int] = theta, -1, theta, -1  # the mean and variance in `moments`

    def steps(self, obs: Matrix, order: Matrix) -> tuple[list[Step], list[Matrix]]:
        """Return the steps over the rows of `obs` numbered in `order`, and the networks' outputs (o, frames)."""
        scratch, size, frames = self.scratch, self.size, self.scratch.frames
        rows, x = scratch.matrix(frames, size), scratch.matrix(size, frames)
        row = Matrix("own", 1, size, rows.row, offset=rows.offset, at=(("frame", rows.row),))
        mean, var = (Matrix(name, 1, size, rows.row) for name in ("mean", "var"))
        theta = Matrix("theta", 1, len(self.theta), len(self.theta))
        steps: list[Step] = [
            Gather(rows, obs, order),
            Loop("frame", frames, (Apply(normalise(), (row, mean, var), size),)),
        ]
        if self.rounded is None:
            steps.append(Transpose(x, rows))
            passes = [Pass(network, theta, x, rows, scratch) for network in self.networks]
        else:
            inputs = rounded_inputs(self.networks, rows, self.pairs)
            steps += [step for one in dict.fromkeys(inputs) for step in one.steps(training=False)]
            passes = [
                RoundedPass(network, theta, one, self.rounded.made, scratch, self.pairs)
                for network, one in zip(self.networks, inputs, strict=True)
            ]
        return [*steps, *(step for one in passes for step in one.forward(training=False))], [x.output for x in passes]

    def tile(self, names: Sequence[str]) -> list[Step]:
        """Return the steps over a tile of rows of "obs", numbered in "order", to outputs of these names."""
        frames = self.scratch.frames
        tile = (("tile", frames),)
        obs, order = Matrix("obs", 1, self.size, self.size), Matrix("order", 1, frames, frames, at=tile)
        steps, found = self.steps(obs, order)
        for name, x, width in zip(names, found, self.widths, strict=True):
            steps.append(Transpose(Matrix(name, frames, x.rows, width, at=(("tile", frames * width),)), x))
        return steps

    def memories(self) -> list[Memory]:
        """Return the memories that `steps` work in; `obs` and `order` may be in others."""
        found = [*map(Memory, ("mean", "var", "theta")), Memory("own", each=self.scratch.size)]
        return found + ([Memory("own pairs", "p", self.pairs.size), *self.rounded.memories] if self.rounded else [])

    def tensors(self, threads: int) -> dict[str, Tensor]:
        """Return a tensor for each of `memories`, for this many threads."""
        return {
            "mean": self.moments[0], "var": self.moments[1], "theta": self.theta,
            "own": torch.zeros(threads * self.scratch.size),
            "own pairs": torch.zeros(threads * self.pairs.size, dtype=torch.int32),
            **(self.rounded.tensors if self.rounded else {}),
        }  # fmt: skip

    def follow(self, mean: Tensor, var: Tensor) -> None:
        """Update the mean and variance (O,) by which observations are normalised, and weights that have changed."""
        seen = mean, mean._version, var, var._version  # torch counts the writes into a tensor
        if seen[1::2] != self.seen[1::2] or mean is not self.seen[0] or var is not self.seen[2]:
            self.moments[0, : self.size], self.moments[1, : self.size] = mean, var
            self.seen = seen
        if self.rounded:
            self.rounded.refresh()


class Forward(Networks):
    """Networks whose parameters are `theta`, run on the same observations of `size` numbers.

    With `rounded`, factors of products are bfloat16.
    """

    def __init__(self, networks: Sequence[Network], theta: Tensor, size: int, rounded: bool = False):
        super().__init__(networks, theta, size, rounded)
        self.kernel = build(self._plan())
        self.held: dict[int, _Batch] = {}  # for each N

    def _plan(self) -> Plan:
        outs = [f"out{k}" for k in range(len(self.outputs))]
        steps = tuple(self.tile(outs))
        memories = Memory("obs"), *self.memories(), *map(Memory, outs), Memory("order", "l")
        return Plan("networks", memories, (Phase("tile", None, steps),))

    def __call__(self, obs: Tensor, mean: Tensor, var: Tensor) -> list[Tensor]:
        """Return each network's outputs for observations (N, O), which are normalised by mean and variance (O,).

        Results are valid until the next call with as many rows.
        """
        threads = torch.get_num_threads()
        batch = self.held.get(len(obs))
        if batch is None or batch.threads < threads:
            batch = self.held[len(obs)] = self._batch(len(obs), threads)
        self.follow(mean, var)
        batch.launch.take("obs", obs.contiguous())
        batch.launch(1, min(threads, batch.tiles), batch.tiles)
        return batch.outputs

    def _batch(self, n: int, threads: int) -> _Batch:
        """Make what a launch for this many observations needs."""
        tiles = -(-n // FRAMES)
        outs = [torch.zeros(tiles * FRAMES, width) for width in self.widths]
        tensors = self.tensors(threads) | {f"out{k}": out for k, out in enumerate(outs)}
        tensors |= {"obs": torch.zeros(n, self.size), "order": torch.arange(tiles * FRAMES).clamp(max=n - 1)}
        outputs = [out[:n, :width] for out, width in zip(outs, self.outputs, strict=True)]
        return _Batch(PlanLaunch(self.kernel, tensors), tiles, threads, outputs)


class _Batch(NamedTuple):
    """A launch for observations of some number, and the outputs that it leaves."""

    launch: PlanLaunch
    tiles: int
    threads: int
    outputs: list[Tensor]
