"""A fluid's forces on bodies: drag on each body's equivalent inertia box. mj_fluid, mj_inertiaBoxFluidModel.

Bodies with geoms of fluidshape 'ellipsoid' are `fluid_ellipsoid`'s.
"""

from __future__ import annotations

import math

from ...compiler.scalar import Scalar, absolute, maximum, sqrt
from ..algebra.spatial import MINVAL, add_scaled, choose, dot, is_number, is_zero, zeros
from ..model.data import Data
from ..model.model import Model, dof_chain
from .fluid_ellipsoid import ellipsoids, ellipsoids_damping, ellipsoids_force
from .fluid_frame import FluidFrame, fourth, wind
from .inertia import Rows
from .wrenches import OfBody, forces_of_wrenches, subtree_sums


def has_fluid(m: Model) -> bool:
    """Return whether the model has a medium: a density or viscosity other than 0."""
    return not (is_zero(m.density) and is_zero(m.viscosity))


def slows_implicitly(m: Model) -> bool:
    """Return whether implicit integrators include the fluid: its density or viscosity is positive. mjd_passive_vel."""
    return any(not is_number(share) or share > 0 for share in (m.density, m.viscosity))


def fluid(m: Model, d: Data) -> None:
    """Compute d.qfrc_fluid, the fluid's force on each dof. mj_fluid."""

    def force(i: int) -> list[Scalar]:
        return ellipsoids_force(m, d, i) if ellipsoids(m, i) else _drag(m, d, i)

    d.qfrc_fluid = forces_of_wrenches(m, d, _where_heavy(m, 6, force))


def fluid_damping(m: Model, d: Data) -> Rows:
    """Return the symmetric part of -d qfrc_fluid / d qvel, as a lower triangle. mjd_inertiaBoxFluid,
    mjd_ellipsoidFluid.
    """

    def symmetric(i: int) -> list[Scalar]:
        columns = ellipsoids_damping(m, d, i) if ellipsoids(m, i) else _damping(m, d, i)
        if not ellipsoids(m, i):  # a box's is symmetric already
            return [x for column in columns for x in column]
        return [0.5 * (columns[k][n] + columns[n][k]) for k in range(6) for n in range(6)]

    return _of_dofs(m, d, symmetric)


def fluid_twist(m: Model, d: Data) -> Rows:
    """Return the antisymmetric part of -d qfrc_fluid / d qvel, as a lower triangle.

    Only ellipsoids have one: for each two dofs, half of how much more the first's velocity slows the second's than the
    second's does the first's.
    """

    def twist(i: int) -> list[Scalar] | None:
        if not ellipsoids(m, i):
            return None
        columns = ellipsoids_damping(m, d, i)
        return [0.5 * (columns[k][n] - columns[n][k]) for k in range(6) for n in range(6)]

    return _of_dofs(m, d, twist)


def _of_dofs(m: Model, d: Data, columns_of: OfBody) -> Rows:
    """Return the lower triangle of a matrix over dofs, given by body as six columns about the tree's origin."""
    total = subtree_sums(m, _where_heavy(m, 36, columns_of))
    rows: Rows = [{} for _ in range(m.nv)]
    for v in range(m.nv):
        columns = total[m.dof_bodyid[v]]
        if columns:
            wrench = zeros(6)
            for k, x in enumerate(d.odof[v]):
                wrench = add_scaled(wrench, columns[6 * k : 6 * k + 6], x)
            rows[v] = {u: dot(d.odof[u], wrench) for u in dof_chain(m, v)}
    return rows


def _where_heavy(m: Model, n: int, of: OfBody) -> OfBody:
    """Wrap a function of a body's n numbers so that massless bodies give none, or zeros where mass varies."""

    def of_body(i: int) -> list[Scalar] | None:
        mass = m.body_mass[i]
        if is_number(mass):
            return of(i) if mass >= MINVAL else None
        own = of(i)
        return choose(mass < MINVAL, zeros(n), own) if own else None

    return of_body


def _frame(d: Data, i: int) -> FluidFrame:
    """Return the principal axes of body i, at its centre of mass."""
    return FluidFrame(d.ximat[i], d.xirel[i])


def _drag(m: Model, d: Data, i: int) -> list[Scalar]:
    """Return the (torque, force) of the fluid on body i about the tree's origin."""
    frame = _frame(d, i)
    w, v = frame.velocity(d.ovel[i], wind(m, d))
    angular, linear = _resistance(m, i)
    force = [-(u * (a + b * absolute(u))) for u, (a, b) in zip(v, linear, strict=True)]
    torque = [-(u * (a + b * absolute(u))) for u, (a, b) in zip(w, angular, strict=True)]
    return frame.wrench(torque, force)


def _damping(m: Model, d: Data, i: int) -> list[list[Scalar]]:
    """Return the damping of body i: a column (torque, force) about its tree's origin for each of its six velocities."""
    frame = _frame(d, i)
    w, v = frame.velocity(d.ovel[i], wind(m, d))
    angular, linear = _resistance(m, i)
    rates = [a + 2.0 * b * absolute(u) for u, (a, b) in zip([*w, *v], [*angular, *linear], strict=True)]
    columns = []
    for turning, moving in frame.unit_velocities():
        torque = [x * rate for x, rate in zip(turning, rates[:3], strict=True)]
        force = [x * rate for x, rate in zip(moving, rates[3:], strict=True)]
        columns.append(frame.wrench(torque, force))
    return columns


Law = tuple[Scalar, Scalar]  # a, b: the force is -u (a + b |u|) at the velocity u


def _resistance(m: Model, i: int) -> tuple[list[Law], list[Law]]:
    """Return the laws of torque and of force along each principal axis of body i.

    For a box, unlike an ellipsoid, a negative density or viscosity counts as 0.
    """
    density, viscosity = (0.0 if is_number(share) and share < 0 else share for share in (m.density, m.viscosity))
    x, y, z = inertia_box(m, i)
    diameter = (x + y + z) / 3
    viscous = math.pi * viscosity * diameter
    areas = y * z, x * z, x * y
    xx, yy, zz = (fourth(side) for side in (x, y, z))
    moments = x * (yy + zz), y * (xx + zz), z * (xx + yy)
    linear = [(3 * viscous, 0.5 * density * a) for a in areas]
    return [(viscous * diameter**2, density / 64 * b) for b in moments], linear


def inertia_box(m: Model, i: int) -> tuple[Scalar, Scalar, Scalar]:
    """Return the sides (metres) of the box of uniform density with the mass and moments of inertia of body i."""
    xx, yy, zz = m.body_inertia[i]
    mass = m.body_mass[i] if is_number(m.body_mass[i]) else maximum(m.body_mass[i], MINVAL)
    x, y, z = (sqrt(maximum(s, MINVAL) / mass * 6) for s in (yy + zz - xx, xx + zz - yy, xx + yy - zz))
    return x, y, z
