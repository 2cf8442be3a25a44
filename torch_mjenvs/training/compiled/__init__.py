"""PPO's update and networks as compiled kernels: the computation of `ppo.py`, in less time.

`on_gpu.py` has those for NVIDIA's GPUs, the other modules those for CPUs.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ...compiler.matrices import can_build, why_no_bfloat16
from ...networks.layers import Dense, Network, Norm
from ..networks import ActorCritic
from . import on_gpu
from .acting import Acting, fits
from .forward import Forward
from .losses import Loss
from .sweeps import Sweep, advantages, returns
from .update import Update

__all__ = [
    "Acting", "Forward", "Loss", "Sweep", "Update", "advantages", "fits", "networks_of", "on_gpu", "returns", "trained",
    "why_no_bfloat16", "why_not",
]  # fmt: skip


Pair = tuple[Tensor, Tensor]


def why_not(device: torch.device) -> str | None:
    """Return why networks, or on a GPU their update, cannot be compiled for a device; None if they can."""
    if device.type == "cuda":
        return None
    if device.type != "cpu":
        return "it is for CPUs and NVIDIA's GPUs"
    return None if can_build() else "this processor has no fused multiply-add"


def networks_of(net: ActorCritic) -> tuple[Network, Network]:
    """Describe the policy and the value network of `net` by the places of their weights in `net.theta`."""
    policy, value = (
        _network(layers, norms, net.activation)
        for layers, norms in zip((net.policy, net.value), net.norms, strict=True)
    )
    return policy, value


def _network(layers: Sequence[Pair], norms: Sequence[Pair], activation: str) -> Network:
    hidden = len(layers) - 1
    described: list[Norm | None] = [Norm(_place(gain), _place(shift)) for gain, shift in norms]
    kinds = [activation] * hidden + ["none"]
    return Network(
        tuple(
            Dense(weight.shape[1], weight.shape[0], _place(weight), _place(bias), kind, norm=norm)
            for (weight, bias), kind, norm in zip(layers, kinds, [*(described or [None] * hidden), None], strict=True)
        )
    )


def _place(parameter: Tensor) -> int:
    return int(parameter.storage_offset())


def trained(net: ActorCritic) -> Tensor | None:
    """Return 1 for each number of `net.theta`, or 0 for weights of what a network does not see; None if all are 1."""
    if net.unseen is None:
        return None
    found = torch.ones_like(net.theta)
    for layers, unseen in zip((net.policy, net.value), net.unseen, strict=True):
        weight = layers[0][0]
        found[weight.storage_offset() :][: weight.numel()].view_as(weight).masked_fill_(unseen, 0.0)
    return found
