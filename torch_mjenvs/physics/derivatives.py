"""Derivatives of a step by the state, the controls and the parameters it starts from: mjd_transitionFD, but exact.

The step is recorded as usual, and its derivatives next to it, in forward mode (`compiler.derivatives`). The solver's
search is not differentiated: the derivative of its solution follows from the equation that it solves.

Where positions are quaternions, their changes are rotation vectors in the body's frame: tangents, of which there are as
many as velocities. Rows and columns are in MuJoCo's order: positions (nv), velocities (nv), activations (na).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch

from ..compiler.derivative_rules import Tangent
from ..compiler.derivatives import NotDifferentiable, Tangents
from ..compiler.expr import Expr
from ..compiler.scalar import Scalar
from .algebra.spatial import Vec, dot, quat_directions
from .collision.shapes import SHAPES
from .dynamics.integrator import coordinates
from .model.model import Model, Pair, UnsupportedModel


class Linearization(NamedTuple):
    """The derivatives of a step and of what it gives: dx' = A dx + B du + P dp and dy = C dx + D du.

    x is (positions as tangents, velocities, activations), u the controls, p the parameters and y the outputs that were
    asked for, each flat and one after the other; n = 2 nv + na.

    Shapes are A (..., n, n), B (..., n, nu), P (..., n, np), C (..., ny, n) and D (..., ny, nu). Without parameters np
    is 0, without outputs ny is 0.
    """

    A: torch.Tensor
    B: torch.Tensor
    P: torch.Tensor
    C: torch.Tensor
    D: torch.Tensor


def seeds(m: Model, qpos: Vec, qvel: Vec, act: Vec, ctrl: Vec, params: Vec = ()) -> dict[Expr, Tangent]:
    """Return the tangents of a state, controls and parameters with respect to themselves, by column of (A, B, P)."""
    found: dict[Any, Tangent] = {}
    linear, quats = coordinates(m)
    for q, v in linear:
        found[qpos[q]] = {v: 1.0}
    for q, v in quats:  # d quat = quat (0, th) / 2 for a small rotation vector th in the body's frame
        half = [[0.5 * x for x in row] for row in quat_directions(qpos[q : q + 4])]
        for k in range(4):
            found[qpos[q + k]] = {v + axis: half[axis][k] for axis in range(3)}
    for k, x in enumerate((*qvel, *act, *ctrl, *params)):
        found[x] = {m.nv + k: 1.0}
    return found


def jacobian(
    m: Model, at: dict[Expr, Tangent], state: tuple[Vec, Vec, Vec], outputs: Vec = ()
) -> dict[str, list[list[Scalar]]]:
    """Return the matrices of `Linearization`, row by row, of a state and outputs.

    at: the `seeds` of the values from which these were computed. state: (qpos, qvel, act).
    """
    qpos, qvel, act = state
    tangents = Tangents(at)
    of_pos = tangents.of(qpos)
    rows: list[Tangent] = [{} for _ in range(m.nv)] + tangents.of([*qvel, *act])
    linear, quats = coordinates(m)
    for q, v in linear:
        rows[v] = of_pos[q]
    for q, v in quats:  # th = 2 (conjugate of quat) d quat
        twice = [[2.0 * x for x in row] for row in quat_directions(qpos[q : q + 4])]
        for column in dict.fromkeys(column for tangent in of_pos[q : q + 4] for column in tangent):
            change = [tangent.get(column, 0.0) for tangent in of_pos[q : q + 4]]
            for axis in range(3):
                rows[v + axis][column] = dot(twice[axis], change)
    n = 2 * m.nv + m.na
    width = len(dict.fromkeys(column for tangent in at.values() for column in tangent))
    states, controls, params = range(n), range(n, n + m.nu), range(n + m.nu, width)
    of_outputs = tangents.of(outputs)

    def matrix(rows: list[Tangent], columns: range) -> list[list[Scalar]]:
        return [[row.get(column, 0.0) for column in columns] for row in rows]

    return {
        "A": matrix(rows, states), "B": matrix(rows, controls), "P": matrix(rows, params),
        "C": matrix(of_outputs, states), "D": matrix(of_outputs, controls),
    }  # fmt: skip


def along(given: Mapping[str, Vec], dots: Mapping[str, Vec], state: Sequence[Vec]) -> list[list[Scalar]]:
    """Return the tangents of the parts of a state, from the tangents `dots` of the values `given` that it depends on.

    given, dots: vectors by name.
    """
    at: dict[Any, Tangent] = {x: {0: dot} for name in given for x, dot in zip(given[name], dots[name], strict=True)}
    tangents = Tangents(at)
    return [[tangent.get(0, 0.0) for tangent in tangents.of(part)] for part in state]


def refuse(m: Model) -> None:
    """Raise UnsupportedModel for a feature of the model that has no derivatives, or none yet; the message names it."""
    if not m.nv:
        raise UnsupportedModel(f"{_CANNOT}no degrees of freedom: nothing in it moves")
    if m.noslip_iterations:
        raise UnsupportedModel(f"{_CANNOT}noslip_iterations={m.noslip_iterations}: {_NOT_YET}; set it to 0")
    if m.history0:
        raise UnsupportedModel(f"{_CANNOT}delays of actuators or sensors: {_NOT_YET}; set delay and interval to 0")
    if m.kept0:
        raise UnsupportedModel(f"{_CANNOT}springs that yield: {_NOT_YET}; set springyield to 0")


def refused(m: Model, why: NotDifferentiable) -> UnsupportedModel:
    """Return the error for a feature that `refuse` did not find, but the differentiation of the graph did."""
    kinds = ", ".join(dict.fromkeys(_kind(m, pair) for pair in m.pairs))
    has = [f"contacts of {kinds}"] * bool(kinds)
    has += [f"matrices of {m.nv} dofs"] * (m.nv > 30 or not has)  # which may be in tiles
    return UnsupportedModel(f"there are no derivatives of this model: {why}. This is about its {', or '.join(has)}")


_CANNOT = "there are no derivatives of a model with "
_NOT_YET = "their derivatives are not there yet"


def _kind(m: Model, pair: Pair) -> str:
    one, two = (SHAPES[m.geom_type[g]] for g in (pair.geom1, pair.geom2))
    return f"{one.plural} with {two.plural}"


def chained(steps: Sequence[Linearization]) -> Linearization:
    """Return the derivatives of several steps in a row, under the same controls; outputs are of the last one."""
    A, B, P, C, D = steps[0]
    for step in steps[1:]:
        C, D = step.C @ A, step.C @ B + step.D
        A, B, P = step.A @ A, step.A @ B + step.B, step.A @ P + step.P
    return Linearization(A, B, P, C, D)
