"""PPO's update as one compiled kernel: a launch learns from all minibatches of an epoch. For the CPU, in float32.

A tile of 32 frames is gathered, goes forward and backward through a network while it is in the nearest caches, and adds
to a sum of gradients; then the sums are added up, and Adam takes its step. `PPO.gradient` is the same in torch, and what
this is tested against.

A minibatch is split into at most PARTS parts, each with a sum of its own. Sums are added in an order that does not depend
on who computed them, so any number of threads gives the same bits.

Shapes: A actions, F frames in all, R minibatches of B frames.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..compiler.matrices import (
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
    can_build,
)
from ..compiler.matrices.kernel import lanes
from ..compiler.program import Buffer, Program, record
from ..compiler.scalar import absolute, clip, exp, minimum, select
from ..networks import adam
from ..networks.layers import Network
from ..networks.passes import FRAMES, Pass, Scratch

PARTS = 8  # of a minibatch: so many threads have work
CHUNKS = 16  # of the parameters, for Adam's step
BETAS, EPS = (0.9, 0.999), 1e-5
POLICY_SUMS = ("approx_kl", "clip_fraction", "gain")
VALUE_SUMS = ("error", "error_squared", "target", "target_squared")
SUMS = POLICY_SUMS + VALUE_SUMS  # what a launch returns the means of, over each minibatch


@dataclass(frozen=True)
class Loss:
    """The numbers of PPO's loss and step that do not change in a run."""

    clip: float
    value_weight: float
    max_grad_norm: float


