"""The folder of a run's results. One process at a time writes into it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import BaseFileLock, FileLock, Timeout

LOCK = ".lock"  # it contains the number of the process that holds it; the system releases it however that process ends


@contextmanager
def folder(given: Path | None, name: str, resume: bool) -> Iterator[Path]:
    """Make the folder for results and hold it until the block ends: `given`, or runs/NAME, runs/NAME-2 and so on.

    No results are overwritten. Raises SystemExit if there is nothing to resume, if the folder has results of another
    run or another run is writing there, if no folder can be made, or if its name is not text.
    """
    try:
        str(given).encode()
    except UnicodeEncodeError as error:  # TensorBoard, and a terminal, would fail at it later
        raise SystemExit(f"--out {os.fsencode(str(given))!r} is not UTF-8: choose another name") from error
    names = _names(name)
    lock: BaseFileLock | None
    if given is None and not resume:
        out, lock = _first_free(names)
    else:
        out = given or _last(names)
        if resume and not (out / "checkpoint.pt").exists():
            raise SystemExit(f"there is nothing to resume: {out / 'checkpoint.pt'} does not exist")
        lock = _claim(out)
        if lock is None:
            raise SystemExit(f"another run{_holder(out)} writes to {out}: wait for its end, or choose another --out")
        if not resume and used(out):
            lock.release()
            on = "go on with it by --resume, or " if (out / "checkpoint.pt").exists() else ""
            raise SystemExit(f"{out} holds the results of a run: {on}choose another --out")
    try:
        yield out
    finally:
        lock.release()


def to_resume(given: Path | None, name: str) -> Path:
    """Return the checkpoint from which a run is resumed: in the folder `given`, or the last of runs/NAME and so on."""
    return (given or _last(_names(name))) / "checkpoint.pt"


def _names(name: str) -> list[Path]:
    name = name.replace(":", "-")  # of a task's module
    return [Path("runs") / name] + [Path("runs") / f"{name}-{k}" for k in range(2, 1000)]


def _last(names: list[Path]) -> Path:
    return next((out for out in reversed(names) if used(out)), names[0])


def used(out: Path) -> bool:
    """Return whether a folder holds results of a run."""
    return any((out / file).exists() for file in ("checkpoint.pt", "policy.pt", "best.pt", "result.json"))


def _first_free(names: list[Path]) -> tuple[Path, BaseFileLock]:
    for out in names:
        lock = None if used(out) else _claim(out)
        if lock and not used(out):  # looked at again: a run may have come and gone before the lock was ours
            return out, lock
        if lock:
            lock.release()
    raise SystemExit(f"{names[0]} to {names[-1]} are all taken: choose a folder by --out")


def _claim(out: Path) -> BaseFileLock | None:
    """Make a folder and return its lock; None while another run holds it."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        lock = FileLock(out / LOCK, blocking=False)
        lock.acquire()
    except Timeout:
        return None
    except OSError as error:
        raise SystemExit(f"no results can be kept in {out}: {error}") from error
    with suppress(OSError):  # Windows lets nobody write into what is locked; the number is only for messages
        (out / LOCK).write_text(f"{os.getpid()}\n")
    return lock


def _holder(out: Path) -> str:
    """Return a description of who holds a folder's lock, or "" if that is not known."""
    try:
        return f" (process {int((out / LOCK).read_text())})"
    except (OSError, ValueError):
        return ""
