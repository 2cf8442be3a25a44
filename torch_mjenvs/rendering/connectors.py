"""What MuJoCo draws from point to point: spatial tendons, and the rods of slider-cranks. addSpatialTendonGeoms.

A tendon is drawn as capsules along its path. Around a geom MuJoCo takes as many as fit the angle; here there are always
`ARC` of them. A slack tendon that is a mere string from site to site hangs as a catenary, in as many capsules as
`visual/quality/numslices` says. Which pieces exist depends on the state; a piece that does not exist now is put where
no camera sees it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import mujoco

from ..compiler.active_sets import compute_rows
from ..compiler.scalar import (
    Mask,
    Scalar,
    absolute,
    cos,
    logical_and,
    logical_not,
    maximum,
    select,
    sin,
    sqrt,
)
from ..physics.algebra.spatial import (
    MINVAL,
    Vec,
    add,
    add_scaled,
    choose,
    column,
    dot,
    mat_vec,
    norm,
    normalize,
    sub,
    transpose,
)
from ..physics.constraints.rows import impedance
from ..physics.dynamics.tendons.tendon import parts
from ..physics.dynamics.tendons.wrapping import Wrap, wrap
from ..physics.model.data import Data
from ..physics.model.enums import GeomType, WrapType
from ..physics.model.model import Model
from .catenary import catenary
from .shapes import NOWHERE

TENDON, ACTUATOR = int(mujoco.mjtObj.mjOBJ_TENDON), int(mujoco.mjtObj.mjOBJ_ACTUATOR)
STEEP = 100.0  # a string this many times longer than the horizontal distance of its ends hangs straight down and up
ARC = 12  # pieces around a geom: over half a turn, they deviate from the arc by 1 % of its radius
BROKEN = 2  # the piece of a slider-crank whose rod does not reach


@dataclass(frozen=True)
class Rod:
    """A piece of a tendon or slider-crank: its place among `count` pieces, its shape (mjtGeom), its radius in metres.

    hangs: whether the tendon is a string, which sags.
    """

    piece: int
    count: int
    shape: int
    radius: float
    hangs: bool = False


@dataclass(frozen=True)
class Piece:
    """The ends of a piece, in the world, and whether it exists now."""

    start: Vec
    end: Vec
    there: Mask = True


# tendons


def rods_of_tendon(mjm: mujoco.MjModel, t: int) -> list[Rod]:
    """Return the pieces that a tendon may consist of, in the order of `pieces`; none for a tendon of joints."""
    string = hangs(mjm, t)
    path = (1 if mjm.wrap_type[w + 1] == WrapType.SITE else ARC + 2 for _, w in parts(mjm, t))
    count = int(mjm.vis.quality.numslices) if string else sum(path)
    return [Rod(k, count, int(GeomType.CAPSULE), float(mjm.tendon_width[t]), string) for k in range(count)]


def hangs(mjm: mujoco.MjModel, t: int) -> bool:
    """Return whether a tendon is a mere string: it leads from site to site, and does nothing but limit its length."""
    path = range(mjm.tendon_adr[t], mjm.tendon_adr[t] + mjm.tendon_num[t])
    pulled = (mjm.actuator_trntype == mujoco.mjtTrn.mjTRN_TENDON) & (mjm.actuator_trnid[:, 0] == t)
    weightless = mjm.opt.disableflags & mujoco.mjtDisableBit.mjDSBL_GRAVITY or norm(list(mjm.opt.gravity)) <= MINVAL
    return bool(
        not weightless
        and [mjm.wrap_type[w] for w in path] == [WrapType.SITE] * 2
        and (_springs_back(mjm, t) or _ends(mjm, t))
        and not (mjm.tendon_damping[t] or mjm.tendon_frictionloss[t] or pulled.any())
    )


def _springs_back(mjm: mujoco.MjModel, t: int) -> bool:
    shortest, longest = mjm.tendon_lengthspring[t]
    return bool(mjm.tendon_stiffness[t] > 0 and shortest == 0 and longest > 0)


def _ends(mjm: mujoco.MjModel, t: int) -> bool:
    return bool(mjm.tendon_stiffness[t] == 0 and mjm.tendon_limited[t] and mjm.tendon_range[t, 0] == 0)


def strains(mjm: mujoco.MjModel, t: int, rod: Rod) -> bool:
    """Return whether a piece of a tendon changes its colour where a limit holds the tendon: if it has MuJoCo's default
    grey and no material.

    A string does so where it is tight, and is a single piece there; a string that is a spring never does.
    """
    disabled = mujoco.mjtDisableBit.mjDSBL_CONSTRAINT | mujoco.mjtDisableBit.mjDSBL_LIMIT
    return bool(
        mjm.tendon_limited[t]
        and mjm.tendon_matid[t] < 0
        and (mjm.tendon_rgba[t] == [0.5, 0.5, 0.5, 1.0]).all()
        and not mjm.opt.disableflags & disabled
        and not (rod.hangs and (rod.piece > 0 or _springs_back(mjm, t)))
    )


def strain(m: Model, d: Data, t: int, rod: Rod) -> Scalar:
    """Return the impedance of the limit that holds a tendon, 0 where none does."""
    length, (low, high), margin = d.ten_length[t], m.tendon_range[t], m.tendon_margin[t]
    found: Scalar = 0.0
    if d.ten_J[t]:  # else nothing moves it
        for distance in (length - low - margin, high - length - margin):
            found = select(distance < 0.0, impedance(m.tendon_solimp_lim[t], distance), found)
    return select(length < high, 0.0, found) if rod.hangs else found


def _tendon(m: Model, d: Data, t: int, rod: Rod) -> list[Piece]:
    if rod.hangs:
        w = m.tendon_adr[t]
        longest = m.tendon_range[t][1] if m.tendon_stiffness[t] == 0 else m.tendon_lengthspring[t][1]
        one, two = (d.site_xpos[m.wrap_objid[k]] for k in (w, w + 1))
        return _string(m, one, two, longest, rod.count)
    return [piece for _, w in parts(m, t) for piece in _part(m, d, w)]


def _part(m: Model, d: Data, w: int) -> Iterator[Piece]:
    """Yield the pieces of the part of a tendon that begins at place w of its path."""
    if m.wrap_type[w + 1] == WrapType.SITE:
        yield Piece(d.site_xpos[m.wrap_objid[w]], d.site_xpos[m.wrap_objid[w + 1]])
        return
    geom, side = m.wrap_objid[w + 1], round((m.nominal or m).wrap_prm[w + 1])
    one, two = (d.site_xpos[m.wrap_objid[k]] for k in (w, w + 2))
    centre, mat = d.geom_xpos[geom], d.geom_xmat[geom]

    def seen(point: Vec) -> list[Scalar]:
        return mat_vec(transpose(mat), sub(point, centre))

    aside = seen(d.site_xpos[side]) if side >= 0 else None
    path = wrap(seen(one), seen(two), aside, m.geom_size[geom][0], m.geom_type[geom] == GeomType.SPHERE)
    rounded = logical_and(path.on, path.length > 0.0)  # a path through the inside touches in one point
    arc = [add(centre, mat_vec(mat, x)) for x in _arc(path, m.geom_size[geom][0], m.geom_type[geom] == GeomType.SPHERE)]
    yield Piece(one, choose(path.on, arc[0], two))
    for start, end in itertools.pairwise(arc):
        yield Piece(start, end, rounded)
    yield Piece(arc[-1], two, path.on)


def _arc(path: Wrap, radius: Scalar, sphere: bool) -> list[list[Scalar]]:
    """Return evenly spaced points of a tendon's way around a geom, from the first to the last, in the geom's frame.

    They are cos(x) first + sin(x) aside. For a cylinder that is across its axis; along the axis the tendon climbs
    evenly.
    """
    climb = 0.0 if sphere else path.last[2] - path.first[2]
    angle = sqrt(maximum(path.length * path.length - climb * climb, 0.0)) / radius
    n = 3 if sphere else 2
    sine = sin(angle)
    over = select(sine < 0.0, -1.0, 1.0) / maximum(absolute(sine), 1e-6)
    aside = [(b - a * cos(angle)) * over for a, b in zip(path.first[:n], path.last[:n], strict=True)]
    points = [path.first]
    for k in range(1, ARC):
        c, s = cos(angle * (k / ARC)), sin(angle * (k / ARC))
        flat = [a * c + b * s for a, b in zip(path.first[:n], aside, strict=True)]
        points.append(flat if sphere else [*flat, path.first[2] + climb * (k / ARC)])
    return [*points, path.last]


# strings


def _string(m: Model, one: Vec, two: Vec, longest: Scalar, count: int) -> list[Piece]:
    """Return the pieces of a string between two points: straight if it is tight. mjv_catenary.

    h, v  how far the points are apart, horizontally and vertically   up, across   unit vectors
    """
    up = normalize([-1.0 * x for x in m.gravity], [0.0, 0.0, 1.0])
    apart = sub(two, one)
    v = dot(apart, up)
    flat = add_scaled(apart, up, -1.0 * v)
    h, across = norm(flat), normalize(flat, [0.0, 0.0, 0.0])
    slack = norm(apart) < longest
    bead = logical_and(slack, longest > STEEP * h)
    curved = logical_and(slack, logical_not(bead))

    down = -0.5 * (sqrt(maximum(longest * longest - h * h, 0.0)) - v)
    lowest = add_scaled(add_scaled(one, up, down), across, h * down / select(bead, 2.0 * down - v, 1.0))
    chain = catenary(select(curved, h, 1.0), select(curved, v, 0.0), select(curved, longest, 2.0))

    def hung(row: list[Scalar]) -> list[Scalar]:
        x = row[0] * h / (count + 1.0)
        return add_scaled(add_scaled(one, across, x), up, chain(x))

    hanging = compute_rows([[float(k)] for k in range(1, count)], hung)

    pieces = []
    points = [one, *hanging, two]
    for k in range(count):
        start, end, there = points[k], points[k + 1], curved
        if k == 0:
            end, there = choose(curved, end, choose(bead, lowest, two)), True
        elif k == 1:
            start, end = choose(curved, start, lowest), choose(curved, end, two)
            there = slack
        pieces.append(Piece(start, end, there))
    return pieces


# slider-cranks


def rods_of_crank(mjm: mujoco.MjModel) -> list[Rod]:
    """Return the pieces of a slider-crank: the slider, and the rod twice, where it reaches and where it does not."""
    radius = float(mjm.stat.meansize * mjm.vis.scale.slidercrank)
    capsules = [Rod(k, 3, int(GeomType.CAPSULE), radius / 2) for k in (1, BROKEN)]
    return [Rod(0, 3, int(GeomType.CYLINDER), radius), *capsules]


def _crank(m: Model, d: Data, i: int) -> list[Piece]:
    (crank, slider), rod = m.actuator_trnid[i], m.actuator_cranklength[i]
    axis, apart = column(d.site_xmat[slider], 2), sub(d.site_xpos[crank], d.site_xpos[slider])
    along = dot(apart, axis)
    left = along * along + rod * rod - dot(apart, apart)
    end = add_scaled(d.site_xpos[slider], axis, along - sqrt(maximum(left, 0.0)))
    reaches = left >= 0.0
    return [
        Piece(d.site_xpos[slider], end),
        Piece(end, d.site_xpos[crank], reaches),
        Piece(end, d.site_xpos[crank], logical_not(reaches)),
    ]


# where they are


def pieces(m: Model, d: Data, object: int, id: int, rod: Rod) -> list[Piece]:
    """Return all pieces of the tendon or slider-crank that `rod` is one of."""
    return _tendon(m, d, id, rod) if object == TENDON else _crank(m, d, id)


def placed(pieces: Sequence[Piece]) -> list[tuple[Vec, Vec, Scalar]]:
    """Return position, orientation and half the length of pieces. mjv_connector."""
    rows = [[*x.start, *x.end] for x in pieces]
    found = [(row[:3], row[3:12], row[12]) for row in compute_rows(rows, _placed)]
    far = [0.0, 0.0, -NOWHERE]
    return [(choose(x.there, row[0], far), *row[1:]) for x, row in zip(pieces, found, strict=True)]


def _placed(ends: list[Scalar]) -> list[Scalar]:
    """Return position, orientation and half the length of a piece between two ends."""
    start, end = ends[:3], ends[3:]
    apart = sub(end, start)
    x, y, z = normalize(apart, [0.0, 0.0, 1.0])
    aside = x * x + y * y
    down, back = z < 0.0, logical_and(z < 0.0, aside < 1e-20)
    over = select(down, 1.0 - z, 1.0) / select(down, select(back, 1.0, aside), 1.0 + z)  # 1 / (1 + z)
    turned = [
        1.0 - x * x * over,
        -1.0 * x * y * over,
        x,
        -1.0 * x * y * over,
        1.0 - y * y * over,
        y,
        -1.0 * x,
        -1.0 * y,
        z,
    ]
    mat = choose(back, [1.0, 0.0, 0.0, 0.0, -1.0, 0.0, 0.0, 0.0, -1.0], turned)
    return [*add_scaled(start, apart, 0.5), *mat, maximum(0.5 * norm(apart), 1e-9)]
