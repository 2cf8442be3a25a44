"""Frames a second of one and of two Ray workers on this machine, and of one process: the table of docs/many_nodes.md.

    python -m benchmarks.many_nodes --write

A worker has one core. The task is HalfCheetah, whose episodes never end early; the policy is linear. The numbers of
worlds and frames are those of all workers together. Needs Ray, TorchRL and two cores, and takes about 3 minutes.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch

from .machine import Contender, cpu_model, race
from .report import number, put, table

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "many_nodes.md"
BEGIN, END = "<!-- written by python -m benchmarks.many_nodes --write -->", "<!-- end of what it wrote -->"
TASK, OBSERVATIONS, ACTIONS, EPISODE = "TorchHalfCheetah-v0", 17, 6, 1000
BATCH = 32  # steps of a world in a batch that a collector sends


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--worlds", type=int, default=1024)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--seconds", type=float, default=2.0, help="that each number is measured for in a round, at least")
    p.add_argument("--write", action="store_true", help="put the table into docs/many_nodes.md")
    args = p.parse_args()
    import ray

    sys.path.insert(0, str(ROOT / "examples"))
    paths = os.pathsep.join([str(ROOT), str(ROOT / "examples"), os.environ.get("PYTHONPATH", "")])
    # Workers that others are waiting for take no core, so there may be more of them than cores.
    ray.init(num_cpus=6, include_dashboard=False, log_to_driver=False, runtime_env={"env_vars": {"PYTHONPATH": paths}})
    kinds = {
        "one process, without Ray": threads,
        "Ray's actors, who send returns (`ray_search.py`)": search,
        "`RayCollector`, whose workers send frames": collector,
    }
    contenders = [
        Contender(f"{name}, {count}", make(args.worlds, count), threads=count if make is threads else 1)
        for name, make in kinds.items()
        for count in (1, 2)
    ]
    found = race(contenders, args.rounds, args.seconds, warmup=1.0, quiet=math.inf)
    rows = []
    for name in kinds:
        one, two = (found.summary(f"{name}, {count}")["median"] for count in (1, 2))
        rows.append([name, number(one), number(two), f"{two / one:.2f}x"])
    head = ["", "1 core", "2 cores", "ratio"]
    text = (
        f"Frames a second of HalfCheetah, {args.worlds:,} worlds in all, on {cpu_model()}; "
        f"medians of {args.rounds} rounds that took turns.\n\n{table(head, rows)}"
    )
    print(text)
    if args.write:
        put(PAGE, BEGIN, END, text)
    ray.shutdown()


def threads(worlds: int, count: int) -> Callable[[], int]:
    """An episode of every world in this process, on so many threads."""
    from multi_gpu import Search, generation

    from torch_mjenvs.training.worlds import make

    env, policy = make(TASK, worlds, "cpu"), Search(OBSERVATIONS, ACTIONS, 0)

    @torch.no_grad()
    def step() -> int:
        generation(policy, env, worlds, slice(0, worlds))
        return worlds * EPISODE

    return step


def search(worlds: int, count: int) -> Callable[[], int]:
    """The same by actors of examples/ray_search.py, which send returns and the means of observations."""
    import ray
    from multi_gpu import Search
    from ray_search import Actor

    each, policy = worlds // count, Search(OBSERVATIONS, ACTIONS, 0)
    options: Any = Actor
    actors = [options.options(num_cpus=1).remote(TASK, worlds, k * each, (k + 1) * each, 1) for k in range(count)]

    def step() -> int:
        ray.get([actor.generation.remote(ray.put(policy)) for actor in actors])
        return worlds * EPISODE

    return step


def collector(worlds: int, count: int) -> Callable[[], int]:
    """A batch of frames from TorchRL's collector."""
    from tensordict.nn import TensorDictModule
    from torchrl.collectors.distributed import RayCollector

    each = worlds // count
    policy = TensorDictModule(torch.nn.Linear(OBSERVATIONS, ACTIONS), in_keys=["observation"], out_keys=["action"])
    workers = RayCollector(
        [partial(share, k * each, each) for k in range(count)],
        policy,
        frames_per_batch=worlds * BATCH,
        total_frames=2**62,
        sync=True,
        remote_configs={"num_cpus": 1, "num_gpus": 0, "memory": 2**28},
    )
    workers.update_policy_weights_()
    batches: Iterator = iter(workers)
    return lambda: next(batches).numel()


def share(first: int, worlds: int) -> Any:
    """The worlds of a worker, from the number `first` on."""
    from torch_mjenvs import HalfCheetahEnv

    torch.set_num_threads(1)
    env = HalfCheetahEnv(worlds, first_world=first, device="cpu")
    env.set_seed(0)
    return env


if __name__ == "__main__":
    main()
