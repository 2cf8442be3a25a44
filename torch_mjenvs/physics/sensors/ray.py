"""Rays that meet shapes, and points that are in shapes, for sensors: mju_rayGeom, mju_insideGeom.

A ray goes from the point p along the unit vector v, both in the shape's own axes, and meets it at p + x v, x >= 0.
A ray that starts inside of a shape meets it from within. A miss is MISS.
"""

from __future__ import annotations

from collections.abc import Callable

from ...compiler.scalar import Mask, Scalar, absolute, logical_and, maximum, minimum, select, sqrt
from ..algebra.spatial import MINVAL, Vec, dot, is_number, mat_vec, sub, transpose
from ..model.data import Data
from ..model.enums import GeomType
from ..model.mesh import Surface
from ..model.model import Model
from .ray_hfield import MISS, ray_hfield
from .ray_mesh import ray_mesh

MOST = 10_000  # triangles of a mesh, all of which a ray looks at


def why_not_met(m: Model, g: int) -> str:
    """Return why rays against geom g are not implemented, as the end of a sentence that names it; "" if they are."""
    if m.geom_type[g] == GeomType.HFIELD:
        field = m.hfields[m.geom_dataid[g]]
        return "" if field.within_bounds else ", whose elevations are not all from 0 to 1,"
    if m.geom_type[g] == GeomType.MESH:
        triangles = len(surface_of(m, g).triangles)
        return "" if triangles <= MOST else f", a mesh of {triangles:,} triangles ({MOST:,} are the most),"
    return ""


def surface_of(m: Model, g: int) -> Surface:
    """Return the surface of geom g, a mesh that rangefinders may meet."""
    found = m.surfaces[m.geom_dataid[g]]
    assert found is not None
    return found


def ray_geom(m: Model, d: Data, g: int, p: Vec, v: Vec) -> Scalar:
    """Return the distance from the point p of the world along v to geom g; MISS where the ray misses it. mj_ray."""
    local = transpose(d.geom_xmat[g])
    start, way = mat_vec(local, sub(p, d.geom_xpos[g])), mat_vec(local, v)
    if m.geom_type[g] == GeomType.HFIELD:
        return ray_hfield(m.hfields[m.geom_dataid[g]], start, way)
    if m.geom_type[g] == GeomType.MESH:
        return ray_mesh(surface_of(m, g), start, way)
    return RAYS[m.geom_type[g]](m.geom_size[g], start, way)


def ray(kind: int, size: Vec, pos: Vec, mat: Vec, p: Vec, v: Vec) -> Scalar:
    """Return the distance from p along v to a shape at pos, of orientation mat; MISS where the ray misses it."""
    local = transpose(mat)
    return RAYS[kind](size, mat_vec(local, sub(p, pos)), mat_vec(local, v))


def _hit(x: Scalar, *where: Mask) -> Scalar:
    return select(logical_and(x >= 0.0, *where), x, MISS)


def _along(p: Vec, v: Vec, x: Scalar, k: int) -> Scalar:
    return p[k] + x * v[k]


def _quadratic(a: Scalar, b: Scalar, c: Scalar) -> tuple[Scalar, Scalar]:
    """Solve a x² + 2 b x + c = 0 for both x, the smaller first; they are -1 where there are none. ray_quad."""
    square = b * b - a * c
    real = logical_and(square >= 0.0, a >= MINVAL)
    root, over = sqrt(maximum(square, 0.0)), 1.0 / maximum(a, MINVAL)
    return select(real, (-b - root) * over, -1.0), select(real, (-b + root) * over, -1.0)


def _nearest(x: Scalar, y: Scalar) -> Scalar:
    """Return the smaller solution of the two that is not behind the ray's start."""
    return select(x >= 0.0, x, y)


def _plane(size: Vec, p: Vec, v: Vec) -> Scalar:
    """Return the distance to a plane. Rays meet it only from its front; one whose size is 0 is endless."""
    ahead = v[2] <= -MINVAL
    x = -p[2] / select(ahead, v[2], -1.0)
    inside: list[Mask] = []
    for k in (0, 1):
        if is_number(size[k]):
            inside += [absolute(_along(p, v, x, k)) <= size[k]] if size[k] > 0 else []
        else:
            inside.append(absolute(_along(p, v, x, k)) <= select(size[k] > 0.0, size[k], MISS * MISS))
    return _hit(x, ahead, *inside)


