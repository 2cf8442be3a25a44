"""Which connects and welds hold bodies where these are at qpos0, and which where `eq_data` was made to say.

Of a weld that was given no relpose, and of every connect, MuJoCo derives from the bodies' places at qpos0 where it
holds them. It does so in mj_setConst, also over what was written into `eq_data` since the model was compiled, as
gymnasium-robotics and Meta-World do. What an environment holds in a world should not depend on whether a mass varies,
so here such an edit stands.
"""

from __future__ import annotations

import mujoco
import numpy as np

from ..model.enums import EqType, ObjType

RELPOSE = 11  # the place in eq_data where MuJoCo notes that it derives a weld's relpose


def given_ties(mjm: mujoco.MjModel) -> list[int]:
    """Return the connects and welds of bodies whose numbers in eq_data mj_setConst would replace by other ones."""
    ties = [i for i in range(mjm.neq) if _of_bodies(mjm, i)]
    if not ties:
        return []
    d = mujoco.MjData(mjm)
    mujoco.mj_kinematics(mjm, d)
    return [i for i in ties if not np.allclose(_derived(mjm, d, i), _stored(mjm, i), rtol=1e-9, atol=1e-9)]


def derived_ties(mjm: mujoco.MjModel) -> tuple[bool, ...]:
    """Return for each equality whether numbers in eq_data follow from where its bodies are at qpos0."""
    given = given_ties(mjm)
    return tuple(_of_bodies(mjm, i) and i not in given for i in range(mjm.neq))


def _of_bodies(mjm: mujoco.MjModel, i: int) -> bool:
    """Return whether mj_setConst computes an equality's numbers."""
    derives = mjm.eq_type[i] == EqType.CONNECT or (mjm.eq_type[i] == EqType.WELD and mjm.eq_data[i, RELPOSE])
    return bool(derives and mjm.eq_objtype[i] == ObjType.BODY)


def _stored(mjm: mujoco.MjModel, i: int) -> np.ndarray:
    """Return a connect's second anchor; a weld's first one and, as a matrix, its orientation."""
    data = mjm.eq_data[i]
    return data[3:6] if mjm.eq_type[i] == EqType.CONNECT else np.concatenate([data[3:6], _matrix(data[6:10])])


def _derived(mjm: mujoco.MjModel, d: mujoco.MjData, i: int) -> np.ndarray:
    """Return what `_stored` would return after mj_setConst."""
    bodies = int(mjm.eq_obj1id[i]), int(mjm.eq_obj2id[i])
    weld = mjm.eq_type[i] == EqType.WELD
    given, other = reversed(bodies) if weld else bodies
    turn = d.xmat[other].reshape(3, 3)
    anchor = d.xpos[given] + d.xmat[given].reshape(3, 3) @ mjm.eq_data[i, :3]
    seen = turn.T @ (anchor - d.xpos[other])
    return np.concatenate([seen, (turn.T @ d.xmat[given].reshape(3, 3)).ravel()]) if weld else seen


def _matrix(quat: np.ndarray) -> np.ndarray:
    matrix = np.empty(9)
    length = np.linalg.norm(quat)
    mujoco.mju_quat2Mat(matrix, quat / length if length else quat)
    return matrix
