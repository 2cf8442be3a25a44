"""A read-only MjModel for users, with MuJoCo's own attributes.

The kernels are made from the model when an environment is constructed, so writing into it later would change nothing:
it raises ValueError. Only fields that affect nothing but pictures may be written, until rays draw pictures, whose
kernels are made from them; and not where they vary from world to world.
"""

from __future__ import annotations

import copy
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, NoReturn

import mujoco
import numpy as np

from ..physics.params import VARIABLE
from ..rendering.parameters import COLOURS, LIGHTS
from .read_only import ReadOnlyPart, accessors, read_only

# Beginnings of the names of fields that affect nothing but pictures.
SHOWN = (
    "vis", "stat", "cam_", "light_", "mat_", "tex_", "skin_", "geom_rgba", "geom_matid", "geom_group",
    "site_rgba", "site_matid", "site_group", "site_size", "tendon_rgba", "tendon_matid", "tendon_group", "tendon_width",
)  # fmt: skip
SETTINGS = ("vis", "stat")  # those of them that are of a whole picture
PREFIXES = {
    "joint": "jnt", "camera": "cam", "material": "mat", "texture": "tex", "equality": "eq", "keyframe": "key",
}  # fmt: skip


def model_view(model: mujoco.MjModel, varying: Collection[str]) -> mujoco.MjModel:
    """Return a copy of the model that refuses to be written into; copies of it by `copy` or pickle do not.

    varying: the fields that every world has its own numbers for.
    """
    new: mujoco.MjModel = _ModelView.__new__(_ModelView)
    mujoco.MjModel.__setstate__(new, model.__getstate__())
    vars(new)["_rules"] = Rules(frozenset(varying))
    return new


def drawn_by_rays(view: mujoco.MjModel) -> None:
    """Refuse writes into what rays draw from now on, too: their kernels are made from it."""
    vars(view)["_rules"].drawn = True


@dataclass
class Rules:
    """What may be written into a model."""

    varying: frozenset[str]
    drawn: bool = False  # whether rays draw it

    def guarded(self, name: str, x: Any) -> Any:
        """Return what a reader gets for a field."""
        if isinstance(x, mujoco.MjOption):
            return self.part("opt.", x)
        return read_only(x, name, self.refuse) if isinstance(x, np.ndarray) and not self.allows(name) else x

    def part(self, prefix: str, part: Any) -> ReadOnlyPart:
        """Wrap `opt`, or an element such as a body, whose fields have the model's names without their prefix."""

        def full(name: str) -> str:
            return f"dof_{name}" if prefix == "jnt_" and not hasattr(mujoco.MjModel, prefix + name) else prefix + name

        return ReadOnlyPart(part, lambda name, x: self.guarded(full(name), x), lambda name: self.write(full(name)))

    def allows(self, name: str) -> bool:
        """Return whether this field may be written."""
        return name.startswith(SETTINGS if self.drawn else SHOWN) and name not in self.varying

    def write(self, name: str) -> None:
        """Raise ValueError if this field is not to be written."""
        if not self.allows(name):
            self.refuse(name)

    def refuse(self, name: str) -> NoReturn:
        """Raise ValueError that says why this field is not to be written, and what to do."""
        short = name.rsplit(".")[-1]
        why = "the pictures are" if name.startswith(SHOWN) else "the kernels are"
        why, how = f"{why} made from the model already", "give an xml_file, or a task whose load() changes the model"
        if short in self.varying:
            why, how = "each world has its own", f"call set_params({{{short!r}: ...}})"
        elif short in VARIABLE + COLOURS + LIGHTS:
            how = f"make the environment with vary=[{short!r}] and call set_params({{{short!r}: ...}})"
        raise ValueError(f"model.{name} is read only: {why}. To change it, {how}")


class _ModelView(mujoco.MjModel):
    def __getattribute__(self, name: str) -> Any:
        x = super().__getattribute__(name)
        if name.startswith("_"):
            return x
        rules: Rules = super().__getattribute__("__dict__")["_rules"]
        if name in accessors(mujoco.MjModel):
            return lambda *which: rules.part(PREFIXES.get(name, name) + "_", x(*which))
        return rules.guarded(name, x)

    def __setattr__(self, name: str, value: Any) -> None:
        vars(self)["_rules"].write(name)
        super().__setattr__(name, value)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickle what `copy.copy` makes, which may be written into."""
        return copy.copy, (copy.copy(self),)
