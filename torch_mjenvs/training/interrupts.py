"""Ctrl-C and SIGTERM in a training run: it ends after the iteration in progress, once its state is saved."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType, TracebackType
from typing import Any


class Interrupts:
    """A context in which the first Ctrl-C or SIGTERM is only noted in `heard`; the second ends the process at once.

    The exit status is then the one that shells use for a signal, 130 or 143. Python receives signals only in its main
    thread: in others nothing is changed. A signal that the process ignores (nohup) stays ignored.
    """

    heard: signal.Signals | None = None

    def __enter__(self) -> Interrupts:
        self.before: dict[signal.Signals, Any] = {}
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                if signal.getsignal(number) not in (signal.SIG_IGN, None):
                    self.before[number] = signal.signal(number, self._hear)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if self.heard:
            raise SystemExit(128 + number)
        self.heard = signal.Signals(number)
        # By the descriptor: the main program may be amid a print, which must not be entered again.
        os.write(2, b"\nstopping after this iteration; once more, and at once\n")

    @property
    def status(self) -> int:
        """The exit status of a process that ended because of the signal in `heard`; 0 without one."""
        return 128 + self.heard if self.heard else 0
