"""Passive and actuator forces: mj_passive, mj_fwdActuation.

Adds to Data:

qfrc_passive    dof       springs and dampers
actuator_force  actuator  force before the gear
qfrc_actuator   dof
"""

from __future__ import annotations

from ..compiler.scalar import Scalar, clip
from .data import Data
from .model import BALL, HINGE, SLIDE, Model
from .spatial import quat_normalize, quat_sub, zeros


def passive(m: Model, d: Data) -> None:
    """mj_passive: joint springs and linear dampers."""
    d.qfrc_passive = [-(d.qvel[v] * m.dof_damping[v]) if m.dof_damping[v] != 0 else 0.0 for v in range(m.nv)]
    for j in range(m.njnt):
        if m.jnt_stiffness[j] != 0:
            for v, stretch in enumerate(_stretch(m, d, j), start=m.jnt_dofadr[j]):
                d.qfrc_passive[v] = d.qfrc_passive[v] - stretch * m.jnt_stiffness[j]


def _stretch(m: Model, d: Data, j: int) -> list[Scalar]:
    """How far joint j is from its spring's rest, dof by dof: metres and radians."""
    adr, kind = m.jnt_qposadr[j], m.jnt_type[j]
    q, rest = d.qpos[adr : adr + 7], m.qpos_spring[adr : adr + 7]
    if kind in (SLIDE, HINGE):
        return [q[0] - rest[0]]
    if kind == BALL:
        return quat_sub(quat_normalize(q[:4]), rest[:4])
    return [x - x0 for x, x0 in zip(q[:3], rest[:3], strict=True)] + quat_sub(quat_normalize(q[3:7]), rest[3:7])


def actuation(m: Model, d: Data) -> None:
    """mj_fwdActuation of motors on hinge and slide joints, from d.ctrl."""
    d.actuator_force = [_actuator_force(m, d, i) for i in range(m.nu)]
    d.qfrc_actuator = zeros(m.nv)
    for i, force in enumerate(d.actuator_force):
        v = m.jnt_dofadr[m.actuator_trnid[i]]
        d.qfrc_actuator[v] = d.qfrc_actuator[v] + force * m.actuator_gear[i][0]
    for j in range(m.njnt):
        if m.jnt_actfrclimited[j]:
            v = m.jnt_dofadr[j]
            d.qfrc_actuator[v] = clip(d.qfrc_actuator[v], *m.jnt_actfrcrange[j])


def _actuator_force(m: Model, d: Data, i: int) -> Scalar:
    ctrl = clip(d.ctrl[i], *m.actuator_ctrlrange[i]) if m.actuator_ctrllimited[i] else d.ctrl[i]
    force = ctrl * m.actuator_gainprm[i][0]
    return clip(force, *m.actuator_forcerange[i]) if m.actuator_forcelimited[i] else force
