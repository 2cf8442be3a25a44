"""`Model`: the constants of a model as nested tuples, which `load` makes of an `mjModel`.

nq positions   nv dofs   nu actuators   na activations   nbody bodies   njnt joints   ngeom geoms   nsite sites
ntendon tendons   nsensordata numbers that sensors give

Field names, meanings and units are MuJoCo's. A field is a nested tuple of Python numbers, so that it folds away when
physics is traced; parameters that vary from world to world (see `params`) are scalars like any other. `loading` reads
an `mjModel`, and `refusals` says which it does not take.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import hashlib
from typing import TYPE_CHECKING, Any

from ...compiler.scalar import Scalar
from ..algebra.spatial import rotation
from .enums import ConDataField, ContactReduce, SensorType
from .hfield import HField
from .mesh import Mesh, Surface
from .named import Element, Keyframe, find

Floats = tuple[float, ...]
Ints = tuple[int, ...]
Rows = tuple[Floats, ...]

INTEGRATORS = "euler", "rk4", "implicit", "implicitfast"  # mjtIntegrator


class UnsupportedModel(NotImplementedError):
    """Raised for a model with a feature that is not supported; the message names it and says what to do."""


@dataclasses.dataclass(frozen=True)
class Pair:
    """Two geoms that may touch; `contact_param` gives the parameters of their contacts.

    geom1, geom2: in the order of their types (mjtGeom), as in `mjContact.geom`. ipair: the index of their
    <contact><pair>, or -1. rank: where their contacts come in `mjData.contact`, among those of all pairs.
    """

    geom1: int
    geom2: int
    condim: int
    ipair: int = -1
    rank: int = 0


@dataclasses.dataclass(frozen=True)
class ShownField:
    """A field of an `mjModel` that physics does not read. Pictures show it, and it may vary as parameters do.

    fixed: the places (row, column) of numbers that keep the model's values. rule: what tells users so.
    """

    name: str
    values: Rows
    fixed: tuple[tuple[int, int], ...] = ()
    rule: str = ""


@dataclasses.dataclass(frozen=True, eq=False)
class Model:
    """An `mjModel` as nested tuples: equal and hashed by content if all of it is constant, else by identity.

    What is only `shown` does not count for that.
    """

    nq: int
    nv: int
    nu: int
    na: int
    nbody: int
    njnt: int
    ngeom: int
    nsite: int
    ntendon: int
    neq: int
    nsensordata: int
    nmocap: int

    timestep: float
    gravity: Floats
    density: float  # of the fluid; 0, like viscosity, where springs and dampers are both disabled
    viscosity: float
    wind: Floats
    magnetic: Floats
    integrator: str  # one of INTEGRATORS
    multiccd: bool  # whether shapes with flat parts touch in several points
    eulerdamp: bool  # whether Euler takes joint damping implicitly
    cone: str  # "pyramidal" or "elliptic"
    impratio: float
    noslip_iterations: int
    keeps_energy: bool  # the option flag `energy`
    meaninertia: float

    body_parentid: Ints
    body_rootid: Ints
    body_originid: Ints  # where positions are measured from: the highest ancestor that moves; a static body's root
    body_weldid: Ints  # the body whose joints move it; 0 if none do, as for a mocap body, whose pose is set
    body_mocapid: Ints  # which of the mocap bodies it is, or -1
    body_jntadr: Ints
    body_jntnum: Ints
    body_dofadr: Ints
    body_dofnum: Ints
    body_pos: Rows
    body_quat: Rows
    body_ipos: Rows
    body_iquat: Rows
    body_mass: Floats
    body_gravcomp: Floats  # the share of its weight that is held up
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
    jnt_stiffnesspoly: Rows  # higher coefficients of a polynomial: see `springs`
    jnt_limited: tuple[bool, ...]
    jnt_direct: tuple[bool, ...]  # as geom_direct
    jnt_range: Rows
    jnt_margin: Floats
    jnt_solref: Rows
    jnt_solimp: Rows
    jnt_actfrclimited: tuple[bool, ...]
    jnt_actfrcrange: Rows
    jnt_actgravcomp: tuple[bool, ...]  # whether actuators compensate its share of gravity, within its range of forces

    dof_bodyid: Ints
    dof_jntid: Ints
    dof_parentid: Ints
    dof_armature: Floats
    dof_damping: Floats
    dof_dampingpoly: Rows  # as jnt_stiffnesspoly
    dof_frictionloss: Floats  # of slides and hinges N and Nm; a dof without any has no row
    dof_direct: tuple[bool, ...]  # as geom_direct
    dof_solref: Rows
    dof_solimp: Rows
    dof_invweight0: Floats
    dof_simplenum: Ints
    dof_clamped: tuple[bool, ...]  # whose pivot of M may vanish: held at mjMINVAL or more, as MuJoCo holds all

    passive: bool  # whether passive forces act: where they do not, contacts do not pull

    jnt_springyield: Floats  # how far a spring stretches before its rest follows, m and rad
    jnt_plasticadr: Ints  # where its rest is among what is plastic, or -1
    tendon_springyield: Floats
    tendon_plasticadr: Ints  # of the shortest and longest length
    plastic0: Floats  # rests of springs that yield, in the initial state

    qpos0: Floats
    qpos_spring: Floats

    geom_type: Ints
    geom_bodyid: Ints
    geom_dataid: Ints  # which mesh or height field it is, or -1
    geom_priority: Ints
    geom_direct: tuple[bool, ...]  # whose solref is (-stiffness, -damping) instead of (time constant, damping ratio)
    geom_pos: Rows
    geom_quat: Rows
    geom_size: Rows
    geom_friction: Rows
    geom_solmix: Floats
    geom_solref: Rows
    geom_solimp: Rows
    geom_margin: Floats
    geom_gap: Floats
    geom_adhesion: Floats  # N
    geom_surfacevel: Rows  # how its surface moves in its own frame: m/s, then rad/s about its centre
    geom_fluid: Rows  # where fluidshape is 'ellipsoid', 1, five coefficients, virtual masses and inertias; else 0
    geom_visible: tuple[bool, ...]  # to rangefinders: whose colour is not transparent

    site_type: Ints
    site_bodyid: Ints
    site_pos: Rows
    site_quat: Rows
    site_size: Rows

    cam_mode: Ints
    cam_bodyid: Ints
    cam_pos: Rows
    cam_quat: Rows
    cam_resolution: tuple[Ints, ...]
    cam_focal: Rows  # pixels per unit of slope, across and up

    actuation: bool  # whether actuators act; where they do not, MuJoCo gives them no velocity
    actuator_disabled: tuple[bool, ...]  # by its group: it gives no force, and its activation stays
    actuator_trntype: Ints
    actuator_trnid: tuple[Ints, ...]  # joint, tendon or site, and a second site or -1
    actuator_dyntype: Ints
    actuator_gaintype: Ints
    actuator_biastype: Ints
    actuator_actadr: Ints  # of the activation, or -1
    actuator_actearly: tuple[bool, ...]  # whether the force is that of the activation after the step
    actuator_gear: Rows
    actuator_damping: Floats  # of what it drives: see `reflected`
    actuator_dampingpoly: Rows  # as jnt_stiffnesspoly
    actuator_armature: Floats
    actuator_cranklength: Floats
    actuator_dynprm: Rows
    actuator_gainprm: Rows
    actuator_biasprm: Rows
    actuator_actlimited: tuple[bool, ...]
    actuator_actrange: Rows
    actuator_ctrllimited: tuple[bool, ...]
    actuator_ctrlrange: Rows
    actuator_forcelimited: tuple[bool, ...]
    actuator_forcerange: Rows
    actuator_lengthrange: Rows  # of muscles
    actuator_acc0: Floats  # the acceleration that a unit force gives at qpos0
    actuator_history: tuple[Ints, ...]  # nsample, and how a delayed control is read between samples
    actuator_delay: Floats  # s

    tendon_adr: Ints
    tendon_num: Ints
    tendon_stiffness: Floats
    tendon_stiffnesspoly: Rows  # as jnt_stiffnesspoly
    tendon_damping: Floats
    tendon_dampingpoly: Rows
    tendon_lengthspring: Rows  # shortest and longest length at which its spring is slack
    tendon_limited: tuple[bool, ...]
    tendon_range: Rows
    tendon_margin: Floats
    tendon_solref_lim: Rows
    tendon_solimp_lim: Rows
    tendon_direct_lim: tuple[bool, ...]  # as geom_direct
    tendon_frictionloss: Floats
    tendon_solref_fri: Rows
    tendon_solimp_fri: Rows
    tendon_direct_fri: tuple[bool, ...]  # as geom_direct
    tendon_armature: Floats
    tendon_invweight0: Floats
    tendon_length0: Floats  # at qpos0
    tendon_actfrclimited: tuple[bool, ...]
    tendon_actfrcrange: Rows
    wrap_type: Ints
    wrap_objid: Ints
    wrap_prm: Floats

    eq_type: Ints
    eq_objtype: Ints  # of connects and welds: bodies or sites
    eq_obj1id: Ints  # of joints and tendons: that which is held
    eq_obj2id: Ints  # of joints and tendons: that which it follows, or -1
    eq_active0: tuple[bool, ...]
    eq_direct: tuple[bool, ...]  # as geom_direct
    eq_derived: tuple[bool, ...]  # places of bodies at qpos0 give some of eq_data
    eq_data: Rows  # a polynomial's five coefficients; anchors, of bodies, then relpose and torquescale
    eq_solref: Rows
    eq_solimp: Rows

    sensor_type: Ints  # empty, like the other fields of sensors, where a flag disables them
    sensor_datatype: Ints
    sensor_needstage: Ints  # the stage that measures it: of positions, velocities or accelerations
    sensor_objtype: Ints
    sensor_objid: Ints
    sensor_reftype: Ints
    sensor_refid: Ints
    sensor_dataspec: Ints  # which numbers a rangefinder or contact sensor gives, bit by bit: sensor_intprm[0]
    sensor_reduce: Ints  # how a contact sensor chooses among contacts: sensor_intprm[1]
    sensor_dim: Ints
    sensor_adr: Ints
    sensor_cutoff: Floats
    sensor_history: tuple[Ints, ...]  # as actuator_history
    sensor_delay: Floats  # s
    sensor_interval: Rows  # s; 0: it measures in every step
    history0: Floats  # samples kept for delays and intervals, in the initial state: see `dynamics.history`

    meshes: tuple[Mesh | None, ...]  # None: it touches nothing
    surfaces: tuple[Surface | None, ...]  # of meshes; None: no ray may meet it
    hfields: tuple[HField, ...]
    pairs: tuple[Pair, ...]
    idle_pairs: tuple[Pair, ...]  # of geoms welded together: mjData.contact has their contacts, without a force
    pair_friction: Rows  # of <contact><pair>, which does not depend on its geoms' parameters
    pair_solref: Rows
    pair_solreffriction: Rows
    pair_solimp: Rows
    pair_direct: tuple[bool, ...]  # as geom_direct
    pair_margin: Floats
    pair_gap: Floats
    pair_adhesion: Floats

    body_names: tuple[str, ...]
    jnt_names: tuple[str, ...]
    geom_names: tuple[str, ...]
    site_names: tuple[str, ...]
    actuator_names: tuple[str, ...]
    tendon_names: tuple[str, ...]
    sensor_names: tuple[str, ...]
    eq_names: tuple[str, ...]
    key_names: tuple[str, ...]

    key_qpos: Rows
    key_qvel: Rows
    key_act: Rows
    key_ctrl: Rows

    # Where parameters vary from world to world (see `params`):
    switched_off: tuple[str, ...] = ()  # parameters for which a disable flag leaves no use
    nominal: Model | None = None  # the model as it was loaded, which decides whatever tracing needs a plain number for
    poison: float = 0.0  # NaN in worlds whose parameters make no sense
    shown: tuple[ShownField, ...] = ()  # fields that physics does not read, which are attributes, too

    # The same in another form: computed whenever a model is made, also by dataclasses.replace.
    body_mat: Rows = dataclasses.field(init=False)  # rotation matrices of body_quat and so on
    body_imat: Rows = dataclasses.field(init=False)
    geom_mat: Rows = dataclasses.field(init=False)
    site_mat: Rows = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        for name in ("body_mat", "body_imat", "geom_mat", "site_mat"):
            quats = getattr(self, name.replace("mat", "quat"))
            object.__setattr__(self, name, tuple(map(rotation, quats)))

    if not TYPE_CHECKING:  # which would take any name for an attribute then

        def __getattr__(self, name):
            """Return a field that is only shown, or say what is there instead of an attribute that is not."""
            for x in self.shown:
                if x.name == name:
                    return x.values
            near = difflib.get_close_matches(name, [x.name for x in dataclasses.fields(self)], n=3)
            hint = f"; did you mean {' or '.join(near)}?" if near else ""
            hint = "; options are the model's own, as in m.timestep and m.gravity" if name == "opt" else hint
            raise AttributeError(f"the model has no attribute {name!r}{hint}")

    def body(self, which: str | int) -> Element:
        """Return a body by its name or number. Raises KeyError for an unknown name, IndexError for a number."""
        return self._element("body", self.body_names, which)

    def joint(self, which: str | int) -> Element:
        """Return a joint by its name or number. Raises KeyError for an unknown name, IndexError for a number."""
        return self._element("joint", self.jnt_names, which)

    def geom(self, which: str | int) -> Element:
        """Return a geom by its name or number. Raises KeyError for an unknown name, IndexError for a number."""
        return self._element("geom", self.geom_names, which)

    def site(self, which: str | int) -> Element:
        """Return a site by its name or number. Raises KeyError for an unknown name, IndexError for a number."""
        return self._element("site", self.site_names, which)

    def actuator(self, which: str | int) -> Element:
        """Return an actuator by its name or number. Raises KeyError for an unknown name, IndexError for a number."""
        return self._element("actuator", self.actuator_names, which)

    def tendon(self, which: str | int) -> Element:
        """Return a tendon by its name or number. Raises KeyError for an unknown name, IndexError for a number."""
        return self._element("tendon", self.tendon_names, which)

    def key(self, which: str | int) -> Keyframe:
        """Return a keyframe by its name or number. Raises KeyError for an unknown name, IndexError for a number."""
        i = find("keyframe", self.key_names, which)
        rows = self.key_qpos, self.key_qvel, self.key_act, self.key_ctrl
        numbers: list[list[Scalar]] = [[*x[i]] for x in rows]
        return Keyframe(i, self.key_names[i], *numbers)

    def sensor(self, name: str) -> slice:
        """Return where a sensor's numbers are in `sensordata`, a slice. Raises KeyError for an unknown name."""
        i = find("sensor", self.sensor_names, name)
        return slice(self.sensor_adr[i], self.sensor_adr[i] + self.sensor_dim[i])

    @property
    def kept0(self) -> dict[str, Floats]:
        """Return the state that a step keeps besides positions, velocities and activations, by name, as at first."""
        kept = {"plastic": self.plastic0, "history": self.history0}
        return {name: initial for name, initial in kept.items() if initial}

    @property
    def mocap_bodies(self) -> list[int]:
        """Return the mocap bodies, in the order of mocap_pos."""
        return [i for i, k in enumerate(self.body_mocapid) if k >= 0]

    @property
    def inputs0(self) -> dict[str, list[Any]]:
        """Return the inputs of steps that last, by name and nested as in mjData, as they are at first."""
        mocap = self.mocap_bodies
        return {
            "mocap_pos": [list(self.body_pos[i]) for i in mocap],
            "mocap_quat": [list(self.body_quat[i]) for i in mocap],
            "eq_active": [float(x) for x in self.eq_active0],
            "wind": list(self.wind),
        }

    @property
    def orders_contacts(self) -> bool:
        """Return whether the order of a pair's contacts matters, to noslip sweeps or contact sensors."""
        return self.noslip_iterations > 0 or any(
            kind == SensorType.CONTACT and data != 1 << ConDataField.FOUND and reduce != ContactReduce.NETFORCE
            for kind, data, reduce in zip(self.sensor_type, self.sensor_dataspec, self.sensor_reduce, strict=True)
        )

    def _element(self, kind: str, names: tuple[str, ...], which: str | int) -> Element:
        i = find(kind, names, which)
        return Element(self, kind, i, names[i])

    @functools.cached_property
    def constant(self) -> bool:
        """Return whether all that physics reads is plain numbers, no tensor and no value of a kernel being traced."""
        return all(is_plain(x) for _, x in self._read())

    def _read(self) -> list[tuple[str, object]]:
        """Return names and values of the fields that physics reads."""
        return [(f.name, getattr(self, f.name)) for f in dataclasses.fields(self) if f.name != "shown"]

    @functools.cached_property
    def digest(self) -> str:
        """Return a digest of all fields that physics reads: equal models have equal ones, in every process.

        Raises TypeError if fields are not constant: what follows from such a model must not be kept for another.
        """
        if not self.constant:
            raise TypeError("a model has a digest only while all of its fields are plain numbers")
        return hashlib.sha256(repr(self._read()).encode()).hexdigest()

    def __eq__(self, other: object) -> bool:
        if self is other or not (isinstance(other, Model) and self.constant and other.constant):
            return self is other
        return self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest) if self.constant else id(self)


def bodies_of(m: Model, pair: Pair) -> tuple[int, int]:
    """Return the bodies of a pair's geoms."""
    return m.geom_bodyid[pair.geom1], m.geom_bodyid[pair.geom2]


def moving_body(m: Model, body: int) -> int:
    """Return the nearest body with joints of its own, from this one towards the root; 0 if there is none."""
    while body and not m.body_dofnum[body]:
        body = m.body_parentid[body]
    return body


def dofs_of(m: Model, body: int) -> list[int]:
    """Return the dofs that move a body, from its own to the root's."""
    body = moving_body(m, body)
    return dof_chain(m, m.body_dofadr[body] + m.body_dofnum[body] - 1) if body else []


def dof_chain(m: Model, v: int) -> list[int]:
    """Return dof v and the dofs that move it, up to the root's."""
    out = []
    while v >= 0:
        out.append(v)
        v = m.dof_parentid[v]
    return out


def is_plain(x: object) -> bool:
    """Return whether repr tells all of x: it may not for types derived from the plain ones."""
    if type(x) is tuple:
        return all(map(is_plain, x))
    if type(x) is dict:
        return all(map(is_plain, x.items()))
    return type(x) in (bool, int, float, str, type(None), Pair, Mesh, Surface, HField)
