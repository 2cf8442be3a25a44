"""Surfaces: the colours of what is drawn, as MuJoCo hands them to OpenGL, and where a texture lies on a shape."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import mujoco

from ..compiler.scalar import Scalar, select
from ..physics.algebra.spatial import Vec
from ..physics.model.model import UnsupportedModel
from . import textures
from .shapes import NOWHERE
from .textures import CUBE, Texture


@dataclass(frozen=True)
class Surface:
    """The material of what is drawn. Colours are from 0 to 1.

    `repeat` is how often a flat texture repeats along x and y: on the whole of it, or on two metres if `uniform`.
    `spacing` is that of a plane's lines, metres. `strained` is the colour that a tendon takes on where a limit holds
    it, by the limit's impedance; empty: it keeps its own.
    """

    rgba: tuple[float, ...]
    emission: float
    specular: float
    shininess: float
    reflectance: float
    texture: Texture | None
    repeat: tuple[float, ...]
    uniform: bool
    spacing: float
    strained: tuple[float, ...] = ()


def read(mjm: mujoco.MjModel, geom: mujoco.MjvGeom, flat: bool, known: Sequence[Texture], name: str) -> Surface:
    """Return the surface of what MuJoCo lists. Raises UnsupportedModel for a flat texture on a shape that cannot have
    one.

    flat: whether the shape can, as planes and meshes with texture coordinates can.
    """
    k = int(geom.matid)
    number = -1 if k < 0 else int(mjm.mat_texid[k, mujoco.mjtTextureRole.mjTEXROLE_RGB])
    texture = known[number] if number >= 0 else None
    if texture is not None and texture.faces != CUBE and not flat:
        raise UnsupportedModel(
            f"pictures do not draw the texture of {name}: textures of type 2d are for planes, and meshes with texcoord"
        )
    return Surface(
        tuple(map(float, geom.rgba)), float(geom.emission), float(geom.specular), float(geom.shininess),
        float(geom.reflectance), texture, tuple(map(float, geom.texrepeat)), bool(geom.texuniform),
        float(geom.size[2]),
    )  # fmt: skip


def laid(surface: Surface, halves: Vec) -> list[Scalar]:
    """Return how a flat texture lies on a plane, as a, b, c, d: the point x, y is at s = a x + c, t = b y + d.

    halves: the plane's sizes, or NOWHERE.
    """
    scales: list[Scalar] = []
    offsets: list[Scalar] = []
    for half, times, sign in zip(halves, surface.repeat, (1.0, -1.0), strict=True):
        count, endless = 0.5 * times, half >= NOWHERE
        scales.append(sign * (count if surface.uniform else select(endless, count, count / half)))
        offsets.append(select(endless, 0.5, count * half if surface.uniform else count))
    return [*scales, *offsets]


def textured(
    texels: Any, surface: Surface, lies: Sequence[Scalar], at: Vec, sizes: Vec, moved: Sequence[Vec]
) -> list[Scalar]:
    """Return what a texture shows at a point: red, green and blue, by which the colour is multiplied.

    at: as `Kind.touch` has it. sizes: of the shape. moved: by how much `at` changes from a pixel to the next one, along
    both axes of the picture. lies: of a flat texture, as `laid` has it.
    """
    texture = surface.texture
    if texture is None:
        return [1.0, 1.0, 1.0]
    if texture.faces == CUBE:
        if surface.uniform:
            at, *moved = ([x * size for x, size in zip(v, sizes, strict=True)] for v in (at, *moved))
        return textures.sample_cube(texels, texture, at, moved)
    place = [lies[k] * at[k] + lies[2 + k] for k in (0, 1)]
    grown = [lies[0] * texture.width, lies[1] * texture.height]
    return textures.sample(texels, texture, place, [[x * y for x, y in zip(grown, v, strict=False)] for v in moved])
