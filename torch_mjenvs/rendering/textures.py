"""Textures: how they lie in memory, and what a point of a surface shows of them.

All textures of a model are one row of 32-bit numbers. A colour is found between four texels, so each number has one
channel of a texel and of its three neighbours to the right and below, a byte each: what is read from memory, the most
of a texture's cost, is a number a channel. Grey textures have one channel.
Behind each texture come its smaller copies (a mipmap), each half as wide, from which what is far away is read: between
the two copies nearest in size to a pixel, as OpenGL does.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import mujoco
import numpy as np

from ..compiler.control import when_any
from ..compiler.scalar import Scalar, absolute, clip, floor, logical_and, maximum, select, split_exponent
from ..physics.model.model import UnsupportedModel

CUBE = 6  # faces, in the order +x, -x, +y, -y, +z, -z
MOST = 2**24  # texels of a texture, whose places float32 has to hold


@dataclass(frozen=True)
class Texture:
    """A texture, which begins at `start`, and its copies. A cube has 6 faces, and a flat texture, 1, repeats itself.

    width, height: of a face. levels: how many texels come before each copy. channels: 3, or 1 of a grey one.
    """

    faces: int
    start: int
    channels: int
    width: int
    height: int
    levels: tuple[int, ...]


def read(mjm: mujoco.MjModel) -> tuple[tuple[Texture, ...], np.ndarray]:
    """Return the model's textures, and the numbers of them all. Raises UnsupportedModel for one that is too large."""
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
        if (stack == stack[..., :1]).all():
            stack = stack[..., :1]
        copies = _copies(stack)
        sizes = [copy[..., 0].size for copy in copies]
        if sum(sizes) > MOST:
            raise UnsupportedModel(f"pictures do not draw texture {mjm.texture(k).name!r}: it is too large")
        before = tuple(itertools.accumulate(sizes[:-1], initial=0))
        textures.append(Texture(faces, at, stack.shape[3], stack.shape[2], stack.shape[1], before))
        parts += [_with_neighbours(np.floor(copy + 0.5).astype(np.uint32), faces == 1).ravel() for copy in copies]
        at += stack.shape[3] * sum(sizes)
    whole = np.concatenate(parts) if parts else np.zeros(1, np.uint32)
    return tuple(textures), whole.view(np.int32)


def _with_neighbours(texels: np.ndarray, repeats: bool) -> np.ndarray:
    """Return texels with those to the right, below, and right below, a byte each from the lowest on."""
    whole = texels
    for axis, factor in ((2, 256), (1, 65536)):
        n = texels.shape[axis]
        following = (np.arange(n) + 1) % n if repeats else np.minimum(np.arange(n) + 1, n - 1)
        whole = whole + np.uint32(factor) * np.take(whole, following, axis)
    return whole


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
    return _filtered(texels, texture, 0.0, place, change)


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
    return _filtered(texels, texture, face, place, moved)


def _filtered(
    texels: Any, texture: Texture, face: Scalar, place: Sequence[Scalar], change: Sequence[Sequence[Scalar]]
) -> list[Scalar]:
    width, height, last = texture.width, texture.height, len(texture.levels) - 1
    squares = [(step[0] * width) * (step[0] * width) + (step[1] * height) * (step[1] * height) for step in change]
    pixel = clip(maximum(*squares), 1.0, 4.0**last)  # its size in texels, squared: a copy's is 4**level
    first: Scalar = 0.0
    sizes: list[Scalar] = [float(width), float(height)]
    for k in range(1, last + 1):  # cheaper than a table of numbers, each at a place of its own
        there = pixel >= 4.0**k
        new = (texture.levels[k], max(width >> k, 1), max(height >> k, 1))
        first, *sizes = (select(there, float(a), b) for a, b in zip(new, (first, *sizes), strict=True))
    colour = _between(texels, texture, first, sizes, face, place)

    def smaller(c: list[Scalar]) -> list[Scalar]:
        halves = [maximum(floor(0.5 * n), 1.0) for n in sizes]
        other = _between(texels, texture, first + float(texture.faces) * (sizes[0] * sizes[1]), halves, face, place)
        share = _above(pixel)
        return [x + share * (y - x) for x, y in zip(c, other, strict=True)]

    return when_any(pixel > 1.0, smaller, colour)


def _above(square: Scalar) -> Scalar:
    """Return by how much the logarithm to base 2 of a root is above a whole number, to 1e-4, which is not seen."""
    m, k = split_exponent(square)
    t, odd = m - 1.0, k - 2.0 * floor(0.5 * k)
    return 0.5 * (odd + t + t * (1.0 - t) * (0.4384 + t * (-0.2375 + t * 0.0807)))


def _between(
    texels: Any, texture: Texture, first: Scalar, sizes: Sequence[Scalar], face: Scalar, place: Sequence[Scalar]
) -> list[Scalar]:
    """Read a copy, before which there are `first` texels, between its four nearest texels."""
    lows, shares = [], []
    for x, n in zip(place, sizes, strict=True):
        at = (x - floor(x)) * n - 0.5 if texture.faces == 1 else clip(x * n - 0.5, 0.0, n - 1.0)
        low = floor(at)
        shares.append(at - low)
        lows.append(select(low < 0.0, low + n, low) if texture.faces == 1 else low)
    row = first + face * (sizes[0] * sizes[1]) + (lows[1] * sizes[0] + lows[0])
    out = []
    for one, two, three, last in texels.bytes(texture.start, texture.channels, row):
        upper, lower = one + shares[0] * (two - one), three + shares[0] * (last - three)
        out.append((upper + shares[1] * (lower - upper)) * (1.0 / 255.0))
    return out * (3 // texture.channels)
