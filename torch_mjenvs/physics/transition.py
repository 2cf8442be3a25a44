"""A step as a function, and its adjoint: gradients by state, controls, activations and parameters, in reverse mode.

The adjoint starts from where the solver ended, at each evaluation of the step, and computes all else again: the solver
is not run. See `compiler.adjoints`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch

from ..compiler.adjoints import Adjoints, Solved
from ..compiler.arrays import Array, Table
from ..compiler.control import repeat, unrolled
from ..compiler.expr import fresh
from ..compiler.scalar import Scalar, select
from .algebra.spatial import add, add_scaled
from .dynamics.integrator import FIRST, B, euler, rk4, rk4_begun, rk4_ended, rk4_stage
from .model.data import Data
from .model.model import Model
from .model.precision import Precision
from .model.state import Last, State
from .pipeline import forward
from .solver.newton import optimum


class Transition(NamedTuple):
    """The state after a step: qpos (..., nq), qvel (..., nv), act (..., na)."""

    qpos: torch.Tensor
    qvel: torch.Tensor
    act: torch.Tensor


def evaluations(m: Model) -> int:
    """Return how often a step evaluates accelerations."""
    return 4 if m.integrator == "rk4" else 1


def transition(
    m: Model, start: State, ctrl: list[Scalar], precision: Precision, **pushes: Any
) -> tuple[list[list[Scalar]], list[Scalar]]:
    """Return (qpos, qvel, act) after a step, and the accelerations at which the solver ended in each evaluation."""

    def forward_at(
        qpos: list[Scalar], qvel: list[Scalar], warmstart: list[Scalar], act: list[Scalar], _: Scalar = 0.0
    ) -> Data:
        d = Data(m, qpos=qpos, qvel=qvel, act=act, ctrl=ctrl, qacc_warmstart=warmstart, precision=precision, **pushes)
        forward(d)
        return d

    if m.integrator == "rk4":
        ended = Array(rows=evaluations(m), columns=m.nv)
        *after, _ = rk4(m, start.parts, forward_at, lambda d, seen: seen, [], ended)
        return after, [x for i in range(evaluations(m)) for x in ended[i]]
    at, speed, warm, active = start.parts
    d = forward_at(at, speed, warm, active)
    return list(euler(m, d)), d.qacc_solver


@dataclass(frozen=True)
class Taken:
    """A step that was taken, whose adjoints are wanted: all that it started from, and where its solver ended.

    model: makes the model from parameters and what is derived from them. ended: the accelerations at which the solver
    ended, as `transition` returns them. pushes: further fields of `Data`, such as xfrc_applied.
    """

    model: Callable[[list[Scalar], list[Scalar]], Model]
    start: State
    ctrl: list[Scalar]
    params: list[Scalar]
    derived: list[Scalar]
    ended: list[Scalar]
    precision: Precision
    pushes: Mapping[str, Any]

    def data(self, m: Model, at: Sequence[list[Scalar]], ctrl: list[Scalar]) -> Data:
        """Return the data of an evaluation at (qpos, qvel, warm start, act); the solver needs no warm start."""
        qpos, qvel, _, act = at
        return Data(m, qpos=qpos, qvel=qvel, act=act, ctrl=ctrl, precision=self.precision, **self.pushes)


def adjoint(step: Taken, bars: Sequence[list[Scalar]]) -> dict[str, list[Scalar]]:
    """Return the adjoints of qpos, qvel, act, ctrl and params, by those of (qpos, qvel, act) after the step."""
    m = step.model(step.params, step.derived)
    if m.integrator == "rk4":
        return _adjoint_of_rk4(m, step, bars)
    after, solutions = ended_at(m, step.start, step.ctrl, step.ended, step.precision, **step.pushes)
    start = step.start
    given = {"qpos": start.qpos, "qvel": start.qvel, "act": start.act, "ctrl": step.ctrl, "params": step.params}
    return _pulled(given, [after.qpos, after.qvel, after.act], bars, solutions)


def _pulled(
    given: dict[str, list[Scalar]],
    values: Sequence[list[Scalar]],
    bars: Sequence[list[Scalar]],
    solutions: Sequence[Solved] = (),
) -> dict[str, list[Scalar]]:
    """Return the adjoints of what is given by name, from the adjoints `bars` of the `values` that were computed from it
    in the present region.
    """
    roots = [pair for xs, ys in zip(values, bars, strict=True) for pair in zip(xs, ys, strict=True)]
    inputs: list[Any] = [x for xs in given.values() for x in xs]
    found = iter(Adjoints(inputs, solutions).of(roots))
    return {name: [next(found) for _ in xs] for name, xs in given.items()}


def _own(xs: list[Scalar]) -> list[Scalar]:
    """Return the same numbers as nodes of the present region, so that there can be adjoints by them in it."""
    return [fresh("add", x, 0.0) for x in xs]


BEGAN = ("rate", "qacc", "act_dot")  # what a stage of Runge-Kutta starts from; their weighted sums end in "s"


def _adjoint_of_rk4(m: Model, step: Taken, bars: Sequence[list[Scalar]]) -> dict[str, list[Scalar]]:
    """Return what `adjoint` does, by one loop over the stages and one back, each with the code of one evaluation."""
    n, nv, start = evaluations(m), m.nv, step.start
    solved = Array([step.ended[nv * i : nv * (i + 1)] for i in range(n)])
    last, began = _stages_there(m, step, solved)

    state = {"qpos": start.qpos, "qvel": start.qvel, "act": start.act}
    at_end = {name: _own(x) for name, x in state.items()}
    sums = {name: _own(last[name]) for name in ("rates", "qaccs", "act_dots")}
    lengths = dict(zip(last["lengths"], _own([*last["lengths"].values()]), strict=True))
    end = rk4_ended(m, [at_end["qpos"], at_end["qvel"], [], at_end["act"]], {**sums, "lengths": lengths})
    of_end = _pulled(at_end | sums | {"lengths": [*lengths.values()]}, end, bars)

    found = _stages_back(m, step, solved, began, of_end)
    found["qvel"] = add(found["qvel"], found["rate"])  # the first stage starts at this rate
    if step.derived:
        of_params = _pulled({"params": step.params}, [step.derived], [found["derived"]])["params"]
        found["params"] = add(found["params"], of_params)
    return {name: found[name] for name in (*state, "ctrl", "params")}


def _stages_there(m: Model, step: Taken, solved: Array) -> tuple[dict[str, Any], Array]:
    """Go through the stages without the solver. Return the last carry, and what each stage began with, a row each."""
    n = evaluations(m)
    began = Array(rows=n, columns=2 * m.nv + m.na)

    def there(i: Any, carry: dict[str, Any]) -> dict[str, Any]:
        began.put(i, [x for name in BEGAN for x in carry[name]])

        def known(qpos: Any, qvel: Any, warmstart: Any, act: Any, _: Scalar) -> Data:
            d = step.data(m, [qpos, qvel, warmstart, act], step.ctrl)
            d.qacc_solver = d.qacc = solved[i]
            return d

        return rk4_stage(m, step.start.parts, known, i, carry)[0]

    return repeat(n, there, rk4_begun(m, step.start.parts), [began]), began


def _stages_back(
    m: Model, step: Taken, solved: Array, began: Array, of_end: dict[str, list[Scalar]]
) -> dict[str, list[Scalar]]:
    """Go back through the stages, and compute each evaluation again with its adjoint.

    of_end: the adjoints of the state and of the stages' sums at the step's end. Return those of the state, of what the
    first stage began with, and of ctrl, params and derived.
    """
    n, nv, start = evaluations(m), m.nv, step.start
    state = {"qpos": start.qpos, "qvel": start.qvel, "act": start.act}
    others = {"ctrl": step.ctrl, "params": step.params, "derived": step.derived}

    def back(k: Any, carry: dict[str, Any]) -> dict[str, Any]:
        i = Table([*reversed(range(n))])[k]
        row = began[i]
        before = {"rate": row[:nv], "qacc": row[nv : 2 * nv], "act_dot": row[2 * nv :]}
        own = {name: _own(x) for name, x in (state | before | others).items()}
        world = step.model(own["params"], own["derived"])
        solutions: list[Solved] = []

        def forward_at(qpos: Any, qvel: Any, warmstart: Any, act: Any, _: Scalar) -> Data:
            d = step.data(world, [qpos, qvel, warmstart, act], own["ctrl"])
            solutions.append(_ended(world, d, solved[i]))
            return d

        begun = rk4_begun(world, [own["qpos"], own["qvel"], [0.0] * nv, own["act"]]) | {x: own[x] for x in before}
        at = [own["qpos"], own["qvel"], own["qacc"], own["act"]]
        new, _ = rk4_stage(world, at, forward_at, i, begun)
        weight, first = Table(B)[i], Table(FIRST)[i] > 0.5
        of_new = [add_scaled(carry[name], of_end[f"{name}s"], weight) for name in before]
        of_new.append([select(first, x, 0.0) for x in of_end["lengths"]])
        made = [*(new[name] for name in before), [*new["lengths"].values()]]
        found = _pulled(own, made, of_new, solutions)
        return {name: x if name in before else add(carry[name], x) for name, x in found.items()}

    sizes = {"rate": nv, "qacc": nv, "act_dot": m.na} | {name: len(x) for name, x in others.items()}
    nothing = {name: [0.0] * size for name, size in sizes.items()}
    return repeat(n, back, {name: of_end[name] for name in state} | nothing)


def _ended(m: Model, d: Data, ended: list[Scalar]) -> Solved:
    """Set d as if its solver had ended at these accelerations, and return the equations that they solve."""
    gradient, solve = optimum(m, d, ended)
    values: list[Any] = _own(ended)  # nodes of their own, of which the residual is not made
    d.qacc_solver, d.qacc, d.slips = values, values, []
    return Solved(values, gradient, solve)


def ended_at(
    m: Model, start: State, ctrl: list[Scalar], ended: list[Scalar], precision: Precision, **pushes: Any
) -> tuple[State, list[Solved]]:
    """Return the state after a step whose solver ended at these accelerations, and the equations that these solve.

    Its `Last` has no wrenches: cfrc_ext is computed where it is read. A Runge-Kutta step is written out.
    """
    solutions: list[Solved] = []

    def forward_at(
        qpos: list[Scalar], qvel: list[Scalar], warmstart: list[Scalar], act: list[Scalar], _: Scalar = 0.0
    ) -> Data:
        k = m.nv * len(solutions)
        d = Data(m, qpos=qpos, qvel=qvel, act=act, ctrl=ctrl, precision=precision, qacc_warmstart=warmstart, **pushes)
        solutions.append(_ended(m, d, ended[k : k + m.nv]))
        return d

    if m.integrator == "rk4":
        with unrolled():
            # the time of a stage matters only to delays, which have no derivatives
            *state, last = rk4(m, start.parts, forward_at, lambda d, seen: seen, [])
        qpos, qvel, act = state
        return State(qpos, qvel, last.qacc, act, replace(last, cfrc_ext=None)), solutions
    at, speed, warm, active = start.parts
    d = forward_at(at, speed, warm, active)
    qpos, qvel, act = euler(m, d)
    last = Last(d.act, None, d.qacc, d.qacc_solver, d.qpos, d.qvel, start.parts)
    return State(qpos, qvel, d.qacc, act, last), solutions
