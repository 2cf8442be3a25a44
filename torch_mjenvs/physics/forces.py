"""Passive forces, and those that are given: mj_passive, mj_xfrcAccumulate."""

from __future__ import annotations

import math
from collections.abc import Callable

from ..compiler.scalar import Scalar, absolute, maximum, power, sqrt
from .data import Data, stage
from .model import BALL, HINGE, SLIDE, Model
from .spatial import (
    MINVAL,
    add,
    choose,
    cross,
    dot,
    is_number,
    is_zero,
    mat_vec,
    quat_normalize,
    quat_sub,
    scale,
    sub,
    transpose,
    zeros,
)
from .tendon import springy_tendons


@stage(
    reads="qpos qvel xirel ximat odof ovel ten_force ten_J",
    computes="qfrc_passive qfrc_gravcomp qfrc_fluid",
)
def passive(m: Model, d: Data) -> None:
    """mj_passive: springs and dampers of joints and tendons, gravity compensation, and the fluid where there is one."""
    d.qfrc_passive = [-(d.qvel[v] * m.dof_damping[v]) if not is_zero(m.dof_damping[v]) else 0.0 for v in range(m.nv)]
    for j in range(m.njnt):
        if not is_zero(m.jnt_stiffness[j]):
            for v, stretch in enumerate(_stretch(m, d, j), start=m.jnt_dofadr[j]):
                d.qfrc_passive[v] = d.qfrc_passive[v] - stretch * m.jnt_stiffness[j]
    for t in springy_tendons(m):
        for v, entry in d.ten_J[t].items():
            d.qfrc_passive[v] = d.qfrc_passive[v] + entry * d.ten_force[t]
    d.qfrc_gravcomp = zeros(m.nv)
    if not all(map(is_zero, m.body_gravcomp)):
        d.qfrc_gravcomp = _of_wrenches(m, d, lambda i: _lift(m, d, i))
        d.qfrc_passive = add(d.qfrc_passive, d.qfrc_gravcomp)
    d.qfrc_fluid = zeros(m.nv)
    if not (is_zero(m.density) and is_zero(m.viscosity)):
        fluid(m, d)
        d.qfrc_passive = add(d.qfrc_passive, d.qfrc_fluid)


def _stretch(m: Model, d: Data, j: int) -> list[Scalar]:
    """How far joint j is from its spring's rest, dof by dof: metres and radians."""
    adr, kind = m.jnt_qposadr[j], m.jnt_type[j]
    q, rest = d.qpos[adr : adr + 7], m.qpos_spring[adr : adr + 7]
    if kind in (SLIDE, HINGE):
        return [q[0] - rest[0]]
    if kind == BALL:
        return quat_sub(quat_normalize(q[:4]), rest[:4])
    return [x - x0 for x, x0 in zip(q[:3], rest[:3], strict=True)] + quat_sub(quat_normalize(q[3:7]), rest[3:7])


def _lift(m: Model, d: Data, i: int) -> list[Scalar] | None:
    """(torque, force) about the tree's origin that holds up body i's share of its weight. mj_gravcomp."""
    if is_zero(m.body_gravcomp[i]):
        return None
    force = scale(m.gravity, -(m.body_mass[i] * m.body_gravcomp[i]))
    return cross(d.xirel[i], force) + force


def fluid(m: Model, d: Data) -> None:
    """d.qfrc_fluid: the drag of each body's equivalent inertia box. mj_fluid, mj_inertiaBoxFluidModel."""

    def drag(i: int) -> list[Scalar] | None:
        mass = m.body_mass[i]
        if is_number(mass):
            return _drag(m, d, i) if mass >= MINVAL else None
        return choose(mass < MINVAL, zeros(6), _drag(m, d, i))

    d.qfrc_fluid = _of_wrenches(m, d, drag)


def applied(m: Model, d: Data) -> list[Scalar]:
    """The force on each dof of d.xfrc_applied and d.qfrc_applied, as far as they are given. mj_xfrcAccumulate."""
    total = list(d.qfrc_applied or zeros(m.nv))
    if d.xfrc_applied is not None:
        total = add(total, _of_wrenches(m, d, lambda i: applied_wrench(d, i)))
    return total


def applied_wrench(d: Data, i: int) -> list[Scalar]:
    """d.xfrc_applied of body i as (torque, force) about the tree's origin."""
    force, torque = d.xfrc_applied[i][:3], d.xfrc_applied[i][3:]
    return add(torque, cross(d.xirel[i], force)) + list(force)


def _of_wrenches(m: Model, d: Data, wrench_on: Callable[[int], list[Scalar] | None]) -> list[Scalar]:
    """The force on each dof of (torque, force) on bodies about their tree's origin; None: none."""
    wrench: list = [None] * m.nbody  # on the body and what it carries
    for i in range(m.nbody - 1, 0, -1):  # a subtree's bodies come after its root
        carrier, parent = m.body_weldid[i], m.body_weldid[m.body_parentid[i]]
        if carrier == 0:
            continue
        own = wrench_on(i)
        if own:
            wrench[carrier] = add(wrench[carrier], own) if wrench[carrier] else own
        if carrier == i and parent > 0 and wrench[i]:
            wrench[parent] = add(wrench[parent], wrench[i]) if wrench[parent] else wrench[i]
    return [dot(d.odof[v], wrench[m.dof_bodyid[v]] or zeros(6)) for v in range(m.nv)]


def _drag(m: Model, d: Data, i: int) -> list[Scalar]:
    """(torque, force) of the fluid on body i about the tree's origin, from its motion along its principal axes."""
    x, y, z = inertia_box(m, i)
    turning, r = d.ovel[i][:3], d.xirel[i]
    local = transpose(d.ximat[i])
    w = mat_vec(local, turning)
    v = mat_vec(local, sub(add(d.ovel[i][3:], cross(turning, r)), m.wind))
    diameter = (x + y + z) / 3
    viscous = math.pi * m.viscosity * diameter
    areas = y * z, x * z, x * y
    xx, yy, zz = (side**4 if is_number(side) else power(side, 4) for side in (x, y, z))
    moments = x * (yy + zz), y * (xx + zz), z * (xx + yy)
    linear = [-(u * (3 * viscous + 0.5 * m.density * a * absolute(u))) for u, a in zip(v, areas, strict=True)]
    angular = [
        -(u * (viscous * diameter**2 + m.density / 64 * b * absolute(u))) for u, b in zip(w, moments, strict=True)
    ]
    torque, force = mat_vec(d.ximat[i], angular), mat_vec(d.ximat[i], linear)
    return add(torque, cross(r, force)) + force


def inertia_box(m: Model, i: int) -> tuple[Scalar, Scalar, Scalar]:
    """Sides of the box of uniform density that has the mass and the moments of inertia of body i."""
    xx, yy, zz = m.body_inertia[i]
    mass = m.body_mass[i] if is_number(m.body_mass[i]) else maximum(m.body_mass[i], MINVAL)
    x, y, z = (sqrt(maximum(s, MINVAL) / mass * 6) for s in (yy + zz - xx, xx + zz - yy, xx + yy - zz))
    return x, y, z
