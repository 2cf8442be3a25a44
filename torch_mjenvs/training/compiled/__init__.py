"""PPO's update and its networks as compiled kernels, for the CPU: what `ppo.py` does in torch, in less time."""

from __future__ import annotations

import torch

from ...compiler.matrices import can_build
from ...networks.layers import Dense, Network
from ..networks import ActorCritic
from .forward import Forward
from .losses import Loss
from .update import Learned, Update

__all__ = ["Forward", "Learned", "Loss", "Update", "networks_of", "why_not"]


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
