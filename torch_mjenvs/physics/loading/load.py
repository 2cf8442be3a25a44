"""`load`, which reads an `mjModel`, MJCF or a file into a `Model`."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import mujoco
import numpy as np

from ..algebra.spatial import snap
from ..model.enums import ObjType, SensorType
from ..model.hfield import read_hfields
from ..model.mesh import read_meshes, read_surfaces
from ..model.model import INTEGRATORS, Floats, Ints, Model, Pair, Rows
from .held import warn_of_held
from .history import history_from
from .numbers import refuse_numbers
from .refusals import describe, disabled, not_supported, refuse, refuse_pairs, weldid
from .singular import dependent
from .ties import derived_ties


def load(model: mujoco.MjModel | str | os.PathLike[str]) -> Model:
    """Return the `Model` of an `MjModel`, of an MJCF string, or of an MJCF or binary file.

    Raises: FileNotFoundError, ValueError (a file that MuJoCo does not take), TypeError, `UnsupportedModel`.
    """
    return _read(parse(model))


def parse(model: mujoco.MjModel | str | os.PathLike[str]) -> mujoco.MjModel:
    """Return the `MjModel` of an MJCF string, or of an MJCF or binary file; an `MjModel` itself. Errors: see `load`."""
    if isinstance(model, mujoco.MjModel):
        return model
    if isinstance(model, str) and model.lstrip().startswith("<"):
        return mujoco.MjModel.from_xml_string(model)
    if not isinstance(model, (str, os.PathLike)):
        also = ": an MjSpec becomes an MjModel by its compile()" if isinstance(model, mujoco.MjSpec) else ""
        raise TypeError(f"a model is a mujoco.MjModel, an MJCF string or a path, not {type(model).__name__}{also}")
    path = Path(model).expanduser()
    if not path.is_file():
        raise FileNotFoundError(f"there is no model file {os.fspath(model)!r}")
    return _binary(path) if path.suffix == ".mjb" else mujoco.MjModel.from_xml_path(str(path))


def _binary(path: Path) -> mujoco.MjModel:
    try:
        return mujoco.MjModel.from_binary_path(str(path))
    except ValueError as error:  # MuJoCo's message names neither the file nor what is wrong
        raise ValueError(
            f"{str(path)!r} is not a whole binary model of MuJoCo {mujoco.__version__}: it is damaged, or of another "
            "version; save it anew with mujoco.mj_saveModel, or load its MJCF"
        ) from error


def _read(mjm: mujoco.MjModel) -> Model:
    refuse_numbers(mjm)
    refuse(mjm)
    pairs, idle = _pairs(mjm)
    searched = {g for p in pairs for g in (p.geom1, p.geom2)} | _measured(mjm)
    meshes, hfields, surfaces = read_meshes(mjm, searched), read_hfields(mjm), read_surfaces(mjm, _seen(mjm))
    known: dict[str, Any] = {"pairs": pairs, "idle_pairs": idle, "meshes": meshes, "hfields": hfields}
    known |= {"surfaces": surfaces} | _options(mjm) | _derived(mjm) | _names(mjm)
    m = Model(**known, **_fields(mjm, known))
    if mjm.nhistory:
        m = dataclasses.replace(m, history0=tuple(history_from(m, mjm, mujoco.MjData(mjm))))
    refuse_pairs(mjm, m)
    warn_of_held(mjm, m)
    return m


def _measured(mjm: mujoco.MjModel) -> set[int]:
    """Return the geoms whose distance sensors measure."""
    found, kinds = set[int](), (SensorType.GEOMDIST, SensorType.GEOMNORMAL, SensorType.GEOMFROMTO)
    for i in np.flatnonzero(np.isin(mjm.sensor_type, kinds)):
        for kind, k in ((mjm.sensor_objtype[i], mjm.sensor_objid[i]), (mjm.sensor_reftype[i], mjm.sensor_refid[i])):
            found |= {int(k)} if kind == ObjType.GEOM else set(np.flatnonzero(mjm.geom_bodyid == k).tolist())
    return found


def _seen(mjm: mujoco.MjModel) -> set[int]:
    """Return the geoms that rangefinders of sites may meet: those of other bodies than their own."""
    finders = (mjm.sensor_type == SensorType.RANGEFINDER) & (mjm.sensor_objtype == ObjType.SITE)
    bodies = set(mjm.site_bodyid[mjm.sensor_objid[finders]].tolist())
    return {g for g in range(mjm.ngeom) if _alpha(mjm, g) != 0 and bodies - {int(mjm.geom_bodyid[g])}}


# What actuators' forces follow from
ACTING = ("dynprm", "gainprm", "biasprm", "ctrlrange", "actrange", "forcerange")
# What a field of Model holds, by its type there.
_KINDS = {"int": int, "Ints": int, "Floats": float, "Rows": float, "tuple[Ints, ...]": int, "tuple[bool, ...]": bool}
_SPRINGS = "jnt_stiffness", "jnt_stiffnesspoly", "tendon_stiffness", "tendon_stiffnesspoly"
_DAMPERS = tuple(f"{what}_damping{x}" for what in ("dof", "tendon", "actuator") for x in ("", "poly"))
_DIRECTIONS = ["body_quat", "body_iquat", "jnt_axis", "geom_quat", "site_quat", "cam_quat"]


def _options(mjm: mujoco.MjModel) -> dict[str, Any]:
    opt = mjm.opt
    out: dict[str, Any] = {"timestep": opt.timestep, "impratio": opt.impratio}
    out["integrator"] = INTEGRATORS[int(opt.integrator)]
    out["multiccd"] = not disabled(mjm, "MULTICCD")
    out["noslip_iterations"] = max(0, int(opt.noslip_iterations))
    out["keeps_energy"] = bool(opt.enableflags & mujoco.mjtEnableBit.mjENBL_ENERGY)
    out["cone"] = {0: "pyramidal", 1: "elliptic"}[int(opt.cone)]
    out["eulerdamp"] = not disabled(mjm, "EULERDAMP")
    out["gravity"] = (0.0, 0.0, 0.0) if disabled(mjm, "GRAVITY") else _tuple(opt.gravity, float)
    out["meaninertia"] = float(mjm.stat.meaninertia)
    out["wind"] = _tuple(opt.wind, float)
    out["magnetic"] = _tuple(opt.magnetic, float)
    still = disabled(mjm, "SPRING") and disabled(mjm, "DAMPER")  # mj_passive does nothing at all then
    out |= {name: 0.0 if still else float(getattr(opt, name)) for name in ("density", "viscosity")}
    return out


def _fields(mjm: mujoco.MjModel, known: Collection[str]) -> dict[str, Any]:
    """Read all fields that are stored as MuJoCo stores them."""
    frames = _frames(mjm)
    out = {name: tuple(snap(row) for row in frames.get(name, getattr(mjm, name)).tolist()) for name in _DIRECTIONS}
    for field in dataclasses.fields(Model):
        if field.default is dataclasses.MISSING and field.init and field.name not in (*known, *out):
            values = frames.get(field.name, getattr(mjm, field.name))
            out[field.name] = _tuple(values, _KINDS[str(field.type)])
    return out


def _frames(mjm: mujoco.MjModel) -> dict[str, np.ndarray]:
    """Return positions and orientations in bodies, exact where MuJoCo uses the body's or its inertia's (mjtSameFrame).

    For a mesh the numbers that the mjModel holds are often 1e-9 off.
    """
    body, inertia, body_turn, inertia_turn = range(1, 5)
    ipos, iquat = mjm.body_ipos.copy(), mjm.body_iquat.copy()
    ipos[mjm.body_sameframe == body] = 0.0
    iquat[np.isin(mjm.body_sameframe, (body, body_turn))] = [1.0, 0.0, 0.0, 0.0]
    out = {"body_ipos": ipos, "body_iquat": iquat}
    for kind in ("geom", "site"):
        same, bodies, pos, quat = (getattr(mjm, f"{kind}_{x}").copy() for x in ("sameframe", "bodyid", "pos", "quat"))
        pos[same == body] = 0.0
        quat[np.isin(same, (body, body_turn))] = [1.0, 0.0, 0.0, 0.0]
        of_inertia, turned = same == inertia, np.isin(same, (inertia, inertia_turn))
        pos[of_inertia], quat[turned] = ipos[bodies[of_inertia]], iquat[bodies[turned]]
        out |= {f"{kind}_pos": pos, f"{kind}_quat": quat}
    return out


def _derived(mjm: mujoco.MjModel) -> dict[str, Any]:
    """Read the fields that MuJoCo stores in another form, or that a disable flag changes."""

    limited = not (disabled(mjm, "LIMIT") or disabled(mjm, "CONSTRAINT"))
    still = disabled(mjm, "SPRING") and disabled(mjm, "DAMPER")  # mj_passive does nothing at all then
    equal = not (disabled(mjm, "EQUALITY") or disabled(mjm, "CONSTRAINT"))
    rubs = not (disabled(mjm, "FRICTIONLOSS") or disabled(mjm, "CONSTRAINT"))
    return {
        # mj_passive applies gravcomp only if some body has a positive one (ngravcomp > 0): negative ones alone do
        # nothing.
        "body_gravcomp": _tuple(mjm.body_gravcomp, float) if mjm.ngravcomp and not still else (0.0,) * mjm.nbody,
        "body_originid": _origins(mjm),
        "body_weldid": weldid(mjm),
        "dof_clamped": _clamped(mjm),
        "cam_focal": tuple(_focal(mjm, c) for c in range(mjm.ncam)),
        "eq_active0": tuple(bool(x) and equal for x in mjm.eq_active0),
        "eq_derived": derived_ties(mjm),
        "eq_direct": _direct(mjm.eq_solref),
        "jnt_direct": _direct(mjm.jnt_solref),
        "geom_direct": _direct(mjm.geom_solref),
        "pair_direct": _direct(mjm.pair_solref),
        "geom_visible": tuple(_alpha(mjm, g) != 0 for g in range(mjm.ngeom)),
        "jnt_limited": tuple(bool(x) and limited for x in mjm.jnt_limited),
        "tendon_limited": tuple(bool(x) and limited for x in mjm.tendon_limited),
        "tendon_frictionloss": tuple(float(x) if rubs else 0.0 for x in mjm.tendon_frictionloss),
        "tendon_direct_lim": _direct(mjm.tendon_solref_lim),
        "tendon_direct_fri": _direct(mjm.tendon_solref_fri),
        "switched_off": _switched_off(mjm),
        **{name: _unless(mjm, "SPRING", getattr(mjm, name)) for name in _SPRINGS},
        **{name: _unless(mjm, "DAMPER", getattr(mjm, name)) for name in _DAMPERS},
        "dof_direct": _direct(mjm.dof_solref),
        "dof_frictionloss": tuple(float(x) if rubs else 0.0 for x in mjm.dof_frictionloss),
        "passive": not still,
        **_plasticity(mjm),
        "geom_surfacevel": _tuple(mjm.geom_surfacevel * mjm.flg_surfacevel, float),  # not read without the flag
        "history0": (),
        "actuation": mjm.nu > 0 and not disabled(mjm, "ACTUATION"),
        "actuator_disabled": _disabled_groups(mjm),
        "actuator_ctrllimited": tuple(bool(x) and not disabled(mjm, "CLAMPCTRL") for x in mjm.actuator_ctrllimited),
    } | _sensors(mjm)


def _plasticity(mjm: mujoco.MjModel) -> dict[str, Any]:
    """Read where the rests of springs that yield are kept; nothing yields where springs are disabled."""
    plastic = mjm.nplastic and not disabled(mjm, "SPRING")
    kinds = {f"{kind}_plasticadr": getattr(mjm, f"{kind}_plasticadr") for kind in ("jnt", "tendon")}
    return {
        "plastic0": _tuple(mujoco.MjData(mjm).plastic, float) if plastic else (),
        **{name: _tuple(adr, int) if plastic else (-1,) * len(adr) for name, adr in kinds.items()},
    }


def _disabled_groups(mjm: mujoco.MjModel) -> tuple[bool, ...]:
    """Return for each actuator whether option actuatorgroupdisable names its group. mj_actuatorDisabled."""
    off = int(mjm.opt.disableactuator)
    return tuple(0 <= group <= 30 and bool(off >> group & 1) for group in mjm.actuator_group.tolist())


def _sensors(mjm: mujoco.MjModel) -> dict[str, Any]:
    """Read the sensors: none where they are disabled, though sensordata keeps its size."""
    n = 0 if disabled(mjm, "SENSOR") else mjm.nsensor
    integers = ["type", "datatype", "needstage", "objtype", "objid", "reftype", "refid", "dim", "adr"]
    out = {f"sensor_{name}": _tuple(getattr(mjm, f"sensor_{name}")[:n], int) for name in integers}
    return out | {
        "sensor_dataspec": _tuple(mjm.sensor_intprm[:n, 0], int),
        "sensor_reduce": _tuple(mjm.sensor_intprm[:n, 1], int),
        "sensor_cutoff": _tuple(mjm.sensor_cutoff[:n], float),
        "sensor_history": _tuple(mjm.sensor_history[:n], int),
        "sensor_delay": _tuple(mjm.sensor_delay[:n], float),
        "sensor_interval": _tuple(mjm.sensor_interval[:n], float),
        "sensor_names": tuple(_name(mjm, "sensor", i) for i in range(n)),
    }


def _focal(mjm: mujoco.MjModel, c: int) -> Floats:
    """Return the focal lengths of camera c in pixels. cam_project.

    They follow from its sensor's size, computed in float32 like that, or else from its field of view.
    """
    if mjm.cam_sensorsize[c].all():
        focal = mjm.cam_intrinsic[c, :2] / mjm.cam_sensorsize[c] * mjm.cam_resolution[c].astype(np.float32)
        return tuple(focal.astype(float).tolist())
    return (0.5 / math.tan(float(mjm.cam_fovy[c]) * math.pi / 360) * int(mjm.cam_resolution[c, 1]),) * 2


def _alpha(mjm: mujoco.MjModel, g: int) -> float:
    """Return the opacity of a geom, from 0 to 1. ray_eliminate."""
    return float(mjm.geom_rgba[g, 3] if mjm.geom_matid[g] < 0 else mjm.mat_rgba[mjm.geom_matid[g], 3])


def _direct(solref: np.ndarray) -> tuple[bool, ...]:
    return tuple(ref <= 0 for ref in solref[:, 0].tolist())


def _switched_off(mjm: mujoco.MjModel) -> tuple[str, ...]:
    """Return the parameters that a disable flag leaves without use."""
    no_springs, no_dampers = disabled(mjm, "SPRING"), disabled(mjm, "DAMPER")
    return (
        ("gravity",) * disabled(mjm, "GRAVITY")
        + ("jnt_stiffness", "qpos_spring", "tendon_stiffness") * no_springs
        + ("dof_damping", "tendon_damping") * no_dampers
        + ("dof_frictionloss", "tendon_frictionloss") * (disabled(mjm, "FRICTIONLOSS") or disabled(mjm, "CONSTRAINT"))
        + ("eq_active", "eq_solref", "eq_solimp") * (disabled(mjm, "EQUALITY") or disabled(mjm, "CONSTRAINT"))
        + ("wind", "density", "viscosity", "body_gravcomp") * (no_springs and no_dampers)
        + tuple(f"actuator_{x}" for x in ACTING) * disabled(mjm, "ACTUATION")
    )


def _origins(mjm: mujoco.MjModel) -> Ints:
    out, welds = [0], weldid(mjm)
    for i in range(1, mjm.nbody):
        parent = int(mjm.body_parentid[i])
        begins = parent == 0 or (welds[parent] == 0 and welds[i] != 0)
        out.append(i if begins else out[parent])
    return tuple(out)


def _names(mjm: mujoco.MjModel) -> dict[str, Any]:
    def names(kind: str, n: int) -> tuple[str, ...]:
        return tuple(_name(mjm, kind, i) for i in range(n))

    return {
        "body_names": names("body", mjm.nbody),
        "jnt_names": names("joint", mjm.njnt),
        "geom_names": names("geom", mjm.ngeom),
        "site_names": names("site", mjm.nsite),
        "actuator_names": names("actuator", mjm.nactuator),
        "tendon_names": names("tendon", mjm.ntendon),
        "eq_names": names("equality", mjm.neq),
        "key_names": names("key", mjm.nkey),
    }


def _tuple(x: Any, kind: type) -> Any:
    if not isinstance(x, np.ndarray):
        return kind(x)
    entries = x.astype(kind).tolist()
    return tuple(map(tuple, entries)) if x.ndim == 2 else tuple(entries)


def _unless(mjm: mujoco.MjModel, flag: str, values: np.ndarray) -> Floats | Rows:
    out: Floats | Rows = _tuple(np.zeros_like(values) if disabled(mjm, flag) else values, float)
    return out


def _name(mjm: mujoco.MjModel, kind: str, i: int) -> str:
    return mujoco.mj_id2name(mjm, getattr(mujoco.mjtObj, f"mjOBJ_{kind.upper()}"), i) or f"{kind} {i}"


# contact candidates


def _pairs(mjm: mujoco.MjModel) -> tuple[tuple[Pair, ...], tuple[Pair, ...]]:
    """Return every geom pair that mj_collision may hand to a collision function, and those of them that are idle."""
    if disabled(mjm, "CONTACT") or disabled(mjm, "CONSTRAINT"):
        return (), ()
    types, affinities, shapes = mjm.geom_contype.tolist(), mjm.geom_conaffinity.tolist(), mjm.geom_type.tolist()

    def may_touch(g1: int, g2: int) -> bool:
        """Return whether two geoms' bits match (filterBitmask) and their shapes have a collision function."""
        fits = types[g1] & affinities[g2] or types[g2] & affinities[g1]
        return bool(fits) and (shapes[g1] > 1 or shapes[g2] > 1)

    geoms: list[list[int]] = [[] for _ in range(mjm.nbody)]
    for g, body in enumerate(mjm.geom_bodyid.tolist()):
        geoms[body].append(g)
    found = []
    for b1, others in _body_pairs(mjm):
        found += [(g1, g2) for b2 in others for g1 in geoms[b1] for g2 in geoms[b2] if may_touch(g1, g2)]
    explicit, idle = _explicit_pairs(mjm)
    known = {frozenset((p.geom1, p.geom2)) for p in explicit}
    ordered = [sorted(p, key=shapes.__getitem__) for p in found if frozenset(p) not in known]
    pairs = [*(Pair(g1, g2, _condim(mjm, g1, g2)) for g1, g2 in ordered), *explicit, *idle]
    keys = [_sort_key(mjm, pair) for pair in pairs]
    for rank, k in enumerate(sorted(range(len(pairs)), key=keys.__getitem__)):
        pairs[k] = dataclasses.replace(pairs[k], rank=rank)
    n = len(pairs) - len(idle)
    return tuple(pairs[:n]), tuple(pairs[n:])


