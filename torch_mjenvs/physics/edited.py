"""An mjModel with other parameters: a world's own model, for MuJoCo's C."""

from __future__ import annotations

import copy
from collections.abc import Mapping

import mujoco
import numpy as np

from .collision.shapes import SHAPES
from .loading.ties import given_ties
from .model.enums import GeomType, WrapType
from .params import OPTIONS, SOLIMPS

PLACES = {  # what MuJoCo's compiler found out about each of these: that two frames are one
    "body": ("body_ipos", "body_iquat"), "geom": ("geom_pos", "geom_quat", "body_ipos", "body_iquat"),
    "site": ("site_pos", "site_quat", "body_ipos", "body_iquat"),
}  # fmt: skip
# Of these, with a row for each body or joint, it depends which entries of M are 0.
COUPLING = {"body_ipos": "body", "body_iquat": "body", "jnt_axis": "joint", "jnt_pos": "joint"}


def edited(loaded: mujoco.MjModel, values: Mapping[str, np.ndarray]) -> mujoco.MjModel:
    """Return a copy with these parameters, by MuJoCo's names, and with what mj_setConst derives from them.

    What MuJoCo's compiler took from the old values is undone: frames that were one, bounds of geoms, boxes of the
    midphase. Raises ValueError if the inertia of a body that it found to be simple gets terms for which M has no room.
    """
    model = copy.copy(loaded)
    changed = set()
    for name, value in values.items():
        part = model.opt if name in OPTIONS else model
        old = np.array(getattr(part, name))
        new = _normalized(model, name, old, np.array(value, dtype=float).reshape(old.shape))
        if (new != old).any():
            changed.add(name)
            _check_room(model, name, new != old)
            setattr(part, name, new)
    for kind, places in PLACES.items():
        if changed & set(places):
            getattr(model, f"{kind}_sameframe")[:] = 0
    if "geom_size" in changed:
        for geom, size in enumerate(model.geom_size.tolist()):
            if bound := SHAPES[GeomType(model.geom_type[geom])].bound:
                model.geom_rbound[geom] = bound(size)
    if changed & {"geom_size", *PLACES["geom"]}:
        model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_MIDPHASE
    if changed:
        mujoco.mj_setConst(model, mujoco.MjData(model))
        given = given_ties(loaded)
        model.eq_data[given] = loaded.eq_data[given]
    return model


def _normalized(model: mujoco.MjModel, name: str, old: np.ndarray, new: np.ndarray) -> np.ndarray:
    """Return a parameter as physics reads it; see `params`."""
    if name in ("body_ipos", "body_iquat"):  # the world has none
        new[0] = old[0]
    if name in SOLIMPS:  # the power is structure
        new[:, 4] = old[:, 4]
    if name == "wrap_prm":  # for a geom this is the number of its side site
        geoms = np.isin(model.wrap_type, (WrapType.SPHERE, WrapType.CYLINDER))
        new[geoms] = old[geoms]
    return new


def _check_room(model: mujoco.MjModel, name: str, differs: np.ndarray) -> None:
    """Refuse what makes the diagonal matrix M of a simple body a full one."""
    if name not in COUPLING:
        return
    rows = np.flatnonzero(differs.any(axis=-1))
    for body in rows if COUPLING[name] == "body" else model.jnt_bodyid[rows]:
        if model.body_simple[body]:
            raise ValueError(
                f"MuJoCo has no room in M for another {name} of body {model.body(body).name!r}: "
                'write <body simple="false"> in the MJCF file'
            )
