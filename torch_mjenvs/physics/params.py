"""Parameters: the numbers of a model that may differ from world to world, and the values that each may have.

A model is structure (integers, trees, which geoms may touch) and numbers. A world's model is a `Model` in which the
numbers that vary are scalars like any other: loads of a kernel, or tensors (B,). All others stay constants and fold
away, so that nothing is paid for what does not vary.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import mujoco

from ..compiler.scalar import Mask, absolute, logical_and
from .algebra.nested import as_nested, leaves, shape_of
from .algebra.spatial import MINVAL, Vec, dot
from .collision.shapes import SHAPES
from .dynamics.fluid import has_fluid
from .loading.numbers import most_of
from .model.enums import JointType
from .model.model import Model
from .model.named import PREFIXES, find

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


def as_rows(m: Model, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values by name, nested as in the model, from nested scalars or from tensors (B, ...)."""
    worlds_last = {name: x.movedim(0, -1) if hasattr(x, "movedim") else x for name, x in values.items()}
    return {name: as_nested(name, x, shape_of(getattr(m, name))) for name, x in worlds_last.items()}
