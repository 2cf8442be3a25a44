"""Meshes as cameras see them: triangles in trees of boxes that rays go down. One table holds all meshes of a model.

Every node of a tree has eight children, and all leaves are equally deep. So the way down is nested loops, whose
counters all pixels of a vector share: they skip a box that none of them meets, and read the numbers of boxes and
triangles once for all. A triangle is seen from the side on which its corners go counterclockwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import mujoco
import numpy as np

from ..compiler.control import repeat, when_any
from ..compiler.scalar import Scalar, absolute, logical_and, maximum, minimum, number, select
from ..physics.algebra.spatial import Vec, cross, dot, sub
from ..physics.model.model import UnsupportedModel
from .shapes import NOWHERE, TINY, point_at, turned

CHILDREN, LEAF = 8, 10  # of a node; the most triangles of a leaf
MOST = 2**24  # numbers in a table: float32 has to hold their places
SHARP = 0.8  # the cosine between a corner's normal and that of its triangle below which MuJoCo draws it as sharp
EDGE = 1e-5  # triangles are enlarged by this share of their sides, so that no ray slips through between two


@dataclass(frozen=True)
class Tree:
    """A mesh in the table: `levels` levels of boxes below the box of the whole, and `leaf` triangles in each of the
    last.

    boxes: where in the table each level begins, six numbers per box. planes: where the triangles' planes begin, twelve
    numbers per triangle: see `_planes`. corners: where their corners begin, nine numbers each: a corner, and two sides
    from it. normals: where their normals begin, nine numbers each. places: where their texture coordinates begin, six
    numbers each, or -1. low, high: the corners of the whole box.
    """

    levels: int
    leaf: int
    boxes: tuple[int, ...]
    planes: int
    corners: int
    normals: int
    places: int
    low: tuple[float, ...]
    high: tuple[float, ...]


def read(mjm: mujoco.MjModel, which: Sequence[int]) -> tuple[dict[int, Tree], np.ndarray]:
    """Return the trees of these meshes of a model by their numbers, and their table.

    Raises UnsupportedModel for more than a table holds.
    """
    trees, parts, at = {}, [np.zeros(1)], 1
    for k in which:
        trees[k], rows = _read(mjm, k, at)
        parts.append(rows)
        at += rows.size
        if at > MOST:
            raise UnsupportedModel(f"pictures do not draw mesh {mjm.mesh(k).name!r}: there are too many triangles")
    return trees, np.concatenate(parts)


def _read(mjm: mujoco.MjModel, k: int, at: int) -> tuple[Tree, np.ndarray]:
    def rows(field: str, adr: int, count: int, which: np.ndarray) -> np.ndarray:
        found: np.ndarray = getattr(mjm, field)[adr : adr + count][which].astype(float)
        return found

    faces = slice(mjm.mesh_faceadr[k], mjm.mesh_faceadr[k] + mjm.mesh_facenum[k])
    vertices = rows("mesh_vert", mjm.mesh_vertadr[k], mjm.mesh_vertnum[k], mjm.mesh_face[faces])
    normals = rows("mesh_normal", mjm.mesh_normaladr[k], mjm.mesh_normalnum[k], mjm.mesh_facenormal[faces])
    if mjm.mesh_texcoordadr[k] < 0:  # as MuJoCo hands them to OpenGL: a sharp corner has its triangle's normal
        flat = np.cross(vertices[:, 1] - vertices[:, 0], vertices[:, 2] - vertices[:, 0])[:, None]
        flat /= np.maximum(np.linalg.norm(flat, axis=-1, keepdims=True), TINY)
        normals = np.where((normals * flat).sum(-1, keepdims=True) < SHARP, flat, normals)
    count, levels = len(vertices), 0
    while count > LEAF * CHILDREN**levels:
        levels += 1
    leaves = _split(np.arange(count), vertices.mean(1), CHILDREN**levels)
    leaf = max(map(len, leaves))
    order = np.concatenate([np.pad(x, (0, leaf - len(x)), constant_values=-1) for x in leaves])
    there = (order >= 0)[:, None, None]
    corners = vertices[order]
    triangles = np.where(there, np.stack([corners[:, 0], *(corners[:, i] - corners[:, 0] for i in (1, 2))], 1), 0.0)
    lows, highs = (np.where(there, corners, far) for far in (1e9, -1e9))
    margin = 1e-6 * np.ptp(vertices, (0, 1)).max()
    parts: list[np.ndarray] = []
    boxes = []
    for level in range(1, levels + 1):
        groups = (CHILDREN**level, -1, 3)
        ends = np.concatenate([lows.reshape(groups).min(1) - margin, highs.reshape(groups).max(1) + margin], 1)
        boxes.append(at + sum(x.size for x in parts))
        # A box of no triangles is far away.
        parts.append(np.where(np.any(ends[:, :3] > ends[:, 3:], axis=1, keepdims=True), 1e9, ends))
    starts: list[int] = []
    for x in (_planes(triangles), triangles, normals[order], _places(mjm, k, faces, order)):
        starts.append(at + sum(y.size for y in parts) if x.size else -1)
        parts.append(x)
    low, high = tuple(vertices.min((0, 1)).tolist()), tuple(vertices.max((0, 1)).tolist())
    tree = Tree(levels, leaf, tuple(boxes), starts[0], starts[1], starts[2], starts[3], low, high)
    return tree, np.concatenate([x.ravel() for x in parts])


def _planes(triangles: np.ndarray) -> np.ndarray:
    """Return the planes (n, 3, 4) by which rays are tested against triangles (n, 3, 3), each a corner and two sides. A
    plane is three factors and a constant.

    The first is the triangle's own plane: its normal, and how far along it the plane is. The others give the shares of
    the second and third corner at a point: its product with the factors, plus the constant. All are 0 for a triangle
    without an area.
    """
    corner, one, two = triangles[:, 0], triangles[:, 1], triangles[:, 2]
    flat = np.cross(one, two)
    square = (flat * flat).sum(-1, keepdims=True)
    over = np.where(square > 0.0, 1.0 / np.where(square > 0.0, square, 1.0), 0.0)
    rows = np.stack([flat * np.sqrt(over), np.cross(two, flat) * over, np.cross(flat, one) * over], 1)
    more = np.einsum("nij,nj->ni", rows, corner) * [1.0, -1.0, -1.0]
    return np.concatenate([rows, more[..., None]], 2)


def _places(mjm: mujoco.MjModel, k: int, faces: slice, order: np.ndarray) -> np.ndarray:
    """Return the texture coordinates of triangles' corners, (triangles, 3, 2); none if the mesh has no `texcoord`."""
    if mjm.mesh_texcoordadr[k] < 0:
        return np.zeros((0, 3, 2))
    first = mjm.mesh_texcoordadr[k]
    found: np.ndarray = mjm.mesh_texcoord[first : first + mjm.mesh_texcoordnum[k]][mjm.mesh_facetexcoord[faces]][order]
    return found.astype(float)


