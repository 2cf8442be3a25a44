"""What TorchRL adds to a step: `python -m benchmarks.torchrl` prints the table of docs/torchrl.md.

HalfCheetah with actions that are drawn beforehand, on one thread; worlds of all ages, so that some episode ends in most
steps. What is timed takes turns, and the processor's time is counted, so that other work on the machine matters little.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator

import torch
from tensordict import TensorDictBase
from torchrl.collectors import Collector
from torchrl.envs import Compose, EnvBase, RewardSum, StepCounter, TransformedEnv

from torch_mjenvs import HalfCheetahEnv, TorchVectorEnv

from .machine import cpu_model

SIZES = (64, 1024, 4096)
STEPS, ROUNDS = 50, 21  # of a round; of each


def grow_old(engine) -> None:
    engine.elapsed_steps.copy_(torch.randint(1000, (engine.num_envs,)))


def engine_alone(n: int) -> Iterator[None]:
    vector = TorchVectorEnv("HalfCheetah", n, autoreset_mode="SameStep", device="cpu")
    vector.reset(seed=0)
    grow_old(vector.engine)
    vector.engine.action.uniform_(-1, 1)
    while True:
        for _ in range(STEPS):
            vector.engine.step()
        yield


def vector_env(n: int) -> Iterator[None]:
    env = TorchVectorEnv("HalfCheetah", n, autoreset_mode="SameStep", device="cpu")
    env.reset(seed=0)
    grow_old(env.engine)
    action = torch.rand(n, 6) * 2 - 1
    while True:
        for _ in range(STEPS):
            env.step(action)
        yield


def stepped(native: bool = False, transforms: bool = False, ordinary: bool = False) -> Callable[[int], Iterator[None]]:
    def run(n: int) -> Iterator[None]:
        base = HalfCheetahEnv(n, native_autoreset=native, device="cpu")
        env = TransformedEnv(base, Compose(StepCounter(), RewardSum())) if transforms else base
        td = env.reset()
        grow_old(base.engine)
        action = env.rand_action()["action"]
        while True:
            for _ in range(STEPS):
                td.set("action", action)
                _, td = EnvBase._step_and_maybe_reset(env, td) if ordinary else env.step_and_maybe_reset(td)
            yield

    return run


def collected(**arguments) -> Callable[[int], Iterator[None]]:
    def run(n: int) -> Iterator[None]:
        env = HalfCheetahEnv(n, device="cpu")
        action = env.rand_action()["action"]

        def policy(td: TensorDictBase) -> TensorDictBase:
            return td.set("action", action)

        collector = Collector(env, policy, frames_per_batch=n * STEPS, **arguments)
        grow_old(env.engine)
        for _ in collector:
            yield

    return run


ROWS = {
    "the engine alone": engine_alone,
    "`TorchVectorEnv`": vector_env,
    "`HalfCheetahEnv`": stepped(),
    "... by TorchRL's own order of step and reset": stepped(ordinary=True),
    "... with `native_autoreset=True`": stepped(native=True),
    "with StepCounter and RewardSum": stepped(transforms=True),
    "... with `native_autoreset=True` ": stepped(transforms=True, native=True),
    "in a `Collector`": collected(),
    "... with `track_traj_ids=False`": collected(track_traj_ids=False),
}


def main() -> None:
    torch.set_num_threads(1)
    seconds: dict[tuple[str, int], list[float]] = {}
    for n in SIZES:
        runs = {name: make(n) for name, make in ROWS.items()}
        for _ in range(ROUNDS + 1):
            for name, run in runs.items():
                began = time.thread_time()
                next(run)
                seconds.setdefault((name, n), []).append(time.thread_time() - began)
    print(f"{cpu_model()}, one thread\n")
    print("| | " + " | ".join(f"{n:,} worlds" for n in SIZES) + " |\n|---|" + "--:|" * len(SIZES))
    for name in ROWS:
        took = [statistics.median(seconds[name, n][1:]) / STEPS for n in SIZES]
        cells = [f"{n / t / 1e3:,.0f} k ({1e6 * t:,.0f} µs)" for n, t in zip(SIZES, took, strict=True)]
        print(f"| {name.strip()} |", " | ".join(cells), "|")


if __name__ == "__main__":
    main()
