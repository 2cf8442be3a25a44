"""What follows from a state: the fields of mjData, each stage run when one of its fields is first asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..compiler.scalar import select
from .actuators.activation import check_act, held_to_a_turn
from .actuators.actuation import actuation, transmission
from .collision.driver import collision
from .constraints import make_constraint
from .data import Data, Stage
from .forces import passive
from .inertia import com_pos, crb
from .kinematics import kinematics
from .model import Model
from .noslip import no_slip
from .precision import DOUBLE, Precision
from .sensors import sensor
from .solver import constraint_force, newton, rne_post_constraint
from .step import smooth, smooth_acceleration
from .tendons.bias import tendon_bias
from .tendons.tendon import tendon, tendon_vel
from .velocity import bias, com_acc, com_force, com_vel, subtree_vel

STAGES: tuple[Stage, ...] = (
    kinematics,
    com_pos,
    tendon,
    crb,
    collision,
    com_vel,
    tendon_vel,
    tendon_bias,
    transmission,
    passive,
    bias,
    actuation,
    smooth,
    smooth_acceleration,
    make_constraint,
    newton,
    no_slip,
    constraint_force,
    rne_post_constraint,
    subtree_vel,
    com_acc,
    com_force,
    sensor,
)
# Stages with loops and blocks: a field first asked for inside one would be computed there, and be unknown outside.
BRANCHING: tuple[Stage, ...] = (make_constraint, newton, no_slip, constraint_force, rne_post_constraint)
STAGE_OF: dict[str, Stage] = {name: stage for stage in STAGES for name in stage.computes}


OF_SENSORS = "cacc cfrc_int sensordata"  # what MuJoCo computes with sensors, if any ask for it


class Derived(Data):
    """A state of which each stage is computed when one of its fields is first asked for."""

    def __init__(self, m: Model, **given: Any):
        super().__init__(**given)
        self.__dict__["model"] = m
        self.__dict__["elsewhere"] = {}

    def take(self, names: str, other: Derived) -> None:
        """Have these fields be those of another evaluation."""
        self.__dict__["elsewhere"].update(dict.fromkeys(names.split(), other))

    def __getattr__(self, name: str) -> Any:
        if name in self.__dict__["elsewhere"]:
            return getattr(self.__dict__["elsewhere"][name], name)
        stage = STAGE_OF.get(name)
        if stage is None:
            raise AttributeError(f"no stage computes {name!r}")
        for read in stage.reads if stage in BRANCHING else ():
            getattr(self, read)
        stage(self.__dict__["model"], self)
        return self.__dict__[name]


def derive(
    m: Model,
    qpos: list,
    qvel: list,
    qacc: list | None,
    ctrl: list,
    precision: Precision = DOUBLE,
    act: Sequence = (),
    **pushes: list,
) -> Derived:
    """mjData at a state, `pushes` as of `step`. Nothing is computed that nobody reads. qacc: where the solver ended, if
    that is known.

    Raises ValueError for a wrong number of activations.
    """
    check_act(m, act)
    known = {"qacc_warmstart": [0.0] * m.nv} if qacc is None else {"qacc_solver": qacc}
    if qacc is not None and not m.noslip_iterations:
        known |= {"qacc": qacc, "slips": []}
    return Derived(m, qpos=qpos, qvel=qvel, act=act, ctrl=ctrl, precision=precision, **known, **pushes)


def left_by_step(
    m: Model, last: Mapping[str, Any], ctrl: list, precision: Precision = DOUBLE, **pushes: list
) -> Derived:
    """mjData as a step leaves it, by what `State.last` has.

    MuJoCo evaluates sensors, and what they alone rest on, once a step: of a Runge-Kutta step in the first stage. So are
    the lengths of actuators that it leaves, where set points are held to a turn; forces are those of the last stage.
    """

    def at_last() -> Derived:
        return derive(m, last["qpos"], last["qvel"], last["qacc"], ctrl, precision, last["act"], **pushes)

    d = at_last()
    if m.integrator != "rk4":
        return d
    start = dict(zip(("qpos", "qvel", "qacc_warmstart", "act"), last["start"], strict=True))
    first = Derived(m, ctrl=ctrl, precision=precision, **start, **pushes)
    d.take(OF_SENSORS, first)
    held = held_to_a_turn(m)
    if held is False:
        return d
    left = at_last()  # another one, as d's own stages read the lengths of the last stage
    left.take(" ".join(STAGE_OF), d)
    lengths = zip(first.actuator_length, d.actuator_length, strict=True)
    left.actuator_length = [select(held, x, y) for x, y in lengths]
    return left
