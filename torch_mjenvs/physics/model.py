"""The constants of a model: read from an `mjModel`, frozen, and only what is implemented.

nq positions   nv dofs   nu actuators   nbody bodies   njnt joints   ngeom geoms   nsite sites

Field names, meanings and units are MuJoCo's. A field is a nested tuple of Python numbers, so that it folds away when
physics is traced. Whatever else the `mjModel` asks for is refused: see `UnsupportedModel`.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mujoco
import numpy as np

from .singular import dependent
from .spatial import mat_mul, quat_to_mat

Floats = tuple[float, ...]
Ints = tuple[int, ...]
Rows = tuple[Floats, ...]

FREE, BALL, SLIDE, HINGE = range(4)  # mjtJoint
PLANE, SPHERE, CAPSULE = 0, 2, 3  # mjtGeom

MINMU = 1e-5  # mjMINMU
ROUNDING = 1e-14  # how far from 0 or 1 the rounding of a rotation's entries may take it

CONTACTS = {(PLANE, SPHERE): 1, (PLANE, CAPSULE): 2, (SPHERE, SPHERE): 1, (SPHERE, CAPSULE): 1, (CAPSULE, CAPSULE): 2}


class UnsupportedModel(NotImplementedError):
    """The model asks for something that is not implemented: the message names it and says what to do."""


@dataclasses.dataclass(frozen=True)
class Pair:
    """Two geoms that may touch, and what holds for their contacts (mj_contactParam).

    geom1, geom2: in the order of their types (mjtGeom), as in `mjContact.geom`.
    friction: tangent 1 and 2, spin, roll 1 and 2. solref, solimp: as MuJoCo's, not yet made safe.
    A contact acts while dist < margin (metres).
    """

    geom1: int
    geom2: int
    condim: int
    friction: Floats
    solref: Floats
    solimp: Floats
    margin: float
    gap: float


@dataclasses.dataclass(frozen=True, eq=False)
class Model:
    """An `mjModel` as nested tuples. Equal and hashed by content."""

    nq: int
    nv: int
    nu: int
    nbody: int
    njnt: int
    ngeom: int
    nsite: int
    ntendon: int

    timestep: float
    gravity: Floats
    density: float  # of the fluid; 0, like viscosity, where springs and dampers are both disabled
    viscosity: float
    wind: Floats
    integrator: str  # "euler" or "rk4"
    tolerance: float  # where Newton stops, in units of meaninertia: not the file's, but what float64 can reach
    stiff: float  # a contact's stiffness, in units of the inertia that it acts on, from which rounding shows in a step,
    stiffest: float  # and from which it is more than rounding bears
    impratio: float
    meaninertia: float

    body_parentid: Ints
    body_rootid: Ints
    body_originid: Ints  # whose place its own is measured from: the highest ancestor that moves; a static body's root
    body_weldid: Ints
    body_jntadr: Ints
    body_jntnum: Ints
    body_dofadr: Ints
    body_dofnum: Ints
    body_pos: Rows
    body_quat: Rows
    body_mat: Rows  # rotation matrix of body_quat
    body_ipos: Rows
    body_iquat: Rows
    body_imat: Rows  # rotation matrix of body_iquat
    body_mass: Floats
    body_subtreemass: Floats
    body_inertia: Rows
    body_invweight0: Rows

    jnt_type: Ints
    jnt_qposadr: Ints
    jnt_dofadr: Ints
    jnt_bodyid: Ints
    jnt_pos: Rows
    jnt_axis: Rows
    jnt_stiffness: Floats
    jnt_limited: tuple[bool, ...]
    jnt_range: Rows
    jnt_margin: Floats
    jnt_solref: Rows
    jnt_solimp: Rows
    jnt_actfrclimited: tuple[bool, ...]
    jnt_actfrcrange: Rows

    dof_bodyid: Ints
    dof_jntid: Ints
    dof_parentid: Ints
    dof_treeid: Ints
    dof_armature: Floats
    dof_damping: Floats
    dof_invweight0: Floats
    dof_simplenum: Ints
    dof_M0: Floats
    dof_clamped: tuple[bool, ...]  # whose pivot of M may vanish, and is held at mjMINVAL or more as MuJoCo holds all

    qpos0: Floats
    qpos_spring: Floats

    geom_type: Ints
    geom_bodyid: Ints
    geom_pos: Rows
    geom_quat: Rows
    geom_mat: Rows  # rotation matrix of geom_quat
    geom_size: Rows

    site_bodyid: Ints
    site_pos: Rows

    actuator_trnid: Ints  # joint
    actuator_gear: Rows
    actuator_gainprm: Rows
    actuator_ctrllimited: tuple[bool, ...]
    actuator_ctrlrange: Rows
    actuator_forcelimited: tuple[bool, ...]
    actuator_forcerange: Rows

    ten_joints: tuple[tuple[tuple[int, float], ...], ...]  # (joint, coefficient) of each fixed tendon; else empty
    ten_sites: tuple[tuple[tuple[int, int, float], ...], ...]  # (site, next site, 1 / divisor) of each spatial one
    ten_wraps: tuple[str, ...]  # who they are that wrap round geoms

    pairs: tuple[Pair, ...]

    body_names: tuple[str, ...]
    jnt_names: tuple[str, ...]
    geom_names: tuple[str, ...]
    site_names: tuple[str, ...]
    actuator_names: tuple[str, ...]

    @functools.cached_property
    def key(self) -> str:
        """A digest of all fields: equal models have equal keys, in every process."""
        fields = [(f.name, getattr(self, f.name)) for f in dataclasses.fields(self)]
        return hashlib.sha256(repr(fields).encode()).hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Model) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    @classmethod
    def from_mujoco(cls, mjm: mujoco.MjModel) -> Model:
        """Read `mjm`. Raises `UnsupportedModel` where it asks for what is not implemented."""
        _refuse(mjm)
        pairs = _pairs(mjm)
        _refuse_pairs(mjm, pairs)
        return cls(pairs=pairs, **_options(mjm), **_fields(mjm), **_derived(mjm), **_names(mjm))


def load(model: mujoco.MjModel | str | os.PathLike) -> Model:
    """The `Model` of an `MjModel`, of an MJCF string or of an MJCF or binary file.

    Raises: FileNotFoundError, ValueError (MJCF that MuJoCo does not compile), TypeError, `UnsupportedModel`.
    """
    if isinstance(model, mujoco.MjModel):
        return Model.from_mujoco(model)
    if isinstance(model, str) and model.lstrip().startswith("<"):
        return Model.from_mujoco(mujoco.MjModel.from_xml_string(model))
    if not isinstance(model, (str, os.PathLike)):
        raise TypeError(f"load takes an mujoco.MjModel, an MJCF string or a path, not {type(model).__name__}")
    path = Path(model).expanduser()
    if not path.is_file():
        raise FileNotFoundError(f"there is no model file {str(path)!r}")
    read = mujoco.MjModel.from_binary_path if path.suffix == ".mjb" else mujoco.MjModel.from_xml_path
    return Model.from_mujoco(read(str(path)))


# reading


_INTS = """nq nv nu nbody njnt ngeom nsite ntendon
    body_parentid body_rootid body_weldid body_jntadr body_jntnum body_dofadr body_dofnum
    jnt_type jnt_qposadr jnt_dofadr jnt_bodyid dof_bodyid dof_jntid dof_parentid dof_treeid dof_simplenum
    geom_type geom_bodyid site_bodyid""".split()  # noqa: SIM905
_FLOATS = """body_pos body_ipos body_mass body_subtreemass body_inertia body_invweight0
    jnt_pos jnt_range jnt_margin jnt_solref jnt_solimp jnt_actfrcrange dof_armature dof_invweight0 dof_M0
    qpos0 qpos_spring geom_pos geom_size site_pos
    actuator_gear actuator_gainprm actuator_ctrlrange actuator_forcerange""".split()  # noqa: SIM905
_BOOLS = ["jnt_actfrclimited", "actuator_forcelimited"]
_DIRECTIONS = ["body_quat", "body_iquat", "jnt_axis", "geom_quat"]


def _options(mjm: mujoco.MjModel) -> dict:
    opt = mjm.opt
    out: dict = {"timestep": opt.timestep, "impratio": opt.impratio, "tolerance": 1e-13}
    out["integrator"] = {0: "euler", 1: "rk4"}[int(opt.integrator)]
    out["gravity"] = (0.0, 0.0, 0.0) if _disabled(mjm, "GRAVITY") else _tuple(opt.gravity, float)
    out |= {"stiff": 1e5, "stiffest": 3e9}
    out["meaninertia"] = float(mjm.stat.meaninertia)
    out["wind"] = _tuple(opt.wind, float)
    still = _disabled(mjm, "SPRING") and _disabled(mjm, "DAMPER")  # mj_passive does nothing at all then
    out |= {name: 0.0 if still else float(getattr(opt, name)) for name in ("density", "viscosity")}
    return out


def _fields(mjm: mujoco.MjModel) -> dict:
    out = {name: _tuple(getattr(mjm, name), int) for name in _INTS}
    out |= {name: _tuple(getattr(mjm, name), float) for name in _FLOATS}
    out |= {name: _tuple(getattr(mjm, name), bool) for name in _BOOLS}
    out |= {name: tuple(snap(row) for row in getattr(mjm, name).tolist()) for name in _DIRECTIONS}
    return out


def _derived(mjm: mujoco.MjModel) -> dict:
    """Fields that MuJoCo keeps otherwise, or that a disable flag changes."""

    def mats(quats: np.ndarray) -> Rows:
        return tuple(rotation(q) for q in quats.tolist())

    limited = not (_disabled(mjm, "LIMIT") or _disabled(mjm, "CONSTRAINT"))
    return {
        "body_originid": _origins(mjm),
        "dof_clamped": _clamped(mjm),
        "body_mat": mats(mjm.body_quat),
        "body_imat": mats(mjm.body_iquat),
        "geom_mat": mats(mjm.geom_quat),
        "jnt_limited": tuple(bool(x) and limited for x in mjm.jnt_limited),
        "jnt_stiffness": _unless(mjm, "SPRING", mjm.jnt_stiffness),
        "dof_damping": _unless(mjm, "DAMPER", mjm.dof_damping),
        "actuator_ctrllimited": tuple(bool(x) and not _disabled(mjm, "CLAMPCTRL") for x in mjm.actuator_ctrllimited),
        "actuator_trnid": _tuple(mjm.actuator_trnid[:, 0], int),
    } | _tendons(mjm)


def _origins(mjm: mujoco.MjModel) -> Ints:
    out = [0]
    for i in range(1, mjm.nbody):
        parent = int(mjm.body_parentid[i])
        begins = parent == 0 or (mjm.body_weldid[parent] == 0 and mjm.body_weldid[i] != 0)
        out.append(i if begins else out[parent])
    return tuple(out)


def _tendons(mjm: mujoco.MjModel) -> dict:
    wrap, joints, sites, round_geoms = mujoco.mjtWrap, [], [], []
    for i in range(mjm.ntendon):
        path = range(mjm.tendon_adr[i], mjm.tendon_adr[i] + mjm.tendon_num[i])
        kinds = [int(mjm.wrap_type[w]) for w in path]
        at = [int(mjm.wrap_objid[w]) for w in path]
        parameters = [float(mjm.wrap_prm[w]) for w in path]
        joints.append(tuple((j, c) for k, j, c in zip(kinds, at, parameters, strict=True) if k == wrap.mjWRAP_JOINT))
        if wrap.mjWRAP_SPHERE in kinds or wrap.mjWRAP_CYLINDER in kinds:
            round_geoms.append(_who(mjm, "tendon", i))
        straight, divisor = [], 1.0
        for w in range(len(kinds) - 1):
            if kinds[w] == wrap.mjWRAP_PULLEY:
                divisor = parameters[w]
            elif kinds[w] == kinds[w + 1] == wrap.mjWRAP_SITE:
                straight.append((at[w], at[w + 1], 1.0 / divisor))
        sites.append(tuple(straight))
    return {"ten_joints": tuple(joints), "ten_sites": tuple(sites), "ten_wraps": tuple(round_geoms)}


def _names(mjm: mujoco.MjModel) -> dict:
    def names(kind: str, n: int) -> tuple[str, ...]:
        return tuple(_name(mjm, kind, i) for i in range(n))

    return {
        "body_names": names("body", mjm.nbody),
        "jnt_names": names("joint", mjm.njnt),
        "geom_names": names("geom", mjm.ngeom),
        "site_names": names("site", mjm.nsite),
        "actuator_names": names("actuator", mjm.nactuator),
    }


def rotation(quat: list[float]) -> Floats:
    """The rotation matrix of a quaternion, without the rounding noise that would keep a planar model from folding."""
    return snap(quat_to_mat(snap(quat)))


def frame_mul(a: Sequence[float], b: Sequence[float]) -> Floats:
    """The product of two constant rotation matrices, without rounding noise."""
    return snap(mat_mul(a, b))


def snap(xs: Sequence[float]) -> Floats:
    """Entries of a unit vector or a rotation that differ from 0 or 1 by rounding only, made exact."""
    return tuple(next((c for c in (0.0, 1.0, -1.0) if abs(x - c) < ROUNDING), x) for x in xs)


def _tuple(x: Any, kind: type) -> Any:
    if isinstance(x, np.ndarray):
        x = x.tolist()
    return tuple(_tuple(y, kind) for y in x) if isinstance(x, list) else kind(x)


def _unless(mjm: mujoco.MjModel, flag: str, values: np.ndarray) -> Floats:
    return tuple(0.0 if _disabled(mjm, flag) else float(x) for x in values)


def _name(mjm: mujoco.MjModel, kind: str, i: int) -> str:
    return mujoco.mj_id2name(mjm, getattr(mujoco.mjtObj, f"mjOBJ_{kind.upper()}"), i) or f"{kind} {i}"


def _disabled(mjm: mujoco.MjModel, flag: str) -> bool:
    return bool(mjm.opt.disableflags & getattr(mujoco.mjtDisableBit, f"mjDSBL_{flag}"))


# contact candidates


def _pairs(mjm: mujoco.MjModel) -> tuple[Pair, ...]:
    """Every geom pair that mj_collision may hand to a collision function, whatever the state."""
    if _disabled(mjm, "CONTACT") or _disabled(mjm, "CONSTRAINT"):
        return ()
    excluded = {(s >> 16, s & 0xFFFF) for s in mjm.exclude_signature.tolist()}
    bodies = mjm.geom_bodyid.tolist()
    found = []
    for b1 in range(mjm.nbody):
        for b2 in range(b1 + 1, mjm.nbody):
            if (b1, b2) in excluded or _filter_bodies(mjm, b1, b2):
                continue
            geoms = [[g for g in range(mjm.ngeom) if bodies[g] == b] for b in (b1, b2)]
            found += [(g1, g2) for g1 in geoms[0] for g2 in geoms[1] if _may_touch(mjm, g1, g2)]
    return tuple(_pair(mjm, *sorted(p, key=lambda g: mjm.geom_type[g])) for p in found)


def _filter_bodies(mjm: mujoco.MjModel, b1: int, b2: int) -> bool:
    """filterBodyPair: bodies welded together, and parent and child unless the parent is fixed to the world."""
    weld1, weld2 = int(mjm.body_weldid[b1]), int(mjm.body_weldid[b2])
    if weld1 == weld2:
        return True
    if _disabled(mjm, "FILTERPARENT") or weld1 == 0 or weld2 == 0:
        return False
    parent1, parent2 = (int(mjm.body_weldid[mjm.body_parentid[w]]) for w in (weld1, weld2))
    return weld1 == parent2 or weld2 == parent1


def _may_touch(mjm: mujoco.MjModel, g1: int, g2: int) -> bool:
    """filterBitmask; and planes and height fields have no collision function with each other."""
    if mjm.geom_type[g1] <= 1 and mjm.geom_type[g2] <= 1:
        return False
    types, affinities = mjm.geom_contype, mjm.geom_conaffinity
    return bool(types[g1] & affinities[g2]) or bool(types[g2] & affinities[g1])


def _pair(mjm: mujoco.MjModel, g1: int, g2: int) -> Pair:
    """mj_contactParam."""
    priority1, priority2 = int(mjm.geom_priority[g1]), int(mjm.geom_priority[g2])
    if priority1 != priority2:
        g = g1 if priority1 > priority2 else g2
        condim, slide = int(mjm.geom_condim[g]), mjm.geom_friction[g]
        solref, solimp = mjm.geom_solref[g], mjm.geom_solimp[g]
    else:
        condim = int(max(mjm.geom_condim[g1], mjm.geom_condim[g2]))
        slide = np.maximum(mjm.geom_friction[g1], mjm.geom_friction[g2])
        solref, solimp = _mix(mjm, g1, g2)
    friction = np.maximum(slide, MINMU)[[0, 0, 1, 2, 2]]
    return Pair(
        geom1=g1,
        geom2=g2,
        condim=condim,
        friction=_tuple(friction, float),
        solref=_tuple(solref, float),
        solimp=_tuple(solimp, float),
        margin=float(mjm.geom_margin[g1] + mjm.geom_margin[g2]),
        gap=float(mjm.geom_gap[g1] + mjm.geom_gap[g2]),
    )


def _mix(mjm: mujoco.MjModel, g1: int, g2: int) -> tuple[np.ndarray, np.ndarray]:
    """solref and solimp of two geoms of equal priority."""
    mix1, mix2 = float(mjm.geom_solmix[g1]), float(mjm.geom_solmix[g2])
    tiny1, tiny2 = mix1 < mujoco.mjMINVAL, mix2 < mujoco.mjMINVAL
    mix = (0.5 if tiny2 else 0.0) if tiny1 else (1.0 if tiny2 else mix1 / (mix1 + mix2))
    ref1, ref2 = mjm.geom_solref[g1], mjm.geom_solref[g2]
    both_standard = ref1[0] > 0 and ref2[0] > 0
    solref = mix * ref1 + (1 - mix) * ref2 if both_standard else np.minimum(ref1, ref2)
    return solref, mix * mjm.geom_solimp[g1] + (1 - mix) * mjm.geom_solimp[g2]


# refusals

_HARMLESS_DISABLE = [
    "EQUALITY",
    "FRICTIONLOSS",
    "WARMSTART",
    "SENSOR",
    "MIDPHASE",
    "AUTORESET",
    "NATIVECCD",
    "ISLAND",
    "MULTICCD",
]
_DONE_DISABLE = ["CONSTRAINT", "LIMIT", "CONTACT", "SPRING", "DAMPER", "GRAVITY", "CLAMPCTRL", "FILTERPARENT"]
_HARMLESS_ENABLE = ["ENERGY", "FWDINV", "INVDISCRETE"]


def _refuse(mjm: mujoco.MjModel) -> None:
    for check in (
        _check_options,
        _check_flags,
        _check_elements,
        _check_tendons,
        _check_bodies,
        _check_rotations,
        _check_inertia,
        _check_geoms,
        _check_joints,
        _check_actuators,
    ):
        check(mjm)


def _no(what: str, instead: str) -> None:
    raise UnsupportedModel(f"{what} is not supported: {instead}")


def _check_options(mjm: mujoco.MjModel) -> None:
    opt = mjm.opt
    if int(opt.integrator) not in (0, 1):
        name = mujoco.mjtIntegrator(int(opt.integrator)).name.removeprefix("mjINT_").lower()
        _no(f"option integrator={name!r}", "use 'Euler' or 'RK4'")
    if not opt.timestep > 0:
        _no(f"option timestep={opt.timestep}", "use a positive time step")
    if not opt.impratio > 0:
        _no(f"option impratio={opt.impratio}", "use a positive ratio")
    if opt.noslip_iterations > 0:
        _no("option noslip_iterations > 0", "set it to 0")
    if opt.disableactuator:
        _no("option actuatorgroupdisable", "remove the disabled actuators from the model")
    for name in ("cb_passive", "cb_control", "cb_contactfilter"):
        getter = getattr(mujoco, f"get_mj{name}", None)
        if getter is not None and getter() is not None:
            _no(f"the callback mj{name}", f"unset it: mujoco.set_mj{name}(None)")


def _check_flags(mjm: mujoco.MjModel) -> None:
    for member, flags, fine in (
        (mujoco.mjtDisableBit, mjm.opt.disableflags, _HARMLESS_DISABLE + _DONE_DISABLE),
        (mujoco.mjtEnableBit, mjm.opt.enableflags, _HARMLESS_ENABLE),
    ):
        known = {int(v): k for k, v in member.__members__.items() if k[2] != "N"}
        for bit in range(32):
            if flags >> bit & 1:
                name = known.get(1 << bit, f"bit {bit}")
                if name.split("_")[-1] not in fine:
                    _no(f"option flag {name}", "leave the flag at its default")


def _check_elements(mjm: mujoco.MjModel) -> None:
    """Elements that add forces, state or constraints of kinds that are not implemented."""
    gone = _disabled(mjm, "CONSTRAINT")
    found = {
        "equality constraints": 0 if gone or _disabled(mjm, "EQUALITY") else mjm.neq,
        "sensors": 0 if _disabled(mjm, "SENSOR") else mjm.nsensor,
        "flexes": mjm.nflex,
        "plugins": mjm.nplugin,
        "mocap bodies": mjm.nmocap,
        "explicit contact pairs (contact/pair)": 0 if gone or _disabled(mjm, "CONTACT") else mjm.npair,
        "plastic deformation": mjm.nplastic,
        "activation states": mjm.na,
        "history buffers (delays)": mjm.nhistory,
        "plugin state": mjm.npluginstate,
        "surface velocities (geom surfacevel)": mjm.flg_surfacevel,
        "adhesion (geom adhesion)": mjm.flg_adhesion,
        "the implicit metric of deformables": mjm.nefm0dof,
    }
    for what, n in found.items():
        if n:
            _no(what, "remove them from the model")


def _check_tendons(mjm: mujoco.MjModel) -> None:
    """A tendon that makes no force and no constraint is only a measurement: let it be."""
    acts = [
        "stiffness",
        "stiffnesspoly",
        "damping",
        "dampingpoly",
        "limited",
        "frictionloss",
        "armature",
        "springyield",
        "actfrclimited",
    ]
    for i in range(mjm.ntendon):
        for name in acts:
            if np.any(getattr(mjm, f"tendon_{name}")[i]):
                _no(f"{name} of {_who(mjm, 'tendon', i)}", "remove it")


def _check_bodies(mjm: mujoco.MjModel) -> None:
    for i in range(mjm.nbody):
        if mjm.body_gravcomp[i]:
            _no(f"gravity compensation of {_who(mjm, 'body', i)}", "set gravcomp to 0")
        if mjm.body_plugin[i] >= 0:
            _no(f"the plugin of {_who(mjm, 'body', i)}", "remove it")
    if mjm.flg_gravcomp:
        _no("gravity compensation", "set gravcomp to 0")
    asleep = mujoco.mjtSleepPolicy.mjSLEEP_INIT
    if any(int(p) == int(asleep) for p in mjm.tree_sleep_policy):
        _no("a tree that starts asleep", "remove sleep='init'")


def _check_geoms(mjm: mujoco.MjModel) -> None:
    for g in range(mjm.ngeom):
        if np.any(mjm.geom_fluid[g]) and (mjm.opt.density or mjm.opt.viscosity):
            _no(f"the ellipsoid fluid model (fluidshape) of {_who(mjm, 'geom', g)}", "leave fluidshape at 'none'")


def _check_joints(mjm: mujoco.MjModel) -> None:
    friction = not (_disabled(mjm, "FRICTIONLOSS") or _disabled(mjm, "CONSTRAINT"))
    for j in range(mjm.njnt):
        who, scalar = _who(mjm, "joint", j), mjm.jnt_type[j] in (SLIDE, HINGE)
        if mjm.jnt_limited[j] and not scalar:
            _no(f"the limit of {who}, which is a ball joint", "set limited='false'")
        if mjm.jnt_actfrclimited[j] and not scalar:
            _no(f"actuatorfrcrange of {who}, which is a ball or free joint", "remove it")
        if mjm.jnt_limited[j] and _mixed(mjm.jnt_solref[j]):
            _no(f"solreflimit of {who}, one number positive and one not,", "give both the same sign")
        if np.any(mjm.jnt_stiffnesspoly[j]):
            _no(f"polynomial stiffness of {who}", "give stiffness one number")
        if mjm.jnt_springyield[j] or mjm.jnt_plasticadr[j] >= 0:
            _no(f"plasticity (springyield) of {who}", "remove it")
        if mjm.jnt_actgravcomp[j]:
            _no(f"actuatorgravcomp of {who}", "set it to 'false'")
        if mjm.jnt_actuatorid[j] >= 0:
            _no(f"damping or armature that an actuator gives {who}", "give them to the joint")
    for v in range(mjm.nv):
        who = _who(mjm, "joint", int(mjm.dof_jntid[v]))
        if mjm.dof_frictionloss[v] and friction:
            _no(f"frictionloss of {who}", "set it to 0")
        if np.any(mjm.dof_dampingpoly[v]):
            _no(f"polynomial damping of {who}", "give damping one number")


def _check_actuators(mjm: mujoco.MjModel) -> None:
    for i in range(mjm.nactuator):
        who = _who(mjm, "actuator", i)
        joint = int(mjm.actuator_trnid[i, 0])
        # JOINTINPARENT differs from JOINT for ball and free joints only
        if mjm.actuator_trntype[i] not in (0, 1) or mjm.jnt_type[joint] not in (SLIDE, HINGE):
            _no(f"the transmission of {who}", "drive a slide or a hinge joint")
        if mjm.actuator_dyntype[i] != 0 or mjm.actuator_actnum[i]:
            _no(f"the activation dynamics of {who}", "use a <motor>")
        if mjm.actuator_gaintype[i] != 0:
            _no(f"the gain type of {who}", "use a <motor> (gaintype 'fixed')")
        if mjm.actuator_biastype[i] != 0:
            _no(f"the bias type of {who}", "use a <motor> (biastype 'none')")
        if mjm.actuator_damping[i] or np.any(mjm.actuator_dampingpoly[i]) or mjm.actuator_armature[i]:
            _no(f"damping or armature of {who}", "give them to the joint")
        if mjm.actuator_delay[i] or np.any(mjm.actuator_history[i]) or mjm.actuator_historyadr[i] >= 0:
            _no(f"the delay of {who}", "remove delay and nsample")
        if mjm.actuator_plugin[i] >= 0:
            _no(f"the plugin of {who}", "use a <motor>")
        if (mjm.actuator_ctrladr[i], mjm.actuator_ctrlnum[i], mjm.actuator_outadr[i], mjm.actuator_outnum[i]) != (
            i, 1, i, 1,
        ):  # fmt: skip
            _no(f"{who}, which has not just one control and one force,", "use a <motor>")


def _clamped(mjm: mujoco.MjModel) -> tuple[bool, ...]:
    """Which dofs may lose their inertia to others; those that always do are refused."""
    joints, clamped = dependent(mjm)
    if joints:
        who = " and ".join(_who(mjm, "joint", j) for j in joints)
        _no(f"a singular inertia matrix (motions of {who} cancel)", "remove one or give it armature")
    return tuple(clamped)


def _check_rotations(mjm: mujoco.MjModel) -> None:
    """MuJoCo's compiler makes them unit quaternions; in an MjModel that was changed since, they may be anything."""
    for kind, name in (("body", "body_quat"), ("body", "body_iquat"), ("geom", "geom_quat")):
        for i, quat in enumerate(getattr(mjm, name)):
            if not abs(np.linalg.norm(quat) - 1) < 1e-6:
                _no(f"{name} {quat.tolist()} of {_who(mjm, kind, i)}", "use a quaternion of length 1")
    for j in range(mjm.njnt):
        if not abs(np.linalg.norm(mjm.jnt_axis[j]) - 1) < 1e-6:
            _no(f"jnt_axis {mjm.jnt_axis[j].tolist()} of {_who(mjm, 'joint', j)}", "use an axis of length 1")


