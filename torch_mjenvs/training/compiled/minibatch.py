"""The plan of what `Update` does with a minibatch: gradients of its parts, their sum, and Adam's step.

A minibatch has parts, each with a sum of gradients of its own. Sums are added by halves, whoever computed them, so any
number of threads gives the same bits. Where threads take several parts each, they add up the sums of theirs first: what
one processor has written, another one waits for.

Shapes: R minibatches, one a round.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ...compiler.matrices import (
    Apply,
    Gather,
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
from ...networks.layers import Network
from ...networks.passes import PairedInputs, Pass, RoundedPass, RoundedWeights, vectors_of
from ...networks.tiles import FRAMES, Scratch, zeros
from ..statistics import POLICY_SUMS, SUMS, VALUE_SUMS
from .losses import Loss, policy_loss, value_loss

CHUNKS = 16  # of the parameters, for Adam's step


def padded_size(parameters: int) -> int:
    """Return how many numbers the memory of so many parameters has: whole vectors for every chunk of Adam's.

    The last parameters may be read as parts of a vector, so one more vector follows them.
    """
    return -(-(parameters + 16) // (16 * CHUNKS)) * 16 * CHUNKS


def groups_of(parts: int, threads: int) -> int:
    """Return into how many groups of parts threads are to share them out: the fewest of those that are done soonest.

    Groups are the parts' halves, quarters and so on. Where there are no such, or one thread, each part is a group.
    """
    if threads == 1 or parts & (parts - 1):
        return parts
    return min((2**k for k in range(parts.bit_length())), key=lambda n: (-(-n // threads) * (parts // n), n))


def inverse_std() -> Program:
    """Record exp(-log_std)."""
    buffers = [Buffer("log_std", 1), Buffer("inv_std", 1)]
    return record("inverse std", buffers, lambda b: {"inv_std": [exp(-b["log_std"][0])]}, "float32")


def added(parts: int) -> Program:
    """Record the sum of so many numbers."""
    buffers = [Buffer("parts", parts), Buffer("sum", 1)]
    return record("sum", buffers, lambda b: {"sum": [adam.total(b["parts"])]}, "float32")


@dataclass(frozen=True)
class Minibatch:
    """What a minibatch is learned from.

    `networks` (the policy's, then the value network's) and `log_std` stand among `total` parameters; `columns` are the
    widths of a frame's parts, as `Update` has them. There are `parts` of `tiles` tiles each, over which the loss is a
    mean; Adam has these `betas` and `eps`. With `rounded`, factors of products are bfloat16.
    """

    networks: tuple[Network, ...]
    log_std: int
    total: int
    columns: tuple[int, ...]
    parts: int
    tiles: int
    loss: Loss
    betas: tuple[float, float]
    eps: float
    rounded: bool

    @property
    def seen(self) -> list[tuple[int, int]]:
        """Which observations networks see: the first one, and how many; once for networks that see the same."""
        return list(dict.fromkeys(network.place for network in self.networks))


Turns = tuple[tuple[str, int], ...]  # the number of a part: by how much each turn of some loops raises it


class Kernels:
    """The kernels that learn from a minibatch, whose parts are shared out in so many groups.

    There is one of all phases; or, where sums of `some` of the parts are made here, and processes exchange them, two.
    """

    def __init__(self, what: Minibatch, groups: int, some: bool = False):
        self.what, self.groups = what, groups
        self.scratch, self.pairs = Scratch("own", lanes()), Scratch("own pairs", lanes())
        self.weight_pairs, self.biases = Scratch("weight pairs", lanes()), Scratch("biases", lanes())
        self.theta = Matrix("theta", 1, what.total, what.total)
        self.rounded: RoundedWeights | None = None
        learn: list[Phase] = []
        if what.rounded:
            self.rounded = RoundedWeights(what.networks, self.theta, self.weight_pairs, self.biases)
            # A turn is a thread's, which makes its own and waits for nobody: that takes less than to fetch others'.
            learn.append(Phase("weights", None, tuple(self.rounded.steps), wait=False))
        learn.append(Phase("group", groups, tuple(self._group(1 if some else what.parts // groups))))
        step = self._step(what.parts if some else groups)
        own = {"own": self.scratch.size} | ({"biases": self.biases.size} if what.rounded else {})
        pairs = {"own pairs": self.pairs.size, "weight pairs": self.weight_pairs.size} if what.rounded else {}
        names = ("theta", "mean", "square", "frames", "weights", "advantages", "rates", "sums", "gradient")
        memories = *map(Memory, (*names, "squares", "statistics", "trained")), Memory("order", "l")
        memories += (Memory("observations", "p"),) if what.rounded else ()
        memories += *(Memory(k, each=n) for k, n in own.items()), *(Memory(k, "p", n) for k, n in pairs.items())
        plans = [("ppo gradients", learn), ("ppo step", step)] if some else [("ppo update", [*learn, *step])]
        self.kernels = [build(Plan(name, memories, tuple(phases))) for name, phases in plans]
        self.sizes = {**own, **pairs}  # of each thread's own memory
        self.threads, self.held = 0, dict[str, Tensor]()

    def memory(self, threads: int) -> dict[str, Tensor]:
        """Return the memory of so many threads, by name. It is kept from call to call."""
        if self.threads < threads:
            kinds = {name: torch.int32 if name.endswith("pairs") else torch.float32 for name in self.sizes}
            self.held = {name: torch.zeros(threads * n, dtype=kinds[name]) for name, n in self.sizes.items()}
            self.threads = threads
        return self.held

    def _group(self, parts: int) -> list[Step]:
        """Plan the sum of the gradients of so many parts, for each group."""
        total = self.what.total
        sums = Matrix("sums", 1, total, total, at=(("group", total),))
        if parts == 1:
            return self._part((("group", 1),), sums)
        own = self.scratch.matrix(parts, total)
        one = replace(own, rows=1, at=(("part", own.row),))
        each = self._part((("group", parts), ("part", 1)), one)
        return [Loop("part", parts, tuple(each)), Apply(added(parts), (own, sums), total)]

    def _part(self, turns: Turns, sums: Matrix) -> list[Step]:
        """Plan the sum of the gradients of one part, into `sums` (1, total)."""
        what, scratch, total = self.what, self.scratch, self.what.total
        loss, actions, width = what.loss, what.columns[1], sum(what.columns)

        def of_part(numbers: int) -> Turns:
            return tuple((index, count * numbers) for index, count in turns)

        here = *of_part(what.tiles * FRAMES), ("tile", FRAMES)
        order = Matrix("order", 1, FRAMES, FRAMES, at=(("round", what.parts * what.tiles * FRAMES), *here))
        weights = Matrix("weights", 1, FRAMES, FRAMES, at=here)
        advantages = Matrix("advantages", 2, FRAMES, 1, 0, at=(("round", 2),))
        alone = what.tiles == 1

        inv_std = scratch.matrix(1, actions)
        first = what.columns[0] if what.rounded else 0  # of what is gathered in float32
        rows, x = scratch.matrix(FRAMES, width - first), scratch.matrix(width - first, FRAMES)
        mean_grad, log_std_grad = scratch.matrix(actions, FRAMES), scratch.matrix(actions, FRAMES)
        value_grad, found = scratch.matrix(1, FRAMES), scratch.matrix(len(SUMS), FRAMES)
        entrances: list[Step] = [
            Gather(rows, Matrix("frames", 1, width - first, width, offset=first), order), Transpose(x, rows),
        ]  # fmt: skip
        if self.rounded is None:
            acting, valuing = (Pass(network, self.theta, x, rows, scratch) for network in what.networks)
        else:
            inputs = {place: PairedInputs(place[1], self.pairs) for place in what.seen}
            pairs, at = sum(one.rows.columns for one in inputs.values()), 0
            for one in inputs.values():
                held = Matrix("observations", 1, one.rows.columns, pairs, offset=at)
                entrances += [Gather(one.rows, held, order), *one.steps()]
                at += held.columns
            acting, valuing = (
                RoundedPass(network, self.theta, inputs[network.place], self.rounded, scratch, self.pairs)
                for network in what.networks
            )
        starts = itertools.accumulate(what.columns[1:], initial=what.columns[0] - first)
        action, old_log_prob, advantage, target = (
            x.part(a, n) for a, n in zip(starts, what.columns[1:], strict=False)
        )

        shared = replace(self.theta, rows=actions, columns=FRAMES, row=1, column=0, offset=what.log_std)
        scales = Matrix("own", actions, FRAMES, 1, 0, offset=inv_std.offset)
        policy_sums, value_sums = found.part(0, len(POLICY_SUMS)), found.part(len(POLICY_SUMS), len(VALUE_SUMS))
        statistics = Matrix("statistics", len(SUMS), 1, 1, at=(("round", what.parts * 16), *of_part(16)))
        spread = replace(sums, columns=actions, row=actions, offset=sums.offset + what.log_std)
        tile: list[Step] = [
            *entrances,
            *acting.forward(),
            Apply(
                policy_loss(actions, loss),
                (acting.output, action, old_log_prob, advantage, weights, shared, scales, advantages, mean_grad,
                 log_std_grad, policy_sums),
                FRAMES,
            ),
            RowSums(replace(spread, rows=actions, columns=1, row=1), log_std_grad),
            *acting.backward(mean_grad, sums, alone),
            *valuing.forward(),
            Apply(value_loss(loss), (valuing.output, target, advantage, weights, value_grad, value_sums), FRAMES),
            *valuing.backward(value_grad, sums, alone),
            RowSums(statistics, found),
        ]  # fmt: skip
        empty = [replace(sums, row=total)]
        if alone:  # what else is added up
            layers = [layer for network in what.networks for layer in network.layers]
            empty = [*(vector for layer in layers for vector in vectors_of(sums, layer)), spread]
        return [
            *(Apply(zeros(), (vector,), vector.columns) for vector in empty),
            Apply(inverse_std(), (replace(self.theta, columns=actions, offset=what.log_std), inv_std), actions),
            Loop("tile", what.tiles, tuple(tile)),
        ]

    def _step(self, sums: int) -> list[Phase]:
        """Plan the total of so many sums, and Adam's step."""
        what, total = self.what, self.what.total
        size = total // CHUNKS
        chunk = (("chunk", size),)
        squares, factor = self.scratch.matrix(1, size), self.scratch.matrix(1, 1)
        gradient = Matrix("gradient", 1, size, size, at=chunk)
        found = Matrix("squares", 1, 1, 1, at=(("round", CHUNKS), ("chunk", 1)))
        all_found = Matrix("squares", CHUNKS, 1, 1, 0, at=(("round", CHUNKS),))
        rates = Matrix("rates", 2, size, 1, 0, at=(("round", 2),))
        own = [Matrix(name, 1, size, size, at=chunk) for name in ("theta", "mean", "square")]
        trained = Matrix("trained", 1, size, size, at=chunk)
        add = Apply(
            adam.gradient(sums), (Matrix("sums", sums, size, total, at=chunk), trained, gradient, squares), size
        )
        clipping = Apply(adam.clipping(CHUNKS, what.loss.max_grad_norm), (all_found, factor), 1)
        everywhere = Matrix("own", 1, size, 1, 0, offset=factor.offset)
        step = Apply(adam.adam(what.betas, what.eps), (*own, gradient, everywhere, rates), size)
        return [Phase("chunk", CHUNKS, (add, RowSums(found, squares))), Phase("chunk", CHUNKS, (clipping, step))]
