"""The MjModel that users see: whoever reads it finds MuJoCo's own, and nobody writes into it.

The kernels are made from the model when an environment is, so what was written into it later would change nothing.
Only what pictures alone show may be written.
"""

from __future__ import annotations

from typing import Any, NoReturn

import mujoco
import numpy as np

# Fields that only pictures show begin so.
SHOWN = (
    "vis", "stat", "cam_", "light_", "mat_", "tex_", "skin_", "geom_rgba", "geom_matid", "geom_group",
    "site_rgba", "site_matid", "site_group", "site_size", "tendon_rgba", "tendon_matid", "tendon_group", "tendon_width",
)  # fmt: skip
# What gives an element by its name: body, joint, geom and so on.
ACCESSORS = frozenset(
    name for name in dir(mujoco.MjModel) if name.isalpha() and callable(getattr(mujoco.MjModel, name))
)
PREFIXES = {
    "joint": "jnt", "camera": "cam", "material": "mat", "texture": "tex", "equality": "eq", "keyframe": "key",
}  # fmt: skip


def model_view(model: mujoco.MjModel) -> mujoco.MjModel:
    """A copy of the model that refuses to be written into."""
    view = _ModelView.__new__(_ModelView)
    mujoco.MjModel.__setstate__(view, model.__getstate__())
    return view


class _ModelView(mujoco.MjModel):
    def __getattribute__(self, name: str) -> Any:
        x = super().__getattribute__(name)
        if name in ACCESSORS:
            return lambda *which: _Fields(PREFIXES.get(name, name) + "_", x(*which))
        return _guarded(name, x)

    def __setattr__(self, name: str, value: Any) -> None:
        if not name.startswith(SHOWN):
            _refuse(name)
        super().__setattr__(name, value)


class _Fields:
    """A part of the model: `opt`, or an element, whose fields have the model's names without their prefix."""

    def __init__(self, prefix: str, part: Any):
        vars(self).update(_prefix=prefix, _part=part)

    def _name(self, name: str) -> str:
        full = self._prefix + name
        return f"dof_{name}" if self._prefix == "jnt_" and not hasattr(mujoco.MjModel, full) else full

    def __getattr__(self, name: str) -> Any:
        return _guarded(self._name(name), getattr(self._part, name))

    def __setattr__(self, name: str, value: Any) -> None:
        if not self._name(name).startswith(SHOWN):
            _refuse(self._name(name))
        setattr(self._part, name, value)

    def __repr__(self) -> str:
        return repr(self._part)


class _Field(np.ndarray):
    """An array of the model."""

    name = ""

    def __array_finalize__(self, base: Any) -> None:
        self.name = getattr(base, "name", "")

    def __setitem__(self, at: Any, x: Any) -> None:
        if not self.flags.writeable:
            _refuse(self.name)
        super().__setitem__(at, x)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        for out in options.get("out", ()):
            if isinstance(out, _Field) and not out.flags.writeable:
                _refuse(out.name)
        plain = [x.view(np.ndarray) if isinstance(x, _Field) else x for x in inputs]
        return getattr(ufunc, method)(*plain, **options)


def _guarded(name: str, x: Any) -> Any:
    if name.startswith(SHOWN):
        return x
    if isinstance(x, np.ndarray):
        field = x.view(_Field)
        field.flags.writeable, field.name = False, name
        return field
    return _Fields("opt.", x) if isinstance(x, mujoco.MjOption) else x


def _refuse(name: str) -> NoReturn:
    short = name.rsplit(".")[-1]
    raise ValueError(
        f"model.{name} is read only: the kernels are made from the model already. To change a parameter, make the "
        f"environment with vary=[{short!r}] and call set_params({{{short!r}: ...}}); to change anything else, give an "
        "xml_file, or a task whose load() changes the model"
    )
