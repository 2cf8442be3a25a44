"""The inverse inertia of a geom's surface, where MuJoCo's body_invweight0 is that of the centre of mass.

A centre of mass may lie where nothing can move it, as on the axis of a hinge, while the surface still moves.
"""

from __future__ import annotations

import weakref

from ...compiler.scalar import Scalar
from ..algebra.spatial import Vec, add, cross, dot, mat_vec, zeros
from ..collision.shapes import SHAPES
from ..dynamics.inertia import AnyFactor, solve
from ..dynamics.set_const import at_qpos0
from ..model.data import Data
from ..model.model import Floats, Model

_kept: weakref.WeakKeyDictionary[Model, Floats] = weakref.WeakKeyDictionary()  # for as long as the model lives


def geom_invweight0(m: Model) -> Floats:
    """Return for each geom the mean of J M^-1 J' at qpos0, over points that stand for its surface and over directions.

    It is 0 for a geom that touches nothing or that nothing moves, and for a plane, which has no such points.
    """
    kept = _kept.get(m)
    if kept is None:
        kept = _kept[m] = _geom_invweight0(m)
    return kept


def _geom_invweight0(m: Model) -> Floats:
    touching = {g for pair in m.pairs for g in (pair.geom1, pair.geom2) if m.body_weldid[m.geom_bodyid[g]]}
    surfaces = {geom: surface(m.geom_size[geom]) for geom in touching if (surface := SHAPES[m.geom_type[geom]].surface)}
    if not surfaces:
        return (0.0,) * m.ngeom
    d, inverse = at_qpos0(m)
    return tuple(_mean(m, d, inverse, geom, surfaces[geom]) if geom in surfaces else 0.0 for geom in range(m.ngeom))


def _mean(m: Model, d: Data, inverse: AnyFactor, geom: int, surface: list[list[Scalar]]) -> float:
    points = [add(d.geom_xrel[geom], mat_vec(d.geom_xmat[geom], p)) for p in surface]
    rows = [row for p in points for row in _jacobian(m, d, m.geom_bodyid[geom], p)]
    return sum(float(dot(row, solve(inverse, row))) for row in rows) / len(rows)


def _jacobian(m: Model, d: Data, body: int, r: Vec) -> list[list[Scalar]]:
    """Return the Jacobian (3 x nv) of a body's point r, as seen from its tree's origin: mj_jac."""
    out = [zeros(m.nv) for _ in range(3)]
    while body:
        for v in range(m.body_dofadr[body], m.body_dofadr[body] + m.body_dofnum[body]):
            if m.dof_clamped[v]:  # without inertia of its own
                continue
            motion = add(d.odof[v][3:], cross(d.odof[v][:3], r))
            for row, x in zip(out, motion, strict=True):
                row[v] = x
        body = m.body_parentid[body]
    return out
