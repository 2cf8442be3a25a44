"""Trained policies: those of `python -m torch_mjenvs train`, and those that come with the package.

A file of one is a dict that `torch.load(weights_only=True)` takes: "env", the id of its task; "weights0", "biases0" and
so on, one pair a layer, (k, out, in) and (k, 1, out), of which the first of k networks is the policy (training keeps
the value network behind it); "obs_mean" and "obs_var" (O,); and perhaps "about", what is known of it.
"""

from __future__ import annotations

import io
import itertools
import os
from importlib import resources
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

FOLDER = "policies"


class Policy(nn.Module):
    """A policy: observations (..., O), as its task gives them, to mean actions (..., A), in float32.

        policy = torch_mjenvs.pretrained("TorchAnt-v0")
        action = policy(obs)

    `env_id` is the id of its task, `about` a dict of what is known of it: scores, seed, frames. Observations are
    normalised by what they were in training and go through tanh layers. Parameters need no gradient unless you say so
    (`requires_grad_()`).
    """

    mean: Tensor
    scale: Tensor

    def __init__(
        self, env_id: str, layers: list[tuple[Tensor, Tensor]], mean: Tensor, var: Tensor, about: dict[str, Any]
    ):
        super().__init__()
        self.env_id, self.about = env_id, about
        self.layers = nn.ModuleList()
        for weight, bias in layers:
            layer = nn.Linear(weight.shape[1], weight.shape[0], device=weight.device)
            layer.weight.data, layer.bias.data = weight.clone(), bias.clone()
            self.layers.append(layer)
        self.register_buffer("mean", mean.clone())
        self.register_buffer("scale", (var + 1e-8).rsqrt())
        self.requires_grad_(False)

    def forward(self, obs: Tensor) -> Tensor:
        """Actions (..., A) for observations (..., O)."""
        x = ((obs.to(self.mean.dtype) - self.mean) * self.scale).clamp(-10, 10)
        *hidden, last = self.layers
        for layer in hidden:
            x = layer(x).tanh()
        return last(x)

    @staticmethod
    def load(path: str | os.PathLike) -> Policy:
        """The policy in a file, or in the folder of a run, on the CPU.

        Raises FileNotFoundError where there is none, ValueError for a file of something else.
        """
        file = Path(path).expanduser()
        file = file / "policy.pt" if file.is_dir() else file
        if not file.is_file():
            raise FileNotFoundError(f"there is no policy {str(file)!r}")
        return _read(file.read_bytes(), str(file))


def pretrained(env_id: str) -> Policy:
    """The trained policy of a task that comes with this package, on the CPU: `pretrained("TorchAnt-v0")`.

    `about` has "scores", the mean return of `episodes` episodes in the task and in Gymnasium's own.

    Raises ValueError for a task that none comes with.
    """
    known = pretrained_ids()
    if env_id not in known:
        raise ValueError(
            f"no trained policy of {env_id!r} comes with this package, but of {', '.join(known) or 'none'}"
        )
    file = resources.files(__package__) / FOLDER / f"{env_id}.pt"
    return _read(file.read_bytes(), str(file))


def pretrained_ids() -> list[str]:
    """The tasks for which `pretrained` has a policy."""
    folder = resources.files(__package__) / FOLDER
    names = [file.name for file in folder.iterdir()] if folder.is_dir() else []
    return sorted(name.removesuffix(".pt") for name in names if name.endswith(".pt"))


def _read(content: bytes, name: str) -> Policy:
    try:
        found = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
        count = next(k for k in itertools.count() if f"weights{k}" not in found)
        layers = [(found[f"weights{k}"][0], found[f"biases{k}"][0, 0]) for k in range(count)]
        if not layers:
            raise KeyError("weights0")
        return Policy(found["env"], layers, found["obs_mean"], found["obs_var"], found.get("about", {}))
    except Exception as error:  # damaged, or another's: torch and pickle have many ways to say so
        lacking = f": it has no {error}" if isinstance(error, KeyError) else ""
        raise ValueError(f"{name} holds no policy of `python -m torch_mjenvs train`{lacking}") from error
