"""`Mesh`, a mesh as colliders see it, `Surface`, as rays see it, and how they are read from an `mjModel`.

Only meshes of geoms that may touch, or that rays may meet, are read. MuJoCo collides their convex hulls.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import math
import weakref
from array import array
from collections.abc import Collection, Sequence

import mujoco
import numpy as np

from ...compiler.arrays import Table
from .enums import GeomType

Point = tuple[float, float, float]


@dataclasses.dataclass(frozen=True)
class Face:
    """A face of a mesh's convex hull.

    normal: outwards. rim: its vertices, clockwise as seen from outside. spans: for a mesh that lies on a plane, up to
    three more vertices for each, which with it span most of the face.
    """

    normal: Point
    rim: tuple[int, ...]
    spans: tuple[tuple[int, ...], ...]


@dataclasses.dataclass(frozen=True)
class Mesh:
    """A mesh that can touch.

    vertices: the points among which MuJoCo looks for the furthest in a direction. faces: those of its convex hull.
    """

    vertices: tuple[Point, ...]
    faces: tuple[Face, ...]

    @functools.cached_property
    def radius(self) -> float:
        """The radius of the sphere around the geom's centre that encloses the mesh."""
        return max(math.hypot(*p) for p in self.vertices)

    @functools.cached_property
    def _hash(self) -> int:
        return hash((self.vertices, self.faces))

    def __hash__(self) -> int:
        return self._hash  # tables made of meshes are looked up thousands of times while a model is traced


@dataclasses.dataclass(frozen=True, repr=False)
class Surface:
    """A mesh that rays may meet: nine numbers for each of its triangles, a corner and the two sides that go from it."""

    triangles: tuple[tuple[float, ...], ...]

    def __repr__(self) -> str:
        """Show all of it; the triangles, which may be many, by a digest."""
        numbers = array("d", [x for row in self.triangles for x in row])
        return f"Surface({len(self.triangles)}, {hashlib.sha256(numbers.tobytes()).hexdigest()})"

    @functools.cached_property
    def table(self) -> Table:
        """Return `triangles` as a table."""
        return Table(self.triangles)

    @functools.cached_property
    def radius(self) -> float:
        """The radius of the sphere around the geom's centre that encloses the mesh."""
        corners = [
            [x + k * y for x, y in zip(row[:3], row[3 * side : 3 * side + 3], strict=True)]
            for row in self.triangles
            for side, k in ((1, 0.0), (1, 1.0), (2, 1.0))
        ]
        return max(math.hypot(*p) for p in corners)


def read_surfaces(mjm: mujoco.MjModel, geoms: Collection[int]) -> tuple[Surface | None, ...]:
    """Read the model's meshes as rays see them: one each, or None for those that none of these geoms has."""
    wanted = {int(mjm.geom_dataid[g]) for g in geoms if mjm.geom_type[g] == GeomType.MESH}
    return tuple(_surface(mjm, k) if k in wanted else None for k in range(mjm.nmesh))


def _surface(mjm: mujoco.MjModel, k: int) -> Surface:
    first, start = int(mjm.mesh_vertadr[k]), int(mjm.mesh_faceadr[k])
    faces = mjm.mesh_face[start : start + int(mjm.mesh_facenum[k])]
    a, b, c = mjm.mesh_vert[first + faces].astype(float).transpose(1, 0, 2)
    return Surface(tuple(map(tuple, np.concatenate([a, b - a, c - a], 1).tolist())))


# Equal meshes are one object, so that comparing them takes no time: thousands of lookups are by meshes.
_known: weakref.WeakKeyDictionary[Mesh, weakref.ref[Mesh]] = weakref.WeakKeyDictionary()

HILLCLIMB_MIN = 10  # mjMESH_HILLCLIMB_MIN: if there are fewer vertices, all are looked at, on the hull or not


def read_meshes(mjm: mujoco.MjModel, geoms: Collection[int]) -> tuple[Mesh | None, ...]:
    """Read the model's meshes: one each, or None for those that none of these geoms has."""
    wanted = {int(mjm.geom_dataid[g]) for g in geoms if mjm.geom_type[g] == GeomType.MESH}
    return tuple(_read(mjm, k) if k in wanted else None for k in range(mjm.nmesh))


def _read(mjm: mujoco.MjModel, k: int) -> Mesh:
    start, count = int(mjm.mesh_vertadr[k]), int(mjm.mesh_vertnum[k])
    points = [tuple(p) for p in mjm.mesh_vert[start : start + count].astype(float).tolist()]
    known = _hull(mjm, k) if count >= HILLCLIMB_MIN and mjm.mesh_graphadr[k] >= 0 else list(range(count))
    place = {vertex: v for v, vertex in enumerate(known)}
    faces = []
    for i in range(int(mjm.mesh_polynum[k])):
        normal, vertices = _face(mjm, k, i)
        corners = [points[v] for v in vertices]
        spans = [tuple(place[vertices[j]] for j in _span(corners, v)) for v in range(len(vertices))]
        faces.append(Face(normal, tuple(place[v] for v in reversed(vertices)), tuple(reversed(spans))))
    mesh = Mesh(tuple(points[v] for v in known), tuple(faces))
    return _known.setdefault(mesh, weakref.ref(mesh))() or mesh


def _hull(mjm: mujoco.MjModel, k: int) -> list[int]:
    at = int(mjm.mesh_graphadr[k])
    n = int(mjm.mesh_graph[at])
    hull: list[int] = mjm.mesh_graph[at + 2 + n : at + 2 + 2 * n].tolist()
    return hull


def _face(mjm: mujoco.MjModel, k: int, i: int) -> tuple[Point, list[int]]:
    """Return the normal and the vertices of face i of mesh k."""
    i += int(mjm.mesh_polyadr[k])
    at, n = int(mjm.mesh_polyvertadr[i]), int(mjm.mesh_polyvertnum[i])
    return tuple(mjm.mesh_polynormal[i].tolist()), mjm.mesh_polyvert[at : at + n].tolist()


def _span(face: Sequence[Point], a: int) -> tuple[int, ...]:
    """Return the corners that MuJoCo takes with corner `a` of a face: all others, if it has at most four.

    If it has more, three that with `a` go round an area that no corner further on makes larger.
    """
    n = len(face)
    b, c, d = ((a + k) % n for k in (1, 2, 3))
    if n < 5:
        return (b, c, d)[: n - 1]
    most = _area(face[a], face[b], face[c], face[d])
    while (area := _area(face[a], face[b], face[c], face[(d + 1) % n])) > most:
        d, most = (d + 1) % n, area
        while (area := _area(face[a], face[b], face[(c + 1) % n], face[d])) > most:
            c, most = (c + 1) % n, area
        while (area := _area(face[a], face[(b + 1) % n], face[c], face[d])) > most:
            b, most = (b + 1) % n, area
    return b, c, d


def _area(a: Point, b: Point, c: Point, d: Point) -> float:
    """Return the area of a quadrilateral: half the product of its diagonals."""
    (ux, uy, uz), (vx, vy, vz) = ([x - y for x, y in zip(p, q, strict=True)] for p, q in ((a, c), (d, b)))
    x, y, z = uy * vz - uz * vy, uz * vx - ux * vz, ux * vy - uy * vx
    return 0.5 * math.sqrt(x * x + y * y + z * z)
