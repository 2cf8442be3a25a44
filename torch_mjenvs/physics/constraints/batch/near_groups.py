"""Which pairs of a moving geom and one that stands still each world looks up: see `near_pairs`."""

from __future__ import annotations

from ...algebra.spatial import is_number
from ...model.enums import GeomType
from ...model.model import Model, Pair

FEWEST = 32  # still geoms for which lists of near ones are worth while


class NearPairs(list[Pair]):
    """The pairs of some moving geoms with all of the same still geoms: a `NearBatch` is made of them."""


def near_groups(m: Model, pairs: list[Pair]) -> list[list[Pair]]:
    """Divide a batch into `NearPairs`, and a list of the rest. m: a world's own model, in which places may vary."""
    if m.noslip_iterations or m.orders_contacts:
        return [pairs]
    of_mover: dict[tuple[int, int], list[Pair]] = {}
    geoms = {g for p in pairs for g in (p.geom1, p.geom2)}
    still = {g for g in geoms if stands_still(m, g)}
    sized = {g for g in geoms if is_number(*m.geom_size[g], m.geom_margin[g], m.geom_gap[g])}
    for p in pairs:
        sides = [side for side, g in enumerate((p.geom1, p.geom2)) if g in still]
        if p.ipair < 0 and sides and sized.issuperset((p.geom1, p.geom2)):
            of_mover.setdefault((sides[0], ends(p, sides[0])[0]), []).append(p)
    alike: dict[tuple[int, ...], list[Pair]] = {}
    for (side, _), some in of_mover.items():
        alike.setdefault((side, *sorted(ends(p, side)[1] for p in some)), []).extend(some)
    near = [NearPairs(some) for (_, *around), some in alike.items() if len(around) >= FEWEST]
    listed = {id(p) for some in near for p in some}
    rest = [p for p in pairs if id(p) not in listed]
    return [*near, rest] if rest else [*near]


def ends(pair: Pair, side: int) -> tuple[int, int]:
    """Return a pair's moving geom and its still one, which is on this side."""
    return (pair.geom2, pair.geom1) if side == 0 else (pair.geom1, pair.geom2)


def stands_still(m: Model, geom: int) -> bool:
    """Return whether a geom is of finite size, and in the same place in all worlds at all times."""
    body = m.geom_bodyid[geom]
    if m.geom_type[geom] in (GeomType.PLANE, GeomType.HFIELD) or m.body_weldid[body]:
        return False
    pose = [*m.geom_pos[geom], *m.geom_mat[geom]]
    while body and m.body_mocapid[body] < 0:
        pose += [*m.body_pos[body], *m.body_mat[body]]
        body = m.body_parentid[body]
    return not body and is_number(*pose)
