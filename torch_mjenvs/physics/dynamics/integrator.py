"""From accelerations to the next state: Euler's method, implicit in joint damping, and fourth-order Runge-Kutta.

Letters: h time step, w angular velocity in the body's frame, K a position rate (a dof each), th a rotation vector.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ...compiler.arrays import Array, Table
from ...compiler.control import repeat, when_any
from ...compiler.implicit import follows
from ...compiler.scalar import Mask, Scalar, absolute, atan2, cos, logical_or, maximum, select, sin, sqrt
from ..algebra.spatial import (
    Vec,
    add,
    add_scaled,
    cross,
    dot,
    is_number,
    is_zero,
    normalize,
    quat_mul,
    quat_normalize,
    quat_sub,
    scale,
)
from ..model.data import Data
from ..model.enums import JointType
from ..model.model import Model
from ..model.state import Last
from .actuators.activation import advance, wrapping_setpoints
from .implicit import damped, implicit_acceleration
from .inertia import Matrix, Rows, plus
from .reflected import damped_by_actuators, dof_damping
from .springs import rate_at

# The classical tableau: every stage starts from the stage before it alone.
A = (0.0, 0.5, 0.5, 1.0)
B = (1 / 6, 1 / 3, 1 / 3, 1 / 6)
FIRST, LAST = (1.0, 0.0, 0.0, 0.0), (0.0, 0.0, 0.0, 1.0)

# (qpos, qvel, qacc_warmstart, act), and the number of steps since a step began, to the data of a stage.
Forward = Callable[[list[Scalar], list[Scalar], list[Scalar], list[Scalar], Scalar], Data]


def rotations(m: Model) -> list[tuple[int, int]]:
    """Return (address in qpos, address in qvel) of each joint's quaternion."""
    where = {JointType.FREE: 3, JointType.BALL: 0}
    return [
        (m.jnt_qposadr[j] + where[m.jnt_type[j]], m.jnt_dofadr[j] + where[m.jnt_type[j]])
        for j in range(m.njnt)
        if m.jnt_type[j] in where
    ]


def coordinates(m: Model) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Return (address in qpos, address in qvel) of each number that moves on a line, and of each quaternion."""
    quats = rotations(m)
    turning = {v + k for _, v in quats for k in range(3)}
    of_quats = {q + k for q, _ in quats for k in range(4)}
    moving = (v for v in range(m.nv) if v not in turning)
    return list(zip((q for q in range(m.nq) if q not in of_quats), moving, strict=True)), quats


def integrate_pos(m: Model, qpos: Vec, rate: Vec, h: Scalar) -> list[Scalar]:
    """Return qpos moved for the time h (seconds) at the given rate (nv). mj_integratePos."""
    out = list(qpos)
    lines, quats = coordinates(m)
    for q, v in lines:
        out[q] = qpos[q] + h * rate[v]
    for q, v in quats:
        out[q : q + 4] = quat_integrate(list(qpos[q : q + 4]), scale(rate[v : v + 3], h))
    return out


def position_change(m: Model, before: Vec, after: Vec) -> list[Scalar]:
    """Return the change of positions, a number for each dof; rotations are in the body's frame. mj_differentiatePos."""
    out: list[Scalar] = [0.0] * m.nv
    lines, quats = coordinates(m)
    for q, v in lines:
        out[v] = after[q] - before[q]
    for q, v in quats:
        out[v : v + 3] = quat_sub(quat_normalize(after[q : q + 4]), quat_normalize(before[q : q + 4]))
    return out


def quat_integrate(quat: Vec, th: Vec) -> list[Scalar]:
    """Return quat exp(th / 2) for a rotation vector th, after normalizing quat. mju_quatIntegrate."""

    def integrated() -> list[Scalar]:
        square = dot(th, th)
        small = square < 1e-12
        angle = sqrt(maximum(square, 1e-12))
        half = 0.5 * angle
        by = select(small, 0.5 - square * (1 / 48), sin(half) / angle)
        rotation = [select(small, 1.0 - square * (1 / 8), cos(half)), *scale(th, by)]
        return normalize(quat_mul(quat, rotation), rotation)

    return follows(integrated(), lambda: [*quat, *th], integrated)  # each column of a derivative then has only these 7


