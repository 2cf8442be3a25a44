"""What command lines take."""

from __future__ import annotations

import argparse


def count(text: str) -> int:
    """A whole number above 0, also written as 2e7."""
    number = float(text)
    if not (number >= 1 and number.is_integer()):
        raise argparse.ArgumentTypeError(f"{text} is not a whole number above 0")
    return int(number)
