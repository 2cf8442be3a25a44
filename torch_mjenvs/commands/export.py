"""`torch_mjenvs export`: a trained policy as ONNX, TorchScript or NumPy arrays, for a robot's computer."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from ..export import check_format
from . import acting, add_policy, parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Run `torch_mjenvs export`: write a trained policy to a file that runs without this package."""
    p = parser("export", "Write a trained policy as ONNX, TorchScript or NumPy arrays.", False)
    add_policy(p)
    p.add_argument("file", type=_file, help="the file to write: .onnx, .npz, or .pt or .ts for TorchScript")
    args, found = acting(p, arguments)
    policy = found.policy
    policy.env_id, policy.task = found.env_id, found.fields
    try:
        policy.export(args.file, found.action_space)
    except OSError as error:
        raise SystemExit(f"{args.file} could not be written: {error.strerror or error}") from error
    print(args.file)


def _file(text: str) -> Path:
    try:
        return check_format(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
