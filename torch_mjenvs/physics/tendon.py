"""Lengths of tendons and how fast they change: mj_tendon. They are measured; those that act are refused."""

from __future__ import annotations

from ..compiler.scalar import Scalar
from .data import Data, stage
from .kinematics import between
from .model import WRAP_CYLINDER, WRAP_JOINT, WRAP_PULLEY, WRAP_SITE, WRAP_SPHERE, Model, UnsupportedModel
from .spatial import add, cross, dot, norm, normalize, sub


@stage(reads="qpos qvel origin frame ovel", computes="ten_length ten_velocity")
def tendon(m: Model, d: Data) -> None:
    """mj_tendon. Raises `UnsupportedModel` where a tendon wraps round a geom."""
    d.ten_length, d.ten_velocity = [0.0] * m.ntendon, [0.0] * m.ntendon
    for t in range(m.ntendon):
        share: Scalar = 1.0  # of what lies behind a pulley
        for w in range(m.tendon_adr[t], m.tendon_adr[t] + m.tendon_num[t]):
            kind, at, prm = m.wrap_type[w], m.wrap_objid[w], m.wrap_prm[w]
            if kind == WRAP_JOINT:
                d.ten_length[t] = d.ten_length[t] + prm * d.qpos[m.jnt_qposadr[at]]
                d.ten_velocity[t] = d.ten_velocity[t] + prm * d.qvel[m.jnt_dofadr[at]]
            elif kind == WRAP_PULLEY:
                share = 1.0 / prm
            elif kind in (WRAP_SPHERE, WRAP_CYLINDER):
                raise UnsupportedModel(
                    f"ten_length and ten_velocity of tendon {m.tendon_names[t]!r}, which wraps round a geom, are not "
                    "supported: lead it from site to site, or do not ask for them"
                )
            elif w + 1 < m.tendon_adr[t] + m.tendon_num[t] and m.wrap_type[w + 1] == WRAP_SITE:
                length, velocity = _straight(m, d, at, m.wrap_objid[w + 1])
                d.ten_length[t] = d.ten_length[t] + length * share
                d.ten_velocity[t] = d.ten_velocity[t] + velocity * share


def _straight(m: Model, d: Data, site1: int, site2: int) -> tuple[Scalar, Scalar]:
    """The distance of two sites and its rate."""
    body1, body2 = m.site_bodyid[site1], m.site_bodyid[site2]
    if body1 == body2:  # a constant
        return norm(sub(m.site_pos[site2], m.site_pos[site1])), 0.0
    p1, p2 = (d.frame[body].point(m.site_pos[site]) for body, site in ((body1, site1), (body2, site2)))
    v1, v2 = (add(d.ovel[body][3:], cross(d.ovel[body][:3], p)) for body, p in ((body1, p1), (body2, p2)))
    apart = sub(add(p2, between(d, m.body_originid[body1], m.body_originid[body2])), p1)
    return norm(apart), dot(normalize(apart, [1.0, 0.0, 0.0]), sub(v2, v1))
