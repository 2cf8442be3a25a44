"""A whole rollout as one launch, on the CPU: for every step of 64 worlds, networks, noise, and the physics of the step.

A thread takes its worlds through all steps without waiting for other threads.

Shapes: N worlds, T steps, O observations, A actions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ...compiler import cpu
from ...compiler.matrices import Apply, Call, Gather, Loop, Matrix, Memory, Phase, Plan, PlanLaunch, Transpose, build
from ...compiler.program import Buffer, Program, record
from ...networks.layers import Network
from ...networks.tiles import FRAMES
from .forward import Networks


def fits(worlds: int, threads: int) -> bool:
    """Return whether this many worlds are whole tiles, and enough of them for this many threads, which are torch's."""
    return worlds % FRAMES == 0 and worlds // FRAMES >= threads and (threads == 1 or cpu.team() is not None)


def act(actions: int) -> Program:
    """Record actions: the mean ones, plus noise times its size."""
    names = ("mean", "noise", "std", "action")

    def body(b: dict[str, list[Any]]) -> dict[str, list[Any]]:
        return {"action": [m + n * s for m, n, s in zip(b["mean"], b["noise"], b["std"], strict=True)]}

    return record("act", [Buffer(name, actions) for name in names], body, "float32")


def copy() -> Program:
    """Record a copy."""
    return record("copy", [Buffer("x", 1), Buffer("y", 1)], lambda b: {"y": [b["x"][0]]}, "float32")


class Acting(Networks):
    """A policy and a value network through all steps of a rollout: `launch` makes them.

    `launches` are the runs of the steps' physics, and `rows` has the rollout's tensors: "noise" (T, N, A) is read,
    "action" (T, N, A) and "value" (T, N) are filled.
    """

    def __init__(
        self, networks: Sequence[Network], theta: Tensor, rounded: bool, launches: Sequence[Callable[[int], None]],
        rows: Mapping[str, Tensor],
    ):  # fmt: skip
        steps, worlds, size = rows["obs"].shape
        super().__init__(networks, theta, size, rounded)
        self.blocks = worlds // FRAMES
        self.physics = cpu.Parts(launches, self.blocks)
        actions = self.outputs[0]
        self.std = torch.zeros(self.scratch.padded(actions))
        self.given = {name: rows[name] for name in ("obs", "noise", "action", "value")}
        self.given |= {"std": self.std, "order": torch.arange(FRAMES), "physics": self.physics.calls.view(-1)}
        self.kernel = build(self._plan(steps, worlds, actions))
        self.threads, self.launch = 0, PlanLaunch(self.kernel, self.given | self.tensors(1))

    def _plan(self, steps: int, worlds: int, actions: int) -> Plan:
        def here(name: str, width: int, rows: int = 1) -> Matrix:
            """Return rows of a tensor (T, N, width), of this step's worlds."""
            return Matrix(name, rows, width, width, at=(("block", FRAMES * width), ("step", worlds * width)))

        order, scratch = Matrix("order", 1, FRAMES, FRAMES), self.scratch
        forward, (mean, value) = self.steps(here("obs", self.size), order)
        noise_rows, action_rows = (scratch.matrix(FRAMES, actions) for _ in range(2))
        noise, action = (scratch.matrix(actions, FRAMES) for _ in range(2))
        where = ("block", FRAMES), ("step", worlds)
        one = (
            *forward,
            Gather(noise_rows, here("noise", actions), order),
            Transpose(noise, noise_rows),
            Apply(act(actions), (mean, noise, Matrix("std", actions, FRAMES, 1, 0), action), FRAMES),
            Transpose(action_rows, action),
            Gather(here("action", actions, FRAMES), action_rows, order),
            Apply(copy(), (value, Matrix("value", 1, FRAMES, FRAMES, at=where)), FRAMES),
            Call(Matrix("physics", 1, 2, 2, at=(("block", 2 * steps), ("step", 2)))),
        )
        memories = *map(Memory, ("obs", "noise", "action", "value", "std")), *self.memories()
        memories = *memories, Memory("order", "l"), Memory("physics", "l")
        return Plan("rollout", memories, (Phase("block", self.blocks, (Loop("step", steps, one),)),))

    def __call__(self, mean: Tensor, var: Tensor, log_std: Tensor) -> None:
        """Make all steps. Observations are normalised by mean and variance (O,); noise is of the size exp(log_std)."""
        threads = min(torch.get_num_threads(), self.blocks) if cpu.team() else 1
        if self.threads < threads:
            self.threads, self.launch = threads, PlanLaunch(self.kernel, self.given | self.tensors(threads))
        self.follow(mean, var)
        torch.exp(log_std, out=self.std[: len(log_std)])
        with self.physics.ready(threads):
            self.launch(1, threads)