def _split(which: np.ndarray, centres: np.ndarray, parts: int) -> list[np.ndarray]:
    """Split triangles into this many parts of neighbours, a power of 2, by halving along the axis of largest extent."""
    if parts == 1:
        return [which]
    if len(which):
        axis = np.ptp(centres[which], 0).argmax()
        which = which[np.argsort(centres[which, axis], kind="stable")]
    half = (len(which) + 1) // 2
    return _split(which[:half], centres, parts // 2) + _split(which[half:], centres, parts // 2)


def _times(i: Any, n: int) -> Any:
    """Return n times an index that all worlds share. By sums, since such an index has no products."""
    if isinstance(i, int):
        return i * n
    out: Any = None
    power: Any = i
    while n:
        if n % 2:
            out = power if out is None else out + power
        n //= 2
        power = power + power if n else power
    return out


def enter(tree: Tree, table: Any, n: Vec, way: Vec, beyond: Scalar, limit: Scalar) -> tuple[Scalar, Scalar]:
    """Return the depth at which a ray first meets the mesh between two depths, and the triangle's number.

    n: start and turn, as in `shapes`. The depth is `NOWHERE` where it meets none.
    """
    start, v = n[:3], turned(n[3:12], way)
    over = [1.0 / select(absolute(x) > TINY, x, TINY) for x in v]

    def within(at: Any, nearest: Scalar) -> Any:
        enters, leaves = beyond, nearest
        for k in range(3):
            one, two = (table[at + k] - start[k]) * over[k], (table[at + (3 + k)] - start[k]) * over[k]
            enters, leaves = maximum(enters, minimum(one, two)), minimum(leaves, maximum(one, two))
        return enters <= leaves

    def meet(i: Any, c: list[Scalar]) -> list[Scalar]:
        at = _times(i, 12) + tree.planes
        (*normal, far), *rows = ([table[at + (4 * row + k)] for k in range(4)] for row in range(3))
        facing = dot(normal, v)
        front = facing < -1e-12
        depth = (far - dot(normal, start)) / select(front, facing, -1.0)
        u, w = (dot(row[:3], start) + row[3] + depth * dot(row[:3], v) for row in rows)
        inside = logical_and(front, u >= -EDGE, w >= -EDGE, u + w <= 1.0 + EDGE)
        first = logical_and(inside, depth >= beyond, depth <= c[0])
        return [select(first, depth, c[0]), select(first, number(i), c[1])]

    def below(level: int, node: Any, c: list[Scalar]) -> list[Scalar]:
        if level == tree.levels:
            return repeat(tree.leaf, lambda k, c: meet(_times(node, tree.leaf) + k, c), c)

        def child(k: Any, c: list[Scalar]) -> list[Scalar]:
            i = _times(node, CHILDREN) + k
            return when_any(within(_times(i, 6) + tree.boxes[level], c[0]), lambda c: below(level + 1, i, c), c)

        return repeat(CHILDREN, child, c)

    depth, triangle = below(0, 0, [limit, -1.0])
    return select(triangle >= 0.0, depth, NOWHERE), triangle


@dataclass(frozen=True)
class Spot:
    """A point of a mesh: where it is in the mesh's axes, its normal, that of its triangle, and how shares change.

    `shares` are those of the triangle's second and third corner, `slopes` how they grow along the mesh's axes.
    """

    at: list[Scalar]
    normal: list[Scalar]
    flat: list[Scalar]
    shares: list[Scalar]
    slopes: list[list[Scalar]]


def spot(tree: Tree, table: Any, n: Vec, way: Vec, depth: Scalar, triangle: Scalar) -> Spot:
    """Return the point of a triangle that is at a depth; its normal is interpolated between those of the corners."""
    at = point_at(n, way, depth)
    corner, one, two = _corners(table, tree.corners, triangle, 3)
    flat = cross(one, two)
    over = 1.0 / maximum(dot(flat, flat), 1e-30)
    slopes = [[x * over for x in y] for y in (cross(two, flat), cross(flat, one))]
    shares = [dot(sub(at, corner), slope) for slope in slopes]
    normal = between(_corners(table, tree.normals, triangle, 3), shares)
    return Spot(at, normal, flat, shares, slopes)


def texture_place(
    tree: Tree, table: Any, found: Spot, triangle: Scalar, moved: Sequence[Vec]
) -> tuple[list[Scalar], list[list[Scalar]]]:
    """Return a point's place on a flat texture, and how it changes as the point moves."""
    corners = _corners(table, tree.places, triangle, 2)
    sides = [sub(x, corners[0]) for x in corners[1:]]
    change = []
    for step in moved:
        grown = [dot(slope, step) for slope in found.slopes]
        change.append([grown[0] * a + grown[1] * b for a, b in zip(*sides, strict=True)])
    return between(corners, found.shares), change


def between(corners: Sequence[Vec], shares: Vec) -> list[Scalar]:
    """Interpolate between three corners; `shares` are those of the second and the third."""
    return [a + shares[0] * (b - a) + shares[1] * (c - a) for a, b, c in zip(*corners, strict=True)]


def _corners(table: Any, first: int, triangle: Scalar, size: int) -> list[list[Scalar]]:
    row = float(first) + (3.0 * size) * triangle
    return [[table[row + float(size * i + k)] for k in range(size)] for i in range(3)]
