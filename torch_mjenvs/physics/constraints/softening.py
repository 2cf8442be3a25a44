"""Softening of rows that are too stiff for the precision: which ones, to what, and why.

A row's D is S times the inertia that it acts on: S = D J M^-1 J'. The sum M + J'DJ keeps of M only what exceeds S
roundings. `Precision` has two bounds for S. Above `stiff`, rounding shows, so the solver repeats the last Newton step,
which squares its error (`needs_refinement`). Above `stiffest`, M would be lost, so the row is softened to that bound,
which takes 1 / S off the acceleration that it gives. docs/design.md has the mathematics.

MuJoCo makes D = imp / ((1 - imp) invweight) with an inverse inertia `invweight` of its own, from qpos0. Since imp is at
most 0.9999, S is at most 1e4 if that is what the row really acts on. S can be more if the row acts on another, which is
called the effective inverse inertia here:

    limits, friction loss of joints,    never softened: dof_invweight0 is what they act on.
    equalities of joints and tendons
    limits, friction loss of tendons    `tendon_bound`: if tendon_invweight0 is next to 0 because nothing stretches the
                                        tendon at qpos0, though something may in another pose.
    connect, weld                       `tie_bound`: if the bodies' centres of mass, which body_invweight0 is about,
                                        cannot move, but the points that are held can.
    contacts                            `contact_bound`: if the centre of mass cannot move, but the surface can; and if
                                        the axes differ. In a pyramid of little friction mu, the rows' D ~ 1 / mu**2 is
                                        right along the tangents, but too hard along the normal, so the normal alone
                                        gets a spring (`spring_pyramid`). In an elliptic cone, a contact that sticks is
                                        too hard if `impratio` or friction coefficients of different sizes make it so,
                                        which `EllipticCone.give` bounds. Coefficients against turning may also be
                                        great beside mu.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...compiler.scalar import Mask, Scalar, absolute, clip, maximum, sqrt
from ..algebra.spatial import MINVAL, Vec, is_number, is_zero
from ..collision.contact_param import contact_param
from ..model.data import Data
from ..model.model import Model, Pair
from ..model.precision import Precision
from .contact_row import bodies_invweight, is_elliptic, row_invweight, row_share
from .invweight import geom_invweight0
from .rows import MAX_IMP, MIN_IMP, row_stiffness

STRETCHED = 1e-6  # if a tendon's inverse inertia at qpos0 is a smaller share of its dofs', nothing stretches it there
HELD = 1e-5  # if a centre of mass's inverse inertia is a smaller share of the effective one, it cannot move
FIXED = 1e-3  # the same for contacts: this over the root of `stiffest`, as a share of the surface's inverse inertia
LIGHT = 100  # if a surface gives way this much more easily than the centre of mass, a push there only turns a light
# part, such as a wheel, and says nothing about the load that the contact carries
SLIPPERY = 0.3  # friction below which the normal alone is softened


@dataclass(frozen=True)
class RowBound:
    """MuJoCo's stiffness of a scalar row, and an upper bound for it.

    invweight: MuJoCo's inverse inertia. effective: the one that the row acts on, if that is another. give: 1 over the
    largest D allowed; 0 if there is no bound.
    """

    invweight: Scalar
    effective: Scalar | None = None
    give: Scalar = 0.0

    def stiffness(self, imp: Scalar) -> Scalar:
        """Return the stiffness D at an impedance."""
        return row_stiffness(imp, (1.0 - imp) * self.invweight, self.give)

    def needs_refinement(self, precision: Precision, D: Scalar, solimp: Vec) -> Mask:
        """Return where rounding shows in a Newton step, at this D of a row of this solimp: a mask of worlds."""
        if self.effective is None and not _may_be_stiff(precision, solimp):
            return False
        return D * (self.invweight if self.effective is None else self.effective) > precision.stiff


def _may_be_stiff(precision: Precision, solimp: Vec) -> Mask:
    """Return where the impedance can be so near 1 that rounding shows in a row of MuJoCo's own stiffness."""
    most = max(min(x, MAX_IMP) for x in solimp[:2]) if is_number(*solimp[:2]) else MAX_IMP
    return most / (1 - most) > precision.stiff


