"""Colours: what a pixel shows, as OpenGL's fixed pipeline draws it for MuJoCo.

A surface's colour is the light that it reflects, summed over lights, times its texture. Lights that cast shadows are
added one by one, each where nothing blocks it; each of them is clipped at 1, and so is the sum of all others. Planes
are lit at the corners of the rectangles that MuJoCo makes them of, and colours are interpolated between; everything
else is lit at the point that is seen.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..compiler.control import repeat, when_any
from ..compiler.scalar import (
    Mask,
    Scalar,
    absolute,
    clip,
    floor,
    logical_and,
    logical_not,
    logical_or,
    maximum,
    minimum,
    number,
    select,
    sqrt,
)
from ..physics.algebra.spatial import Vec, add, dot, mat_vec, scale, sub, transpose
from ..physics.model.enums import GeomType
from ..physics.model.model import Model
from .lights import thrown_back
from .meshes import Spot, Tree, enter, spot, texture_place
from .scene import FINE, FOUR, Drawn, Haze, Scene
from .shapes import KINDS, NOWHERE, Kind, turned
from .surfaces import Surface, along_z, by_coordinates, flat, textured
from .textures import Texture, sample_cube
from .views import View, cells_of, is_high, kind_of, look

CLEAR = 1e-5  # the share of a ray's way to a light that is skipped, so that it does not meet the mesh where it begins


@dataclass
class Pixel:
    """What a pixel needs to find its colour: scene, numbers, tables, its ray and its size in tangents.

    sky: the colour of the sky in this pixel, if it is known beforehand.
    """

    m: Model
    scene: Scene
    numbers: Sequence[Scalar]
    texels: Any
    meshes: Any
    x: Scalar
    y: Scalar
    step: tuple[float, float]
    sky: Sequence[Scalar] | None = None

    def __post_init__(self) -> None:
        self.way = [self.x, self.y, -1.0]
        self.views: list[View] = []
        at = 0
        for _ in range(1 + len(self.scene.mirrors)):
            self.views.append(View(self.scene, self.numbers[at:], len(self.views), self.meshes))
            at += self.views[-1].size
        self.axes = self.numbers[at : at + 9]
        at += 9 if self.scene.sky else 0
        self.shadows = []
        for _ in self.scene.casting:
            end = at + 9 + 4 * len(self.scene.drawn)
            self.shadows.append((self.numbers[at : at + 9], self.numbers[at + 9 : end]))
            at = end


def colour(pixel: Pixel) -> list[Scalar]:
    """Return red, green and blue of a pixel, from 0 to 1."""
    scene = pixel.scene
    opaque = [k for k, x in enumerate(scene.drawn) if x.opaque]
    clear = [k for k, x in enumerate(scene.drawn) if not x.opaque]
    view, near = pixel.views[0], scene.camera.near
    planes = [k for k in opaque if not scene.drawn[k].bounded]
    front = {k: logical_not(view.shapes[k][1][2] <= 0.0) for k in planes}  # planes are transparent from behind
    depth, which, _, _, triangle = look(pixel.m, scene, view, pixel.x, pixel.y, opaque, near, front)
    seen = when_any(which < 0.0, lambda c: _behind(pixel), [0.0, 0.0, 0.0]) if scene.sky else [0.0, 0.0, 0.0]

    def shade(c: list[Scalar]) -> list[Scalar]:
        point = scale(pixel.way, depth)
        open_ = [_open(pixel, k, point, which) for k in range(len(scene.casting))]
        return _shaded(Hit(pixel, view, depth, which, triangle, opaque), open_)

    seen = when_any(which >= 0.0, shade, seen)
    another: Mask = False  # whether an earlier plane mirrors
    for mirror, k in enumerate(scene.mirrors):
        surface = scene.drawn[k].surface
        assert surface is not None
        other = pixel.views[1 + mirror]

        def reflect(c: list[Scalar], k: int = k, other: View = other, surface: Surface = surface) -> list[Scalar]:
            others = [i for i in opaque if i != k]
            far, image, _, _, part = look(pixel.m, scene, other, pixel.x, pixel.y, others, depth, front)
            there = when_any(
                image >= 0.0, lambda c: _shaded(Hit(pixel, other, far, image, part, others), None), [0.0, 0.0, 0.0]
            )
            there = _through(
                pixel, other, there, [i for i in clear if i != k], [i for i in planes if i != k], depth, far
            )
            return [minimum(a + surface.reflectance * b, 1.0) for a, b in zip(c, there, strict=True)]

        above = view.shapes[k][1][2] > 0.0
        seen = when_any(logical_and(_is(which, k), above, logical_not(another)), reflect, seen)
        another = logical_or(another, above)
    if scene.haze:
        seen = _veiled(pixel, scene.haze, seen, depth)
    return _through(pixel, view, seen, clear, planes, near, depth)


def _is(which: Scalar, k: int) -> Mask:
    return absolute(which - float(k)) < 0.5


def _behind(pixel: Pixel) -> list[Scalar]:
    """Return the colour of the background, the sky."""
    if pixel.sky is not None:
        return list(pixel.sky)
    assert pixel.scene.sky is not None
    return sky(pixel.texels, pixel.scene.sky, pixel.axes, pixel.way, pixel.step)


def sky(texels: Any, texture: Texture, axes: Vec, way: Vec, step: tuple[float, float]) -> list[Scalar]:
    """Return the colour of the sky, a cube around everything whose y points up, where a camera's ray meets it."""

    def turn(way: Vec) -> list[Scalar]:
        x, y, z = mat_vec(axes, way)
        return [x, z, -1.0 * y]

    changes = [turn([step[0], 0.0, 0.0]), turn([0.0, step[1], 0.0])]
    return sample_cube(texels, texture, turn(way), changes)


