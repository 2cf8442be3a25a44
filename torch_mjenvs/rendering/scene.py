"""The shapes that are drawn of a model, and where a camera sees them, itself or in a plane that mirrors.

What is drawn is what MuJoCo's own list of a scene has (mjv_updateScene), under the default visual options: geoms and
sites of groups 0 to 2 whose colour is not wholly transparent, spatial tendons and slider-cranks. Rangefinders' rays are
left out.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import mujoco
import numpy as np

from ..compiler.control import compute_rows, when_any
from ..compiler.scalar import Mask, Scalar, absolute, logical_and, maximum, select, sqrt
from ..physics.algebra.spatial import (
    Vec,
    add_scaled,
    column,
    cross,
    dot,
    mat_mul,
    mat_vec,
    normalize,
    sub,
    transpose,
)
from ..physics.model.data import Data
from ..physics.model.enums import GeomType
from ..physics.model.hfield import HField, read_hfields
from ..physics.model.model import Model, UnsupportedModel
from ..physics.sensors.ray_hfield import ray_hfield, surface
from . import connectors, lights, meshes, surfaces
from .camera import Camera, camera_of, pose, read
from .connectors import ACTUATOR, TENDON, Rod
from .lights import Light
from .meshes import Tree
from .shapes import KINDS, NOWHERE, Kind, bounds, corners, flat_bounds, point_at, turned, union
from .surfaces import Surface
from .textures import CUBE, Texture

MOST_CELLS = 200  # mjMAXPLANEGRID
FOUR, FINE = "four", "fine"
HIGH = 4.0  # how many cells of a plane a camera is above it when any point may be lit itself
SEEN = 1.0 / 4096.0  # the least highlight that is drawn: a sixteenth of a step of 255
NEAR = 0.1  # of a model's extent: how near corners are between which light is as good as straight
EFFECTS = ("shadow", "reflection", "skybox")  # which a picture may do without
GEOM, SITE = int(mujoco.mjtObj.mjOBJ_GEOM), int(mujoco.mjtObj.mjOBJ_SITE)


@dataclass(frozen=True)
class Drawn:
    """What is drawn: a geom, a site, or a piece of a tendon or slider-crank.

    object is what it is (mjtObj), id its number, shape an mjtGeom.
    """

    object: int
    id: int
    shape: int
    surface: Surface | None = None  # None: no colours are asked for
    tree: Tree | None = None  # of a mesh
    cells: str = ""  # of a plane: see `_cells`
    rod: Rod | None = None  # of a tendon or slider-crank

    @property
    def bounded(self) -> bool:
        return self.shape != GeomType.PLANE

    @property
    def opaque(self) -> bool:
        return self.surface is None or self.surface.rgba[3] >= 1.0

    @property
    def mirrors(self) -> bool:
        bright = self.surface is not None and self.surface.reflectance > 0
        return bright and self.opaque and self.shape == GeomType.PLANE


@dataclass(frozen=True)
class Haze:
    """What veils the horizon of an endless plane under a sky.

    plane: its place in what is drawn. reach: how far the veil comes towards the camera on the ground, as a share of the
    sky's distance.
    """

    plane: int
    reach: float
    rgb: tuple[float, ...]


@dataclass(frozen=True)
class Scene:
    """A camera and all that it may see, as it follows from the model.

    `sky` is the texture of what is behind everything, `haze` what hangs before it. `shadows` and `reflections` say
    whether there are any.
    """

    camera: Camera
    drawn: tuple[Drawn, ...]
    lights: tuple[Light, ...] = ()
    sky: Texture | None = None
    haze: Haze | None = None
    shadows: bool = False
    reflections: bool = False

    @property
    def has_meshes(self) -> bool:
        return any(x.tree for x in self.drawn)

    @property
    def mirrors(self) -> list[int]:
        """Return which of what is drawn mirrors."""
        return [k for k, x in enumerate(self.drawn) if x.mirrors] if self.reflections else []

    @property
    def casting(self) -> list[int]:
        """Return which lights cast shadows."""
        return [k for k, x in enumerate(self.lights) if x.shadows] if self.shadows else []

    def groups(self, shadows: bool) -> list[list[int]]:
        """Return which lights are added up: those without shadows, and each of the others; or all of them."""
        if not shadows:
            return [list(range(len(self.lights)))]
        return [[k for k in range(len(self.lights)) if k not in self.casting], *([k] for k in self.casting)]

    def glints(self, drawn: Drawn) -> dict[int, float] | None:
        """Return which lights have a highlight on a plane, and the cosine of the angle about its middle that holds it.

        A far light is the same everywhere on a plane but for its highlight: None where there are others, or where a
        highlight may be anywhere.
        """
        surface = drawn.surface
        if surface is None or drawn.cells == FOUR or not all(x.directional for x in self.lights):
            return None
        found = {}
        for k, light in enumerate(self.lights):
            most = surface.specular * max(light.specular)
            if most > SEEN:  # half way between eye and light is cosine**2 == square from what is upright
                square = (SEEN / most) ** (1.0 / max(64.0 * surface.shininess, 1e-9))
                found[k] = 2.0 * square - 1.0  # of twice the angle, by which the ray turns
        return found if all(x > 0.0 for x in found.values()) else None

    def without(self, left_out: Collection[int]) -> Scene:
        """Return the scene without these of what is drawn, by their places."""
        kept = [k for k in range(len(self.drawn)) if k not in left_out]
        haze = self.haze and replace(self.haze, plane=kept.index(self.haze.plane))
        return replace(self, drawn=tuple(self.drawn[k] for k in kept), haze=haze)

    def laid(self, drawn: Drawn) -> int:
        """Return how many numbers a view keeps of how a texture lies on a plane."""
        flat = drawn.shape == GeomType.PLANE and drawn.surface and drawn.surface.texture
        return 4 if flat and flat.faces != CUBE else 0

    def mixed(self, drawn: Drawn) -> int:
        """Return how many numbers a view keeps of the colour of what does not always have the same."""
        return 3 if drawn.surface and drawn.surface.strained else 0

    def kept(self, drawn: Drawn, view: int) -> int:
        """Return how many numbers a view, 0 the camera's own, keeps of the light on a plane."""
        groups, glints = len(self.groups(view == 0)), None if drawn.bounded else self.glints(drawn)
        if drawn.cells == FOUR:
            return 27 * groups
        return 3 * groups + 4 * len(glints) if glints is not None else 0

    @property
    def size(self) -> int:
        """Return how many numbers a picture keeps: of the camera's view, of its mirrors', of the sky and of shadows."""
        views = range(1 + len(self.mirrors))
        more = sum(self.laid(x) + self.mixed(x) + self.kept(x, k) for x in self.drawn for k in views)
        shapes = sum(4 + count(x) for x in self.drawn) * len(views) + 4 * len(views) + more
        sky = 9 if self.sky else 0
        return shapes + 6 * len(self.lights) * len(views) + sky + len(self.casting) * (9 + 4 * len(self.drawn))


