"""Lengths of tendons, their velocities and Jacobians, and the forces of their springs and dampers. mj_tendon.

A tendon's row is the rate of its length by each dof: it gives the velocity, and takes a force along the tendon to the
dofs. A force that is positive makes the tendon longer. `wrapping` is how it goes round geoms.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ....compiler.control import when_any
from ....compiler.scalar import Mask, Scalar, absolute, maximum
from ...algebra.sparse import Row, row_times
from ...algebra.spatial import (
    MINVAL,
    Vec,
    add,
    cross,
    dot,
    is_zero,
    mat_vec,
    norm,
    normalize,
    scale,
    sub,
    sum_of,
    transpose,
    zeros,
)
from ...model.data import Data, stage
from ...model.enums import EqType, GeomType, WrapType
from ...model.model import Model, dofs_of
from ..kinematics import between
from ..reflected import tendon_armature, tendon_damping
from ..springs import acts, plastic_of, stiffness_at
from .wrapping import wrap


@stage(reads="qpos origin frame odof geom_xrel geom_xmat", computes="ten_length ten_J ten_wrench")
def tendon(m: Model, d: Data) -> None:
    """Compute the length and Jacobian of each tendon. mj_tendon."""
    d.ten_length = [0.0] * m.ntendon
    d.ten_J, d.ten_wrench = ([{} for _ in range(m.ntendon)] for _ in range(2))
    for t in range(m.ntendon):
        for w in range(m.tendon_adr[t], m.tendon_adr[t] + m.tendon_num[t]):
            if m.wrap_type[w] == WrapType.JOINT:
                j, prm = m.wrap_objid[w], m.wrap_prm[w]
                d.ten_length[t] = d.ten_length[t] + prm * d.qpos[m.jnt_qposadr[j]]
                _add(d.ten_J[t], {m.jnt_dofadr[j]: prm}, 1.0)
        for share, w in parts(m, t):
            site, after = m.wrap_objid[w], m.wrap_objid[w + 1]
            if m.wrap_type[w + 1] == WrapType.SITE:
                _join(d, t, _of_sites(m, d, site, after), share)
            else:
                side = round((m.nominal or m).wrap_prm[w + 1])
                _join(d, t, _round(m, d, site, after, side, _end_of_part(m, w)), share)


def parts(m: Model, t: int) -> Iterator[tuple[Scalar, int]]:
    """Yield each part of a tendon between two sites: its share in the length, and where it begins in the path.

    Behind a pulley the share is 1 over its divisor.
    """
    share: Scalar = 1.0
    last = m.tendon_adr[t] + m.tendon_num[t] - 1
    for w in range(m.tendon_adr[t], last):
        if m.wrap_type[w] == WrapType.PULLEY:
            share = 1.0 / m.wrap_prm[w]
        elif m.wrap_type[w] == WrapType.SITE and m.wrap_type[w + 1] != WrapType.PULLEY:
            yield share, w


def _end_of_part(m: Model, w: int) -> int:
    """Return the site at which the part of a tendon ends that begins at w in the path."""
    return m.wrap_objid[w + 1 if m.wrap_type[w + 1] == WrapType.SITE else w + 2]


def straight_parts(m: Model, t: int) -> Iterator[tuple[Scalar, int, int]]:
    """Yield (share, site, site) of each part that goes straight from site to site."""
    for share, w in parts(m, t):
        if m.wrap_type[w + 1] == WrapType.SITE:
            yield share, m.wrap_objid[w], m.wrap_objid[w + 1]


def stretches(m: Model, d: Data, t: int) -> Mask:
    """Return whether anything changes the length of tendon t in this pose: if not, MuJoCo has no rows for it.

    Nothing does if only wrapping could, but the tendon touches no geom in this pose, or if its sites lie on the axes
    about which their bodies turn.
    """
    moving = [{*dofs_of(m, m.site_bodyid[m.wrap_objid[w]])} for _, w in parts(m, t)]
    ends = [{*dofs_of(m, m.site_bodyid[_end_of_part(m, w)])} for _, w in parts(m, t)]
    if (m.nominal or m).tendon_invweight0[t] > MINVAL and (not moving or moving != ends):
        return True
    return sum_of(absolute(x) for x in d.ten_J[t].values()) > 0.0


@stage(reads="qvel plastic ten_length ten_J", computes="ten_velocity ten_force")
def tendon_vel(m: Model, d: Data) -> None:
    """Compute how fast lengths change, and the forces of springs and dampers. mj_fwdVelocity, mj_passive."""
    d.ten_velocity = [row_times(row, d.qvel) for row in d.ten_J]
    d.ten_force = [0.0] * m.ntendon
    for t in springy_tendons(m):
        d.ten_force[t] = _own_force(m, d, t)


def _join(d: Data, t: int, piece: Piece, share: Scalar) -> None:
    d.ten_length[t] = d.ten_length[t] + piece.length * share
    _add(d.ten_J[t], piece.row, share)
    for body, wrench in piece.wrench.items():
        if body:
            d.ten_wrench[t][body] = add(d.ten_wrench[t].get(body, zeros(6)), scale(wrench, share))


def constrained_tendons(m: Model) -> list[int]:
    """Return the tendons with a limit or friction, in the model as it was loaded, and those that equalities hold."""
    nominal, held = m.nominal or m, coupled_tendons(m)
    rubs = nominal.tendon_frictionloss
    return [t for t in range(m.ntendon) if nominal.tendon_limited[t] or rubs[t] > 0.0 or t in held]


def coupled_tendons(m: Model) -> list[int]:
    """Return the tendons that active equalities hold."""
    ends = zip(m.eq_type, m.eq_obj1id, m.eq_obj2id, strict=True)
    return sorted({t for kind, *ids in ends if kind == EqType.TENDON for t in ids if t >= 0})


def tendons_with_armature(m: Model) -> list[int]:
    """Return the tendons with armature in the model as it was loaded."""
    return [t for t in range(m.ntendon) if tendon_armature(m.nominal or m, t) > 0.0]


def springy_tendons(m: Model) -> list[int]:
    """Return the tendons with a spring or a damper."""
    springs = enumerate(zip(m.tendon_stiffness, m.tendon_stiffnesspoly, strict=True))
    return [t for t, (k, higher) in springs if acts(k, higher) or acts(*tendon_damping(m, t))]


def _own_force(m: Model, d: Data, t: int) -> Scalar:
    """Return the force of tendon t's spring, which is slack between two lengths, and of its damper."""
    stretch, velocity = tendon_stretch(m, d, t), d.ten_velocity[t]
    k = stiffness_at(m.tendon_stiffness[t], m.tendon_stiffnesspoly[t], stretch)
    return -(stretch * k) - velocity * stiffness_at(*tendon_damping(m, t), absolute(velocity))


