"""Networks run on a batch of observations by a compiled kernel: normalisation and all layers in one launch, on the CPU.

Shapes: N observations, O numbers each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ...compiler.matrices import Apply, Gather, Loop, Matrix, Memory, Phase, Plan, Step, Transpose, build
from ...compiler.matrices.kernel import lanes
from ...compiler.program import Buffer, Program, record
from ...compiler.scalar import clip, sqrt
from ...networks.layers import Network
from ...networks.passes import FRAMES, Pass, Scratch


def normalise() -> Program:
    """Record what `RunningMoments.normalise` does to a number, whose column has this mean and variance."""

    def body(b: dict[str, list[Any]]) -> dict[str, list[Any]]:
        (x,), (mean,), (var,) = b["x"], b["mean"], b["var"]
        return {"x": [clip((x - mean) / sqrt(var + 1e-8), -10.0, 10.0)]}

    return record("normalise", [Buffer("x", 1), Buffer("mean", 1), Buffer("var", 1)], body, "float32")


class Forward:
    """Networks whose parameters are `theta`, run on the same observations of `size` numbers."""

    def __init__(self, networks: Sequence[Network], theta: Tensor, size: int):
        self.theta, self.size = theta, size
        self.scratch = Scratch("own", lanes())
        self.outputs = [network.layers[-1].outputs for network in networks]
        self.widths = [self.scratch.padded(n) for n in self.outputs]
        self.moments = torch.zeros(2, self.scratch.padded(size))
        self.kernel = build(self._plan(networks))
        self.own = torch.zeros(0)
        self.held: dict[int, tuple[Tensor, list[Tensor]]] = {}  # for each N: numbers of the rows, and what is returned

    def _plan(self, networks: Sequence[Network]) -> Plan:
        scratch, size, tile = self.scratch, self.size, (("tile", FRAMES),)
        rows, x = scratch.matrix(FRAMES, size), scratch.matrix(size, FRAMES)
        row = Matrix("own", 1, size, rows.row, offset=rows.offset, at=(("frame", rows.row),))
        mean, var = (Matrix(name, 1, size, rows.row) for name in ("mean", "var"))
        theta = Matrix("theta", 1, len(self.theta), len(self.theta))
        steps: list[Step] = [
            Gather(rows, Matrix("obs", 1, size, size), Matrix("order", 1, FRAMES, FRAMES, at=tile)),
            Loop("frame", FRAMES, (Apply(normalise(), (row, mean, var), size),)),
            Transpose(x, rows),
        ]
        for k, network in enumerate(networks):
            one = Pass(network, theta, x, rows, scratch)
            n, width = self.outputs[k], self.widths[k]
            out = Matrix(f"out{k}", FRAMES, n, width, at=(("tile", FRAMES * width),))
            steps += [*one.forward(training=False), Transpose(out, one.output)]
        names = ("obs", "mean", "var", "theta", *(f"out{k}" for k in range(len(networks))))
        memories = *map(Memory, names), Memory("order", "l"), Memory("own", each=scratch.size)
        return Plan("networks", memories, (Phase("tile", None, tuple(steps)),))

    def __call__(self, obs: Tensor, mean: Tensor, var: Tensor) -> list[Tensor]:
        """Return each network's outputs for observations (N, O), which are normalised by mean and variance (O,).

        Results are valid until the next call with as many rows.
        """
        n = len(obs)
        tiles, threads = -(-n // FRAMES), torch.get_num_threads()
        if n not in self.held:
            order = torch.arange(tiles * FRAMES).clamp(max=n - 1)
            self.held[n] = order, [torch.zeros(tiles * FRAMES, width) for width in self.widths]
        order, outs = self.held[n]
        if len(self.own) < threads * self.scratch.size:
            self.own = torch.zeros(threads * self.scratch.size)
        self.moments[0, : self.size], self.moments[1, : self.size] = mean, var
        tensors = {"obs": obs.contiguous(), "mean": self.moments[0], "var": self.moments[1], "theta": self.theta}
        tensors |= {"own": self.own, "order": order} | {f"out{k}": out for k, out in enumerate(outs)}
        self.kernel(tensors, threads=min(threads, tiles), turns=tiles)
        return [out[:n, :width] for out, width in zip(outs, self.outputs, strict=True)]
