"""Lights: where they are, and how much of their light a surface throws back. mj_camlight, and OpenGL's equation of
lighting.

Lights are as MuJoCo hands them to OpenGL: directional, and spots that fade with distance and away from their axis.
Positions and directions are in a camera's axes, with the camera at the origin.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import mujoco

from ..compiler.scalar import Mask, Scalar, exp, log_of_normal, logical_and, maximum, minimum, select, sqrt
from ..physics.algebra.spatial import Vec, add, dot, sub
from ..physics.model.data import Data
from ..physics.model.model import Model
from .parameters import shown

_MODES = mujoco.mjtCamLight
_TYPES = mujoco.mjtLightType
MOST = 8  # lights of OpenGL
WIDEST = 90.0  # the largest cutoff of a spot in OpenGL, degrees
FAINT = 0.3  # the ambient light that MuJoCo adds where there is no other


@dataclass(frozen=True)
class Light:
    """A light of the model, or the camera's own (`number` -1).

    `cosine` is that of a spot's cutoff; a light without one has -2. Colours are red, green and blue. Depending on
    `mode`, `pos` and `dir` are in the body's frame, or as at qpos0: an offset from the body, and a direction in the
    world.
    """

    number: int
    directional: bool
    ambient: tuple[float, ...]
    diffuse: tuple[float, ...]
    specular: tuple[float, ...]
    attenuation: tuple[float, ...] = (1.0, 0.0, 0.0)
    exponent: float = 0.0
    cosine: float = -2.0
    shadows: bool = False
    mode: int = 0
    body: int = 0
    target: int = -1
    pos: tuple[float, ...] = (0.0, 0.0, 0.0)
    dir: tuple[float, ...] = (0.0, 0.0, -1.0)


def read(mjm: mujoco.MjModel, listed: Sequence[mujoco.MjvLight]) -> tuple[Light, ...]:
    """Return the lights that shine of those that MuJoCo lists for a scene: the first eight, as OpenGL has no more.

    Lights of type point and image do not shine, as in MuJoCo's renderer. If none does, everything is faintly lit.
    """
    listed = [x for x in listed if x.type in (_TYPES.mjLIGHT_DIRECTIONAL, _TYPES.mjLIGHT_SPOT)]
    if not listed:
        return (Light(-1, True, (FAINT,) * 3, (0.0,) * 3, (0.0,) * 3),)
    out = []
    tracks = {_MODES.mjCAMLIGHT_TRACK: mjm.light_pos0, _MODES.mjCAMLIGHT_TRACKCOM: mjm.light_poscom0}
    for x in listed[:MOST]:
        k = -1 if x.headlight else int(x.id)
        directional = x.type == _TYPES.mjLIGHT_DIRECTIONAL
        light = Light(k, directional, _tuple(x.ambient), _tuple(x.diffuse), _tuple(x.specular))
        if not directional:
            light = replace(light, attenuation=_tuple(x.attenuation))
            if x.cutoff <= WIDEST:  # else it shines in all directions alike
                light = replace(light, exponent=float(x.exponent), cosine=math.cos(math.radians(float(x.cutoff))))
        if k >= 0:
            mode = _MODES(int(mjm.light_mode[k]))
            light = replace(
                light, shadows=bool(x.castshadow), mode=int(mode), body=int(mjm.light_bodyid[k]),
                target=int(mjm.light_targetbodyid[k]), pos=_tuple(tracks.get(mode, mjm.light_pos)[k]),
                dir=_tuple((mjm.light_dir0 if mode in tracks else mjm.light_dir)[k]),
            )  # fmt: skip
        out.append(light)
    return tuple(out)


def _tuple(x: Sequence[float]) -> tuple[float, ...]:
    return tuple(map(float, x))


def pose(m: Model, d: Data, light: Light, varied: Collection[str]) -> tuple[Vec, Vec]:
    """Return a light's position in the world, and which way it shines. varied: see `Scene`."""
    if light.mode in (_MODES.mjCAMLIGHT_TRACK, _MODES.mjCAMLIGHT_TRACKCOM):
        if {"light_pos", "light_dir"}.isdisjoint(varied):
            return add(_followed(d, light), light.pos), light.dir
        start = Data(m, qpos=list(m.qpos0))
        pos, way = _on_body(m, start, light)
        return add(_followed(d, light), sub(pos, _followed(start, light))), way
    pos, way = _on_body(m, d, light)
    if light.mode == _MODES.mjCAMLIGHT_FIXED or light.target < 0:
        return pos, way
    at = d.xpos[light.target] if light.mode == _MODES.mjCAMLIGHT_TARGETBODY else d.subtree_com[light.target]
    return pos, sub(at, pos)


