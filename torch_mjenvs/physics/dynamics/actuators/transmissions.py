"""The kinds of transmission, by which actuators pull at something: all that is known of each, in `TRANSMISSIONS`.

Keys are mjtTrn. Others are refused by name. `driven` says which of them drive joints and tendons.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ....compiler.scalar import Scalar
from ...algebra.sparse import Row
from ...algebra.spatial import Vec, dot, mat_vec, quat_normalize, quat_sub, quat_to_mat, transpose
from ...model.data import Data
from ...model.enums import JointType, TrnType
from ...model.model import Model
from .site_transmission import of_crank, of_site


@dataclass(frozen=True)
class Angle:
    """A length that is an angle about an axis in space, provided that the gears of all else that it measures are 0.

    gear: length for each radian about the three axes. others: the gears of all else that it measures.
    """

    gear: Vec
    others: Vec = ()


@dataclass(frozen=True)
class Transmission:
    """A kind of transmission.

    measure: length and moment of actuator i, from the model, the positions in `Data`, and i.
    angle: how the length of actuator i may be an angle, from the model and i; None if it never is.
    """

    measure: Callable[[Model, Data, int], tuple[Scalar, Row]]
    angle: Callable[[Model, int], Angle | None] = lambda m, i: None


def _of_joint(m: Model, d: Data, i: int) -> tuple[Scalar, Row]:
    return _joint(m, d, i, in_parent=False)


def _of_joint_in_parent(m: Model, d: Data, i: int) -> tuple[Scalar, Row]:
    return _joint(m, d, i, in_parent=True)


def _joint(m: Model, d: Data, i: int, in_parent: bool) -> tuple[Scalar, Row]:
    j = m.actuator_trnid[i][0]
    gear: Vec = m.actuator_gear[i]
    v, q, kind = m.jnt_dofadr[j], d.qpos[m.jnt_qposadr[j] :], m.jnt_type[j]
    if kind not in (JointType.BALL, JointType.FREE):
        return q[0] * gear[0], {v: gear[0]}
    quat, turning = (q[3:7], gear[3:6]) if kind == JointType.FREE else (q[:4], gear[:3])
    if in_parent:
        turning = mat_vec(transpose(quat_to_mat(quat)), turning)
    if kind == JointType.FREE:
        return 0.0, dict(enumerate([*gear[:3], *turning], start=v))
    angle = quat_sub(quat_normalize(quat), (1.0, 0.0, 0.0, 0.0))
    return dot(angle, turning), dict(enumerate(turning, start=v))


def _joint_angle(m: Model, i: int) -> Angle | None:
    return Angle(m.actuator_gear[i][:3]) if m.jnt_type[m.actuator_trnid[i][0]] == JointType.BALL else None


def _of_tendon(m: Model, d: Data, i: int) -> tuple[Scalar, Row]:
    t, gear = m.actuator_trnid[i][0], m.actuator_gear[i][0]
    return d.ten_length[t] * gear, {v: entry * gear for v, entry in d.ten_J[t].items()}


def _site_angle(m: Model, i: int) -> Angle | None:
    gear, reference = m.actuator_gear[i], m.actuator_trnid[i][1]
    return Angle(gear[3:], others=gear[:3]) if reference >= 0 else None


def _of_body(m: Model, d: Data, i: int) -> tuple[Scalar, Row]:
    """Return length, which is 0, and moment of a pull at the contacts of a body, shared among them. It has no gear."""
    return 0.0, d.contact_moment[m.actuator_trnid[i][0]]


TRANSMISSIONS: dict[int, Transmission] = {
    TrnType.JOINT: Transmission(_of_joint, _joint_angle),
    TrnType.JOINTINPARENT: Transmission(_of_joint_in_parent, _joint_angle),
    TrnType.TENDON: Transmission(_of_tendon),
    TrnType.SITE: Transmission(of_site, _site_angle),
    TrnType.SLIDERCRANK: Transmission(of_crank),
    TrnType.BODY: Transmission(_of_body),
}
