"""The shapes that are drawn of a model.

What is drawn is what MuJoCo's own list of a scene has (mjv_updateScene), under the default visual options: geoms and
sites of groups 0 to 2 whose colour is not wholly transparent, spatial tendons and slider-cranks. Rangefinders' rays are
left out.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

import mujoco
import numpy as np

from ..physics.model.enums import GeomType
from ..physics.model.hfield import read_hfields
from ..physics.model.model import UnsupportedModel
from . import connectors, lights, meshes, surfaces
from .camera import Camera, camera_of, read
from .connectors import ACTUATOR, TENDON, Rod
from .lights import Light
from .meshes import Tree
from .shapes import KINDS
from .surfaces import Paint, Surface
from .textures import CUBE, Texture

MOST_CELLS = 200  # mjMAXPLANEGRID
FOUR, FINE = "four", "fine"
OPAQUE = 0.995  # the alpha from which on MuJoCo draws a shape as opaque
SEEN = 1.0 / 4096.0  # the least highlight that is drawn: a sixteenth of a step of 1/255
NEAR = 0.1  # a share of the model's extent: between corners this near, light is as good as linear
EFFECTS = ("shadow", "reflection", "skybox")  # which a picture may do without
GEOM, SITE = int(mujoco.mjtObj.mjOBJ_GEOM), int(mujoco.mjtObj.mjOBJ_SITE)


@dataclass(frozen=True)
class Drawn:
    """What is drawn: a geom, a site, or a piece of a tendon or slider-crank.

    object: its kind (mjtObj). id: its number. shape: an mjtGeom.
    """

    object: int
    id: int
    shape: int
    surface: Surface | None = None  # None: no colours are asked for
    tree: Tree | None = None  # of a mesh
    cells: str = ""  # of a plane: see `_cells`
    rod: Rod | None = None  # of a tendon or slider-crank
    casts: bool = True  # a shadow
    paint: Paint | None = None  # None: its colour never varies

    @property
    def bounded(self) -> bool:
        return self.shape != GeomType.PLANE

    @property
    def opaque(self) -> bool:
        return self.surface is None or self.surface.rgba[3] >= OPAQUE

    @property
    def mirrors(self) -> bool:
        bright = self.surface is not None and self.surface.reflectance > 0
        return bright and self.opaque and self.shape in (GeomType.PLANE, GeomType.BOX)


@dataclass(frozen=True)
class Haze:
    """What veils the horizon of an endless plane under a sky.

    plane: its index in what is drawn. reach: how far the veil extends towards the camera on the ground, as a fraction
    of the sky's distance.
    """

    plane: int
    reach: float
    rgb: tuple[float, ...]


@dataclass(frozen=True)
class Scene:
    """A camera and all that it may see of a model.

    `sky` is the texture of the background, `haze` the haze in front of it. `shadows` and `reflections` say whether
    there are any. `varied` names what differs from world to world.
    """

    camera: Camera
    drawn: tuple[Drawn, ...]
    lights: tuple[Light, ...] = ()
    sky: Texture | None = None
    haze: Haze | None = None
    shadows: bool = False
    reflections: bool = False
    varied: tuple[str, ...] = ()

    @property
    def has_meshes(self) -> bool:
        return any(x.tree for x in self.drawn)

    @property
    def mirrors(self) -> list[int]:
        """The numbers of the planes of which the first that is seen from the front mirrors.

        In MuJoCo only one shape does. If a box comes first, it is the box, whose mirror image is not drawn.
        """
        found = [k for k, x in enumerate(self.drawn) if x.mirrors] if self.reflections else []
        return list(itertools.takewhile(lambda k: self.drawn[k].shape == GeomType.PLANE, found))

    @property
    def casting(self) -> list[int]:
        """The numbers of the lights that cast shadows."""
        return [k for k, x in enumerate(self.lights) if x.shadows] if self.shadows else []

    def groups(self, shadows: bool) -> list[list[int]]:
        """Return the groups of lights that are summed: those without shadows, and each other one; without `shadows`,
        all in one.
        """
        if not shadows:
            return [list(range(len(self.lights)))]
        return [[k for k in range(len(self.lights)) if k not in self.casting], *([k] for k in self.casting)]

    def glints(self, drawn: Drawn) -> dict[int, float] | None:
        """Return the lights with a highlight on a plane, and the cosine of the angle about its middle that contains it.

        A directional light is the same everywhere on a plane except for its highlight. None if there are other lights,
        or if a highlight may be anywhere.
        """
        surface = drawn.surface
        if surface is None or drawn.cells == FOUR or not all(x.directional for x in self.lights):
            return None
        found = {}
        for k, light in enumerate(self.lights):
            most = surface.specular * max(light.specular)
            if most > SEEN:  # square: cosine**2 of the angle from the normal to half way between eye and light
                square = (SEEN / most) ** (1.0 / max(64.0 * surface.shininess, 1e-9))
                found[k] = 2.0 * square - 1.0  # the cosine of twice the angle, by which the ray turns
        return found if all(x > 0.0 for x in found.values()) else None

    def without(self, left_out: Collection[int]) -> Scene:
        """Return the scene without the shapes of these numbers."""
        kept = [k for k in range(len(self.drawn)) if k not in left_out]
        haze = self.haze and replace(self.haze, plane=kept.index(self.haze.plane))
        return replace(self, drawn=tuple(self.drawn[k] for k in kept), haze=haze)

    def laid(self, drawn: Drawn) -> int:
        """Return how many numbers a view keeps for how a texture lies on a plane."""
        flat = drawn.shape == GeomType.PLANE and drawn.surface and drawn.surface.texture
        return 4 if flat and flat.faces != CUBE else 0

    def mixed(self, drawn: Drawn) -> int:
        """Return how many numbers a view keeps for the colour of a shape, if it changes."""
        return 3 if drawn.surface and (drawn.surface.strained or self.recoloured(drawn)) else 0

    def recoloured(self, drawn: Drawn) -> bool:
        """Return whether the colour of a shape differs from world to world."""
        return drawn.paint is not None and drawn.paint.varies(self.varied)

    def lit_by(self, light: Light) -> int:
        """Return how many numbers a view keeps for a light: its position, its direction and, if that varies, colour."""
        return 9 if light.number >= 0 and "light_diffuse" in self.varied else 6

    def kept(self, drawn: Drawn, view: int) -> int:
        """Return how many numbers a view, 0 the camera's own, keeps for the light on a plane."""
        groups, glints = len(self.groups(view == 0)), None if drawn.bounded else self.glints(drawn)
        if drawn.cells == FOUR:
            return 27 * groups
        return 3 * groups + 4 * len(glints) if glints is not None else 0

    @property
    def size(self) -> int:
        """How many numbers a picture keeps: for the camera's view, for its mirrors', for the sky and for shadows."""
        views = range(1 + len(self.mirrors))
        more = sum(self.laid(x) + self.mixed(x) + self.kept(x, k) for x in self.drawn for k in views)
        shapes = sum(4 + count(x) for x in self.drawn) * len(views) + 4 * len(views) + more
        sky, lights = 9 if self.sky else 0, sum(map(self.lit_by, self.lights)) * len(views)
        return shapes + lights + sky + len(self.casting) * (9 + 4 * len(self.drawn))


