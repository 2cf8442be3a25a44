"""The integrators `implicit` and `implicitfast`. mj_implicit.

They solve (M - h D) a = forces, where D is the derivative of smooth forces by velocities.

`implicitfast` leaves out the rates of bias forces, so that D is symmetric, except for a free body alone in its tree.
As in MuJoCo, D has entries only where one of two dofs moves the other: what tendons and actuators couple beyond that
is dropped, and `implicitfast` keeps only the entries that M has, too.

i j k rows and columns
"""

from __future__ import annotations

from collections.abc import Sequence

from ...compiler.implicit import follows, held
from ...compiler.scalar import Scalar, absolute
from ..algebra.sparse import Row
from ..algebra.spatial import add, is_zero, sub
from ..model.data import Data
from ..model.enums import JointType
from ..model.model import Model, dof_chain
from .actuators.actuation import force_rate
from .fluid import fluid_damping, fluid_twist, slows_implicitly
from .inertia import Factor, Rows, columns_of, factor, mul_m, plus, solve
from .reflected import dof_damping, tendon_damping
from .springs import rate_at
from .tendons.tendon import springy_tendons
from .velocity import bias_rates


def implicit_acceleration(m: Model, d: Data) -> list[Scalar]:
    """Return the acceleration that changes velocities in an implicit step, from d's accelerations. mj_implicit."""
    h, force = m.timestep, mul_m(d.M, d.qacc)
    out: list[Scalar] = d.qacc
    damping = _damping(m, d)
    general = range(m.nv) if m.integrator == "implicit" else _lone_dofs(m)
    if any(damping) and len(general) < m.nv:
        kept = [{j: h * row[j] for j in own if j in row} for row, own in zip(damping, columns_of(d.M), strict=True)]
        out = damped(m, d, kept)
    if general:
        unsymmetric = _solve_general(_general(m, d, damping, general), force)
        out = [unsymmetric.get(i, x) for i, x in enumerate(out)]
    return out


def damped(m: Model, d: Data, damping: Rows) -> list[Scalar]:
    """Return the acceleration that d's forces give if `damping`, symmetric and with M's entries, is added to M.

    For derivatives the result is qacc - y, where (M + damping) y = damping qacc: this equation is differentiated, not
    the factorization.
    """
    factors = factor(plus(d.M, damping), m.dof_clamped)
    found = solve(factors, mul_m(d.M, d.qacc))
    if not isinstance(factors, Factor):
        return found

    def formula() -> list[Scalar]:
        y = [held(x) for x in solve(factors, mul_m(damping, d.qacc))]
        amiss = add(mul_m(d.M, y), mul_m(damping, sub(y, d.qacc)))  # 0, up to rounding
        fixed = Factor([{j: held(x) for j, x in row.items()} for row in factors.L], list(map(held, factors.inverse)))
        return sub(d.qacc, sub(y, solve(fixed, amiss)))

    return follows(found, lambda: [*d.qpos, *d.qvel, *d.qacc], formula)


def _lone_dofs(m: Model) -> list[int]:
    """Return the dofs of free bodies that carry no other body. mj_isFreeBody."""
    first = [v for j, v in enumerate(m.jnt_dofadr) if m.jnt_type[j] == JointType.FREE and v + 5 not in m.dof_parentid]
    return [v + k for v in first for k in range(6)]


def _damping(m: Model, d: Data) -> Rows:
    """Return the lower triangle of -d (qfrc_actuator + qfrc_passive) / d qvel. mjd_actuator_vel, mjd_passive_vel."""
    rows = fluid_damping(m, d) if slows_implicitly(m) else [{} for _ in range(m.nv)]
    for v in range(m.nv):
        _add_square(m, rows, {v: 1.0}, rate_at(*dof_damping(m, v), absolute(d.qvel[v])))
    for t in springy_tendons(m):
        rate = rate_at(*tendon_damping(m, t), absolute(d.ten_velocity[t]))
        _add_square(m, rows, d.ten_J[t], rate)
    for i, moment in enumerate(d.actuator_moment):
        _add_square(m, rows, moment, -force_rate(m, d, i))
    return rows


def _add_square(m: Model, rows: Rows, row: Row, weight: Scalar) -> None:
    """Add weight row' row to `rows` at the entries where one dof moves the other."""
    if is_zero(weight):
        return
    for i, x in row.items():
        for j in dof_chain(m, i):
            if j in row:
                rows[i][j] = rows[i].get(j, 0.0) + x * row[j] * weight


def _general(m: Model, d: Data, damping: Rows, dofs: Sequence[int]) -> dict[int, Row]:
    """Return the rows and columns of M - h D for these dofs, by dof."""
    rates, out = bias_rates(m, d, dofs), {i: dict[int, Scalar]() for i in dofs}
    twist = fluid_twist(m, d) if slows_implicitly(m) else [{} for _ in range(m.nv)]
    for i in dofs:
        for j in dof_chain(m, i):
            both = d.M[i].get(j, 0.0) + m.timestep * damping[i].get(j, 0.0)
            aside = twist[i].get(j, 0.0)
            out[i][j] = both + m.timestep * (rates[i].get(j, 0.0) - aside)
            out[j][i] = both + m.timestep * (rates[j].get(i, 0.0) + aside)
    return out


def _solve_general(rows: dict[int, Row], b: Sequence[Scalar]) -> dict[int, Scalar]:
    """Solve A x = b, where A has entries only where one dof moves the other. mju_factorLUSparse, mju_solveLUSparse."""
    a = {i: {j: e for j, e in row.items() if i == j or not is_zero(e)} for i, row in rows.items()}
    rest, inverse, x = {i: b[i] for i in a}, dict[int, Scalar](), dict[int, Scalar]()
    for k in sorted(a, reverse=True):
        inverse[k] = 1.0 / a[k][k]
        above = [i for i in a if i < k and k in a[i]]
        for i in above:
            share = a[i][k] * inverse[k]
            rest[i] = rest[i] - share * rest[k]
            for j, entry in a[k].items():
                if j < k:
                    a[i][j] = a[i].get(j, 0.0) - share * entry
    for k in sorted(a):
        for j, entry in a[k].items():
            if j < k:
                rest[k] = rest[k] - entry * x[j]
        x[k] = rest[k] * inverse[k]
    return x
