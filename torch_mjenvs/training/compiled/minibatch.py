"""The plan of a minibatch of `Update` on the CPU: gradients of its parts, their sum, and Adam's step; and its order if
processes share it, on a GPU, too.

A minibatch has parts, each with its own sum of gradients. These sums are added pairwise in a fixed order, whichever
thread computed them, so any number of threads gives the same bits. Threads with several parts first add up their own
sums, since reading what another processor has written takes longer.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ...compiler.matrices import Memory, Phase, Plan, build
from ...compiler.matrices.ahead import fetching_ahead
from ...compiler.matrices.kernel import lanes
from ..sharing import Share
from .steps import CHUNKS, Minibatch, Steps

OF_ROUND = ("advantages", "rates", "squares", "statistics", "order")  # memories that have a row for each minibatch


def padded_size(parameters: int, chunks: int = CHUNKS) -> int:
    """Return how many numbers the memory of this many parameters has: whole vectors for every chunk of Adam's.

    The last parameters may be read as parts of a vector, so one more vector follows them.
    """
    return -(-(parameters + 16) // (16 * chunks)) * 16 * chunks


def groups_of(parts: int, threads: int) -> int:
    """Return the number of groups into which threads divide the parts: the smallest of those that finish soonest.

    Groups are halves of the parts, quarters and so on. If these do not exist, or with one thread, each part is a group.
    """
    if threads == 1 or parts & (parts - 1):
        return parts
    return min((2**k for k in range(parts.bit_length())), key=lambda n: (-(-n // threads) * (parts // n), n))


class Kernels:
    """The kernels that learn from a minibatch, whose parts are divided into this many groups.

    There is one kernel for all phases; or two, if only the sums of `some` parts are made here and processes exchange
    them.
    """

    def __init__(self, what: Minibatch, groups: int, some: bool = False):
        of, learn = Steps(what, lanes()), list[Phase]()
        if of.rounded:
            # Each thread has one turn, in which it rounds weights for itself, and does not wait: that takes less time
            # than fetching what others rounded.
            learn.append(Phase("weights", None, tuple(of.rounded.steps), wait=False))
        group = of.group(1 if some else what.parts // groups)
        learn.append(Phase("group", groups, fetching_ahead(group)))
        step = of.step(what.parts if some else groups)
        own = {"own": of.scratch.size} | ({"biases": of.biases.size} if what.rounded else {})
        pairs = {"own pairs": of.pairs.size, "weight pairs": of.weight_pairs.size} if what.rounded else {}
        names = ("theta", "mean", "square", "frames", "weights", "advantages", "rates", "sums", "gradient")
        memories = *map(Memory, (*names, "squares", "statistics", "trained")), Memory("order", "l")
        memories += (Memory("observations", "p"),) if what.rounded else ()
        memories += *(Memory(k, each=n) for k, n in own.items()), *(Memory(k, "p", n) for k, n in pairs.items())
        plans = [("ppo gradients", learn), ("ppo step", step)] if some else [("ppo update", [*learn, *step])]
        self.kernels = [build(Plan(name, memories, tuple(phases))) for name, phases in plans]
        self.sizes = {**own, **pairs}  # of each thread's own memory
        self.threads, self.held = 0, dict[str, Tensor]()

    def memory(self, threads: int) -> dict[str, Tensor]:
        """Return the memory of this many threads, by name. It is kept from call to call."""
        if self.threads < threads:
            kinds = {name: torch.int32 if name.endswith("pairs") else torch.float32 for name in self.sizes}
            self.held = {name: torch.zeros(threads * n, dtype=kinds[name]) for name, n in self.sizes.items()}
            self.threads = threads
        return self.held


def adam_state(optimizer: torch.optim.Optimizer, theta: Tensor) -> dict[str, Tensor]:
    """Return the optimizer's state of theta; if there is none yet, one that begins as torch's Adam does."""
    state: dict[str, Tensor] = optimizer.state[theta]
    if not state:
        state["step"] = torch.zeros((), device=theta.device)
        state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(theta), torch.zeros_like(theta)
    return state


def shared_rounds(
    what: Minibatch, share: Share, tensors: dict[str, Tensor], rounds: int,
    gradients: Callable[[dict[str, Tensor]], None], step: Callable[[dict[str, Tensor]], None],
) -> None:  # fmt: skip
    """Learn from so many minibatches, of each of which every process sums the gradients of some parts.

    `gradients` does that for this process's parts, `step` takes the sums of all. Sums of other processes' parts are 0
    here, so adding all processes' sums rounds nothing.
    """
    mine, frames = share.of(what.parts), what.tiles * what.frames
    for k in range(rounds):
        now = tensors | {name: tensors[name][k] for name in OF_ROUND}
        own = {name: now[name][mine.start :] for name in ("sums", "statistics")}
        own |= {name: now[name][mine.start * frames :] for name in ("order", "weights")}
        now["sums"].zero_()
        if mine.stop > mine.start:
            gradients(now | own)
        share.add(now["sums"], now["statistics"])
        step(now)
