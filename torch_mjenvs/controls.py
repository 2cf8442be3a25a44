"""Functions that turn an action into the model's ctrl, for a task's `control`: plain functions over scalars.

    def action_space(self, m):
        return [-1.0] * m.nu, [1.0] * m.nu

    def control(self, m, world, action):
        return controls.offset(action, HOME, 0.5)  # targets of position actuators, about a pose

Actions and results are lists of scalars. If an argument may be one number or a list, one number is for all. Numbers
that differ from world to world, such as gains, come from its memory or its model: `world.memory["kp"]`,
`m.actuator_gear`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from .scalar import Scalar, absolute, clip, maximum

__all__ = ["delayed", "offset", "pd", "queued", "rate_limited", "rescaled"]

Scalars = Sequence[Scalar]  # a number for each joint or actuator


def rescaled(action: Scalars, ranges: Sequence[Sequence[Scalar]]) -> list[Scalar]:
    """Map each number of the action linearly from [-1, 1] to its range (low, high), such as `m.actuator_ctrlrange`.

    Numbers beyond [-1, 1] are not clipped: the physics clips ctrl to ctrlrange.

    Raises ValueError for a range that is infinite or empty; MuJoCo's is (0, 0) for an actuator without limits.
    """
    out: list[Scalar] = []
    for i, (x, (low, high)) in enumerate(zip(action, ranges, strict=True)):
        constant = isinstance(low, (int, float)) and isinstance(high, (int, float))
        if constant and not (low < high and math.isfinite(high - low)):
            raise ValueError(f"entry {i} of the action has no range to be mapped to, but ({low}, {high})")
        out.append(0.5 * (low + high) + 0.5 * (high - low) * x)
    return out


def offset(action: Scalars, home: Scalars, scale: Scalar | Scalars) -> list[Scalar]:
    """Return home + scale * action, number by number: joint targets around a pose, such as a keyframe's."""
    return [h + s * x for x, h, s in zip(action, home, _each(scale, len(action)), strict=True)]


def pd(
    targets: Scalars, positions: Scalars, velocities: Scalars, kp: Scalar | Scalars, kd: Scalar | Scalars
) -> list[Scalar]:
    """Return the torques kp * (target - position) - kd * velocity of each joint.

    They are computed at the beginning of the step, and held for all its substeps. For a servo that acts in every
    substep, use an actuator of the model (`<position kp="..." kv="...">`), whose gains `randomize` can draw for each
    world.
    """
    n = len(targets)
    parts = zip(targets, positions, velocities, _each(kp, n), _each(kd, n), strict=True)
    return [p * (target - x) - d * v for target, x, v, p, d in parts]


def rate_limited(new: Scalars, old: Scalars, most: Scalar | Scalars) -> list[Scalar]:
    """Return `new`, but at most `most` away from `old`, which a task remembers from the previous step."""
    return [clip(x, y - d, y + d) for x, y, d in zip(new, old, _each(most, len(new)), strict=True)]


def delayed(queue: Scalars, action: Scalars, steps: Scalar) -> list[Scalar]:
    """Return the action of this many steps ago: 0 is this one, k the oldest of the k actions in the queue.

    The queue is a list of k * len(action) numbers in the task's memory, the latest last; `queued` keeps it. `steps` may
    differ from world to world, such as a number drawn in `begin`, and is clipped to [0, k]. Between two whole numbers
    the actions are mixed: 0.25 is a quarter of the last action and three quarters of this one, since an action that is
    late by a quarter of a step acts for three quarters of it.

    Raises ValueError for a queue whose length is not a multiple of the action's, and for a constant `steps` beyond it.
    """
    n = len(action)
    k = len(queue) // n
    if k * n != len(queue):
        raise ValueError(f"a queue of {len(queue)} numbers does not hold actions of {n}")
    if isinstance(steps, (int, float)) and not 0 <= steps <= k:
        raise ValueError(f"the queue holds {k} actions, and none of {steps} steps ago")
    steps, known = clip(steps, 0.0, float(k)), [*queue, *action]
    out: list[Scalar] = [0.0] * n
    for back in range(k + 1):
        share = maximum(1.0 - absolute(steps - back), 0.0)
        then = known[(k - back) * n : (k - back + 1) * n]
        out = [x + share * y for x, y in zip(out, then, strict=True)]
    return out


def queued(queue: Scalars, action: Scalars) -> list[Scalar]:
    """Return the queue without its oldest action, and with this one at its end: for `remember`."""
    return [*queue, *action][len(action) :]


def _each(x: Scalar | Scalars, n: int) -> Scalars:
    return x if isinstance(x, (list, tuple)) else [x] * n  # type: ignore[list-item]
