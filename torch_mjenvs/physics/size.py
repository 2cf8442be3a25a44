"""A model that is large for code that is written out: said before minutes pass, and refused before hours do."""

from __future__ import annotations

import warnings
from collections import Counter

from .model import Model, UnsupportedModel

LARGE, MOST = 300_000, 3_000_000  # operations; Humanoid's step has 37,000, and takes 2 s to build
SECONDS = 1.2e-4  # to build an operation of a large model, on one core
LISTED = 3  # pairs of bodies


def warn_of_size(m: Model, operations: int) -> None:
    """Before the compiler starts on a step of so many operations: warn where it takes minutes, refuse where it would
    take hours and all memory. Either says how long, and which pairs of bodies cost most.
    """
    if operations < LARGE:
        return
    bodies = Counter(tuple(sorted((m.geom_bodyid[p.geom1], m.geom_bodyid[p.geom2]))) for p in m.pairs)
    most = ", ".join(f"{m.body_names[a]!r} and {m.body_names[b]!r} ({n})" for (a, b), n in bodies.most_common(LISTED))
    message = (
        f"a step of this model has {operations:,} operations, and building its kernel may take minutes (about "
        f"{operations * SECONDS:,.0f} s): {m.nv} dofs, and {len(m.pairs):,} pairs of geoms that may touch, most of "
        f"them of the bodies {most or 'none'}; keep apart by contype and conaffinity, or by <exclude>, what need not "
        "touch"
    )
    if operations > MOST:
        raise UnsupportedModel(message)
    warnings.warn(message, stacklevel=2)
