"""Potential and kinetic energy, for sensors. mj_energyPos, mj_energyVel."""

from __future__ import annotations

from ...compiler.scalar import Scalar
from ..algebra.spatial import dot, is_zero
from ..model.data import Data
from ..model.model import Model
from .forces import stretches
from .inertia import mul_m
from .springs import acts, energy_at
from .tendons.tendon import tendon_stretch


def potential(m: Model, d: Data) -> Scalar:
    """Return the potential energy (joules) of weights, 0 at the world's origin, and of springs. mj_energyPos."""
    total: Scalar = 0.0
    if not all(map(is_zero, m.gravity)):
        for i in range(1, m.nbody):
            total = total - m.body_mass[i] * dot(m.gravity, d.xipos[i])
    for j in range(m.njnt):
        k, higher = m.jnt_stiffness[j], m.jnt_stiffnesspoly[j]
        if acts(k, higher):
            for _, stretch in stretches(m, d, j):
                total = total + energy_at(k, higher, stretch)
    for t in range(m.ntendon):
        k, higher = m.tendon_stiffness[t], m.tendon_stiffnesspoly[t]
        if acts(k, higher):
            total = total + energy_at(k, higher, tendon_stretch(m, d, t))
    return total


def kinetic(m: Model, d: Data) -> Scalar:
    """Return the kinetic energy (joules), armatures included. mj_energyVel."""
    return 0.5 * dot(d.qvel, mul_m(d.M, d.qvel)) if m.nv else 0.0