def _followed(d: Data, light: Light) -> Vec:
    """Return what a light that tracks a body follows."""
    return d.xpos[light.body] if light.mode == _MODES.mjCAMLIGHT_TRACK else d.subtree_com[light.body]


def _on_body(m: Model, d: Data, light: Light) -> tuple[Vec, Vec]:
    """Return position and direction of a light that is fixed to its body."""
    frame, row = d.frame[light.body], light.number
    place = add(d.origin[m.body_originid[light.body]], frame.point(shown(m, "light_pos")[row]))
    return place, frame.direction(shown(m, "light_dir")[row])


def lit(
    light: Light, numbers: Vec, point: Vec, normal: Vec, specular: Scalar, shininess: Scalar
) -> tuple[list[Scalar], list[Scalar]]:
    """Return a light's effect at a point, (3,) each: factors of the surface's colour, and the highlight that is added.

    normal: of length 1. specular, shininess: the material's, from 0 to 1.
    """
    pos, way, diffuse = numbers[:3], numbers[3:6], numbers[6:] or light.diffuse
    strength: Scalar = 1.0
    if light.directional:
        to = [-1.0 * x for x in way]
    else:
        to = sub(pos, point)
        distance = sqrt(maximum(dot(to, to), 1e-20))
        to = [x / distance for x in to]
        a, b, c = light.attenuation
        along = -1.0 * dot(to, way)
        inside = along >= light.cosine
        faded = _power(along, light.exponent) / (a + distance * (b + distance * c))
        strength = select(inside, faded, 0.0)
    facing = dot(normal, to)
    colour = [strength * (x + y * maximum(facing, 0.0)) for x, y in zip(light.ambient, diffuse, strict=True)]
    if not any(light.specular) or (isinstance(specular, float) and specular == 0.0):
        return colour, [0.0, 0.0, 0.0]
    half = sub(to, _unit(point))
    turned = dot(normal, half)
    shines: Mask = logical_and(facing > 0.0, turned > 0.0)
    square = turned * turned / maximum(dot(half, half), 1e-20)  # of the cosine, which itself would need a root
    shine = strength * specular * select(shines, _power(square, shininess * 64.0), 0.0)
    return colour, [shine * x for x in light.specular]


def thrown_back(
    lights: Sequence[Light],
    numbers: Sequence[Vec],
    groups: Sequence[Sequence[int]],
    point: Vec,
    normal: Vec,
    rgb: Vec,
    gloss: Sequence[Scalar],
) -> list[list[Scalar]]:
    """Return what a surface reflects of each group of lights, (3,) each. gloss: specular, shininess, emission."""
    out, (specular, shininess, emission) = [], gloss
    for g, group in enumerate(groups):
        total = [emission * c if g == 0 else 0.0 for c in rgb]
        for k in group:
            colours, shine = lit(lights[k], numbers[k], point, normal, specular, shininess)
            total = [t + c * x + s for t, c, x, s in zip(total, rgb, colours, shine, strict=True)]
        out.append([minimum(x, 1.0) for x in total])
    return out


def _unit(x: Vec) -> list[Scalar]:
    over = 1.0 / sqrt(maximum(dot(x, x), 1e-20))
    return [over * y for y in x]


def _power(x: Scalar, p: Scalar) -> Scalar:
    """Raise a number from about 0 to 1 to a power. Whole powers are products, and never less than 2e-9.

    Smaller values are not seen, and processors are slow with products so small that they are subnormal.
    """
    if not isinstance(p, float) or p != int(p):
        return exp(p * log_of_normal(maximum(x, 1e-12)))
    out: Scalar = 1.0
    n = int(p)
    x = maximum(x, math.exp(-20.0 / max(n, 1)))
    while n:
        out = out * x if n % 2 else out
        x, n = x * x, n // 2
    return out