def scene_of(
    mjm: mujoco.MjModel,
    camera: int | str | mujoco.MjvCamera,
    known: Sequence[Texture] | None = None,
    without: Sequence[str] = (),
) -> tuple[Scene, np.ndarray | None]:
    """Return what a camera may see of a model, but for the `EFFECTS` named, and the table of its meshes, if any.

    known: the model's textures, as `textures.read` gives them; without them the scene has no colours.

    Raises UnsupportedModel, naming it, for what would be drawn wrong.
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
        return Scene(seen, drawn), table
    skies = [k for k in range(mjm.ntex) if mjm.tex_type[k] == mujoco.mjtTexture.mjTEXTURE_SKYBOX]
    sky = known[skies[0]] if skies and "skybox" not in without else None
    found = lights.read(mjm, listed.lights[: listed.nlight])
    haze = _haze(mjm, drawn) if sky else None
    return Scene(seen, drawn, found, sky, haze, "shadow" not in without, "reflection" not in without), table


def _haze(mjm: mujoco.MjModel, drawn: Sequence[Drawn]) -> Haze | None:
    """Return the haze over the first endless plane."""
    for k, x in enumerate(drawn if mjm.vis.map.haze > 0 else ()):
        if x.shape == GeomType.PLANE and x.object == GEOM and not mjm.geom_size[x.id, :2].any():
            return Haze(k, float(mjm.vis.map.haze), tuple(map(float, mjm.vis.rgba.haze[:3])))
    return None


def _copy(made: mujoco.MjvCamera) -> mujoco.MjvCamera:
    """A copy: what tracks a body is moved by the listing."""
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
    flat = shape == GeomType.PLANE or (tree is not None and tree.places >= 0)
    look = None if known is None else surfaces.read(mjm, geom, flat, known, name)
    return Drawn(int(geom.objtype), k, shape, look, tree, _cells(mjm, k) if shape == GeomType.PLANE and look else "")


def _rods(mjm: mujoco.MjModel, listed: mujoco.MjvScene, known: Sequence[Texture] | None) -> Iterator[Drawn]:
    """Yield the pieces of tendons and slider-cranks, of which MuJoCo lists those that are there at qpos0."""
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
        look = None if known is None else surfaces.read(mjm, geoms[0], False, known, name)
        for rod in rods:
            broken = object == ACTUATOR and rod.piece == connectors.BROKEN
            shown = replace(look, rgba=tuple(map(float, mjm.vis.rgba.crankbroken))) if look and broken else look
            if shown and object == TENDON and connectors.strains(mjm, k, rod):
                shown = replace(shown, strained=tuple(map(float, mjm.vis.rgba.constraint[:3])))
            yield Drawn(object, k, rod.shape, shown, rod=rod)


def _cells(mjm: mujoco.MjModel, k: int) -> str:
    """Return how a plane is divided into cells, at whose corners MuJoCo lights it.

    FOUR: the picture keeps the light of their nine corners. FINE: they are so near each other that any point may be lit
    itself, but where the camera is no higher than a few cells (`HIGH`).
    """
    half, spacing = mjm.geom_size[k, :2], mjm.geom_size[k, 2]
    if (half <= 0).any():
        return ""
    if 2 * spacing > half.max():
        return FOUR
    return FINE if max(2 * spacing, 2 * half.max() / (MOST_CELLS - 1)) <= NEAR * mjm.stat.extent else ""


def count(drawn: Drawn) -> int:
    """Return how many numbers a picture keeps of the shape itself."""
    return 12 if drawn.shape in (GeomType.HFIELD, GeomType.MESH) else KINDS[drawn.shape][0]


def kind_of(m: Model, drawn: Drawn) -> Kind:
    """Return the kind of what is drawn. Of a height field and a mesh each is its own; a mesh is met by `meshes`."""
    if drawn.tree:
        balls = corners(drawn.tree.low, drawn.tree.high)
        return Kind(12, lambda size, start, turn: [*start, *turn], _no_mesh, lambda size: balls, _no_mesh)
    if drawn.shape != GeomType.HFIELD:
        return Kind(*KINDS[drawn.shape])
    field = m.hfields[m.geom_dataid[drawn.id]]
    width, depth, top, base = field.size
    return Kind(
        12,
        lambda size, start, turn: [*start, *turn],
        lambda n, way: ray_hfield(field, n[:3], turned(n[3:], way)),
        lambda size: corners([-width, -depth, -base], [width, depth, top]),
        lambda n, way, depth: _touch_hfield(field, n, way, depth),
    )


def _no_mesh(*_: Any) -> Any:
    raise TypeError("rays meet a mesh in its table")


def _touch_hfield(field: HField, n: Vec, way: Vec, depth: Scalar) -> tuple[list[Scalar], list[Scalar], Vec]:
    """A point of the surface faces as its triangle does; of the sides and the base, outwards."""
    at, (width, length, _, _) = point_at(n, way, depth), field.size
    rise = [surface(field, at[0] + x, at[1] + y) - surface(field, at[0], at[1]) for x, y in ((1e-3, 0.0), (0.0, 1e-3))]
    on_top = absolute(at[2] - surface(field, at[0], at[1])) < 1e-3 * (width + length)
    side_x = absolute(at[0]) * length >= absolute(at[1]) * width
    base = at[2] <= 1e-6 - field.size[3]
    out = [
        select(on_top, -1e3 * rise[0], select(base, 0.0, select(side_x, at[0], 0.0))),
        select(on_top, -1e3 * rise[1], select(base, 0.0, select(side_x, 0.0, at[1]))),
        select(on_top, 1.0, select(base, -1.0, 0.0)),
    ]
    return at, out, n[3:12]


def see(m: Model, d: Data, scene: Scene, lights_at: Mapping[int, Vec]) -> list[Scalar]:
    """Return the numbers that a picture keeps: see `Scene.size` and `View`.

    lights_at: the positions of lights, in their bodies' frames, that are not where the model has them, by number.
    """
    if lights_at:
        places: dict[int, Any] = {k: tuple(x) for k, x in lights_at.items()}
        moved = [replace(x, pos=places.get(x.number, x.pos)) for x in scene.lights]
        scene = replace(scene, lights=tuple(moved))
    place, axes = pose(m, d, scene.camera)
    eye, placed = (place, [-1.0 * x for x in column(axes, 2)]), placements(m, d, scene)
    out = _view(m, d, scene, placed, place, axes, eye, 0)
    for k in scene.mirrors:
        pos, mat, _ = placed[k]
        up = [mat[2], mat[5], mat[8]]
        image = add_scaled(place, up, -2.0 * dot(up, sub(place, pos)))
        across = [dot(up, column(axes, i)) for i in range(3)]
        mirrored = [axes[3 * j + i] - 2.0 * up[j] * across[i] for j in range(3) for i in range(3)]
        out += _view(m, d, scene, placed, image, mirrored, eye, 1)
    if scene.sky:
        out += axes
    for k in scene.casting:
        out += _shadow(m, d, scene, placed, scene.lights[k], axes)
    return [float(x) if isinstance(x, int) else x for x in out]


Placed = tuple[Vec, Vec, Vec]  # position, orientation and size


def placements(m: Model, d: Data, scene: Scene) -> list[Placed]:
    """Return where all that is drawn is."""
    rods: dict[tuple[int, int], list[tuple[Vec, Vec, Scalar]]] = {}
    out: list[Placed] = []
    for x in scene.drawn:
        if x.rod:
            if (x.object, x.id) not in rods:
                rods[x.object, x.id] = connectors.placed(connectors.pieces(m, d, x.object, x.id, x.rod))
            pos, mat, half = rods[x.object, x.id][x.rod.piece]
            out.append((pos, mat, [x.rod.radius, half, 0.0]))
        elif x.object == GEOM:
            out.append((d.geom_xpos[x.id], d.geom_xmat[x.id], m.geom_size[x.id]))
        else:
            out.append((d.site_xpos[x.id], d.site_xmat[x.id], m.site_size[x.id]))
    return out


def _of_all(
    m: Model, scene: Scene, placed: list[Placed], compute: Callable[[Kind, Vec, Vec, Vec], list[Scalar]]
) -> list[list[Scalar]]:
    """Return what `compute(kind, pos, mat, size)` gives of all that is drawn: shapes of a kind take one code."""
    alike: dict[Any, list[int]] = {}
    for k, x in enumerate(scene.drawn):
        alike.setdefault(x.shape if x.shape in KINDS else (k,), []).append(k)
    out: list[list[Scalar]] = [[] for _ in placed]
    for group in alike.values():
        kind = kind_of(m, scene.drawn[group[0]])
        rows = [[*pos, *mat, *size] for pos, mat, size in (placed[k] for k in group)]

        def of_row(row: list[Scalar], kind: Kind = kind) -> list[Scalar]:
            return compute(kind, row[:3], row[3:12], row[12:])

        found = compute_rows(rows, of_row)
        for k, numbers in zip(group, found, strict=True):
            out[k] = numbers
    return out


def _view(
    m: Model, d: Data, scene: Scene, placed: list[Placed], place: Vec, axes: Vec, eye: tuple[Vec, Vec], number: int
) -> list[Scalar]:
    """Return of all that is drawn its bounds and what its kind needs, what bounds all but planes, and where lights are.

    eye: where the camera itself is, and which way it looks, as its own light does. number: of the view, 0 the camera's.
    """
    shining: list[list[Scalar]] = []
    for light in scene.lights:
        pos, way = lights.pose(m, d, light) if light.number >= 0 else eye
        seen = mat_vec(transpose(axes), sub(pos, place))
        shining.append([*seen, *mat_vec(transpose(axes), normalize(way, [0.0, 0.0, -1.0]))])

    def seen_as(kind: Kind, pos: Vec, mat: Vec, size: Vec) -> list[Scalar]:
        local = transpose(mat)
        start, turn = mat_vec(local, sub(place, pos)), mat_mul(local, axes)
        balls = kind.balls(size) if kind.balls else None
        return [*bounds(balls, start, turn, scene.camera.near), *kind.numbers(size, start, turn)]

    out: list[Scalar] = []
    found = _of_all(m, scene, placed, seen_as)
    for x, numbers, (_, _, size) in zip(scene.drawn, found, placed, strict=True):
        out += numbers
        if x.surface and scene.laid(x):
            out += surfaces.laid(x.surface, numbers[16:18])
        if x.surface and x.rod and scene.mixed(x):
            held = connectors.strain(m, d, x.id, x.rod)
            out += [a + held * (b - a) for a, b in zip(x.surface.rgba[:3], x.surface.strained, strict=True)]
        if scene.kept(x, number):
            of_plane = corner_lights if x.cells == FOUR else even_light
            start, turn = numbers[4:7], numbers[7:16]
            out += of_plane(scene, x, shining, scene.groups(number == 0), size, start, turn)
    around = union([numbers[:4] for x, numbers in zip(scene.drawn, found, strict=True) if x.bounded])
    return [*out, *around, *(y for light in shining for y in light)]


def corner_lights(
    scene: Scene, plane: Drawn, shining: list[list[Scalar]], groups: list[list[int]], size: Vec, start: Vec, turn: Vec
) -> list[Scalar]:
    """Return what a plane of four cells throws back at its nine corners, group by group of lights, row by row."""
    surface = plane.surface
    assert surface is not None
    gloss, found = (surface.specular, surface.shininess, surface.emission), []
    for j in (-1.0, 0.0, 1.0):
        for i in (-1.0, 0.0, 1.0):
            point = mat_vec(transpose(turn), sub([i * size[0], j * size[1], 0.0], start))
            found.append(lights.thrown_back(scene.lights, shining, groups, point, turn[6:9], surface.rgba[:3], gloss))
    return [x for g in range(len(groups)) for corner in found for x in corner[g]]


def even_light(
    scene: Scene, plane: Drawn, shining: list[list[Scalar]], groups: list[list[int]], size: Vec, start: Vec, turn: Vec
) -> list[Scalar]:
    """Return what a plane throws back of far lights where none has a highlight, group by group, and where they may.

    That is of each a direction, in the camera's axes, and how many metres to go round it: for MuJoCo's highlights are
    those of the corners of cells.
    """
    surface, glints = plane.surface, scene.glints(plane)
    assert surface is not None and glints is not None
    normal, dull = turn[6:9], (0.0, surface.shininess, surface.emission)
    light = lights.thrown_back(scene.lights, shining, groups, start, normal, surface.rgba[:3], dull)
    out = [x for group in light for x in group]
    cells = cells_of(scene, plane, [select(x > 0.0, x, NOWHERE) for x in size[:2]])
    wide = sqrt(dot(cells, cells))
    if plane.cells == FINE:
        wide = select(is_high(start, cells), 0.0, wide)
    for k, cosine in glints.items():
        way = shining[k][3:]
        facing = dot(normal, way)
        middle = [2.0 * facing * n - x for n, x in zip(normal, way, strict=True)]
        out += [*(select(facing < 0.0, x, y) for x, y in zip(middle, (0.0, 0.0, NOWHERE), strict=True))]
        out.append((1.0 + cosine) * wide)
    return out


def cells_of(scene: Scene, plane: Drawn, halves: Vec) -> list[Scalar]:
    """Return how wide the cells of a plane are along x and y, metres. halves: its own sizes, or NOWHERE."""
    assert plane.surface is not None
    far, spacing = 2.1 * scene.camera.far / (MOST_CELLS - 2), 2.0 * plane.surface.spacing
    return [select(x >= NOWHERE, far, maximum(spacing, 2.0 * x / (MOST_CELLS - 1))) for x in halves]


def is_high(start: Vec, cells: Vec) -> Mask:
    """Whether a camera at `start` is so high above a plane that any point of it may be lit itself."""
    return start[2] > HIGH * maximum(*cells)


def _shadow(m: Model, d: Data, scene: Scene, placed: list[Placed], light: Light, axes: Vec) -> list[Scalar]:
    """Return of a light that casts shadows its axes, in the camera's, and what bounds each shape as it sees them.

    It looks along -z of its axes, as a camera does.
    """
    pos, way = lights.pose(m, d, light)
    back = [-1.0 * x for x in normalize(way, [0.0, 0.0, -1.0])]
    aside = select(absolute(back[2]) > 0.9, 1.0, 0.0)
    right = normalize(cross([aside, 0.0, 1.0 - aside], back), [1.0, 0.0, 0.0])
    own = transpose([*right, *cross(back, right), *back])

    def lit_as(kind: Kind, place: Vec, mat: Vec, size: Vec) -> list[Scalar]:
        local = transpose(mat)
        balls = kind.balls(size) if kind.balls else None
        turn = mat_mul(local, own)
        if light.directional:
            return flat_bounds(balls, mat_vec(transpose(own), sub(place, pos)), turn)
        return bounds(balls, mat_vec(local, sub(pos, place)), turn, 1e-3)

    found = _of_all(m, scene, placed, lit_as)
    return [*mat_mul(transpose(axes), own), *(x for sides in found for x in sides)]


class View:
    """The numbers of one view, as `see` left them.

    `shapes` has of each shape its bounds and its own, `around` the bounds of all but planes, `lights` of each light its
    position and direction. `laid` has of planes how a texture lies on them, `kept` the light at the corners of four
    cells, or the even one, `mixed` the colours that are not always the same; `meshes` is the table of the scene's
    meshes.
    """

    def __init__(self, scene: Scene, numbers: Sequence[Scalar], number: int = 0, table: Any = None):
        self.meshes = table
        self.shapes, self.lights, at = [], [], 0
        self.laid: dict[int, list[Scalar]] = {}
        self.mixed: dict[int, list[Scalar]] = {}
        self.kept: dict[int, list[Scalar]] = {}
        for k, drawn in enumerate(scene.drawn):
            self.shapes.append((numbers[at : at + 4], list(numbers[at + 4 : at + 4 + count(drawn)])))
            at += 4 + count(drawn)
            if laid := scene.laid(drawn):
                self.laid[k] = list(numbers[at : at + laid])
                at += laid
            if mixed := scene.mixed(drawn):
                self.mixed[k] = list(numbers[at : at + mixed])
                at += mixed
            if kept := scene.kept(drawn, number):
                self.kept[k] = list(numbers[at : at + kept])
                at += kept
        self.around = numbers[at : at + 4]
        at += 4
        for _ in scene.lights:
            self.lights.append(list(numbers[at : at + 6]))
            at += 6
        self.size = at


def look(
    m: Model,
    scene: Scene,
    view: View,
    x: Scalar,
    y: Scalar,
    which: Sequence[int],
    beyond: Scalar,
    there: Mapping[int, Mask] | None = None,
) -> tuple[Scalar, Scalar, Any, Any, Scalar]:
    """Return what the ray (x, y, -1) of a pixel meets first, beyond a depth, of these numbers of what is drawn.

    It is the depth, metres, which of what is drawn, the object's number and mjtObj, and of a mesh which triangle: the
    camera's `far` and -1 where it meets nothing; what is NaN nothing meets. `there` has of some planes whether they
    count. What cannot be in any pixel of a vector is skipped, all but planes at once where none of it can.
    """
    way = [x, y, -1.0]
    found: list[Any] = [scene.camera.far, -1.0, -1, -1, *([-1.0] if scene.has_meshes else [])]

    def within(sides: Sequence[Scalar]) -> Mask:
        left, right, bottom, top = sides
        return logical_and(x >= left, x <= right, y >= bottom, y <= top)

    def nearest_of(found: list[Any], k: int) -> list[Any]:
        drawn, (sides, own) = scene.drawn[k], view.shapes[k]

        def meet(c: list[Any]) -> list[Any]:
            triangle: Scalar = -1.0
            if drawn.tree:
                depth, triangle = meshes.enter(drawn.tree, view.meshes, list(own), way, beyond, c[0])
            else:
                depth = kind_of(m, drawn).enter(list(own), way)
            nearest = logical_and(depth >= beyond, depth <= c[0])  # of two in one place MuJoCo shows the last
            new = (depth, float(k), drawn.id, drawn.object, triangle)[: len(c)]
            return [select(nearest, a, b) for a, b in zip(new, c, strict=True)]

        return when_any(within(sides) if drawn.bounded else (there or {}).get(k, True), meet, found)

    others = [k for k in which if scene.drawn[k].bounded]
    found = functools.reduce(nearest_of, (k for k in which if k not in others), found)
    if others:
        found = when_any(within(view.around), lambda c: functools.reduce(nearest_of, others, c), found)
    return found[0], found[1], found[2], found[3], found[4] if scene.has_meshes else -1.0
