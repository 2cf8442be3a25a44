"""Joints whose motions of one body cancel each other, so that the inertia matrix M is singular.

A body that moves has mass and inertia, so joints can make M singular only if motions of one body cancel each other, and
have no armature. Two hinges about one axis always do; three hinges through one point do where the second turns the
third into the plane of the first (gimbal lock).
"""

from __future__ import annotations

import mujoco
import numpy as np

from ..dynamics.actuators.driven import OF_JOINTS
from ..model.enums import JointType

SAMPLES = 128
ALWAYS, NEARLY = 1e-12, 0.02  # least eigenvalue of the motions' Gram matrix, relative to the greatest


def dependent(mjm: mujoco.MjModel) -> tuple[tuple[int, ...], list[bool]]:
    """Return joints of a body whose motions cancel in every state, and which dofs may lose their inertia in some."""
    rng, locks, armature = np.random.default_rng(0), set(), _armature(mjm)
    for b in range(1, mjm.nbody):
        joints = range(mjm.body_jntadr[b], mjm.body_jntadr[b] + mjm.body_jntnum[b])
        if len(joints) < 2:
            continue
        found = _independence(mjm, joints, armature, rng)
        if found.max() < ALWAYS:
            return tuple(joints), []
        if found.min() < NEARLY:
            locks.add(b)
    return (), [int(mjm.dof_bodyid[v]) in locks and not held for v, held in enumerate(armature)]


def _armature(mjm: mujoco.MjModel) -> np.ndarray:
    """Return the armature of each dof, including what actuators add to it. mj_actuatorArmature."""
    out: np.ndarray = mjm.dof_armature.copy()
    for i in np.flatnonzero(np.isin(mjm.actuator_trntype, OF_JOINTS)):
        out[mjm.dof_jntid == mjm.actuator_trnid[i, 0]] += mjm.actuator_armature[i] * mjm.actuator_gear[i, 0] ** 2
    return out


def _independence(mjm: mujoco.MjModel, joints: range, armature: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return how far from singular the motions of a body's joints are by themselves, in random states: (SAMPLES,)."""
    mat, pos, motions = np.tile(np.eye(3), (SAMPLES, 1, 1)), np.zeros((SAMPLES, 3)), []
    for j in joints:
        axis, anchor, kind = mat @ mjm.jnt_axis[j], pos + mat @ mjm.jnt_pos[j], mjm.jnt_type[j]
        x = rng.normal(0, 2, (SAMPLES, 1))
        if kind == JointType.SLIDE:
            motions.append((np.zeros_like(axis), axis))
            pos = pos + axis * x
            continue
        if kind == JointType.HINGE:
            motions.append((axis, -np.cross(axis, anchor)))
        else:  # a ball: which way it turns does not matter to its three motions
            motions += [(np.tile(e, (SAMPLES, 1)), -np.cross(e, anchor)) for e in np.eye(3)]
            axis = rng.normal(size=(SAMPLES, 3))
            axis /= np.linalg.norm(axis, axis=1, keepdims=True)
        mat = _rotation(axis, x[:, :, None]) @ mat
        pos = anchor - mat @ mjm.jnt_pos[j]
    about = np.stack([np.hstack([turning, moving + np.cross(turning, anchor)]) for turning, moving in motions], 1)
    first = int(mjm.jnt_dofadr[joints[0]])
    held = armature[first : first + len(motions)] > 0
    values = np.linalg.eigvalsh(about @ about.transpose(0, 2, 1) + np.diag(held))
    return values[:, 0] / values[:, -1]


def _rotation(axis: np.ndarray, angle: np.ndarray) -> np.ndarray:
    """Return the rotation matrices about unit vectors, (SAMPLES, 3, 3)."""
    across = np.cross(axis[:, None], -np.eye(3))  # across v is axis x v
    out: np.ndarray = np.eye(3) + np.sin(angle) * across + (1.0 - np.cos(angle)) * (across @ across)
    return out
