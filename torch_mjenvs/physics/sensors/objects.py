"""The objects that sensors are on: their frames, velocities and accelerations; and the refusal of a sensor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...compiler.scalar import Scalar
from ..algebra.spatial import Vec, add, cross, mat_vec, quat_mul, rotation, transpose
from ..dynamics.velocity import at_point
from ..model.data import Data
from ..model.enums import CamLightType, ObjType, SensorType
from ..model.model import Model, UnsupportedModel

NOT_SUPPORTED = " is not supported: "
BY_NAME = (
    "take it out of the model, or ask for the others, each by its name: world.data.sensordata[m.sensor('NAME')] in a "
    "task, outputs=('sensor:NAME',) of a Simulation"
)


def not_there(m: Model, i: int, what: str = "", remedy: str = "") -> UnsupportedModel:
    """Return the error that refuses sensor i: its name and type, `what` of it is not supported, and a remedy."""
    kind = SensorType(m.sensor_type[i]).name.lower()
    remedy = f"{remedy}, {BY_NAME}" if remedy else BY_NAME
    return UnsupportedModel(f"sensor {m.sensor_names[i]!r} ({kind}){what}{NOT_SUPPORTED}{remedy}")


@dataclass(frozen=True)
class Object:
    """The frame of a body, of its inertia, a geom, a site or a camera. rel: its place from the origin of its tree."""

    body: int
    pos: list[Scalar]
    rel: list[Scalar]
    mat: list[Scalar]
    quat: Callable[[], list[Scalar]]


def object_of(m: Model, d: Data, i: int, kind: int, k: int) -> Object:
    """Return object k of a kind (mjtObj), for sensor i. Raises `UnsupportedModel`. get_xpos_xmat, get_xquat."""
    if kind == ObjType.BODY:
        return Object(k, d.xipos[k], d.xirel[k], d.ximat[k], lambda: quat_mul(d.xquat[k], m.body_iquat[k]))
    if kind == ObjType.XBODY:
        return Object(k, d.xpos[k], d.xrel[k], d.xmat[k], lambda: list(d.xquat[k]))
    if kind == ObjType.GEOM:
        body, pos, rel, mat, quat = m.geom_bodyid[k], d.geom_xpos, d.geom_xrel, d.geom_xmat, m.geom_quat
    elif kind == ObjType.SITE:
        body, pos, rel, mat, quat = m.site_bodyid[k], d.site_xpos, d.site_xrel, d.site_xmat, m.site_quat
    elif kind == ObjType.CAMERA:
        return camera(m, d, i, k)
    else:
        raise not_there(m, i, f" of a {ObjType(kind).name.lower()}")
    return Object(body, pos[k], rel[k], mat[k], lambda: quat_mul(d.xquat[body], quat[k]))


def camera(m: Model, d: Data, i: int, k: int) -> Object:
    """Return camera k, which stays where it is on its body, for sensor i. mj_camlight."""
    if m.cam_mode[k] != CamLightType.FIXED:
        raise not_there(m, i, " of a camera that turns to follow something")
    body = m.cam_bodyid[k]
    rel, mat = d.frame[body].point(m.cam_pos[k]), d.frame[body].rotation(rotation(m.cam_quat[k]))
    pos = add(d.origin[m.body_originid[body]], rel)
    return Object(body, pos, rel, mat, lambda: quat_mul(d.xquat[body], m.cam_quat[k]))


def measured(m: Model, d: Data, i: int) -> Object:
    """Return the object that sensor i is on."""
    return object_of(m, d, i, m.sensor_objtype[i], m.sensor_objid[i])


def reference(m: Model, d: Data, i: int) -> Object | None:
    """Return the object in whose frame sensor i measures; None if that is the world."""
    return object_of(m, d, i, m.sensor_reftype[i], m.sensor_refid[i]) if m.sensor_refid[i] >= 0 else None


def seen_by(mat: Vec, v: Vec) -> list[Scalar]:
    """Return the components of a vector of the world along the axes of a frame with orientation `mat`."""
    return mat_vec(transpose(mat), v)


def velocity(d: Data, x: Object) -> tuple[list[Scalar], list[Scalar]]:
    """Return the angular and the linear velocity of an object, in world axes. mj_objectVelocity."""
    return list(d.ovel[x.body][:3]), at_point(d.ovel[x.body], x.rel)


def acceleration(d: Data, x: Object) -> tuple[list[Scalar], list[Scalar]]:
    """Return the angular and the linear acceleration of an object, in world axes. mj_objectAcceleration.

    The linear one is what an accelerometer feels: gravity is subtracted.
    """
    turning, moving = velocity(d, x)
    return list(d.oacc[x.body][:3]), add(at_point(d.oacc[x.body], x.rel), cross(turning, moving))
