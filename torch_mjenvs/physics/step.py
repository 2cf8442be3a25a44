"""One step of MuJoCo, as a readable list of stages.

Everything here works on a Python float, on a torch tensor of shape (B,) or on a traced value alike.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..compiler.control import repeat
from .collision import collision
from .constraint import make_constraint
from .data import Data
from .forces import actuation, passive
from .inertia import com_pos, crb
from .integrator import euler, rk4
from .kinematics import kinematics
from .model import Model
from .solver import newton
from .velocity import bias, com_vel


@dataclass
class State:
    """What a step carries from one to the next: lists of nq, nv, nv scalars.

    `last` is the state at which MuJoCo would have computed mjData's other fields: before an Euler step, in
    the last stage of a Runge-Kutta step (qpos, qvel, qacc).
    """

    qpos: list
    qvel: list
    qacc_warmstart: list
    last: dict | None = None


def position(m: Model, d: Data) -> None:
    """mj_fwdPosition, but for constraints."""
    kinematics(m, d)
    com_pos(m, d)
    crb(m, d)
    d.candidates = collision(m, d)


def velocity(m: Model, d: Data) -> None:
    """mj_fwdVelocity."""
    com_vel(m, d)
    passive(m, d)
    bias(m, d)


def acceleration(m: Model, d: Data) -> None:
    """mj_fwdActuation, mj_fwdAcceleration, mj_fwdConstraint."""
    actuation(m, d)
    forces = zip(d.qfrc_passive, d.qfrc_bias, d.qfrc_actuator, strict=True)
    d.qfrc_smooth = [passive - bias + actuator for passive, bias, actuator in forces]
    make_constraint(m, d)
    newton(m, d)


def forward(m: Model, d: Data) -> None:
    """mj_forward."""
    position(m, d)
    velocity(m, d)
    acceleration(m, d)


def step(m: Model, state: State, ctrl: list) -> State:
    """mj_step."""

    def qacc_at(qpos: list, qvel: list, warmstart: list) -> Data:
        d = Data(qpos=qpos, qvel=qvel, ctrl=ctrl, qacc_warmstart=warmstart)
        forward(m, d)
        return d

    if m.integrator == "rk4":
        qpos, qvel, last = rk4(
            m, state.qpos, state.qvel, state.qacc_warmstart, lambda *at: qacc_at(*at).qacc
        )
        return State(qpos, qvel, last["qacc"], last)
    d = qacc_at(state.qpos, state.qvel, state.qacc_warmstart)
    qpos, qvel = euler(m, d)
    return State(qpos, qvel, d.qacc, {"qpos": d.qpos, "qvel": d.qvel, "qacc": d.qacc})


def steps(m: Model, state: State, ctrl: list, n: int) -> State:
    """n steps under the same control, their code made once."""

    def body(_: object, carry: list) -> list:
        s = step(m, State(*carry[:3]), ctrl)
        return [s.qpos, s.qvel, s.qacc_warmstart, s.last]

    last = {"qpos": state.qpos, "qvel": state.qvel, "qacc": state.qacc_warmstart}
    return State(*repeat(n, body, [state.qpos, state.qvel, state.qacc_warmstart, last]))
