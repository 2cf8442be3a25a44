"""PPO's update and its networks as compiled kernels, for the CPU: what `ppo.py` does in torch, in less time."""

from __future__ import annotations

import torch
from torch import Tensor

from ...compiler.matrices import can_build, why_no_bfloat16
from ...networks.layers import Dense, Network
from ..networks import ActorCritic
from .forward import Forward
from .losses import Loss
from .update import Learned, Update

__all__ = ["Forward", "Learned", "Loss", "Update", "networks_of", "trained", "why_no_bfloat16", "why_not"]


def why_not(device: torch.device) -> str | None:
    """Say why networks cannot be compiled for a device; None where it can."""
    if device.type != "cpu":
        return "it is for the CPU"
    return None if can_build() else "this processor has no fused multiply-add"


def networks_of(net: ActorCritic) -> tuple[Network, Network]:
    """Describe the policy and the value network of `net`, by where their weights stand in `net.theta`."""
    policy: list[Dense] = []
    value: list[Dense] = []
    for k, (weights, biases) in enumerate(zip(net.weights, net.biases, strict=True)):
        last = k == len(net.weights) - 1
        for i, layers in enumerate((policy, value)):
            outputs = 1 if last and layers is value else weights.shape[1]
            weight, bias = int(weights[i].storage_offset()), int(biases[i].storage_offset())
            layers.append(Dense(weights.shape[2], outputs, weight, bias, "none" if last else "tanh"))
    return Network(tuple(policy)), Network(tuple(value))


def trained(net: ActorCritic) -> Tensor | None:
    """Return 1 for each number of `net.theta`, and 0 for weights of what a network does not see; None where all count.
    """
    if net.unseen is None:
        return None
    found, weights = torch.ones_like(net.theta), net.weights[0]
    found[: weights.numel()].view_as(weights).masked_fill_(net.unseen, 0.0)  # they come first in theta
    return found
