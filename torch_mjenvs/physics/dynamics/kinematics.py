"""Poses of bodies, joints and geoms. mj_kinematics (engine_core_smooth.c).

The results are MuJoCo's; the arithmetic differs in two ways:

- Rotations are passed down the tree as matrices. Each body has a `Frame` that is fixed to it and chosen so that the
  axis of its last hinge is a coordinate axis; the body's constants are turned into that frame while tracing. So a hinge
  costs one plane rotation, and successive hinges about parallel axes add their angles before the sine is taken.
- Positions are measured from the tree's own origin (`d.origin`), which is added last. So nothing loses precision far
  from the world's origin, and most later stages need no absolute position at all. What moves on a static body is a tree
  of its own. Static bodies are measured from their root, so the vectors between them are constant.

a axis   c cosine   k index of a coordinate axis   o offset   q position   s sine
"""

from __future__ import annotations

import dataclasses

from ...compiler.scalar import Scalar, cos, sin
from ..algebra.spatial import (
    IDENTITY,
    Vec,
    add,
    add_scaled,
    axis_angle,
    column,
    frame_mul,
    is_number,
    mat_mul,
    mat_vec,
    mix_columns,
    quat_mul,
    quat_normalize,
    quat_to_mat,
    rotate,
    scale,
    snap,
    sub,
    transpose,
    zeros,
)
from ..model.data import Data, stage
from ..model.enums import JointType
from ..model.model import Model


@dataclasses.dataclass(frozen=True)
class Frame:
    """A frame fixed to a body: a body's vector x is `mat (fixed x)`, its point x is at `base + mat (o + fixed x)`.

    mat: orientation. base: a point, from the tree's origin. fixed, offset (o): what does not depend on the state.
    unturned, axis, angle: where the last hinge's axis is a coordinate axis, mat = unturned R(axis, angle).
    """

    mat: list[Scalar]
    base: list[Scalar]
    fixed: Vec
    offset: Vec
    unturned: list[Scalar] | None = None
    axis: int = -1
    angle: Scalar = 0.0

    def direction(self, x: Vec) -> list[Scalar]:
        """Return the world coordinates of a constant vector of the body."""
        return mat_vec(self.mat, mat_vec(self.fixed, x))

    def point(self, x: Vec) -> list[Scalar]:
        """Return the position, from the tree's origin, of a constant point of the body."""
        return add(self.base, mat_vec(self.mat, add(self.offset, mat_vec(self.fixed, x))))

    def rotation(self, r: Vec) -> list[Scalar]:
        """Return the orientation in the world of something with the constant orientation r in the body."""
        return mat_mul(self.mat, frame_mul(self.fixed, r))


@stage(
    reads="qpos mocap_pos mocap_quat",
    computes="origin frame xpos xrel xquat xmat xipos xirel ximat xanchor xanchorrel xaxis "
    "geom_xpos geom_xrel geom_xmat site_xpos site_xrel site_xmat",
)
def kinematics(m: Model, d: Data) -> None:
    """Compute all poses from d.qpos, d.mocap_pos and d.mocap_quat. mj_kinematics."""
    _start(m, d)
    for i in range(1, m.nbody):
        _body(m, d, i)
    for i in range(m.nbody):
        _outputs(m, d, i)
    for g in range(m.ngeom):
        frame, origin = d.frame[m.geom_bodyid[g]], d.origin[m.body_originid[m.geom_bodyid[g]]]
        d.geom_xrel[g] = frame.point(m.geom_pos[g])
        d.geom_xpos[g] = add(origin, d.geom_xrel[g])
        d.geom_xmat[g] = frame.rotation(m.geom_mat[g])
    for s in range(m.nsite):
        frame, origin = d.frame[m.site_bodyid[s]], d.origin[m.body_originid[m.site_bodyid[s]]]
        d.site_xrel[s] = frame.point(m.site_pos[s])
        d.site_xpos[s] = add(origin, d.site_xrel[s])
        d.site_xmat[s] = frame.rotation(m.site_mat[s])


