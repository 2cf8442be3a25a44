"""Makes OpenMP's threads spin for work while the processors are theirs, and sleep while others want them.

GNU's runtime has a thread spin for some milliseconds before it sleeps, which is the fastest way to hear of work. If
other processes want the processors, too, spinning uses up the time that the system has for the thread. When there is
work, the thread then stands in line for a processor, and all who wait for its results wait, too: several threads get
less done than one. The runtime asks how to wait (OMP_WAIT_POLICY, GOMP_SPINCOUNT) when it is loaded, and never again.
But if it has more threads than there are processors, a thread spins a hundred times only. So while other processes are
at work, a thread of ours keeps an idle team beside torch's, so that there are more threads than processors, and lets go
of it later.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

SECONDS = 1.0  # from one look to the next
SHARED, ALONE = 0.1, 0.02  # shares of its time that a thread stood in line: above the first, threads sleep; ...
LOOKS = 5  # ... below the second for this many looks in a row, they spin again
AT_LEAST = 0.05  # seconds that a thread must have wanted to run, to tell anything
STATISTICS = "/proc/thread-self/schedstat"  # nanoseconds that the thread ran, and that it stood in line
CHOSEN = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")  # if the user sets one, it is not ours to change

Start = Callable[[int, int, int, int], None]  # GOMP_parallel: a function with its argument, on this many threads


class Waiting:
    """Watches how long threads stand in line, and has them spin or sleep, whichever is better."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Begin anew, as in a forked child, which has none of its parent's threads."""
        self._due = 0.0
        self._before: tuple[int, int, int] | None = None  # thread, nanoseconds that it ran, and stood in line
        self._quiet = 0
        self._lock = threading.Lock()
        self._leave: threading.Event | None = None  # ends the thread that keeps an idle team

    @property
    def asleep(self) -> bool:
        """True while threads sleep as soon as they have no work."""
        return self._leave is not None

    def look(self, start: Start, nothing: int, threads: int) -> None:
        """Look, once a second, how the thread that calls this fares, before it starts a team of this many threads.

        `nothing` is the address of a function that does nothing.
        """
        now = time.monotonic()
        if now < self._due or not self._lock.acquire(False):
            return
        try:
            self._due = now + SECONDS
            share = self._share()
            if share is None:
                return
            self._quiet = self._quiet + 1 if share < ALONE else 0
            if share > SHARED and not self.asleep:
                self._crowd(start, nothing, (os.cpu_count() or 1) - threads + 2)
            elif self._quiet >= LOOKS and self._leave is not None:
                self._leave.set()
                self._leave = None
        finally:
            self._lock.release()

    def _share(self) -> float | None:
        """Return the share of its time since the last look that the thread stood in line; None if that is not known."""
        found = standing_in_line()
        if found is None:
            self._due = float("inf")
            return None
        before, self._before = self._before, (threading.get_ident(), *found)
        if before is None or before[0] != self._before[0]:
            return None
        ran, stood = (self._before[i] - before[i] for i in (1, 2))
        return stood / (ran + stood) if ran + stood > 1e9 * AT_LEAST else None

    def _crowd(self, start: Start, nothing: int, threads: int) -> None:
        """Keep an idle team of this many threads."""
        leave = self._leave = threading.Event()

        def keep() -> None:
            start(nothing, 0, max(2, threads), 0)
            leave.wait()  # the team stays as long as the thread that started it

        threading.Thread(target=keep, name="torch_mjenvs idle team", daemon=True).start()


def standing_in_line() -> tuple[int, int] | None:
    """Return the nanoseconds that this thread ran, and that it stood in line for a processor; None if unknown."""
    if any(name in os.environ for name in CHOSEN):
        return None
    try:
        with open(STATISTICS) as file:
            ran, stood, *_ = map(int, file.read().split())
    except (OSError, ValueError):
        return None
    return (ran, stood) if ran else None  # a kernel without these statistics has zeros


waiting = Waiting()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=waiting.forget)