SKY = 0.7  # distance of the sky, as a share of the depth where drawing ends


def _veiled(pixel: Pixel, haze: Haze, behind: list[Scalar], depth: Scalar) -> list[Scalar]:
    """Return a colour as it is seen through the haze over a plane; what is in front of the haze does not change.

    The haze is a cone about the camera, from the plane up to the camera's height, where it is as far away as the sky.
    It is clear at both ends, and hides everything at one height between them.

    rise  height on the cone, from 0 at the plane to 1     fall  how far the ray sinks until the sky, in the same unit
    """
    own = pixel.views[0].shapes[haze.plane][1]
    distance = SKY * pixel.scene.camera.far
    elevation = own[2] / distance
    across, up, back = turned(own[3:12], pixel.way)
    out = sqrt(maximum(across * across + up * up, 1e-12))
    fall = -1.0 * back / (out * maximum(elevation, 1e-9))
    far = 1.0 / (1.0 + haze.reach * maximum(fall, 0.0))
    rise = 1.0 - fall * far
    alpha = math.atan2(1.0, haze.reach)
    middle = math.sqrt(0.5) * haze.reach * math.sin(alpha) / math.sin(0.75 * math.pi - alpha)
    thick = select(rise < middle, rise / middle, (1.0 - rise) / (1.0 - middle))
    there = logical_and(elevation >= 0.0, rise >= 0.0, rise <= 1.0, far * distance < depth * out)
    thick = select(there, thick, 0.0)
    return [a + thick * (b - a) for a, b in zip(behind, haze.rgb, strict=True)]


def _through(
    pixel: Pixel, view: View, seen: list[Scalar], clear: list[int], planes: list[int], near: Scalar, far: Scalar
) -> list[Scalar]:
    """Return a colour as it is seen through everything transparent between two depths.

    These are the shapes in `clear`, and the opaque `planes` that the camera is behind.
    """
    behind = {k: pixel.views[0].shapes[k][1][2] <= 0.0 for k in planes}
    some = logical_or(False, *behind.values())
    if clear:
        seen = when_any(logical_not(some), lambda c: _layers(pixel, view, c, clear, near, far, {}), seen)
    if planes:
        every = sorted([*clear, *planes])
        seen = when_any(some, lambda c: _layers(pixel, view, c, every, near, far, behind), seen)
    return seen