def tendon_stretch(m: Model, d: Data, t: int) -> Scalar:
    """Return how far tendon t is from the lengths at which its spring is slack; negative where it is too short."""
    adr = m.tendon_plasticadr[t]
    low, high = m.tendon_lengthspring[t] if adr < 0 else plastic_of(m, d)[adr : adr + 2]
    return maximum(d.ten_length[t] - high, 0.0) - maximum(low - d.ten_length[t], 0.0)


def _add(total: Row, row: Row, share: Scalar) -> None:
    for v, entry in row.items():
        total[v] = total.get(v, 0.0) + entry * share


@dataclass(frozen=True)
class Piece:
    """A part of a tendon.

    row: how its length changes, by dof. wrench: (torque, force) about the tree's origin, by body, of a unit force along
    it.
    """

    length: Scalar
    row: Row
    wrench: dict[int, list[Scalar]]


def _straight(m: Model, d: Data, one: tuple[int, Vec], two: tuple[int, Vec]) -> Piece:
    """Return the straight piece between two points of bodies, each given from the origin of its tree."""
    (body1, p1), (body2, p2) = one, two
    apart = sub(add(p2, between(d, m.body_originid[body1], m.body_originid[body2])), p1)
    along = normalize(apart, [1.0, 0.0, 0.0])
    wrench = {body: scale([*cross(p, along), *along], sign) for body, p, sign in ((body1, p1, -1.0), (body2, p2, 1.0))}
    if body1 == body2:
        return Piece(norm(apart), {}, {})
    return Piece(norm(apart), difference_row(m, d, one, two, along), wrench)


