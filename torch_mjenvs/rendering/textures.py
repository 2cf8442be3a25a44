"""Textures: their layout in memory, and the colour that a point of a surface gets from them.

All textures of a model are one row of 32-bit numbers. A colour is interpolated between four texels, so each number
holds one channel of a texel and of its three neighbours to the right and below, a byte each: then a pixel reads one
number per channel, and reading memory is most of a texture's cost. Grey textures have one channel. Before the first row
and column there is one more, for the texels beyond the edge: those of the other side, or on a cube the first ones
again.

After each texture come its smaller copies (a mipmap), each half as wide, from which far surfaces are read: interpolated
between the two copies nearest in size to a pixel, as OpenGL does.
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
from ..compiler.whole import Whole, add, as_scalar, at_least, exponent, halved, is_odd, multiply, whole
from ..compiler.whole import choose as choose_whole
from ..physics.algebra.spatial import dot
from ..physics.model.model import UnsupportedModel

CUBE = 6  # faces, in the order +x, -x, +y, -y, +z, -z
MOST = 2**24  # texels of a texture and its copies, each one number per channel


@dataclass(frozen=True)
class Texture:
    """A texture, which begins at `start`, and its copies. A cube has 6 faces, and a flat texture, 1, repeats itself.

    width, height: of a face. levels: how many numbers of a channel come before each copy. channels: 3, or 1 if grey.
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
        if faces == 1 and channels > 1 and mjm.tex_colorspace[k] == mujoco.mjtColorSpace.mjCOLORSPACE_SRGB:
            image = _decoded(image)  # as MuJoCo does, which leaves cubes as they are
        if faces == CUBE and height == width:
            image = np.tile(image, (CUBE, 1, 1))
        stack = image.reshape(faces, -1, width, 3)
        if (stack == stack[..., :1]).all():
            stack = stack[..., :1]
        if 4 * stack[..., 0].size > 3 * MOST:
            raise UnsupportedModel(f"pictures do not draw texture {mjm.texture(k).name!r}: it is too large")
        copies = [_with_neighbours(copy, faces == 1) for copy in _copies(stack)]
        sizes = [copy[..., 0].size for copy in copies]
        before = tuple(itertools.accumulate(sizes[:-1], initial=0))
        textures.append(Texture(faces, at, stack.shape[3], stack.shape[2], stack.shape[1], before))
        parts += [copy.ravel() for copy in copies]
        at += stack.shape[3] * sum(sizes)
    parts.append(np.zeros(3 * CUBE, np.uint32))  # numbers after the last copy are read, but not used
    return tuple(textures), np.concatenate(parts).view(np.int32)


def _decoded(image: np.ndarray) -> np.ndarray:
    """Return the intensities of an image in sRGB, both from 0 to 255."""
    x = image / 255.0
    found: np.ndarray = 255.0 * np.where(x <= 0.04045, x / 12.92, ((x + 0.055) / 1.055) ** 2.4)
    return found


def _with_neighbours(images: np.ndarray, repeats: bool) -> np.ndarray:
    """Pack each texel with those to its right, below, and right below into one number, a byte each from the lowest on.

    images: (faces, height, width, channels). The result has one more row, and one more column, before the first.
    """
    mode: Any = "wrap" if repeats else "edge"
    texels = np.pad(np.floor(images + 0.5).astype(np.uint32), ((0, 0), (1, 1), (1, 1), (0, 0)), mode=mode)
    pairs = texels[:, :, :-1] + np.uint32(256) * texels[:, :, 1:]
    found: np.ndarray = pairs[:, :-1] + np.uint32(65536) * pairs[:, 1:]
    return found


def _copies(stack: np.ndarray) -> list[np.ndarray]:
    """Return images (faces, height, width, 3) and their copies down to one texel.

    Each is interpolated from the one before, between four texels, as Mesa does it: if a size is odd, some are left out.
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

    change: by how much s and t change from a pixel to the next one, in texels, along both axes of the picture.
    """
    return _filtered(texels, texture, 0.0, [x - floor(x) for x in place], change)


