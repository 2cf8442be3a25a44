"""Where the inertia matrix is singular: joints of one body that move it in the same way.

A body that moves has mass and inertia, so joints can make M singular only if motions of one body cancel each other, and
have no armature. Two hinges about one axis always do; three hinges through one point do where the second turns the
third into the plane of the first (gimbal lock).
"""

from __future__ import annotations

import mujoco
import numpy as np

SAMPLES = 128
ALWAYS, NEARLY = 1e-12, 0.02  # least eigenvalue of the motions' Gram matrix, relative to the greatest


def dependent(mjm: mujoco.MjModel) -> tuple[tuple[int, ...], list[bool]]:
    """The joints of a body whose motions cancel in every state, and which dofs may lose their inertia in some."""
    rng, locks = np.random.default_rng(0), set()
    for b in range(1, mjm.nbody):
        joints = range(mjm.body_jntadr[b], mjm.body_jntadr[b] + mjm.body_jntnum[b])
        if len(joints) < 2:
            continue
        found = [_independence(mjm, joints, rng) for _ in range(SAMPLES)]
        if max(found) < ALWAYS:
            return tuple(joints), []
        if min(found) < NEARLY:
            locks.add(b)
    return (), [int(mjm.dof_bodyid[v]) in locks and not mjm.dof_armature[v] for v in range(mjm.nv)]


def _independence(mjm: mujoco.MjModel, joints: range, rng: np.random.Generator) -> float:
    """How far from singular the motions of a body's joints are, by themselves, in a random state."""
    mat, pos, motions = np.eye(3), np.zeros(3), []
    for j in joints:
        axis, anchor, kind = mat @ mjm.jnt_axis[j], pos + mat @ mjm.jnt_pos[j], mjm.jnt_type[j]
        turned, x = np.zeros(4), rng.normal(0, 2)
        if kind == mujoco.mjtJoint.mjJNT_SLIDE:
            motions.append((np.zeros(3), axis))
            pos = pos + axis * x
            continue
        if kind == mujoco.mjtJoint.mjJNT_HINGE:
            motions.append((axis, -np.cross(axis, anchor)))
            mujoco.mju_axisAngle2Quat(turned, axis, x)
        else:  # a ball: which way it turns does not matter to its three motions
            motions += [(e, -np.cross(e, anchor)) for e in np.eye(3)]
            turned[:] = rng.normal(size=4)
            mujoco.mju_normalize4(turned)
        rotation = np.zeros(9)
        mujoco.mju_quat2Mat(rotation, turned)
        mat = rotation.reshape(3, 3) @ mat
        pos = anchor - mat @ mjm.jnt_pos[j]
    about = np.array([[*turning, *(moving + np.cross(turning, anchor))] for turning, moving in motions])
    first = int(mjm.jnt_dofadr[joints[0]])
    armature = mjm.dof_armature[first : first + len(motions)] > 0
    values = np.linalg.eigvalsh(about @ about.T + np.diag(armature))
    return float(values[0] / values[-1])
