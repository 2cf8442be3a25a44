"""Tables of the vertices and faces of all meshes and of a box, which the colliders of convex shapes share.

The furthest vertex in a direction is sought among a few. The sphere of directions is cut into cells, and it is known
beforehand which vertices may be the furthest in any direction of a cell. So the vertex that is found is the furthest of
all, and a mesh of 2,000 vertices costs little more than one of 20. (MuJoCo climbs from vertex to vertex, which takes
longer if each world is somewhere else.)

Vertices and faces have numbers that count through all meshes. The first eight and six are those of a box, whose
vertices are multiplied by its half sizes.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ...compiler.arrays import Table
from ...compiler.control import count_while
from ...compiler.scalar import Scalar, absolute, floor, maximum, minimum, number, select
from ..algebra.spatial import Vec, choose, dot, zeros
from ..model.mesh import Face, Mesh

FINEST = 24  # cells along the diagonal of an octahedron's projection; for few vertices fewer do
SAMPLES = 5  # directions along each side of a cell whose furthest vertices are compared with all others
SLACK = 1e-6  # added to what decides whether a vertex may be the furthest, against rounding


class Cells(NamedTuple):
    """The cells of a mesh: the number of the first, and how many are on a side of their grid."""

    cells: Scalar
    side: Scalar


NONE = -1.0
FARTHEST = 1e10
NO_CELLS = Cells(0.0, 0.0)  # for shapes without vertices: the first cell of all is empty


@dataclass(frozen=True, eq=False)
class Solids:
    """Tables of all meshes and a box. A list is rows of one table; another table has its first row and its length."""

    vertices: Table  # x, y, z
    cells: Table  # first and number of `likely`
    likely: Table  # vertices: x, y, z and the number, side by side so that they are read together
    around: Table  # of each vertex, first and number of `corners`
    corners: Table  # the face; the vertex before this one in it: an edge leads there; `Face.spans`, or NONE
    faces: Table  # normal; first and number of `rims`
    rims: Table  # vertices of a face, clockwise as seen from outside
    of: dict[int, Cells]  # of each mesh
    most_likely: int  # the most in a cell, around a vertex, in a face
    most_around: int
    most_corners: int


def cell_of(first: Scalar, side: Scalar, n: Vec) -> Scalar:
    """Return the number of the cell in which a direction is, of the octahedron |x| + |y| + |z| = 1, above or below."""
    half = 0.5 * side
    reach = half / (absolute(n[0]) + absolute(n[1]) + absolute(n[2]))
    row, column = (floor(maximum(minimum(half + x * reach, side), 0.0)) for x in n[:2])
    row = row + select(n[2] < 0.0, side + 1.0, 0.0)
    return first + row * (side + 1.0) + column


def furthest_vertex(solids: Solids, cells: Cells, n: Vec) -> list[Scalar]:
    """Return a mesh's vertex that is furthest in a direction in its own axes, and its number; 0 where there is none."""
    first, count = solids.cells[cell_of(*cells, n)]

    def look(k: Any, best: list[Scalar]) -> list[Scalar]:
        row = first + number(k)
        p = solids.likely[row, :3]
        height = dot(n, p)
        return choose(height > best[0], [height, *p, row], best)

    _, *p, row = count_while(lambda k, _: number(k) < count, look, [-FARTHEST, *zeros(4)], solids.most_likely)
    there = cells.side > 0.0
    return [select(there, x, 0.0) for x in p] + [select(there, solids.likely[row, 3], 0.0)]


@functools.lru_cache(maxsize=8)
def solids_of(meshes: tuple[Mesh | None, ...]) -> Solids:
    """Make the tables of a box and of these meshes."""
    box = _box()
    vertices: list[tuple[float, ...]] = list(box.vertices)
    likely = list[tuple[float, ...]]()
    count = 0  # of them
    cells: list[tuple[float, float]] = [(0.0, 0.0)]
    of, lists = {}, [(0, box)]  # the number of each mesh's first vertex
    for k, mesh in enumerate(meshes):
        if mesh is None:
            continue
        found, side = _cells(mesh)
        of[k] = Cells(float(len(cells)), float(side))
        for numbers in found:
            cells.append((float(count), float(len(numbers))))
            count += len(numbers)
        likely += [(*mesh.vertices[v], float(len(vertices) + v)) for v in np.concatenate(found).tolist()]
        lists.append((len(vertices), mesh))
        vertices += mesh.vertices
    faces: list[tuple[float, ...]] = []
    rims: list[float] = []
    corners: list[list[tuple[float, ...]]] = [[] for _ in vertices]
    for start, mesh in lists:
        for face in mesh.faces:
            rim = face.rim
            for (v, before), span in zip(_sides(rim), face.spans, strict=True):  # they come clockwise
                others = [float(start + x) for x in span] + [NONE] * (3 - len(span))
                corners[start + v].append((float(len(faces)), float(start + before), *others))
            faces.append((*face.normal, float(len(rims)), float(len(rim))))
            rims += [float(start + v) for v in rim]
    for v in range(8):  # MuJoCo's order of a box's edges
        corners[v] = [(f, float(v ^ bit), *rest) for (f, _, *rest), bit in zip(corners[v], (1, 2, 4), strict=True)]
    around: list[tuple[float, float]] = []
    flat: list[tuple[float, ...]] = []
    for rows in corners:
        around.append((float(len(flat)), float(len(rows))))
        flat += rows
    return Solids(
        Table(vertices),
        Table(cells),
        Table(likely, 4),
        Table(around),
        Table(flat),
        Table(faces),
        Table(rims),
        of,
        max([int(n) for _, n in cells]),
        max(len(rows) for rows in corners),
        max(len(face.rim) for _, mesh in lists for face in mesh.faces),
    )


