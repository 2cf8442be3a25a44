"""The shapes that are drawn of a model, and where a camera sees them.

What is drawn is what MuJoCo's own list of a scene has (mjv_updateScene), under the default visual options: geoms and
sites of groups 0 to 2 whose colour is not wholly transparent. Rangefinders' rays are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import mujoco

from ..compiler.control import when_any
from ..compiler.scalar import Scalar, logical_and, select
from ..physics.algebra.spatial import mat_mul, mat_vec, sub, transpose
from ..physics.model.data import Data
from ..physics.model.enums import GeomType
from ..physics.model.hfield import read_hfields
from ..physics.model.model import Model, UnsupportedModel
from ..physics.sensors.ray_hfield import ray_hfield
from .camera import Camera, camera_of, pose, read
from .shapes import KINDS, Kind, bounds, corners, turned

GEOM, SITE = int(mujoco.mjtObj.mjOBJ_GEOM), int(mujoco.mjtObj.mjOBJ_SITE)


@dataclass(frozen=True)
class Drawn:
    """A geom or site that is drawn: what it is (mjtObj), its number, and its shape (mjtGeom)."""

    object: int
    id: int
    shape: int


@dataclass(frozen=True)
class Scene:
    """A camera and all that it may see, as it follows from the model."""

    camera: Camera
    drawn: tuple[Drawn, ...]

    @property
    def size(self) -> int:
        """Return how many numbers a picture keeps."""
        return sum(4 + count(x) for x in self.drawn)


def scene_of(mjm: mujoco.MjModel, camera: int | str | mujoco.MjvCamera) -> Scene:
    """Return what a camera may see of a model. Raises UnsupportedModel, naming it, for what would be drawn wrong."""
    made = camera_of(mjm, camera)
    options, data = mujoco.MjvOption(), mujoco.MjData(mjm)
    _refuse(mjm, options)
    listed = mujoco.MjvScene(mjm, maxgeom=mjm.ngeom + mjm.nsite + 1000)
    mujoco.mjv_updateScene(mjm, data, options, None, _copy(made), mujoco.mjtCatBit.mjCAT_ALL, listed)
    drawn = [_drawn(mjm, geom) for geom in listed.geoms[: listed.ngeom] if geom.objtype in (GEOM, SITE)]
    return Scene(read(mjm, made, listed.camera[0]), tuple(drawn))


def _copy(made: mujoco.MjvCamera) -> mujoco.MjvCamera:
    """A copy: what tracks a body is moved by the listing."""
    copy = mujoco.MjvCamera()
    for name in ("type", "fixedcamid", "trackbodyid", "distance", "azimuth", "elevation", "orthographic"):
        setattr(copy, name, getattr(made, name))
    copy.lookat[:] = made.lookat
    return copy


def _refuse(mjm: mujoco.MjModel, options: mujoco.MjvOption) -> None:
    """Refuse what MuJoCo would draw and a picture does not have."""
    for k in range(mjm.ntendon):
        path = range(mjm.tendon_adr[k], mjm.tendon_adr[k] + mjm.tendon_num[k])
        spatial = any(mjm.wrap_type[j] != mujoco.mjtWrap.mjWRAP_JOINT for j in path)
        seen = options.tendongroup[min(max(mjm.tendon_group[k], 0), 5)] and mjm.tendon_rgba[k, 3] > 0
        if spatial and seen and mjm.tendon_width[k] > 0:
            raise UnsupportedModel(
                f"pictures do not draw tendon {mjm.tendon(k).name!r}: give it group='3' or width='0' to leave it out"
            )
    if mjm.nskin:
        raise UnsupportedModel("pictures do not draw skins: remove them from the model")


def _drawn(mjm: mujoco.MjModel, geom: mujoco.MjvGeom) -> Drawn:
    of_geom, k = geom.objtype == GEOM, int(geom.objid)
    shape = int(mjm.geom_type[k] if of_geom else mjm.site_type[k])
    if shape not in KINDS and shape != GeomType.HFIELD:
        name = f"geom {mjm.geom(k).name!r} (number {k})" if of_geom else f"site {mjm.site(k).name!r}"
        what = mujoco.mjtGeom(shape).name.removeprefix("mjGEOM_").lower()
        raise UnsupportedModel(f"pictures do not draw {name}, a {what}: give it group='3' to leave it out")
    if shape == GeomType.HFIELD and not read_hfields(mjm)[mjm.geom_dataid[k]].within_bounds:
        raise UnsupportedModel(f"pictures do not draw height field {k}, whose elevations are not all from 0 to 1")
    return Drawn(int(geom.objtype), k, shape)


def count(drawn: Drawn) -> int:
    """Return how many numbers a picture keeps of the shape itself."""
    return 12 if drawn.shape == GeomType.HFIELD else KINDS[drawn.shape][0]


def kind_of(m: Model, drawn: Drawn) -> Kind:
    """Return the kind of what is drawn. Of a height field each is its own."""
    if drawn.shape != GeomType.HFIELD:
        return Kind(*KINDS[drawn.shape])
    field = m.hfields[m.geom_dataid[drawn.id]]
    width, depth, top, base = field.size
    return Kind(
        12,
        lambda size, start, turn: [*start, *turn],
        lambda n, way: ray_hfield(field, n[:3], turned(n[3:], way)),
        lambda size: corners([-width, -depth, -base], [width, depth, top]),
    )


def see(m: Model, d: Data, scene: Scene) -> list[Scalar]:
    """Return the numbers that a picture keeps of all that is drawn: of each its bounds, then what its kind needs."""
    place, axes = pose(m, d, scene.camera)
    out: list[Scalar] = []
    for x in scene.drawn:
        kind = kind_of(m, x)
        pos, mat, size = (
            (d.geom_xpos[x.id], d.geom_xmat[x.id], m.geom_size[x.id])
            if x.object == GEOM
            else (d.site_xpos[x.id], d.site_xmat[x.id], m.site_size[x.id])
        )
        local = transpose(mat)
        start, turn = mat_vec(local, sub(place, pos)), mat_mul(local, axes)
        balls = kind.balls(size) if kind.balls else None
        out += [*bounds(balls, start, turn, scene.camera.near), *kind.numbers(size, start, turn)]
    return [float(x) if isinstance(x, int) else x for x in out]


def look(m: Model, scene: Scene, numbers: Sequence[Scalar], x: Scalar, y: Scalar) -> tuple[Scalar, Any, Any]:
    """Return what the ray (x, y, -1) of a pixel meets first: its depth, metres, and the object's number and mjtObj.

    They are the camera's `far`, -1 and -1 where it meets nothing; what is NaN nothing meets. What cannot be in any
    pixel of a vector is skipped.
    """
    way, near = [x, y, -1.0], scene.camera.near
    found: list[Any] = [scene.camera.far, -1, -1]
    at = 0
    for drawn in scene.drawn:
        left, right, bottom, top = numbers[at : at + 4]
        own = numbers[at + 4 : at + 4 + count(drawn)]
        at += 4 + count(drawn)
        may = logical_and(x >= left, x <= right, y >= bottom, y <= top)

        def meet(c: list[Any], drawn: Drawn = drawn, own: Sequence[Scalar] = own) -> list[Any]:
            depth = kind_of(m, drawn).enter(list(own), way)
            nearest = logical_and(depth >= near, depth < c[0])
            return [select(nearest, new, old) for new, old in zip((depth, drawn.id, drawn.object), c, strict=True)]

        found = when_any(may, meet, found)
    return found[0], found[1], found[2]
