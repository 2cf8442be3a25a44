"""Batches of pairs of geoms of one kind, which one loop handles: which pairs they are, and their constants.

Humanoid has 109 pairs of geoms that may touch each other, and at any time hardly any of them do. Written out they would
be three quarters of its code. Here a pair is a number, and loops run over those that are near, or touch.

A contact is a number, too: with n pairs, the first contact of pair i is i, and the k-th one after it is i + k n.
"""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ....compiler.arrays import Table
from ....compiler.control import unroll_limit, worlds_go_together
from ....compiler.scalar import Scalar
from ...algebra.spatial import is_zero
from ...collision.contact_param import contact_param
from ...collision.shapes import Collider, collider_of, ground_of, most_contacts
from ...model.enums import GeomType, SensorType
from ...model.model import Model, Pair, bodies_of
from ...model.precision import Precision
from ..body_contacts import sides_of
from ..softening import contact_bound
from ..surface import surfaces_move
from .near_groups import near_groups

FEWEST = 8  # pairs for which a loop is worth while
FEWEST_OF_WORLD = 4  # ... of a body with the world, if such are in loops at all
MOST_WRITTEN = 70  # contacts with the world that are written out; more are in loops, whose code is smaller
MOST_IN_ROWS = 6  # dofs of a body whose row of J adds no more numbers to gradient and Hessian than its stiffness, 27
VERY_MANY = 400  # with this many pairs, of all kinds, contacts share slots: see `contact_pool`
MANY, KINDS = 64, 9  # ... or with so many pairs of so many kinds, which would each have code of its own in the solver
# ... or with this many under noslip, whose sweeps allow no batches: they would be written out
MANY_SWEPT = {"pyramidal": 100, "elliptic": 32}
LARGE_SWEPT = 8  # ... or so many whose colliders are `many`: LLVM takes 1 to 2 s for each that is written out
LONG = 2_000  # pairs from which on it takes a while to find the pools


@dataclass(frozen=True)
class PairBatch:
    """A batch of pairs of one collider and one condim.

    dofs: those that tell the bodies of any pair apart, and others if batches share arrays over dofs. Such arrays have
    this order, with a dof that never moves at the end. own, signs: for each pair, its dofs as places in `dofs`, and for
    each of them +1 if it moves the second body, -1 if it moves the first. All lists are filled up to one length with
    the dof that never moves. one_tree: the bodies of each pair are of one tree.
    """

    pairs: list[Pair]
    collider: Collider
    bodies: list[tuple[int, int]]
    dofs: list[int]
    own: list[list[int]]
    signs: list[list[float]]
    condim: int
    one_tree: bool

    @classmethod
    def of(cls, m: Model, pairs: list[Pair], dofs: Sequence[int] = ()) -> PairBatch:
        """Make the batch of pairs that `batch_pairs` put together. dofs: at least those of its own, sorted."""
        bodies = [bodies_of(m, p) for p in pairs]
        moved = [sorted((v, side.sign) for side in sides_of(m, *b) for v in side.dofs) for b in bodies]
        dofs = [*dofs] or sorted({v for own in moved for v, _ in own})
        place = {v: k for k, v in enumerate(dofs)}
        most = max(len(own) for own in moved)
        own = [[place[v] for v, _ in x] + [len(dofs)] * (most - len(x)) for x in moved]
        signs = [[sign for _, sign in x] + [0.0] * (most - len(x)) for x in moved]
        collider = collider_of(m, pairs[0]).loop
        assert collider
        if field_of(m, pairs[0]) >= 0:
            collider = dataclasses.replace(collider, ncon=ground_of(m, pairs).contacts)
        one_tree = m.body_originid[bodies[0][0]] == m.body_originid[bodies[0][1]]
        return cls(pairs, collider, bodies, dofs, own, signs, pairs[0].condim, one_tree)

    @property
    def real(self) -> Sequence[Pair]:
        """The pairs whose parameters are looked up: `pairs`, or in a `NearBatch` all from which worlds choose."""
        return self.pairs

    def still_bodies(self, m: Model) -> list[int]:
        """Return for each of `real` the body that stands still if worlds choose the pair, else 0."""
        return [0] * len(self.real)

    @property
    def numbers(self) -> list[int]:
        """The number of each contact among its pair's."""
        return [k for k in range(self.collider.ncon) for _ in self.pairs]

    def number(self, i: Any) -> Scalar:
        """Return the number of contact i among its pair's."""
        found: Scalar = self.per_contact([float(k) for k in self.numbers], i)
        return found

    @property
    def most(self) -> int:
        """The most dofs that a pair has."""
        return len(self.own[0])

    def per_contact(self, values: Sequence[Any], i: Any) -> Any:
        """Return contact i's entry of a list with one entry for each pair."""
        if isinstance(i, int):  # plain numbers: a table for each of n contacts would take n squared
            return values[i % len(values)]
        return Table([*values] * self.collider.ncon)[i]

    def of_contact(self, values: Sequence[Any], i: Any) -> Any:
        """Return contact i's entry of a list with one entry for each of `real`."""
        return self.per_contact(values, i)

    def of_pair(self, values: Sequence[Any], i: Any) -> Any:
        """Return pair i's entry of such a list: cheaper than `of_contact`, which it equals for a first contact."""
        if isinstance(values, range):
            return i
        return values[i] if isinstance(i, int) else Table(values)[i]

    def dof(self, i: Any, k: int) -> Any:
        """Return the place in `dofs` of the k-th dof of contact i."""
        return self.per_contact([own[k] for own in self.own], i)

    def sign(self, i: Any, k: int) -> Any:
        """Return the sign of the k-th dof of contact i."""
        return self.per_contact([sign[k] for sign in self.signs], i)


