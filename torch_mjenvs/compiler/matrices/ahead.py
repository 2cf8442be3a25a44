"""Fetches the rows that a loop's next turn gathers into the caches while this turn's products run.

A gathered row comes from memory. A product fetches a part of a row with each turn of its innermost loop, and does not
wait for it. Many fetches at once would hold up the loads of the product itself.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

from .steps import Gather, Loop, Multiply, Step
from .text import LINE


def fetching_ahead(steps: Sequence[Step]) -> tuple[Step, ...]:
    """Return steps whose products fetch the rows that gathers beside them will copy in the next turn of their loop.

    The index of such a gather must go on for one turn after the loop's last.
    """
    return tuple(_fetching(step) if isinstance(step, Loop) else step for step in steps)


def _fetching(loop: Loop) -> Loop:
    steps = list(fetching_ahead(loop.steps))
    for step in loop.steps:
        if isinstance(step, Gather) and (on := dict(step.index.at).get(loop.index)):
            _share(steps, replace(step, index=replace(step.index, offset=step.index.offset + on)))
    return replace(loop, steps=tuple(steps))


def _share(steps: list[Step], gather: Gather) -> None:
    """Share out the rows of a gather among those products whose innermost loops have turns enough for a row, by the
    time that each takes.
    """
    some = {
        k: x
        for k, x in enumerate(steps)
        if isinstance(x, Multiply) and x.a.columns * LINE >= gather.source.columns
    }  # fmt: skip
    costs = [x.out.rows * x.a.columns * x.out.columns for x in some.values()]
    ends = [gather.index.columns * done // max(1, sum(costs)) for done in itertools.accumulate(costs, initial=0)]
    for (k, product), (first, last) in zip(some.items(), itertools.pairwise(ends), strict=True):
        if last > first:
            index = replace(gather.index, columns=last - first, offset=gather.index.offset + first)
            steps[k] = replace(product, ahead=(*product.ahead, (gather.source, index)))