def shorter_way(th: list[Scalar]) -> list[Scalar]:
    """Return the rotation vector of at most half a turn that rotates as th does. mju_quat2Vel."""
    square = dot(th, th)

    def back(th: list[Scalar]) -> list[Scalar]:
        angle = sqrt(maximum(square, 1.0))
        s, c = sin(0.5 * angle), cos(0.5 * angle)
        half = atan2(select(c < 0.0, -s, s), absolute(c))
        return scale(th, 2.0 * half / angle)

    return when_any(square > math.pi**2, back, th)


def orientation_rate(w: Vec, th: Vec) -> list[Scalar]:
    """Return d th / dt for a rotation vector th and the body-frame velocity w.

    This is the inverse of the exponential map's derivative.

    K = w + 1/2 th x w + c th x (th x w), c = (1 - (a/2) cot(a/2)) / a**2, a = |th|.
    """

    def rate() -> list[Scalar]:
        square = dot(th, th)
        small = square < 1e-4
        angle = sqrt(maximum(square, 1e-4))
        half = 0.5 * angle
        exact = (1.0 - half * cos(half) / sin(half)) / maximum(square, 1e-4)
        c = select(small, 1 / 12 + square * (1 / 720 + square * (1 / 30240)), exact)
        across = cross(th, w)
        return add_scaled(add_scaled(w, across, 0.5), cross(th, across), c)

    return follows(rate(), lambda: [*w, *th], rate)


def _implicit_damping(m: Model) -> Mask:
    """Return in which worlds Euler's step takes joint damping implicitly; negative damping alone does not count.

    Damping that varies is negative only in models with negative damping of their own.
    """
    if not m.eulerdamp:
        return False
    if not all(is_zero(c) for row in m.dof_dampingpoly for c in row) or damped_by_actuators(m):
        return True
    if all(damping >= 0.0 for damping in (m.nominal or m).dof_damping) and not is_number(*m.dof_damping):
        return True
    return logical_or(*(damping > 0.0 for damping in m.dof_damping))


def euler_inertia(m: Model, d: Data) -> Matrix:
    """Return the matrix that Euler's step divides forces by: M, and what implicit joint damping adds to it."""
    damping = _euler_damping(m, d)
    undamped: Matrix = d.M
    return plus(undamped, damping) if damping else undamped


def _euler_damping(m: Model, d: Data) -> Rows:
    """Return what implicit joint damping adds to M; no rows where there is none."""
    implicit = _implicit_damping(m)
    if implicit is False:
        return []
    rates = [rate_at(*dof_damping(m, v), absolute(d.qvel[v])) for v in range(m.nv)]
    return [{v: m.timestep * select(implicit, rate, 0.0)} for v, rate in enumerate(rates)]


def _euler_acceleration(m: Model, d: Data) -> list[Scalar]:
    """Return the acceleration that changes velocities in an Euler step. mj_Euler."""
    damping = _euler_damping(m, d)
    return damped(m, d, damping) if damping else d.qacc


def euler(m: Model, d: Data) -> tuple[list[Scalar], list[Scalar], list[Scalar]]:
    """Return (qpos, qvel, act) after one step from d's accelerations. mj_Euler, mj_implicit."""
    h, qacc = m.timestep, _euler_acceleration(m, d) if m.integrator == "euler" else implicit_acceleration(m, d)
    qvel = [v + h * a for v, a in zip(d.qvel, qacc, strict=True)]
    return integrate_pos(m, d.qpos, qvel, h), qvel, advance(m, d.act, d.act_dot, _lengths(m, d))


def _lengths(m: Model, d: Data) -> dict[int, Scalar]:
    return {i: d.actuator_length[i] for i in wrapping_setpoints(m)}