def divided(m: Model, precision: Precision) -> tuple[list[list[Pair]], list[list[list[Pair]]]]:
    """Find the pairs that loops handle: as batches, or, if they are very many, as pools of batches instead.

    If the precision has no slots, there are only batches, with more code.
    """
    pools = _pools(m, precision) if precision.slots and len(m.pairs) >= min(MANY, _very_many(m)) else []
    if not pools:
        return batch_pairs(m, precision), []
    return [], [[x for batch in pool for x in near_groups(m, batch)] for pool in pools]


def batch_pairs(m: Model, precision: Precision) -> list[list[Pair]]:
    """Find the pairs that loops handle, by batch.

    The pairs of a batch have one collider, impedance and condim, are all within trees or all between them, and are
    numerous enough for a loop. Pairs with the world, such as feet, touch most of the time and cost less if they are
    written out, so they are in loops only if they are more than the compiler should write out, or so many that hardly
    any touch. (Some shapes are so much code that they are always in loops.)
    """
    if m.noslip_iterations:  # which goes from contact to contact, in MuJoCo's order
        return []
    found: dict[tuple[Any, ...], list[Pair]] = {}
    m = m.nominal or m
    for p in m.pairs:
        bodies, solimp = bodies_of(m, p), contact_param(m, p).solimp
        one_tree = m.body_originid[bodies[0]] == m.body_originid[bodies[1]]
        loop, moving = loop_of(m, p), len(sides_of(m, *bodies))
        if loop and moving and _fits_tables(m, p, precision):
            of_world = moving == 1 and not loop.many
            found.setdefault((of_world, id(loop), field_of(m, p), p.condim, one_tree, *solimp), []).append(p)
    copies = [p for (of_world, *_), pairs in found.items() if of_world for p in pairs]
    looped = len(copies) > unroll_limit() or sum(most_contacts(m, p) for p in copies) > MOST_WRITTEN

    def enough(of_world: bool, pairs: list[Pair]) -> bool:
        if of_world:
            return looped and len(pairs) >= FEWEST_OF_WORLD
        return collider_of(m, pairs[0]).many or len(pairs) >= FEWEST

    return [pairs for (of_world, *_), pairs in found.items() if enough(of_world, pairs)]


