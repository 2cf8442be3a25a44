"""Where a camera sees the shapes of a scene, directly or in a plane that mirrors, and the numbers that a picture keeps
for it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..compiler.active_sets import compute_rows
from ..compiler.control import when_any
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
from ..physics.model.hfield import HField
from ..physics.model.model import Model
from ..physics.sensors.ray_hfield import ray_hfield, surface
from . import connectors, lights, meshes, surfaces
from .camera import pose
from .lights import Light
from .parameters import shown
from .scene import FINE, FOUR, GEOM, MOST_CELLS, Drawn, Scene, count
from .shapes import KINDS, NOWHERE, Kind, bounds, corners, flat_bounds, point_at, turned, union

HIGH = 4.0  # in cells of a plane: if the camera is this high above it, each point may be lit by itself


def kind_of(m: Model, drawn: Drawn) -> Kind:
    """Return a shape's kind. Each height field and each mesh has its own; how rays meet a mesh is in `meshes`."""
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
    """A point of the surface faces as its triangle does; one of the sides or the base faces outwards."""
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


def see(m: Model, d: Data, scene: Scene) -> list[Scalar]:
    """Return the numbers that a picture keeps: see `Scene.size` and `View`."""
    place, axes = pose(m, d, scene.camera)
    eye, placed = (place, [-1.0 * x for x in column(axes, 2)]), placements(m, d, scene)
    for k, x in enumerate(scene.drawn):  # what is not as see-through as in the model is not drawn
        if x.paint and scene.recoloured(x):
            pos, mat, size = placed[k]
            seen = x.paint.is_seen(m, scene.varied)
            placed[k] = [select(seen, y, math.nan) for y in pos], mat, size
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
    """Return position, orientation and size of everything that is drawn."""
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
    """Return `compute(kind, pos, mat, size)` of everything that is drawn. Shapes of one kind share code."""
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
    """Return a view's numbers: each shape's bounds and what its kind needs, the bounds of all but planes, and the
    lights.

    eye: the camera's own position and direction, which are also those of its light. number: that of the view; 0 is the
    camera's own.
    """
    shining: list[list[Scalar]] = []
    for light in scene.lights:
        pos, way = lights.pose(m, d, light, scene.varied) if light.number >= 0 else eye
        seen = mat_vec(transpose(axes), sub(pos, place))
        shining.append([*seen, *mat_vec(transpose(axes), normalize(way, [0.0, 0.0, -1.0]))])
        if scene.lit_by(light) > 6:
            shining[-1] += shown(m, "light_diffuse")[light.number]

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
        rgb = _rgb(m, d, scene, x)
        out += rgb if scene.mixed(x) else []
        if scene.kept(x, number):
            of_plane = corner_lights if x.cells == FOUR else even_light
            start, turn = numbers[4:7], numbers[7:16]
            out += of_plane(scene, x, rgb, shining, scene.groups(number == 0), size, start, turn)
    around = union([numbers[:4] for x, numbers in zip(scene.drawn, found, strict=True) if x.bounded])
    return [*out, *around, *(y for light in shining for y in light)]


def _rgb(m: Model, d: Data, scene: Scene, drawn: Drawn) -> list[Scalar]:
    """Return the colour of a shape in this world; nothing if no colours are asked for."""
    if drawn.surface is None:
        return []
    rgb: list[Scalar] = list(drawn.surface.rgba[:3])
    if drawn.paint and scene.recoloured(drawn):
        rgb = drawn.paint.rgba(m, scene.varied)[:3]
    if drawn.rod and drawn.surface.strained:
        held = connectors.strain(m, d, drawn.id, drawn.rod)
        rgb = [a + held * (b - a) for a, b in zip(rgb, drawn.surface.strained, strict=True)]
    return rgb


def corner_lights(
    scene: Scene, plane: Drawn, rgb: Vec, shining: list[list[Scalar]], groups: list[list[int]], size: Vec, start: Vec,
    turn: Vec,
) -> list[Scalar]:  # fmt: skip
    """Return what a plane of four cells reflects at its nine corners, by group of lights, then row by row."""
    surface = plane.surface
    assert surface is not None
    found = []
    for j in (-1.0, 0.0, 1.0):
        for i in (-1.0, 0.0, 1.0):
            point = mat_vec(transpose(turn), sub([i * size[0], j * size[1], 0.0], start))
            found.append(lights.thrown_back(scene.lights, shining, groups, point, turn[6:9], rgb, surface.gloss))
    return [x for g in range(len(groups)) for corner in found for x in corner[g]]


