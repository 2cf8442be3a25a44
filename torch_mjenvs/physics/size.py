"""A model that is large for code that is written out: said before minutes pass."""

from __future__ import annotations

import warnings
from collections import Counter

from .model import Model

LARGE = 300_000  # operations; Humanoid's step has 37,000, and takes 2 s to build


def warn_of_size(m: Model, operations: int) -> None:
    """Warn where building a kernel of so many operations takes minutes, and say which pairs of bodies cost most."""
    if operations < LARGE:
        return
    bodies = Counter(tuple(sorted((m.geom_bodyid[p.geom1], m.geom_bodyid[p.geom2]))) for p in m.pairs)
    most = ", ".join(f"{m.body_names[a]!r} and {m.body_names[b]!r} ({n})" for (a, b), n in bodies.most_common(3))
    warnings.warn(
        f"a step of this model has {operations:,} operations, and building its kernel may take minutes: {m.nv} dofs, "
        f"and {len(m.pairs):,} pairs of geoms that may touch, most of them of the bodies {most or 'none'}; "
        "keep apart by contype and conaffinity, or by <exclude>, what need not touch",
        stacklevel=2,
    )
