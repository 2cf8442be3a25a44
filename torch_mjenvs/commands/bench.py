"""`torch_mjenvs bench`: steps a second on this machine."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..envs.vector_env import TorchVectorEnv
from ..training.flags import count, device, positive
from ..training.originals import make_original
from ..training.worlds import make, original, task_id
from . import parser

TASKS = [f"Torch{name}-v0" for name in ("HalfCheetah", "Walker2d", "Hopper", "Ant", "Humanoid")]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run `torch_mjenvs bench`: print the steps a second of some tasks, and of their originals beside them."""
    p = parser("bench", "Steps a second under random actions, with observation, reward and autoreset.")
    p.add_argument("--env", nargs="+", type=task_id, default=TASKS, help=f"ids of tasks; default {' '.join(TASKS)}")
    p.add_argument("--num-envs", type=count, default=4096, help="number of worlds; default 4096")
    p.add_argument("--seconds", type=positive, default=2.0, help="how long to measure each number; default 2")
    p.add_argument("--device", type=device, help="default: the GPU if there is one, else the CPU")
    args = p.parse_args(arguments)
    print(f"{args.num_envs:,} worlds in float32 on {torch.get_num_threads()} threads; originals: one world\n")
    print(f"{'':28}{'made in':>10}{'steps/s here':>16}{'in the original':>17}")
    for env_id in args.env:
        start = time.perf_counter()
        env = make(env_id, args.num_envs, args.device)
        made = time.perf_counter() - start
        here = args.num_envs * calls_a_second(stepping(env), args.seconds)
        env.close()
        name = original(env_id)
        there = f"{calls_a_second(stepping_original(name), args.seconds):,.0f}" if name else "-"
        print(f"{env_id:28}{made:8.2f} s{here:16,.0f}{there:>17}", flush=True)


def calls_a_second(call: Callable[[], Any], seconds: float) -> float:
    """Measure how often a second `call` can be called, after one call to warm up."""
    call()
    start, calls = time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        call()
        calls += 1
    return calls / (time.perf_counter() - start)


def stepping(env: TorchVectorEnv) -> Callable[[], Any]:
    """Return a function that steps all worlds once, under random actions, and waits for the device."""
    env.reset(seed=0)
    # A few actions in turn: drawing new ones each time would take longer than some tasks' steps.
    some = [torch.as_tensor(env.action_space.sample(), device=env.device) for _ in range(8)]
    actions = itertools.cycle(some)
    return lambda: env.step(next(actions))[1].sum().item()


def stepping_original(name: str) -> Callable[[], Any]:
    """Return a function that steps Gymnasium's or dm_control's own task once; resets it where the episode ended."""
    env = make_original(name)
    env.reset(seed=0)
    actions = itertools.cycle([env.action_space.sample() for _ in range(8)])

    def step() -> None:
        _, _, terminated, truncated, _ = env.step(next(actions))
        if terminated or truncated:
            env.reset()

    return step