def _layers(
    pixel: Pixel,
    view: View,
    behind: list[Scalar],
    clear: Sequence[int],
    near: Scalar,
    far: Scalar,
    there: Mapping[int, Mask],
) -> list[Scalar]:
    """Return a colour as it is seen through the shapes in `clear`; a plane in `there` counts only where its mask is
    true.

    MuJoCo draws each transparent shape twice, and planes that are seen from behind fainter.
    """

    def layer(i: Any, c: list[Any]) -> list[Any]:
        (*shown, left), last = c[:4], c[4]
        depth, which, _, _, triangle = look(pixel.m, pixel.scene, view, pixel.x, pixel.y, clear, last, there)
        met = logical_and(which >= 0.0, depth < far)

        def add_layer(c: list[Any]) -> list[Any]:
            colour = _shaded(Hit(pixel, view, depth, which, triangle, clear), None)
            alpha: Scalar = 0.0
            for k in clear:
                drawn = pixel.scene.drawn[k]
                assert drawn.surface is not None
                once, behind = (1.0 - x * drawn.surface.rgba[3] for x in (1.0, 0.3))
                twice: Scalar = 1.0 - once**2
                if drawn.shape == GeomType.PLANE:
                    twice = select(pixel.views[0].shapes[k][1][2] > 0.0, twice, 1.0 - behind**2)
                alpha = select(_is(which, k), twice, alpha)
            return [*(x + left * alpha * y for x, y in zip(shown, colour, strict=True)), left * (1.0 - alpha)]

        new = when_any(met, add_layer, [*shown, left])
        return [*new, select(met, depth * (1.0 + 1e-6), NOWHERE)]

    *shown, left, _ = repeat(len(clear), layer, [0.0, 0.0, 0.0, 1.0, near])
    return [minimum(x + left * y, 1.0) for x, y in zip(shown, behind, strict=True)]


def _open(pixel: Pixel, j: int, point: Vec, which: Scalar) -> Mask:
    """Return whether light number j of those with shadows reaches a point on the shape with the number `which`."""
    scene = pixel.scene
    light_number = scene.casting[j]
    light, place = scene.lights[light_number], pixel.views[0].lights[light_number]
    axes, bounds = pixel.shadows[j]
    before: Mask = True
    if light.directional:  # as in MuJoCo, nothing behind its position casts a shadow, though it shines from everywhere
        reach = dot(sub(point, place[:3]), place[3:6])
        before, to = reach > 0.0, [-1.0 * reach * x for x in place[3:6]]
        origin = add(point, to)
        x, y, _ = mat_vec(transpose(axes), sub(point, place[:3]))
    else:
        origin, to = place[:3], sub(place[:3], point)
        across, up, back = mat_vec(transpose(axes), sub(point, place[:3]))
        over = 1.0 / maximum(-1.0 * back, 1e-9)
        x, y = across * over, up * over
    blocked: Mask = False
    for k, drawn in enumerate(scene.drawn):
        if not drawn.casts:
            continue
        left, right, bottom, top = bounds[4 * k : 4 * k + 4]
        own = pixel.views[0].shapes[k][1]
        may = logical_and(x >= left, x <= right, y >= bottom, y <= top, before, logical_not(blocked))
        if not drawn.tree:  # rounding would let a shape block itself; meshes have CLEAR
            may = logical_and(may, logical_not(_is(which, k)))

        (blocked,) = when_any(may, functools.partial(_blocks, pixel, drawn, own, point, origin, to), [blocked])
    return logical_not(blocked)


