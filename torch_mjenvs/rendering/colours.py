"""Colours: what a pixel shows, as OpenGL's fixed pipeline draws it for MuJoCo.

That is the colour of what its ray meets first (`shading`), with what is seen in mirrors, and through transparent shapes
and haze; or the sky.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ..compiler.control import repeat, when_any
from ..compiler.scalar import Mask, Scalar, logical_and, logical_not, logical_or, maximum, minimum, select, sqrt
from ..physics.algebra.spatial import Vec, mat_vec, scale
from ..physics.model.enums import GeomType
from .pixel import Hit, Pixel, is_met
from .scene import Haze
from .shading import shaded
from .shadows import reached
from .shapes import NOWHERE, turned
from .surfaces import Surface
from .textures import Texture, sample_cube
from .views import View, look


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
        open_ = [reached(pixel, k, point, which) for k in range(len(scene.casting))]
        return shaded(Hit(pixel, view, depth, which, triangle, opaque), open_)

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
                image >= 0.0, lambda c: shaded(Hit(pixel, other, far, image, part, others), None), [0.0, 0.0, 0.0]
            )
            there = _through(
                pixel, other, there, [i for i in clear if i != k], [i for i in planes if i != k], depth, far
            )
            return [minimum(a + surface.reflectance * b, 1.0) for a, b in zip(c, there, strict=True)]

        above = view.shapes[k][1][2] > 0.0
        seen = when_any(logical_and(is_met(which, k), above, logical_not(another)), reflect, seen)
        another = logical_or(another, above)
    if scene.haze:
        seen = _veiled(pixel, scene.haze, seen, depth)
    return _through(pixel, view, seen, clear, planes, near, depth)


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
            colour = shaded(Hit(pixel, view, depth, which, triangle, clear), None)
            alpha: Scalar = 0.0
            for k in clear:
                drawn = pixel.scene.drawn[k]
                assert drawn.surface is not None
                once, behind = (1.0 - x * drawn.surface.rgba[3] for x in (1.0, 0.3))
                twice: Scalar = 1.0 - once**2
                if drawn.shape == GeomType.PLANE:
                    twice = select(pixel.views[0].shapes[k][1][2] > 0.0, twice, 1.0 - behind**2)
                alpha = select(is_met(which, k), twice, alpha)
            return [*(x + left * alpha * y for x, y in zip(shown, colour, strict=True)), left * (1.0 - alpha)]

        new = when_any(met, add_layer, [*shown, left])
        return [*new, select(met, depth * (1.0 + 1e-6), NOWHERE)]

    *shown, left, _ = repeat(len(clear), layer, [0.0, 0.0, 0.0, 1.0, near])
    return [minimum(x + left * y, 1.0) for x, y in zip(shown, behind, strict=True)]
