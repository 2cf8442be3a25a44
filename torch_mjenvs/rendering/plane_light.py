"""What a plane reflects: it is lit at the corners of the rectangles that MuJoCo makes it of, and between by these."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..compiler.control import repeat, when_any
from ..compiler.scalar import Scalar, absolute, clip, floor, logical_and, logical_not, maximum, minimum, number, select
from ..physics.algebra.spatial import Vec, mat_vec, sub, transpose
from .lights import thrown_back
from .pixel import Pixel
from .scene import FINE
from .views import View, cells_of, is_high


def between_corners(own: list[Scalar], at: Vec, kept: Sequence[Scalar], groups: list[list[int]]) -> list[list[Scalar]]:
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


def plane_light(
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
        return thrown_back(scene.lights, view.lights, groups, point, normal, rgb, surface.gloss)

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
