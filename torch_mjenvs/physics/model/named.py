"""Elements of a model by name: `m.body("torso")`, `m.joint("knee")`, `m.key("home")`, as MjModel gives them."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Sequence
from typing import Any, NoReturn

from ...compiler.scalar import Scalar
from .enums import JointType

# How the names of the fields of each kind of element begin. A joint has those of its dofs, too.
PREFIXES = {
    "body": "body", "joint": "jnt", "geom": "geom", "site": "site", "actuator": "actuator", "tendon": "tendon",
}  # fmt: skip
# how many numbers a joint has in qpos and in qvel
NUMBERS = {JointType.FREE: (7, 6), JointType.BALL: (4, 3), JointType.SLIDE: (1, 1), JointType.HINGE: (1, 1)}
LISTED = 20  # names, in an error


def find(kind: str, names: Sequence[str], which: str | int) -> int:
    """Return the number of an element. Raises KeyError for an unknown name, IndexError for an unknown number."""
    if isinstance(which, str):
        if which in names:
            return names.index(which)
        near = difflib.get_close_matches(which, names, n=3)
        some = ", ".join(map(repr, names[:LISTED])) + (", ..." if len(names) > LISTED else "")
        there = f"did you mean {' or '.join(map(repr, near))}?" if near else f"it has {some or 'none'}"
        raise KeyError(f"the model has no {kind} {which!r}; {there}")
    if not 0 <= which < len(names):
        raise IndexError(f"the model has no {kind} number {which}; it has {len(names)}")
    return which


class Element:
    """A body, joint, geom, site, actuator or tendon of a model.

    `id` is its number, and the element itself stands for that number where a list is read: `data.xpos[m.body("foot")]`.
    Further attributes are MuJoCo's fields without their prefix, as tuples where MjModel's accessors give arrays:
    `m.body("foot").mass[0]`, `m.joint("knee").qposadr[0]`, `m.geom("sole").friction`. A joint also has `qpos` and
    `qvel`, the slices of its numbers: `world.qpos[m.joint("knee").qpos]`.
    """

    _model: Any  # a `Model`
    _kind: str
    id: int
    name: str

    def __init__(self, model: Any, kind: str, number: int, name: str):
        vars(self).update(_model=model, _kind=kind, id=number, name=name)

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise AttributeError(
            f"{self._kind} {self.name!r}: {name} cannot be set here. Parameters are changed by set_params, or in a "
            "task by what `randomize` returns, or `reset` in a Start(parameters=...)"
        )

    def __index__(self) -> int:
        return self.id

    def __repr__(self) -> str:
        return f"<{self._kind} {self.id} {self.name!r}>"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # copies and pickles ask for such names before there is a model
            raise AttributeError(name)
        m, prefix, known = self._model, PREFIXES[self._kind], self._fields()
        if name not in known:
            near = difflib.get_close_matches(name, known, n=3) or sorted(known)
            raise AttributeError(f"{self._kind} {self.name!r} has no {name!r}; it has {', '.join(near)}")
        if self._kind == "joint":
            at = dict(zip(("qpos", "qvel"), self._slices(), strict=True))
            if name in at:
                return at[name]
            if name in ("qpos0", "qpos_spring"):
                return getattr(m, name)[at["qpos"]]
            if known[name].startswith("dof_"):
                return getattr(m, known[name])[at["qvel"]]
        value = getattr(m, f"{prefix}_{name}")[self.id]
        return value if isinstance(value, tuple) else (value,)

    def _fields(self) -> dict[str, str]:
        """Return the attributes besides `id` and `name`, and the model's fields in which they are."""
        prefixes = ["dof", "jnt"] if self._kind == "joint" else [PREFIXES[self._kind]]
        more = ("qpos", "qvel", "qpos0", "qpos_spring") if self._kind == "joint" else ()
        fields = [f.name for f in dataclasses.fields(self._model) if f.init and not f.name.endswith("_names")]
        fields += [x.name for x in self._model.shown]
        found = {f.partition("_")[2]: f for prefix in prefixes for f in fields if f.startswith(f"{prefix}_")}
        return found | {name: name for name in more}

    def _slices(self) -> tuple[slice, slice]:
        """Return where a joint's numbers are in qpos and qvel."""
        m, i = self._model, self.id
        nq, nv = NUMBERS[JointType(m.jnt_type[i])]
        q, v = m.jnt_qposadr[i], m.jnt_dofadr[i]
        return slice(q, q + nq), slice(v, v + nv)


@dataclasses.dataclass(frozen=True)
class Keyframe:
    """A keyframe of a model: lists of numbers, which are the caller's to change."""

    id: int
    name: str
    qpos: list[Scalar]
    qvel: list[Scalar]
    act: list[Scalar]
    ctrl: list[Scalar]