def _sort_key(mjm: mujoco.MjModel, pair: Pair) -> tuple[int, ...]:
    """Return what mjData.contact is sorted by: mj_collision.

    Pairs of bodies come in order, and for each of them first those of <contact><pair>. The others are sorted by
    mjContact.geom if bounding volumes are searched (midphase), and else by the first body's geom, then the second's.
    """
    if pair.ipair >= 0:
        return int(mjm.pair_signature[pair.ipair]), 0, pair.ipair
    (b1, g1), (b2, g2) = sorted((int(mjm.geom_bodyid[g]), g) for g in (pair.geom1, pair.geom2))
    alone = mjm.body_geomnum[b1] == 1 and mjm.body_geomnum[b2] == 1
    midphase = not alone and not disabled(mjm, "MIDPHASE") and min(mjm.body_bvhadr[b1], mjm.body_bvhadr[b2]) >= 0
    return (b1 << 16) + b2, 1, *((pair.geom1, pair.geom2) if midphase else (g1, g2))


def _explicit_pairs(mjm: mujoco.MjModel) -> tuple[list[Pair], list[Pair]]:
    """Return the pairs of <contact><pair>, whatever contype, conaffinity and <exclude> say, and those that are idle.

    Each takes the place of the automatic pair of the same geoms. Between bodies welded together there is no force.
    """
    out: list[Pair] = []
    idle: list[Pair] = []
    for k, geoms in enumerate(zip(mjm.pair_geom1.tolist(), mjm.pair_geom2.tolist(), strict=True)):
        g1, g2 = sorted(geoms, key=lambda g: mjm.geom_type[g])
        weld1, weld2 = mjm.body_weldid[mjm.geom_bodyid[[g1, g2]]]
        if mjm.geom_type[g2] > 1:  # planes and height fields have no collision function
            (out if weld1 != weld2 else idle).append(Pair(g1, g2, int(mjm.pair_dim[k]), k))
    return out, idle


