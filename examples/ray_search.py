"""The random search of multi_gpu.py on a Ray cluster: actors hold the worlds, the driver learns.

    python examples/ray_search.py --env TorchHopper-v0 --actors 2          # on this machine
    python examples/ray_search.py --actors 16 --cpus 8 --address auto      # on the cluster that this node belongs to

As with torchrun, the run is the same, bit for bit, whatever the number of actors and wherever they are. An actor
receives the policy, a few kB, draws its perturbations itself, and sends sums and returns back: messages do not grow
with the number of frames.
"""

from __future__ import annotations

import time

import ray
import torch
from multi_gpu import FRAMES, WORLDS, Search, act, generation
from torch import Tensor
from tqdm import tqdm

from torch_mjenvs.training import runs
from torch_mjenvs.training.flags import count
from torch_mjenvs.training.scores import scores
from torch_mjenvs.training.worlds import make, task_id


@ray.remote
class Actor:
    """A share of the worlds, on as many cores as it was given."""

    def __init__(self, env_id: str, worlds: int, first: int, last: int, threads: int):
        torch.set_num_threads(threads)
        self.worlds, self.mine = worlds, slice(first, last)
        self.env = make(env_id, last - first, "cpu", first_world=first)

    @torch.no_grad()
    def generation(self, search: Search) -> tuple[Tensor, Tensor]:
        """Returns of its worlds, and what it has observed."""
        return generation(search, self.env, self.worlds, self.mine)


@torch.no_grad()
def main(argv: list[str] | None = None) -> None:
    p = runs.parser(__doc__.splitlines()[0])
    p.add_argument("--actors", type=count, default=2)
    p.add_argument("--cpus", type=count, default=1, help="of each actor")
    p.add_argument("--address", help="of a cluster: auto, ray://HOST:10001; else one is started on this machine")
    args = p.parse_args(argv)
    env_id, worlds, frames = task_id(args.env), args.num_envs or WORLDS, args.total_steps or FRAMES
    if worlds % (2 * args.actors):
        raise SystemExit(f"--num-envs {worlds} cannot be shared out: use a multiple of {2 * args.actors}")
    with runs.folder(args.out, f"ray-{env_id}-{args.seed}", args.resume) as out:
        alone = {} if args.address else {"num_cpus": args.actors * args.cpus, "include_dashboard": False}
        ray.init(address=args.address or "local", log_to_driver=False, **alone)
        each, actor = worlds // args.actors, Actor.options(num_cpus=args.cpus)
        actors = [actor.remote(env_id, worlds, k, k + each, args.cpus) for k in range(0, worlds, each)]
        sample = make(env_id, 1, "cpu")
        search = Search(sample.obs.shape[1], sample.engine.layout.nu, args.seed)
        if args.resume:
            search.load_state_dict(runs.load(out / "checkpoint.pt", search.state_dict()))
        began, curve = time.perf_counter(), []
        with tqdm(total=frames, initial=int(search.count), unit="frame", unit_scale=True) as bar:
            while search.count < frames:
                now = ray.put(search)
                parts = ray.get([actor.generation.remote(now) for actor in actors])
                returns, observed = (torch.cat(part) for part in zip(*parts, strict=True))
                search.learn(search.directions(worlds), returns, observed)
                curve.append([time.perf_counter() - began, search.count, float(returns.mean())])
                bar.set_postfix_str(f"return {returns.mean():,.0f}", False)
                bar.update(search.count - bar.n)
                runs.save(search.state_dict(), out / "checkpoint.pt")
        ray.shutdown()
        runs.save_curve(out / "curve.png", f"random search, {env_id}, {worlds} worlds, {args.actors} actors", curve)
        mean, std = search.normalised()
        found = scores(lambda obs: act(search.weights, mean, std, obs), env_id, args.episodes, "cpu", args.seed)
        record = {"env": env_id, "seed": args.seed, "frames": search.count, "processes": args.actors}
        runs.report(out, found, record | {"seconds": round(time.perf_counter() - began, 1)})


if __name__ == "__main__":
    main()
