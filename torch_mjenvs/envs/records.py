"""Records of one world within a kernel: its state, the state of its episode, and the result of a step."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..compiler.random import Word
from ..compiler.scalar import Mask, Scalar, logical_or


@dataclass
class WorldState:
    """The state that a world carries from one step to the next, and the parameters of its own model."""

    qpos: list[Scalar]
    qvel: list[Scalar]
    qacc_warmstart: list[Scalar]
    act: list[Scalar]
    memory: list[Scalar]
    params: list[Scalar] = field(default_factory=list)
    derived: list[Scalar] = field(default_factory=list)
    ctrl: list[Scalar] = field(default_factory=list)  # of the last step, if the task itself computes it
    episode_sums: list[Scalar] = field(default_factory=list)  # of what the task has logged, see `BufferLayout.sums`
    history: list[Scalar] = field(default_factory=list)  # of observations: what the next one shows again
    kept: list[Scalar] = field(default_factory=list)  # `State.kept`, one after the other


@dataclass
class EpisodeState:
    """The state of a world within its episode: steps taken, episodes begun, and the info and observation users see."""

    elapsed: Scalar
    count: Word
    info: list[Scalar]
    obs: list[Scalar]
    world: WorldState


@dataclass
class StepResult:
    """The reward of a step, and the flags that say whether it ended the episode and why."""

    reward: Scalar
    terminated: Mask
    truncated: Mask
    bad: Mask

    @property
    def ended(self) -> Mask:
        return logical_or(self.terminated, self.truncated)
