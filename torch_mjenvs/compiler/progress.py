"""Prints a line to stderr while something takes long, so that users see what they wait for.

On a terminal the line is updated in place, and removed when all is done; elsewhere, as in a log, there is a new one now
and then, at ever longer intervals. Nothing is printed for quick work. TORCH_MJENVS_PROGRESS=0 silences it.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterator

PATIENCE = 5.0  # seconds before the first line
SECOND = 1.0  # from one update to the next on a terminal


@contextlib.contextmanager
def progress(doing: str) -> Iterator[None]:
    """Say on stderr, while the block runs, what is being done and for how many seconds."""
    if os.environ.get("TORCH_MJENVS_PROGRESS") == "0":
        yield
        return
    done = threading.Event()
    teller = threading.Thread(target=_tell, args=(doing, done), name="torch_mjenvs progress", daemon=True)
    teller.start()
    try:
        yield
    finally:
        done.set()
        teller.join()


def _tell(doing: str, done: threading.Event) -> None:
    began, wait, said, stream = time.monotonic(), PATIENCE, False, sys.stderr
    with contextlib.suppress(OSError, ValueError, AttributeError):  # stderr was closed, or there is none
        in_place = stream.isatty()
        while not done.wait(wait):
            line = f"torch_mjenvs: {doing}, {time.monotonic() - began:.0f} s so far"
            stream.write(f"\r{line}\x1b[K" if in_place else f"{line}\n")
            stream.flush()
            wait, said = SECOND if in_place else 2 * wait, True
        if said:
            took = f"torch_mjenvs: {doing} took {time.monotonic() - began:.0f} s\n"
            stream.write("\r\x1b[K" if in_place else took)
            stream.flush()
