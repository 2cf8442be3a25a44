"""PPO's loss by frame, over scalars: its gradient, and the statistics that come with it.

`PPO.gradient` has the same formulas in torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...compiler.program import Buffer, Program, record
from ...compiler.scalar import Scalar, absolute, clip, exp, minimum, select
from ..statistics import POLICY_SUMS, VALUE_SUMS


@dataclass(frozen=True)
class Loss:
    """The numbers of PPO's loss and step that do not change in a run."""

    clip: float
    value_weight: float
    max_grad_norm: float
    entropy: float = 0.0  # the weight of its bonus
    value_clip: float = 0.0  # distance from the rollout's value beyond which a move gains nothing; 0: no bound


def policy_loss(actions: int, loss: Loss) -> Program:
    """Record the gradient of -min(r a, clip(r) a) - entropy H of a frame, times its weight, with respect to mean action
    and log_std.

    r is the probability ratio, a the normalised advantage, H the policy's entropy.
    """
    sizes = {
        "mean": actions, "action": actions, "old_log_prob": 1, "advantage": 1, "weight": 1, "log_std": actions,
        "inv_std": actions, "advantages": 2, "mean_grad": actions, "log_std_grad": actions, "sums": len(POLICY_SUMS),
    }  # fmt: skip

    def body(b: dict[str, list[Any]]) -> dict[str, list[Any]]:
        (old_log_prob,), (advantage,), (weight,) = b["old_log_prob"], b["advantage"], b["weight"]
        noise = [(a - m) * s for a, m, s in zip(b["action"], b["mean"], b["inv_std"], strict=True)]
        log_prob = 0.0
        for n, log_std in zip(noise, b["log_std"], strict=True):
            log_prob = log_prob - (0.5 * n * n + log_std)
        log_ratio = log_prob - old_log_prob
        ratio = exp(log_ratio)
        center, scale = b["advantages"]
        advantage = (advantage - center) * scale
        gain = ratio * advantage
        bounded = clip(ratio, 1.0 - loss.clip, 1.0 + loss.clip) * advantage
        log_prob_grad = -(gain * select(gain <= bounded, weight, 0.0))
        noise_grad = [log_prob_grad * n for n in noise]
        kl = ratio - 1.0 - log_ratio
        clipped = select(absolute(ratio - 1.0) > loss.clip, weight, 0.0)
        return {
            "mean_grad": [g * s for g, s in zip(noise_grad, b["inv_std"], strict=True)],
            "log_std_grad": [
                g * n - log_prob_grad - loss.entropy * weight for g, n in zip(noise_grad, noise, strict=True)
            ],
            "sums": [kl * weight, clipped, minimum(gain, bounded) * weight],
        }

    return record("policy loss", [Buffer(name, size) for name, size in sizes.items()], body, "float32")


def value_loss(loss: Loss) -> Program:
    """Record the gradient of value_weight (v - target)² of a frame, times its weight, with respect to the value v.

    With `value_clip` the loss is the larger one of this and the same with v held to the rollout's value ± value_clip.
    """
    sizes = {"value": 1, "target": 1, "advantage": 1, "weight": 1, "value_grad": 1, "sums": len(VALUE_SUMS)}

    def body(b: dict[str, list[Any]]) -> dict[str, list[Any]]:
        (value,), (target,), (weight,) = b["value"], b["target"], b["weight"]
        error = value - target
        counts: Scalar = weight
        if loss.value_clip:
            before = target - b["advantage"][0]
            move = value - before
            held = before + clip(move, -loss.value_clip, loss.value_clip) - target
            worse = select(absolute(held) > absolute(error), 0.0, weight)  # the loss is then constant
            counts = select(absolute(move) > loss.value_clip, worse, weight)
        return {
            "value_grad": [2.0 * loss.value_weight * counts * error],
            "sums": [error * weight, error * error * weight, target * weight, target * target * weight],
        }

    return record("value loss", [Buffer(name, size) for name, size in sizes.items()], body, "float32")