def rk4(
    m: Model,
    start: list[list[Scalar]],
    forward: Forward,
    observe: Callable[[Data, list[list[Scalar]]], list[list[Scalar]]],
    cfrc_ext: list[list[Scalar]],
    ended: Array | None = None,
) -> tuple[list[Scalar], list[Scalar], list[Scalar], Last]:
    """Return (qpos, qvel, act) after one Runge-Kutta step from `start`, and the data of its last stage. mj_RungeKutta.

    start: (qpos, qvel, qacc_warmstart, act). `forward`, called with the same four and the number of steps since the
    step began, gives the data of a stage. Each stage's acceleration is the next one's warm start: the minimum does not
    depend on it. Set points are held to the turn nearest to the lengths of the first stage. `observe(data, cfrc_ext)`
    gives the wrenches of the last stage. ended: the rows (4, nv) where the solver's accelerations are to be left.
    Quaternions follow the rule of MuJoCo 4.0.
    """

    def stage(i: Scalar, carry: dict[str, Any]) -> dict[str, Any]:
        new, d = rk4_stage(m, start, forward, i, carry)
        if ended is not None:
            ended.put(i, d.qacc_solver)
        seen = carry["observed"]
        return new | {"observed": when_any(Table(LAST)[i] > 0.5, lambda seen: observe(d, seen), seen)}

    carry = rk4_begun(m, start) | {"observed": cfrc_ext}
    if m.noslip_iterations:
        carry["qacc_solver"] = list(start[2])
    last = repeat(4, stage, carry, [] if ended is None else [ended])
    solved = last["qacc_solver" if m.noslip_iterations else "qacc"]
    return (
        *rk4_ended(m, start, last),
        Last(last["act"], last["observed"], last["qaccs"], solved, last["qpos"], last["qvel"], start),
    )


def rk4_begun(m: Model, start: list[list[Scalar]]) -> dict[str, Any]:
    """Return what the first stage of a Runge-Kutta step from `start` finds: see `rk4_stage`."""
    qpos, qvel, warmstart, act = start
    return {
        "rate": list(qvel), "qacc": list(warmstart), "rates": [0.0] * m.nv, "qaccs": [0.0] * m.nv,
        "qpos": list(qpos), "qvel": list(qvel), "act": list(act), "act_dot": [0.0] * m.na, "act_dots": [0.0] * m.na,
        "lengths": dict.fromkeys(wrapping_setpoints(m), 0.0),
    }  # fmt: skip


def rk4_stage(
    m: Model, start: list[list[Scalar]], forward: Forward, i: Scalar, before: dict[str, Any]
) -> tuple[dict[str, Any], Data]:
    """Return what stage i of a Runge-Kutta step leaves to the next, and its data.

    rate, qacc, act_dot: the rates of positions, velocities and activations at the stage before, from which this one
    starts; rates, qaccs, act_dots: their sums so far, with the weights of stages. qpos, qvel, act: where the stage
    before was. lengths: those of the first stage to which set points are held.
    """
    qpos, qvel, _, act = start
    h = m.timestep
    a, b, first = Table(A)[i], Table(B)[i], Table(FIRST)[i] > 0.5
    at = integrate_pos(m, qpos, before["rate"], h * a)
    speed = [v + (h * a) * x for v, x in zip(qvel, before["qacc"], strict=True)]
    active = add_scaled(act, before["act_dot"], h * a)
    d = forward(at, speed, before["qacc"], active, a)
    rate = list(speed)
    for _, v in rotations(m):
        th = scale(before["rate"][v : v + 3], h * a)
        rate[v : v + 3] = orientation_rate(speed[v : v + 3], shorter_way(th))
    return {
        "rate": rate,
        "qacc": d.qacc,
        "rates": add(before["rates"], scale(rate, b)),
        "qaccs": add(before["qaccs"], scale(d.qacc, b)),
        **({"qacc_solver": d.qacc_solver} if m.noslip_iterations else {}),
        "qpos": at,
        "qvel": speed,
        "act": active,
        "act_dot": d.act_dot,
        "act_dots": add(before["act_dots"], scale(d.act_dot, b)),
        "lengths": {k: select(first, x, before["lengths"][k]) for k, x in _lengths(m, d).items()},
    }, d


def rk4_ended(
    m: Model, start: list[list[Scalar]], last: dict[str, Any]
) -> tuple[list[Scalar], list[Scalar], list[Scalar]]:
    """Return (qpos, qvel, act) after a Runge-Kutta step from `start` whose last stage left this: see `rk4_stage`."""
    qpos, qvel, _, act = start
    h = m.timestep
    return (
        integrate_pos(m, qpos, last["rates"], h),
        [v + h * x for v, x in zip(qvel, last["qaccs"], strict=True)],
        advance(m, act, last["act_dots"], last["lengths"]),
    )
