"""Springs that yield: where one is stretched too far, its rest follows. `springyield`.

The rests are state, mjData.plastic: a number for each slide or hinge, a quaternion for each ball, the shortest and
longest length of each tendon. They follow once a step, when positions have moved.
"""

from __future__ import annotations

from ...compiler.scalar import Mask, Scalar, clip, logical_and, maximum, minimum, select
from ..algebra.sparse import row_times
from ..algebra.spatial import MINVAL, norm, quat_normalize, quat_sub, scale
from ..model.data import Data
from ..model.enums import JointType
from ..model.model import Model
from .integrator import position_change, quat_integrate
from .springs import plastic_of


def yielded(m: Model, d: Data, qpos: list[Scalar]) -> list[Scalar]:
    """Return the rests of springs after a step from d to these positions.

    A tendon's new length is taken to be the old one plus its rate times the change of positions, as in MuJoCo.
    """
    out = plastic_of(m, d)
    for j, adr in enumerate(m.jnt_plasticadr):
        if adr < 0:
            continue
        q, most = m.jnt_qposadr[j], m.jnt_springyield[j]
        if m.jnt_type[j] == JointType.BALL:
            out[adr : adr + 4] = _turned(out[adr : adr + 4], qpos[q : q + 4], most)
        else:
            stretch = qpos[q] - out[adr]
            out[adr] = out[adr] + (stretch - clip(stretch, -most, most))
    change = position_change(m, d.qpos, qpos) if any(adr >= 0 for adr in m.tendon_plasticadr) else []
    for t, adr in enumerate(m.tendon_plasticadr):
        if adr >= 0:
            (low, high), most = out[adr : adr + 2], m.tendon_springyield[t]
            length = d.ten_length[t] + row_times(d.ten_J[t], change)
            longer, shorter = maximum(length - high - most, 0.0), minimum(length - low + most, 0.0)
            slack: Mask = logical_and(low <= 0.0, low >= 0.0, high > 0.0)  # no shorter rest for what only pulls
            out[adr] = low + (select(slack, 0.0, longer) + shorter)
            out[adr + 1] = high + (longer + shorter)
    return out


def _turned(rest: list[Scalar], quat: list[Scalar], most: float) -> list[Scalar]:
    """Return the rest of a ball's spring, turned so far that its angle to the orientation is `most` or less."""
    stretch = quat_sub(quat_normalize(quat), rest)
    angle = norm(stretch)
    follow = maximum(angle - most, 0.0) / maximum(angle, MINVAL)
    turned = quat_integrate(rest, scale(stretch, follow))
    return [select(follow > 0.0, x, old) for x, old in zip(turned, rest, strict=True)]