def even_light(
    scene: Scene, plane: Drawn, rgb: Vec, shining: list[list[Scalar]], groups: list[list[int]], size: Vec, start: Vec,
    turn: Vec,
) -> list[Scalar]:  # fmt: skip
    """Return what a plane reflects of directional lights away from highlights, group by group, and where highlights may
    be.

    The latter is, for each highlight, a direction in the camera's axes, and a margin about it in metres, since MuJoCo
    computes highlights at the corners of cells.
    """
    surface, glints = plane.surface, scene.glints(plane)
    assert surface is not None and glints is not None
    normal, dull = turn[6:9], (0.0, surface.shininess, surface.emission)
    light = lights.thrown_back(scene.lights, shining, groups, start, normal, rgb, dull)
    out = [x for group in light for x in group]
    cells = cells_of(scene, plane, [select(x > 0.0, x, NOWHERE) for x in size[:2]])
    wide = sqrt(dot(cells, cells))
    if plane.cells == FINE:
        wide = select(is_high(start, cells), 0.0, wide)
    for k, cosine in glints.items():
        way = shining[k][3:6]
        facing = dot(normal, way)
        middle = [2.0 * facing * n - x for n, x in zip(normal, way, strict=True)]
        out += [*(select(facing < 0.0, x, y) for x, y in zip(middle, (0.0, 0.0, NOWHERE), strict=True))]
        out.append((1.0 + cosine) * wide)
    return out


def cells_of(scene: Scene, plane: Drawn, halves: Vec) -> list[Scalar]:
    """Return how wide the cells of a plane are along x and y, metres. halves: its own sizes, or NOWHERE."""
    assert plane.surface is not None
    far, spacing = 2.1 * scene.camera.far / (MOST_CELLS - 2), 2.0 * plane.surface.sizes[2]
    return [select(x >= NOWHERE, far, maximum(spacing, 2.0 * x / (MOST_CELLS - 1))) for x in halves]


def is_high(start: Vec, cells: Vec) -> Mask:
    """Return whether a camera at `start` is so high above a plane that each of its points may be lit by itself."""
    return start[2] > HIGH * maximum(*cells)


def _shadow(m: Model, d: Data, scene: Scene, placed: list[Placed], light: Light, axes: Vec) -> list[Scalar]:
    """Return the axes of a light that casts shadows, in the camera's, and the bounds of each shape as the light sees
    it.

    The light looks along -z of its axes, as a camera does.
    """
    pos, way = lights.pose(m, d, light, scene.varied)
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

    `shapes` has each shape's bounds and own numbers, `around` the bounds of all but planes, `lights` each light's
    position, direction and, if it varies, colour. By number of the shape, `laid` has how a texture lies on a plane,
    `kept` the light at the corners of a plane's four cells or its even light, and `mixed` the colours that change or
    vary. `meshes` is the table of the scene's meshes.
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
        for light in scene.lights:
            self.lights.append(list(numbers[at : at + scene.lit_by(light)]))
            at += scene.lit_by(light)
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
    """Return what the ray (x, y, -1) of a pixel meets first beyond a depth, among the shapes of these numbers.

    That is the depth in metres, the shape's number, the object's number and mjtObj, and a mesh's triangle; if it meets
    nothing, the camera's `far` and -1. Nothing meets a shape that is NaN. A plane in `there` counts only where its mask
    is true. Shapes that can be in no pixel of a vector are skipped; if that holds for all but planes, these are skipped
    at once.
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
            nearest = logical_and(depth >= beyond, depth <= c[0])  # of two shapes in one place MuJoCo shows the last
            new = (depth, float(k), drawn.id, drawn.object, triangle)[: len(c)]
            return [select(nearest, a, b) for a, b in zip(new, c, strict=True)]

        return when_any(within(sides) if drawn.bounded else (there or {}).get(k, True), meet, found)

    others = [k for k in which if scene.drawn[k].bounded]
    found = functools.reduce(nearest_of, (k for k in which if k not in others), found)
    if others:
        found = when_any(within(view.around), lambda c: functools.reduce(nearest_of, others, c), found)
    return found[0], found[1], found[2], found[3], found[4] if scene.has_meshes else -1.0