def _blocks(
    pixel: Pixel, drawn: Drawn, own: list[Scalar], point: Vec, origin: Vec, to: Vec, c: list[Mask]
) -> list[Mask]:
    """Return whether a shape is between a point and a light at `origin`; `to` is the vector from the point to the
    light.

    own: the shape's numbers in the first view. c: the carry of `when_any`, which is not read.
    """
    shape = drawn.shape
    at = 4 if shape == GeomType.SPHERE else 0
    start, turn = own[at : at + 3], own[at + 3 : at + 12]
    v, way = mat_vec(turn, to), [0.0, 0.0, -1.0]
    # Rays meet a shape only where they enter it. So one ray goes to the light, and one comes back from it: if the point
    # is inside the shape, only the ray back meets it; if the light is, only the ray to the light does.
    there, back = ([0.0, 0.0, -x * v[0], 0.0, 0.0, -x * v[1], 0.0, 0.0, -x * v[2]] for x in (1.0, -1.0))
    from_here, from_light = (add(start, mat_vec(turn, x)) for x in (point, origin))
    if drawn.tree:
        return [enter(drawn.tree, pixel.meshes, [*from_here, *there], way, CLEAR, 1.0)[1] >= 0.0]
    if shape == GeomType.PLANE:
        t = Kind(*KINDS[shape]).enter([*from_here, *there, own[12], own[13]], way)
        return [logical_and(t > 0.0, t < 1.0)]
    size = [1.0 / own[16], own[12]] if shape == GeomType.CAPSULE else [1.0, 1.0, 1.0]
    kind = Kind(*KINDS[GeomType.ELLIPSOID if shape == GeomType.SPHERE else shape])
    met = []
    for begin, along in ((from_here, there), (from_light, back)):
        t = kind.enter(kind.numbers(size, begin, along), way)
        met.append(logical_and(t > 0.0, t < 1.0))
    return [logical_or(*met)]


@dataclass
class Hit:
    """What a pixel's ray meets first, in a view of its own.

    depth: metres along the camera's axis. which: the number of what is met in `Scene.drawn`, as a scalar. triangle: of
    a mesh. among: the numbers of all that could be met. point: where, in the camera's axes.
    """

    pixel: Pixel
    view: View
    depth: Scalar
    which: Scalar
    triangle: Scalar
    among: Sequence[int]

    def __post_init__(self) -> None:
        self.point = scale(self.pixel.way, self.depth)


def _shaded(hit: Hit, open_: Sequence[Mask] | None) -> list[Scalar]:
    """Return the colour of what is met. open_: which lights with shadows reach it; None: all of them do."""
    drawn, groups = hit.pixel.scene.drawn, hit.pixel.scene.groups(open_ is not None)
    planes, found = _planes(hit, groups)
    if any(drawn[k].surface and drawn[k].shape != GeomType.PLANE for k in hit.among):
        texture, light = when_any(logical_not(planes), lambda c: _solids(hit, groups), found)
    else:
        texture, light = found
    total, *others = light
    for mask, more in zip(open_ or (), others, strict=True):
        total = [a + select(mask, b, 0.0) for a, b in zip(total, more, strict=True)]
    return [minimum(a * b, 1.0) for a, b in zip(total, texture, strict=True)]


def _planes(hit: Hit, groups: list[list[int]]) -> tuple[Mask, list[Any]]:
    """Return whether a plane is met, its texture (3,), and the light of each group that it reflects, (3,) each."""
    pixel, view, depth = hit.pixel, hit.view, hit.depth
    scene, way = pixel.scene, pixel.way
    planes: Mask = False
    found: list[Any] = [[1.0] * 3, [[0.0] * 3 for _ in groups]]
    for k in (k for k in hit.among if not scene.drawn[k].bounded):
        drawn, own, mine = scene.drawn[k], view.shapes[k][1], _is(hit.which, k)
        planes = logical_or(planes, mine)

        def of_plane(c: list[Any], k: int = k, drawn: Drawn = drawn, own: list[Scalar] = own) -> list[Any]:
            at, out, turn = kind_of(pixel.m, drawn).touch(own, way, depth)
            kept, glints = view.kept.get(k, ()), scene.glints(drawn)
            full = functools.partial(_plane_light, pixel, view, k, own, at, groups)
            if drawn.cells == FOUR and len(kept) == 27 * len(groups):
                light = _between_corners(own, at, kept, groups)
            elif glints is not None and len(kept) == 3 * len(groups) + 4 * len(glints):
                even = [list(kept[3 * g : 3 * g + 3]) for g in range(len(groups))]
                shines: Mask = False
                for i, cosine in enumerate(glints.values()):
                    *middle, wide = kept[3 * len(groups) + 4 * i :][:4]
                    shines = logical_or(shines, (dot(middle, way) - cosine) * depth + wide >= 0.0)
                light = when_any(shines, lambda c: full(), even)
            else:
                light = full()
            return [_texture(pixel, drawn, own, view.laid.get(k, ()), at, out, turn, depth), light]

        found = when_any(mine, of_plane, found)
    return planes, found


