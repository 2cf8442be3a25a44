"""Forces of a fluid on geoms that are taken as ellipsoids: drag, lift and the mass of fluid that moves along.

mj_ellipsoidFluidModel, mj_addedMassForces, mj_viscousForces. All is along the geom's axes.

w v angular and linear velocity in the fluid   u direction of v   s semi-axes
"""

from __future__ import annotations

import math

from ..compiler.scalar import Scalar, maximum, minimum, power, sqrt
from .data import Data
from .model import CAPSULE, CYLINDER, SPHERE, Model
from .spatial import Vec, add, add_scaled, cross, dot, is_number, mat_vec, norm, normalize, scale, sub, transpose, zeros


def ellipsoids(m: Model, i: int) -> list[int]:
    """The geoms of body i whose fluidshape is an ellipsoid."""
    return [g for g, body in enumerate(m.geom_bodyid) if body == i and m.geom_fluid[g][0] > 0]


def ellipsoids_force(m: Model, d: Data, i: int) -> list[Scalar]:
    """(torque, force) on all ellipsoids of body i, about its tree's origin."""
    out = zeros(6)
    for g in ellipsoids(m, i):
        out = add(out, _force(m, d, g))
    return out


def _force(m: Model, d: Data, g: int) -> list[Scalar]:
    i, r, mat = m.geom_bodyid[g], d.geom_xrel[g], d.geom_xmat[g]
    local = transpose(mat)
    w = mat_vec(local, d.ovel[i][:3])
    v = mat_vec(local, sub(add(d.ovel[i][3:], cross(d.ovel[i][:3], r)), m.wind))
    torque, force = _added_mass(m, g, w, v)
    viscous = _viscous(m, g, w, v)
    share = m.geom_fluid[g][0]
    torque = scale(mat_vec(mat, add(torque, viscous[0])), share)
    force = scale(mat_vec(mat, add(force, viscous[1])), share)
    return add(torque, cross(r, force)) + force


def _semi_axes(m: Model, g: int) -> list[Scalar]:
    x, y, z = m.geom_size[g]
    kind = m.geom_type[g]
    if kind == SPHERE:
        return [x, x, x]
    return [x, x, x + y] if kind == CAPSULE else [x, x, y] if kind == CYLINDER else [x, y, z]


def _added_mass(m: Model, g: int, w: Vec, v: Vec) -> tuple[list[Scalar], list[Scalar]]:
    """Torque and force, but for those by accelerations, which MuJoCo leaves out."""
    linear = [m.density * a * x for a, x in zip(m.geom_fluid[g][6:9], v, strict=True)]
    angular = [m.density * a * x for a, x in zip(m.geom_fluid[g][9:], w, strict=True)]
    return add(cross(linear, v), cross(angular, w)), cross(linear, w)


def _viscous(m: Model, g: int, w: Vec, v: Vec) -> tuple[list[Scalar], list[Scalar]]:
    """Torque and force by viscosity, blunt and slender drag, and the lifts named after Magnus and Kutta."""
    _, blunt, slender, angular, kutta, magnus = m.geom_fluid[g][:6]
    s = _semi_axes(m, g)
    largest, least = maximum(maximum(s[0], s[1]), s[2]), minimum(minimum(s[0], s[1]), s[2])
    middle = s[0] + s[1] + s[2] - largest - least
    areas = s[1] * s[2], s[2] * s[0], s[0] * s[1]
    speed, u = norm(v), normalize(v, [1.0, 0.0, 0.0])
    normal = [a * a * x for a, x in zip(areas, u, strict=True)]  # of the projection along v, not of length 1
    across, along = dot(normal, normal), dot(normal, u)
    projected = math.pi * sqrt(across / along)

    lift = scale(cross(w, v), magnus * m.density * (4.0 / 3.0 * math.pi) * s[0] * s[1] * s[2])
    circulation = scale(cross(normal, u), kutta * m.density * (along / across) * projected * speed)
    lift = add(lift, scale(cross(circulation, u), speed))

    diameter = 2.0 / 3.0 * (s[0] + s[1] + s[2])
    face = math.pi * largest * middle
    drag = m.viscosity * (3.0 * math.pi) * diameter
    drag = drag + m.density * speed * (projected * blunt + slender * (face - projected))

    most = 8.0 / 15.0 * math.pi * middle * _fourth(largest)
    moments = [8.0 / 15.0 * math.pi * s[k] * _fourth(maximum(s[k - 2], s[k - 1])) for k in range(3)]
    turning = [x * (angular * a + slender * (most - a)) for x, a in zip(w, moments, strict=True)]
    turn = m.viscosity * math.pi * diameter * diameter * diameter + m.density * norm(turning)
    return scale(w, -turn), add_scaled(lift, v, -drag)


def _fourth(x: Scalar) -> Scalar:
    return x**4 if is_number(x) else power(x, 4)
