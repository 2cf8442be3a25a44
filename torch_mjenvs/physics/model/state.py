"""`State`, which a step starts from and returns, and `Last`, the evaluation that it keeps for mjData's other fields."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from ...compiler.scalar import Scalar, absolute, select
from ..algebra.spatial import MAXVAL, zeros


@dataclass
class Last:
    """The evaluation at which MuJoCo would have computed mjData's other fields. Lists of scalars.

    It is the one before an Euler step, or the last stage of a Runge-Kutta step.

    cfrc_ext: the wrenches, (nbody, 6), or None if they are to be computed when they are read. qacc: where the solver
    ended. mean_qacc: the mean of qacc over the stages of a Runge-Kutta step. start: the `parts` of the state that the
    step began with. kept: what that state kept besides.
    """

    act: list[Scalar]
    cfrc_ext: list[list[Scalar]] | None
    mean_qacc: list[Scalar]
    qacc: list[Scalar]
    qpos: list[Scalar]
    qvel: list[Scalar]
    start: list[list[Scalar]]
    kept: dict[str, list[Scalar]] = field(default_factory=dict)


@dataclass
class State:
    """A world's state: lists of nq, nv, nv and na scalars and, if a step led to it, that step's `Last`.

    kept: what else steps keep, by name; a name that is missing stands for the initial state (`Model.kept0`).
    """

    qpos: list[Scalar]
    qvel: list[Scalar]
    qacc_warmstart: list[Scalar]
    act: list[Scalar] = field(default_factory=list)
    last: Last | None = None
    kept: dict[str, list[Scalar]] = field(default_factory=dict)

    @property
    def parts(self) -> list[list[Scalar]]:
        """Return [qpos, qvel, qacc_warmstart, act]."""
        return [list(x) for x in (self.qpos, self.qvel, self.qacc_warmstart, self.act)]

    def unmoved(self, nbody: int) -> State:
        """Return this state with a `Last` as if a step had led to it in which nothing moved."""
        qacc, untouched = self.qacc_warmstart, [zeros(6) for _ in range(nbody)]
        return replace(self, last=Last(self.act, untouched, qacc, qacc, self.qpos, self.qvel, self.parts, self.kept))


def usable(warmstart: list[Scalar]) -> list[Scalar]:
    """Return a warm start with 0 in place of NaN and of numbers that are too large, which would stay for ever."""
    return [select(absolute(x) <= MAXVAL, x, 0.0) for x in warmstart]
