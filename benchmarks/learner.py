"""The compiled update of PPO beside the one in torch, in turns, on frames of real rollouts.

With "bf16" factors of products are bfloat16, where the processor gains by that; in torch they are rounded as in a run.

    python -m benchmarks.learner                          # four tasks, minibatches of 2,048 and 512
    python -m benchmarks.learner --tasks Hopper --minibatches 256 --threads 2
    python -m benchmarks.learner --tasks Humanoid --products  # also the products alone, on what lies in the caches
    python -m benchmarks.learner --device cuda            # both as the CUDA graphs that a run replays; in float32

Times are the medians of turns, of all epochs of one update. Products alone count as operations: two for each weight and
frame in each of a layer's three products, of which the first layer needs two.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from torch_mjenvs.compiler.matrices import Loop, Multiply, PlanKernel, Step, build
from torch_mjenvs.training import ppo, runs, worlds
from torch_mjenvs.training.compiled import why_no_bfloat16
from torch_mjenvs.training.networks import ROUNDED

from .machine import turns

TASKS = ("HalfCheetah", "Hopper", "Ant", "Humanoid")


def operations(agent: ppo.PPO) -> int:
    """Count the arithmetic operations of an update's products."""
    s, (observations, actions, *_) = agent.settings, agent.columns
    frames = len(agent.frames) // s.minibatch * s.minibatch
    networks = (observations, *s.actor, actions), (observations, *s.critic, 1)
    layers = [[i * o for i, o in itertools.pairwise(widths)] for widths in networks]
    return 2 * sum(3 * sum(sizes) - sizes[0] for sizes in layers) * frames * s.epochs


def products_of(steps: Sequence[Step]) -> tuple[Step, ...]:
    """Return the products among steps, in the loops that they are in."""
    found = (replace(x, steps=products_of(x.steps)) if isinstance(x, Loop) else x for x in steps)
    return tuple(x for x in found if isinstance(x, Multiply) or (isinstance(x, Loop) and x.steps))


def products_alone(update: PlanKernel) -> PlanKernel:
    """Return an update's kernel with nothing left but its products, whose factors then stay in the caches."""
    phases = [replace(x, steps=products_of(x.steps)) for x in update.plan.phases]
    return build(replace(update.plan, name="products alone", phases=tuple(x for x in phases if x.steps)))


def clock(threads: int, device: torch.device) -> Callable[[], float]:
    """Return the clock to time with: the processor's time for one thread, which other work disturbs less.

    On a GPU it first waits until the GPU has done all its work.
    """
    if device.type == "cpu":
        return time.process_time if threads == 1 else time.perf_counter

    def after_all() -> float:
        torch.cuda.synchronize(device)
        return time.perf_counter()

    return after_all


@torch.no_grad()
def compared(
    task: str, minibatch: int, rounds: int, threads: int, products: bool, device: torch.device
) -> tuple[list[float], int]:
    """Return the medians of seconds of an update in torch and of compiled ones, and the operations in it.

    With `products`, the compiled ones are followed by their products alone.
    """
    env_id = f"Torch{task}-v0"
    settings = ppo.Settings(**runs.settings(env_id, minibatch=minibatch))
    torch.manual_seed(0)
    env = worlds.make(env_id, settings.num_envs, str(device))
    rounded = [False] if device.type == "cuda" or why_no_bfloat16() else [False, True]
    first = 4 if device.type == "cuda" else 1  # turns that allocate, and on a GPU capture a graph
    agents = [ppo.PPO(env, settings, seed=0, compiled=False)]
    for alone in [False, True][: 1 + products]:
        for kind in rounded:
            agents.append(ppo.PPO(env, settings, seed=0, compiled=True, rounded=kind))
            if alone:
                made = agents[-1].compiled_update.kernels(threads)
                made.kernels = [products_alone(made.kernels[0])]
    agents[0].prepare(agents[0].rollout())
    frames, start = agents[0].frames.clone(), agents[0].net.theta.clone()

    def restore(k: int) -> None:
        agents[k].net.theta.copy_(start)
        agents[k].frames.copy_(frames)  # counts as new frames, which every update needs

    updates = {k: agent.update for k, agent in enumerate(agents)}
    times = turns(updates, rounds, before=restore, clock=clock(threads, device), first=first)
    count = operations(agents[0])
    env.close()
    return [statistics.median(found) for found in times.values()], count


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=TASKS)
    parser.add_argument("--minibatches", nargs="+", type=int, default=[2048, 512])
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--products", action="store_true", help="also time an update's products alone")
    parser.add_argument("--device", type=torch.device, default=torch.device("cpu"))
    args = parser.parse_args()
    if args.products and args.device.type != "cpu":
        parser.error("--products is for the CPU")
    torch.set_num_threads(args.threads)
    torch.set_float32_matmul_precision(ROUNDED)  # as a run does
    print("| task | minibatch | torch, ms | float32, ms | ratio | GFlop/s | bf16, ms | ratio | GFlop/s |")
    print("| --- | --: | --: | --: | --: | --: | --: | --: | --: |")
    for task in args.tasks:
        for minibatch in args.minibatches:
            given = args.turns, args.threads, args.products, args.device
            (theirs, *ours), count = compared(task, minibatch, *given)
            kinds = {task: ours[: len(ours) // (1 + args.products)]}
            kinds |= {f"{task}, products alone": ours[len(ours) // 2 :]} if args.products else {}
            for name, times in kinds.items():
                row = [name, f"{minibatch:,}", f"{theirs * 1e3:.0f}"]
                for x in times:
                    row += [f"{x * 1e3:.0f}", f"{theirs / x:.2f}x", f"{count / x / 1e9:.0f}"]
                print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
