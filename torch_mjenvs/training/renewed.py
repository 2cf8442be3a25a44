"""Tables of a task that change during a run: `Task.renew_tables`."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ..envs.engine import Engine
from ..envs.task_calls import drawn
from ..envs.tasks.base import Task
from .sharing import ALONE, Share

TABLES = "tables"


class Renewed:
    """The tables of a run's worlds. If the task renews them, they are part of the run's state."""

    def __init__(self, engine: Engine, share: Share = ALONE):
        self.engine, self.share = engine, share
        own = getattr(engine.task.renew_tables, "__func__", None)
        self.active = own is not Task.renew_tables

    @torch.no_grad()
    def renew(self) -> None:
        """Give the worlds new tables after a rollout, if the task has any; processes that share a run get the same.

        Warns of a task that draws from NumPy's or Python's generator: a run's seed and its checkpoint are of torch's,
        so the run could not be repeated, nor resumed as it was, and processes that share it would differ. Raises
        ValueError for tables that the task does not have, or of another shape.
        """
        if not self.active:
            return
        task, tables = self.engine.task, self.engine.tables
        memory = {name: self.share.gathered(x.clone()) for name, x in self.engine.memory.items()}
        *before, _ = drawn()
        found = task.renew_tables(memory, {name: x.clone() for name, x in tables.items()})
        *after, _ = drawn()
        if after != before:
            text = "draws from np.random or random, which --seed and --resume do not know: draw from torch"
            warnings.warn(f"{type(task).__name__}.renew_tables {text}", stacklevel=2)
        for name, x in found.items():
            what = f"{type(task).__name__}.renew_tables: {name!r}"
            if name not in tables:
                raise ValueError(f"{what} is none of the task's tables, {[*tables]}")
            new, old = torch.as_tensor(x), tables[name]
            if new.shape != old.shape:
                raise ValueError(f"{what} has shape {tuple(new.shape)}, and tables() gave {tuple(old.shape)}")
            if not new.isfinite().all():
                raise ValueError(f"{what} has numbers that are not finite")
            old.copy_(new)

    def state_dict(self) -> dict[str, dict[str, Tensor]]:
        """Return the entry of the run's state: {"tables": ...}, or nothing if the task does not renew its tables."""
        return {TABLES: {name: x.clone() for name, x in self.engine.tables.items()}} if self.active else {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take the tables from a run's state."""
        for name, x in self.engine.tables.items() if self.active else ():
            x.copy_(state[TABLES][name])
