"""The acceleration from which Newton's method starts: it decides how many iterations are needed, not where they end.

A start is good if it tells which rows will be pressed. MuJoCo starts from the acceleration of the step before, or from
that without constraints if its cost is lower. But the residual of a pressed row is only a little below 0, by its force
over its stiffness. The reference of a contact that is being slowed down moves by more than that in a step, so that the
row looks free at the acceleration of the step before. So a world that moves starts between the two: the faster contact
forces fade, the further it starts from the step before. A world at rest starts from the step before.
"""

from __future__ import annotations

from ...compiler.scalar import Scalar, select
from ..algebra.spatial import MINVAL, add_scaled, dot, sub
from ..constraints.contact_row import reference_of
from ..dynamics.inertia import factor, solve
from ..dynamics.integrator import euler_inertia
from ..model.data import Data
from ..model.model import Model

LEAST, MOST = 0.2, 0.6  # shares of the way to no constraints: less is not worth its cost, more tells less
REST = 0.2  # a world whose acceleration is a smaller share of what constraints change in it is at rest


def start(m: Model, d: Data) -> list[Scalar]:
    """Return the starting acceleration (nv), from d.qacc_warmstart and d.qfrc_smooth."""
    share = share_of_the_way(m.nominal or m)
    if not share:
        return list(d.qacc_warmstart)
    inertia = euler_inertia(m, d) if m.integrator == "euler" else d.M  # the integrator, too, factors that
    way = sub(solve(factor(inertia, m.dof_clamped), d.qfrc_smooth), d.qacc_warmstart)
    moving = _size(m, d.qacc_warmstart) > REST**2 * _size(m, way)
    return add_scaled(d.qacc_warmstart, way, select(moving, share, 0.0))


def _size(m: Model, a: list[Scalar]) -> Scalar:
    """Return how large an acceleration is, squared. Dofs count by their inertia: light ones accelerate most."""
    inverse = [float(x) for x in (m.nominal or m).dof_invweight0]
    return dot([y / x if x > MINVAL else 0.0 for x, y in zip(inverse, a, strict=True)], a)


def share_of_the_way(m: Model) -> float:
    """Return the share of the way from the last step's acceleration to that without constraints at which to start.

    It is the share of a contact's velocity that damping takes, on average of all pairs, until the solver starts again.
    """
    if not m.pairs:
        return 0.0
    damping = sum(float(reference_of(m, pair)[1][0]) for pair in m.pairs) / len(m.pairs)
    fades = m.timestep * damping * (0.5 if m.integrator == "rk4" else 1.0)  # some of its stages are half a step apart
    return min(fades, MOST) if fades >= LEAST else 0.0