def _body_pairs(mjm: mujoco.MjModel) -> Iterator[tuple[int, list[int]]]:
    """Yield each body with the later ones that its geoms may touch.

    It depends on <exclude>, on filterBodyPair, and on the bits of all of a body's geoms together. filterBodyPair leaves
    out bodies welded together, two that nothing moves, and parent and child unless the parent is fixed to the world.
    Bodies are taken a row at a time, since of thousands that stand still hardly any pair is left.
    """
    welds, moves = mjm.body_weldid, np.array(weldid(mjm)) > 0
    parents = welds[mjm.body_parentid[welds]]
    family = not disabled(mjm, "FILTERPARENT")
    types, affinities = np.zeros((2, mjm.nbody), np.int32)
    np.bitwise_or.at(types, mjm.geom_bodyid, mjm.geom_contype)
    np.bitwise_or.at(affinities, mjm.geom_bodyid, mjm.geom_conaffinity)
    excluded: dict[int, list[int]] = {}
    for signature in mjm.exclude_signature.tolist():
        excluded.setdefault(signature >> 16, []).append(signature & 0xFFFF)
    for b in np.flatnonzero(types | affinities).tolist():
        after = slice(b + 1, None)
        fits = (types[b] & affinities[after]) | (affinities[b] & types[after]) != 0
        fits &= (welds[after] != welds[b]) & (moves[after] | moves[b])
        if family and welds[b]:
            fits &= (welds[after] == 0) | ((parents[after] != welds[b]) & (welds[after] != parents[b]))
        others = (np.flatnonzero(fits) + b + 1).tolist()
        yield b, [x for x in others if x not in excluded[b]] if b in excluded else others


def _condim(mjm: mujoco.MjModel, g1: int, g2: int) -> int:
    """Return the condim of a pair: the greater one of the geoms with the higher priority. mj_contactParam."""
    first = max(mjm.geom_priority[g1], mjm.geom_priority[g2])
    return max(int(mjm.geom_condim[g]) for g in (g1, g2) if mjm.geom_priority[g] == first)


def _clamped(mjm: mujoco.MjModel) -> tuple[bool, ...]:
    """Return for each dof whether it may lose its inertia to others; refuse dofs that always do."""
    joints, clamped = dependent(mjm)
    if joints:
        who = " and ".join(describe(mjm, "joint", j) for j in joints)
        not_supported(f"a singular inertia matrix (motions of {who} cancel)", "remove one or give it armature")
    return tuple(clamped)