def _solids(hit: Hit, groups: list[list[int]]) -> list[Any]:
    """Return the texture and the light of what is met unless it is a plane, in the form of `_planes`.

    Shapes that are alike share code, for which the numbers of the one met are selected first.
    """
    scene = hit.pixel.scene
    surfaces = [x.surface for x in map(scene.drawn.__getitem__, hit.among) if x.surface and x.shape != GeomType.PLANE]
    glosses = [{_gloss(x)[k] for x in surfaces} for k in range(3)]
    same = {k: next(iter(values)) for k, values in enumerate(glosses) if len(values) == 1}  # known beforehand
    alike: dict[Any, list[int]] = {}
    for k in (k for k in hit.among if scene.drawn[k].bounded):
        x = scene.drawn[k]
        one = x.tree is not None or x.shape == GeomType.HFIELD
        alike.setdefault(k if one else (x.shape, x.surface and (x.surface.texture, x.surface.uniform)), []).append(k)
    met: list[Any] = [[0.0, 0.0, 1.0], [0.0] * 3, 0.0, 0.0, 0.0, [1.0] * 3]  # normal, rgb, gloss, texture
    for group in alike.values():
        there = True if len(alike) == 1 else logical_or(False, *(_is(hit.which, k) for k in group))
        met = when_any(there, functools.partial(_alike, hit, group), met)
    normal, rgb, *gloss, texture = met
    gloss = [same.get(k, x) for k, x in enumerate(gloss)]
    return [texture, thrown_back(scene.lights, hit.view.lights, groups, hit.point, normal, rgb, gloss)]


def _alike(hit: Hit, group: list[int], c: list[Any]) -> list[Any]:
    """Return normal (3,), rgb (3,), the three numbers of `_gloss` and texture (3,) of the one met in a group."""
    pixel, view, depth = hit.pixel, hit.view, hit.depth
    drawn, own = pixel.scene.drawn[group[0]], view.shapes[group[0]][1]
    surface = drawn.surface
    assert surface is not None
    colours: list[Any] = [view.mixed.get(group[0], list(surface.rgba[:3])), *_gloss(surface)]
    if len(group) > 1:  # choose the numbers first
        chosen: list[Any] = [[0.0] * len(own), [0.0] * 3, 0.0, 0.0, 0.0]
        for k in group:
            other = pixel.scene.drawn[k].surface
            assert other is not None
            its = [list(view.shapes[k][1]), view.mixed.get(k, list(other.rgba[:3])), *_gloss(other)]
            chosen = when_any(_is(hit.which, k), functools.partial(_always, its), chosen)
        own, *colours = chosen
    if drawn.tree:
        turn: Vec = own[3:12]
        met = spot(drawn.tree, pixel.meshes, own, pixel.way, depth, hit.triangle)
        out: Vec = met.normal
        texture: list[Scalar] = [1.0] * 3
        if surface.texture:
            moved = _moved(turn, met.flat, pixel.way, depth, pixel.step)
            texture = _on_mesh(pixel, drawn.tree, surface, met, hit.triangle, moved)
    else:
        at, out, turn = kind_of(pixel.m, drawn).touch(own, pixel.way, depth)
        texture = _texture(pixel, drawn, own, (), at, out, turn, depth)
    return [_unit(mat_vec(transpose(turn), out)), *colours, texture]


