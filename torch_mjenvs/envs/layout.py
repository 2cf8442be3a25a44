"""The buffers of a task's kernels: their widths, and the names in its info."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from ..compiler.program import Buffer
from ..physics.columns import Columns
from ..physics.world_params import param_buffers
from .entries import BAD_STATE, entries
from .observation import Observation
from .packing import Widths, size_of
from .tasks.base import HELD

TABLE = "table "  # and the name of a table: its buffer


@dataclass(frozen=True)
class BufferLayout:
    """The widths of a task's buffers, and the names in its info."""

    nq: int
    nv: int
    nu: int
    na: int
    kept: Widths  # of what else physics keeps: see `Model.kept0`
    bounds: tuple[tuple[float, float], ...]  # of each number of an action
    observation: Observation
    memory: Widths
    info: Widths  # of all names in the next two fields
    step_info: tuple[str, ...]
    reset_info: tuple[str, ...]
    rewards: tuple[str, ...]  # the names of the reward's terms, if it has any
    metrics: tuple[str, ...]  # the names of the task's metrics
    successes: tuple[str, ...]  # `SUCCESSES` if the task says when it is done
    ends: tuple[str, ...]  # the reasons by which an episode ends, if the task names any
    truncates: bool  # whether the task itself truncates episodes
    controls: bool  # whether the task itself turns actions into ctrl
    params: Columns | None  # the columns of parameters that vary from world to world
    tables: Mapping[str, tuple[int, ...]]  # the shapes of the task's tables
    substep_pushes: tuple[str, ...]  # the names of the pushes that the task gives in every substep
    substep_memory: tuple[str, ...]  # what the task remembers from substep to substep
    ahead: bool  # whether the next episode of a world begins with numbers computed ahead
    shows_end: bool = False  # whether a step also outputs the state before any reset

    @property
    def obs(self) -> int:
        """The numbers in an observation."""
        return self.observation.size

    @property
    def action(self) -> int:
        """The size of an action."""
        return len(self.bounds)

    @property
    def logged(self) -> tuple[str, ...]:
        """The names of the entries of info about an episode."""
        return entries(self.rewards, self.metrics, self.successes, self.ends)

    @property
    def sums(self) -> int:
        """The number of sums over an episode: of each term of the reward, of each metric, and of the steps.

        If the task says when it is done, one more comes before the steps: 1 once it has been done, else 0.
        """
        return len(self.rewards) + len(self.metrics) + bool(self.successes) + 1 if self.logged else 0

    def buffers(self) -> list[Buffer]:
        """Return the kernels' buffers. State is world-minor; users' inputs and outputs have a row for each world."""
        params = param_buffers(self.params) if self.params else []
        act = [Buffer("act", self.na)] if self.na else []
        more = [Buffer("kept", size_of(self.kept))] if self.kept else []
        ctrl = [Buffer("ctrl", self.nu)] if self.controls else []
        sums = [Buffer("episode_sums", self.sums)] if self.sums else []
        kept = self.observation.kept
        history = [Buffer("history", kept)] if kept else []
        start = [Buffer("next_start", self.nq + self.nv + self.na), Buffer("next_episode", 1, "i")] * self.ahead
        shown = [Buffer("qpos", self.nq), Buffer("memory", size_of(self.memory)), *params]
        shown += more if self.kept.keys() & HELD.keys() else []
        end = shown if self.shows_end else []
        return [
            *params,
            *(replace(b, name=f"final_{b.name}") for b in end),
            Buffer("qpos", self.nq),
            Buffer("qvel", self.nv),
            Buffer("qacc_warmstart", self.nv),
            *act,
            *more,
            *ctrl,
            *sums,
            Buffer("memory", size_of(self.memory)),
            *history,
            Buffer("elapsed_steps", 1, "i"),
            Buffer("episode", 1, "i"),
            Buffer("key", 3, "i"),
            *start,
            Buffer("done", 1, "b"),
            Buffer("reset_mask", 1, "b"),
            Buffer("action", self.action, rows=True),
            Buffer("obs", self.obs, rows=True),
            Buffer("final_obs", self.obs, rows=True),
            Buffer("reward", 1),
            Buffer("terminated", 1, "b"),
            Buffer("truncated", 1, "b"),
            Buffer(BAD_STATE, 1, "b"),
            Buffer("info", size_of(self.info)),
            Buffer("final_info", size_of(self.info)),
            *table_buffers(self.tables),
        ]

    def ahead_buffers(self) -> list[Buffer]:
        """Return the buffers of the kernel that computes beginnings of episodes ahead."""
        names = ("episode", "key", "next_start", "next_episode")
        return [b for b in self.buffers() if b.name in names]


def table_buffers(shapes: Mapping[str, tuple[int, ...]]) -> list[Buffer]:
    """Return the buffers of a task's tables, which all worlds read, from their shapes by name."""
    return [Buffer(TABLE + name, math.prod(shape), table=True) for name, shape in shapes.items()]
