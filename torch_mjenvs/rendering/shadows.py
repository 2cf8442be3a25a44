"""Shadows: whether a light reaches the point that a pixel shows, by rays between the two."""

from __future__ import annotations

import functools

from ..compiler.control import when_any
from ..compiler.scalar import Mask, Scalar, logical_and, logical_not, logical_or, maximum
from ..physics.algebra.spatial import Vec, add, dot, mat_vec, sub, transpose
from ..physics.model.enums import GeomType
from .meshes import enter
from .pixel import Pixel, is_met
from .scene import Drawn
from .shapes import KINDS, Kind

CLEAR = 1e-5  # the share of a ray's way to a light that is skipped, so that it does not meet the mesh where it begins


def reached(pixel: Pixel, j: int, point: Vec, which: Scalar) -> Mask:
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
            may = logical_and(may, logical_not(is_met(which, k)))

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
