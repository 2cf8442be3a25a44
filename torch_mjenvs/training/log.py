"""The log of a run in progress: TensorBoard if it is installed, Weights & Biases on request."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

EVERY = 0.1  # seconds from one record to the next, at least; some iterations take 0.02, and a record 5 % of that


class Log:
    """A log of numbers, by name and count of frames.

    TensorBoard's files go to the run's folder (`tensorboard --logdir runs` shows all runs). `wandb` is the name of a
    project of Weights & Biases, whose library has to be installed. It raises SystemExit, when made and in calls, if
    nothing can be written, as on a full disk.
    """

    def __init__(self, out: Path, run: Mapping[str, Any], frames: int, wandb: str | None, silent: bool = False):
        """Open the log at this number of frames; a silent one writes nothing."""
        self.out, self.at = out, -math.inf
        self.tensorboard: Any = None
        self.wandb: Any = None
        if silent:
            return
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            pass
        else:  # what a run that was cut off wrote beyond the checkpoint is hidden
            with self._told():
                self.tensorboard = SummaryWriter(str(out), purge_step=frames)
        if wandb:
            import wandb as library

            self.wandb = library.init(project=wandb, name=out.name, dir=str(out), config=dict(run))

    def write(self, frames: int, values: Mapping[str, float], always: bool) -> None:
        """Log these values after this many frames; unless `always`, only if the last time was at least EVERY ago."""
        if not always and time.perf_counter() < self.at + EVERY:
            return
        self.at = time.perf_counter()
        with self._told():
            if self.tensorboard:
                for name, x in values.items():
                    self.tensorboard.add_scalar(name, x, frames)
            if self.wandb:
                self.wandb.log(dict(values) | {"frames": frames}, step=frames)

    def close(self) -> None:
        """Write out all that was logged, and close the log."""
        with self._told():
            if self.tensorboard:
                self.tensorboard.close()
            if self.wandb:
                self.wandb.finish()

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise SystemExit(f"the log in {self.out} could not be written: {error.strerror or error}") from error
