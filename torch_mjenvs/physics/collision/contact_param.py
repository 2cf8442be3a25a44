"""The parameters of a pair's contacts: its own, or a mix of its geoms'. mj_contactParam."""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple

from ...compiler.scalar import Scalar, maximum, minimum
from ..algebra.spatial import MINVAL
from ..model.model import Model, Pair

MINMU = 1e-5  # mjMINMU


@dataclasses.dataclass(frozen=True)
class ContactParam:
    """Parameters of a pair's contacts. A contact acts where dist < margin, metres; the gap widens detection alone.

    friction: tangent 1 and 2, spin, roll 1 and 2. solref, solimp: as MuJoCo's, not yet made safe.

    solreffriction: what an elliptic cone uses in place of solref along the axes of friction; (0, 0) means solref.

    adhesion: the force with which each contact pulls, also in the gap, N.

    direct: solref is (-stiffness, -damping) instead of (time constant, damping ratio).
    """

    friction: list[Scalar]
    solref: list[Scalar]
    solimp: list[Scalar]
    direct: bool
    margin: Scalar
    gap: Scalar
    solreffriction: tuple[float, ...] = (0.0, 0.0)
    adhesion: float = 0.0


def contact_param(m: Model, pair: Pair) -> ContactParam:
    """Return the parameters of a pair's contacts: mj_contactParam.

    A <contact><pair> says all of them. Otherwise the geom of higher priority decides; if priorities are equal, friction
    is the greater one, and the rest is mixed.
    """
    if pair.ipair >= 0 or not m.constant:
        return _computed(m, pair)
    kept = _kept.get(m)
    if kept is None:
        kept = _kept[m] = _Kept(_kinds(m), {})
    kinds = kept.of_geom[pair.geom1], kept.of_geom[pair.geom2]
    if kinds not in kept.params:
        kept.params[kinds] = _computed(m, pair)
    return kept.params[kinds]


class _Kept(NamedTuple):
    """What is known of a model: each geom's kind, and the parameters of pairs by kinds. There may be many pairs."""

    of_geom: list[int]
    params: dict[tuple[int, int], ContactParam]


_kept: weakref.WeakKeyDictionary[Model, _Kept] = weakref.WeakKeyDictionary()  # for as long as the model lives


def _kinds(m: Model) -> list[int]:
    """Return a number for each geom: geoms whose contacts have the same parameters have the same one."""
    fields = (
        m.geom_priority, m.geom_friction, m.geom_solref, m.geom_direct, m.geom_solimp, m.geom_solmix, m.geom_margin,
        m.geom_gap, m.geom_adhesion,
    )  # fmt: skip
    known: dict[tuple[Any, ...], int] = {}
    return [known.setdefault(of_geom, len(known)) for of_geom in zip(*fields, strict=True)]


@dataclasses.dataclass(frozen=True)
class Source:
    """Whose friction, solref and solimp are mixed: a geom's or a <pair>'s, a row of fields `geom_...` or `pair_...`."""

    kind: str
    index: int

    def row(self, m: Model, name: str) -> Any:
        """Return its row of a field, which is named without the prefix."""
        return getattr(m, f"{self.kind}_{name}")[self.index]

    def friction(self, m: Model) -> Sequence[Scalar]:
        """Return its friction: tangent 1 and 2, spin, roll 1 and 2."""
        row: Sequence[Scalar] = self.row(m, "friction")
        return row if self.kind == "pair" else [row[k] for k in (0, 0, 1, 2, 2)]


class Mixing(NamedTuple):
    """How a pair's contacts get their friction, solref and solimp.

    sources: of what; if one decides alone, it is there twice. share: the weight of the first one's solref and solimp.
    direct: see `ContactParam`.
    """

    sources: tuple[Source, Source]
    share: float
    direct: bool


def mixing_of(m: Model, pair: Pair) -> Mixing:
    """Return how a pair's contacts get their parameters: see `contact_param`."""
    if pair.ipair >= 0:
        own = Source("pair", pair.ipair)
        return Mixing((own, own), 1.0, m.pair_direct[pair.ipair])
    one, two = pair.geom1, pair.geom2
    priority1, priority2 = m.geom_priority[one], m.geom_priority[two]
    if priority1 != priority2:
        one = two = one if priority1 > priority2 else two
    share = 1.0 if one == two else _share(m.geom_solmix[one], m.geom_solmix[two])
    return Mixing((Source("geom", one), Source("geom", two)), share, m.geom_direct[one] or m.geom_direct[two])


def mixed_friction(one: Sequence[Scalar], two: Sequence[Scalar]) -> list[Scalar]:
    """Return the friction that two sources make."""
    return [maximum(maximum(a, b), MINMU) for a, b in zip(one, two, strict=True)]


def mixed_solref(direct: bool, share: Scalar, one: Sequence[Scalar], two: Sequence[Scalar]) -> list[Scalar]:
    """Return the solref that two sources make."""
    return [minimum(a, b) for a, b in zip(one, two, strict=True)] if direct else mixed(share, one, two)


def mixed(share: Scalar, one: Sequence[Scalar], two: Sequence[Scalar]) -> list[Scalar]:
    """Return the solimp that two sources make. share: the weight of the first."""
    return [share * x + (1 - share) * y for x, y in zip(one, two, strict=True)]


def _computed(m: Model, pair: Pair) -> ContactParam:
    geom1, geom2, k = pair.geom1, pair.geom2, pair.ipair
    (one, two), share, direct = mixing_of(m, pair)
    common: dict[str, Any] = {
        "friction": mixed_friction(one.friction(m), two.friction(m)),
        "solref": mixed_solref(direct, share, one.row(m, "solref"), two.row(m, "solref")),
        "solimp": mixed(share, one.row(m, "solimp"), two.row(m, "solimp")),
        "direct": direct,
    }
    if k >= 0:
        return ContactParam(
            **common,
            margin=m.pair_margin[k],
            gap=m.pair_gap[k],
            solreffriction=m.pair_solreffriction[k],
            adhesion=m.pair_adhesion[k],
        )
    return ContactParam(
        **common,
        margin=m.geom_margin[geom1] + m.geom_margin[geom2],
        gap=m.geom_gap[geom1] + m.geom_gap[geom2],
        adhesion=sum((m.geom_adhesion[source.index] for source in dict.fromkeys((one, two))), 0.0),
    )


def _share(solmix1: float, solmix2: float) -> float:
    """Return the weight of the first geom's solref and solimp."""
    if solmix1 < MINVAL or solmix2 < MINVAL:
        return 0.5 if solmix1 < MINVAL and solmix2 < MINVAL else float(solmix2 < MINVAL)
    return solmix1 / (solmix1 + solmix2)
