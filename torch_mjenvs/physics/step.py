"""One step of MuJoCo, and what it leaves in mjData.

Everything here works on a Python float, on a torch tensor of shape (B,) or on a traced value alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..compiler.arrays import Table
from ..compiler.control import repeat, when_any
from ..compiler.scalar import Mask, Scalar, select
from .algebra.spatial import add, zeros
from .dynamics.actuators.activation import check_act, held_to_a_turn
from .dynamics.integrator import euler, rk4
from .dynamics.plasticity import yielded
from .model.data import STAGE_OF, Data
from .model.enums import NeedStage
from .model.model import Model
from .model.precision import DOUBLE, Precision
from .model.state import Last, State
from .pipeline import OF_ACCELERATIONS, OF_SENSORS, derive, forward
from .sensors.recorded import recorded
from .sensors.sensor_data import SensorData
from .solver.newton import rne_post_constraint


def step(
    m: Model, state: State, ctrl: list[Scalar], final: Mask = True, precision: Precision = DOUBLE, **pushes: Any
) -> State:
    """Return the state after one step. mj_step.

    If `final`, its `Last` has cfrc_ext: what mj_rnePostConstraint would compute after the step.

    pushes: `qfrc_applied` (nv scalars), `xfrc_applied` (nbody lists of 6), `mocap_pos` and `mocap_quat` (nmocap
    lists of 3 and 4), held for the step. Raises ValueError for a state without the model's activations.
    """
    seen = state.last.cfrc_ext if state.last else None
    nothing = [zeros(6) for _ in range(m.nbody)] if seen is None else seen

    def observe(d: Data, seen: list[list[Scalar]]) -> list[list[Scalar]]:
        def wrenches(_: list[list[Scalar]]) -> list[list[Scalar]]:
            # called here so that it runs in this block only; reading d.cfrc_ext first would compute it in every step
            rne_post_constraint(m, d)
            found: list[list[Scalar]] = d.cfrc_ext
            return found

        return when_any(final, wrenches, seen)

    given = {"ctrl": ctrl, "precision": precision, **_kept(m, state), **pushes}
    if m.integrator != "rk4":
        new, last, d = _euler_step(m, state, given)
        last.cfrc_ext = observe(d, nothing)
        return new

    def forward_at(
        qpos: list[Scalar], qvel: list[Scalar], warmstart: list[Scalar], act: list[Scalar], ahead: Scalar
    ) -> Data:
        d = Data(m, qpos=qpos, qvel=qvel, act=act, qacc_warmstart=warmstart, ahead=ahead, **given)
        forward(d)
        return d

    check_act(m, state.act)
    qpos, qvel, act, last = rk4(m, state.parts, forward_at, observe, nothing)
    last.kept = _kept(m, state)
    d = Data(m, qpos=state.qpos, qvel=state.qvel, act=state.act, qacc_warmstart=state.qacc_warmstart, **given)
    return State(qpos, qvel, last.qacc, act, last, kept_after(m, d, qpos))


def step_and_data(
    m: Model, state: State, ctrl: list[Scalar], precision: Precision = DOUBLE, **pushes: Any
) -> tuple[State, Data]:
    """Return the state after one step, and mjData as `left_by_step` gives it.

    If the step evaluates the world only once, the data is that evaluation itself. So what reads it computes nothing
    again, and finds the contacts that the solver found.
    """
    if m.integrator == "rk4":
        new = step(m, state, ctrl, precision=precision, **pushes)
        return new, left_by_step(m, new, ctrl, precision, **pushes)
    new, _, d = _euler_step(m, state, {"ctrl": ctrl, "precision": precision, **_kept(m, state), **pushes})
    return new, d


def _euler_step(m: Model, state: State, given: dict[str, Any]) -> tuple[State, Last, Data]:
    """Return the state after one step that is not Runge-Kutta's, its `last` without wrenches, and its evaluation.

    given: the inputs, precision and kept state.
    """
    check_act(m, state.act)
    start = state.parts
    at, speed, warmstart, act = start
    d = Data(m, qpos=at, qvel=speed, act=act, qacc_warmstart=warmstart, ahead=0.0, **given)
    forward(d)
    qpos, qvel, act = euler(m, d)
    # here, since within a block of the caller's the fields of d that this reads would be computed there
    keeps = kept_after(m, d, qpos)
    last = Last(d.act, None, d.qacc, d.qacc_solver, d.qpos, d.qvel, start, _kept(m, state))
    return State(qpos, qvel, last.qacc, act, last, keeps), last, d


def _kept(m: Model, state: State) -> dict[str, list[Scalar]]:
    """Return the kept state (see `Model.kept0`) before a step from this state."""
    return {name: state.kept.get(name, list(initial)) for name, initial in m.kept0.items()}


def steps(m: Model, state: State, ctrl: list[Scalar], n: int, precision: Precision = DOUBLE, **pushes: Any) -> State:
    """Return the state after n steps under the same control and pushes, recorded as one loop."""
    last_one = [float(i == n - 1) for i in range(n)]

    def body(i: Any, s: State) -> State:
        return step(m, s, ctrl, Table(last_one)[i] > 0.5, precision, **pushes)

    return repeat(n, body, replace(state, kept=_kept(m, state)).unmoved(m.nbody))


@dataclass
class Controlled:
    """What controls a step: ctrl (nu), inputs and further pushes by name, and what the controller remembers."""

    ctrl: list[Scalar]
    inputs: dict[str, Any]
    more: dict[str, Any]
    memory: dict[str, Any]


def controlled_steps(
    m: Model,
    state: State,
    control: Callable[[Any, State, Controlled], Controlled],
    begun: Controlled,
    n: int,
    precision: Precision = DOUBLE,
    **pushes: Any,
) -> tuple[State, Controlled]:
    """Return the state after n steps, and what controlled the last one.

    control(i, state, before) controls step i, from the state and what controlled the step before; `begun` is what the
    first one gets.
    """
    last_one = [float(i == n - 1) for i in range(n)]

    def body(i: Any, carry: tuple[State, Controlled]) -> tuple[State, Controlled]:
        state, by = carry[0], control(i, *carry)
        given = with_more(pushes, by.more) | by.inputs
        return step(m, state, by.ctrl, Table(last_one)[i] > 0.5, precision, **given), by

    ended: tuple[State, Controlled] = repeat(n, body, (replace(state, kept=_kept(m, state)).unmoved(m.nbody), begun))
    return ended


def no_pushes(m: Model, names: Iterable[str]) -> dict[str, Any]:
    """Return pushes of these names, `qfrc_applied` and `xfrc_applied`, that are all 0."""
    none: dict[str, Any] = {"qfrc_applied": zeros(m.nv), "xfrc_applied": [zeros(6) for _ in range(m.nbody)]}
    return {name: none[name] for name in names}


def with_more(pushes: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sum of pushes."""
    out = {**pushes, **more}
    if "qfrc_applied" in pushes and "qfrc_applied" in more:
        out["qfrc_applied"] = add(pushes["qfrc_applied"], more["qfrc_applied"])
    if "xfrc_applied" in pushes and "xfrc_applied" in more:
        out["xfrc_applied"] = list(map(add, pushes["xfrc_applied"], more["xfrc_applied"]))
    return out


