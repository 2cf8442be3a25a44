"""What command lines take. Each is an argparse type."""

from __future__ import annotations

import argparse
import math

import torch


def count(text: str) -> int:
    """A whole number above 0, also written as 2e7."""
    number = _number(text)
    if not (number >= 1 and number.is_integer()):
        raise argparse.ArgumentTypeError(f"{text} is not a whole number above 0")
    return int(number)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def seed(text: str) -> int:
    """A whole number from 0 on."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text} is not a whole number from 0 on")
    return int(text)


def positive(text: str) -> float:
    """A number above 0."""
    number = _number(text)
    if not (number > 0 and math.isfinite(number)):
        raise argparse.ArgumentTypeError(f"{text} is not a number above 0")
    return number


def wandb_project(text: str) -> str:
    """The name of a project of Weights & Biases, whose library is there."""
    try:
        import wandb  # noqa: F401
    except ImportError as error:
        raise argparse.ArgumentTypeError("needs pip install wandb") from error
    return text


def device(text: str) -> str:
    """One of torch's devices that is there: cpu, cuda, cuda:1."""
    try:
        torch.empty(0, device=text)
    except (RuntimeError, AssertionError) as error:  # AssertionError: this torch was built without CUDA
        raise argparse.ArgumentTypeError(f"{text}: {str(error).splitlines()[0]}") from error
    return text