def _ball(square: Scalar, p: Vec, v: Vec) -> tuple[Scalar, Scalar]:
    return _quadratic(dot(v, v), dot(v, p), dot(p, p) - square)


def _sphere(size: Vec, p: Vec, v: Vec) -> Scalar:
    return _hit(_nearest(*_ball(size[0] * size[0], p, v)))


def _round_side(size: Vec, p: Vec, v: Vec) -> Scalar:
    """Return the distance to the round side of a cylinder or a capsule.

    Only the nearest solution counts, whether on the side or not.
    """
    x = _nearest(*_quadratic(dot(v[:2], v[:2]), dot(v[:2], p[:2]), dot(p[:2], p[:2]) - size[0] * size[0]))
    return _hit(x, absolute(_along(p, v, x, 2)) <= size[1])


def _capsule(size: Vec, p: Vec, v: Vec) -> Scalar:
    x = _round_side(size, p, v)
    for end in (1.0, -1.0):
        centred = [p[0], p[1], p[2] - end * size[1]]
        for cap in _ball(size[0] * size[0], centred, v):
            x = minimum(x, _hit(cap, end * _along(p, v, cap, 2) >= size[1]))
    return x


def _ellipsoid(size: Vec, p: Vec, v: Vec) -> Scalar:
    one, two = ([x / s for x, s in zip(y, size, strict=True)] for y in (p, v))
    return _hit(_nearest(*_quadratic(dot(two, two), dot(two, one), dot(one, one) - 1.0)))


def _face(size: Vec, p: Vec, v: Vec, k: int, side: float) -> Scalar:
    """Return the distance to the plane of a flat side; -1 where the ray is parallel to it."""
    crosses = absolute(v[k]) > MINVAL
    return select(crosses, (side * size[k] - p[k]) / select(crosses, v[k], 1.0), -1.0)


def _cylinder(size: Vec, p: Vec, v: Vec) -> Scalar:
    x = _round_side(size, p, v)
    sizes = [size[0], size[0], size[1]]
    for side in (1.0, -1.0):
        flat = _face(sizes, p, v, 2, side)
        at = [_along(p, v, flat, k) for k in (0, 1)]
        x = minimum(x, _hit(flat, dot(at, at) <= size[0] * size[0]))
    return x


def _box(size: Vec, p: Vec, v: Vec) -> Scalar:
    x: Scalar = MISS
    for k in range(3):
        for side in (1.0, -1.0):
            flat = _face(size, p, v, k, side)
            inside = [absolute(_along(p, v, flat, j)) <= size[j] for j in range(3) if j != k]
            x = minimum(x, _hit(flat, *inside))
    return x


RAYS: dict[int, Callable[[Vec, Vec, Vec], Scalar]] = {
    GeomType.PLANE: _plane,
    GeomType.SPHERE: _sphere,
    GeomType.CAPSULE: _capsule,
    GeomType.ELLIPSOID: _ellipsoid,
    GeomType.CYLINDER: _cylinder,
    GeomType.BOX: _box,
}


# inside of a shape


def inside(kind: int, size: Vec, pos: Vec, mat: Vec, p: Vec) -> Mask:
    """Return where the point p is in a shape at pos, of orientation mat: a mask of worlds."""
    return INSIDE[kind](size, mat_vec(transpose(mat), sub(p, pos)))


def _in_ball(size: Vec, p: Vec) -> Mask:
    return dot(p, p) < size[0] * size[0]


def _in_capsule(size: Vec, p: Vec) -> Mask:
    beyond = maximum(absolute(p[2]) - size[1], 0.0)
    return dot(p[:2], p[:2]) + beyond * beyond < size[0] * size[0]


def _in_ellipsoid(size: Vec, p: Vec) -> Mask:
    shares = [x / s for x, s in zip(p, size, strict=True)]
    return dot(shares, shares) < 1.0


def _in_cylinder(size: Vec, p: Vec) -> Mask:
    return logical_and(absolute(p[2]) < size[1], dot(p[:2], p[:2]) < size[0] * size[0])


def _in_box(size: Vec, p: Vec) -> Mask:
    return logical_and(*(absolute(x) < s for x, s in zip(p, size, strict=True)))


INSIDE: dict[int, Callable[[Vec, Vec], Mask]] = {
    GeomType.SPHERE: _in_ball,
    GeomType.CAPSULE: _in_capsule,
    GeomType.ELLIPSOID: _in_ellipsoid,
    GeomType.CYLINDER: _in_cylinder,
    GeomType.BOX: _in_box,
}
