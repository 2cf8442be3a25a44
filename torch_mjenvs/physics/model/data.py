"""`Data`, the fields of one world, and `stage`, by which a function declares which fields it reads and computes.

nq positions   nv dofs   nu actuators   na activations   nbody bodies   njnt joints   ngeom geoms   nsite sites
ntendon tendons
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol, cast

from ...compiler.control import here
from .precision import DOUBLE

if TYPE_CHECKING:
    from .model import Model


@dataclasses.dataclass(frozen=True)
class Field:
    """A declared field of `Data`: nested lists, whose shape in one world is given by the model's sizes.

    output: whether it is a field of mjData that a `Simulation` can be asked for. optional: whether a caller may leave
    it out; then it is None.
    """

    shape: tuple[str | int, ...]
    output: bool = False
    optional: bool = False
    name: str = ""

    def __set_name__(self, owner: type, name: str) -> None:
        object.__setattr__(self, "name", name)

    def __get__(self, d: Data | None, owner: type) -> Any:
        """Return the field's value in a `Data`: computed by its stage if need be, or None if optional and not given."""
        if d is None:
            return self
        if self.name in d._elsewhere:
            return getattr(d._elsewhere[self.name], self.name)
        if self.name in STAGE_OF:
            with d.where_made():
                STAGE_OF[self.name](d._model, d)
            return vars(d)[self.name]
        if self.optional:
            return None
        raise AttributeError(f"this Data was made without {self.name}, which no stage computes")


def field(*shape: str | int) -> Any:
    """Declare a field that stages pass to each other."""
    return Field(shape)


def output(*shape: str | int) -> Any:
    """Declare a field of mjData that a `Simulation` can be asked for."""
    return Field(shape, output=True)


