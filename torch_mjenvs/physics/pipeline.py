"""MuJoCo's pipeline: the stages in MuJoCo's order, from a state to its accelerations and all that follows.

A `Data` runs a stage when one of its fields is first asked for, so only what is needed is computed. `forward` asks for
all that a step needs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..compiler.scalar import Scalar
from .algebra.spatial import Vec
from .collision.candidates import collision
from .collision.distance import distances
from .constraints import count_contacts, make_constraint
from .constraints.adhesion import adhesion
from .constraints.contact_moment import contact_moment
from .dynamics.actuators.activation import check_act
from .dynamics.actuators.actuation import actuation, transmission
from .dynamics.forces import passive, smooth, smooth_acceleration
from .dynamics.inertia import com_pos, crb
from .dynamics.kinematics import kinematics
from .dynamics.tendons.bias import tendon_bias
from .dynamics.tendons.tendon import tendon, tendon_vel
from .dynamics.velocity import bias, com_acc, com_force, com_vel, subtree_vel
from .model.data import Data, Stage
from .model.model import Model
from .model.precision import DOUBLE, Precision
from .sensors.sensor import sensor
from .solver.newton import constraint_force, newton, rne_post_constraint
from .solver.noslip import no_slip

# mj_fwdPosition, except what needs velocities as well
FWD_POSITION: tuple[Stage, ...] = (
    kinematics,  # where bodies, joints, geoms and sites are
    com_pos,  # centres of mass, inertias, motion axes
    tendon,  # lengths of tendons, and what moves them
    crb,  # M
    collision,  # which geoms may touch
)

# mj_fwdVelocity, and mj_transmission
FWD_VELOCITY: tuple[Stage, ...] = (
    com_vel,  # velocities of bodies
    tendon_vel,  # velocities of tendons, and their springs and dampers
    tendon_bias,  # what tendons with armature add to `bias`
    contact_moment,  # the moments of actuators that make a body stick to others
    transmission,  # lengths and velocities of actuators, and what they move
    adhesion,  # the pull of contacts that adhere
    passive,  # springs, dampers, gravity compensation, fluid, adhesion
    bias,  # Coriolis, centrifugal and gravitational forces
)

# mj_fwdActuation and mj_fwdAcceleration
FWD_ACTUATION: tuple[Stage, ...] = (
    actuation,  # rates of activations, forces of actuators
    smooth,  # all forces but those of constraints
)

# mj_makeConstraint and mj_fwdConstraint
FWD_CONSTRAINT: tuple[Stage, ...] = (
    make_constraint,  # equalities, friction loss, limits, contacts
    newton,  # the acceleration that they leave
    no_slip,  # ... after sweeps that let no friction creep
)

FORWARD: tuple[Stage, ...] = (*FWD_POSITION, *FWD_VELOCITY, *FWD_ACTUATION, *FWD_CONSTRAINT)

# What no step needs: for tasks, outputs and sensors
ON_DEMAND: tuple[Stage, ...] = (
    smooth_acceleration,  # of mj_fwdAcceleration: the acceleration without constraints
    constraint_force,  # of mj_fwdConstraint: the force of constraints on each dof
    rne_post_constraint,  # mj_rnePostConstraint in three parts: wrenches of contacts and of what pulls from outside
    com_acc,  # ... accelerations of bodies
    com_force,  # ... wrenches of parents
    subtree_vel,  # mj_subtreeVel
    count_contacts,  # of mj_collision: how many contacts there are
    distances,  # mj_geomDistance
    sensor,  # mj_sensorPos, mj_sensorVel and mj_sensorAcc
)

STAGES: tuple[Stage, ...] = (*FORWARD, *ON_DEMAND)

OF_SENSORS = ("cacc", "cfrc_int", "sensordata")  # what MuJoCo computes with sensors, if any ask for it

# What mj_step2 computes, sensors apart, and mj_step1 leaves as it is
LATE: tuple[Stage, ...] = (
    *FWD_ACTUATION, newton, no_slip, smooth_acceleration, constraint_force, rne_post_constraint, com_acc, com_force,
)  # fmt: skip
OF_ACCELERATIONS = tuple(name for stage in LATE for name in stage.computes)


def compute(d: Data, stages: Iterable[Stage]) -> None:
    """Compute all fields of these stages, in the stages' order.

    So a kernel's code follows MuJoCo's order, whatever field is asked for first.
    """
    for stage in stages:
        for name in stage.computes:
            getattr(d, name)


def forward(d: Data) -> None:
    """Compute all that a step needs. mj_forward."""
    compute(d, FORWARD)


def derive(
    m: Model,
    qpos: list[Scalar],
    qvel: list[Scalar],
    qacc: list[Scalar] | None,
    ctrl: Vec,
    precision: Precision = DOUBLE,
    act: Vec = (),
    **pushes: Any,
) -> Data:
    """Return mjData at a state; only the fields that are read are computed.

    qacc: the solver's solution, if it is known. pushes: as for `step`.

    Raises ValueError for a wrong number of activations.
    """
    check_act(m, act)
    known: dict[str, Any] = {"qacc_warmstart": [0.0] * m.nv} if qacc is None else {"qacc_solver": qacc}
    if qacc is not None and not m.noslip_iterations:
        known |= {"qacc": qacc, "slips": []}
    return Data(m, qpos=qpos, qvel=qvel, act=act, ctrl=ctrl, precision=precision, **known, **pushes)
