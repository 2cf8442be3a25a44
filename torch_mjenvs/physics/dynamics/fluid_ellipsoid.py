"""A fluid's forces on geoms of fluidshape 'ellipsoid': drag, lift and added mass.

mj_ellipsoidFluidModel, mj_addedMassForces, mj_viscousForces. All is along the geom's axes.

w v angular and linear velocity in the fluid   u direction of v   s semi-axes
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...compiler.scalar import Scalar, maximum, minimum, sqrt
from ..algebra.spatial import MINVAL, Vec, add, add_scaled, cross, dot, norm, normalize, scale, sub, zeros
from ..model.data import Data
from ..model.enums import GeomType
from ..model.model import Model
from .fluid_frame import FluidFrame, fourth, wind


def ellipsoids(m: Model, i: int) -> list[int]:
    """Return the geoms of body i whose fluidshape is an ellipsoid."""
    return [g for g, body in enumerate(m.geom_bodyid) if body == i and m.geom_fluid[g][0] > 0]


def ellipsoids_force(m: Model, d: Data, i: int) -> list[Scalar]:
    """Return the (torque, force) on all ellipsoids of body i about its tree's origin."""
    out = zeros(6)
    for g in ellipsoids(m, i):
        out = add(out, _force(m, d, g))
    return out


def ellipsoids_damping(m: Model, d: Data, i: int) -> list[list[Scalar]]:
    """Return the damping of body i's ellipsoids, by each of its six velocities.

    Each column is a (torque, force) about the tree's origin.
    """
    columns = [zeros(6) for _ in range(6)]
    for g in ellipsoids(m, i):
        frame, share = _frame(d, g), m.geom_fluid[g][0]
        now = frame.velocity(d.ovel[i], wind(m, d))
        for k, change in enumerate(frame.unit_velocities()):
            columns[k] = sub(columns[k], frame.wrench(*_rates(m, g, now, change), share))
    return columns


def _frame(d: Data, g: int) -> FluidFrame:
    """Return the axes of geom g, at its centre."""
    return FluidFrame(d.geom_xmat[g], d.geom_xrel[g])


def _force(m: Model, d: Data, g: int) -> list[Scalar]:
    """Return the (torque, force) on geom g about its tree's origin."""
    frame = _frame(d, g)
    w, v = frame.velocity(d.ovel[m.geom_bodyid[g]], wind(m, d))
    added, viscous = _added_mass(m, g, w, v), _viscous(m, g, w, v)
    return frame.wrench(add(added[0], viscous[0]), add(added[1], viscous[1]), m.geom_fluid[g][0])


def _semi_axes(m: Model, g: int) -> list[Scalar]:
    x, y, z = m.geom_size[g]
    kind = m.geom_type[g]
    if kind == GeomType.SPHERE:
        return [x, x, x]
    return [x, x, x + y] if kind == GeomType.CAPSULE else [x, x, y] if kind == GeomType.CYLINDER else [x, y, z]


def _added_mass(m: Model, g: int, w: Vec, v: Vec) -> tuple[list[Scalar], list[Scalar]]:
    """Return torque and force of the fluid that moves along, without the terms in accelerations. mj_addedMassForces."""
    linear = [m.density * a * x for a, x in zip(m.geom_fluid[g][6:9], v, strict=True)]
    angular = [m.density * a * x for a, x in zip(m.geom_fluid[g][9:], w, strict=True)]
    return add(cross(linear, v), cross(angular, w)), cross(linear, w)


@dataclass(frozen=True)
class _Drag:
    """The dimensions of a geom that determine its drag.

    areas: products of two of its semi-axes. diameter: that of a sphere of similar size. face: its largest
    cross-section. moments: the resistance to rotation about each axis.
    """

    areas: list[Scalar]
    volume: Scalar
    diameter: Scalar
    face: Scalar
    moments: list[Scalar]


def _drag(m: Model, g: int) -> _Drag:
    _, _, slender, angular, *_ = m.geom_fluid[g]
    s = _semi_axes(m, g)
    largest, least = maximum(maximum(s[0], s[1]), s[2]), minimum(minimum(s[0], s[1]), s[2])
    middle = s[0] + s[1] + s[2] - largest - least
    most = 8.0 / 15.0 * math.pi * middle * fourth(largest)
    moments = [8.0 / 15.0 * math.pi * s[k] * fourth(maximum(s[k - 2], s[k - 1])) for k in range(3)]
    return _Drag(
        [s[1] * s[2], s[2] * s[0], s[0] * s[1]],
        4.0 / 3.0 * math.pi * s[0] * s[1] * s[2],
        2.0 / 3.0 * (s[0] + s[1] + s[2]),
        math.pi * largest * middle,
        [angular * a + slender * (most - a) for a in moments],
    )