def _check_inertia(mjm: mujoco.MjModel) -> None:
    """MuJoCo's compiler sees to it that what moves has mass and inertia."""
    for i in np.flatnonzero(mjm.body_weldid == np.arange(mjm.nbody))[1:].tolist():
        carried = mjm.body_weldid == i
        if not (mjm.body_mass[carried].sum() >= mujoco.mjMINVAL and mjm.body_inertia[carried].sum(0).min() > 0):
            _no(f"{_who(mjm, 'body', i)}, which moves without mass or inertia,", "give it both")


def _refuse_pairs(mjm: mujoco.MjModel, pairs: tuple[Pair, ...]) -> None:
    if pairs and int(mjm.opt.cone) != 0:
        _no("option cone='elliptic'", "use 'pyramidal'")
    for pair in pairs:
        types = int(mjm.geom_type[pair.geom1]), int(mjm.geom_type[pair.geom2])
        who = f"the contact of {_who(mjm, 'geom', pair.geom1)} and {_who(mjm, 'geom', pair.geom2)}"
        if types not in CONTACTS:
            kinds = " and ".join(mujoco.mjtGeom(t).name.removeprefix("mjGEOM_").lower() for t in types)
            _no(f"{who} ({kinds})", "use planes, spheres and capsules, or keep them apart by contype or <exclude>")
        if pair.condim not in (1, 3):
            _no(f"{who} with condim {pair.condim}", "use condim 1 or 3")
        if _mixed(pair.solref):
            _no(f"{who} with a solref of which one number is positive and one not", "give both the same sign")
        if pair.gap < 0:
            _no(f"{who} with a negative gap", "use a gap of 0 or more")
        if any(mjm.geom_plugin[g] >= 0 for g in (pair.geom1, pair.geom2)):
            _no(f"{who}, one of which is a plugin,", "remove the plugin")


def _mixed(solref: Sequence[float]) -> bool:
    """Neither the standard nor the direct format: MuJoCo would warn and take the default."""
    return (solref[0] > 0) != (solref[1] > 0)


def _who(mjm: mujoco.MjModel, kind: str, i: int) -> str:
    name = mujoco.mj_id2name(mjm, getattr(mujoco.mjtObj, f"mjOBJ_{kind.upper()}"), i)
    body = {"joint": "jnt_bodyid", "geom": "geom_bodyid"}.get(kind)
    where = f" of {_who(mjm, 'body', int(getattr(mjm, body)[i]))}" if body and not name else ""
    return f"{kind} {name!r}" if name else f"{kind} {i}{where}"
