"""How much more memory this process may use, so that requests that are too large are refused before they start.

Linux hands out memory that is not there and later kills the process that writes to it. Containers, batch systems and
shells set limits of their own, below what the machine has: control groups (version 1 and 2, those of all ancestors),
Slurm's `--mem` and `--mem-per-cpu`, and `ulimit -v` and `-d`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import NamedTuple

ROOT = Path("/")  # where /proc and /sys are; tests have others
UNLIMITED = 2**60  # version 1 of control groups writes "no limit" as a number near 2**63


class Limit(NamedTuple):
    """A limit on memory: the bytes that it leaves to this process, and its name for the user."""

    left: int
    name: str


def available() -> Limit | None:
    """The tightest limit on further memory of this process; None if none can be read, as on other than Linux."""
    return min(_limits(), default=None)


def _limits() -> Iterator[Limit]:
    swap = 0
    for numbers in _read_numbers("proc/meminfo", unit=1024):
        swap = numbers.get("SwapFree", 0)
        if "MemAvailable" in numbers:
            yield Limit(numbers["MemAvailable"] + swap, "this machine")
    yield from _control_groups(swap)
    for status in _read_numbers("proc/self/status", unit=1024):
        yield from _user_limits(status)
        yield from _slurm(status)


def _read_numbers(path: str, unit: int = 1) -> Iterator[dict[str, int]]:
    """The numbers by name in a file of lines such as "VmRSS:  1024 kB"; nothing where it cannot be read."""
    try:
        lines = (ROOT / path).read_text().splitlines()
    except (OSError, ValueError):
        return
    words = [line.replace(":", " ").split() for line in lines]
    yield {x[0]: int(x[1]) * unit for x in words if len(x) > 1 and x[1].isdecimal()}


def _control_groups(swap: int) -> Iterator[Limit]:
    """The limits of the control groups that this process is in, and of all that hold those. See cgroups(7)."""
    for folder, version in _group_folders():
        names = ("memory.max", "memory.current") if version == 2 else ("memory.limit_in_bytes", "memory.usage_in_bytes")
        limit, used = (_number(folder / name) for name in names)
        if limit is None or used is None or limit >= UNLIMITED:
            continue
        stat = next(_read_numbers(str((folder / "memory.stat").relative_to(ROOT))), {})
        reclaimed = stat.get("inactive_file" if version == 2 else "total_inactive_file", 0)  # the kernel drops it first
        left = limit - used + reclaimed + _group_swap(folder, version, swap, limit - used)
        yield Limit(max(0, left), f"the control group's limit of {limit / 2**30:.1f} GiB")


def _group_swap(folder: Path, version: int, swap: int, left: int) -> int:
    """The part of the machine's free swap that a control group may take."""
    if version == 2:
        limit, used = _number(folder / "memory.swap.max"), _number(folder / "memory.swap.current")
        return swap if limit is None or used is None else max(0, min(swap, limit - used))
    limit, used = (_number(folder / f"memory.memsw.{name}_in_bytes") for name in ("limit", "usage"))
    return swap if limit is None or used is None else max(0, min(swap, limit - used - left))


def _group_folders() -> Iterator[tuple[Path, int]]:
    """The folders of this process's memory control group and of its ancestors, each with the version, 1 or 2."""
    try:
        groups = (ROOT / "proc/self/cgroup").read_text().splitlines()
        mounts = (ROOT / "proc/self/mountinfo").read_text().splitlines()
    except (OSError, ValueError):
        return
    for line in groups:
        number, controllers, path = line.split(":", 2)
        version = 2 if number == "0" and not controllers else 1
        if version == 2 or "memory" in controllers.split(","):
            for mounted, at in _mounts(mounts, version):
                inside = PurePosixPath(path)  # in a container, the mount may begin at the group itself
                below = inside.relative_to(mounted) if inside.is_relative_to(mounted) else PurePosixPath()
                if ".." in below.parts:  # a group outside of what this process can see
                    below = PurePosixPath()
                for folder in (below, *below.parents):
                    yield ROOT / at.lstrip("/") / folder, version


def _mounts(lines: list[str], version: int) -> Iterator[tuple[str, str]]:
    """List the mounts of memory control groups: the group that is at the mount point, and the mount point."""
    for line in lines:
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        wanted = kind == "cgroup2" if version == 2 else kind == "cgroup" and "memory" in options.split(",")
        if wanted:
            _, _, _, mounted, at, *_ = before.split(" ")
            yield mounted, at


def _number(file: Path) -> int | None:
    """The whole number in a file; None if there is none, as for "max"."""
    try:
        return int(file.read_text())
    except (OSError, ValueError):
        return None


def _user_limits(status: Mapping[str, int]) -> Iterator[Limit]:
    """The limits of `ulimit -v`, on addresses, and `ulimit -d`, on data."""
    try:
        import resource
    except ImportError:  # Windows
        return
    for kind, used, flag in ((resource.RLIMIT_AS, "VmSize", "v"), (resource.RLIMIT_DATA, "VmData", "d")):
        limit, _ = resource.getrlimit(kind)
        if limit != resource.RLIM_INFINITY and used in status:
            yield Limit(max(0, limit - status[used]), f"`ulimit -{flag}` of {limit / 2**30:.1f} GiB")


def _slurm(status: Mapping[str, int]) -> Iterator[Limit]:
    """The limit that a Slurm job asked for on this node, in megabytes; its daemon may end jobs that pass it."""
    names = ("SLURM_MEM_PER_NODE", "SLURM_MEM_PER_CPU", "SLURM_CPUS_ON_NODE")
    node, each, cpus = (int(x) if (x := os.environ.get(name, "")).isdecimal() else 0 for name in names)
    if limit := (node or each * cpus) * 2**20:  # 0: all that the node has
        yield Limit(max(0, limit - status.get("VmRSS", 0)), f"the Slurm job's memory of {limit / 2**30:.1f} GiB")
