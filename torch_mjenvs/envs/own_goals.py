"""What environments compute for any goals, as Gymnasium-Robotics' GoalEnv has it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .engine import Engine
    from .goals import GoalFunction


class OwnGoals:
    """The functions of goals of an environment: its task's, compiled, for whole batches."""

    engine: Engine

    @property
    def compute_reward(self) -> GoalFunction:
        """The reward for goals: a function of goals (..., k), or shaped as `observe` gives them, and info; gives (...).

        It is the task's own `compute_reward(self, achieved_goal, desired_goal, info)` for hindsight experience replay,
        compiled. Goals may be tensors, or arrays, of which arrays result. Of `info` it needs the entries that the
        task's function reads: it has tensors or arrays by name, like a step's, or is a list of dicts. (TorchRL's
        rewards and flags are (..., 1).)

        Raises AttributeError if the task has no such function, or does not observe "achieved_goal" and "desired_goal".
        The function raises ValueError for goals of another shape, and KeyError for an entry of info that is not there.
        """
        return self.engine.of_goals("compute_reward")

    @property
    def compute_terminated(self) -> GoalFunction:
        """Whether a step to these goals terminates the episode: a function like `compute_reward`, which gives bools."""
        return self.engine.of_goals("compute_terminated")

    @property
    def compute_truncated(self) -> GoalFunction:
        """Whether the task truncates the episode, the time limit aside: a function like `compute_terminated`."""
        return self.engine.of_goals("compute_truncated")
