"""PPO's update on the CPU as one compiled kernel, in float32: a launch learns from all minibatches of some epochs.

A tile of 64 frames is gathered, goes forward and backward through a network while it is in the nearest caches, and adds
to a sum of gradients; then the sums are added up, and Adam takes its step. `minibatch.py` has the plan. `PPO.gradient`
is the same in torch; tests compare with it.

Shapes: N frames, R minibatches of B frames each.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...compiler.matrices.kernel import lanes
from ...networks.layers import Block, Network, ParameterLayout
from ...networks.tiles import FRAMES
from .. import large_pages
from ..sharing import ALONE, Share
from ..statistics import SUMS
from .losses import Loss
from .minibatch import Kernels, adam_state, groups_of, padded_size, shared_rounds
from .steps import CHUNKS, Minibatch

PARTS = 8  # of a minibatch, at most: no more threads than this have work


class _Copies:
    """Matrices of parameters in a vector `theta`, and the same ones in a layout's own memory, `own`."""

    def __init__(self, blocks: Sequence[Block], theta: Tensor, own: Tensor):
        self.theta = theta
        self.there = [theta.as_strided((b.rows, b.columns), (b.columns, 1), b.theta) for b in blocks]
        self.here = [own.as_strided((b.rows, b.columns), (b.row, 1), own.storage_offset() + b.own) for b in blocks]

    def take(self) -> None:
        """Copy parameters from `theta`."""
        torch._foreach_copy_(self.here, self.there)

    def give(self) -> None:
        """Copy parameters to `theta`."""
        torch._foreach_copy_(self.there, self.here)


