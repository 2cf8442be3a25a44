"""Velocities of links, and Jacobians of points: MuJoCo's mj_objectVelocity, mj_jac, mj_jacBody, mj_jacSite.

    linear, angular = velocity(m, world.data, m.body("left_foot"))  # m/s and rad/s, in the world's axes
    jacp, jacr = jac_site(m, world.data, m.site("grip"))  # jacp times qvel is the velocity of the site

Jacobians are for tasks that control an arm by where its hand is.

They are lists of 3 rows with a number for each dof: `jacp` turns qvel into the velocity of the point, `jacr` into the
angular velocity of the body, in the world's axes. A force on the point is a force on the dofs by their columns.
`world.data.M` is the mass matrix, and `torch_mjenvs.vectors.solve` divides by it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import SupportsIndex

from .physics.algebra.spatial import add, cross, sub, zeros
from .physics.dynamics.velocity import at_point
from .physics.model.data import Data
from .physics.model.model import Model, dofs_of
from .physics.model.named import Element
from .scalar import Scalar

__all__ = ["jac", "jac_body", "jac_site", "velocity"]

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


def velocity(m: Model, data: Data, of: Element) -> tuple[list[Scalar], list[Scalar]]:
    """Return the linear and the angular velocity of a body's frame, a geom or a site, in world axes. mj_objectVelocity.

    Linear is that of the point where it is, m/s; angular in rad/s. `data` is `world.data`, and `of` an element, as in
    `m.body("left_foot")`. (`data.cvel` has the velocity of another point: the centre of mass of the whole tree.)

    Raises TypeError for what has no place, such as a joint.
    """
    k = of.id
    if of._kind == "body":
        body, place = k, data.xrel[k]
    elif of._kind == "geom":
        body, place = m.geom_bodyid[k], data.geom_xrel[k]
    elif of._kind == "site":
        body, place = m.site_bodyid[k], data.site_xrel[k]
    else:
        raise TypeError(f"bodies, geoms and sites have velocities, and {of!r} is none")
    moving = data.ovel[body]
    return at_point(moving, place), list(moving[:3])
