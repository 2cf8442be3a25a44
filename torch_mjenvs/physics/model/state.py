"""What a step starts from and what it leaves behind."""

from __future__ import annotations

from dataclasses import dataclass, field, replace


@dataclass
class Last:
    """The evaluation at which MuJoCo would have computed mjData's other fields: the one before an Euler step, the last
    stage of a Runge-Kutta step. Lists of scalars.

    cfrc_ext: the wrenches, (nbody, 6). qacc: where the solver ended. mean_qacc: the mean of qacc over the stages of a
    Runge-Kutta step. start: the `parts` of the state that the step began with.
    """

    act: list
    cfrc_ext: list
    mean_qacc: list
    qacc: list
    qpos: list
    qvel: list
    start: list


@dataclass
class State:
    """What a step carries to the next: lists of nq, nv, nv and na scalars, and where there was a step, its `Last`."""

    qpos: list
    qvel: list
    qacc_warmstart: list
    act: list = field(default_factory=list)
    last: Last | None = None

    @property
    def parts(self) -> list[list]:
        """[qpos, qvel, qacc_warmstart, act]."""
        return [list(x) for x in (self.qpos, self.qvel, self.qacc_warmstart, self.act)]

    def unmoved(self, nbody: int) -> State:
        """This state as a step would leave it in which nothing happens."""
        qacc, untouched = self.qacc_warmstart, [[0.0] * 6 for _ in range(nbody)]
        return replace(self, last=Last(self.act, untouched, qacc, qacc, self.qpos, self.qvel, self.parts))