def tendon_bound(m: Model, d: Data, t: int) -> RowBound:
    """Bound the stiffness of a row along tendon t.

    A string between two parallel tracks does not stretch at first. So where tendon_invweight0 is next to nothing, the
    effective inverse inertia is a bound of J M^-1 J' in the pose at hand.
    """
    nominal, invweight = m.nominal or m, maximum(m.tendon_invweight0[t], MINVAL)
    # A dof that has no inertia of its own at qpos0, as in gimbal lock, would make any tendon look unstretched.
    moving = [v for v in d.ten_J[t] if not nominal.dof_clamped[v]]
    if nominal.tendon_invweight0[t] >= STRETCHED * sum(nominal.dof_invweight0[v] for v in moving):
        return RowBound(invweight)
    total: Scalar = 0.0
    for v, entry in d.ten_J[t].items():
        total = total + absolute(entry) * sqrt(m.dof_invweight0[v])
    effective = total * total
    return RowBound(invweight, effective, effective / d.precision.stiffest)


def tie_bound(precision: Precision, invweight: Scalar, nominal: float, effective: float) -> RowBound:
    """Bound the stiffness of a connect's or weld's rows: those that hold points together, or those for orientations.

    invweight, nominal: the sum of both bodies' body_invweight0, in the world at hand and in the model as it was loaded.
    effective: the largest J M^-1 J' of the rows at qpos0. A point held far from a centre of mass acts on less inertia
    than the centre does, but turning about that point, which is left free, has as much more. If the centres of mass
    cannot move, MuJoCo's D has no limit, and these rows are softened.
    """
    if nominal < HELD * effective:
        return RowBound(invweight, effective, effective / precision.stiffest)
    return RowBound(invweight, give=MINVAL)


@dataclass(frozen=True)
class ContactBound:
    """An upper bound for the stiffness of a pair's contacts.

    needs_refinement: mask of the worlds where the last Newton step is to be repeated. give: 1 over the largest D of a
    row. spring: K of a `SpringPyramid`, or 0 if there is no spring. slip: `EllipticCone.give`.
    """

    needs_refinement: Mask
    give: Scalar = 0.0
    spring: Scalar = 0.0
    slip: Scalar = 0.0


def contact_bound(m: Model, pair: Pair, precision: Precision) -> ContactBound:
    """Bound the stiffness of a pair's contacts: find whether rounding allows the greatest, and what to do if not."""
    param = contact_param(m, pair)
    friction = param.friction[: pair.condim - 1]
    if m.nominal is None:
        return _bound(m, pair, precision, friction, float(_hardest(param.solimp) / row_invweight(m, pair)))
    usual = usual_bound(m.nominal, pair, precision)
    return bound_of_world(m, usual, precision, friction, param.solimp, bodies_invweight(m, pair))


def _hardest(solimp: Vec) -> Scalar:
    """Return the most that imp / (1 - imp) can be for an impedance imp of this solimp."""
    dmin, dmax = solimp[:2]
    most = clip(maximum(dmin, dmax), MIN_IMP, MAX_IMP)
    return most / (1 - most)


def _bound(m: Model, pair: Pair, precision: Precision, friction: Vec, stiffness: float) -> ContactBound:
    """Bound a pair's contacts, where a row's D can be `stiffness`. friction: along each axis but the normal."""
    weights = bodies_invweight(m, pair)
    weight, _ = _effective_invweight(m, pair, precision, weights[0])
    rows, mu, turning = _rows(m, friction, weight, weights[1])
    if max(rows * weight, turning) * stiffness <= precision.stiffest:
        return ContactBound(max(rows * weight, turning) * stiffness > precision.stiff)
    least, turned = weight / precision.stiffest, turning / precision.stiffest
    if is_elliptic(m, pair.condim):
        return ContactBound(True, least, slip=turned * mu * mu / m.impratio)
    if mu < SLIPPERY and rows * weight * stiffness > precision.stiffest:
        return ContactBound(True, max(2 * mu * mu * least, turned), 1 / least)
    return ContactBound(True, max(rows * least, turned))