def _start(m: Model, d: Data) -> None:
    for name in ("frame", "origin", "xpos", "xrel", "xquat", "xmat", "xipos", "xirel", "ximat"):
        setattr(d, name, [None] * m.nbody)
    for name in ("xanchor", "xanchorrel", "xaxis"):
        setattr(d, name, [None] * m.njnt)
    for name in ("geom_xpos", "geom_xrel", "geom_xmat"):
        setattr(d, name, [None] * m.ngeom)
    for name in ("site_xpos", "site_xrel", "site_xmat"):
        setattr(d, name, [None] * m.nsite)
    d.frame[0] = Frame(list(IDENTITY), zeros(3), tuple(IDENTITY), (0.0, 0.0, 0.0))
    d.origin[0] = zeros(3)
    d.xquat[0] = [1.0, 0.0, 0.0, 0.0]


def _body(m: Model, d: Data, i: int) -> None:
    """Compute the frame of body i after its joints, and the positions that follow from it."""
    k = m.body_mocapid[i]
    if k >= 0 and d.mocap_pos is not None and d.mocap_quat is not None:  # a child of the world, without joints
        d.xquat[i] = list(d.mocap_quat[k])
        frame = Frame(quat_to_mat(d.mocap_quat[k]), list(d.mocap_pos[k]), tuple(IDENTITY), (0.0, 0.0, 0.0))
    else:
        parent = d.frame[m.body_parentid[i]]
        d.xquat[i] = quat_mul(d.xquat[m.body_parentid[i]], m.body_quat[i])
        offset = add(parent.offset, mat_vec(parent.fixed, m.body_pos[i]))
        frame = dataclasses.replace(parent, fixed=frame_mul(parent.fixed, m.body_mat[i]), offset=tuple(offset))
    for j in range(m.body_jntadr[i], m.body_jntadr[i] + m.body_jntnum[i]):
        frame = _joint(m, d, i, j, frame)
    d.xquat[i] = quat_normalize(d.xquat[i])
    if m.body_originid[i] == i:
        frame = _take_origin(m, d, i, frame)
    d.frame[i] = frame


def _joint(m: Model, d: Data, i: int, j: int, frame: Frame) -> Frame:
    """Return the frame after joint j, and set the joint's axis and anchor as they are before it."""
    q = d.qpos[m.jnt_qposadr[j] :]
    if m.jnt_type[j] == JointType.FREE:
        d.xaxis[j], d.xanchorrel[j], d.xquat[i] = list(m.jnt_axis[j]), list(q[:3]), list(q[3:7])
        return Frame(quat_to_mat(q[3:7]), list(q[:3]), tuple(IDENTITY), (0.0, 0.0, 0.0))
    d.xaxis[j] = frame.direction(m.jnt_axis[j])
    d.xanchorrel[j] = frame.point(m.jnt_pos[j])
    if m.jnt_type[j] == JointType.SLIDE:
        moved = add_scaled(frame.base, d.xaxis[j], q[0] - m.qpos0[m.jnt_qposadr[j]])
        return dataclasses.replace(frame, base=moved)
    if m.jnt_type[j] == JointType.BALL:
        d.xquat[i] = quat_mul(d.xquat[i], quat_normalize(q[:4]))
        mat = mat_mul(frame.rotation(tuple(IDENTITY)), quat_to_mat(q[:4]))
        return Frame(mat, d.xanchorrel[j], tuple(IDENTITY), tuple(scale(m.jnt_pos[j], -1.0)))
    angle = q[0] - m.qpos0[m.jnt_qposadr[j]]
    if not is_number(*m.jnt_axis[j], *frame.fixed):
        frame = _unfixed(frame)
    half = angle * 0.5
    d.xquat[i] = quat_mul(d.xquat[i], [cos(half), *scale(m.jnt_axis[j], sin(half))])
    if not is_number(*m.jnt_axis[j]):
        mat = mat_mul(frame.mat, axis_angle(m.jnt_axis[j], cos(angle), sin(angle)))
        return Frame(mat, d.xanchorrel[j], tuple(IDENTITY), tuple(scale(m.jnt_pos[j], -1.0)))
    frame, k, sign = _along_axis(frame, mat_vec(frame.fixed, m.jnt_axis[j]))
    d.xaxis[j] = scale(column(frame.mat, k), sign)
    return _turned(frame, k, angle if sign > 0 else -angle, d.xanchorrel[j], m.jnt_pos[j])


