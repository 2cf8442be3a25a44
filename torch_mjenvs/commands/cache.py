"""`torch_mjenvs cache`: show what the cache of compiled kernels holds, or clear it."""

from __future__ import annotations

import time
from collections.abc import Sequence

from ..compiler import cache
from . import parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Run `torch_mjenvs cache`: list what the cache holds, or clear it."""
    p = parser("cache", "Show what the cache of compiled kernels holds, or clear it.")
    p.add_argument("--clear", action="store_true", help="remove all that it holds")
    clear = p.parse_args(arguments).clear
    folder = cache.directory()
    if folder is None:
        print("there is no cache: the user has no home, and TORCH_MJENVS_CACHE names no folder")
        return
    found = cache.entries(folder)
    for entry in found:
        if clear:
            entry.path.unlink(missing_ok=True)
        else:
            print(f"{entry.size / 1e3:9,.0f} kB, used {_age(time.time() - entry.used)} ago: {entry.path.name}")
    what = f"{len(found)} file{'s' * (len(found) != 1)}, {sum(entry.size for entry in found) / 1e6:,.1f} MB"
    print(f"{folder}: {'removed ' * clear}{what}, of at most {cache.LIMIT / 1e6:,.0f} MB")


def _age(seconds: float) -> str:
    for unit, size in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(0, seconds):.0f} seconds"
