"""PPO's update and its networks as kernels on a GPU.

An update is three launches per minibatch, for gradients, their sum, and Adam's step; policy and value are one launch.

A block of threads takes a tile of frames through one network, forward and backward, in shared memory; so there are two
blocks per tile. Sums are added in a fixed order, so a run gives the same bits each time. `steps.py` has the steps, as
for the CPU, and tests compare with the CPU's kernel of the same plan.

Everything else is done by torch's operations on the device, and never waits: a whole update can be captured in a CUDA
graph.

Shapes: N frames, R minibatches of B frames each.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ...compiler.matrices import Matrix, Memory, Phase, Plan
from ...compiler.matrices.on_gpu import GpuPlanKernel, GpuPlanLaunch
from ...networks.layers import Block, Network, ParameterLayout
from ..sharing import ALONE, Share
from ..statistics import SUMS
from .forward import Networks
from .losses import Loss
from .minibatch import adam_state, padded_size, shared_rounds
from .steps import POLICY, VALUE, Minibatch, Steps

LANES = 16  # rows reach to multiples of this many numbers, as in vectors of the CPU
FRAMES = 32  # of a tile: 2,048 frames are then 128 blocks, for the 132 multiprocessors of an H100
PARTS = 128  # sums of gradients of a minibatch, at most; larger minibatches have several tiles per part
CHUNKS = 64  # of the parameters, for the sum of gradients and Adam's step


def plans_of(what: Minibatch, share: Share) -> list[Plan]:
    """Plan what is done with a minibatch, each part of which has its own sum of gradients.

    There is one plan for all phases; or two, if some processes share the parts, and exchange sums between them.
    """
    mine = share.of(what.parts)
    parts = max(1, mine.stop - mine.start)  # with none, the plan is not run
    sums = Matrix("sums", 1, what.total, what.total, at=(("part", what.total),))
    makers = [Steps(what, LANES) for _ in range(3)]  # each with a block's whole memory
    gradients = [
        Phase("part", parts, tuple(maker.part((("part", 1),), sums, (head,))), wait=head == VALUE)
        for head, maker in zip((POLICY, VALUE), makers, strict=False)
    ]
    step = makers[2].step(what.parts)
    names = ("theta", "mean", "square", "frames", "weights", "advantages", "rates", "sums", "gradient")
    memories = *map(Memory, (*names, "squares", "statistics", "trained")), Memory("order", "l")
    own = Memory("own", each=max(maker.scratch.size for maker in makers))
    plans = [("ppo update", [*gradients, *step])]
    if share.ranks > 1:
        plans = [("ppo gradients", gradients), ("ppo step", step)]
    return [Plan(name, (*memories, own), tuple(phases)) for name, phases in plans]


def places(blocks: Sequence[Block]) -> tuple[Tensor, Tensor]:
    """Return the places of parameters in the vector that networks describe, and in a layout's own memory."""
    there, here = [], []
    for b in blocks:
        down, right = torch.arange(b.rows)[:, None], torch.arange(b.columns)
        there.append((b.theta + down * b.columns + right).flatten())
        here.append((b.own + down * b.row + right).flatten())
    return torch.cat(there), torch.cat(here)


