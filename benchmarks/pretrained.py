"""Takes finished runs of `torch_mjenvs train` into the package, as the policies that `torch_mjenvs.pretrained` gives.

    python -m torch_mjenvs train --env TorchHalfCheetah-v0          # and so on; results go to runs/
    python -m benchmarks.pretrained runs/*                          # of each task the best run, with fresh scores

A run is judged by its score in Gymnasium's or dm_control's own task. The chosen run is then scored anew, in other
worlds than those that it was chosen by.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

import torch

from torch_mjenvs.policy import FOLDER, Policy
from torch_mjenvs.training.scores import interval, scores, show
from torch_mjenvs.training.worlds import original

PACKAGE = Path(__file__).resolve().parents[1] / "torch_mjenvs"
SEED = 1_000_003  # of the fresh scores
KEPT = ("env", "task", "activation", "obs_mean", "obs_var", "observation", "obs_groups")  # beside the layers
LAYERS = "weights", "biases", "gains", "shifts"


def main(argv: list[str] | None = None) -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("runs", nargs="+", type=Path)
    p.add_argument("--episodes", type=int, default=100)
    p.add_argument("--to", type=Path, default=PACKAGE / FOLDER)
    args = p.parse_args(argv)
    best: dict[str, tuple[float, Path, dict[str, Any]]] = {}
    for folder in args.runs:
        result = json.loads((folder / "result.json").read_text())
        env_id = result["env"]
        score = statistics.mean(result["scores"][original(env_id)])
        if env_id not in best or score > best[env_id][0]:
            best[env_id] = score, folder, result
    for env_id, (_, folder, result) in sorted(best.items()):
        file = args.to / f"{env_id}.pt"
        file.parent.mkdir(parents=True, exist_ok=True)
        keep(folder, result, file, args.episodes)


def keep(folder: Path, result: dict[str, Any], file: Path, episodes: int) -> None:
    """The policy of a run, without its value network, and what is known of it."""
    found = scores(Policy.load(folder), result["env"], episodes, "cpu", SEED)
    show(found)
    about = {
        "algorithm": result["algorithm"],
        "seed": result["seed"],
        "frames": result["frames"] + result.get("frames_before", 0),
        "episodes": episodes,
        "scores": {name: round(float(one.returns.mean()), 1) for name, one in found.items()},
        "intervals": {name: round(interval(one.returns), 1) for name, one in found.items()},
    }
    trained = torch.load(folder / "policy.pt", map_location="cpu", weights_only=True)
    layers = {name: x[:1].clone() for name, x in trained.items() if name.startswith(LAYERS)}
    kept = {name: trained[name] for name in KEPT if name in trained}
    torch.save({**kept, **layers, "about": about}, file)
    print(f"{file}: {file.stat().st_size / 1e3:.0f} kB, from {folder}")


if __name__ == "__main__":
    main()
