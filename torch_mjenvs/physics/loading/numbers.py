"""`refuse_numbers`, which refuses an `mjModel` with numbers that are NaN, infinite or too large.

MuJoCo's compiler lets NaN, infinities and 1e300 through nearly everywhere, and an `MjModel` that was edited, or a file
that was damaged, may hold them anywhere. The first step would turn them into NaN without a word.
"""

from __future__ import annotations

import dataclasses
import math

import mujoco
import numpy as np

from ..algebra.spatial import MAXVAL
from ..model.model import Model
from .refusals import describe, not_supported

# MuJoCo's own bound on positions, velocities and accelerations, and that of parameters that vary (`params.sensible`).
MOST = MAXVAL
# Masses and the coefficients of forces, which models make huge to hold something fast: Fetch has a damping of 1e11 on
# its base, and the ground of a map may be a box of 1e12 kg.
HEAVY = (
    "mass", "armature", "stiffness", "stiffnesspoly", "damping", "dampingpoly", "frictionloss", "solref",
    "solreffriction", "solref_lim", "solref_fri", "gainprm", "biasprm",
)  # fmt: skip
MOST_HEAVY = 1e15
# Products of these. Inertia is mass times length squared; inverse weights are as large as masses are small, 1e15 where
# one is mjMINVAL, and a unit force's acceleration is that times a gear. float32 ends at 3e38.
DERIVED = (
    "body_subtreemass", "body_inertia", "meaninertia", "body_invweight0", "dof_invweight0", "tendon_invweight0",
    "actuator_acc0",
)  # fmt: skip
MOST_DERIVED = 1e30
# Added to distances and angles: in a sum with the largest, float32 still tells 0.1 mm and 0.1 mrad.
ADDED = ("margin", "gap")
MOST_ADDED = 1e3
# Bounds that numbers are only compared with or clipped to: infinite ones forbid nothing, which is a way to say so.
ENDLESS = (
    "jnt_range", "tendon_range", "actuator_ctrlrange", "actuator_actrange", "actuator_forcerange",
    "jnt_actfrcrange", "tendon_actfrcrange", "tendon_lengthspring", "sensor_cutoff",
)  # fmt: skip

# Read besides the fields of `Model`, which come from them.
_MORE = (
    "cam_fovy", "cam_intrinsic", "cam_sensorsize", "mesh_vert", "mesh_polynormal", "hfield_size", "hfield_data",
)  # fmt: skip
_KINDS = {"jnt": "joint", "dof": "joint", "qpos": "joint", "cam": "camera", "eq": "equality", "wrap": "tendon"}
_FIRST = {  # for fields without a row for each element: where an element's numbers begin
    "qpos": "jnt_qposadr", "wrap": "tendon_adr", "mesh_vert": "mesh_vertadr", "mesh_polynormal": "mesh_polyadr",
    "hfield_data": "hfield_adr",
}  # fmt: skip


def refuse_numbers(mjm: mujoco.MjModel) -> None:
    """Raise `UnsupportedModel` for the first number that is NaN, infinite or too large, naming field and element."""
    for name in _names():
        holders = {"": mjm, "option ": mjm.opt, "statistic ": mjm.stat}
        where = next((where for where, holder in holders.items() if hasattr(holder, name)), None)
        if where is None:  # not a field of mjModel: computed from fields that are checked
            continue
        values, most = np.asarray(getattr(holders[where], name), np.float64), most_of(name)
        wrong = np.argwhere(~(np.abs(values) <= most))  # NaN is not less than anything
        if len(wrong):
            at = tuple(wrong[0].tolist())
            of = "" if where else f" of {_owner(mjm, name, at[0])}"
            remedy = "use a number" if most == math.inf else f"use a finite number of at most {most:.0e}"
            not_supported(f"{where}{name} {values[at]:g}{of}", remedy)


def most_of(name: str) -> float:
    """Return the largest size that the numbers of a field may have."""
    if name in ENDLESS:
        return math.inf
    if name in DERIVED:
        return MOST_DERIVED
    kind = name.split("_", 1)[-1]
    return MOST_HEAVY if kind in HEAVY else MOST_ADDED if kind in ADDED else MOST


def _names() -> tuple[str, ...]:
    """Return the fields to check; those that others follow from come first, so that the cause is named."""
    of_model = [f.name for f in dataclasses.fields(Model) if f.init and str(f.type) in ("float", "Floats", "Rows")]
    of_model = [name for name in of_model if not name.startswith("key_")]  # which physics does not read
    follows = ("body_", "qpos", "tendon_", "eq_data")  # from geoms, bodies, wraps and joints, bodies
    return tuple(sorted((*of_model, *_MORE), key=lambda name: (name in DERIVED, name.startswith(follows))))


def _owner(mjm: mujoco.MjModel, name: str, row: int) -> str:
    """Return the element that a row of a field belongs to, as messages call it."""
    kind = name.split("_")[0].rstrip("0")
    first = _FIRST.get(name, _FIRST.get(kind))
    if first:
        starts = getattr(mjm, first)
        row = int(np.flatnonzero(starts <= row)[-1])
    elif kind == "dof":
        row = int(mjm.dof_jntid[row])
    return describe(mjm, _KINDS.get(kind, kind), row)
