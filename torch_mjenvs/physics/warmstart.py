"""Where Newton's method starts, which decides how many iterations it takes, and not where it ends.

MuJoCo starts from the acceleration of the step before, or from that without constraints where the cost is lower. Here
a start is good if it tells which rows will be pressed. A pressed row is a little below 0, by its force over its
stiffness, and where a step is long for the damping of contacts, the acceleration of the step before no longer says
whether it is: their reference changes by more. There the search starts between the two.
"""

from __future__ import annotations

from .constraints.contacts import reference_of
from .data import Data
from .inertia import factor, solve
from .integrator import euler_inertia
from .model import Model

LONG = 0.5  # the share of its velocity that damping takes from a contact in a long step
SHARE = 0.6  # how far the start is from the acceleration of the step before, and 1 is without constraints


def start(m: Model, d: Data) -> list:
    """An acceleration, from d.qacc_warmstart and d.qfrc_smooth."""
    if not _steps_are_long(m.nominal or m):
        return list(d.qacc_warmstart)
    inertia = euler_inertia(m, d) if m.integrator == "euler" else d.M  # the integrator, too, factors that
    free = solve(factor(inertia, m.dof_clamped), d.qfrc_smooth)
    return [a + SHARE * (x - a) for a, x in zip(d.qacc_warmstart, free, strict=True)]


def _steps_are_long(m: Model) -> bool:
    """For all contacts that may be, and there are some."""
    damping = [reference_of(m, pair)[1][0] for pair in m.pairs]
    return bool(damping) and m.timestep * min(damping) >= LONG