def _of_sites(m: Model, d: Data, site1: int, site2: int) -> Piece:
    if m.site_bodyid[site1] == m.site_bodyid[site2]:  # a constant
        return Piece(norm(sub(m.site_pos[site2], m.site_pos[site1])), {}, {})
    return _straight(m, d, site_place(m, d, site1), site_place(m, d, site2))


def site_place(m: Model, d: Data, site: int) -> tuple[int, Vec]:
    """Return the body of a site, and the site's position from the origin of the body's tree."""
    body = m.site_bodyid[site]
    return body, d.frame[body].point(m.site_pos[site])


def _round(m: Model, d: Data, site1: int, geom: int, side: int, site2: int) -> Piece:
    """Return the piece between two sites, round a geom where it is in the way.

    side: the side site, or -1.
    """
    holder, one, two = m.geom_bodyid[geom], site_place(m, d, site1), site_place(m, d, site2)
    centre, mat = d.geom_xrel[geom], d.geom_xmat[geom]

    def seen(site: int) -> list[Scalar]:
        """Return a site's position in the geom's frame: a constant, if both are of one body."""
        if m.site_bodyid[site] == holder:
            return mat_vec(transpose(m.geom_mat[geom]), sub(m.site_pos[site], m.geom_pos[geom]))
        body, p = site_place(m, d, site)
        here = sub(add(p, between(d, m.body_originid[holder], m.body_originid[body])), centre)
        return mat_vec(transpose(mat), here)

    aside = seen(side) if side >= 0 else None
    path = wrap(seen(site1), seen(site2), aside, m.geom_size[geom][0], m.geom_type[geom] == GeomType.SPHERE)
    direct = _straight(m, d, one, two)
    dofs = sorted({v for body in (one[0], holder, two[0]) for v in dofs_of(m, body)})
    bodies = list(dict.fromkeys((one[0], holder, two[0])))

    def flat(length: Scalar, pieces: list[Piece]) -> list[Any]:
        row, wrench = _sum([p.row for p in pieces]), {body: zeros(6) for body in bodies}
        for piece in pieces:
            for body, part in piece.wrench.items():
                wrench[body] = add(wrench[body], part)
        return [length, [row.get(v, 0.0) for v in dofs], list(wrench.values())]

    def touching(_: list[Any]) -> list[Any]:
        first, last = ((holder, add(centre, mat_vec(mat, p))) for p in (path.first, path.last))
        ends = [_straight(m, d, one, first), _straight(m, d, last, two)]
        return flat(ends[0].length + path.length + ends[1].length, ends)

    length, row, wrenches = when_any(path.on, touching, flat(direct.length, [direct]))
    moving = {v: x for v, x in zip(dofs, row, strict=True) if not is_zero(x)}
    return Piece(length, moving, dict(zip(bodies, wrenches, strict=True)))


def _sum(rows: list[Row]) -> Row:
    total: Row = {}
    for row in rows:
        _add(total, row, 1.0)
    return total


def difference_row(m: Model, d: Data, one: tuple[int, Vec], two: tuple[int, Vec], along: Vec) -> Row:
    """Return how fast a point of a body moves away from a point of another, along a direction, by each dof.

    Points are from the origins of their trees. A dof that moves both bodies has no entry, since it turns the direction
    with them.
    """
    dofs1, dofs2 = dofs_of(m, one[0]), dofs_of(m, two[0])
    row = {v: _rate(d.odof[v], two[1], along) for v in dofs2 if v not in dofs1}
    return row | {v: -_rate(d.odof[v], one[1], along) for v in dofs1 if v not in dofs2}


def _rate(motion: Vec, point: Vec, along: Vec) -> Scalar:
    return dot(motion, [*cross(point, along), *along])