def _unfixed(frame: Frame) -> Frame:
    """Return the same pose in the body's own frame.

    It is for a body whose fixed parts or hinge's axis vary from world to world, so that no better frame is known
    beforehand.
    """
    return Frame(frame.rotation(tuple(IDENTITY)), frame.point((0.0, 0.0, 0.0)), tuple(IDENTITY), (0.0, 0.0, 0.0))


def _along_axis(frame: Frame, a: Vec) -> tuple[Frame, int, float]:
    """Return the same pose in a frame in which the axis a is a coordinate axis, with that axis's index and its sign.

    a is given in the present frame's coordinates.
    """
    a = list(snap(a))
    while sum(x != 0 for x in a) > 1:
        i, j = [k for k in range(3) if a[k] != 0][:2]
        length = (a[i] ** 2 + a[j] ** 2) ** 0.5
        c, s = a[i] / length, a[j] / length
        change = transpose(mix_columns(IDENTITY, i, j, c, s))
        frame = Frame(
            mix_columns(frame.mat, i, j, c, s),
            frame.base,
            frame_mul(change, frame.fixed),
            tuple(mat_vec(change, frame.offset)),
        )
        a[i], a[j] = length, 0.0
    k = max(range(3), key=lambda k: abs(float(a[k])))
    return frame, k, 1.0 if a[k] > 0 else -1.0


def _turned(frame: Frame, k: int, angle: Scalar, anchor: Vec, pos: Vec) -> Frame:
    """Return the frame turned about its k-th axis through the body's point `pos`, which is at `anchor`."""
    unturned = frame.mat
    if frame.axis == k and frame.unturned is not None:
        unturned, angle = frame.unturned, frame.angle + angle
    mat = rotate(unturned, k, cos(angle), sin(angle))
    offset = tuple(scale(mat_vec(frame.fixed, pos), -1.0))
    return Frame(mat, list(anchor), frame.fixed, offset, unturned, k, angle)


def _take_origin(m: Model, d: Data, i: int, frame: Frame) -> Frame:
    """Make the base of body i the origin of its tree; until then its parent's origin was used for it and its joints."""
    joints = range(m.body_jntadr[i], m.body_jntadr[i] + m.body_jntnum[i])
    if all(m.jnt_type[j] == JointType.SLIDE for j in joints):
        # nothing turns: the offset is as constant as the base's own part
        moved = add(frame.base, mat_vec(frame.mat, frame.offset))
        frame = dataclasses.replace(frame, base=moved, offset=(0.0, 0.0, 0.0))
    d.origin[i] = add(d.origin[m.body_originid[m.body_parentid[i]]], frame.base)
    for j in joints:
        d.xanchorrel[j] = sub(d.xanchorrel[j], frame.base)
    return dataclasses.replace(frame, base=zeros(3))


def _outputs(m: Model, d: Data, i: int) -> None:
    """Set the poses of body i and of its joints as MuJoCo gives them."""
    frame, origin = d.frame[i], d.origin[m.body_originid[i]]
    d.xrel[i] = frame.point((0.0, 0.0, 0.0))
    d.xpos[i] = add(origin, d.xrel[i])
    d.xmat[i] = frame.rotation(tuple(IDENTITY))
    d.xirel[i] = frame.point(m.body_ipos[i])
    d.xipos[i] = add(origin, d.xirel[i])
    d.ximat[i] = frame.rotation(m.body_imat[i])
    for j in range(m.body_jntadr[i], m.body_jntadr[i] + m.body_jntnum[i]):
        d.xanchor[j] = add(origin, d.xanchorrel[j])


def between(d: Data, a: int, b: int) -> list[Scalar]:
    """Return the vector from the origin of tree a to the origin of tree b."""
    return [0.0, 0.0, 0.0] if a == b else sub(d.origin[b], d.origin[a])
