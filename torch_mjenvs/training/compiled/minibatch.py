"""The plan of what `Update` does with a minibatch on the CPU: gradients of its parts, their sum, and Adam's step.

A minibatch has parts, each with a sum of gradients of its own. Sums are added by halves, whoever computed them, so any
number of threads gives the same bits. Where threads take several parts each, they add up the sums of theirs first: what
one processor has written, another one waits for.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...compiler.matrices import Memory, Phase, Plan, build
from ...compiler.matrices.kernel import lanes
from .steps import CHUNKS, Minibatch, Steps


def padded_size(parameters: int, chunks: int = CHUNKS) -> int:
    """Return how many numbers the memory of so many parameters has: whole vectors for every chunk of Adam's.

    The last parameters may be read as parts of a vector, so one more vector follows them.
    """
    return -(-(parameters + 16) // (16 * chunks)) * 16 * chunks


def groups_of(parts: int, threads: int) -> int:
    """Return into how many groups of parts threads are to share them out: the fewest of those that are done soonest.

    Groups are the parts' halves, quarters and so on. Where there are no such, or one thread, each part is a group.
    """
    if threads == 1 or parts & (parts - 1):
        return parts
    return min((2**k for k in range(parts.bit_length())), key=lambda n: (-(-n // threads) * (parts // n), n))


class Kernels:
    """The kernels that learn from a minibatch, whose parts are shared out in so many groups.

    There is one of all phases; or, where sums of `some` of the parts are made here, and processes exchange them, two.
    """

    def __init__(self, what: Minibatch, groups: int, some: bool = False):
        of, learn = Steps(what, lanes()), list[Phase]()
        if of.rounded:
            # A turn is a thread's, which rounds its own and does not wait: that takes less than fetching what others
            # rounded.
            learn.append(Phase("weights", None, tuple(of.rounded.steps), wait=False))
        learn.append(Phase("group", groups, tuple(of.group(1 if some else what.parts // groups))))
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
        """Return the memory of so many threads, by name. It is kept from call to call."""
        if self.threads < threads:
            kinds = {name: torch.int32 if name.endswith("pairs") else torch.float32 for name in self.sizes}
            self.held = {name: torch.zeros(threads * n, dtype=kinds[name]) for name, n in self.sizes.items()}
            self.threads = threads
        return self.held