@dataclass(frozen=True)
class UsualBound:
    """What the model as it was loaded says of a pair's contacts in worlds whose parameters vary.

    bound: that of the model itself; it decides whether there is a spring. fixed: the centre of mass cannot move.
    effective: the inverse inertia that a contact acts on then. ratio: if it can, by how much more easily the surface
    gives way than the centre of mass.
    """

    bound: ContactBound
    fixed: bool
    effective: Scalar
    ratio: Scalar


def usual_bound(nominal: Model, pair: Pair, precision: Precision) -> UsualBound:
    """Return what a model as it was loaded says of a pair's contacts."""
    bound, (weight, _) = contact_bound(nominal, pair, precision), bodies_invweight(nominal, pair)
    effective, fixed = _effective_invweight(nominal, pair, precision, weight)
    return UsualBound(bound, fixed, effective, 1.0 if fixed else effective / weight)


def bound_of_world(
    m: Model,
    usual: UsualBound,
    precision: Precision,
    friction: Vec,
    solimp: Vec,
    weights: tuple[Scalar, Scalar],
) -> ContactBound:
    """Bound contacts in worlds whose parameters vary, from their friction along each axis but the normal.

    weights: as `bodies_invweight` gives them.
    """
    moving, condim = weights[0], len(friction) + 1
    weight = usual.effective if usual.fixed else moving * usual.ratio
    rows, mu, turning = _rows(m, friction, weight, weights[1])
    refine = usual.bound.needs_refinement
    if not usual.fixed:
        stiffness, share = _hardest(solimp), row_share(m, condim, mu)
        if not is_number(stiffness, share, turning):
            hardest = rows * usual.ratio if is_zero(turning) else maximum(rows * usual.ratio, turning / moving)
            refine = share < stiffness * (hardest / precision.stiff)
        elif is_zero(usual.bound.give):
            return usual.bound
    least, turned = weight * (1 / precision.stiffest), turning * (1 / precision.stiffest)
    if is_elliptic(m, condim):
        return ContactBound(refine, least, slip=turned * (mu * mu / m.impratio))
    if usual.bound.spring:
        return ContactBound(refine, _greater(2 * mu * mu * least, turned), 1 / least)
    return ContactBound(refine, _greater(rows * least, turned))


def _rows(m: Model, friction: Vec, weight: Scalar, turning: Scalar) -> tuple[int, Scalar, Scalar]:
    """Return three numbers of a contact: its rows along the normal; its friction; and S (see the module's docstring) of
    the stiffest axis other than the normal, if a row's D is 1. An axis acts on the inverse inertia `weight`, or on
    `turning` if the body turns about it.
    """
    if not friction:
        return 1, 1.0, 0.0
    most: Scalar = 0.0
    elliptic = is_elliptic(m, len(friction) + 1)
    for k, mu in enumerate(friction):
        if elliptic:
            most = _greater(most, (m.impratio / (friction[0] * friction[0])) * mu * mu * (weight if k < 2 else turning))
        elif k > 1:
            most = _greater(most, 2 * mu * mu * turning)
    return (1 if elliptic else 2 * len(friction)), friction[0], most


def _greater(a: Scalar, b: Scalar) -> Scalar:
    """Return the greater of two numbers that are not negative; a structural 0 costs nothing."""
    return a if is_zero(b) else b if is_zero(a) else maximum(a, b)


def _effective_invweight(m: Model, pair: Pair, precision: Precision, weight: Scalar) -> tuple[Scalar, bool]:
    """Return the inverse inertia that a contact acts on, and whether the centre of mass cannot move."""
    surface, known = sum(geom_invweight0(m)[geom] for geom in (pair.geom1, pair.geom2)), float(weight)
    fixed = known < FIXED / math.sqrt(precision.stiffest) * surface
    return (surface if fixed else min(surface, LIGHT * known)), fixed
