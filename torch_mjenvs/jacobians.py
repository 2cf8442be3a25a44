"""Jacobians of points, for tasks that control an arm by where its hand is: MuJoCo's mj_jac, mj_jacBody, mj_jacSite.

    jacp, jacr = jac_site(m, world.data, m.site("grip"))
    velocity = [dot(row, world.qvel) for row in jacp]  # of the site, m/s

Both are lists of 3 rows with a number for each dof: `jacp` turns qvel into the velocity of the point, `jacr` into the
angular velocity of the body, in the world's axes. A force on the point is a force on the dofs by their columns.
`world.data.M` is the mass matrix, and `torch_mjenvs.vectors.solve` divides by it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import SupportsIndex

from .physics.algebra.spatial import add, cross, sub, zeros
from .physics.model.data import Data
from .physics.model.model import Model, dofs_of
from .scalar import Scalar

__all__ = ["jac", "jac_body", "jac_site"]

Rows = list[list[Scalar]]


def jac(m: Model, data: Data, point: Sequence[Scalar], body: SupportsIndex) -> tuple[Rows, Rows]:
    """Return the Jacobians (3, nv) of a point in the world that moves with a body: jacp and jacr. mj_jac.

    `data` is `world.data`, and `body` an element, as in `m.body("hand")`, or its number.
    """
    b = body.__index__()
    offset = sub(point, data.origin[m.body_originid[b]])
    jacp, jacr = ([zeros(m.nv) for _ in range(3)] for _ in range(2))
    for v in dofs_of(m, b):
        axis, speed = data.odof[v][:3], data.odof[v][3:]
        moved = add(speed, cross(axis, offset))
        for k in range(3):
            jacp[k][v], jacr[k][v] = moved[k], axis[k]
    return jacp, jacr


def jac_body(m: Model, data: Data, body: SupportsIndex) -> tuple[Rows, Rows]:
    """Return the Jacobians (3, nv) of a body's frame: jacp and jacr. mj_jacBody."""
    return jac(m, data, data.xpos[body.__index__()], body)


def jac_site(m: Model, data: Data, site: SupportsIndex) -> tuple[Rows, Rows]:
    """Return the Jacobians (3, nv) of a site, `m.site("grip")` or its number: jacp and jacr. mj_jacSite."""
    s = site.__index__()
    return jac(m, data, data.site_xpos[s], m.site_bodyid[s])
