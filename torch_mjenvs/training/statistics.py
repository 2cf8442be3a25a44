"""Statistics of PPO's updates: those that are taken of each minibatch, in torch and compiled, and what runs plot."""

from __future__ import annotations

from torch import Tensor

# Means over a minibatch's frames: of r - 1 - log r, which approximates the divergence of the policy from the one that
# acted (Schulman, 2020), of how often the ratio r was beyond its bounds, of min(r a, clip(r) a), of value - target and
# its square, and of the target and its square.
POLICY_SUMS = ("approx_kl", "clip_fraction", "gain")
VALUE_SUMS = ("error", "error_squared", "target", "target_squared")
SUMS = POLICY_SUMS + VALUE_SUMS
STATISTICS = (*SUMS, "grad_norm")  # the norm of the gradient is that before it is clipped


def measures(means: Tensor) -> dict[str, float]:
    """Return what runs plot of STATISTICS (8,), which are means over minibatches, by their usual names."""
    of = dict(zip(STATISTICS, means.double().tolist(), strict=True))
    spread = of["target_squared"] - of["target"] ** 2
    return {
        "approx_kl": of["approx_kl"],
        "clip_fraction": of["clip_fraction"],
        "policy_loss": -of["gain"],
        "value_loss": of["error_squared"],
        "explained_variance": 1 - (of["error_squared"] - of["error"] ** 2) / spread if spread > 0 else 0.0,
        "grad_norm": of["grad_norm"],
    }
