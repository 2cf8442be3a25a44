"""Parameters drawn for one world, and the `MjModel` that has them: the oracle of parameters that vary."""

from __future__ import annotations

import copy
from collections.abc import Mapping

import mujoco
import numpy as np

from torch_mjenvs.physics.model.model import Model
from torch_mjenvs.physics.params import OPTIONS, VARIABLE

# For bodies that MuJoCo's compiler found to be simple, the matrix M has room only for a diagonal.
TURNING = {"body_ipos", "body_iquat", "body_quat", "jnt_axis", "jnt_pos"}
SHIFTED = {
    "gravity", "wind", "body_pos", "body_ipos", "jnt_pos", "qpos_spring", "geom_pos", "geom_margin", "site_pos",
    "cam_pos",
}  # fmt: skip
DIRECTIONS = {"body_quat", "body_iquat", "jnt_axis", "geom_quat", "site_quat", "cam_quat"}


def nominal(mjm: mujoco.MjModel, name: str) -> np.ndarray:
    return np.array(getattr(mjm.opt if name in OPTIONS else mjm, name), dtype=float)


def names(mjm: mujoco.MjModel, m: Model) -> list[str]:
    """All that can vary in this model, and be compared."""
    out = set(TURNING) if np.any(mjm.body_simple) else set()
    if mjm.geom_fluid.any():
        out.add("geom_size")  # is refused: see test_sizes_do_not_vary_where_virtual_masses_follow_from_them
    if m.plastic0:
        out.add("qpos_spring")  # is refused, as the rests of springs that yield are state
    return [name for name in VARIABLE if name not in {*out, *m.switched_off} and nominal(mjm, name).size]


def draw(mjm: mujoco.MjModel, name: str, rng: np.random.Generator) -> np.ndarray:
    """A value near the model's own, that makes sense."""
    x = nominal(mjm, name)
    if name == "qpos0":
        mujoco.mj_integratePos(mjm, x, rng.normal(0, 0.1, mjm.nv), 1.0)
        return x
    if name in DIRECTIONS:
        x = x + rng.normal(0, 0.2, x.shape)
        return x / np.linalg.norm(x, axis=-1, keepdims=True)
    if name in SHIFTED:
        return x + rng.normal(0, 0.03 if name != "geom_margin" else 0.001, x.shape)
    if name == "wrap_prm":  # for geoms it is the number of the side site
        return np.where(np.isin(mjm.wrap_type, (4, 5)), x, x * rng.uniform(0.5, 2, x.shape))
    if name in ("jnt_range", "tendon_range"):
        return x + (x[:, 1:] - x[:, :1]) * rng.uniform(-0.2, 0.2, x.shape)
    if name in ("geom_solimp", "eq_solimp"):
        width = x[:, 2:3] * rng.uniform(0.5, 2, (len(x), 1))
        return np.hstack([x[:, :2] * rng.uniform(0.9, 1.0, (len(x), 2)), width, x[:, 3:4] * 0.9, x[:, 4:]])
    if name in ("dof_frictionloss", "tendon_frictionloss", "tendon_armature"):
        return x * rng.uniform(0, 2, x.shape)
    more = rng.uniform(0, 0.1, x.shape) if name.startswith(("dof_", "jnt_", "density", "viscosity")) else 0.0
    return x * rng.uniform(0.5, 2, x.shape) + (more if x.min() >= 0 else 0.0)


def edited(mjm: mujoco.MjModel, values: Mapping[str, np.ndarray]) -> mujoco.MjModel:
    """Return the model with these parameters, after mj_setConst, without what MuJoCo's compiler found out about the old
    ones.
    """
    mjm = copy.copy(mjm)
    for name, x in values.items():
        if name in OPTIONS:
            setattr(mjm.opt, name, x)
        else:
            getattr(mjm, name)[:] = x
    for shortcut in ("body_sameframe", "geom_sameframe", "site_sameframe"):
        getattr(mjm, shortcut)[:] = 0
    if TURNING & values.keys():
        mjm.body_simple[:] = mjm.dof_simplenum[:] = 0
    if "geom_size" in values:
        mjm.geom_rbound[:] = np.where(mjm.geom_type == 0, 0.0, np.sum(mjm.geom_size, 1) * 2)
        mjm.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_MIDPHASE
    mujoco.mj_setConst(mjm, mujoco.MjData(mjm))
    return mjm
