"""Cameras: their positions and orientations, and the rays of their pixels. mj_camlight, mjv_updateCamera.

In a camera's axes x is to the right, y is up, and it looks along -z. A pixel's ray is (x, y, -1): the point at a depth
is that many times the ray.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TypeGuard

import mujoco

from ..compiler.scalar import Scalar
from ..physics.algebra.spatial import Vec, add, cross, normalize, rotation, sub, transpose
from ..physics.model.data import Data
from ..physics.model.model import Model

FREE, TRACKING, FIXED = (int(x) for x in (
    mujoco.mjtCamera.mjCAMERA_FREE, mujoco.mjtCamera.mjCAMERA_TRACKING, mujoco.mjtCamera.mjCAMERA_FIXED
))  # fmt: skip
_MODES = mujoco.mjtCamLight


@dataclass(frozen=True)
class Camera:
    """A camera of the model, or a free or tracking one.

    Nothing nearer than `near` or farther than `far` is drawn, metres. The picture goes from `bottom` to `top`, and from
    `centre` - `width` to `centre` + `width`, in tangents; where `width` is 0 it follows from the picture's shape.
    """

    kind: int
    near: float
    far: float
    bottom: float
    top: float
    centre: float
    width: float
    fixed: int = -1  # which camera of the model
    target: int = -1  # the body that it turns to
    tracked: int = -1  # the body that a tracking camera follows
    place: Vec = (0.0, 0.0, 0.0)  # of one that is not the model's; of a tracking one, from that body's subtree_com
    axes: Vec = ()  # of one that is not the model's: a matrix whose columns are its axes

    def ray(self, column: float, row: float, width: int, height: int) -> tuple[float, float]:
        """Return x and y of the ray through a point of the picture, in pixels from its upper left corner."""
        half = self.width or 0.5 * (self.top - self.bottom) * width / height
        x = self.centre + (2.0 * column / width - 1.0) * half
        return x, self.top - (self.top - self.bottom) * row / height

    def step(self, width: int, height: int) -> tuple[float, float]:
        """Return how x and y of a ray change from a pixel to the next one."""
        corner, right, below = (self.ray(i, j, width, height) for i, j in ((0, 0), (1, 0), (0, 1)))
        return right[0] - corner[0], below[1] - corner[1]

    def rays(self, width: int, height: int) -> list[tuple[float, float]]:
        """Return the rays through the middles of all pixels, row by row from the top."""
        return [self.ray(i + 0.5, j + 0.5, width, height) for j in range(height) for i in range(width)]


def which(camera: int | str | mujoco.MjvCamera) -> tuple[object, ...]:
    """Return what distinguishes a camera from others, wherever an MjvCamera is."""
    if not isinstance(camera, mujoco.MjvCamera):
        return (camera,)
    return id(camera), camera.type, camera.fixedcamid, camera.trackbodyid, camera.orthographic


def is_free(camera: int | str | mujoco.MjvCamera) -> TypeGuard[mujoco.MjvCamera]:
    """Return whether a camera is an MjvCamera that is free or tracks a body: its own numbers say where it is."""
    return isinstance(camera, mujoco.MjvCamera) and camera.type != FIXED


def camera_of(mjm: mujoco.MjModel, camera: int | str | mujoco.MjvCamera) -> mujoco.MjvCamera:
    """Return a camera as MuJoCo's renderer takes it: -1 is the free camera that looks at the whole model.

    Raises ValueError for one that does not exist, and TypeError for anything else, such as a list of several.
    """
    if isinstance(camera, mujoco.MjvCamera):
        return camera
    made = mujoco.MjvCamera()
    if isinstance(camera, str):
        number = mujoco.mj_name2id(mjm, mujoco.mjtObj.mjOBJ_CAMERA, camera)
        if number < 0:
            known = ", ".join(repr(mjm.camera(i).name) for i in range(mjm.ncam)) or "none"
            raise ValueError(f"the model has no camera {camera!r}; it has {known}")
        camera = number
    if not hasattr(camera, "__index__"):
        raise TypeError(
            f"a camera is a number, a name or an mujoco.MjvCamera, not {camera!r}: draw several one after the "
            "other, or in an environment by pixels=dict(views=[...])"
        )
    if not -1 <= camera < mjm.ncam:
        raise ValueError(f"the model has no camera {camera}: it has {mjm.ncam}, and -1 is the free camera")
    if camera < 0:
        mujoco.mjv_defaultFreeCamera(mjm, made)
    else:
        made.type, made.fixedcamid = mujoco.mjtCamera.mjCAMERA_FIXED, camera
    return made


def read(mjm: mujoco.MjModel, made: mujoco.MjvCamera, seen: mujoco.MjvGLCamera) -> Camera:
    """Return the record of a camera and of the frustum that MuJoCo gives it. Raises ValueError for other kinds."""
    if seen.orthographic:
        raise ValueError("orthographic cameras are not drawn: give it a perspective projection")
    near, kind = float(seen.frustum_near), int(made.type)
    bottom, top, centre, width = (
        float(x) / near for x in (seen.frustum_bottom, seen.frustum_top, seen.frustum_center, seen.frustum_width)
    )
    camera = Camera(kind, near, float(seen.frustum_far), bottom, top, centre, width)
    if kind == FIXED:
        k = int(made.fixedcamid)
        return replace(camera, fixed=k, target=int(mjm.cam_targetbodyid[k]))
    if kind not in (FREE, TRACKING):
        raise ValueError(f"an MjvCamera of type {kind} is not drawn: it is free, tracking or fixed")
    if kind == TRACKING and not 0 <= made.trackbodyid < mjm.nbody:
        raise ValueError(f"the model has no body {made.trackbodyid} for a tracking camera")
    place, axes = pose_of(made)
    return replace(camera, tracked=int(made.trackbodyid), place=tuple(place), axes=tuple(axes))


def pose_of(made: mujoco.MjvCamera) -> tuple[list[float], list[float]]:
    """Return `place` and `axes` of a free or tracking camera, as `Camera` has them."""
    turn, tilt = math.radians(made.azimuth), math.radians(made.elevation)
    ahead = [math.cos(tilt) * math.cos(turn), math.cos(tilt) * math.sin(turn), math.sin(tilt)]
    up = [-math.sin(tilt) * math.cos(turn), -math.sin(tilt) * math.sin(turn), math.cos(tilt)]
    right = [math.sin(turn), -math.cos(turn), 0.0]
    lookat = made.lookat if made.type == FREE else (0.0, 0.0, 0.0)
    place = [float(x - made.distance * y) for x, y in zip(lookat, ahead, strict=True)]
    return place, [x for row in zip(right, up, ahead, strict=True) for x in (row[0], row[1], -row[2])]


def pose(m: Model, d: Data, camera: Camera) -> tuple[Vec, Vec]:
    """Return a camera's position in the world and its orientation, a matrix whose columns are its axes."""
    if camera.kind == FIXED:
        return _of_model(m, d, camera.fixed, camera.target)
    if camera.kind == TRACKING:
        return add(d.subtree_com[camera.tracked], camera.place), camera.axes
    return camera.place, camera.axes


