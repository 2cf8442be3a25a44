"""Fields of a model that only pictures show, and that may differ from world to world: colours and lights.

Physics does not read them. It carries them with a model (`Model.shown`), so that they vary by the same means as masses.
"""

from __future__ import annotations

import dataclasses

import mujoco
import numpy as np

from ..physics.loading.load import load as load_physics
from ..physics.model.model import Model, Rows, ShownField

COLOURS = ("geom_rgba", "site_rgba", "mat_rgba")
LIGHTS = ("light_pos", "light_dir", "light_diffuse")
UNSET = (0.5, 0.5, 0.5, 1.0)  # the colour of what has none of its own: where it has a material, that one's is shown
ALPHA = (
    "what is see-through or hidden, and how far, is as in the model: alpha, the fourth number, does not vary, nor does "
    "the grey 0.5 0.5 0.5 1 of what its material makes see-through"
)


def load(mjm: mujoco.MjModel) -> Model:
    """Return the `Model` of an `MjModel`, with what pictures show. Raises UnsupportedModel as physics does."""
    return dataclasses.replace(load_physics(mjm), shown=tuple(_field(mjm, name) for name in COLOURS + LIGHTS))


def shown(m: Model, name: str) -> Rows:
    """Return a field that is only shown, of a `Model` of `load`."""
    return next(x.values for x in m.shown if x.name == name)


def _field(mjm: mujoco.MjModel, name: str) -> ShownField:
    rows = getattr(mjm, name)
    values = tuple(tuple(map(float, row)) for row in rows.tolist())
    if name in LIGHTS:
        return ShownField(name, values)
    fixed = [(i, 3) for i in range(len(rows))]
    if name != "mat_rgba":
        materials = mjm.geom_matid if name == "geom_rgba" else mjm.site_matid
        alphas = np.append(mjm.mat_rgba[:, 3], 1.0)[materials]  # -1 is no material
        fixed += [(i, k) for i in np.flatnonzero((rows == UNSET).all(1) & (alphas != 1.0)).tolist() for k in range(3)]
    return ShownField(name, values, tuple(fixed), ALPHA)
