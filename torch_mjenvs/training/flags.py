"""Types of command-line flags, for argparse: each takes a flag's text, and raises ArgumentTypeError for bad values."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from typing import NoReturn

import torch


class Parser(argparse.ArgumentParser):
    """A parser that takes no abbreviations, and whose errors are one line, without the usage."""

    def __init__(self, prog: str | None = None, description: str | None = None, add_help: bool = True):
        super().__init__(prog, description=description, add_help=add_help, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        """End the process with a line that says what is wrong."""
        self.exit(2, f"{self.prog}: error: {message} (--help says what it takes)\n")


class Number:
    """A kind of number. Called with a text or a number, it returns the number, or raises ArgumentTypeError."""

    def __init__(self, kind: str, holds: Callable[[float], bool], whole: bool = False):
        """Make a kind of number: `kind` is its name in errors, "a number above 0"; `holds` tests a finite number."""
        self.kind, self.holds, self.whole = kind, holds, whole

    def __call__(self, given: str | float) -> float:
        number = _number(given)
        if not (math.isfinite(number) and self.holds(number) and (not self.whole or number == int(number))):
            raise argparse.ArgumentTypeError(f"{given} is not {self.kind}")
        return int(number) if self.whole else float(number)


def _number(given: str | float) -> float:
    """Return the number that a text means, or NaN for none. Whole numbers stay exact, however long."""
    if isinstance(given, bool):
        return math.nan
    for kind in (int, float) if isinstance(given, str) else (lambda x: x,):
        try:
            return kind(given)
        except (ValueError, OverflowError):
            pass
    return math.nan


# Whole numbers may be written as 2e7, too.
count = Number("a whole number above 0", lambda x: x >= 1, whole=True)
whole = Number("a whole number from 0 on", lambda x: x >= 0, whole=True)
positive = Number("a number above 0", lambda x: x > 0)


def seed(text: str) -> int:
    """Return a seed: a whole number from 0 on that torch accepts, as it does the few numbers after it."""
    if whole(text) > 2**63 - 10:
        raise argparse.ArgumentTypeError(f"{text} is not below 2**63 - 9, as a seed must be")
    return int(whole(text))


def groups(text: str) -> tuple[str, list[str]]:
    """Return what "critic=policy,privileged" says: who sees which groups of observations."""
    who, _, names = text.partition("=")
    if who not in ("policy", "critic") or not all(names.split(",")):
        raise argparse.ArgumentTypeError(f"{text} is not of the form policy=GROUP,GROUP or critic=GROUP,GROUP")
    return who, names.split(",")


def wandb_project(text: str) -> str:
    """Return the name of a project of Weights & Biases, after checking that its library is installed."""
    try:
        import wandb  # noqa: F401
    except ImportError as error:
        raise argparse.ArgumentTypeError("needs pip install wandb") from error
    return text


def device(text: str) -> str:
    """Return the name of one of torch's devices, cpu, cuda or cuda:1, after checking that it is there."""
    try:
        torch.empty(0, device=text)
    except (RuntimeError, AssertionError) as error:  # AssertionError: this torch was built without CUDA
        raise argparse.ArgumentTypeError(f"{text}: {str(error).splitlines()[0]}") from error
    return text
