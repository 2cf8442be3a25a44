"""`torch_mjenvs score`: the returns of a trained policy, here and in Gymnasium's or dm_control's."""

from __future__ import annotations

from collections.abc import Sequence

from ..training.flags import count, device, seed
from ..training.scores import scores, show
from . import acting, add_policy, parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Run `torch_mjenvs score`: print the mean return of a trained policy, here and in the original."""
    p = parser("score", "Returns of a trained policy's mean actions, in the Torch task and in the original.", False)
    add_policy(p)
    p.add_argument("--episodes", type=count, default=100, help="episodes of each score; default 100")
    p.add_argument("--seed", type=seed, default=1, help="of the worlds' random numbers; default 1")
    text = "for the Torch task and the policy; default cpu, where the original always runs"
    p.add_argument("--device", type=device, default="cpu", help=text)
    args, found = acting(p, arguments)
    policy = found.policy.to(args.device)
    show(scores(policy, found.env_id, args.episodes, args.device, args.seed, found.fields))
