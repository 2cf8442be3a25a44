"""Sweeps through the steps of a rollout, for all worlds at once: advantages backward, returns forward.

Shapes: T steps of N worlds. `PPO.advantages` and `PPO.returns` are the same in torch.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
from torch import Tensor

from ...compiler.matrices import Apply, Loop, Matrix, Memory, Phase, Plan, PlanLaunch, build, on_gpu
from ...compiler.program import Buffer, Program, record
from ...compiler.scalar import select

WORLDS = 64  # of a turn, which one thread does, or on a GPU a block of threads


class Sweep:
    """A program of scalars, with buffers of one number, that runs for every step in turn over tensors (T, N) by name.

    What is `carried` from step to step is (N,). With `backward` the last step comes first. It runs on `gpu`, or on the
    CPU.
    """

    def __init__(
        self, program: Program, carried: Collection[str], steps: int, worlds: int, backward: bool = False,
        gpu: torch.device | None = None,
    ):  # fmt: skip
        self.turns = -(-worlds // WORLDS)
        width = self.turns * WORLDS
        sizes = {b.name: 1 if b.name in carried else steps for b in program.buffers}
        whole = {name: torch.zeros(size, width, device=gpu) for name, size in sizes.items()}
        self.tensors = {name: x[0, :worlds] if name in carried else x[:, :worlds] for name, x in whole.items()}

        def here(name: str) -> Matrix:
            move = 0 if name in carried else -width if backward else width
            start = (steps - 1) * width if backward and name not in carried else 0
            return Matrix(name, 1, WORLDS, WORLDS, offset=start, at=(("block", WORLDS), ("step", move)))

        step = Apply(program, tuple(map(here, sizes)), WORLDS)
        phase = Phase("block", self.turns if gpu else None, (Loop("step", steps, (step,)),))
        plan = Plan(program.name, tuple(map(Memory, sizes)), (phase,))
        self.on_gpu = on_gpu.GpuPlanLaunch(on_gpu.GpuPlanKernel(plan, gpu), whole) if gpu else None
        self.on_cpu = None if gpu else PlanLaunch(build(plan), whole)

    def __call__(self, **inputs: Tensor) -> dict[str, Tensor]:
        """Copy inputs in, by name, and run. Returns all tensors by name, valid until the next call."""
        for name, x in inputs.items():
            self.tensors[name].copy_(x)
        if self.on_gpu:
            self.on_gpu()
        elif self.on_cpu:
            self.on_cpu(1, min(torch.get_num_threads(), self.turns), self.turns)
        return self.tensors


def advantages(gamma: float, lam: float) -> Program:
    """Record a step of generalised advantage estimation (Schulman et al., 2016), backward from the one after it.

    `next_value` and `next_advantage` are carried: the value of the next step's state, and its advantage.
    """

    def body(b: dict[str, list[Any]]) -> dict[str, list[Any]]:
        (reward,), (value,), (done,) = b["reward"], b["value"], b["done"]
        going_on = gamma * (1.0 - done)
        delta = reward + going_on * b["next_value"][0] - value
        advantage = delta + lam * going_on * b["next_advantage"][0]
        return {"advantage": [advantage], "next_value": [value], "next_advantage": [advantage]}

    names = ("reward", "value", "done", "next_value", "next_advantage", "advantage")
    return record("advantages", [Buffer(name, 1) for name in names], body, "float32")


def returns(gamma: float) -> Program:
    """Record a step of the sums of rewards since episodes began: plain, and with earlier rewards discounted.

    `whole` and `discounted` are carried, 0 where an episode ended; `return` and `discounted_return` are the sums before
    they become 0.
    """

    def body(b: dict[str, list[Any]]) -> dict[str, list[Any]]:
        (reward,), (done,) = b["reward"], b["done"]
        total, discounted = b["whole"][0] + reward, gamma * b["discounted"][0] + reward
        ended = done > 0.5
        return {
            "return": [total], "discounted_return": [discounted],
            "whole": [select(ended, 0.0, total)], "discounted": [select(ended, 0.0, discounted)],
        }  # fmt: skip

    names = ("reward", "done", "whole", "discounted", "return", "discounted_return")
    return record("returns", [Buffer(name, 1) for name in names], body, "float32")
