"""The colour of what a pixel's ray meets.

A surface's colour is the light that it reflects, summed over lights, times its texture. Lights that cast shadows are
added one by one, each where nothing blocks it; each of them is clipped at 1, and so is the sum of all others. Planes
are lit at the corners of the rectangles that MuJoCo makes them of, and colours are interpolated between; everything
else is lit at the point that is seen.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from ..compiler.control import when_any
from ..compiler.scalar import Mask, Scalar, absolute, logical_not, logical_or, maximum, minimum, select, sqrt
from ..physics.algebra.spatial import Vec, dot, mat_vec, transpose
from ..physics.model.enums import GeomType
from .lights import thrown_back
from .meshes import Spot, Tree, spot, texture_place
from .pixel import Hit, Pixel, is_met
from .plane_light import between_corners, plane_light
from .scene import FOUR, Drawn
from .shapes import turned
from .surfaces import Surface, along_z, by_coordinates, flat, textured
from .views import kind_of


def shaded(hit: Hit, open_: Sequence[Mask] | None) -> list[Scalar]:
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
        drawn, own, mine = scene.drawn[k], view.shapes[k][1], is_met(hit.which, k)
        planes = logical_or(planes, mine)

        def of_plane(c: list[Any], k: int = k, drawn: Drawn = drawn, own: list[Scalar] = own) -> list[Any]:
            at, out, turn = kind_of(pixel.m, drawn).touch(own, way, depth)
            kept, glints = view.kept.get(k, ()), scene.glints(drawn)
            full = functools.partial(plane_light, pixel, view, k, own, at, groups)
            if drawn.cells == FOUR and len(kept) == 27 * len(groups):
                light = between_corners(own, at, kept, groups)
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
    glosses = [{x.gloss[k] for x in surfaces} for k in range(3)]
    same = {k: next(iter(values)) for k, values in enumerate(glosses) if len(values) == 1}  # known beforehand
    alike: dict[Any, list[int]] = {}
    for k in (k for k in hit.among if scene.drawn[k].bounded):
        x = scene.drawn[k]
        one = x.tree is not None or x.shape == GeomType.HFIELD
        alike.setdefault(k if one else (x.shape, x.surface and (x.surface.texture, x.surface.uniform)), []).append(k)
    met: list[Any] = [[0.0, 0.0, 1.0], [0.0] * 3, 0.0, 0.0, 0.0, [1.0] * 3]  # normal, rgb, gloss, texture
    for group in alike.values():
        there = True if len(alike) == 1 else logical_or(False, *(is_met(hit.which, k) for k in group))
        met = when_any(there, functools.partial(_alike, hit, group), met)
    normal, rgb, *gloss, texture = met
    gloss = [same.get(k, x) for k, x in enumerate(gloss)]
    return [texture, thrown_back(scene.lights, hit.view.lights, groups, hit.point, normal, rgb, gloss)]


def _alike(hit: Hit, group: list[int], c: list[Any]) -> list[Any]:
    """Return normal (3,), rgb (3,), the three numbers of `Surface.gloss` and texture (3,) of the one met in a group."""
    pixel, view, depth = hit.pixel, hit.view, hit.depth
    drawn, own = pixel.scene.drawn[group[0]], view.shapes[group[0]][1]
    surface = drawn.surface
    assert surface is not None
    colours: list[Any] = [view.mixed.get(group[0], list(surface.rgba[:3])), *surface.gloss]
    if len(group) > 1:  # choose the numbers first
        chosen: list[Any] = [[0.0] * len(own), [0.0] * 3, 0.0, 0.0, 0.0]
        for k in group:
            other = pixel.scene.drawn[k].surface
            assert other is not None
            its = [list(view.shapes[k][1]), view.mixed.get(k, list(other.rgba[:3])), *other.gloss]
            chosen = when_any(is_met(hit.which, k), functools.partial(_always, its), chosen)
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
