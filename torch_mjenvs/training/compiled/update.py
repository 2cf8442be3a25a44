"""PPO's update as one compiled kernel: a launch learns from all minibatches of some epochs.

For the CPU, in float32.

A tile of 64 frames is gathered, goes forward and backward through a network while it is in the nearest caches, and
adds to a sum of gradients; then the sums are added up, and Adam takes its step. `PPO.gradient` is the same in torch,
and what this is tested against.

A minibatch is split into at most PARTS parts, each with a sum of its own. Sums are added in an order that does not
depend on who computed them, so any number of threads gives the same bits.

Shapes: N frames, R minibatches of B frames each.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...compiler.matrices import (
    Apply,
    Gather,
    Kernel,
    Loop,
    Matrix,
    Memory,
    Phase,
    Plan,
    RowSums,
    Step,
    Transpose,
    build,
)
from ...compiler.matrices.kernel import lanes
from ...compiler.program import Buffer, Program, record
from ...compiler.scalar import exp
from ...networks import adam
from ...networks.layers import Block, Layout, Network
from ...networks.passes import Pass, RoundedPass, RoundedWeights, rounded_inputs, vectors_of
from ...networks.tiles import FRAMES, Scratch, zeros
from ..sharing import ALONE, Share
from ..statistics import POLICY_SUMS, SUMS, VALUE_SUMS
from .losses import Loss, policy_loss, value_loss

PARTS = 8  # of a minibatch: so many threads have work
CHUNKS = 16  # of the parameters, for Adam's step


def padded_size(parameters: int) -> int:
    """Return how many numbers the memory of so many parameters has: whole vectors for every chunk of Adam's.

    The last parameters may be read as parts of a vector, so one more vector follows them.
    """
    return -(-(parameters + 16) // (16 * CHUNKS)) * 16 * CHUNKS


def inverse_std() -> Program:
    """Record exp(-log_std)."""
    buffers = [Buffer("log_std", 1), Buffer("inv_std", 1)]
    return record("inverse std", buffers, lambda b: {"inv_std": [exp(-b["log_std"][0])]}, "float32")


class _Copies:
    """Matrices of parameters in a vector `theta`, and the same ones where a layout has them in `own`."""

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
    """The update of a policy and a value network, whose parameters are `theta`, which `optimizer` would train.

    `columns` are the widths of a frame's parts: observation, action, log-probability, advantage, value target.
    `log_std` is the place in theta of the first action's. A minibatch has `size` frames. `trained` has 1 for every
    parameter, or 0 for one that stays as it is; None is 1 for all. With `rounded`, factors of products are bfloat16,
    all else is float32.
    """

    def __init__(
        self, networks: tuple[Network, Network], theta: Tensor, log_std: int, optimizer: torch.optim.Adam,
        columns: Sequence[int], size: int, loss: Loss, trained: Tensor | None = None, rounded: bool = False,
        share: Share = ALONE,
    ):  # fmt: skip
        """Compile the update. Where it is shared out over processes, each has some of the parts of a minibatch."""
        self.theta, self.optimizer, self.columns, self.size = theta, optimizer, tuple(columns), size
        self.tiles_a_part = math.ceil(size / (PARTS * FRAMES))
        self.parts = math.ceil(size / (self.tiles_a_part * FRAMES))
        self.share, self.mine = share, share.of(self.parts)
        layout = Layout(networks, (log_std, self.columns[1]), lanes(), rounded)
        self.blocks = layout.blocks
        self.copies: list[_Copies] = []  # of theta and its two moments
        total = padded_size(layout.size)
        self.parameters = torch.zeros(3, total)  # theta, and Adam's two moments
        self.trained = torch.zeros(total)
        _Copies(layout.blocks, torch.ones_like(theta) if trained is None else trained, self.trained).take()
        self.gradients, self.sums = torch.zeros(total), torch.zeros(self.parts, total)
        self.weights = torch.zeros(self.parts * self.tiles_a_part * FRAMES)  # of each frame in the mean; 0 of none
        self.weights[:size] = 1 / size
        self.scratch, self.pairs = Scratch("own", lanes()), Scratch("own pairs", lanes())
        self.weight_pairs, self.biases = Scratch("weight pairs", lanes()), Scratch("biases", lanes())
        theta_here = Matrix("theta", 1, total, total)
        self.rounded = RoundedWeights(layout.networks, theta_here, self.weight_pairs, self.biases) if rounded else None
        self.kernels = self._kernels(layout.networks, layout.others, loss)
        self.own = self.own_pairs = torch.zeros(0)
        self.seen: tuple[Tensor, int, Any] = theta, -1, None  # the last frames, and their advantages
        self.shared = {
            "weight pairs": torch.zeros(self.weight_pairs.size, dtype=torch.int32),
            "biases": torch.zeros(self.biases.size),
        }

    @property
    def gradient(self) -> Tensor:
        """The last minibatch's gradient before it was clipped, like theta; 0 for parameters that no network has."""
        found = torch.zeros_like(self.theta)
        _Copies(self.blocks, found, self.gradients).give()
        return found

    def _kernels(self, networks: Sequence[Network], log_std: int, loss: Loss) -> list[Kernel]:
        """Return one kernel of all phases, or two, between which processes exchange the sums of their parts."""
        learn = [self._learn(networks, log_std, loss)]
        if self.rounded:
            learn.insert(0, Phase("weights", 1, tuple(self.rounded.steps)))
        step = self._step(loss)
        names = ("theta", "mean", "square", "frames", "weights", "advantages", "rates", "sums", "gradient")
        floats = map(Memory, (*names, "squares", "statistics", "trained"))
        memories = [*floats, Memory("order", "l"), Memory("own", each=self.scratch.size)]
        if self.rounded:
            memories += [Memory("own pairs", "p", self.pairs.size), Memory("weight pairs", "p"), Memory("biases")]
        if self.share.ranks == 1:
            return [build(Plan("ppo update", tuple(memories), (*learn, *step)))]
        plans = Plan("ppo gradients", tuple(memories), tuple(learn)), Plan("ppo step", tuple(memories), step)
        return list(map(build, plans))

    def _learn(self, networks: Sequence[Network], log_std: int, loss: Loss) -> Phase:
        """Plan the sums of gradients: each part of the minibatch its own."""
        scratch, actions, width, total = self.scratch, self.columns[1], sum(self.columns), len(self.gradients)
        part = self.tiles_a_part * FRAMES
        here = ("part", part), ("tile", FRAMES)
        order = Matrix("order", 1, FRAMES, FRAMES, at=(("round", self.parts * part), *here))
        weights = Matrix("weights", 1, FRAMES, FRAMES, at=here)
        advantages = Matrix("advantages", 2, FRAMES, 1, 0, at=(("round", 2),))
        theta, sums = Matrix("theta", 1, total, total), Matrix("sums", 1, total, total, at=(("part", total),))

        alone = self.tiles_a_part == 1

        inv_std = scratch.matrix(1, actions)
        rows = scratch.matrix(FRAMES, width)
        seen = 0 if self.rounded is None else self.columns[0]  # what need not be transposed
        x = scratch.matrix(width - seen, FRAMES)
        mean_grad, log_std_grad = scratch.matrix(actions, FRAMES), scratch.matrix(actions, FRAMES)
        value_grad, found = scratch.matrix(1, FRAMES), scratch.matrix(len(SUMS), FRAMES)
        entrances: list[Step] = [Transpose(x, replace(rows, columns=width - seen, offset=rows.offset + seen))]
        if self.rounded is None:
            acting, valuing = (Pass(network, theta, x, rows, scratch) for network in networks)
        else:
            inputs = rounded_inputs(networks, rows, self.pairs)
            entrances += [step for one in dict.fromkeys(inputs) for step in one.steps()]
            acting, valuing = (
                RoundedPass(network, theta, one, self.rounded, scratch, self.pairs)
                for network, one in zip(networks, inputs, strict=True)
            )
        starts = itertools.accumulate(self.columns[1:], initial=self.columns[0] - seen)
        action, old_log_prob, advantage, target = (
            x.part(a, n) for a, n in zip(starts, self.columns[1:], strict=False)
        )

        shared = Matrix("theta", actions, FRAMES, 1, 0, offset=log_std)
        scales = Matrix("own", actions, FRAMES, 1, 0, offset=inv_std.offset)
        policy_sums, value_sums = found.part(0, len(POLICY_SUMS)), found.part(len(POLICY_SUMS), len(VALUE_SUMS))
        statistics = Matrix("statistics", len(SUMS), 1, 1, at=(("round", self.parts * 16), ("part", 16)))
        tile: list[Step] = [
            Gather(rows, Matrix("frames", 1, width, width), order),
            *entrances,
            *acting.forward(),
            Apply(
                policy_loss(actions, loss),
                (acting.output, action, old_log_prob, advantage, weights, shared, scales, advantages, mean_grad,
                 log_std_grad, policy_sums),
                FRAMES,
            ),
            RowSums(Matrix("sums", actions, 1, 1, offset=log_std, at=sums.at), log_std_grad),
            *acting.backward(mean_grad, sums, alone),
            *valuing.forward(),
            Apply(value_loss(loss), (valuing.output, target, advantage, weights, value_grad, value_sums), FRAMES),
            *valuing.backward(value_grad, sums, alone),
            RowSums(statistics, found),
        ]  # fmt: skip
        empty = [sums]
        if alone:  # what else is added up
            empty = [vector for network in networks for layer in network.layers for vector in vectors_of(sums, layer)]
            empty.append(Matrix("sums", 1, actions, actions, offset=log_std, at=sums.at))
        steps: tuple[Step, ...] = (
            *(Apply(zeros(), (vector,), vector.columns) for vector in empty),
            Apply(inverse_std(), (Matrix("theta", 1, actions, 1, offset=log_std), inv_std), actions),
            Loop("tile", self.tiles_a_part, tuple(tile)),
        )
        return Phase("part", self.mine.stop - self.mine.start, steps)

    def _step(self, loss: Loss) -> tuple[Phase, Phase]:
        """Plan the sum of the parts, and Adam's step."""
        total = len(self.gradients)
        size = total // CHUNKS
        chunk = (("chunk", size),)
        squares, factor = self.scratch.matrix(1, size), self.scratch.matrix(1, 1)
        gradient = Matrix("gradient", 1, size, size, at=chunk)
        sums = Matrix("sums", self.parts, size, total, at=chunk)
        found = Matrix("squares", 1, 1, 1, at=(("round", CHUNKS), ("chunk", 1)))
        all_found = Matrix("squares", CHUNKS, 1, 1, 0, at=(("round", CHUNKS),))
        rates = Matrix("rates", 2, size, 1, 0, at=(("round", 2),))
        own = [Matrix(name, 1, size, size, at=chunk) for name in ("theta", "mean", "square")]
        trained = Matrix("trained", 1, size, size, at=chunk)
        add = Apply(adam.gradient(self.parts), (sums, trained, gradient, squares), size)
        clipping = Apply(adam.clipping(CHUNKS, loss.max_grad_norm), (all_found, factor), 1)
        group = self.optimizer.param_groups[0]
        everywhere = Matrix("own", 1, size, 1, 0, offset=factor.offset)
        step = Apply(adam.adam(group["betas"], group["eps"]), (*own, gradient, everywhere, rates), size)
        return Phase("chunk", CHUNKS, (add, RowSums(found, squares))), Phase("chunk", CHUNKS, (clipping, step))

    def __call__(self, frames: Tensor, order: Tensor) -> Tensor:
        """Learn from frames (N, columns), in minibatches as they come in `order` (R B,); moves theta and the optimizer.

        `order` has the numbers of frames; they may come more than once, as in several epochs. Returns STATISTICS of
        each minibatch, (R, 8).
        """
        rounds, threads = len(order) // self.size, min(torch.get_num_threads(), PARTS)
        state = self._state()
        now = (self.theta, state["exp_avg"], state["exp_avg_sq"])
        if any(copies.theta is not x for copies, x in zip(self.copies, now, strict=False)) or not self.copies:
            self.copies = [_Copies(self.blocks, x, own) for x, own in zip(now, self.parameters, strict=True)]
        for copies in self.copies:
            copies.take()
        if len(self.own) < threads * self.scratch.size:
            self.own = torch.zeros(threads * self.scratch.size)
            self.own_pairs = torch.zeros(threads * self.pairs.size, dtype=torch.int32)
        order = order.view(rounds, self.size)
        filled = torch.zeros(rounds, len(self.weights), dtype=torch.int64) if len(self.weights) > self.size else order
        filled[:, : self.size] = order
        squares, statistics = torch.zeros(rounds, CHUNKS), torch.zeros(rounds, self.parts, 16)
        theta, mean, square = self.parameters
        tensors = {
            "theta": theta, "mean": mean, "square": square, "frames": frames, "weights": self.weights,
            "advantages": self._advantages(frames, order), "rates": self._rates(int(state["step"]), rounds),
            "own": self.own, "sums": self.sums, "gradient": self.gradients, "squares": squares,
            "statistics": statistics, "order": filled, "trained": self.trained, "own pairs": self.own_pairs,
            **self.shared,
        }  # fmt: skip
        if self.share.ranks == 1:
            self.kernels[0](tensors, rounds, threads)
        else:
            for k in range(rounds):
                self._shared_round(tensors, k, threads)
        for copies in self.copies:
            copies.give()
        state["step"] += rounds
        return torch.cat([statistics.sum(1)[:, : len(SUMS)], squares.sum(1, keepdim=True).sqrt()], 1)

    def _shared_round(self, tensors: dict[str, Tensor], k: int, threads: int) -> None:
        """Learn from minibatch k. Sums of parts that are others' are 0 here, so to add everybody's rounds nothing."""
        of_round = ("advantages", "rates", "squares", "statistics", "order")
        now = tensors | {name: tensors[name][k] for name in of_round}
        first, frames = self.mine.start, self.tiles_a_part * FRAMES
        own = {name: now[name][first:] for name in ("sums", "statistics")}
        own |= {name: now[name][first * frames :] for name in ("order", "weights")}
        self.sums.zero_()
        if self.mine.stop > first:
            self.kernels[0](now | own, 1, threads)
        self.share.add(self.sums, now["statistics"])
        self.kernels[1](now, 1, threads)

    def _state(self) -> dict[str, Tensor]:
        """Return the optimizer's state of theta, as torch's Adam begins it where there is none yet."""
        state: dict[str, Tensor] = self.optimizer.state[self.theta]
        if not state:
            state["step"] = torch.zeros(())
            state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(self.theta), torch.zeros_like(self.theta)
        return state

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

    def _rates(self, taken: int, rounds: int) -> Tensor:
        """Return the two numbers that a step of Adam depends on besides the gradient, (R, 2)."""
        group = self.optimizer.param_groups[0]
        steps = np.arange(taken + 1, taken + rounds + 1)
        bias = [1 - beta**steps for beta in group["betas"]]
        return torch.from_numpy(np.stack([float(group["lr"]) / bias[0], 1 / np.sqrt(bias[1])], 1)).float()