class Data:
    """MuJoCo's mjData: the declared fields of one world, each computed by its stage when it is first asked for.

    It is made from a model and the fields that the caller knows, such as qpos. In a kernel a field is computed where
    the `Data` was made, so that a task may read it first within a block and again outside.
    """

    _model: Model
    _here: Callable[[], AbstractContextManager[Any]]
    _elsewhere: dict[str, Data]

    # what the caller gives
    precision = field()  # Precision: that of Python floats, unless another is given
    qpos = field("nq")
    qvel = field("nv")
    act = field("na")
    ctrl = field("nu")
    qacc_warmstart = field("nv")
    time = Field((), optional=True)  # s
    mocap_pos = Field(("nmocap", 3), optional=True)  # where not given, mocap bodies are where the model has them
    mocap_quat = Field(("nmocap", 4), optional=True)
    eq_active = Field(("neq",), optional=True)  # which equalities are active; where not given, as the model has them
    wind = Field((3,), optional=True)  # m/s; where not given, the model's
    plastic = Field(("nplastic",), optional=True)  # rests of springs that yield; if not given, the initial ones
    history = Field(("nhistory",), optional=True)  # samples of what is delayed; if not given, the initial ones
    ahead = Field((), optional=True)  # steps since the step began; where not given, 0
    qfrc_applied = Field(("nv",), optional=True)
    xfrc_applied = Field(("nbody", 6), optional=True)  # (force, torque) at the body's centre of mass, in world axes

    # kinematics: `...rel` is a position from the origin of the body's tree, which is by `body_originid`
    origin = field("nbody", 3)
    frame = field("nbody")  # Frame
    xpos, xrel = output("nbody", 3), field("nbody", 3)  # of the body's frame
    xquat, xmat = output("nbody", 4), output("nbody", 9)  # its orientation; the quaternion is for reading only
    xipos, xirel = output("nbody", 3), field("nbody", 3)  # centre of mass
    ximat = output("nbody", 9)  # principal axes of inertia
    xanchor, xanchorrel = output("njnt", 3), field("njnt", 3)
    xaxis = output("njnt", 3)
    geom_xpos, geom_xrel, geom_xmat = output("ngeom", 3), field("ngeom", 3), output("ngeom", 9)
    site_xpos, site_xrel, site_xmat = output("nsite", 3), field("nsite", 3), output("nsite", 9)
    ten_length, ten_velocity = output("ntendon"), output("ntendon")
    ten_J = field("ntendon")  # {dof: entry} for each tendon: the rate of its length
    ten_force = field("ntendon")  # of its spring and damper; positive: longer
    ten_wrench = field("ntendon")  # {body: (torque, force)} about its tree's origin, of a unit force along the tendon

    # inertia: names with `o` in place of MuJoCo's `c` are about the tree's origin; those with `c` are about subtree_com
    # of the root, and for reading only
    comrel = field("nbody", 3)  # subtree_com of the root, from the body's origin; by `body_originid`
    subtree_com = output("nbody", 3)
    cinert, crb = output("nbody", 10), output("nbody", 10)  # inertia of the body, and of its subtree
    lump = field("nbody")  # Lump: bodies welded together, at the one with the joints that move them; elsewhere None
    cdof, odof = output("nv", 6), field("nv", 6)  # motion axes
    M = output("nv", "nv")  # {column: entry} for each row: the lower triangle, the row's dof and its ancestors

    # velocity
    cvel, ovel = output("nbody", 6), field("nbody", 6)
    cdof_dot = output("nv", 6)
    ten_bias = field("ntendon")  # of those with armature: the acceleration of the length while no dof accelerates
    bias_acc = field("nbody", 6)  # sum of the rate of odof times qvel over the dofs of the body
    subtree_linvel, subtree_angmom = output("nbody", 3), output("nbody", 3)  # of its centre of mass, and about it
    qfrc_bias = output("nv")  # Coriolis, centrifugal and gravitational force

    # forces
    qfrc_passive = output("nv")  # springs, dampers, gravity compensation, fluid and adhesion
    qfrc_gravcomp = output("nv")
    qfrc_fluid = output("nv")
    qfrc_adhesion = output("nv")  # the pull of contacts
    actuator_length, actuator_velocity = output("nu"), output("nu")
    contact_moment = field()  # {body: {dof: entry}}, of a unit pull at the contacts of a body that actuators make stick
    actuator_moment = field("nu")  # {dof: entry} for each actuator
    act_dot = output("na")
    actuator_force = output("nu")  # before the gear
    tendon_wrench = field()  # {body: (torque, force)} about its tree's origin, of all that pulls by spatial tendons
    qfrc_actuator = output("nv")
    qfrc_smooth = output("nv")  # all forces but those of constraints
    qacc_smooth = output("nv")

    # constraints
    candidates = field()  # [Candidate], one for each of the model's pairs
    ncon = output()  # how many contacts there are: detected, whether they act or not
    constraints = field()  # [Constraint], by kind
    qacc_solver = field("nv")  # where the solver ended; forces of constraints follow from it, except for `slips`
    slips = field()  # [noslip.Slip]: what was added to the forces of friction
    qacc = output("nv")
    solver_niter = field()  # Newton iterations
    qfrc_constraint = output("nv")
    cfrc_ext = output("nbody", 6)  # wrench (torque, force) of all contacts, about the root's subtree_com

    # what follows from accelerations
    cacc, oacc = output("nbody", 6), field("nbody", 6)  # with gravity's opposite in them
    cfrc_int = output("nbody", 6)  # wrench of the parent on the body, about the root's subtree_com
    shortest = field()  # distance.Segment of some pairs of geoms, by a function
    sensordata = output("nsensordata")

    def __init__(self, m: Model, **given: Any):
        vars(self).update(_model=m, _here=here(), _elsewhere={})
        for name, value in ({"precision": DOUBLE} | given).items():
            setattr(self, name, value)

    def where_made(self) -> AbstractContextManager[Any]:
        """Return a context in which a kernel computes where this `Data` was made, whatever block asks for it."""
        return self._here()

    def take(self, names: Iterable[str], other: Data) -> None:
        """Read these fields from `other`, another evaluation."""
        self._elsewhere.update(dict.fromkeys(names, other))

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in FIELDS:
            raise AttributeError(f"Data has no field {name!r}: declare it in {Data.__module__}")
        self.__dict__[name] = value


FIELDS: dict[str, Field] = {name: x for name, x in vars(Data).items() if isinstance(x, Field)}


class Stage(Protocol):
    """A function of a step: it reads some fields of `Data` and computes others, the same ones for every model."""

    __name__: str
    reads: tuple[str, ...]
    computes: tuple[str, ...]

    def __call__(self, m: Model, d: Data) -> None: ...


STAGE_OF: dict[str, Stage] = {}  # by the field that it computes


def stage(reads: str, computes: str) -> Callable[[Callable[[Model, Data], None]], Stage]:
    """Decorate a stage: declare the fields that it reads and those that it computes."""

    def declare(function: Callable[[Model, Data], None]) -> Stage:
        declared = cast(Stage, function)
        declared.reads, declared.computes = tuple(reads.split()), tuple(computes.split())
        unknown = [name for name in declared.reads + declared.computes if name not in FIELDS]
        assert not unknown, f"Data has no fields {unknown}"
        for name in declared.computes:
            assert name not in STAGE_OF, f"two stages compute {name}"
            STAGE_OF[name] = declared
        return declared

    return declare
