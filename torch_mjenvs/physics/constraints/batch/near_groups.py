"""Which pairs of a moving geom and one that stands still are in lists of near ones: see `near_pairs`."""

from __future__ import annotations

from collections.abc import Sequence

from ...model.enums import GeomType
from ...model.model import Model, Pair

FEWEST = 32  # still geoms for which lists of near ones are worth while


def near_groups(m: Model, pairs: Sequence[Pair]) -> tuple[list[list[Pair]], list[Pair]]:
    """Divide a batch into groups for lists of near pairs, and the rest."""
    if m.nominal is not None or m.noslip_iterations or m.orders_contacts:
        return [], list(pairs)
    of_mover: dict[tuple[int, int], list[Pair]] = {}
    still = {g: stands_still(m, g) for p in pairs for g in (p.geom1, p.geom2)}
    for p in pairs:
        sides = [side for side, g in enumerate((p.geom1, p.geom2)) if still[g]]
        if p.ipair < 0 and sides:
            of_mover.setdefault((sides[0], ends(p, sides[0])[0]), []).append(p)
    alike: dict[tuple[int, ...], list[Pair]] = {}
    for (side, _), some in of_mover.items():
        alike.setdefault((side, *sorted(ends(p, side)[1] for p in some)), []).extend(some)
    found = [some for (_, *around), some in alike.items() if len(around) >= FEWEST]
    listed = {id(p) for some in found for p in some}
    return found, [p for p in pairs if id(p) not in listed]


def ends(pair: Pair, side: int) -> tuple[int, int]:
    """Return a pair's moving geom and its still one, which is on this side."""
    return (pair.geom2, pair.geom1) if side == 0 else (pair.geom1, pair.geom2)


def stands_still(m: Model, geom: int) -> bool:
    """Return whether a geom has an end, and nothing moves it."""
    body = m.geom_bodyid[geom]
    if m.geom_type[geom] in (GeomType.PLANE, GeomType.HFIELD) or m.body_weldid[body]:
        return False
    while body and m.body_mocapid[body] < 0:
        body = m.body_parentid[body]
    return not body
