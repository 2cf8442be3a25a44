"""Moments of actuators that pull a body to what it touches: the mjTRN_BODY of mj_transmission."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...compiler.scalar import Scalar, maximum
from ..algebra.sparse import Row
from ..algebra.spatial import add_scaled, cross, dot, scale, zeros
from ..model.data import Data, stage
from ..model.enums import TrnType
from ..model.model import Model, Pair, bodies_of, dofs_of, moving_body
from .idle import fold_idle
from .listed import Listed


@stage(reads="origin frame geom_xrel geom_xmat odof constraints candidates", computes="contact_moment")
def contact_moment(m: Model, d: Data) -> None:
    """Compute d.contact_moment: for each body that an actuator makes stick to others, the moment of its pull."""
    targets = zip(m.actuator_trntype, m.actuator_trnid, strict=True)
    bodies = {target for kind, (target, _) in targets if kind == TrnType.BODY}
    d.contact_moment = {body: _moment(m, d, body) for body in sorted(bodies)}


def _moment(m: Model, d: Data, body: int) -> Row:
    """Compute for each dof how fast it closes a body's contacts: the mean over these, including those in the gap."""

    def touches(pair: Pair) -> bool:
        return body in bodies_of(m, pair)

    def is_moved(side: int, other: int) -> Callable[[Pair], float]:
        return lambda pair: float(moving_body(m, bodies_of(m, pair)[side]) == other)

    moved = sorted({moving_body(m, b) for pair in m.pairs if touches(pair) for b in bodies_of(m, pair)} - {0})

    def add_pull(c: Listed, carry: list[Any]) -> list[Any]:
        count, pulls = carry
        normal, out = c.frame[0], []
        lines = [cross(point, normal) + normal for point in c.points]  # it points from the first body to the second
        for other, pull in zip(moved, pulls, strict=True):
            for side, sign in ((0, 1.0), (1, -1.0)):
                pull = add_scaled(pull, lines[side], c.of_pair(is_moved(side, other)) * sign)
            out.append(pull)
        return [count + 1.0, out]

    carry: list[Any] = [0.0, [zeros(6) for _ in moved]]
    for constraint in d.constraints:
        carry = constraint.fold_listed(m, d, zeros(m.nv), touches, {}, add_pull, carry)
    for candidate in d.candidates:
        if touches(candidate.pair):
            carry = fold_idle(m, candidate, {}, add_pull, carry)
    count, pulls = carry
    row: Row = {}
    for other, pull in zip(moved, pulls, strict=True):
        mean = scale(pull, 1.0 / maximum(count, 1.0))
        for v in dofs_of(m, other):
            entry: Scalar = row.get(v, 0.0)
            row[v] = entry + dot(d.odof[v], mean)
    return row