def _of_model(m: Model, d: Data, k: int, target: int) -> tuple[Vec, Vec]:
    mode, body = m.cam_mode[k], m.cam_bodyid[k]
    if mode in (_MODES.mjCAMLIGHT_TRACK, _MODES.mjCAMLIGHT_TRACKCOM):  # placed relative to the body as at qpos0
        start = Data(m, qpos=list(m.qpos0))
        pos, mat = _on_body(m, start, k)
        now, before = (x.xpos[body] if mode == _MODES.mjCAMLIGHT_TRACK else x.subtree_com[body] for x in (d, start))
        return add(now, sub(pos, before)), mat
    pos, mat = _on_body(m, d, k)
    if mode == _MODES.mjCAMLIGHT_FIXED or target < 0:
        return pos, mat
    lookat = d.xpos[target] if mode == _MODES.mjCAMLIGHT_TARGETBODY else d.subtree_com[target]
    back = normalize(sub(pos, lookat), [1.0, 0.0, 0.0])
    right = normalize(cross([0.0, 0.0, 1.0], back), [1.0, 0.0, 0.0])
    return pos, transpose([*right, *normalize(cross(back, right), [1.0, 0.0, 0.0]), *back])


def _on_body(m: Model, d: Data, k: int) -> tuple[list[Scalar], Vec]:
    frame = d.frame[m.cam_bodyid[k]]
    place = add(d.origin[m.body_originid[m.cam_bodyid[k]]], frame.point(m.cam_pos[k]))
    return place, frame.rotation(rotation(m.cam_quat[k]))