class Update:
    """The update of a policy and a value network with parameters `theta`, in place of steps of `optimizer`.

    `columns` are the widths of a frame's parts: observation, action, log-probability, advantage, value target.
    `log_std` is the place in theta of the first action's log_std. A minibatch has `size` frames. `trained` has 1 for
    every parameter, or 0 for one that is not trained; None means 1 for all. With `rounded`, factors of products are
    bfloat16, and all else is float32.
    """

    def __init__(
        self, networks: tuple[Network, Network], theta: Tensor, log_std: int, optimizer: torch.optim.Adam,
        columns: Sequence[int], size: int, loss: Loss, trained: Tensor | None = None, rounded: bool = False,
        share: Share = ALONE,
    ):  # fmt: skip
        """Compile the update. If it is shared among processes, each has some of the parts of a minibatch."""
        self.theta, self.optimizer, self.columns, self.size = theta, optimizer, tuple(columns), size
        tiles = math.ceil(size / (PARTS * FRAMES))
        parts = math.ceil(size / (tiles * FRAMES))
        self.share, self.mine = share, share.of(parts)
        layout = ParameterLayout(networks, (log_std, self.columns[1]), lanes(), rounded)
        self.blocks = layout.blocks
        self.copies: list[_Copies] = []  # of theta and its two moments
        total = padded_size(layout.size)
        self.parameters = torch.zeros(3, total)  # theta, and Adam's two moments
        self.trained = torch.zeros(total)
        _Copies(layout.blocks, torch.ones_like(theta) if trained is None else trained, self.trained).take()
        self.gradients, self.sums = torch.zeros(total), torch.zeros(parts, total)
        self.weights = torch.zeros(parts * tiles * FRAMES)  # of each frame in the mean; 0 for padding
        self.weights[:size] = 1 / size
        group = optimizer.param_groups[0]
        self.minibatch = Minibatch(
            layout.networks, layout.others, total, self.columns, parts, tiles, loss, group["betas"], group["eps"],
            rounded,
        )  # fmt: skip
        self.held: dict[int, Kernels] = {}  # by the number of groups
        self.seen: tuple[Tensor, int, Any] = theta, -1, None  # the last frames, and their advantages
        self.observations: tuple[Tensor, int, Tensor] = theta, -1, torch.zeros(0)  # the last frames, and theirs rounded
        self.kernels(self.threads)

    @property
    def threads(self) -> int:
        """How many threads share the work."""
        return min(torch.get_num_threads(), PARTS)

    def kernels(self, threads: int) -> Kernels:
        """Return the kernels for this many threads, which are compiled at the first call."""
        some = self.share.ranks > 1
        groups = self.mine.stop - self.mine.start if some else groups_of(self.minibatch.parts, threads)
        if groups not in self.held:
            self.held[groups] = Kernels(self.minibatch, groups, some)
        return self.held[groups]

    @property
    def gradient(self) -> Tensor:
        """The last minibatch's gradient before it was clipped, like theta; 0 for parameters that no network has."""
        found = torch.zeros_like(self.theta)
        _Copies(self.blocks, found, self.gradients).give()
        return found

    def __call__(self, frames: Tensor, order: Tensor) -> Tensor:
        """Learn from frames (N, columns), in minibatches taken in `order` (R B,); changes theta and the optimizer's
        state.

        `order` has the numbers of frames, which may occur more than once, as in several epochs. Returns STATISTICS of
        each minibatch, (R, 8).
        """
        rounds, threads, parts = len(order) // self.size, self.threads, self.minibatch.parts
        kernels = self.kernels(threads)
        state = adam_state(self.optimizer, self.theta)
        now = (self.theta, state["exp_avg"], state["exp_avg_sq"])
        if any(copies.theta is not x for copies, x in zip(self.copies, now, strict=False)) or not self.copies:
            self.copies = [_Copies(self.blocks, x, own) for x, own in zip(now, self.parameters, strict=True)]
        for copies in self.copies:
            copies.take()
        order = order.view(rounds, self.size)
        numbers = torch.zeros(rounds * len(self.weights) + FRAMES, dtype=torch.int64)  # a tile more, to be fetched
        filled = numbers[:-FRAMES].view(rounds, -1)
        filled[:, : self.size] = order
        squares, statistics = torch.zeros(rounds, CHUNKS), torch.zeros(rounds, parts, 16)
        theta, mean, square = self.parameters
        tensors = {
            "theta": theta, "mean": mean, "square": square, "frames": frames, "weights": self.weights,
            "advantages": self._advantages(frames, order), "rates": self._rates(int(state["step"]), rounds),
            "sums": self.sums, "gradient": self.gradients, "squares": squares, "statistics": statistics,
            "order": filled, "trained": self.trained, **kernels.memory(threads),
        }  # fmt: skip
        if self.minibatch.rounded:
            tensors["observations"] = self._rounded(frames)
        if self.share.ranks == 1:
            kernels.kernels[0](tensors, rounds, threads, turns=threads)
        else:
            gradients, step = kernels.kernels
            shared_rounds(
                self.minibatch, self.share, tensors, rounds,
                lambda given: gradients(given, 1, threads, turns=threads), lambda given: step(given, 1, threads),
            )  # fmt: skip
        for copies in self.copies:
            copies.give()
        state["step"] += rounds
        return torch.cat([statistics.sum(1)[:, : len(SUMS)], squares.sum(1, keepdim=True).sqrt()], 1)

    def _advantages(self, frames: Tensor, order: Tensor) -> Tensor:
        """Return the mean of each minibatch's advantages, and one over their standard deviation, (R, 2).

        NumPy's sums do not depend on the number of threads.
        """
        if self.seen[0] is not frames or self.seen[1] != frames._version:  # torch counts the writes into a tensor
            self.seen = frames, frames._version, frames[:, sum(self.columns[:3])].numpy().copy()
        advantages = self.seen[2][order.numpy()].astype(np.float64)
        mean = advantages.mean(1, keepdims=True)
        advantages -= mean
        spread = np.sqrt(np.einsum("ij,ij->i", advantages, advantages) / (self.size - 1))
        return torch.from_numpy(np.stack([mean[:, 0], 1 / (spread + 1e-8)], 1)).float()

    def _rounded(self, frames: Tensor) -> Tensor:
        """Return the frames' observations, those that each network sees, as pairs of bfloat16 (N, pairs)."""
        was, version, held = self.observations
        if was is frames and version == frames._version:
            return held
        places = self.minibatch.seen
        if len(held) != len(frames):
            held = large_pages.zeros(len(frames), sum(-(-count // 2) for _, count in places), dtype=torch.int32)
        numbers, at = held.view(torch.bfloat16), 0
        for first, count in places:
            numbers[:, at : at + count] = frames[:, first : first + count]
            at += count + count % 2  # with an odd count, the place beside the last stays 0
        self.observations = frames, frames._version, held
        return held

    def _rates(self, taken: int, rounds: int) -> Tensor:
        """Return the two numbers that a step of Adam depends on besides the gradient, (R, 2)."""
        group = self.optimizer.param_groups[0]
        steps = np.arange(taken + 1, taken + rounds + 1)
        bias = [1 - beta**steps for beta in group["betas"]]
        return torch.from_numpy(np.stack([float(group["lr"]) / bias[0], 1 / np.sqrt(bias[1])], 1)).float()
