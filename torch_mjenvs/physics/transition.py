"""A step as a function, and its adjoint: gradients by state, controls, activations and parameters, in reverse mode.

The adjoint starts from where the solver ended, at each evaluation of the step, and computes all else again: the solver
is not run. See `compiler.adjoints`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch

from ..compiler.adjoints import Adjoints, Solved
from ..compiler.control import unrolled
from ..compiler.expr import fresh
from ..compiler.scalar import Scalar
from .dynamics.integrator import euler, rk4
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
    ended: list[Scalar] = []

    def forward_at(qpos: list[Scalar], qvel: list[Scalar], warmstart: list[Scalar], act: list[Scalar]) -> Data:
        d = Data(m, qpos=qpos, qvel=qvel, act=act, ctrl=ctrl, qacc_warmstart=warmstart, precision=precision, **pushes)
        forward(d)
        ended.extend(d.qacc_solver)
        return d

    after = _stepped(m, start, forward_at)
    return [after.qpos, after.qvel, after.act], ended


def adjoint(
    m: Model,
    start: State,
    ctrl: list[Scalar],
    params: list[Scalar],
    ended: list[Scalar],
    bars: Sequence[Sequence[Scalar]],
    precision: Precision,
    **pushes: Any,
) -> dict[str, list[Scalar]]:
    """Return the adjoints of qpos, qvel, act, ctrl and params, by those of (qpos, qvel, act) after the step.

    params: the parameters that the model is made of. ended: as `transition` gives it.
    """
    after, solutions = ended_at(m, start, ctrl, ended, precision, **pushes)
    given = {"qpos": start.qpos, "qvel": start.qvel, "act": start.act, "ctrl": ctrl, "params": params}
    state = (after.qpos, after.qvel, after.act)
    roots = [pair for xs, ys in zip(state, bars, strict=True) for pair in zip(xs, ys, strict=True)]
    inputs: list[Any] = [x for xs in given.values() for x in xs]
    found = iter(Adjoints(inputs, solutions).of(roots))
    return {name: [next(found) for _ in xs] for name, xs in given.items()}


def ended_at(
    m: Model, start: State, ctrl: list[Scalar], ended: list[Scalar], precision: Precision, **pushes: Any
) -> tuple[State, list[Solved]]:
    """Return the state after a step whose solver ended at these accelerations, and the equations that these solve.

    Its `Last` has no wrenches: cfrc_ext is computed where it is read.
    """
    solutions: list[Solved] = []

    def forward_at(qpos: list[Scalar], qvel: list[Scalar], warmstart: list[Scalar], act: list[Scalar]) -> Data:
        k = m.nv * len(solutions)
        d = Data(m, qpos=qpos, qvel=qvel, act=act, ctrl=ctrl, precision=precision, qacc_warmstart=warmstart, **pushes)
        gradient, solve = optimum(m, d, ended[k : k + m.nv])
        values: list[Any] = [fresh("add", x, 0.0) for x in ended[k : k + m.nv]]  # of which the residual is not made
        solutions.append(Solved(values, gradient, solve))
        d.qacc_solver, d.qacc, d.slips = values, values, []
        return d

    return _stepped(m, start, forward_at), solutions


def _stepped(m: Model, start: State, forward_at: Any) -> State:
    if m.integrator == "rk4":
        with unrolled():
            # when a stage is matters to delays alone, of which there are no derivatives
            *state, last = rk4(m, start.parts, lambda *at: forward_at(*at[:4]), lambda d, seen: seen, [])
        qpos, qvel, act = state
        return State(qpos, qvel, last.qacc, act, replace(last, cfrc_ext=None))
    d = forward_at(*start.parts)
    qpos, qvel, act = euler(m, d)
    return State(qpos, qvel, d.qacc, act, Last(d.act, None, d.qacc, d.qacc_solver, d.qpos, d.qvel, start.parts))