class Update:
    """The update of a policy and a value network, on the GPU that `theta` is on: see `update.Update`, in float32."""

    def __init__(
        self, networks: tuple[Network, Network], theta: Tensor, log_std: int, optimizer: torch.optim.Adam,
        columns: Sequence[int], size: int, loss: Loss, trained: Tensor | None = None, share: Share = ALONE,
    ):  # fmt: skip
        """Load the kernels. If the update is shared among processes, each has some of the parts of a minibatch."""
        self.theta, self.optimizer, self.columns, self.size = theta, optimizer, tuple(columns), size
        device = theta.device
        tiles = math.ceil(size / (PARTS * FRAMES))
        parts = math.ceil(size / (tiles * FRAMES))
        layout = ParameterLayout(networks, (log_std, self.columns[1]), LANES)
        total = padded_size(layout.size, CHUNKS)
        group = optimizer.param_groups[0]
        self.minibatch = Minibatch(
            layout.networks, layout.others, total, self.columns, parts, tiles, loss, group["betas"], group["eps"],
            frames=FRAMES, chunks=CHUNKS,
        )  # fmt: skip
        self.share = share
        self.kernels = [GpuPlanKernel(plan, device) for plan in plans_of(self.minibatch, share)]
        self.there, self.here = (x.to(device) for x in places(layout.blocks))
        self.parameters = torch.zeros(3, total, device=device)  # theta, and Adam's two moments
        self.trained = torch.zeros(total, device=device)
        self._take(self.trained, torch.ones_like(theta) if trained is None else trained)
        self.gradients = torch.zeros(total, device=device)
        self.sums = torch.zeros(parts, total, device=device)
        self.weights = torch.zeros(parts * tiles * FRAMES, device=device)  # of each frame in the mean; 0 for padding
        self.weights[:size] = 1 / size

    def _take(self, own: Tensor, x: Tensor) -> None:
        """Copy parameters, or other numbers for each, from a vector like theta."""
        own.index_copy_(0, self.here, x.index_select(0, self.there))

    def _give(self, own: Tensor, x: Tensor) -> None:
        """Copy them back."""
        x.index_copy_(0, self.there, own.index_select(0, self.here))

    @property
    def gradient(self) -> Tensor:
        """The last minibatch's gradient before it was clipped, like theta; 0 for parameters that no network has."""
        found = torch.zeros_like(self.theta)
        self._give(self.gradients, found)
        return found

    def __call__(self, frames: Tensor, order: Tensor) -> Tensor:
        """Learn from frames (N, columns), in minibatches taken in `order` (R B,): see `update.Update`.

        Returns STATISTICS of each minibatch, (R, 8).
        """
        rounds, parts, device = len(order) // self.size, self.minibatch.parts, frames.device
        state = adam_state(self.optimizer, self.theta)
        now = (self.theta, state["exp_avg"], state["exp_avg_sq"])
        for x, own in zip(now, self.parameters, strict=True):
            self._take(own, x)
        order = order.view(rounds, self.size)
        filled = torch.zeros(rounds, len(self.weights), dtype=torch.int64, device=device)
        filled[:, : self.size] = order
        squares = torch.zeros(rounds, CHUNKS, device=device)
        statistics = torch.zeros(rounds, parts, 16, device=device)
        theta, mean, square = self.parameters
        tensors = {
            "theta": theta, "mean": mean, "square": square, "frames": frames, "weights": self.weights,
            "advantages": self._advantages(frames, order), "rates": self._rates(state["step"], rounds),
            "sums": self.sums, "gradient": self.gradients, "squares": squares, "statistics": statistics,
            "order": filled, "trained": self.trained,
        }  # fmt: skip
        if self.share.ranks == 1:
            GpuPlanLaunch(self.kernels[0], tensors)(rounds)
        else:
            gradients, step = self.kernels
            shared_rounds(
                self.minibatch, self.share, tensors, rounds,
                lambda given: GpuPlanLaunch(gradients, given)(), lambda given: GpuPlanLaunch(step, given)(),
            )  # fmt: skip
        for x, own in zip(now, self.parameters, strict=True):
            self._give(own, x)
        state["step"] += rounds
        return torch.cat([statistics.sum(1)[:, : len(SUMS)], squares.sum(1, keepdim=True).sqrt()], 1)

    def _advantages(self, frames: Tensor, order: Tensor) -> Tensor:
        """Return the mean of each minibatch's advantages, and one over their standard deviation, (R, 2)."""
        advantages = frames[:, sum(self.columns[:3])].double()[order]
        return torch.stack([advantages.mean(1), 1 / (advantages.std(1) + 1e-8)], 1).float()

    def _rates(self, taken: Tensor, rounds: int) -> Tensor:
        """Return the two numbers that a step of Adam depends on besides the gradient, (R, 2)."""
        group = self.optimizer.param_groups[0]
        steps = taken.double() + torch.arange(1, rounds + 1, device=taken.device)
        bias = [1 - beta**steps for beta in group["betas"]]
        return torch.stack([group["lr"] / bias[0], 1 / bias[1].sqrt()], 1).float()


class _Batch(NamedTuple):
    """The kernel for some number of observations, and the numbers of its rows: beyond the last row, the last again."""

    kernel: GpuPlanKernel
    order: Tensor


class Forward:
    """Networks whose parameters are `theta`, run on the same observations of `size` numbers, on the GPU of theta."""

    def __init__(self, networks: Sequence[Network], theta: Tensor, size: int):
        self.networks, self.theta, self.size = networks, theta, size
        self.widths = [network.layers[-1].outputs for network in networks]
        self.held: dict[int, _Batch] = {}  # for each N

    def _batch(self, n: int) -> _Batch:
        tiles = -(-n // FRAMES)
        makers = [Networks([network], self.theta, self.size, False, LANES, FRAMES) for network in self.networks]
        outs = [f"out{k}" for k in range(len(makers))]
        phases = [
            Phase("tile", tiles, tuple(maker.tile([out])), wait=out == outs[-1])
            for maker, out in zip(makers, outs, strict=True)
        ]
        own = Memory("own", each=max(maker.scratch.size for maker in makers))
        memories = *map(Memory, ("obs", "mean", "var", "theta", *outs)), Memory("order", "l"), own
        order = torch.arange(tiles * FRAMES, device=self.theta.device).clamp(max=n - 1)
        return _Batch(GpuPlanKernel(Plan("networks", memories, tuple(phases)), self.theta.device), order)

    def __call__(self, obs: Tensor, mean: Tensor, var: Tensor) -> list[Tensor]:
        """Return each network's outputs for observations (N, O), which are normalised by mean and variance (O,).

        The first call for an N compiles, so it cannot be in a CUDA graph.
        """
        n = len(obs)
        if n not in self.held:
            self.held[n] = self._batch(n)
        kernel, order = self.held[n]
        tensors = {"obs": obs.contiguous(), "mean": mean, "var": var, "theta": self.theta, "order": order}
        outs = [torch.empty(len(order), -(-width // LANES) * LANES, device=obs.device) for width in self.widths]
        GpuPlanLaunch(kernel, tensors | {f"out{k}": out for k, out in enumerate(outs)})()
        return [out[:n, :width] for out, width in zip(outs, self.widths, strict=True)]
