"""Passive and applied forces, and the sum of all forces but those of constraints. mj_passive, mj_fwdAcceleration."""

from __future__ import annotations

from ...compiler.scalar import Scalar, absolute, logical_and, logical_or, select
from ..algebra.spatial import Vec, add, cross, is_zero, norm, quat_normalize, quat_sub, scale, zeros
from ..model.data import Data, stage
from ..model.enums import JointType
from ..model.model import Model
from .fluid import fluid, has_fluid
from .inertia import factor, solve
from .reflected import dof_damping
from .springs import acts, plastic_of, stiffness_at
from .tendons.tendon import springy_tendons
from .wrenches import forces_of_wrenches


@stage(
    reads="qpos qvel plastic wind xirel ximat geom_xrel geom_xmat odof ovel ten_force ten_J qfrc_adhesion",
    computes="qfrc_passive qfrc_gravcomp qfrc_fluid",
)
def passive(m: Model, d: Data) -> None:
    """Compute passive forces: springs, dampers, gravity compensation, the fluid and adhesion. mj_passive."""
    d.qfrc_passive = [_damper(m, d, v) for v in range(m.nv)]
    for j in range(m.njnt):
        for v, force in enumerate(_spring(m, d, j), start=m.jnt_dofadr[j]):
            d.qfrc_passive[v] = d.qfrc_passive[v] - force
    for t in springy_tendons(m):
        for v, entry in d.ten_J[t].items():
            d.qfrc_passive[v] = d.qfrc_passive[v] + entry * d.ten_force[t]
    d.qfrc_gravcomp = zeros(m.nv)
    if not all(map(is_zero, m.body_gravcomp)):
        some = logical_or(*(x > 0.0 for x in m.body_gravcomp))  # negative ones alone do nothing: ngravcomp
        # Where all are 0 nothing is lifted; asking for 0 and more has derivatives be those of positive ones there.
        some = logical_or(some, logical_and(*(x >= 0.0 for x in m.body_gravcomp)))
        d.qfrc_gravcomp = [select(some, x, 0.0) for x in forces_of_wrenches(m, d, lambda i: _lift(m, d, i))]
        others = [0.0 if m.jnt_actgravcomp[m.dof_jntid[v]] else x for v, x in enumerate(d.qfrc_gravcomp)]
        d.qfrc_passive = add(d.qfrc_passive, others)
    d.qfrc_fluid = zeros(m.nv)
    if has_fluid(m):
        fluid(m, d)
        d.qfrc_passive = add(d.qfrc_passive, d.qfrc_fluid)
    d.qfrc_passive = add(d.qfrc_passive, d.qfrc_adhesion)


def _damper(m: Model, d: Data, v: int) -> Scalar:
    damping, higher = dof_damping(m, v)
    return -(d.qvel[v] * stiffness_at(damping, higher, absolute(d.qvel[v]))) if acts(damping, higher) else 0.0


def _spring(m: Model, d: Data, j: int) -> list[Scalar]:
    """Return minus the spring's force on each dof of joint j; empty if the joint has no spring."""
    k, higher = m.jnt_stiffness[j], m.jnt_stiffnesspoly[j]
    if not acts(k, higher):
        return []
    return [x * stiffness_at(k, higher, along) for part, along in stretches(m, d, j) for x in part]


def stretches(m: Model, d: Data, j: int) -> list[tuple[list[Scalar], Scalar]]:
    """Return how far joint j is from its spring's rest: pairs of a vector and its length.

    For a slide or hinge the length has the displacement's sign; translation and rotation of a free joint are apart.
    """
    stretch = _stretch(m, d, j)
    if len(stretch) == 1:
        return [(stretch, stretch[0])]
    parts = [stretch[k : k + 3] for k in range(0, len(stretch), 3)]
    return [(part, norm(part)) for part in parts]


def _stretch(m: Model, d: Data, j: int) -> list[Scalar]:
    """Return the displacement of joint j from its spring's rest, dof by dof, in metres and radians."""
    adr, kind = m.jnt_qposadr[j], m.jnt_type[j]
    q, plastic = d.qpos[adr : adr + 7], m.jnt_plasticadr[j]
    rest: Vec = m.qpos_spring[adr : adr + 7] if plastic < 0 else plastic_of(m, d)[plastic : plastic + 4]
    if kind in (JointType.SLIDE, JointType.HINGE):
        return [q[0] - rest[0]]
    if kind == JointType.BALL:
        return quat_sub(quat_normalize(q[:4]), rest[:4])
    return [x - x0 for x, x0 in zip(q[:3], rest[:3], strict=True)] + quat_sub(quat_normalize(q[3:7]), rest[3:7])


def _lift(m: Model, d: Data, i: int) -> list[Scalar] | None:
    """Return (torque, force) about the tree's origin that hold up part of body i's weight, or None. mj_gravcomp."""
    if is_zero(m.body_gravcomp[i]):
        return None
    force = scale(m.gravity, -(m.body_mass[i] * m.body_gravcomp[i]))
    return cross(d.xirel[i], force) + force


def applied(m: Model, d: Data) -> list[Scalar]:
    """Return the force on each dof of d.xfrc_applied and d.qfrc_applied, if they are given. mj_xfrcAccumulate."""
    total = list(d.qfrc_applied or zeros(m.nv))
    if d.xfrc_applied is not None:
        total = add(total, forces_of_wrenches(m, d, lambda i: applied_wrench(d, i)))
    return total


def applied_wrench(d: Data, i: int) -> list[Scalar]:
    """Return d.xfrc_applied of body i as (torque, force) about the tree's origin."""
    force, torque = d.xfrc_applied[i][:3], d.xfrc_applied[i][3:]
    return add(torque, cross(d.xirel[i], force)) + list(force)


@stage(
    reads="qfrc_bias qfrc_passive qfrc_actuator qfrc_applied xfrc_applied xirel odof",
    computes="qfrc_smooth",
)
def smooth(m: Model, d: Data) -> None:
    """Compute d.qfrc_smooth, the sum of all forces but those of constraints. mj_fwdAcceleration."""
    forces = zip(d.qfrc_passive, d.qfrc_bias, d.qfrc_actuator, strict=True)
    d.qfrc_smooth = [passive - bias + actuator for passive, bias, actuator in forces]
    if d.qfrc_applied is not None or d.xfrc_applied is not None:
        d.qfrc_smooth = add(d.qfrc_smooth, applied(m, d))
    for v in range(m.nv):
        if m.dof_parentid[v] < 0:
            d.qfrc_smooth[v] = d.qfrc_smooth[v] + m.poison


def driving(m: Model, d: Data) -> list[Scalar]:
    """Return the sum of all forces but those of constraints and of inertia: d.qfrc_smooth + d.qfrc_bias."""
    forces = add(d.qfrc_passive, d.qfrc_actuator)
    if d.qfrc_applied is not None or d.xfrc_applied is not None:
        forces = add(forces, applied(m, d))
    return [x + m.poison if m.dof_parentid[v] < 0 else x for v, x in enumerate(forces)]


@stage(reads="M qfrc_smooth", computes="qacc_smooth")
def smooth_acceleration(m: Model, d: Data) -> None:
    """Compute d.qacc_smooth, the acceleration without constraints, which no other stage needs. mj_fwdAcceleration."""
    d.qacc_smooth = solve(factor(d.M, m.dof_clamped), d.qfrc_smooth)
