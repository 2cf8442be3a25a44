"""The estimated size of a model's kernel: `sized` warns before a build of minutes, and refuses one of hours."""

from __future__ import annotations

import warnings
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from ...compiler.program import Program
from ...compiler.tiles import SIDE, pays
from ..collision.shapes import most_contacts
from ..constraints.batch.near_groups import NearPairs
from ..constraints.batch.pair_batch import divided
from ..constraints.body_contacts import dofs_apart
from ..constraints.contacts import in_loop
from ..model.enums import GeomType
from ..model.model import Model, Pair, UnsupportedModel, bodies_of, dof_chain
from ..model.precision import PRECISIONS

LARGE, MOST = 300_000, 3_000_000  # operations; Humanoid's step has 37,000, and takes 2 s to build
SECONDS = 1.2e-4  # per operation, to build a large model on one core
GROUND = 100  # geoms that stand still from which on a message speaks of them
LISTED = 3  # pairs of bodies in a message
LARGE_AT_ONCE = 200_000  # operations of A and B from which a warning comes: Humanoid's, in half a minute
SECONDS_AT_ONCE = 1e-9  # per operation squared: LLVM chooses registers for all of them at once, so it takes four times
# as long for twice as many. Measured: 5 s for 73,000 operations, 13 s for 118,000, 57 s for 239,000
SURELY = 4  # times MOST: if the estimate is above this, the model is refused without tracing, which would take minutes
# and much memory

# Operations of each part of a model, for `estimate`: fitted to 26 models (chains and heaps, and those of Gymnasium,
# dm_control, Playground and gymnasium-robotics, the Franka kitchen among them). For those above 50,000 operations the
# estimate is 0.46 (the LEAP hand's 1.7 million) to 1.6 times the true number, and 2.5 times for a heap of twenty boxes.
BODY = 350  # that moves
ROW = 150  # of a limit, friction loss or tendon
FILL, TILES = 1.7, 2_000  # for each product of a factorisation, or all of it where that is done in tiles
LOOP, PAIR_IN_LOOP = 8_000, 55
PAIR_IN_POOL = 1  # these have no code of their own, but each is looked at while the code is made
SHAPES, AXIS = 1_500, 50  # of a pair that is alone: how two shapes touch, and each axis of a contact, on each side

# Numbers of a world for each contact in slots, beside 4 for each axis and block of dofs; fitted to 41,000 pairs.
SLOT = 45
ROOM = 2**34  # bytes of a thread for the slots of 16 worlds: 300,000 pairs of boxes that are not in lists of near ones

_estimates: weakref.WeakKeyDictionary[Model, int] = weakref.WeakKeyDictionary()  # of models that were looked at


def sized(m: Model, trace: Callable[[], Program]) -> Program:
    """Return `trace()`, a step of the model, unless it is too large.

    It warns if the kernel takes minutes to build, and refuses the model if that would take hours and all memory. Both
    messages say how long, and which pairs of bodies cost most.

    The warning comes once for a model, before the work, by an estimate. A refusal mostly goes by what was traced.
    """
    expected = _estimates[m] if m in _estimates else estimate(m)
    if expected > SURELY * MOST:
        raise UnsupportedModel(_message(m, expected, "about "))
    if m not in _estimates and (taken := room(m)) > ROOM:
        raise UnsupportedModel(
            f"the contacts of this model's {len(m.pairs):,} pairs of geoms would take {taken / 1e9:,.0f} GB of memory "
            f"per thread: {_remedy(m)}"
        )
    if expected >= LARGE and m not in _estimates:
        warnings.warn(_message(m, expected, "about "), stacklevel=2)
    _estimates.setdefault(m, expected)
    program = trace()
    operations = program.count_ops().total()
    if operations > MOST:
        raise UnsupportedModel(_message(m, operations))
    if operations >= LARGE > _estimates[m]:
        _estimates[m] = operations
        warnings.warn(_message(m, operations), stacklevel=2)
    return program


def sized_at_once(m: Model, trace: Callable[[], Program]) -> Program:
    """Return `trace()`, a step of the model and its matrices of derivatives, unless it is too large.

    Like `sized`, but its messages come when it is traced, which takes a tenth of the time.
    """
    program = trace()
    operations = program.count_ops().total()
    if operations <= LARGE_AT_ONCE:
        return program
    text = (
        f"a step of this model and all its derivatives have {operations:,} operations, and building their kernel may "
        f"take minutes (about {SECONDS_AT_ONCE * operations**2:,.0f} s): {m.nv} dofs, {len(m.pairs):,} pairs of geoms "
        "that may touch; `transition` has the gradient of a loss, in a much smaller kernel"
    )
    if operations > MOST:
        raise UnsupportedModel(text)
    warnings.warn(text, stacklevel=2)
    return program


