"""The steps of learning from a minibatch: gradients of one part, the sum over all parts, and Adam's step.

Shapes: R minibatches, one per round.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...compiler.matrices import Apply, Gather, Loop, Matrix, Phase, RowSums, Step, Transpose
from ...compiler.program import Buffer, Program, record
from ...compiler.scalar import exp
from ...networks import adam
from ...networks.layers import Network
from ...networks.passes import PairedInputs, Pass, RoundedPass, RoundedWeights, vectors_of, weight_of
from ...networks.tiles import FRAMES, Scratch, zeros
from ..statistics import POLICY_SUMS, SUMS, VALUE_SUMS
from .losses import Loss, policy_loss, value_loss

CHUNKS = 16  # of the parameters, for Adam's step
POLICY, VALUE = 0, 1  # the two networks


def inverse_std() -> Program:
    """Record exp(-log_std)."""
    buffers = [Buffer("log_std", 1), Buffer("inv_std", 1)]
    return record("inverse std", buffers, lambda b: {"inv_std": [exp(-b["log_std"][0])]}, "float32")


def added(parts: int) -> Program:
    """Record the sum of these numbers."""
    buffers = [Buffer("parts", parts), Buffer("sum", 1)]
    return record("sum", buffers, lambda b: {"sum": [adam.total(b["parts"])]}, "float32")


@dataclass(frozen=True)
class Minibatch:
    """What the kernels of a minibatch depend on.

    `networks` (the policy's, then the value network's) and `log_std` stand among `total` parameters; `columns` are the
    widths of a frame's parts, as `Update` has them. There are `parts` of `tiles` tiles each, over which the loss is a
    mean; Adam has these `betas` and `eps`. With `rounded`, factors of products are bfloat16. A tile has `frames`
    frames, and Adam takes the parameters in `chunks` chunks.
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
    rounded: bool = False
    frames: int = FRAMES
    chunks: int = CHUNKS

    @property
    def seen(self) -> list[tuple[int, int]]:
        """The observations that networks see, as (first one, how many); listed once for networks that see the same."""
        return list(dict.fromkeys(network.place for network in self.networks))


def flat(m: Matrix) -> Matrix:
    """Return a matrix as one row, including what is between its rows."""
    return replace(m, rows=1, columns=m.rows * m.row, row=m.rows * m.row)


Turns = tuple[tuple[str, int], ...]  # pairs (a loop's index, by how much each turn raises the number of the part)


