"""The numbers of a batch's pairs that vary from world to world.

An array has a row for each geom, as for poses, and what follows from it is computed in the loop, where a pair is. So
neither code nor memory grows with the pairs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from ....compiler.scalar import Scalar, absolute, maximum, select
from ...algebra.spatial import MINVAL, Vec, choose, is_zero, sum_of
from ...collision.contact_param import contact_param, mixed, mixed_friction, mixed_solref, mixing_of
from ...model.model import Model, Pair
from ...model.precision import Precision
from ..contact_row import bodies_invweight, is_elliptic, reference_of, row_share
from ..rows import reference
from ..softening import UsualBound, bound_of_world, usual_bound
from .varied_rows import Look, bodies_moved, sources_of_margin, varied_rows

Number = Callable[[Look], Scalar]  # returns a number of the pair for which `Look` looks up
K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True)
class InTable:
    """The number of each pair, the same in all worlds."""

    values: Vec

    def __call__(self, look: Look) -> Scalar:
        found: Scalar = look(self.values)
        return found


def constant(x: Scalar) -> Number:
    """Return a number that is the same for all pairs."""
    return lambda look: x


class VariedNumbers:
    """What varies of that from which the numbers of some pairs follow: what looks up two rows of it, or None.

    nominal: the model as it was loaded.
    """

    def __init__(self, m: Model, nominal: Model, pairs: Sequence[Pair], condim: int, precision: Precision):
        self.m, self.nominal, self.pairs, self.condim, self.precision = m, nominal, pairs, condim, precision
        self.contacts, self.mixings = [contact_param(nominal, p) for p in pairs], [mixing_of(m, p) for p in pairs]
        rows, sources = varied_rows(m), [x.sources for x in self.mixings]
        self.friction = rows.two("friction", sources) if condim > 1 else None
        self.solref, self.solimp = rows.two("solref", sources), rows.two("solimp", sources)
        self.margin = rows.two("margin", [sources_of_margin(p) for p in pairs])
        self.weights = rows.two("weights", [bodies_moved(m, p) for p in pairs])

    def numbers(self, softened: bool) -> dict[str, Any]:
        """Return those of `PairNumbers` that vary. softened: whether any pair of the model as it was loaded is."""
        condim, elliptic = self.condim, is_elliptic(self.m, self.condim)
        found: dict[str, Any] = {}
        if self.margin:
            found["margin"], found["looked_at"] = self._numbers(2, lambda x: x.margins)
        if self.solimp:
            found["solimp"] = self._numbers(5, lambda x: x.solimp)
        if self.solimp or self.solref:
            found["k"], *found["damping"] = self._numbers(1 + condim, lambda x: x.reference)
        if self.friction:
            found["friction"] = self._numbers(condim - 1, lambda x: x.friction)
        if self.weights or (self.friction and not elliptic):
            (found["invweight"],) = self._numbers(1, lambda x: [x.invweight])
        # masses alone decide whether steps are repeated only where axes follow from them in different ways
        differ = self.friction or self.solimp or (self.weights and (elliptic or condim > 3))
        give, slip, repeated = self._numbers(3, lambda x: x.bound)
        if differ or (self.weights and softened):
            found["give"] = give
        if differ and elliptic:
            found["slip"] = slip
        if differ:
            found |= {"repeated": repeated, "repeats": None}
        return found

    def _numbers(self, n: int, of: Callable[[_Here], Sequence[Scalar]]) -> list[Number]:
        """Return n numbers, which `of` finds at once."""

        def number(k: int) -> Number:
            return lambda look: of(_Here(self, look))[k]

        return list(map(number, range(n)))

    @cached_property
    def usual(self) -> list[UsualBound]:
        """What the model as it was loaded says of how stiff contacts may be, by pair."""
        return [usual_bound(self.nominal, p, self.precision) for p in self.pairs]

    @cached_property
    def damping(self) -> Vec:
        """The damping along axes of friction in the model as it was loaded, by pair."""
        return [reference_of(self.nominal, p)[1][-1] for p in self.pairs]


class _Here:
    """The numbers of one pair, for which `look` looks up."""

    def __init__(self, of: VariedNumbers, look: Look):
        self.of, self.look = of, look

    def known(self, values: Vec) -> Scalar:
        """Return the pair's entry of a list; if all are the same, it folds away."""
        found: Scalar = values[0] if len(set(values)) == 1 else self.look(values)
        return found

    @property
    def margins(self) -> tuple[Scalar, Scalar]:
        """The margin, and with the gap."""
        assert self.of.margin
        (one,), (two,) = self.of.margin(self.look)
        margin = one + two
        return margin, margin + self.known([x.gap for x in self.of.contacts])

    @cached_property
    def friction(self) -> list[Scalar]:
        of = self.of
        if of.friction:
            one, two = of.friction(self.look)
            return mixed_friction(one[: of.condim - 1], two[: of.condim - 1])
        return [self.known([x.friction[k] for x in of.contacts]) for k in range(of.condim - 1)]

    @property
    def share(self) -> Scalar:
        return self.known([x.share for x in self.of.mixings])

    def solref(self, direct: bool) -> list[Scalar]:
        of = self.of
        if of.solref:
            return mixed_solref(direct, self.share, *of.solref(self.look))
        return [self.known([x.solref[k] for x in of.contacts]) for k in range(2)]

    @cached_property
    def solimp(self) -> list[Scalar]:
        of = self.of
        if of.solimp:
            return [*mixed(self.share, *of.solimp(self.look)), of.contacts[0].solimp[4]]
        return [self.known([x.solimp[k] for x in of.contacts]) for k in range(5)]

    @cached_property
    def weights(self) -> tuple[Scalar, Scalar]:
        of = self.of
        if of.weights:
            moving, turning = map(sum_of, zip(*of.weights(self.look), strict=True))
            return moving, turning
        usual = [bodies_invweight(of.nominal, p) for p in of.pairs]
        return self.known([x for x, _ in usual]), self.known([x for _, x in usual])

    @property
    def invweight(self) -> Scalar:
        mu = self.friction[0] if self.friction else 0.0
        return maximum(self.weights[0] * row_share(self.of.m, self.of.condim, mu), MINVAL)

    @cached_property
    def reference(self) -> list[Scalar]:
        """Stiffness k, and damping along each axis."""
        of, timestep = self.of, self.of.m.timestep
        elliptic = is_elliptic(of.m, of.condim)
        own = [elliptic and any(x.solreffriction) for x in of.contacts]

        def compute(kind: tuple[bool, bool]) -> list[Scalar]:
            direct, own = kind
            k, b = reference(self.solref(direct), self.solimp, direct, timestep)
            return [k, b, *[self.known(of.damping) if own else b] * (of.condim - 1)]

        return self._by_kind([(x.direct, y) for x, y in zip(of.mixings, own, strict=True)], compute)

    @cached_property
    def bound(self) -> list[Scalar]:
        """Give, slip, and whether Newton steps are repeated: 1 if they are."""
        of = self.of
        effective, ratio = (self.known(x) for x in ([x.effective for x in of.usual], [x.ratio for x in of.usual]))
        weights = maximum(self.weights[0], MINVAL), self.weights[1]  # 0 for pairs of another kind, which are fixed
        kinds = [(x.fixed, x.bound.needs_refinement, is_zero(x.bound.give)) for x in of.usual]
        some = dict(zip(kinds, of.usual, strict=True))

        def compute(kind: tuple[bool, Any, bool]) -> list[Scalar]:
            usual = dataclasses.replace(some[kind], effective=effective, ratio=ratio)
            found = bound_of_world(of.m, usual, of.precision, self.friction, self.solimp, weights)
            return [found.give, found.slip, select(found.needs_refinement, 1.0, 0.0)]

        return self._by_kind(kinds, compute)

    def _by_kind(self, kinds: Sequence[K], compute: Callable[[K], list[Scalar]]) -> list[Scalar]:
        """Return what `compute` makes of the pair's kind."""
        different = list(dict.fromkeys(kinds))
        found, *others = map(compute, different)
        if others:
            kind = self.look([float(different.index(x)) for x in kinds])
            for k, other in enumerate(others, 1):
                found = choose(absolute(kind - float(k)) < 0.5, other, found)
        return found
