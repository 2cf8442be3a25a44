"""`refuse` and `refuse_pairs`, which raise `UnsupportedModel` for what is not implemented, by name.

Each check looks at one kind of element of the `mjModel`, and says what to change.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum

import mujoco
import numpy as np

from ...compiler.scalar import Scalar
from ..collision.contact_param import contact_param
from ..collision.shapes import COLLIDERS, SHAPES
from ..dynamics.actuators.driven import OF_TENDONS
from ..dynamics.actuators.kinds import BIASES, DYNAMICS, GAINS
from ..dynamics.actuators.transmissions import TRANSMISSIONS
from ..model.enums import BiasType, DynType, EqType, GainType, JointType, WrapType
from ..model.model import INTEGRATORS, Model, Pair, UnsupportedModel

_HARMLESS_DISABLE = [
    "WARMSTART",
    "SENSOR",
    "MIDPHASE",
    "AUTORESET",
    "NATIVECCD",
    "ISLAND",
    "MULTICCD",
]
_DONE_DISABLE = [
    "ACTUATION",
    "CONSTRAINT",
    "EQUALITY",
    "FRICTIONLOSS",
    "LIMIT",
    "CONTACT",
    "SPRING",
    "DAMPER",
    "EULERDAMP",
    "GRAVITY",
    "CLAMPCTRL",
    "FILTERPARENT",
    "ACTUATION",
]
INSTEAD = {
    "flex": "remove it; a chain or grid of bodies and joints (<replicate>) can stand for it",
    "nativeccd": "enable it (model.opt.disableflags &= ~int(mujoco.mjtDisableBit.mjDSBL_NATIVECCD))",
    "plugin": "remove it; what it computes can be given as ctrl, qfrc_applied or xfrc_applied in every step",
}
_HARMLESS_ENABLE = ["ENERGY", "FWDINV", "INVDISCRETE"]
# Ranges that numbers are held in, each with the field that says where it is in use.
_HELD_IN = {
    "actuator_ctrlrange": "actuator_ctrllimited",
    "actuator_actrange": "actuator_actlimited",
    "actuator_forcerange": "actuator_forcelimited",
    "jnt_actfrcrange": "jnt_actfrclimited",
    "tendon_actfrcrange": "tendon_actfrclimited",
}


def refuse(mjm: mujoco.MjModel) -> None:
    """Raise `UnsupportedModel` for the first thing found that is not implemented, contacts apart."""
    for check in (
        _check_options,
        _check_flags,
        _check_elements,
        _check_equalities,
        _check_tendons,
        _check_bodies,
        _check_rotations,
        _check_inertia,
        _check_joints,
        _check_actuators,
        _check_ranges,
    ):
        check(mjm)


def not_supported(what: str, instead: str) -> None:
    """Raise `UnsupportedModel` that names the element and the remedy."""
    raise UnsupportedModel(f"{what} is not supported: {instead}")


def _check_options(mjm: mujoco.MjModel) -> None:
    opt = mjm.opt
    if int(opt.integrator) >= len(INTEGRATORS):
        name = mujoco.mjtIntegrator(int(opt.integrator)).name.removeprefix("mjINT_").lower()
        not_supported(f"option integrator={name!r}", "use 'Euler', 'RK4', 'implicit' or 'implicitfast'")
    if not opt.timestep > 0:
        not_supported(f"option timestep={opt.timestep}", "use a positive time step")
    if not opt.impratio > 0:
        not_supported(f"option impratio={opt.impratio}", "use a positive ratio")
    for name in ("cb_passive", "cb_control", "cb_contactfilter"):
        getter = getattr(mujoco, f"get_mj{name}", None)
        if getter is not None and getter() is not None:
            not_supported(f"the callback mj{name}", f"unset it: mujoco.set_mj{name}(None)")


def _check_flags(mjm: mujoco.MjModel) -> None:
    for member, flags, fine, value in (
        (mujoco.mjtDisableBit, mjm.opt.disableflags, _HARMLESS_DISABLE + _DONE_DISABLE, "disable"),
        (mujoco.mjtEnableBit, mjm.opt.enableflags, _HARMLESS_ENABLE, "enable"),
    ):
        known = {int(v): k for k, v in member.__members__.items() if k[2] != "N"}
        for bit in range(32):
            if flags >> bit & 1:
                name = known.get(1 << bit, f"bit {bit}").split("_")[-1]
                if name not in fine:
                    not_supported(f"option flag {name.lower()}={value!r}", "leave the flag at its default")


def _check_elements(mjm: mujoco.MjModel) -> None:
    """Refuse elements that add forces, state or constraints of kinds that are not implemented, naming the first.

    What only sensors are computed by, such as the grids of a skin that feels touch, moves nothing: it is refused if
    one of these sensors is read.
    """
    if mjm.nflex:
        not_supported(describe(mjm, "flex", 0), INSTEAD["flex"])
    for i in range(mjm.nplugin):
        if i not in mjm.sensor_plugin:
            not_supported(describe(mjm, "plugin", i), INSTEAD["plugin"])


def _check_equalities(mjm: mujoco.MjModel) -> None:
    if disabled(mjm, "CONSTRAINT") or disabled(mjm, "EQUALITY"):
        return
    for i in range(mjm.neq):  # also those that are not active, as they may become so
        who, kind = describe(mjm, "equality", i), mujoco.mjtEq(int(mjm.eq_type[i]))
        if kind not in (EqType.CONNECT, EqType.WELD, EqType.JOINT, EqType.TENDON):
            name = kind.name.removeprefix("mjEQ_").lower()
            not_supported(f"{who}, of type {name!r},", "use connect, weld, joint or tendon equalities, or remove it")
        if _mixed(mjm.eq_solref[i]):
            not_supported(f"solref of {who}, one number positive and one not,", "give both the same sign")


def _check_tendons(mjm: mujoco.MjModel) -> None:
    """Refuse tendons with a feature that is not implemented."""
    for i in range(mjm.ntendon):
        who, first = describe(mjm, "tendon", i), mjm.tendon_adr[i]
        path = mjm.wrap_type[first : first + mjm.tendon_num[i]]
        drives = np.isin(mjm.actuator_trntype, OF_TENDONS) & (mjm.actuator_trnid[:, 0] == i)
        heavy = mjm.tendon_armature[i] or mjm.actuator_armature[drives].any()
        if heavy and np.isin(path, [WrapType.SPHERE, WrapType.CYLINDER]).any():
            not_supported(f"armature of {who}, which wraps round a geom,", "lead it from site to site")
        _check_tendon_rows(mjm, i)


def _check_tendon_rows(mjm: mujoco.MjModel, i: int) -> None:
    """Refuse a limit or friction loss of tendon i that is not implemented."""
    who, on = describe(mjm, "tendon", i), not disabled(mjm, "CONSTRAINT")
    rows = {
        "limit": mjm.tendon_limited[i] and on and not disabled(mjm, "LIMIT"),
        "friction": mjm.tendon_frictionloss[i] > 0 and on and not disabled(mjm, "FRICTIONLOSS"),
    }
    for kind, there in rows.items():
        if there and _mixed(getattr(mjm, f"tendon_solref_{kind[:3]}")[i]):
            not_supported(f"solref{kind} of {who}, one number positive and one not,", "give both the same sign")


def _check_bodies(mjm: mujoco.MjModel) -> None:
    for i in range(mjm.nbody):
        if mjm.body_plugin[i] >= 0:
            not_supported(f"the plugin of {describe(mjm, 'body', i)}", INSTEAD["plugin"])
    asleep = mujoco.mjtSleepPolicy.mjSLEEP_INIT
    if any(int(p) == int(asleep) for p in mjm.tree_sleep_policy):
        not_supported("a tree that starts asleep", "remove sleep='init'")


def _check_joints(mjm: mujoco.MjModel) -> None:
    friction = not (disabled(mjm, "FRICTIONLOSS") or disabled(mjm, "CONSTRAINT"))
    for j in range(mjm.njnt):
        who, scalar = describe(mjm, "joint", j), mjm.jnt_type[j] in (JointType.SLIDE, JointType.HINGE)
        if mjm.jnt_actfrclimited[j] and not scalar:
            not_supported(f"actuatorfrcrange of {who}, which is a ball or free joint", "remove it")
        if mjm.jnt_limited[j] and _mixed(mjm.jnt_solref[j]):
            not_supported(f"solreflimit of {who}, one number positive and one not,", "give both the same sign")
    for v in range(mjm.nv):
        who = describe(mjm, "joint", int(mjm.dof_jntid[v]))
        if mjm.dof_frictionloss[v] < 0 and friction:  # MuJoCo takes it, and drives the joint
            not_supported(f"frictionloss {mjm.dof_frictionloss[v]:g} of {who}", "use 0 or more")
        if mjm.dof_frictionloss[v] > 0 and friction and _mixed(mjm.dof_solref[v]):
            not_supported(f"solreffriction of {who}, one number positive and one not,", "give both the same sign")


def _check_actuators(mjm: mujoco.MjModel) -> None:
    for i in range(mjm.nactuator):
        who = describe(mjm, "actuator", i)
        if mjm.actuator_trntype[i] not in TRANSMISSIONS:
            not_supported(f"the transmission of {who}", "drive a joint, a tendon, a site, a slider-crank or a body")
        dynamics = DYNAMICS.get(mjm.actuator_dyntype[i])
        if dynamics is None or mjm.actuator_actnum[i] != (dynamics.rate is not None):
            instead = f"use dyntype {_either(DynType, DYNAMICS)}, of one activation"
            not_supported(f"the activation dynamics of {who}", instead)
        if mjm.actuator_gaintype[i] not in GAINS:
            not_supported(f"the gain type of {who}", f"use gaintype {_either(GainType, GAINS)}")
        if mjm.actuator_biastype[i] not in BIASES:
            not_supported(f"the bias type of {who}", f"use biastype {_either(BiasType, BIASES)}")
        if mjm.actuator_plugin[i] >= 0:
            not_supported(f"the plugin of {who}", "use a <motor>")
        if (mjm.actuator_ctrladr[i], mjm.actuator_ctrlnum[i], mjm.actuator_outadr[i], mjm.actuator_outnum[i]) != (
            i, 1, i, 1,
        ):  # fmt: skip
            not_supported(f"{who}, which has not just one control and one force,", "use a <motor>")


def _check_ranges(mjm: mujoco.MjModel) -> None:
    """Refuse ranges in use that end before they begin.

    MuJoCo's compiler does not let them pass, but an MjModel that was changed since may have them.
    """
    for name, limited in _HELD_IN.items():
        rows, kind = getattr(mjm, name), name.split("_")[0].replace("jnt", "joint")
        for i in np.flatnonzero(getattr(mjm, limited) & (rows[:, 0] > rows[:, 1])).tolist():
            low, high = rows[i].tolist()
            not_supported(f"{name} {low:g} {high:g} of {describe(mjm, kind, i)}", "give the lower end first")


def _either(enum: type[IntEnum], kinds: Iterable[int]) -> str:
    """Return the kinds as MJCF names them: 'none', 'affine' or 'muscle'."""
    *others, last = (repr(enum(kind).name.lower()) for kind in kinds)
    return f"{', '.join(others)} or {last}"


def _check_rotations(mjm: mujoco.MjModel) -> None:
    """Refuse rotations that are not unit quaternions.

    MuJoCo's compiler makes them so; in an MjModel that was changed since, they may be anything.
    """
    kinds = {"body_quat": "body", "body_iquat": "body", "geom_quat": "geom", "site_quat": "site", "cam_quat": "camera"}
    for name, kind in (kinds | {"jnt_axis": "joint"}).items():
        rows = getattr(mjm, name)
        for i in np.flatnonzero(~(abs(np.linalg.norm(rows, axis=1) - 1) < 1e-6)).tolist():
            remedy = "use an axis of length 1" if kind == "joint" else "use a quaternion of length 1"
            not_supported(f"{name} {rows[i].tolist()} of {describe(mjm, kind, i)}", remedy)


def _check_inertia(mjm: mujoco.MjModel) -> None:
    """Refuse moving bodies without mass or inertia.

    MuJoCo's compiler does not let them pass, but an MjModel that was changed since may have them.
    """
    welds = np.array(weldid(mjm))
    for i in np.flatnonzero(welds == np.arange(mjm.nbody))[1:].tolist():
        carried = welds == i
        if not (mjm.body_mass[carried].sum() >= mujoco.mjMINVAL and mjm.body_inertia[carried].sum(0).min() > 0):
            not_supported(f"{describe(mjm, 'body', i)}, which moves without mass or inertia,", "give it both")


def refuse_pairs(mjm: mujoco.MjModel, m: Model) -> None:
    """Raise `UnsupportedModel` for the first thing found in geoms that may touch that is not implemented."""
    for pair in m.pairs:
        types = int(mjm.geom_type[pair.geom1]), int(mjm.geom_type[pair.geom2])
        if types not in COLLIDERS:
            kinds = [mujoco.mjtGeom(t).name.removeprefix("mjGEOM_").lower() for t in types]
            known = "; ".join(text for text in map(_partners, types) if text)
            instead = f"use other shapes ({known})" if known else "use other shapes"
            what = f"{_who(mjm, pair)} ({' and '.join(kinds)})"
            not_supported(what, f"{instead}, or keep them apart by contype or <exclude>")
        if (COLLIDERS[types].hulls or COLLIDERS[types].ccd) and disabled(mjm, "NATIVECCD"):
            flag = "option flag nativeccd='disable'"
            not_supported(f"{flag}, by which {_who(mjm, pair)} would be found,", INSTEAD["nativeccd"])
        if pair.condim not in (1, 3, 4, 6):
            not_supported(f"{_who(mjm, pair)} with condim {pair.condim}", "use condim 1, 3, 4 or 6")
        param = contact_param(m, pair)
        if param.adhesion and not mjm.flg_adhesion:
            not_supported(f"adhesion of {_who(mjm, pair)}, which MuJoCo does not know of,", "call mujoco.mj_setConst")
        if _mixed(param.solref):
            what = "with a solref of which one number is positive and one not"
            not_supported(f"{_who(mjm, pair)} {what}", "give both the same sign")
        if m.cone == "elliptic" and _mixed(param.solreffriction):
            what = "with a solreffriction of which one number is positive and one not"
            not_supported(f"{_who(mjm, pair)} {what}", "give both the same sign")
        if param.gap < 0:
            not_supported(f"{_who(mjm, pair)} with a negative gap", "use a gap of 0 or more")
        if any(mjm.geom_plugin[g] >= 0 for g in (pair.geom1, pair.geom2)):
            not_supported(f"{_who(mjm, pair)}, one of which is a plugin,", "remove the plugin")


def _who(mjm: mujoco.MjModel, pair: Pair) -> str:
    return f"the contact of {describe(mjm, 'geom', pair.geom1)} and {describe(mjm, 'geom', pair.geom2)}"


def _partners(kind: int) -> str:
    """Say which shapes a shape can touch; empty where it can touch none."""
    others = [SHAPES[a if b == kind else b].plural for a, b in COLLIDERS if kind in (a, b)]
    return f"{SHAPES[kind].plural} can touch {', '.join(others)}" if others else ""


def _mixed(solref: Sequence[Scalar]) -> bool:
    """Return whether solref is in neither the standard nor the direct format.

    MuJoCo would warn and take the default.
    """
    return (float(solref[0]) > 0) != (float(solref[1]) > 0)


def describe(mjm: mujoco.MjModel, kind: str, i: int) -> str:
    """Return an element as messages call it: by its name, or else by its number and its body."""
    name = mujoco.mj_id2name(mjm, getattr(mujoco.mjtObj, f"mjOBJ_{kind.upper()}"), i)
    body = {"joint": "jnt_bodyid", "geom": "geom_bodyid"}.get(kind)
    where = f" of {describe(mjm, 'body', int(getattr(mjm, body)[i]))}" if body and not name else ""
    return f"{kind} {name!r}" if name else f"{kind} {i}{where}"


def disabled(mjm: mujoco.MjModel, flag: str) -> bool:
    """Return whether a flag of option/flag is switched off."""
    return bool(mjm.opt.disableflags & getattr(mujoco.mjtDisableBit, f"mjDSBL_{flag}"))


def weldid(mjm: mujoco.MjModel) -> tuple[int, ...]:
    """Return body_weldid, but 0 for mocap bodies and what is welded to them: no joint moves them."""
    return tuple(0 if mjm.body_mocapid[i] >= 0 else i for i in mjm.body_weldid.tolist())