def padded_size(parameters: int) -> int:
    """Return how many numbers the memory of so many parameters has: whole vectors for every chunk of Adam's.

    The last parameters may be read as parts of a vector, so one more vector follows them.
    """
    return -(-(parameters + 16) // (16 * CHUNKS)) * 16 * CHUNKS


def policy_loss(actions: int, loss: Loss) -> Program:
    """Record the gradient of -min(r a, clip(r) a) of a frame, times its weight, by mean action and log_std.

    r is the probability ratio, a the normalised advantage. `PPO.gradient` has the same formulas.
    """
    sizes = {
        "mean": actions, "action": actions, "old_log_prob": 1, "advantage": 1, "weight": 1, "log_std": actions,
        "inv_std": actions, "advantages": 2, "mean_grad": actions, "log_std_grad": actions, "sums": len(POLICY_SUMS),
    }  # fmt: skip

    def body(b: dict[str, list[Any]]) -> dict[str, list[Any]]:
        (old_log_prob,), (advantage,), (weight,) = b["old_log_prob"], b["advantage"], b["weight"]
        noise = [(a - m) * s for a, m, s in zip(b["action"], b["mean"], b["inv_std"], strict=True)]
        log_prob = 0.0
        for n, log_std in zip(noise, b["log_std"], strict=True):
            log_prob = log_prob - (0.5 * n * n + log_std)
        log_ratio = log_prob - old_log_prob
        ratio = exp(log_ratio)
        center, scale = b["advantages"]
        advantage = (advantage - center) * scale
        gain = ratio * advantage
        bounded = clip(ratio, 1.0 - loss.clip, 1.0 + loss.clip) * advantage
        log_prob_grad = -(gain * select(gain <= bounded, weight, 0.0))
        noise_grad = [log_prob_grad * n for n in noise]
        kl = ratio - 1.0 - log_ratio
        clipped = select(absolute(ratio - 1.0) > loss.clip, weight, 0.0)
        return {
            "mean_grad": [g * s for g, s in zip(noise_grad, b["inv_std"], strict=True)],
            "log_std_grad": [g * n - log_prob_grad for g, n in zip(noise_grad, noise, strict=True)],
            "sums": [kl * weight, clipped, minimum(gain, bounded) * weight],
        }

    return record("policy loss", [Buffer(name, size) for name, size in sizes.items()], body, "float32")


def value_loss(loss: Loss) -> Program:
    """Record the gradient of value_weight (v - target)² of a frame, times its weight, by the value v."""
    sizes = {"value": 1, "target": 1, "weight": 1, "value_grad": 1, "sums": len(VALUE_SUMS)}

    def body(b: dict[str, list[Any]]) -> dict[str, list[Any]]:
        (value,), (target,), (weight,) = b["value"], b["target"], b["weight"]
        error = value - target
        return {
            "value_grad": [2.0 * loss.value_weight * weight * error],
            "sums": [error * weight, error * error * weight, target * weight, target * target * weight],
        }

    return record("value loss", [Buffer(name, size) for name, size in sizes.items()], body, "float32")


def inverse_std() -> Program:
    """Record exp(-log_std)."""
    buffers = [Buffer("log_std", 1), Buffer("inv_std", 1)]
    return record("inverse std", buffers, lambda b: {"inv_std": [exp(-b["log_std"][0])]}, "float32")


def zeros() -> Program:
    """Record zeros."""
    return record("zeros", [Buffer("x", 1)], lambda b: {"x": [0.0]}, "float32")


class FusedUpdate:
    """The update of a policy and a value network, whose parameters stand in one vector.

    `columns` are the widths of a frame's parts: observation, action, log-probability, advantage, value target. The
    parameters are the first of `memory`; its size is a `padded_size`. `log_std` is the place of the actions' first.
    """

    def __init__(
        self, policy: Network, value: Network, memory: Tensor, log_std: int, columns: Sequence[int], size: int,
        loss: Loss,
    ):  # fmt: skip
        self.memory, self.size, self.columns = memory, size, tuple(columns)
        self.tiles = -(-size // FRAMES)
        self.tiles_a_part = -(-self.tiles // PARTS)
        self.parts = -(-self.tiles // self.tiles_a_part)
        self.moments = torch.zeros(2, len(memory))
        self.scratch = Scratch("own", lanes())
        self.kernel = self._kernel(policy, value, log_std, loss)
        frames = self.parts * self.tiles_a_part * FRAMES
        self.weights = torch.zeros(frames)  # of each frame in the mean; what fills the last tile up has none
        self.weights[:size] = 1 / size
        self.own = torch.zeros(0)
        self.sums = torch.zeros(self.parts, len(memory))
        self.gradient = torch.zeros(len(memory))

    def _kernel(self, policy: Network, value: Network, log_std: int, loss: Loss) -> Kernel:
        names = ("theta", "mean", "square", "frames", "weights", "advantages", "rates", "own", "sums", "gradient")
        memories = tuple(map(Memory, (*names, "squares", "statistics")))
        phases = (self._learn(policy, value, log_std, loss), *self._step(loss))
        return build(Plan("ppo update", (*memories, Memory("order", "l")), phases))

    def _learn(self, policy: Network, value: Network, log_std: int, loss: Loss) -> Phase:
        """Plan the sums of gradients: each part of the minibatch its own."""
        scratch, actions, width, total = self.scratch, self.columns[1], sum(self.columns), len(self.memory)
        part = self.tiles_a_part * FRAMES
        here = ("part", part), ("tile", FRAMES)
        order = Matrix("order", 1, FRAMES, FRAMES, at=(("round", self.parts * part), *here))
        weights = Matrix("weights", 1, FRAMES, FRAMES, at=here)
        advantages = Matrix("advantages", 2, FRAMES, 1, 0, at=(("round", 2),))
        theta, sums = Matrix("theta", 1, total, total), Matrix("sums", 1, total, total, at=(("part", total),))

        inv_std = scratch.matrix(1, actions)
        rows = scratch.matrix(FRAMES, width)
        x = scratch.matrix(width, FRAMES)
        mean_grad, log_std_grad = scratch.matrix(actions, FRAMES), scratch.matrix(actions, FRAMES)
        value_grad, found = scratch.matrix(1, FRAMES), scratch.matrix(len(SUMS), FRAMES)
        acting, valuing = (Pass(network, theta, x, rows, scratch) for network in (policy, value))
        starts = np.cumsum([0, *self.columns]).tolist()
        _, action, old_log_prob, advantage, target = (x.part(a, n) for a, n in zip(starts, self.columns, strict=False))

        shared = Matrix("theta", actions, FRAMES, 1, 0, offset=log_std)
        scales = Matrix("own", actions, FRAMES, 1, 0, offset=inv_std.offset)
        policy_sums, value_sums = found.part(0, len(POLICY_SUMS)), found.part(len(POLICY_SUMS), len(VALUE_SUMS))
        statistics = Matrix("statistics", len(SUMS), 1, 1, at=(("round", self.parts * 16), ("part", 16)))
        tile: list[Step] = [
            Gather(rows, Matrix("frames", 1, width, width), order),
            Transpose(x, rows),
            *acting.forward(),
            Apply(
                policy_loss(actions, loss),
                (acting.output, action, old_log_prob, advantage, weights, shared, scales, advantages, mean_grad,
                 log_std_grad, policy_sums),
                FRAMES,
            ),
            RowSums(Matrix("sums", actions, 1, 1, offset=log_std, at=sums.at), log_std_grad),
            *acting.backward(mean_grad, sums),
            *valuing.forward(),
            Apply(value_loss(loss), (valuing.output, target, weights, value_grad, value_sums), FRAMES),
            *valuing.backward(value_grad, sums),
            RowSums(statistics, found),
        ]  # fmt: skip
        steps = (
            Apply(zeros(), (sums,), total),
            Apply(inverse_std(), (Matrix("theta", 1, actions, 1, offset=log_std), inv_std), actions),
            Loop("tile", self.tiles_a_part, tuple(tile)),
        )
        return Phase("part", self.parts, steps)

    def _step(self, loss: Loss) -> tuple[Phase, Phase]:
        """Plan the sum of the parts, and Adam's step."""
        total = len(self.memory)
        size = total // CHUNKS
        chunk = (("chunk", size),)
        squares, factor = self.scratch.matrix(1, size), self.scratch.matrix(1, 1)
        gradient = Matrix("gradient", 1, size, size, at=chunk)
        sums = Matrix("sums", self.parts, size, total, at=chunk)
        found = Matrix("squares", 1, 1, 1, at=(("round", CHUNKS), ("chunk", 1)))
        all_found = Matrix("squares", CHUNKS, 1, 1, 0, at=(("round", CHUNKS),))
        rates = Matrix("rates", 2, size, 1, 0, at=(("round", 2),))
        own = [Matrix(name, 1, size, size, at=chunk) for name in ("theta", "mean", "square")]
        add = Apply(adam.gradient(self.parts), (sums, gradient, squares), size)
        clipping = Apply(adam.clipping(CHUNKS, loss.max_grad_norm), (all_found, factor), 1)
        everywhere = Matrix("own", 1, size, 1, 0, offset=factor.offset)
        step = Apply(adam.adam(BETAS, EPS), (*own, gradient, everywhere, rates), size)
        return Phase("chunk", CHUNKS, (add, RowSums(found, squares))), Phase("chunk", CHUNKS, (clipping, step))

    def __call__(self, frames: Tensor, order: Tensor, rate: float, taken: int) -> Mapping[str, Tensor]:
        """Learn from the frames (F, columns), in minibatches as they come in `order` (R B,), after `taken` steps.

        Returns the means of `SUMS` over each minibatch, and the norms of the gradients, (R,) each.
        """
        rounds, threads = len(order) // self.size, torch.get_num_threads()
        order = order[: rounds * self.size].view(rounds, self.size)
        advantage = frames[:, sum(self.columns[:3])].numpy()[order.numpy()].astype(np.float64)
        center, spread = advantage.mean(1), advantage.std(1, ddof=1)
        advantages = torch.from_numpy(np.stack([center, 1 / (spread + 1e-8)], 1)).float()
        steps = np.arange(taken + 1, taken + rounds + 1)
        bias = [1 - beta**steps for beta in BETAS]
        rates = torch.from_numpy(np.stack([rate / bias[0], 1 / np.sqrt(bias[1])], 1)).float()
        filled = torch.zeros(rounds, len(self.weights), dtype=torch.int64)
        filled[:, : self.size] = order
        if len(self.own) < threads * self.scratch.size:
            self.own = torch.zeros(threads, self.scratch.size)
        squares, statistics = torch.zeros(rounds, CHUNKS), torch.zeros(rounds, self.parts, 16)
        tensors = {
            "theta": self.memory, "mean": self.moments[0], "square": self.moments[1], "frames": frames,
            "weights": self.weights, "advantages": advantages, "rates": rates, "own": self.own, "sums": self.sums,
            "gradient": self.gradient, "squares": squares, "statistics": statistics, "order": filled,
        }  # fmt: skip
        self.kernel(tensors, rounds, threads)
        means = statistics.sum(1)
        return dict(zip(SUMS, means.unbind(1), strict=False)) | {"norm": squares.sum(1).sqrt()}
