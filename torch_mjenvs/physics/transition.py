"""A step as a function, and its adjoint: gradients by state, controls, activations and parameters, in reverse mode.

The adjoint starts from where the solver ended, at each evaluation of the step, and computes all else again: the solver
is not run. See `compiler.adjoints`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
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


def adjoint(
    model: Callable[[list[Scalar], list[Scalar]], Model],
    start: State,
    ctrl: list[Scalar],
    params: list[Scalar],
    derived: list[Scalar],
    ended: list[Scalar],
    bars: Sequence[list[Scalar]],
    precision: Precision,
    **pushes: Any,
) -> dict[str, list[Scalar]]:
    """Return the adjoints of qpos, qvel, act, ctrl and params, by those of (qpos, qvel, act) after the step.

    model: makes the model of parameters and of what is derived from them. ended: as `transition` gives it.
    """
    m = model(params, derived)
    if m.integrator == "rk4":
        return _adjoint_of_rk4(m, model, start, ctrl, params, derived, ended, bars, precision, **pushes)
    after, solutions = ended_at(m, start, ctrl, ended, precision, **pushes)
    given = {"qpos": start.qpos, "qvel": start.qvel, "act": start.act, "ctrl": ctrl, "params": params}
    return _pulled(given, [after.qpos, after.qvel, after.act], bars, solutions)


def _pulled(
    given: dict[str, list[Scalar]],
    values: Sequence[list[Scalar]],
    bars: Sequence[list[Scalar]],
    solutions: Sequence[Solved] = (),
) -> dict[str, list[Scalar]]:
    """Return the adjoints of what is given by name, by those of what was made of it in the present region."""
    roots = [pair for xs, ys in zip(values, bars, strict=True) for pair in zip(xs, ys, strict=True)]
    inputs: list[Any] = [x for xs in given.values() for x in xs]
    found = iter(Adjoints(inputs, solutions).of(roots))
    return {name: [next(found) for _ in xs] for name, xs in given.items()}


def _own(xs: list[Scalar]) -> list[Scalar]:
    """Return the same numbers as nodes of the present region, by which there can be adjoints in it."""
    return [fresh("add", x, 0.0) for x in xs]


def _adjoint_of_rk4(
    m: Model,
    model: Callable[[list[Scalar], list[Scalar]], Model],
    start: State,
    ctrl: list[Scalar],
    params: list[Scalar],
    derived: list[Scalar],
    ended: list[Scalar],
    bars: Sequence[list[Scalar]],
    precision: Precision,
    **pushes: Any,
) -> dict[str, list[Scalar]]:
    """Return what `adjoint` does, by one loop over the stages, and one back, whose code is that of one evaluation."""
    n, nv = evaluations(m), m.nv
    solved = Array([ended[nv * i : nv * (i + 1)] for i in range(n)])
    began = Array(rows=n, columns=2 * nv + m.na)  # what each stage starts from: rate, qacc, act_dot

    def there(i: Any, carry: dict[str, Any]) -> dict[str, Any]:
        began.put(i, [*carry["rate"], *carry["qacc"], *carry["act_dot"]])

        def known(qpos: Any, qvel: Any, warmstart: Any, act: Any, _: Scalar) -> Data:
            d = Data(m, qpos=qpos, qvel=qvel, act=act, ctrl=ctrl, precision=precision, **pushes)
            d.qacc_solver = d.qacc = solved[i]
            return d

        return rk4_stage(m, start.parts, known, i, carry)[0]

    last = repeat(n, there, rk4_begun(m, start.parts), [began])
    state = {"qpos": start.qpos, "qvel": start.qvel, "act": start.act}
    at_end = {name: _own(x) for name, x in state.items()}
    sums = {name: _own(last[name]) for name in ("rates", "qaccs", "act_dots")}
    lengths = dict(zip(last["lengths"], _own([*last["lengths"].values()]), strict=True))
    end = rk4_ended(m, [at_end["qpos"], at_end["qvel"], [], at_end["act"]], {**sums, "lengths": lengths})
    of_end = _pulled(at_end | sums | {"lengths": [*lengths.values()]}, end, bars)

    def back(k: Any, carry: dict[str, Any]) -> dict[str, Any]:
        i = Table([*reversed(range(n))])[k]
        row = began[i]
        before = {"rate": row[:nv], "qacc": row[nv : 2 * nv], "act_dot": row[2 * nv :]}
        given = state | before | {"ctrl": ctrl, "params": params, "derived": derived}
        own = {name: _own(x) for name, x in given.items()}
        world = model(own["params"], own["derived"])
        solutions: list[Solved] = []

        def forward_at(qpos: Any, qvel: Any, warmstart: Any, act: Any, _: Scalar) -> Data:
            d = Data(world, qpos=qpos, qvel=qvel, act=act, ctrl=own["ctrl"], precision=precision, **pushes)
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

    names = {"rate": nv, "qacc": nv, "act_dot": m.na, "ctrl": len(ctrl), "params": len(params), "derived": len(derived)}
    nothing = {name: [0.0] * size for name, size in names.items()}
    found = repeat(n, back, {name: of_end[name] for name in state} | nothing)
    found["qvel"] = add(found["qvel"], found["rate"])  # the first stage starts at this rate
    if derived:
        of_params = _pulled({"params": params}, [derived], [found["derived"]])["params"]
        found["params"] = add(found["params"], of_params)
    return {name: found[name] for name in (*state, "ctrl", "params")}


def _ended(m: Model, d: Data, ended: list[Scalar]) -> Solved:
    """Have d's solver have ended at these accelerations, and return the equations that they solve."""
    gradient, solve = optimum(m, d, ended)
    values: list[Any] = _own(ended)  # of which the residual is not made
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
            # when a stage is matters to delays alone, of which there are no derivatives
            *state, last = rk4(m, start.parts, forward_at, lambda d, seen: seen, [])
        qpos, qvel, act = state
        return State(qpos, qvel, last.qacc, act, replace(last, cfrc_ext=None)), solutions
    at, speed, warm, active = start.parts
    d = forward_at(at, speed, warm, active)
    qpos, qvel, act = euler(m, d)
    last = Last(d.act, None, d.qacc, d.qacc_solver, d.qpos, d.qvel, start.parts)
    return State(qpos, qvel, d.qacc, act, last), solutions