def sample_cube(
    texels: Any, texture: Texture, way: Sequence[Scalar], change: Sequence[Sequence[Scalar]]
) -> list[Scalar]:
    """Return the colour of a cube where a ray from its centre leaves it.

    change: how the ray changes from a pixel to the next one, along both axes of the picture.
    """
    size = [absolute(x) for x in way]
    along_x = logical_and(size[0] >= size[1], size[0] >= size[2])
    along_y = size[1] >= size[2]

    def of_face(values: Sequence[Scalar], signs: Sequence[Scalar]) -> list[Scalar]:
        """Return a vector's components out of the face, along its s, and along its t."""
        x, y, z = values
        out = [sign * value for sign, value in zip(signs, values, strict=True)]
        s = select(along_x, -1.0 * signs[0] * z, select(along_y, x, signs[2] * x))
        t = select(along_x, -1.0 * y, select(along_y, signs[1] * z, -1.0 * y))
        return [select(along_x, out[0], select(along_y, out[1], out[2])), s, t]

    signs = [select(x >= 0.0, 1.0, -1.0) for x in way]
    out, s, t = of_face(way, signs)
    over = 1.0 / maximum(out, 1e-12)
    place = [0.5 * s * over + 0.5, 0.5 * t * over + 0.5]
    half_s, half_t = 0.5 * texture.width * over, 0.5 * texture.height * over
    moved = []
    for step in change:
        d_out, ds, dt = of_face(step, signs)
        moved.append([half_s * (ds - s * over * d_out), half_t * (dt - t * over * d_out)])
    beyond = [select(x > 0.0, 0.0, 1.0) for x in signs]
    face = select(along_x, beyond[0], select(along_y, 2.0 + beyond[1], 4.0 + beyond[2]))
    return _filtered(texels, texture, face, place, moved)


def _filtered(
    texels: Any, texture: Texture, face: Scalar, place: Sequence[Scalar], change: Sequence[Sequence[Scalar]]
) -> list[Scalar]:
    """Return the colour at a place of a face, from 0 to 1 along both axes.

    Places in memory are computed as the processor's integers, and are in range whatever the numbers are, even NaN.
    """
    last = len(texture.levels) - 1
    place = [clip(x, 0.0, 1.0) for x in place]
    pixel = clip(maximum(*(dot(step, step) for step in change)), 1.0, 4.0**last)  # its size in texels, squared
    level = halved(exponent(pixel), 1)  # which copy: its texels are 2**level times as wide as the texture's
    first: Whole = texture.levels[0]
    for k in range(1, last + 1):  # cheaper than a table, which each pixel would read at its own place
        first = choose_whole(pixel >= 4.0**k, texture.levels[k], first)

    def sizes(level: Whole) -> list[Whole]:
        found = [halved(n, level) for n in (texture.width, texture.height)]
        least = texture.faces == CUBE or texture.width == texture.height  # then a size is 0 only after the last copy
        return found if least else [at_least(n, 1) for n in found]

    colour, following = _between(texels, texture, first, sizes(level), face, place)

    def smaller(c: list[Scalar]) -> list[Scalar]:
        other, _ = _between(texels, texture, following, sizes(add(level, 1)), face, place)
        share = _above(pixel)
        return [x + share * (y - x) for x, y in zip(c, other, strict=True)]

    return when_any(pixel > 1.0, smaller, colour)


def _above(square: Scalar) -> Scalar:
    """Return how far log2(sqrt(square)) is above a whole number, with an error of 1e-4, which is not seen."""
    t, odd = split_exponent(square)[0] - 1.0, as_scalar(is_odd(exponent(square)))
    return 0.5 * (odd + t + t * (1.0 - t) * (0.4384 + t * (-0.2375 + t * 0.0807)))


def _between(
    texels: Any, texture: Texture, first: Whole, sizes: Sequence[Whole], face: Scalar, place: Sequence[Scalar]
) -> tuple[list[Scalar], Whole]:
    """Read a copy between its four nearest texels; also return where the next copy begins, as `first` says of this."""
    lows, shares = [], []
    for x, n in zip(place, sizes, strict=True):
        at = x * as_scalar(n) + 0.5  # from the middle of the texel before the first
        low = whole(at)
        lows.append(low)
        shares.append(at - as_scalar(low))
    across, down = (add(n, 1) for n in sizes)
    row, size = add(multiply(lows[1], across), lows[0]), multiply(across, down)
    if texture.faces == CUBE:
        row, size = add(row, multiply(whole(face), size)), multiply(size, CUBE)
    out = []
    for one, two, three, last in texels.bytes(texture.start, texture.channels, add(first, row)):
        upper, lower = one + shares[0] * (two - one), three + shares[0] * (last - three)
        out.append((upper + shares[1] * (lower - upper)) * (1.0 / 255.0))
    return out * (3 // texture.channels), add(first, size)