def kept_after(m: Model, d: Data, qpos: list[Scalar]) -> dict[str, list[Scalar]]:
    """Return the kept state (see `Model.kept0`) after a step from d to these positions. mj_advance."""
    plastic = {"plastic": yielded(m, d, qpos)} if m.plastic0 else {}
    return plastic | ({"history": recorded(m, d)} if m.history0 else {})


def left_by_step(m: Model, state: State, ctrl: list[Scalar], precision: Precision = DOUBLE, **pushes: Any) -> Data:
    """Return mjData as the step that led to this state leaves it.

    After a Runge-Kutta step MuJoCo's fields come from several evaluations. Most are of the last stage. Sensors, and
    fields that only they need, are evaluated once per step, in the first stage. So are the lengths of actuators if set
    points are held to a turn, and those of tendons if springs yield. Only qacc is the mean of the stages.

    Raises ValueError for a state that no step led to.
    """
    last = state.last
    if last is None:
        raise ValueError("no step led to this state")
    pushes = last.kept | pushes
    ahead = 1.0 if m.integrator == "rk4" else 0.0
    d = derive(m, last.qpos, last.qvel, last.qacc, ctrl, precision, last.act, ahead=ahead, **pushes)
    if last.cfrc_ext is None:  # loops compute contacts anew, instead of reading the lists made for the solver
        d.constraints = [c.recomputed() for c in d.constraints]
    else:
        d.cfrc_ext = last.cfrc_ext
    if m.integrator != "rk4":
        return d
    qpos, qvel, warmstart, act = last.start
    given = {"ctrl": ctrl, "precision": precision, **pushes}
    first = Data(m, qpos=qpos, qvel=qvel, qacc_warmstart=warmstart, act=act, **given)
    left = Data(m, qpos=last.qpos, qvel=last.qvel, act=last.act, **given)  # not d itself, since d's stages read d
    left.take(STAGE_OF, d)
    left.take(OF_SENSORS, first)
    left.qacc = last.mean_qacc
    if m.plastic0:
        left.take(("ten_length",), first)
    if (held := held_to_a_turn(m)) is not False:
        lengths = zip(first.actuator_length, d.actuator_length, strict=True)
        left.actuator_length = [select(held, x, y) for x, y in lengths]
    return left


def refreshed(m: Model, state: State, ctrl: list[Scalar], precision: Precision = DOUBLE, **pushes: Any) -> Data:
    """Return mjData as mj_step1 leaves it after the step that led to this state; dm_control's `legacy_step`.

    Fields that depend on positions and velocities are of the state itself. Forces of actuators, accelerations, and all
    that depends on them, sensors included, are as the step left them.

    Raises ValueError for a state that no step led to.
    """
    given = {"ctrl": ctrl, "precision": precision, **state.kept, **pushes}
    new = Data(m, qpos=state.qpos, qvel=state.qvel, act=state.act, **given)
    left = left_by_step(m, state, ctrl, precision, **pushes)
    new.take(OF_ACCELERATIONS, left)
    early, late = new.sensordata, left.sensordata

    def measured(i: int) -> list[Scalar]:
        of_stage: SensorData = late if m.sensor_needstage[i] == NeedStage.ACC else early
        return of_stage.of_sensor(i)

    new.sensordata = SensorData(m, measured)
    return new


def forwarded(m: Model, state: State, ctrl: list[Scalar], precision: Precision = DOUBLE, **pushes: Any) -> Data:
    """Return mjData as mj_forward leaves it after the step that led to this state, under the same inputs.

    All fields are of the state itself, forces, accelerations and contacts included: the constraints are solved again.
    """
    given = {"ctrl": ctrl, "precision": precision, **state.kept, **pushes}
    return Data(m, qpos=state.qpos, qvel=state.qvel, act=state.act, qacc_warmstart=state.qacc_warmstart, **given)
