"""Evaluations of a policy while it is trained; where that is on a GPU, beside the training."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import torch

from ..envs.vector_env import TorchVectorEnv
from ..policy import policy_of
from .agent import Agent
from .checkpoints import Evaluated, policy_entries
from .scores import Act, first_episodes, one_thread
from .task_flags import arguments
from .worlds import make_to_score

EVALUATED = 16  # episodes, each time that a run is evaluated on the way


class Evaluation:
    """The mean return of an agent's mean actions in a few episodes of the Torch task, the same ones at every call.

    The worlds are on the CPU, and in a run on a GPU so is a copy of the policy: a step of so few worlds takes a GPU
    several times as long. Meanwhile the run goes on. Nothing of this changes the random numbers of the run.

    They are made at once, if there are to be evaluations at all (`wanted`): later the task's model may have changed.
    """

    def __init__(self, run: dict[str, Any], args: argparse.Namespace, wanted: bool = True):
        self.run, self.args = run, args
        self.on_gpu = torch.device(args.device).type != "cpu"
        self.env: TorchVectorEnv | None = None
        self._thread = ThreadPoolExecutor(1)  # which begins with the first task that it is given
        self._begun: list[tuple[float, int, Mapping[str, Any], Future[float]]] = []
        if wanted:
            with torch.random.fork_rng(devices=[]):
                given = arguments(run["env"], run.get("task", {}))
                self.env = make_to_score(run["env"], EVALUATED, "cpu", **given)

    def begin(self, agent: Agent, seconds: float, frames: int) -> None:
        """Evaluate the agent as it is now, after so many seconds and frames: `ended` returns what was found."""
        policy = policy_entries(agent, self.run)
        if self.on_gpu:
            mean = self._thread.submit(self._mean_of_copy, policy)
        else:
            mean = Future()
            mean.set_result(self(agent))
        self._begun.append((seconds, frames, policy, mean))

    def ended(self, wait_before: float = 0) -> Iterator[Evaluated]:
        """Return what evaluations have found that have ended, in order; first wait for those of fewer frames."""
        while self._begun and (self._begun[0][1] < wait_before or self._begun[0][3].done()):
            seconds, frames, policy, mean = self._begun.pop(0)
            yield Evaluated(seconds, frames, mean.result(), policy)

    def running(self) -> list[tuple[float, int]]:
        """Return the seconds and frames of evaluations that have begun, and that `ended` has not returned yet."""
        return [(seconds, frames) for seconds, frames, *_ in self._begun]

    def __call__(self, agent: Agent) -> float:
        """Return the mean return of the agent as it is now."""
        if self.on_gpu:
            return self._mean_of_copy(policy_entries(agent, self.run))
        with torch.random.fork_rng(devices=[]):
            return self._mean(agent.act)

    def _mean_of_copy(self, policy: Mapping[str, Any]) -> float:
        with one_thread(), torch.no_grad():  # few rows shared out are up to ten times as slow on a busy machine
            return self._mean(policy_of(policy).cpu(), beside=True)  # which draws no random numbers

    def _mean(self, act: Act, beside: bool = False) -> float:
        assert self.env is not None
        return float(first_episodes(act, self.env, self.args.seed + 2, "cpu", beside=beside).returns.mean())

    def close(self) -> None:
        """Close the worlds."""
        self._thread.shutdown(cancel_futures=True)
        if self.env is not None:
            self.env.close()
