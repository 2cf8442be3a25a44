"""A world's own model, made of its columns of parameters and of what is derived from them.

What MuJoCo derives from parameters by mj_setConst is computed per world, too (`set_const`), once whenever they change.
So there are columns of parameters and columns of what is derived from them.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..compiler.scalar import Mask, Scalar, absolute, logical_and, select
from .algebra.nested import entry, leaves, nested, put, shape_of
from .algebra.spatial import Vec, normalize, quat_normalize
from .constraints.batch.varied_rows import varied_rows
from .dynamics.actuators.kinds import forces_by_acc0
from .dynamics.reflected import gives_armature
from .dynamics.set_const import derived_data, set_const
from .dynamics.tendons.tendon import constrained_tendons, coupled_tendons, tendons_with_armature
from .model.data import Data
from .model.enums import WrapType
from .model.model import Model
from .params import DIRECTIONS, INERTIAL, SITES, SOLIMPS, VARIABLE, as_rows, check_names, names_of, sensible
from .pipeline import FWD_POSITION, compute


def vary(m: Model, values: Mapping[str, Any]) -> Model:
    """Return the model with these parameters and with what mj_setConst derives from them.

    Values are nested sequences of scalars, or tensors (B, ...) for B worlds. Raises ValueError for a name that cannot
    vary, and for values of the wrong shape.
    """
    known = check_names(m, values)
    world = _replaced(m, as_rows(m, {name: values[name] for name in known}))
    return dataclasses.replace(world, **set_const(world)) if set(known) & set(deciding(m)) else world


def deciding(m: Model) -> tuple[str, ...]:
    """Return the names of the parameters on which derived ones depend.

    `actuator_gear` is one of them if actuators give armature or have a force that depends on actuator_acc0. Places of
    sites and the paths of tendons are if any tendon constrains or has armature, or any actuator has such a force.
    """
    out = (*INERTIAL, "tendon_armature") + ("actuator_gear",) * bool(forces_by_acc0(m) or gives_armature(m))
    if forces_by_acc0(m) or constrained_tendons(m) or tendons_with_armature(m):
        wraps = WrapType.SPHERE in m.wrap_type or WrapType.CYLINDER in m.wrap_type
        out += ("wrap_prm", *SITES, *(("geom_size", "geom_pos", "geom_quat") if wraps else ()))
    return out


@dataclasses.dataclass(frozen=True)
class Columns:
    """The columns of a world's parameters, each parameter in MuJoCo's order, and of what is derived from them.

    only: the rows that vary, for some of the parameters; their other rows have columns, too, but are constants.
    """

    model: Model
    names: tuple[str, ...]
    only: tuple[tuple[str, tuple[int, ...]], ...] = ()

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: shape_of(getattr(self.model, name)) for name in self.names}

    @property
    def size(self) -> int:
        return sum(map(math.prod, self.shapes.values()))

    def places(self) -> dict[str, slice]:
        """Return the columns of each parameter, by name."""
        out, start = {}, 0
        for name, shape in self.shapes.items():
            out[name] = slice(start, start + math.prod(shape))
            start += math.prod(shape)
        return out

    def nominal(self) -> list[float]:
        """Return the model's own values, column by column."""
        return [float(x) for name in self.names for x in leaves(getattr(self.model, name))]

    @property
    def derived(self) -> list[tuple[str, tuple[int, ...]]]:
        """Return field and index of each derived column; the last is `poison`. What is only shown has none."""
        m = self.model
        out: list[tuple[str, tuple[int, ...]]] = []
        if not set(self.names) & set(VARIABLE):  # physics reads none of them
            return out
        if (set(self.names) - self._of_still_bodies()) & set(deciding(m)):
            if "body_mass" in self.names:
                out += [("body_subtreemass", (i,)) for i in range(m.nbody)]
            moving = [i for i in range(m.nbody) if m.body_weldid[i]]
            out += [("body_invweight0", (i, k)) for i in moving for k in (0, 1)]
            out += [("dof_invweight0", (v,)) for v in range(m.nv)]
            out += [("tendon_invweight0", (t,)) for t in constrained_tendons(m)]
            out += [("tendon_length0", (t,)) for t in coupled_tendons(m)]
            out += [("meaninertia", ())]
            out += [("actuator_acc0", (i,)) for i in forces_by_acc0(m)]
            out += [("eq_data", (i, k)) for i, places in derived_data(m).items() for k in places]
        return [*out, ("poison", ())]

    def _of_still_bodies(self) -> set[str]:
        """Return the parameters that only pose bodies that nothing moves: nothing is derived from them."""
        m = self.model
        if derived_data(m) or any(kind != WrapType.JOINT for kind in m.wrap_type):
            return set()
        return {
            name
            for name, rows in self.only
            if name in ("body_pos", "body_quat") and all(m.body_weldid[i] == 0 for i in rows)
        }

    def given(self, columns: Vec) -> dict[str, Any]:
        """Return what the columns hold, nested as in the model."""
        shapes = self.shapes
        return {name: nested(iter(columns[place]), shapes[name]) for name, place in self.places().items()}

    def values(self, columns: Vec) -> dict[str, Any]:
        """Return the parameters of a world, nested as in the model."""
        values = self.given(columns)
        for name, rows in self.only:
            usual = getattr(self.model, name)
            values[name] = tuple(x if i in rows else usual[i] for i, x in enumerate(values[name]))
        return values

    def changed_rows(self, name: str, values: Vec) -> list[str]:
        """Return the names of the elements that do not vary although these values, column by column, change them."""
        rows = dict(self.only).get(name)
        if rows is None:
            return []
        per_row, usual = math.prod(self.shapes[name][1:]), leaves(getattr(self.model, name))
        changed = {
            i // per_row
            for i, (x, y) in enumerate(zip(values, usual, strict=True))
            if not (isinstance(x, float) and x == y)
        }
        return [names_of(self.model, name)[i] for i in sorted(changed - {*rows})]

    def sensible(self, given: Mapping[str, Any]) -> Iterator[tuple[str, str, Mask]]:
        """Yield (name, rule, mask of the worlds whose parameters obey the rule) for each rule of these parameters.

        given: by name, nested as in the model.
        """
        yield from sensible(self.model, given)
        for name, rows in self.only:
            if name in given:
                usual, known = getattr(self.model, name), names_of(self.model, name)
                others = [(x, y) for i, (x, y) in enumerate(zip(given[name], usual, strict=True)) if i not in rows]
                same = [absolute(x - y) <= 1e-5 for x, y in zip(*map(leaves, zip(*others, strict=True)), strict=True)]
                what = ", ".join(repr(known[i]) for i in rows)
                yield name, f"only that of {what} varies: pass vary=({name!r},) to have all vary", logical_and(*same)

    def derive(self, columns: Vec) -> list[Scalar]:
        """Return the derived columns from a world's parameters. mj_setConst.

        The last one, `poison`, is NaN where the parameters are impossible, else 0.
        """
        if not self.derived:
            return []
        world = _replaced(self.model, self.values(columns))
        given = {name: x for name, x in self.given(columns).items() if name in VARIABLE}
        found = set_const(world) if len(self.derived) > 1 else {}
        sense = logical_and(*(mask for *_, mask in self.sensible(given)))
        found["poison"] = select(sense, 0.0, math.nan)
        return [entry(found[name], index) for name, index in self.derived]

    def world(self, columns: Vec, derived: Vec) -> Model:
        """Return the model of a world, from its columns of parameters and of what is derived.

        What depends on parameters alone is computed here, so that a kernel does so once before its loops, and not in
        every iteration.
        """
        world = _replaced(self.model, self.values(columns))
        new: dict[str, Any] = {}
        for (name, index), x in zip(self.derived, derived, strict=True):
            new[name] = put(new.get(name, getattr(world, name)), index, x)
        world = dataclasses.replace(world, **new)
        compute(Data(world, qpos=list(world.qpos0)), FWD_POSITION)
        varied_rows(world)
        return world


