"""One step of MuJoCo, as a readable list of stages.

Everything here works on a Python float, on a torch tensor of shape (B,) or on a traced value alike.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..compiler.arrays import Table
from ..compiler.control import repeat, when_any
from ..compiler.scalar import Mask
from .actuators.activation import check_act
from .actuators.actuation import actuation, transmission
from .collision.driver import collision
from .constraints import make_constraint
from .data import Data, stage
from .forces import applied, passive
from .inertia import com_pos, crb, factor, solve
from .integrator import euler, rk4
from .kinematics import kinematics
from .model import TENDON, Model
from .noslip import no_slip
from .precision import DOUBLE, Precision
from .solver import newton, rne_post_constraint
from .spatial import add
from .tendons.bias import tendon_bias
from .tendons.tendon import armed_tendons, constrained_tendons, springy_tendons, tendon, tendon_vel
from .velocity import bias, com_vel


@dataclass
class State:
    """What a step carries from one to the next: lists of nq, nv, nv, and na scalars.

    `last` is the state at which MuJoCo would have computed mjData's other fields: before an Euler step, in
    the last stage of a Runge-Kutta step (qpos, qvel, act, qacc, cfrc_ext). `start` is what a step starts from.
    """

    qpos: list
    qvel: list
    qacc_warmstart: list
    act: list = field(default_factory=list)
    last: dict = field(default_factory=dict)


def position(m: Model, d: Data) -> None:
    """mj_fwdPosition, but for constraints."""
    kinematics(m, d)
    com_pos(m, d)
    if tendons_act(m):
        tendon(m, d)
    crb(m, d)
    collision(m, d)


def tendons_act(m: Model) -> bool:
    """Whether any tendon does more than measure."""
    return bool(TENDON in m.actuator_trntype or springy_tendons(m) or constrained_tendons(m) or armed_tendons(m))


def velocity(m: Model, d: Data) -> None:
    """mj_fwdVelocity, and of mj_fwdPosition what measures lengths."""
    com_vel(m, d)
    if tendons_act(m):
        tendon_vel(m, d)
        tendon_bias(m, d)
    transmission(m, d)
    passive(m, d)
    bias(m, d)


def acceleration(m: Model, d: Data) -> None:
    """mj_fwdActuation, mj_fwdAcceleration and mj_fwdConstraint."""
    actuation(m, d)
    smooth(m, d)
    make_constraint(m, d)
    newton(m, d)
    no_slip(m, d)


@stage(
    reads="qfrc_bias qfrc_passive qfrc_actuator qfrc_applied xfrc_applied xirel odof",
    computes="qfrc_smooth",
)
def smooth(m: Model, d: Data) -> None:
    """d.qfrc_smooth: all forces but those of constraints. mj_fwdAcceleration."""
    forces = zip(d.qfrc_passive, d.qfrc_bias, d.qfrc_actuator, strict=True)
    d.qfrc_smooth = [passive - bias + actuator for passive, bias, actuator in forces]
    if d.qfrc_applied is not None or d.xfrc_applied is not None:
        d.qfrc_smooth = add(d.qfrc_smooth, applied(m, d))
    for v in range(m.nv):
        if m.dof_parentid[v] < 0:
            d.qfrc_smooth[v] = d.qfrc_smooth[v] + m.flaw


@stage(reads="M qfrc_smooth", computes="qacc_smooth")
def smooth_acceleration(m: Model, d: Data) -> None:
    """d.qacc_smooth: the acceleration without constraints, which no other stage needs. mj_fwdAcceleration."""
    d.qacc_smooth = solve(factor(d.M, m.dof_clamped), d.qfrc_smooth)


def forward(m: Model, d: Data) -> None:
    """mj_forward."""
    position(m, d)
    velocity(m, d)
    acceleration(m, d)


def step(
    m: Model, state: State, ctrl: list, final: Mask = True, precision: Precision = DOUBLE, **pushes: list
) -> State:
    """mj_step. `last` has cfrc_ext where `final`: what mj_rnePostConstraint would find after the step.

    pushes: `qfrc_applied` (nv scalars), `xfrc_applied` (nbody lists of 6), `mocap_pos` and `mocap_quat` (nmocap
    lists of 3 and 4), held for the step. Raises ValueError for a state without the model's activations.
    """
    check_act(m, state.act)

    def forward_at(qpos: list, qvel: list, warmstart: list, act: list) -> Data:
        d = Data(qpos=qpos, qvel=qvel, act=act, ctrl=ctrl, qacc_warmstart=warmstart, precision=precision, **pushes)
        forward(m, d)
        return d

    def observe(d: Data, seen: list) -> list:
        def wrenches(_: list) -> list:
            rne_post_constraint(m, d)
            return d.cfrc_ext

        return when_any(final, wrenches, seen)

    nothing = state.last["cfrc_ext"] if state.last else [[0.0] * 6 for _ in range(m.nbody)]
    start = state.qpos, state.qvel, state.qacc_warmstart, state.act
    if m.integrator == "rk4":
        qpos, qvel, act, last = rk4(m, *start, forward_at, observe, nothing)
        last["cfrc_ext"] = last.pop("observed")
    else:
        d = forward_at(*start)
        qpos, qvel, act = euler(m, d)
        last = {"qpos": d.qpos, "qvel": d.qvel, "act": d.act, "qacc": d.qacc_solver, "mean_qacc": d.qacc}
        last["cfrc_ext"] = observe(d, nothing)
    last["start"] = [list(x) for x in start]
    return State(qpos, qvel, last["qacc"], act, last)


def steps(m: Model, state: State, ctrl: list, n: int, precision: Precision = DOUBLE, **pushes: list) -> State:
    """n steps under the same control and pushes, their code made once."""
    last_one = [float(i == n - 1) for i in range(n)]

    def body(i: Any, carry: list) -> list:
        s = step(m, State(*carry), ctrl, Table(last_one)[i] > 0.5, precision, **pushes)
        return [s.qpos, s.qvel, s.qacc_warmstart, s.act, s.last]

    start = [state.qpos, state.qvel, state.qacc_warmstart, state.act]
    last = {"qpos": state.qpos, "qvel": state.qvel, "qacc": state.qacc_warmstart, "mean_qacc": state.qacc_warmstart}
    last |= {"act": state.act, "cfrc_ext": [[0.0] * 6 for _ in range(m.nbody)], "start": [list(x) for x in start]}
    return State(*repeat(n, body, [*start, last]))
