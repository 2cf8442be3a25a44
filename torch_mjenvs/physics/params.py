"""Parameters: the numbers of a model that may differ from world to world.

A model is structure (integers, trees, which geoms may touch) and numbers. A world's model is a `Model` in which the
numbers that vary are scalars like any other: loads of a kernel, or tensors (B,). All others stay constants and fold
away, so that nothing is paid for what does not vary.

What MuJoCo derives from them by mj_setConst is computed per world, too (`set_const`), once whenever parameters change.
So there are columns of parameters and columns of what is derived from them.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import mujoco

from ..compiler.scalar import Mask, Scalar, absolute, logical_and, select
from .algebra.spatial import MINVAL, Vec, dot, normalize, quat_normalize
from .collision.shapes import SHAPES
from .constraints.batch.varied_rows import varied_rows
from .dynamics.actuators.kinds import forces_by_acc0
from .dynamics.fluid import has_fluid
from .dynamics.reflected import gives_armature
from .dynamics.set_const import derived_data, set_const
from .dynamics.tendons.tendon import constrained_tendons, coupled_tendons, tendons_with_armature
from .loading.numbers import most_of
from .model.data import Data
from .model.enums import JointType, WrapType
from .model.model import Model
from .model.named import PREFIXES, find
from .pipeline import FWD_POSITION, compute

# What may vary, by MuJoCo's names (of mjOption, without `opt.`).
OPTIONS = ("gravity", "wind", "density", "viscosity")
INERTIAL = (  # on which masses and inertias as seen by joints depend
    "body_mass", "body_inertia", "body_ipos", "body_iquat", "body_pos", "body_quat",
    "dof_armature", "jnt_axis", "jnt_pos", "qpos0",
)  # fmt: skip
FORCES = ("body_gravcomp", "jnt_stiffness", "dof_damping", "dof_frictionloss", "qpos_spring", "jnt_range")
ACTUATORS = (
    "actuator_gear", "actuator_dynprm", "actuator_gainprm", "actuator_biasprm", "actuator_ctrlrange",
    "actuator_actrange", "actuator_forcerange",
)  # fmt: skip
GEOMS = (
    "geom_size", "geom_pos", "geom_quat", "geom_friction", "geom_solref", "geom_solimp", "geom_margin",
)  # fmt: skip
SITES = ("site_pos", "site_quat")
TENDONS = (
    "tendon_stiffness", "tendon_damping", "tendon_frictionloss", "tendon_range", "tendon_armature", "wrap_prm",
)  # fmt: skip
EQUALITIES = ("eq_solref", "eq_solimp")
PAIRS = ("pair_friction",)  # of <contact><pair>, which does not depend on geom_friction
CAMERAS = ("cam_pos", "cam_quat")
VARIABLE = OPTIONS + INERTIAL + FORCES + ACTUATORS + GEOMS + SITES + TENDONS + EQUALITIES + PAIRS + CAMERAS

NOT_NEGATIVE = (
    "density", "viscosity", "body_mass", "body_inertia", "dof_armature", "dof_damping", "dof_frictionloss",
    "geom_friction", "pair_friction", "tendon_damping", "tendon_frictionloss", "tendon_armature",
)  # fmt: skip
WHERE_THERE = ("dof_frictionloss", "tendon_frictionloss", "tendon_armature")  # only where the model has some
RANGES = {  # each with the field that says where it is in use
    "jnt_range": "jnt_limited",
    "tendon_range": "tendon_limited",
    "actuator_ctrlrange": "actuator_ctrllimited",
    "actuator_actrange": "actuator_actlimited",
    "actuator_forcerange": "actuator_forcelimited",
}
SOLREFS, SOLIMPS = ("geom_solref", "eq_solref"), ("geom_solimp", "eq_solimp")
DIRECTIONS = (  # of any length: they are made unit vectors
    "body_quat", "body_iquat", "jnt_axis", "geom_quat", "site_quat", "cam_quat",
)  # fmt: skip

RANGE_RULE = (
    "a range in use begins before it ends, and is no narrower than twice the margin unless it is so in the model"
)

# Why others may not.
REASONS = {
    "timestep": "the time step is a constant of the integrator",
    "body_subtreemass": "it follows from body_mass",
    "body_invweight0": "it follows from masses and inertias",
    "dof_invweight0": "it follows from masses and inertias",
    "tendon_invweight0": "it follows from masses and inertias",
    "meaninertia": "it follows from masses and inertias",
    "actuator_acc0": "it follows from masses and inertias",
    "eq_data": "of bodies it follows from where they are in the model",
    "eq_active0": "which equalities act is an input of every step: pass inputs=('eq_active',)",
    "solref": "vary geom_solref",
}


def check_names(m: Model, names: Iterable[str]) -> tuple[str, ...]:
    """Return the names, in the order of `variable`. Raises ValueError for one that cannot vary, saying why."""
    names, known = (names,) if isinstance(names, str) else tuple(names), variable(m)
    for name in names:
        if name in m.switched_off:
            raise ValueError(f"{name} cannot vary: a disable flag of the model switches off what it is for")
        if name == "geom_size" and any(row[0] > 0 for row in m.geom_fluid):
            raise ValueError(
                "geom_size cannot vary: geoms with fluidshape='ellipsoid' have virtual masses, which follow from it"
            )
        if name == "qpos_spring" and m.plastic0:
            raise ValueError("qpos_spring cannot vary: springs of the model yield, so that where they rest is state")
        if name not in known:
            why = REASONS.get(name) or _why_not(m, name)
            raise ValueError(f"{name!r} cannot vary: {why}. What can: {', '.join(known)}")
    return tuple(name for name in known if name in names)


def check_wind(m: Model, names: Collection[str]) -> None:
    """Raise ValueError if the wind moves nothing in a model of which the parameters of these names vary."""
    if "wind" in m.switched_off:
        raise ValueError("wind has no use: disable flags of the model switch off the forces of the fluid")
    if not (has_fluid(m) or {"density", "viscosity"} & {*names}):
        raise ValueError(
            "wind has no use: the model has neither density nor viscosity, as by <option density='1.2'/> (kg/m3, air)"
        )


def variable(m: Model) -> tuple[str, ...]:
    """Return the names of all that may vary: what physics reads, then what is only shown."""
    return VARIABLE + tuple(x.name for x in m.shown)


def _why_not(m: Model, name: str) -> str:
    if name in {f.name for f in dataclasses.fields(m)}:
        return "it is structure: the code is written for it"
    if hasattr(mujoco.MjModel, name) or hasattr(mujoco.MjOption, name):
        return "the kernels are made for the model's own"
    return "the model has no parameter of this name"


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
        return {name: _shape(getattr(self.model, name)) for name in self.names}

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
        return {name: _nested(iter(columns[place]), shapes[name]) for name, place in self.places().items()}

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
        return [_entry(found[name], index) for name, index in self.derived]

    def world(self, columns: Vec, derived: Vec) -> Model:
        """Return the model of a world, from its columns of parameters and of what is derived.

        What depends on parameters alone is computed here, so that a kernel does so once before its loops, and not in
        every iteration.
        """
        world = _replaced(self.model, self.values(columns))
        new: dict[str, Any] = {}
        for (name, index), x in zip(self.derived, derived, strict=True):
            new[name] = _put(new.get(name, getattr(world, name)), index, x)
        world = dataclasses.replace(world, **new)
        compute(Data(world, qpos=list(world.qpos0)), FWD_POSITION)
        varied_rows(world)
        return world


def sensible(m: Model, values: Mapping[str, Any]) -> Iterator[tuple[str, str, Mask]]:
    """Yield (name, rule, mask of the worlds whose parameters obey the rule) for each rule of these parameters."""
    shown = {x.name: x for x in m.shown}
    for name, rows in values.items():
        numbers, most = leaves(rows), most_of(name)
        if name in RANGES:
            yield name, "ends of ranges are numbers", logical_and(*(absolute(x) <= most for x in numbers))
            yield name, RANGE_RULE, _ordered(m, name, rows)
            continue
        yield name, f"numbers are finite, at most {most:.0e}", logical_and(*(absolute(x) <= most for x in numbers))
        if name in shown:
            field = shown[name]
            kept = (absolute(rows[i][k] - field.values[i][k]) <= 1e-5 for i, k in field.fixed)
            yield name, field.rule, logical_and(*kept)
        if name in DIRECTIONS:
            yield name, "a direction is not 0", logical_and(*(dot(row, row) > MINVAL for row in rows))
        if name in NOT_NEGATIVE and all(x >= 0.0 for x in leaves(getattr(m, name))):
            yield name, "numbers are not negative", logical_and(*(x >= 0.0 for x in numbers))
        if name in WHERE_THERE:
            none = [x for x, usual in zip(numbers, getattr(m, name), strict=True) if not usual > 0.0]
            what = f"{name.split('_')[0]}s without any in the model have none"
            yield name, what, logical_and(*(absolute(x) <= 0.0 for x in none))
        if name == "geom_size":
            yield name, "geoms have a size", _sized(m, rows)
        if name in SOLREFS:
            yield name, "both numbers keep their signs: they say which format it is", _same_format(m, name, rows)
        if name in SOLIMPS:
            nominal = zip(rows, getattr(m, name), strict=True)
            same = logical_and(*(absolute(row[4] - usual[4]) <= 1e-5 for row, usual in nominal))
            yield name, "the power, the fifth number, is the model's", same
        if name in ("body_mass", "body_inertia"):
            yield name, "all that moves by joints of its own has some", _carries(m, name, rows)


def _ordered(m: Model, name: str, rows: Sequence[Vec]) -> Mask:
    """Return the mask of where each range in use begins before it ends.

    Both ends of a limit may be near at once only if they are in the model, since that is structure.
    """
    out: Mask = True
    for i, (low, high) in enumerate(rows):
        if not getattr(m, RANGES[name])[i]:
            continue
        out = logical_and(out, low <= high)
        if name in ("jnt_range", "tendon_range") and not (name == "jnt_range" and m.jnt_type[i] == JointType.BALL):
            margin, (first, last) = getattr(m, name.replace("range", "margin"))[i], getattr(m, name)[i]
            if margin > 0 and last - first > 2 * margin:
                out = logical_and(out, high - low > 2 * margin)
    return out


def _sized(m: Model, rows: Sequence[Vec]) -> Mask:
    """Return the mask of where geoms of shapes that can touch have sizes greater than 0."""
    numbers = {kind: shape.nsize for kind, shape in SHAPES.items()}
    return logical_and(
        *(x > 0.0 for row, kind in zip(rows, m.geom_type, strict=True) for x in row[: numbers.get(kind, 0)])
    )


def _same_format(m: Model, name: str, rows: Sequence[Any]) -> Mask:
    pairs = zip(leaves(rows), leaves(getattr(m, name)), strict=True)
    return logical_and(*(x > 0.0 if usual > 0.0 else x <= 0.0 for x, usual in pairs))


def _carries(m: Model, name: str, rows: Sequence[Any]) -> Mask:
    """Return the mask of where each body with joints, together with what is welded to it, has mass (or inertia)."""
    out: Mask = True
    for i in range(1, m.nbody):
        if m.body_weldid[i] == i:
            carried = [rows[k] for k in range(m.nbody) if m.body_weldid[k] == i]
            for parts in zip(*([x] if name == "body_mass" else x for x in carried), strict=True):
                out = logical_and(out, sum(parts) > MINVAL)
    return out


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


def names_of(m: Model, name: str) -> tuple[str, ...]:
    """Return the names of the elements that a parameter has a row for. Raises ValueError for one without such rows."""
    prefix = name.split("_")[0]
    if prefix not in PREFIXES.values():
        raise ValueError(f"{name!r} has no rows for elements with names")
    names: tuple[str, ...] = getattr(m, f"{prefix}_names")
    return names


def rows_of(m: Model, only: Mapping[str, Sequence[str | int]]) -> dict[str, tuple[int, ...]]:
    """Return the row numbers of these elements by parameter. Raises KeyError or IndexError for an unknown one."""
    return {
        name: tuple(sorted({find(name.split("_")[0], names_of(m, name), x) for x in which}))
        for name, which in only.items()
    }


def _unit(row: Vec) -> list[Scalar]:
    """Return a unit quaternion (4) or a unit vector (3) of the same direction."""
    return quat_normalize(row) if len(row) == 4 else normalize(row, [0.0, 0.0, 1.0])


# nested tuples


def _shape(x: Any) -> tuple[int, ...]:
    return (len(x), *_shape(x[0])) if isinstance(x, tuple) and x else ((0,) if isinstance(x, tuple) else ())


def leaves(x: Any) -> list[Any]:
    """Return the numbers in nested lists and tuples, in order."""
    return [number for part in x for number in leaves(part)] if isinstance(x, (list, tuple)) else [x]


def floats(xs: list[Scalar]) -> list[Scalar]:
    """Return numbers with floats in place of ints, as a buffer of floats needs them."""
    return [float(x) if isinstance(x, int) else x for x in xs]


def _nested(numbers: Iterator[Scalar], shape: tuple[int, ...]) -> Any:
    return tuple(_nested(numbers, shape[1:]) for _ in range(shape[0])) if shape else next(numbers)


def as_rows(m: Model, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values by name, nested as in the model, from nested scalars or from tensors (B, ...)."""
    worlds_last = {name: x.movedim(0, -1) if hasattr(x, "movedim") else x for name, x in values.items()}
    return {name: _nested_of(name, x, _shape(getattr(m, name))) for name, x in worlds_last.items()}


def _nested_of(name: str, x: Any, shape: tuple[int, ...]) -> Any:
    if not shape:
        return float(x) if isinstance(x, int) else x
    if not hasattr(x, "__len__") or len(x) != shape[0]:
        raise ValueError(f"{name}: {x!r} does not hold {shape[0]} entries")
    return tuple(_nested_of(name, x[i], shape[1:]) for i in range(shape[0]))


def _entry(x: Any, index: tuple[int, ...]) -> Any:
    for i in index:
        x = x[i]
    return x


def _put(x: Any, index: tuple[int, ...], value: Scalar) -> Any:
    if not index:
        return value
    return (*x[: index[0]], _put(x[index[0]], index[1:], value), *x[index[0] + 1 :])