def _replaced(m: Model, values: Mapping[str, Any]) -> Model:
    """Return the model with these parameters, normalized, but without what mj_setConst derives from them."""
    shown = tuple(dataclasses.replace(x, values=values[x.name]) if x.name in values else x for x in m.shown)
    new = {name: x for name, x in values.items() if name in VARIABLE}
    if not new:
        return dataclasses.replace(m, shown=shown)
    for name in new.keys() & {"body_ipos", "body_iquat"}:  # the world has none
        new[name] = (getattr(m, name)[0], *new[name][1:])
    for name in new.keys() & set(SOLIMPS):  # the power is structure
        new[name] = tuple((*row[:4], usual[4]) for row, usual in zip(new[name], getattr(m, name), strict=True))
    if "wrap_prm" in new:  # for a geom this is the number of its side site
        geoms, kinds = (WrapType.SPHERE, WrapType.CYLINDER), zip(new["wrap_prm"], m.wrap_prm, m.wrap_type, strict=True)
        new["wrap_prm"] = tuple(usual if kind in geoms else x for x, usual, kind in kinds)
    for name in DIRECTIONS:
        if name in new:
            usual = getattr(m, name)
            new[name] = tuple(x if x is y else tuple(_unit(x)) for x, y in zip(new[name], usual, strict=True))
    moved = {name for name in new if not _is_still(m, name, new[name])}
    if moved & {"body_ipos", "body_iquat", "body_quat", "jnt_axis", "jnt_pos"}:
        new["dof_simplenum"] = (0,) * m.nv  # no body's inertia is known to be diagonal in its dofs
    if new.keys() & {"dof_armature", "jnt_axis", "jnt_pos", *(("actuator_gear",) if gives_armature(m) else ())}:
        # it is not known beforehand where a pivot may vanish
        new["dof_clamped"] = tuple(m.body_jntnum[i] > 1 for i in m.dof_bodyid)
    return dataclasses.replace(m, nominal=m.nominal or m, shown=shown, **new)


def _is_still(m: Model, name: str, rows: Sequence[Vec]) -> bool:
    """Return whether these rows differ from the model's only in the poses of bodies that nothing moves."""
    if name not in ("body_pos", "body_quat"):
        return False
    return all(x is y or m.body_weldid[i] == 0 for i, (x, y) in enumerate(zip(rows, getattr(m, name), strict=True)))


def _unit(row: Vec) -> list[Scalar]:
    """Return a unit quaternion (4) or a unit vector (3) of the same direction."""
    return quat_normalize(row) if len(row) == 4 else normalize(row, [0.0, 0.0, 1.0])