def _viscous(m: Model, g: int, w: Vec, v: Vec) -> tuple[list[Scalar], list[Scalar]]:
    """Return torque and force of viscosity, blunt and slender drag, and Magnus and Kutta lift. mj_viscousForces."""
    _, blunt, slender, _, kutta, magnus = m.geom_fluid[g][:6]
    law = _drag(m, g)
    speed, u = norm(v), normalize(v, [1.0, 0.0, 0.0])
    normal = [a * a * x for a, x in zip(law.areas, u, strict=True)]  # of the projection along v, not of length 1
    across, along = dot(normal, normal), dot(normal, u)
    projected = math.pi * sqrt(across / along)

    lift = scale(cross(w, v), magnus * m.density * law.volume)
    circulation = scale(cross(normal, u), kutta * m.density * (along / across) * projected * speed)
    lift = add(lift, scale(cross(circulation, u), speed))

    drag = m.viscosity * (3.0 * math.pi) * law.diameter
    drag = drag + m.density * speed * (projected * blunt + slender * (law.face - projected))

    turning = [x * a for x, a in zip(w, law.moments, strict=True)]
    turn = m.viscosity * math.pi * law.diameter * law.diameter * law.diameter + m.density * norm(turning)
    return scale(w, -turn), add_scaled(lift, v, -drag)


def _rates(m: Model, g: int, now: tuple[Vec, Vec], change: tuple[Vec, Vec]) -> tuple[list[Scalar], list[Scalar]]:
    """Return the derivatives of torque and force along a change of the velocities. mjd_ellipsoidFluid."""
    (w, v), (dw, dv) = now, change
    _, blunt, slender, _, kutta, magnus = m.geom_fluid[g][:6]
    law = _drag(m, g)

    def weighted(weights: Vec, x: Vec) -> list[Scalar]:
        return [a * y for a, y in zip(weights, x, strict=True)]

    mass, inertia = scale(m.geom_fluid[g][6:9], m.density), scale(m.geom_fluid[g][9:], m.density)
    linear, dlinear = weighted(mass, v), weighted(mass, dv)
    torque = add(cross(dlinear, v), cross(linear, dv))
    torque = add(torque, add(cross(weighted(inertia, dw), w), cross(weighted(inertia, w), dw)))
    force = add(cross(dlinear, w), cross(linear, dw))
    force = add_scaled(force, add(cross(dw, v), cross(w, dv)), magnus * m.density * law.volume)

    squares = weighted(law.areas, law.areas)
    speed, u = norm(v), normalize(v, [1.0, 0.0, 0.0])
    normal = weighted(squares, u)
    along, across = dot(normal, u), dot(normal, normal)
    d_along, d_across, d_speed = dot(normal, dv), dot(weighted(squares, normal), dv), dot(u, dv)
    lift = math.pi * kutta * m.density * speed / sqrt(across * along)
    share = d_across * (along / across) - d_along + d_speed * along
    for k, area in enumerate(squares):
        aside = area - along
        part = u[k] * (2.0 * along * (d_along - area * d_speed) + aside * share) - aside * along * dv[k]
        force[k] = force[k] + lift * part

    projected = math.pi * sqrt(across / along)
    d_projected = math.pi * (d_across * along - across * d_along) / (along * sqrt(across * along))
    drag = m.density * speed * (projected * blunt + slender * (law.face - projected))
    more = drag * d_speed + m.density * speed * (blunt - slender) * d_projected
    force = add_scaled(force, u, -more)
    force = add_scaled(force, dv, -(drag + m.viscosity * (3.0 * math.pi) * law.diameter))

    turning = weighted(law.moments, w)
    share = m.density / maximum(norm(turning), MINVAL)
    more, turn = share * dot(turning, weighted(law.moments, dw)), share * dot(turning, turning)
    turn = turn + m.viscosity * math.pi * law.diameter * law.diameter * law.diameter
    return add_scaled(add_scaled(torque, w, -more), dw, -turn), force
