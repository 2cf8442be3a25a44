"""Transmissions of actuators that work on sites: wrenches, the pose of a site seen from another, slider-cranks."""

from __future__ import annotations

from ....compiler.scalar import Scalar, maximum, select, sqrt
from ...algebra.sparse import Row
from ...algebra.spatial import (
    MINVAL,
    Vec,
    add,
    add_scaled,
    column,
    cross,
    dot,
    is_zero,
    mat_vec,
    quat_mul,
    quat_sub,
    scale,
    sub,
)
from ...model.data import Data
from ...model.model import Model, dofs_of
from ..kinematics import between
from ..tendons.tendon import difference_row


def of_site(m: Model, d: Data, i: int) -> tuple[Scalar, Row]:
    """Return length, which is 0, and moment of a force and a torque in the site's axes.

    If the site has a reference site, they are those of `_of_pose`.
    """
    (site, reference), gear = m.actuator_trnid[i], m.actuator_gear[i]
    if reference >= 0:
        return _of_pose(m, d, site, reference, gear)
    force, torque = mat_vec(d.site_xmat[site], gear[:3]), mat_vec(d.site_xmat[site], gear[3:])
    wrench = add(torque, cross(d.site_xrel[site], force)) + force
    return 0.0, {v: dot(d.odof[v], wrench) for v in dofs_of(m, m.site_bodyid[site])}


def _of_pose(m: Model, d: Data, site: int, reference: int, gear: Vec) -> tuple[Scalar, Row]:
    """Return length and moment of a site's pose in the frame of a reference site.

    The length is the site's position and orientation (as a rotation vector) in that frame, times the gear.
    As in MuJoCo, rates leave out that the reference turns.
    """
    length: Scalar = 0.0
    row: Row = {}
    body, base = m.site_bodyid[site], m.site_bodyid[reference]
    if not all(map(is_zero, gear[:3])):
        along = mat_vec(d.site_xmat[reference], gear[:3])
        length = dot(_apart(m, d, reference, site), along)
        row = difference_row(m, d, (base, d.site_xrel[reference]), (body, d.site_xrel[site]), along)
    if not all(map(is_zero, gear[3:])):
        one, other = (quat_mul(d.xquat[m.site_bodyid[s]], m.site_quat[s]) for s in (site, reference))
        length = length + dot(quat_sub(one, other), gear[3:])
        about = mat_vec(d.site_xmat[reference], gear[3:])
        for these, others, sign in ((body, base, 1.0), (base, body, -1.0)):
            for v in dofs_of(m, these):
                if v not in dofs_of(m, others):
                    row[v] = row.get(v, 0.0) + sign * dot(d.odof[v][:3], about)
    return length, row


def of_crank(m: Model, d: Data, i: int) -> tuple[Scalar, Row]:
    """Return length and moment of a slider-crank, whose rod leads from the slider site's z axis to the crank site.

    The length is where on the axis the rod begins, a'r - sqrt(det).

    a axis   r from slider to crank   det = (a'r)² + rod² - r'r; where it is negative, the rod does not reach.
    """
    (crank, slider), gear, rod = m.actuator_trnid[i], m.actuator_gear[i][0], m.actuator_cranklength[i]
    axis, apart = column(d.site_xmat[slider], 2), _apart(m, d, slider, crank)
    along = dot(axis, apart)
    det = along * along + rod * rod - dot(apart, apart)
    reaches = det > 0.0
    root = sqrt(select(reaches, maximum(det, MINVAL), 1.0))
    share = select(reaches, 1.0 - along / root, 1.0)
    by_apart = add_scaled(scale(axis, share), apart, select(reaches, 1.0 / root, 0.0))  # derivatives of the length
    by_axis = scale(apart, share)
    body, other = m.site_bodyid[slider], m.site_bodyid[crank]
    row = difference_row(m, d, (body, d.site_xrel[slider]), (other, d.site_xrel[crank]), by_apart)
    turning = cross(axis, by_axis)
    for v in dofs_of(m, body):
        if v not in dofs_of(m, other):
            row[v] = row[v] + dot(d.odof[v][:3], turning)
    length = along - select(reaches, root, 0.0)
    return length * gear, {v: entry * gear for v, entry in row.items()}


def _apart(m: Model, d: Data, one: int, other: int) -> list[Scalar]:
    """Return the vector from one site to another, in world axes."""
    origins = (m.body_originid[m.site_bodyid[s]] for s in (one, other))
    return sub(add(d.site_xrel[other], between(d, *origins)), d.site_xrel[one])
