"""One training run divided among several GPUs or processes: random search, which only has to exchange returns.

    torchrun --nproc-per-node 8 examples/multi_gpu.py --env TorchHalfCheetah-v0 --device cuda
    torchrun --nproc-per-node 2 examples/multi_gpu.py            # two processes on the CPU

Each process has an environment of its own on its own device. `first_world` gives it its share of the world numbers, on
which all randomness depends. So the run is the same, bit for bit, on one device or on many: every process draws the
same perturbations of one linear policy, tries its share of them in its own worlds, gathers the returns of all
processes, and makes the same step. The method is augmented random search (Mania, Guy and Recht, 2018).

Shapes: N worlds in all, n of them here, A actions, O observations.
"""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from typing import Any

import torch
import torch.distributed as dist
from gymnasium.vector import VectorEnv
from torch import Tensor
from tqdm import tqdm

from torch_mjenvs.training import runs
from torch_mjenvs.training.scores import scores
from torch_mjenvs.training.worlds import make, task_id

NOISE = 0.03  # of a perturbation
STEP = 0.02
KEPT = 0.25  # share of the directions that count: the best
WORLDS, FRAMES = 512, 50_000_000  # defaults of the command line


class Search:
    """The policy, and the state that is the same in all processes. It is small, and kept on the CPU."""

    def __init__(self, observations: int, actions: int, seed: int):
        self.seed, self.generation = seed, 0
        self.weights = torch.zeros(actions, observations)
        self.count, self.sum, self.squares = 0.0, torch.zeros(observations).double(), torch.zeros(observations).double()

    def state_dict(self) -> dict[str, Any]:
        return vars(self).copy()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        vars(self).update(state)

    def directions(self, worlds: int) -> Tensor:
        """(N / 2, A, O), the same in every process."""
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + self.generation)
        return torch.randn(worlds // 2, *self.weights.shape, generator=generator)

    def normalised(self) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation of the observations so far, (O,)."""
        if self.count == 0:
            return torch.zeros_like(self.sum).float(), torch.ones_like(self.sum).float()
        mean = self.sum / self.count
        return mean.float(), (self.squares / self.count - mean.square()).clamp(min=1e-8).sqrt().float()

    def learn(self, directions: Tensor, returns: Tensor, observed: Tensor) -> None:
        """One step, from the returns (N,) of all worlds, and their counts, sums and squares of observations."""
        plus, minus = returns.chunk(2)
        best = torch.maximum(plus, minus).topk(max(1, int(KEPT * len(plus)))).indices.sort().values
        used = torch.cat([plus[best], minus[best]])
        change = torch.einsum("k,kao->ao", plus[best] - minus[best], directions[best])
        self.weights = self.weights + STEP / (len(best) * (used.std() + 1e-6)) * change
        count, total, squares = observed.double().sum(0).tensor_split([1, 1 + len(self.sum)])
        self.count, self.sum, self.squares = self.count + float(count), self.sum + total, self.squares + squares
        self.generation += 1


def act(weights: Tensor, mean: Tensor, std: Tensor, obs: Tensor) -> Tensor:
    """Actions (n, A) of a policy for all, weights (A, O), or one for each, (n, A, O)."""
    return (weights * ((obs - mean) / std)[:, None]).sum(-1)


def episodes(env: VectorEnv, weights: Tensor, mean: Tensor, std: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    """One episode in each world: returns (n,), and count, sums and squares (n, 1 + 2 O) of what was observed."""
    obs, _ = env.reset(seed=seed)
    returns, alive = torch.zeros_like(obs[:, 0]), torch.ones_like(obs[:, 0])
    observed = torch.zeros(len(obs), 1 + 2 * obs.shape[1], device=obs.device)
    for step in range(env.spec.max_episode_steps):
        if step % 50 == 0 and not alive.any():  # seldom, since looking waits for the device
            break
        observed += alive[:, None] * torch.cat([torch.ones_like(obs[:, :1]), obs, obs.square()], 1)
        obs, reward, terminated, truncated, _ = env.step(act(weights, mean, std, obs))
        returns += alive * reward
        alive *= ~(terminated | truncated)
    return returns, observed


def generation(search: Search, env: VectorEnv, worlds: int, mine: slice) -> tuple[Tensor, Tensor]:
    """Run this process's part of a generation of `worlds` worlds: in those of `env`, whose numbers are `mine`."""
    directions, device = search.directions(worlds), env.unwrapped.device
    tried = (search.weights + NOISE * torch.cat([directions, -directions])[mine]).to(device)
    mean, std = (x.to(device) for x in search.normalised())
    return episodes(env, tried, mean, std, search.seed + search.generation)


def gathered(x: Tensor) -> Tensor:
    """The rows of all processes, in the order of the worlds, on the CPU."""
    parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, x)
    return torch.cat(parts).cpu()


def main() -> None:
    args = runs.parser(__doc__.splitlines()[0]).parse_args()
    env_id = task_id(args.env)
    ranks, rank = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))
    device = torch.device(args.device)
    if device.type == "cuda":
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
        torch.cuda.set_device(device)
    store = {} if "RANK" in os.environ else {"store": dist.HashStore(), "rank": 0, "world_size": 1}  # without torchrun
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo", **store)
    worlds, frames = args.num_envs or WORLDS, args.total_steps or FRAMES
    if worlds % (2 * ranks):
        raise SystemExit(f"--num-envs {worlds} cannot be shared out: use a multiple of {2 * ranks}")
    mine = slice(rank * worlds // ranks, (rank + 1) * worlds // ranks)
    env = make(env_id, mine.stop - mine.start, str(device), first_world=mine.start)
    search = Search(env.single_observation_space.shape[0], env.single_action_space.shape[0], args.seed)
    held, state = ExitStack(), [None]  # the folder is this process's until it ends
    if rank == 0:
        out = held.enter_context(runs.folder(args.out, f"search-{env_id}-{args.seed}", args.resume))
        state = [runs.load(out / "checkpoint.pt", search.state_dict()) if args.resume else None]
    if args.resume:
        dist.broadcast_object_list(state)
        search.load_state_dict(state[0])

    start, curve = time.perf_counter(), []
    with tqdm(total=frames, initial=int(search.count), unit="frame", unit_scale=True, disable=rank > 0) as bar:
        while search.count < frames:
            returns, observed = map(gathered, generation(search, env, worlds, mine))
            search.learn(search.directions(worlds), returns, observed)
            curve.append([time.perf_counter() - start, search.count, float(returns.mean())])
            bar.set_postfix_str(f"return {returns.mean():,.0f}", False)
            bar.update(search.count - bar.n)
            if rank == 0:
                runs.save(search.state_dict(), out / "checkpoint.pt")
    env.close()
    dist.destroy_process_group()
    if rank == 0:
        runs.save_curve(out / "curve.png", f"random search, {env_id}, {worlds} worlds, {ranks} processes", curve)
        mean, std = search.normalised()
        found = scores(lambda obs: act(search.weights, mean, std, obs), env_id, args.episodes, "cpu", args.seed)
        record = {"env": env_id, "seed": args.seed, "frames": search.count, "processes": ranks}
        runs.report(out, found, record | {"seconds": round(time.perf_counter() - start, 1)})


if __name__ == "__main__":
    with torch.no_grad():
        main()