def _box() -> Mesh:
    """Make a box as a mesh with half sizes of 1.

    Corners are numbered by the signs of x, y and z, as bits; faces and their corners are in MuJoCo's order.
    """
    points = [(float(v & 1), float(v >> 1 & 1), float(v >> 2)) for v in range(8)]
    rims = ((7, 3, 1, 5), (2, 6, 4, 0), (2, 3, 7, 6), (4, 5, 1, 0), (6, 7, 5, 4), (3, 2, 0, 1))
    normals = ((1.0, 0.0, 0.0), (-1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, -1.0, 0.0), (0.0, 0.0, 1.0), (0.0, 0.0, -1.0))
    return Mesh(
        tuple((2 * x - 1, 2 * y - 1, 2 * z - 1) for x, y, z in points),
        tuple(Face(n, rim, ((),) * 4) for n, rim in zip(normals, rims, strict=True)),
    )


def _cells(mesh: Mesh) -> tuple[list[np.ndarray], int]:
    """Find the vertices that may be the furthest in each cell, and how many cells are on a side of the grid."""
    points = np.array(mesh.vertices)
    side = int(np.clip(2 * round(len(points) ** 0.5 / 2), 2, FINEST))
    # Corners of cells on the octahedron; those off it are pulled to its rim. Beyond the last cells is one more row, for
    # coordinates of 1.
    u, v = np.meshgrid(*2 * [np.linspace(-1.0, 1.0 + 2.0 / side, side + 2)], indexing="ij")
    off = np.maximum(np.abs(u) + np.abs(v), 1.0)
    level = np.stack([u / off, v / off, np.maximum(1.0 - np.abs(u) - np.abs(v), 0.0)], -1)
    cells = []
    for sign in (1.0, -1.0):
        grid = level * [1.0, 1.0, sign]
        grid /= np.linalg.norm(grid, axis=-1, keepdims=True)
        cells.append(np.stack([grid[:-1, :-1], grid[1:, :-1], grid[:-1, 1:], grid[1:, 1:]], 2).reshape(-1, 4, 3))
    return _likely(points, mesh, np.concatenate(cells)), side


def _likely(points: np.ndarray, mesh: Mesh, cells: np.ndarray) -> list[np.ndarray]:
    """Find the points that may be the furthest in some direction between the four corners of a cell, for each cell.

    A point is left out if another one is further along all four corners, since that one is then further everywhere
    between them. Each point is compared with those that are the furthest in some directions of the cell.
    """
    near = _no_further_than_neighbours(points, mesh, cells)
    across = np.linspace(0.0, 1.0, SAMPLES)
    u, v = (x.ravel() for x in np.meshgrid(across, across))
    means = np.stack([(1 - u) * (1 - v), u * (1 - v), (1 - u) * v, u * v], 1)
    found = []
    for corners, numbers in zip(cells, near, strict=True):
        some = points[numbers]
        best = np.unique(np.argmax(some @ (means @ corners).T, 0))
        ways = some[best, None] - some
        ahead, slack = ways @ corners.T, SLACK * np.linalg.norm(ways, axis=2, keepdims=True)
        found.append(numbers[~np.any(np.all(ahead > slack + SLACK * 1e-3, 2), 0)])
    return found


def _no_further_than_neighbours(points: np.ndarray, mesh: Mesh, cells: np.ndarray) -> list[np.ndarray]:
    """Find for each cell the points that may be the furthest in one of its directions, as far as neighbours tell.

    All directions in a cell are within `spread` of its middle n, as points of the unit sphere. The furthest point is
    further than its neighbours. So it is not p if a neighbour q is further along n by more than spread |q - p|. Points
    of no face, which MuJoCo leaves out of faces that are almost flat, may be the furthest anywhere.
    """
    middles = cells.mean(1)
    middles /= np.linalg.norm(middles, axis=1, keepdims=True)
    spread = np.linalg.norm(cells - middles[:, None], axis=2).max(1) + SLACK
    ends = np.array(sorted({(p, q) for face in mesh.faces for a, b in _sides(face.rim) for p, q in ((a, b), (b, a))}))
    if not len(ends):  # nothing is known of faces
        return [np.arange(len(points))] * len(cells)
    faceless = np.setdiff1d(np.arange(len(points)), ends[:, 0])
    ways = points[ends[:, 1]] - points[ends[:, 0]]
    least = np.linalg.norm(ways, axis=1)
    known, starts = np.unique(ends[:, 0], return_index=True)
    found = []
    for k in range(0, len(cells), 64):  # not all at once, for memory
        further = ways @ middles[k : k + 64].T > least[:, None] * spread[k : k + 64] + SLACK * 1e-3
        never = np.logical_or.reduceat(further, starts)
        found += [np.concatenate([known[~column], faceless]) for column in never.T]
    return found


def _sides(rim: tuple[int, ...]) -> list[tuple[int, int]]:
    return list(zip(rim, rim[1:] + rim[:1], strict=True))