def scene_of(
    mjm: mujoco.MjModel,
    camera: int | str | mujoco.MjvCamera,
    known: Sequence[Texture] | None = None,
    without: Sequence[str] = (),
    varied: Sequence[str] = (),
) -> tuple[Scene, np.ndarray | None]:
    """Return what a camera may see of a model, without the `EFFECTS` named, and the table of its meshes, if any.

    known: the model's textures, as `textures.read` gives them; without them the scene has no colours. varied: the
    fields of the model that differ from world to world.

    Raises UnsupportedModel, naming the element, if something would be drawn incorrectly.
    """
    made = camera_of(mjm, camera)
    options, data = mujoco.MjvOption(), mujoco.MjData(mjm)
    _refuse(mjm)
    for place in (mujoco.mj_kinematics, mujoco.mj_comPos, mujoco.mj_tendon):  # only then are tendons listed
        place(mjm, data)
    most = mjm.ngeom + mjm.nsite + mjm.ntendon * mjm.vis.quality.numslices + 3 * mjm.nwrap + 1000
    listed = mujoco.MjvScene(mjm, maxgeom=most)
    mujoco.mjv_updateScene(mjm, data, options, None, _copy(made), mujoco.mjtCatBit.mjCAT_ALL, listed)
    shown = [geom for geom in listed.geoms[: listed.ngeom] if geom.objtype in (GEOM, SITE)]
    which = {_mesh_of(mjm, geom) for geom in shown} - {-1}
    trees, table = meshes.read(mjm, sorted(which)) if which else ({}, None)
    drawn = (*(_drawn(mjm, geom, known, trees.get(_mesh_of(mjm, geom))) for geom in shown), *_rods(mjm, listed, known))
    seen = read(mjm, made, listed.camera[0])
    if known is None:
        return Scene(seen, drawn, varied=tuple(varied)), table
    skies = [k for k in range(mjm.ntex) if mjm.tex_type[k] == mujoco.mjtTexture.mjTEXTURE_SKYBOX]
    sky = known[skies[0]] if skies and "skybox" not in without else None
    found = lights.read(mjm, listed.lights[: listed.nlight])
    haze = _haze(mjm, drawn) if sky else None
    shadows = "shadow" not in without and mjm.vis.quality.shadowsize > 0
    return Scene(seen, drawn, found, sky, haze, shadows, "reflection" not in without, tuple(varied)), table


def _haze(mjm: mujoco.MjModel, drawn: Sequence[Drawn]) -> Haze | None:
    """Return the haze over the first endless plane."""
    for k, x in enumerate(drawn if mjm.vis.map.haze > 0 else ()):
        if x.shape == GeomType.PLANE and x.object == GEOM and not mjm.geom_size[x.id, :2].any():
            return Haze(k, float(mjm.vis.map.haze), tuple(map(float, mjm.vis.rgba.haze[:3])))
    return None


