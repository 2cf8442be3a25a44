"""Tables of the vertices and faces of all meshes and of a box, which the colliders of convex shapes share.

The furthest vertex in a direction is sought among a few: those that may be it in any direction of a cell around this
one (`directions`). So the vertex that is found is the furthest of all, and a mesh of 2,000 vertices costs little more
than one of 20. (MuJoCo climbs from vertex to vertex, which takes longer if each world is somewhere else.)

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
from ...compiler.scalar import Scalar, number, select
from ..algebra.spatial import Vec, choose, dot, zeros
from ..model.mesh import Face, Mesh
from .directions import cell_of, furthest_lists


class Cells(NamedTuple):
    """The cells of a mesh: the number of the first, and how many are on a side of their square (see `directions`)."""

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


def furthest_vertex(solids: Solids, cells: Cells, n: Vec) -> list[Scalar]:
    """Return a mesh's vertex that is furthest in a direction in its own axes, and its number; 0 where there is none."""
    first, count = solids.cells[cell_of(*cells, n)]

    def look(k: Any, best: list[Scalar]) -> list[Scalar]:
        p = solids.likely[first + number(k), :]
        height = dot(n, p[:3])
        return choose(height > best[0], [height, *p], best)

    _, *p = count_while(lambda k, _: number(k) < count, look, [-FARTHEST, *zeros(4)], solids.most_likely)
    there = cells.side > 0.0
    return [select(there, x, 0.0) for x in p]


@functools.lru_cache(maxsize=8)
def solids_of(meshes: tuple[Mesh | None, ...]) -> Solids:
    """Make the tables of a box and of these meshes."""
    box = _box()
    vertices: list[tuple[float, ...]] = list(box.vertices)
    likely = list[tuple[float, ...]]()
    cells: list[tuple[float, float]] = [(0.0, 0.0)]
    of, lists = {}, [(0, box)]  # the number of each mesh's first vertex
    for k, mesh in enumerate(meshes):
        if mesh is None:
            continue
        of_cell, found = furthest_lists(np.array(mesh.vertices))
        of[k] = Cells(float(len(cells)), float(len(of_cell)))
        starts = len(likely) + np.cumsum([0, *map(len, found)])
        cells += [(float(starts[x]), float(len(found[x]))) for x in of_cell.ravel()]
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
        vertices=Table(vertices), cells=Table(cells), likely=Table(likely, 4), around=Table(around),
        corners=Table(flat), faces=Table(faces), rims=Table(rims), of=of,
        most_likely=max([int(n) for _, n in cells]),
        most_around=max(len(rows) for rows in corners),
        most_corners=max(len(face.rim) for _, mesh in lists for face in mesh.faces),
    )  # fmt: skip


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


def _sides(rim: tuple[int, ...]) -> list[tuple[int, int]]:
    return list(zip(rim, rim[1:] + rim[:1], strict=True))
