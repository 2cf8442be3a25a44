"""Tendons: their lengths, how fast these change, and the forces of their springs and dampers. mj_tendon.

A tendon's row is the rate of its length by each dof: it gives the velocity, and takes a force along the tendon to the
dofs. A force that is positive makes the tendon longer.
"""

from __future__ import annotations

from ..compiler.scalar import Scalar, maximum
from .data import Data, stage
from .kinematics import between
from .model import WRAP_CYLINDER, WRAP_JOINT, WRAP_PULLEY, WRAP_SITE, WRAP_SPHERE, Model, UnsupportedModel, dofs_of
from .spatial import Vec, add, cross, dot, is_zero, norm, normalize, scale, sub, zeros

Row = dict[int, Scalar]  # {dof: entry}


@stage(reads="qpos qvel origin frame odof", computes="ten_length ten_velocity ten_J ten_wrench ten_force")
def tendon(m: Model, d: Data) -> None:
    """mj_tendon. Raises `UnsupportedModel` where a tendon wraps round a geom."""
    d.ten_length, d.ten_velocity = [0.0] * m.ntendon, [0.0] * m.ntendon
    d.ten_J, d.ten_wrench = ([{} for _ in range(m.ntendon)] for _ in range(2))
    for t in range(m.ntendon):
        share: Scalar = 1.0  # of what lies behind a pulley
        for w in range(m.tendon_adr[t], m.tendon_adr[t] + m.tendon_num[t]):
            kind, at, prm = m.wrap_type[w], m.wrap_objid[w], m.wrap_prm[w]
            if kind == WRAP_JOINT:
                d.ten_length[t] = d.ten_length[t] + prm * d.qpos[m.jnt_qposadr[at]]
                _add(d.ten_J[t], {m.jnt_dofadr[at]: prm}, 1.0)
            elif kind == WRAP_PULLEY:
                share = 1.0 / prm
            elif kind in (WRAP_SPHERE, WRAP_CYLINDER):
                raise UnsupportedModel(
                    f"ten_length and ten_velocity of tendon {m.tendon_names[t]!r}, which wraps round a geom, are not "
                    "supported: lead it from site to site, or do not ask for them"
                )
            elif w + 1 < m.tendon_adr[t] + m.tendon_num[t] and m.wrap_type[w + 1] == WRAP_SITE:
                _straight(m, d, t, at, m.wrap_objid[w + 1], share)
        d.ten_velocity[t] = row_times(d.ten_J[t], d.qvel)
    d.ten_force = [0.0] * m.ntendon
    for t in springy_tendons(m):
        d.ten_force[t] = _own_force(m, d, t)


def springy_tendons(m: Model) -> list[int]:
    """The tendons with a spring or a damper."""
    both = zip(m.tendon_stiffness, m.tendon_damping, strict=True)
    return [t for t, (spring, damper) in enumerate(both) if not (is_zero(spring) and is_zero(damper))]


def _own_force(m: Model, d: Data, t: int) -> Scalar:
    """Of its spring, which is slack between two lengths, and of its damper."""
    low, high = m.tendon_lengthspring[t]
    stretch = maximum(d.ten_length[t] - high, 0.0) - maximum(low - d.ten_length[t], 0.0)
    return -(stretch * m.tendon_stiffness[t]) - d.ten_velocity[t] * m.tendon_damping[t]


def row_times(row: Row, x: Vec) -> Scalar:
    """The product of a sparse row and a vector."""
    total: Scalar = 0.0
    for v, entry in row.items():
        total = total + entry * x[v]
    return total


def _add(total: Row, row: Row, share: Scalar) -> None:
    for v, entry in row.items():
        total[v] = total.get(v, 0.0) + entry * share


def _straight(m: Model, d: Data, t: int, site1: int, site2: int, share: Scalar) -> None:
    """Add the piece of tendon t between two sites."""
    body1, body2 = m.site_bodyid[site1], m.site_bodyid[site2]
    if body1 == body2:  # a constant
        d.ten_length[t] = d.ten_length[t] + norm(sub(m.site_pos[site2], m.site_pos[site1])) * share
        return
    p1, p2 = (d.frame[body].point(m.site_pos[site]) for body, site in ((body1, site1), (body2, site2)))
    apart = sub(add(p2, between(d, m.body_originid[body1], m.body_originid[body2])), p1)
    along = normalize(apart, [1.0, 0.0, 0.0])
    d.ten_length[t] = d.ten_length[t] + norm(apart) * share
    _add(d.ten_J[t], difference_row(m, d, (body1, p1), (body2, p2), along), share)
    for body, point, sign in ((body1, p1, -share), (body2, p2, share)):
        wrench = scale([*cross(point, along), *along], sign)
        d.ten_wrench[t][body] = add(d.ten_wrench[t].get(body, zeros(6)), wrench)


def difference_row(m: Model, d: Data, one: tuple[int, Vec], two: tuple[int, Vec], along: Vec) -> Row:
    """How fast a point of a body moves away from a point of another, along a direction, by each dof.

    Points are from the origins of their trees. What moves both bodies has no entry: it turns the direction with them.
    """
    dofs1, dofs2 = dofs_of(m, one[0]), dofs_of(m, two[0])
    row = {v: _rate(d.odof[v], two[1], along) for v in dofs2 if v not in dofs1}
    return row | {v: -_rate(d.odof[v], one[1], along) for v in dofs1 if v not in dofs2}


def _rate(motion: Vec, point: Vec, along: Vec) -> Scalar:
    return dot(motion, [*cross(point, along), *along])
