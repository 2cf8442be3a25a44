"""Which points of a mesh may be the furthest in a direction: a short list for each cell of the sphere of directions.

The sphere is folded out into a square: the half of it where z is positive is the square's middle, |u| + |v| < 1, and
each octant of the other half is a corner. Within an octant directions on a plane are on a line, so what holds for two
directions of a cell holds for all between them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from ...compiler.scalar import Scalar, absolute, floor, maximum, minimum, select
from ..algebra.spatial import Vec

FEW = 8  # points in a list: a cell with more is cut in four
FINEST = 64  # cells on a side of the square at the most
SAMPLES = 3  # directions along each side of a cell whose furthest points are compared with all others
SLACK = 1e-6  # added to what decides whether a point may be the furthest, against rounding
AT_ONCE = 1 << 20  # numbers of a comparison that are computed together, for memory


def cell_of(first: Scalar, side: Scalar, n: Vec) -> Scalar:
    """Return the number of the cell in which a direction is, of a square that begins with number `first`."""
    half = 0.5 * side
    reach = half / (absolute(n[0]) + absolute(n[1]) + absolute(n[2]))
    u, v = (x * reach for x in n[:2])
    below, other = n[2] < 0.0, [half - absolute(v), half - absolute(u)]
    u, v = (select(below, select(x < 0.0, -y, y), x) for x, y in zip((u, v), other, strict=True))
    row, column = (maximum(minimum(floor(half + x), side - 1.0), 0.0) for x in (u, v))
    return first + row * side + column


def furthest_lists(points: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
    """Cut the square into cells; return the number of each cell's list (side x side), and the lists.

    A list has the numbers of points, in ascending order. Cells that are cut no further, since there are few points, may
    stand for several of the result, with the same list.
    """
    side, lists = 2, list[np.ndarray]()
    cells, candidates = np.array(list(itertools.product(range(2), repeat=2))), [np.arange(len(points))] * 4
    of_cell = np.zeros((FINEST, FINEST), int)
    while True:
        divided, remaining = list[tuple[int, int]](), list[np.ndarray]()
        width = FINEST // side
        for (i, j), found in zip(cells.tolist(), _likely(points, _directions(cells, side), candidates), strict=True):
            if len(found) > FEW and side < FINEST:
                divided += [(2 * i + a, 2 * j + b) for a in range(2) for b in range(2)]
                remaining += [found] * 4
            else:
                of_cell[i * width : (i + 1) * width, j * width : (j + 1) * width] = len(lists)
                lists.append(found)
        if not divided:
            return of_cell[::width, ::width], lists
        side, cells, candidates = 2 * side, np.array(divided), remaining


def _directions(cells: np.ndarray, side: int) -> np.ndarray:
    """Return directions of cells of a square, given by row and column (n x SAMPLES² x 3): the corners among them."""
    across = np.linspace(0.0, 2.0 / side, SAMPLES)
    u, v = (-1.0 + 2.0 / side * cells[:, :, None, None] + np.meshgrid(across, across, indexing="ij")).swapaxes(0, 1)
    z = 1.0 - np.abs(u) - np.abs(v)
    x, y = (np.where(z < 0.0, np.copysign(1.0 - np.abs(b), a), a) for a, b in ((u, v), (v, u)))
    n = np.stack([x, y, z], -1).reshape(len(cells), -1, 3)
    return n / np.linalg.norm(n, axis=-1, keepdims=True)


def _likely(points: np.ndarray, directions: np.ndarray, candidates: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return for each cell those candidates that may be the furthest in one of its directions.

    A point is left out if another one is further along all four corners, since that one is then further everywhere
    between them. Each is compared with those that are the furthest in some directions of the cell.
    """
    corners = directions[:, [0, SAMPLES - 1, -SAMPLES, -1]]
    found = dict[int, np.ndarray]()
    for which, numbers in _batches(candidates):
        some = points[numbers]
        best = np.argmax(some @ directions[which].swapaxes(1, 2), 1)
        heights = some @ corners[which].swapaxes(1, 2)
        never = np.zeros(numbers.shape, bool)
        for k in range(best.shape[1]):
            one = best[:, k, None, None]
            ahead = np.take_along_axis(heights, one, 1) - heights
            far = np.linalg.norm(np.take_along_axis(some, one, 1) - some, axis=-1)
            never |= np.all(ahead > (SLACK * (far + 1e-3))[..., None], -1)
        for k, row, gone in zip(which, numbers, never, strict=True):
            found[k] = row[: len(candidates[k])][~gone[: len(candidates[k])]]
    return [found[k] for k in range(len(candidates))]


def _batches(rows: Sequence[np.ndarray]) -> Iterator[tuple[list[int], np.ndarray]]:
    """Put rows of about the same length together: yield their numbers, and a matrix that repeats each row's last
    entry.
    """
    order = sorted(range(len(rows)), key=lambda k: len(rows[k]))
    while order:
        longest = len(rows[order[-1]])
        some = [k for k in order[-max(1, AT_ONCE // (longest * SAMPLES**2)) :] if 2 * len(rows[k]) > longest]
        order = order[: -len(some)]
        yield some, np.array([np.pad(rows[k], (0, longest - len(rows[k])), mode="edge") for k in some])
