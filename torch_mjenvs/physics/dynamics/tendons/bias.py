"""Forces from the armature of tendons. mj_tendonDot, mj_tendonBias.

A tendon of length L and armature m has the energy 1/2 m (dL/dt)**2. With dL/dt = J qvel its inertia is m J'J (see
`crb`), and since J changes with positions there is a force besides, m J' (dJ/dt qvel). Of a fixed tendon J is constant.
"""

from __future__ import annotations

from ....compiler.scalar import Scalar, maximum, select
from ...algebra.sparse import row_times
from ...algebra.spatial import MINVAL, Vec, add, cross, dot, norm, normalize, scale, sub, zeros
from ...model.data import Data, stage
from ...model.model import Model
from ..kinematics import between
from ..reflected import tendon_armature
from ..velocity import at_point, unforced_acceleration
from .tendon import site_place, straight_parts, tendons_with_armature


@stage(reads="qvel origin frame odof ovel bias_acc", computes="ten_bias")
def tendon_bias(m: Model, d: Data) -> None:
    """Compute d.ten_bias = dJ/dt qvel: the acceleration of each length while no dof accelerates. mj_tendonDot."""
    d.ten_bias = [0.0] * m.ntendon
    if not tendons_with_armature(m):
        return
    bias = unforced_acceleration(m, d)
    for t in tendons_with_armature(m):
        for share, one, two in straight_parts(m, t):
            if m.site_bodyid[one] != m.site_bodyid[two]:
                d.ten_bias[t] = d.ten_bias[t] + _bias(m, d, bias, one, two) * share


def _bias(m: Model, d: Data, bias: list[list[Scalar]], site1: int, site2: int) -> Scalar:
    """Return the acceleration of the distance of two sites while no dof accelerates.

    It has two parts: how their accelerations differ along the line between them, and how fast that line turns.
    """
    (body1, p1), (body2, p2) = (site_place(m, d, site) for site in (site1, site2))
    apart = sub(add(p2, between(d, m.body_originid[body1], m.body_originid[body2])), p1)
    along, length = normalize(apart, [1.0, 0.0, 0.0]), norm(apart)
    (speed1, acc1), (speed2, acc2) = (_moving(d, bias, *x) for x in ((body1, p1), (body2, p2)))
    speed = sub(speed2, speed1)
    away = dot(along, speed)
    across = dot(speed, speed) - away * away
    turning = select(length > MINVAL, across / maximum(length, MINVAL), 0.0)
    return dot(along, sub(acc2, acc1)) + turning


def _moving(d: Data, bias: list[list[Scalar]], body: int, p: Vec) -> tuple[list[Scalar], list[Scalar]]:
    """Return velocity and acceleration of the point p of a body."""
    speed = at_point(d.ovel[body], p)
    return speed, add(at_point(bias[body], p), cross(d.ovel[body][:3], speed))


def armature_force(m: Model, d: Data, t: int, qacc: Vec) -> Scalar:
    """Return the force along tendon t by which its armature resists the acceleration of its length."""
    return -(tendon_armature(m, t) * (row_times(d.ten_J[t], qacc) + d.ten_bias[t]))


def armature_wrenches(m: Model, d: Data, qacc: Vec) -> dict[int, list[Scalar]]:
    """Return the forces of all tendons' armature as (torque, force) by body."""
    out: dict[int, list[Scalar]] = {}
    for t in tendons_with_armature(m):
        for body, pull in d.ten_wrench[t].items():
            out[body] = add(out.get(body, zeros(6)), scale(pull, armature_force(m, d, t, qacc)))
    return out
