"""Textures: how they lie in memory, and what a point of a surface shows of them.

All textures of a model are one row of numbers, a texel each: red + 256 green + 65536 blue, which float32 holds exactly.
Behind each texture come its smaller copies (a mipmap), each half as wide, from which what is far away is read. A texel
is looked up between its four neighbours, and between the two copies nearest in size to a pixel, as OpenGL does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import mujoco
import numpy as np

from ..compiler.arrays import Table
from ..compiler.control import when_any
from ..compiler.scalar import Scalar, absolute, clip, floor, log, logical_and, maximum, minimum, select

CUBE = 6  # faces, in the order +x, -x, +y, -y, +z, -z


@dataclass(frozen=True)
class Texture:
    """A texture and its copies: `levels` has of each where it begins, its width and its height. A cube has 6 faces."""

    faces: int
    levels: tuple[tuple[int, int, int], ...]


def read(mjm: mujoco.MjModel) -> tuple[tuple[Texture, ...], np.ndarray]:
    """Return the model's textures, and the texels of them all."""
    textures, parts, at = [], [], 0
    for k in range(mjm.ntex):
        height, width, channels = int(mjm.tex_height[k]), int(mjm.tex_width[k]), int(mjm.tex_nchannel[k])
        start = int(mjm.tex_adr[k])
        image = mjm.tex_data[start : start + height * width * channels].reshape(height, width, channels).astype(float)
        image = np.repeat(image, 3, 2) if channels == 1 else image[..., :3]
        faces = 1 if mjm.tex_type[k] == mujoco.mjtTexture.mjTEXTURE_2D else CUBE
        if faces == CUBE and height == width:
            image = np.tile(image, (CUBE, 1, 1))
        stack = image.reshape(faces, -1, width, 3)
        levels = []
        for copy in _copies(stack):
            levels.append((at, copy.shape[2], copy.shape[1]))
            rounded = np.floor(copy + 0.5) @ (1.0, 256.0, 65536.0)
            parts.append(rounded.ravel())
            at += parts[-1].size
        textures.append(Texture(faces, tuple(levels)))
    return tuple(textures), np.concatenate(parts) if parts else np.zeros(1)


def _copies(stack: np.ndarray) -> list[np.ndarray]:
    """Return images (faces, height, width, 3) and their copies down to one texel.

    Each is read from the one before between four texels, as Mesa makes them: of an odd size it leaves texels out.
    """
    out = [stack]
    while max(out[-1].shape[1:3]) > 1:
        out.append(_halved(_halved(out[-1], 1), 2))
    return out


def _halved(images: np.ndarray, axis: int) -> np.ndarray:
    """Return half as many texels along an axis, each between two neighbours."""
    n = images.shape[axis]
    half = max(1, n // 2)
    at = (np.arange(half) + 0.5) * n / half - 0.5
    lower = at.astype(int)
    share = np.expand_dims(at - lower, [k for k in range(images.ndim) if k != axis])
    low, high = (np.take(images, np.minimum(lower + k, n - 1), axis) for k in (0, 1))
    return low * (1.0 - share) + high * share


def sample(texels: Any, texture: Texture, place: Sequence[Scalar], change: Sequence[Sequence[Scalar]]) -> list[Scalar]:
    """Return red, green and blue, from 0 to 1, at s and t of a texture that repeats.

    change: by how much s and t change from a pixel to the next one, along both axes of the picture.
    """
    return _filtered(texels, texture, 0.0, place, change, repeats=True)


def sample_cube(
    texels: Any, texture: Texture, way: Sequence[Scalar], change: Sequence[Sequence[Scalar]]
) -> list[Scalar]:
    """Return the colour of a cube where a way from its centre leaves it. change: of the way, along both axes."""
    size = [absolute(x) for x in way]
    along_x = logical_and(size[0] >= size[1], size[0] >= size[2])
    along_y = size[1] >= size[2]

    def of_face(values: Sequence[Scalar], signs: Sequence[Scalar]) -> list[Scalar]:
        """Return what grows out of the face, along its s and along its t."""
        x, y, z = values
        out = [sign * value for sign, value in zip(signs, values, strict=True)]
        s = select(along_x, -1.0 * signs[0] * z, select(along_y, x, signs[2] * x))
        t = select(along_x, -1.0 * y, select(along_y, signs[1] * z, -1.0 * y))
        return [select(along_x, out[0], select(along_y, out[1], out[2])), s, t]

    signs = [select(x >= 0.0, 1.0, -1.0) for x in way]
    out, s, t = of_face(way, signs)
    over = 1.0 / maximum(out, 1e-12)
    place = [0.5 * s * over + 0.5, 0.5 * t * over + 0.5]
    moved = []
    for step in change:
        d_out, ds, dt = of_face(step, signs)
        moved.append([0.5 * over * (ds - s * over * d_out), 0.5 * over * (dt - t * over * d_out)])
    beyond = [select(x > 0.0, 0.0, 1.0) for x in signs]
    face = select(along_x, beyond[0], select(along_y, 2.0 + beyond[1], 4.0 + beyond[2]))
    return _filtered(texels, texture, face, place, moved, repeats=False)


def _filtered(
    texels: Any,
    texture: Texture,
    face: Scalar,
    place: Sequence[Scalar],
    change: Sequence[Sequence[Scalar]],
    repeats: bool,
) -> list[Scalar]:
    table, last = Table([[float(x) for x in level] for level in texture.levels]), len(texture.levels) - 1
    _, width, height = texture.levels[0]
    squares = [(step[0] * width) * (step[0] * width) + (step[1] * height) * (step[1] * height) for step in change]
    level = clip(log(maximum(maximum(*squares), 1e-12)) * (0.5 / math.log(2.0)), 0.0, float(last))
    below = floor(level)
    colour = _between(texels, table[below], face, place, repeats)

    def smaller(c: list[Scalar]) -> list[Scalar]:
        other = _between(texels, table[below + 1.0], face, place, repeats)
        return [x + (level - below) * (y - x) for x, y in zip(c, other, strict=True)]

    return when_any(level > 0.0, smaller, colour)


def _between(
    texels: Any, level: Sequence[Scalar], face: Scalar, place: Sequence[Scalar], repeats: bool
) -> list[Scalar]:
    """Read a copy between its four nearest texels."""
    start, *size = level
    sides = []
    for x, n in zip(place, size, strict=True):
        at = (x - floor(x) if repeats else x) * n - 0.5
        low = floor(at)
        high = low + 1.0
        if repeats:
            low, high = select(low < 0.0, low + n, low), select(high >= n, high - n, high)
        else:
            low, high = maximum(low, 0.0), minimum(high, n - 1.0)
        sides.append((at - floor(at), low, high))
    (u, left, right), (w, upper, lower) = sides
    first = start + face * (size[0] * size[1])
    rows = []
    for row in (upper, lower):
        one, two = (_colour(texels[first + row * size[0] + column]) for column in (left, right))
        rows.append([x + u * (y - x) for x, y in zip(one, two, strict=True)])
    return [(x + w * (y - x)) * (1.0 / 255.0) for x, y in zip(*rows, strict=True)]


def _colour(texel: Scalar) -> list[Scalar]:
    blue = floor(texel * (1.0 / 65536.0))
    rest = texel - 65536.0 * blue
    green = floor(rest * (1.0 / 256.0))
    return [rest - 256.0 * green, green, blue]