def _pools(m: Model, precision: Precision) -> list[list[list[Pair]]]:
    """Find the pools: batches of one condim whose contacts share slots. Those of many pairs are kept for as long as the
    model lives.
    """
    m = m.nominal or m  # which decides for all worlds
    if len(m.pairs) < LONG or not m.constant:
        return _found_pools(m, precision)
    kept = _kept.setdefault(m, {})
    key = precision, id(m.pairs)
    if key not in kept:
        kept[key] = m.pairs, _found_pools(m, precision)
    return kept[key][1]


_Pools = list[list[list[Pair]]]
# Of equal models each has pairs of its own, which are told apart by their identity.
_kept: weakref.WeakKeyDictionary[Model, dict[Any, tuple[Sequence[Pair], _Pools]]] = weakref.WeakKeyDictionary()


def _found_pools(m: Model, precision: Precision) -> list[list[list[Pair]]]:
    """Find the pools.

    There are none if the pairs that can be in one are few and of few kinds. Nor are there any with noslip if only some
    contacts would be in pools, or if there are contact sensors: sweeps and these follow MuJoCo's order of all contacts.
    """
    found: dict[int, dict[tuple[Any, ...], list[Pair]]] = {}
    count = 0
    for p in m.pairs:
        bodies = bodies_of(m, p)
        one_tree = m.body_originid[bodies[0]] == m.body_originid[bodies[1]]
        loop = loop_of(m, p)
        if not sides_of(m, *bodies):
            continue
        if loop and _fits_tables(m, p, precision):
            key = id(loop), field_of(m, p), one_tree, contact_param(m, p).solimp[4]
            found.setdefault(p.condim, {}).setdefault(key, []).append(p)
            count += 1
        elif m.noslip_iterations:
            return []
    sweeps = m.noslip_iterations and SensorType.CONTACT in m.sensor_type
    various = count >= MANY and sum(map(len, found.values())) >= KINDS
    few = count < _very_many(m) and not various
    if few or sweeps:
        return []
    return [[*batches.values()] for _, batches in sorted(found.items())]


def _very_many(m: Model) -> int:
    if not m.noslip_iterations:
        return VERY_MANY
    most = min(MANY_SWEPT[m.cone], VERY_MANY)
    if len(m.pairs) >= most:
        return most
    large = sum(collider_of(m, p).many for p in m.pairs)
    return LARGE_SWEPT if large >= LARGE_SWEPT else most


def _fits_tables(nominal: Model, pair: Pair, precision: Precision) -> bool:
    """Return whether a loop finds what softens a pair's contacts by looking up numbers: there is no spring.

    nominal: the model as it was loaded, which decides that for all worlds.
    """
    return is_zero(contact_bound(nominal, pair, precision).spring)


def loop_of(m: Model, pair: Pair) -> Collider | None:
    """Return the collider by which a loop finds a pair's contacts; None if the pair adheres or a surface moves."""
    return None if contact_param(m, pair).adhesion or surfaces_move(m, pair) else collider_of(m, pair).loop


def adds_stiffness(m: Model, pairs: Sequence[Pair]) -> bool:
    """Return whether a batch is of contacts with the world that become a stiffness of their bodies, not rows of J.

    That is summed over the tree whether anything touches or not. It pays for pairs that may touch in many points, as
    feet on rough ground do, and on a CPU for bodies that many dofs move.
    """
    loop, sides = loop_of(m, pairs[0]), [sides_of(m, *bodies_of(m, p)) for p in pairs]
    if any(len(of_pair) > 1 for of_pair in sides):
        return False
    long = worlds_go_together() and max(len(side.dofs) for (side,) in sides) > MOST_IN_ROWS
    return bool(loop and loop.many) or long


def field_of(m: Model, pair: Pair) -> int:
    """Return the height field that the pair touches, or -1."""
    return m.geom_dataid[pair.geom1] if m.geom_type[pair.geom1] == GeomType.HFIELD else -1