def estimate(m: Model) -> int:
    """Estimate the operations of a step from its bodies, dofs and pairs."""
    moving = sum(i > 0 and m.body_weldid[i] == i for i in range(m.nbody))
    rows = sum(m.jnt_limited) + sum(x > 0 for x in m.dof_frictionloss) + m.ntendon
    grouped, pools = divided(m, PRECISIONS["float32"])
    pooled = [pairs for batches in pools for pairs in batches]
    together = {id(pair) for pairs in (*grouped, *pooled) for pair in pairs}
    touch = LOOP * (len(grouped) + len(pooled))
    touch += PAIR_IN_LOOP * sum(map(len, grouped)) + PAIR_IN_POOL * sum(map(len, pooled))
    touch += sum(_alone(m, pair) for pair in m.pairs if id(pair) not in together)
    return round(BODY * moving + ROW * rows + touch + sum(map(_fill, _coupled(m))))


def room(m: Model) -> int:
    """Estimate the bytes that a thread needs for contacts in slots: those of all pairs that are not in lists."""
    found = 0
    for batches in divided(m, PRECISIONS["float32"])[1]:
        pairs = [p for batch in batches if not isinstance(batch, NearPairs) for p in batch]
        bodies = {bodies_of(m, p) for p in pairs}
        blocks = max((-(-dofs_apart(m, *two) // SIDE) for two in bodies), default=0)
        found += sum((SLOT + SIDE * p.condim * blocks) * most_contacts(m, p) for p in pairs)
    return 64 * found


def _alone(m: Model, pair: Pair) -> int:
    """Estimate the operations of a pair that shares no loop: to find its contacts and their axes."""
    found = 0 if m.geom_type[pair.geom1] == GeomType.PLANE else SHAPES
    contacts = 1 if in_loop(m, pair) else most_contacts(m, pair)
    return found + AXIS * pair.condim * contacts * _moving(m, pair)


def _fill(columns: list[Sequence[int]]) -> float:
    """Estimate the operations to factor M and the solver's Hessian, of these columns in the rows of a triangle."""
    squares = sum(len(row) ** 2 for row in columns)
    return TILES if pays(columns, squares // 2, 0) else FILL * squares


def _coupled(m: Model) -> list[list[Sequence[int]]]:
    """Return the dofs to which the Hessian couples each dof, by group of trees that may touch each other.

    These are the dofs that move it, or all that come before it if bodies of the group may touch. Dofs are counted from
    the first of the group.
    """
    group = {root: root for root in m.body_rootid}

    def find(root: int) -> int:
        while group[root] != root:
            root = group[root]
        return root

    dense = set()
    for pair in m.pairs:
        if _moving(m, pair) == 2:
            one, two = (find(m.body_rootid[m.geom_bodyid[g]]) for g in (pair.geom1, pair.geom2))
            group[two] = one
            dense |= {one, two}
    of: dict[int, list[int]] = {}
    for v in range(m.nv):
        of.setdefault(find(m.body_rootid[m.dof_bodyid[v]]), []).append(v)
    dense = {find(root) for root in dense}
    number = {v: k for dofs in of.values() for k, v in enumerate(dofs)}
    return [
        [range(k + 1) if root in dense else [number[u] for u in dof_chain(m, v)] for k, v in enumerate(dofs)]
        for root, dofs in of.items()
    ]


def _moving(m: Model, pair: Pair) -> int:
    """Return how many of a pair's geoms something moves."""
    return sum(m.body_weldid[m.geom_bodyid[g]] > 0 for g in (pair.geom1, pair.geom2))


def _message(m: Model, operations: int, roughly: str = "") -> str:
    bodies = Counter(tuple(sorted(bodies_of(m, p))) for p in m.pairs)
    most = ", ".join(f"{m.body_names[a]!r} and {m.body_names[b]!r} ({n})" for (a, b), n in bodies.most_common(LISTED))
    return (
        f"a step of this model has {roughly}{operations:,} operations, and building its kernel may take minutes (about "
        f"{operations * SECONDS:,.0f} s): {m.nv} dofs, and {len(m.pairs):,} pairs of geoms that may touch, most of "
        f"them of the bodies {most or 'none'}; {_remedy(m)}{_due_to_noslip(m, operations)}"
    )


def _remedy(m: Model) -> str:
    """Say what to do about many pairs."""
    apart = "keep apart by contype and conaffinity, or by <exclude>, what need not touch"
    still = {g for p in m.pairs for g in (p.geom1, p.geom2) if not m.body_weldid[m.geom_bodyid[g]]}
    if len(still) < GROUND:
        return apart
    return f"{apart}; in place of {len(still):,} geoms that stand still, use a height field"


def _due_to_noslip(m: Model, operations: int) -> str:
    """Say that noslip makes most of a step, where it does: its contacts are written out one by one."""
    if not m.noslip_iterations:
        return ""
    without = estimate(replace(m, noslip_iterations=0))
    if without > operations / 2:
        return ""
    return f"; noslip_iterations={m.noslip_iterations} makes most of it: with 0 it is about {without:,} operations"
