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


def _computed(m: Model, pair: Pair) -> ContactParam:
    geom1, geom2, k = pair.geom1, pair.geom2, pair.ipair
    if k >= 0:
        return ContactParam(
            friction=[maximum(x, MINMU) for x in m.pair_friction[k]],
            solref=list(m.pair_solref[k]),
            solimp=list(m.pair_solimp[k]),
            direct=m.pair_direct[k],
            margin=m.pair_margin[k],
            gap=m.pair_gap[k],
            solreffriction=m.pair_solreffriction[k],
            adhesion=m.pair_adhesion[k],
        )
    friction: list[Scalar]
    solref: list[Scalar]
    solimp: list[Scalar]
    priority1, priority2 = m.geom_priority[geom1], m.geom_priority[geom2]
    if priority1 != priority2:
        g = geom1 if priority1 > priority2 else geom2
        friction, direct = list(m.geom_friction[g]), m.geom_direct[g]
        solref, solimp = list(m.geom_solref[g]), list(m.geom_solimp[g])
        adhesion = m.geom_adhesion[g]
    else:
        share = _share(m.geom_solmix[geom1], m.geom_solmix[geom2])
        ref1, ref2 = m.geom_solref[geom1], m.geom_solref[geom2]
        direct = m.geom_direct[geom1] or m.geom_direct[geom2]
        friction = [maximum(a, b) for a, b in zip(m.geom_friction[geom1], m.geom_friction[geom2], strict=True)]
        solref = [minimum(a, b) for a, b in zip(ref1, ref2, strict=True)] if direct else _mix(share, ref1, ref2)
        solimp = _mix(share, m.geom_solimp[geom1], m.geom_solimp[geom2])
        adhesion = m.geom_adhesion[geom1] + m.geom_adhesion[geom2]
    slide, spin, roll = (maximum(x, MINMU) for x in friction)
    return ContactParam(
        friction=[slide, slide, spin, roll, roll],
        solref=solref,
        solimp=solimp,
        direct=direct,
        margin=m.geom_margin[geom1] + m.geom_margin[geom2],
        gap=m.geom_gap[geom1] + m.geom_gap[geom2],
        adhesion=adhesion,
    )


def _share(solmix1: float, solmix2: float) -> float:
    """Return the weight of the first geom's solref and solimp."""
    if solmix1 < MINVAL or solmix2 < MINVAL:
        return 0.5 if solmix1 < MINVAL and solmix2 < MINVAL else float(solmix2 < MINVAL)
    return solmix1 / (solmix1 + solmix2)


def _mix(share: float, a: Sequence[Scalar], b: Sequence[Scalar]) -> list[Scalar]:
    return [share * x + (1 - share) * y for x, y in zip(a, b, strict=True)]
