"""`torch_mjenvs score`: what a trained policy is worth."""

from __future__ import annotations

from collections.abc import Sequence

from ..training.flags import count, device, seed
from ..training.scores import scores, show
from . import WHAT, parser, policy_of


def main(arguments: Sequence[str] | None = None) -> None:
    """The command."""
    p = parser("score", "Returns of a trained policy's mean actions, in the Torch task and in Gymnasium's own.")
    p.add_argument("what", help=WHAT)
    p.add_argument("--episodes", type=count, default=100)
    p.add_argument("--seed", type=seed, default=1)
    p.add_argument(
        "--device", type=device, default="cpu", help="for the Torch task and the policy; Gymnasium's runs on the CPU"
    )
    args = p.parse_args(arguments)
    policy = policy_of(args.what).to(args.device)
    show(scores(policy, policy.env_id, args.episodes, args.device, args.seed))