def _always(x: list[Any], _: list[Any]) -> list[Any]:
    return x


def _texture(
    pixel: Pixel, drawn: Drawn, own: list[Scalar], lies: Sequence[Scalar], at: Vec, out: Vec, turn: Vec, depth: Scalar
) -> list[Scalar]:
    """Return the colour of a shape's texture, (3,), at a point as `Kind.touch` gives it; 1 without a texture.

    lies: how a flat texture lies on a plane.
    """
    surface = drawn.surface
    if surface is None or not surface.texture:
        return [1.0] * 3
    scales, sizes = _scales(drawn.shape, own, turn, surface)
    over = None if drawn.bounded else (-1.0 / own[2]) * depth  # a plane's depth is already divided by the same
    moved = [scale_all(v, scales) for v in _moved(turn, out, pixel.way, depth, pixel.step, over)]
    return textured(pixel.texels, surface, lies or along_z(surface), at, sizes, moved)


def _on_mesh(
    pixel: Pixel, tree: Tree, surface: Surface, found: Spot, triangle: Scalar, moved: Sequence[Vec]
) -> list[Scalar]:
    """Return the colour of a texture at a point of a mesh: if the mesh has texture coordinates, where these say."""
    if tree.places < 0:
        return textured(pixel.texels, surface, along_z(surface), found.at, surface.sizes, moved)
    place, change = texture_place(tree, pixel.meshes, found, triangle, moved)
    place, *change = (scale_all(v, by_coordinates(surface)) for v in (place, *change))
    return flat(pixel.texels, surface, place, change)


def scale_all(v: Vec, by: Vec) -> list[Scalar]:
    return [x * y for x, y in zip(v, by, strict=True)]


def _between_corners(own: list[Scalar], at: Vec, kept: Sequence[Scalar], groups: list[list[int]]) -> list[list[Scalar]]:
    """Return what a plane of four cells reflects: interpolated between the three corners about the point."""
    (x, w), (y, u) = (
        (at[k] >= 0.0, absolute(at[k]) * over) for k, over in enumerate(own[14:16])
    )  # which cells, and how far from the middle
    w, u = (select(positive, share, 1.0 - share) for positive, share in ((x, w), (y, u)))  # from the cell's low corner
    upper = w + u > 1.0
    shares = {
        (0, 0): select(upper, 0.0, 1.0 - w - u),
        (1, 0): select(upper, 1.0 - u, w),
        (0, 1): select(upper, 1.0 - w, u),
        (1, 1): select(upper, w + u - 1.0, 0.0),
    }
    found: list[list[Scalar]] = [[0.0] * 3 for _ in groups]
    for right, top in shares:  # the cells: the pixels of a vector are in one or two of them

        def of_cell(c: list[list[Scalar]], right: int = right, top: int = top) -> list[list[Scalar]]:
            total: list[list[Scalar]] = [[0.0] * 3 for _ in groups]
            for (i, j), share in shares.items():
                for g in range(len(groups)):
                    for channel in range(3):
                        corner = kept[_place(i + right, j + top, g, channel)]
                        total[g][channel] = total[g][channel] + share * corner
            return total

        here = logical_and(x if right else logical_not(x), y if top else logical_not(y))
        found = when_any(here, of_cell, found)
    return found


def _place(i: int, j: int, group: int, channel: int) -> int:
    """Return where the light of a corner is among those of a plane: see `views.corner_lights`."""
    return 27 * group + 3 * (3 * j + i) + channel