class Steps:
    """Makes the steps of a minibatch, and allocates the memory that they use, for vectors of this many lanes."""

    def __init__(self, what: Minibatch, lanes: int):
        self.what = what
        self.scratch, self.pairs = (Scratch(name, lanes, what.frames) for name in ("own", "own pairs"))
        self.weight_pairs, self.biases = Scratch("weight pairs", lanes), Scratch("biases", lanes)
        self.theta = Matrix("theta", 1, what.total, what.total)
        self.rounded: RoundedWeights | None = None
        if what.rounded:
            self.rounded = RoundedWeights(what.networks, self.theta, self.weight_pairs, self.biases)

    def group(self, parts: int) -> list[Step]:
        """Plan the sum of the gradients of this many parts, for each group."""
        total = self.what.total
        sums = Matrix("sums", 1, total, total, at=(("group", total),))
        if parts == 1:
            return self.part((("group", 1),), sums)
        own = self.scratch.matrix(parts, total)
        one = replace(own, rows=1, at=(("part", own.row),))
        each = self.part((("group", parts), ("part", 1)), one)
        return [Loop("part", parts, tuple(each)), Apply(added(parts), (own, sums), total)]

    def part(self, turns: Turns, sums: Matrix, heads: Sequence[int] = (POLICY, VALUE)) -> list[Step]:
        """Plan the sum of the gradients of one part, of both networks or of one, into `sums` (1, total)."""
        what, scratch, total = self.what, self.scratch, self.what.total
        loss, actions, width, frames = what.loss, what.columns[1], sum(what.columns), what.frames

        def of_part(numbers: int) -> Turns:
            return tuple((index, count * numbers) for index, count in turns)

        here = *of_part(what.tiles * frames), ("tile", frames)
        order = Matrix("order", 1, frames, frames, at=(("round", what.parts * what.tiles * frames), *here))
        weights = Matrix("weights", 1, frames, frames, at=here)
        advantages = Matrix("advantages", 2, frames, 1, 0, at=(("round", 2),))
        alone = what.tiles == 1

        inv_std = scratch.matrix(1, actions)
        first = what.columns[0] if what.rounded else 0  # the first column that is gathered in float32
        rows, x = scratch.matrix(frames, width - first), scratch.matrix(width - first, frames)
        mean_grad, log_std_grad = scratch.matrix(actions, frames), scratch.matrix(actions, frames)
        value_grad, found = scratch.matrix(1, frames), scratch.matrix(len(SUMS), frames)
        entrances: list[Step] = [
            Gather(rows, Matrix("frames", 1, width - first, width, offset=first), order), Transpose(x, rows),
        ]  # fmt: skip
        networks = [what.networks[k] for k in heads]
        passes: list[Pass]
        if self.rounded is None:
            passes = [Pass(network, self.theta, x, rows, scratch) for network in networks]
        else:
            inputs = {place: PairedInputs(place[1], self.pairs) for place in what.seen}
            pairs, at = sum(paired.rows.columns for paired in inputs.values()), 0
            for paired in inputs.values():
                held = Matrix("observations", 1, paired.rows.columns, pairs, offset=at)
                entrances += [Gather(paired.rows, held, order), *paired.steps()]
                at += held.columns
            passes = [
                RoundedPass(network, self.theta, inputs[network.place], self.rounded, scratch, self.pairs)
                for network in networks
            ]
        starts = itertools.accumulate(what.columns[1:], initial=what.columns[0] - first)
        action, old_log_prob, advantage, target = (x.part(a, n) for a, n in zip(starts, what.columns[1:], strict=False))

        shared = replace(self.theta, rows=actions, columns=frames, row=1, column=0, offset=what.log_std)
        scales = Matrix("own", actions, frames, 1, 0, offset=inv_std.offset)
        spans = (0, len(POLICY_SUMS)), (len(POLICY_SUMS), len(VALUE_SUMS))
        policy_sums, value_sums = (found.part(*span) for span in spans)
        statistics = Matrix("statistics", len(SUMS), 1, 1, at=(("round", what.parts * 16), *of_part(16)))
        spread = replace(sums, columns=actions, row=actions, offset=sums.offset + what.log_std)
        tile: list[Step] = [*entrances]
        for head, one in zip(heads, passes, strict=True):
            tile += one.forward()
            if head == POLICY:
                program, gradient = policy_loss(actions, loss), mean_grad
                given = action, old_log_prob, advantage, weights, shared, scales, advantages, mean_grad, log_std_grad
                tile += [
                    Apply(program, (one.output, *given, policy_sums), frames),
                    RowSums(replace(spread, rows=actions, columns=1, row=1), log_std_grad),
                ]
            else:
                program, gradient = value_loss(loss), value_grad
                own = one.output, target, advantage, weights, value_grad, value_sums
                tile.append(Apply(program, own, frames))
            tile += one.backward(gradient, sums, alone)
        span = (0, len(SUMS)) if len(heads) == 2 else spans[heads[0]]
        tile.append(RowSums(statistics.part(*span), found.part(*span)))

        layers = [layer for network in networks for layer in network.layers]
        empty = [vector for layer in layers for vector in vectors_of(sums, layer)]
        empty += [spread] if POLICY in heads else []
        if not alone:  # weights, too, are added up
            weights_of = [flat(weight_of(sums, layer)) for layer in layers]
            empty = [replace(sums, row=total)] if len(heads) == 2 else [*empty, *weights_of]
        steps: list[Step] = [Apply(zeros(), (vector,), vector.columns) for vector in empty]
        if POLICY in heads:
            of_theta = replace(self.theta, columns=actions, offset=what.log_std)
            steps.append(Apply(inverse_std(), (of_theta, inv_std), actions))
        return [*steps, Loop("tile", what.tiles, tuple(tile))]

    def step(self, sums: int) -> list[Phase]:
        """Plan the total of this many sums, and Adam's step."""
        what, total = self.what, self.what.total
        size = total // what.chunks
        chunk = (("chunk", size),)
        squares, factor = self.scratch.matrix(1, size), self.scratch.matrix(1, 1)
        gradient = Matrix("gradient", 1, size, size, at=chunk)
        found = Matrix("squares", 1, 1, 1, at=(("round", what.chunks), ("chunk", 1)))
        all_found = Matrix("squares", what.chunks, 1, 1, 0, at=(("round", what.chunks),))
        rates = Matrix("rates", 2, size, 1, 0, at=(("round", 2),))
        own = [Matrix(name, 1, size, size, at=chunk) for name in ("theta", "mean", "square")]
        trained = Matrix("trained", 1, size, size, at=chunk)
        add = Apply(
            adam.gradient(sums), (Matrix("sums", sums, size, total, at=chunk), trained, gradient, squares), size
        )
        clipping = Apply(adam.clipping(what.chunks, what.loss.max_grad_norm), (all_found, factor), 1)
        everywhere = Matrix("own", 1, size, 1, 0, offset=factor.offset)
        step = Apply(adam.adam(what.betas, what.eps), (*own, gradient, everywhere, rates), size)
        phases = (add, RowSums(found, squares)), (clipping, step)
        return [Phase("chunk", what.chunks, steps) for steps in phases]