def _copy(made: mujoco.MjvCamera) -> mujoco.MjvCamera:
    """Return a copy, since listing the scene moves a camera that tracks a body."""
    copy = mujoco.MjvCamera()
    for name in ("type", "fixedcamid", "trackbodyid", "distance", "azimuth", "elevation", "orthographic"):
        setattr(copy, name, getattr(made, name))
    copy.lookat[:] = made.lookat
    return copy


def _refuse(mjm: mujoco.MjModel) -> None:
    """Refuse what MuJoCo would draw and a picture does not have."""
    if mjm.nskin:
        raise UnsupportedModel("pictures do not draw skins: remove them from the model")


def _mesh_of(mjm: mujoco.MjModel, geom: mujoco.MjvGeom) -> int:
    """Return the mesh that is listed, or -1."""
    is_mesh = geom.objtype == GEOM and mjm.geom_type[geom.objid] == GeomType.MESH
    return int(mjm.geom_dataid[geom.objid]) if is_mesh else -1


def _drawn(mjm: mujoco.MjModel, geom: mujoco.MjvGeom, known: Sequence[Texture] | None, tree: Tree | None) -> Drawn:
    of_geom, k = geom.objtype == GEOM, int(geom.objid)
    shape = int(mjm.geom_type[k] if of_geom else mjm.site_type[k])
    name = f"geom {mjm.geom(k).name!r} (number {k})" if of_geom else f"site {mjm.site(k).name!r}"
    if shape not in KINDS and shape != GeomType.HFIELD and tree is None:
        what = mujoco.mjtGeom(shape).name.removeprefix("mjGEOM_").lower()
        raise UnsupportedModel(f"pictures do not draw {name}, a {what}: give it group='3' to leave it out")
    if shape == GeomType.HFIELD and not read_hfields(mjm)[mjm.geom_dataid[k]].within_bounds:
        raise UnsupportedModel(f"pictures do not draw height field {k}, whose elevations are not all from 0 to 1")
    look = None if known is None else surfaces.read(mjm, geom, known, name)
    cells = _cells(mjm, k) if shape == GeomType.PLANE and look else ""
    paint = surfaces.paint(mjm, "geom" if of_geom else "site", k)
    return Drawn(int(geom.objtype), k, shape, look, tree, cells, casts=shape != GeomType.HFIELD, paint=paint)


def _rods(mjm: mujoco.MjModel, listed: mujoco.MjvScene, known: Sequence[Texture] | None) -> Iterator[Drawn]:
    """Yield the pieces of tendons and slider-cranks; MuJoCo lists those that exist at qpos0."""
    first: dict[tuple[int, int], list[mujoco.MjvGeom]] = {}
    for geom in listed.geoms[: listed.ngeom]:
        first.setdefault((int(geom.objtype), int(geom.objid)), []).append(geom)
    for (object, k), geoms in first.items():
        if object == TENDON and mjm.tendon_width[k] > 0 and geoms[0].rgba[3] > 0:
            name, rods = f"tendon {mjm.tendon(k).name!r} (number {k})", connectors.rods_of_tendon(mjm, k)
        elif object == ACTUATOR and mjm.actuator_trntype[k] == mujoco.mjtTrn.mjTRN_SLIDERCRANK:
            name, rods = f"actuator {mjm.actuator(k).name!r} (number {k})", connectors.rods_of_crank(mjm)
        else:
            continue
        look = None if known is None else surfaces.read(mjm, geoms[0], known, name)
        paint = surfaces.paint(mjm, "tendon", k) if object == TENDON else None
        for rod in rods:
            broken = object == ACTUATOR and rod.piece == connectors.BROKEN
            shown = replace(look, rgba=tuple(map(float, mjm.vis.rgba.crankbroken))) if look and broken else look
            if shown and object == TENDON and connectors.strains(mjm, k, rod):
                shown = replace(shown, strained=tuple(map(float, mjm.vis.rgba.constraint[:3])))
            casts = geoms[0].category != mujoco.mjtCatBit.mjCAT_DECOR
            yield Drawn(object, k, rod.shape, shown, rod=rod, casts=casts, paint=paint)


def _cells(mjm: mujoco.MjModel, k: int) -> str:
    """Return how a plane is divided into cells, at whose corners MuJoCo lights it.

    FOUR: the picture keeps the light of their nine corners. FINE: corners are so near each other that each point may be
    lit by itself, unless the camera is no higher than a few cells (`views.HIGH`).
    """
    half, spacing = mjm.geom_size[k, :2], mjm.geom_size[k, 2]
    if (half <= 0).any():
        return ""
    if 2 * spacing > half.max():
        return FOUR
    return FINE if max(2 * spacing, 2 * half.max() / (MOST_CELLS - 1)) <= NEAR * mjm.stat.extent else ""


def count(drawn: Drawn) -> int:
    """Return how many numbers a picture keeps for the shape itself."""
    return 12 if drawn.shape in (GeomType.HFIELD, GeomType.MESH) else KINDS[drawn.shape][0]
