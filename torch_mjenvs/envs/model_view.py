"""A read-only MjModel for users, with MuJoCo's own attributes.

The kernels are made from the model when an environment is constructed, so writing into it later would change nothing:
it raises ValueError. Only fields that affect nothing but pictures may be written.
"""

from __future__ import annotations

from typing import Any, NoReturn

import mujoco
import numpy as np

from ..physics.params import VARIABLE
from .read_only import ReadOnlyPart, accessors, read_only

# Beginnings of the names of fields that affect nothing but pictures.
SHOWN = (
    "vis", "stat", "cam_", "light_", "mat_", "tex_", "skin_", "geom_rgba", "geom_matid", "geom_group",
    "site_rgba", "site_matid", "site_group", "site_size", "tendon_rgba", "tendon_matid", "tendon_group", "tendon_width",
)  # fmt: skip
PREFIXES = {
    "joint": "jnt", "camera": "cam", "material": "mat", "texture": "tex", "equality": "eq", "keyframe": "key",
}  # fmt: skip


def model_view(model: mujoco.MjModel) -> mujoco.MjModel:
    """Return a copy of the model that refuses to be written into; copies of it by `copy` do not."""
    new: mujoco.MjModel = _ModelView.__new__(_ModelView)
    mujoco.MjModel.__setstate__(new, model.__getstate__())
    return new


class _ModelView(mujoco.MjModel):
    def __getattribute__(self, name: str) -> Any:
        x = super().__getattribute__(name)
        if name in accessors(mujoco.MjModel):
            return lambda *which: _part(PREFIXES.get(name, name) + "_", x(*which))
        return _guarded(name, x)

    def __setattr__(self, name: str, value: Any) -> None:
        _write(name)
        super().__setattr__(name, value)


def _part(prefix: str, part: Any) -> ReadOnlyPart:
    """Wrap `opt`, or an element such as a body, whose fields have the model's names without their prefix."""

    def full(name: str) -> str:
        return f"dof_{name}" if prefix == "jnt_" and not hasattr(mujoco.MjModel, prefix + name) else prefix + name

    return ReadOnlyPart(part, lambda name, x: _guarded(full(name), x), lambda name: _write(full(name)))


def _guarded(name: str, x: Any) -> Any:
    if name.startswith(SHOWN):
        return x
    if isinstance(x, np.ndarray):
        return read_only(x, name, _refuse)
    return _part("opt.", x) if isinstance(x, mujoco.MjOption) else x


def _write(name: str) -> None:
    if not name.startswith(SHOWN):
        _refuse(name)


def _refuse(name: str) -> NoReturn:
    short = name.rsplit(".")[-1]
    how = "To change it, give an xml_file, or a task whose load() changes the model"
    if short in VARIABLE:
        how = f"To change it, make the environment with vary=[{short!r}] and call set_params({{{short!r}: ...}})"
    raise ValueError(f"model.{name} is read only: the kernels are made from the model already. {how}")
