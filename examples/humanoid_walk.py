"""Teach dm_control's humanoid to walk, in two runs: with a reward that leads upwards, and then with the suite's own.

    python examples/humanoid_walk.py

The humanoid begins in the air, in any posture, and falls. On the floor it earns almost nothing, whatever it tries, so
the suite's own reward says little about how to get up. The first run's reward says more: it also grows with the height
of the head. The second run starts from the networks of the first. About 35 minutes of one core of an AMD EPYC.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import gymnasium

from torch_mjenvs import Outcome, World
from torch_mjenvs.dmc.humanoid import Humanoid
from torch_mjenvs.rewards import tolerance
from torch_mjenvs.scalar import Scalar
from torch_mjenvs.training.train import main


@dataclass(frozen=True, kw_only=True)
class GettingUp(Humanoid):
    """dm_control's humanoid-walk, with an additional reward for an upright torso and a high head."""

    def outcome(self, m, before: World, action: list[Scalar], after: World) -> Outcome:
        height, up = after.data.xpos[m.body("head")][2], after.data.xmat[m.body("torso")][8]
        high = tolerance(height, (1.4, math.inf), 1.4, "linear", 0.0)
        upright = tolerance(up, (0.9, math.inf), 1.9, "linear", 0.0)
        return Outcome(super().outcome(m, before, action, after).reward + 0.5 * high * high * upright)


GETTING_UP = "TorchHumanoidGettingUp-v0"
gymnasium.register(
    GETTING_UP,
    entry_point="torch_mjenvs.envs.single_env:TorchEnv",
    vector_entry_point="torch_mjenvs.envs.vector_env:TorchVectorEnv",
    max_episode_steps=GettingUp.max_episode_steps,
    kwargs={"task": GettingUp},
)


def train(up_steps: float, walk_steps: float, out: Path, flags: Sequence[str] = ()) -> None:
    """Train both runs, of so many frames each. `flags` are further flags of `torch_mjenvs train` for both."""
    getting_up, walking = str(out / "getting-up"), str(out / "walking")
    nets = ["--actor", "256,128", "--critic", "256,128", "--activation", "elu"]
    both = ["--num-envs", "512", "--horizon", "32", "--log-std", "-0.5", *nets, *flags]
    first = ["--total-steps", str(up_steps), "--learning-rate", "5e-4", "--out", getting_up]
    second = ["--start", getting_up, "--total-steps", str(walk_steps), "--learning-rate", "2e-4", "--out", walking]
    main(["--env", GETTING_UP, *first, *both])
    main(["--env", "TorchDMC/humanoid-walk-v0", *second, *both])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--up-steps", type=float, default=60e6, help="frames of the first run")
    parser.add_argument("--walk-steps", type=float, default=15e6, help="frames of the second run")
    parser.add_argument("--out", type=Path, default=Path("runs/humanoid-walk"), help="folder of both runs")
    given, flags = parser.parse_known_args()
    train(given.up_steps, given.walk_steps, given.out, flags)
