"""Surfaces: the colours of what is drawn, as MuJoCo hands them to OpenGL, and where a texture lies on a shape."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import mujoco

from ..compiler.scalar import Mask, Scalar, absolute, logical_and, maximum, select
from ..physics.algebra.spatial import Vec, choose
from ..physics.model.enums import GeomType
from ..physics.model.model import Model, UnsupportedModel
from . import textures
from .parameters import UNSET, shown
from .shapes import NOWHERE
from .textures import CUBE, Texture

_FLAT = (GeomType.PLANE, GeomType.HFIELD, GeomType.MESH)  # shapes that may have textures of type 2d


@dataclass(frozen=True)
class Surface:
    """The material of what is drawn. Colours are from 0 to 1.

    `repeat` is how often a flat texture repeats along x and y: on the whole shape, or on two metres if `uniform`.
    `sizes` are the shape's own, metres: of a plane half its sides and the spacing of its lines, of a mesh half the box
    around it. `strained` is the colour that a tendon takes on where a limit holds it, by the limit's impedance; empty:
    it keeps its own.
    """

    rgba: tuple[float, ...]
    emission: float
    specular: float
    shininess: float
    reflectance: float
    texture: Texture | None
    repeat: tuple[float, ...]
    uniform: bool
    sizes: tuple[float, ...]
    strained: tuple[float, ...] = ()

    @property
    def gloss(self) -> tuple[float, float, float]:
        return self.specular, self.shininess, self.emission


@dataclass(frozen=True)
class Paint:
    """Where a colour comes from: from its row of a field such as geom_rgba, or, where this is UNSET, from its material.

    own, of_material: the two in the model. material: its number, -1 if there is none.
    """

    field: str
    row: int
    own: tuple[float, ...]
    material: int
    of_material: tuple[float, ...]

    def varies(self, varied: Collection[str]) -> bool:
        """Return whether the colour varies if these fields do."""
        return self.field in varied or (self.material >= 0 and "mat_rgba" in varied)

    def rgba(self, m: Model, varied: Collection[str]) -> list[Scalar]:
        """Return the colour in a world whose model has these fields for itself. Negative numbers count as 0."""
        own: Vec = shown(m, self.field)[self.row] if self.field in varied else self.own
        if self.material >= 0:
            unset = logical_and(*(absolute(x - y) <= 0.0 for x, y in zip(own, UNSET, strict=True)))
            of_material = shown(m, "mat_rgba")[self.material] if "mat_rgba" in varied else self.of_material
            own = choose(unset, of_material, own)
        return [maximum(x, 0.0) for x in own]

    def is_seen(self, m: Model, varied: Collection[str]) -> Mask:
        """Return whether the colour is as see-through as the model's: see `parameters.ALPHA`."""
        usual = self.of_material if self.material >= 0 and self.own == UNSET else self.own
        return absolute(self.rgba(m, varied)[3] - usual[3]) <= 1e-5


def paint(mjm: mujoco.MjModel, kind: str, k: int) -> Paint:
    """Return where the colour of the geom, site or tendon of this number comes from."""
    field, material = f"{kind}_rgba", int(getattr(mjm, f"{kind}_matid")[k])
    of_material = mjm.mat_rgba[material].tolist() if material >= 0 else ()
    return Paint(field, k, tuple(getattr(mjm, field)[k].tolist()), material, tuple(of_material))


def read(mjm: mujoco.MjModel, geom: mujoco.MjvGeom, known: Sequence[Texture], name: str) -> Surface:
    """Return the surface of what MuJoCo lists. Raises UnsupportedModel for a texture that would look otherwise."""
    k = int(geom.matid)
    number = -1 if k < 0 else int(mjm.mat_texid[k, mujoco.mjtTextureRole.mjTEXROLE_RGB])
    texture = known[number] if number >= 0 else None
    if texture is not None and (reason := _not_drawn(mjm, number, texture, geom)):
        raise UnsupportedModel(f"pictures do not draw the texture of {name}: {reason}")
    return Surface(
        tuple(map(float, geom.rgba)), float(geom.emission), float(geom.specular), float(geom.shininess),
        float(geom.reflectance), texture, tuple(map(float, geom.texrepeat)), bool(geom.texuniform),
        tuple(map(float, geom.size)),
    )  # fmt: skip


def _not_drawn(mjm: mujoco.MjModel, number: int, texture: Texture, geom: mujoco.MjvGeom) -> str:
    """Return why a texture would not look as in MuJoCo on a shape; empty if it would."""
    if mjm.tex_nchannel[number] == 4:
        start, size = int(mjm.tex_adr[number]), 4 * int(mjm.tex_height[number]) * int(mjm.tex_width[number])
        if (mjm.tex_data[start + 3 : start + size : 4] < 255).any():
            return 'parts of it are transparent: give it nchannel="3"'
    if texture.faces == CUBE:  # MuJoCo has OpenGL show a flat one there, whichever it had last
        return "a mesh with texcoord needs one of type 2d" if geom.texcoord else ""
    if geom.type not in _FLAT:
        return "textures of type 2d are for planes, meshes and height fields"
    if geom.type == GeomType.PLANE and (geom.size[0] > 0) != (geom.size[1] > 0):
        return "the plane is endless along one axis only"
    return ""


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


def along_z(surface: Surface) -> list[Scalar]:
    """Return how a flat texture lies on a height field or a mesh without texture coordinates, as `laid` does.

    It goes through the shape along z.
    """
    over = [1.0 if surface.uniform or x <= 0.0 else 1.0 / x for x in surface.sizes]
    return [0.5 * surface.repeat[0] * over[0], -0.5 * surface.repeat[1] * over[1], -0.5, -0.5]


def by_coordinates(surface: Surface) -> list[float]:
    """Return by how much a flat texture's coordinates are multiplied on a mesh that has some."""
    return [n * (x if surface.uniform else 1.0) for n, x in zip(surface.repeat, surface.sizes, strict=False)]


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
    return flat(texels, surface, place, [[lies[k] * v[k] for k in (0, 1)] for v in moved])


def flat(texels: Any, surface: Surface, place: Sequence[Scalar], change: Sequence[Sequence[Scalar]]) -> list[Scalar]:
    """Return what a flat texture shows at s and t. change: by how much they change from a pixel to the next one."""
    texture = surface.texture
    assert texture is not None
    size = (float(texture.width), float(texture.height))
    return textures.sample(texels, texture, place, [[x * n for x, n in zip(v, size, strict=True)] for v in change])