def _plane_light(
    pixel: Pixel, view: View, k: int, own: list[Scalar], at: Vec, groups: list[list[int]]
) -> list[list[Scalar]]:
    """Return what plane k reflects: the light at three corners about the point, weighted by how near they are."""
    start, turn, halves = own[:3], own[3:12], own[12:14]
    back = transpose(turn)
    normal = turn[6:9]
    scene, drawn = pixel.scene, pixel.scene.drawn[k]
    surface = drawn.surface
    assert surface is not None
    rgb = view.mixed.get(k, list(surface.rgba[:3]))

    def of(place: Vec) -> list[list[Scalar]]:
        point = mat_vec(back, sub(place, start))
        return thrown_back(scene.lights, view.lights, groups, point, normal, rgb, _gloss(surface))

    cells = cells_of(scene, drawn, halves)
    if drawn.cells != FINE:
        return _between(of, at, halves, cells, len(groups))
    high = is_high(start, cells)
    light = when_any(high, lambda c: of(at), [[0.0] * 3 for _ in groups])
    return when_any(logical_not(high), lambda c: _between(of, at, halves, cells, len(groups)), light)


def _between(
    of: Callable[[Vec], list[list[Scalar]]], at: Vec, halves: Vec, cells: list[Scalar], groups: int
) -> list[list[Scalar]]:
    """Interpolate at a point of a plane between what `of` returns at the three corners of its cell about the point.

    groups: how many colours `of` returns.
    """
    low, high, weights = [], [], []
    for k in (0, 1):
        half, cell = halves[k], cells[k]
        first = floor(at[k] / cell) * cell
        low.append(maximum(first, -1.0 * half))
        high.append(minimum(first + cell, half))
        weights.append(clip((at[k] - low[k]) / maximum(high[k] - low[k], 1e-12), 0.0, 1.0))
    upper = weights[0] + weights[1] > 1.0
    one = [select(upper, b, a) for a, b in zip(low, high, strict=True)]
    two = [select(upper, a, b) for a, b in zip(low, high, strict=True)]
    shares = [select(upper, 1.0 - w, w) for w in weights]

    def corner(i: Any, c: list[list[Scalar]]) -> list[list[Scalar]]:
        n = number(i)
        is_x, is_y = absolute(n - 1.0) < 0.5, absolute(n - 2.0) < 0.5
        share = select(is_x, shares[0], select(is_y, shares[1], 1.0 - shares[0] - shares[1]))
        light = of([select(is_x, two[0], one[0]), select(is_y, two[1], one[1]), 0.0])
        return [[a + share * b for a, b in zip(x, y, strict=True)] for x, y in zip(c, light, strict=True)]

    return repeat(3, corner, [[0.0] * 3 for _ in range(groups)])


def _gloss(surface: Surface) -> tuple[float, float, float]:
    return surface.specular, surface.shininess, surface.emission


def _scales(shape: int, own: list[Scalar], turn: Vec, surface: Surface) -> tuple[list[Scalar], list[Scalar]]:
    """Return the factors that scale the axes of `turn` to those of the unit shape, and the shape's sizes."""
    if shape == GeomType.CAPSULE:
        scales = [own[16], own[16], own[17]]
        return scales, [1.0 / x for x in scales]
    if shape == GeomType.PLANE:
        return [1.0] * 3, [*own[12:14], 1.0]
    if shape == GeomType.HFIELD:
        return [1.0] * 3, list(surface.sizes)
    return [1.0] * 3, [1.0 / sqrt(dot(turn[3 * k : 3 * k + 3], turn[3 * k : 3 * k + 3])) for k in range(3)]


def _moved(
    turn: Vec, out: Vec, way: Vec, depth: Scalar, step: tuple[float, float], over: Scalar | None = None
) -> list[list[Scalar]]:
    """Return by how much the point that is seen moves from a pixel to the next, along both axes of the picture.

    over: 1 / (the ray's component along `out`), if it is known.
    """
    v = turned(turn, way)
    if over is None:
        facing = dot(out, v)
        over = 1.0 / select(absolute(facing) > 1e-9, facing, 1e-9)
    moves = []
    for k in (0, 1):
        dv = [turn[k] * step[k], turn[3 + k] * step[k], turn[6 + k] * step[k]]
        slip = dot(out, dv) * over
        moves.append([depth * (a - b * slip) for a, b in zip(dv, v, strict=True)])
    return moves


def _unit(v: Vec) -> list[Scalar]:
    over = 1.0 / sqrt(maximum(dot(v, v), 1e-30))
    return [x * over for x in v]
