"""What is asked of kernels: a model, and what they read, write and let vary."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from ..compiler.program import Buffer
from ..compiler.scalar import Scalar
from .columns import Columns
from .model.data import FIELDS
from .model.model import Model
from .world_params import param_buffers

STATE = ("qpos", "qvel", "qacc_warmstart", "ctrl")
SENSOR = "sensor:"  # followed by a name: an output of that sensor alone


@dataclass(frozen=True)
class KernelRequest:
    """A request for kernels: a model, and by name further outputs, further inputs and parameters that vary.

    only: of some parameters, the rows that vary (see `Columns`).
    """

    model: Model
    outputs: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    vary: tuple[str, ...] = ()
    only: tuple[tuple[str, tuple[int, ...]], ...] = ()

    @property
    def columns(self) -> Columns:
        return Columns(self.model, self.vary, self.only)

    def world(self, b: Mapping[str, list[Scalar]]) -> Model:
        """Return a world's model."""
        return self.columns.world(b["params"], b["derived"]) if self.vary else self.model

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shapes of inputs and outputs in one world: mjData's, except that M is the whole matrix."""
        fields = {name: self._shape(name) for name in self.inputs + self.outputs}
        return {
            name: tuple(n if isinstance(n, int) else getattr(self.model, n) for n in shape)
            for name, shape in fields.items()
        }

    def _shape(self, name: str) -> tuple[str | int, ...]:
        if name.startswith(SENSOR):
            at = self.model.sensor(name.removeprefix(SENSOR))
            return (at.stop - at.start,)
        return FIELDS[name].shape

    def buffers(self) -> list[Buffer]:
        """Return the buffers of state, parameters, inputs and outputs."""
        m = self.model
        state = [Buffer(name, size) for name, size in zip(STATE, (m.nq, m.nv, m.nv, m.nu), strict=True)]
        state += [Buffer("act", m.na)] * bool(m.na) + [Buffer(name, len(x)) for name, x in m.kept0.items()]
        more = [Buffer(name, torch.Size(shape).numel()) for name, shape in self.shapes().items()]
        return state + (param_buffers(self.columns) if self.vary else []) + more

    def pushes(self, b: Mapping[str, list[Scalar]]) -> dict[str, Any]:
        """Return the inputs as `step` takes them."""
        given: dict[str, Any] = {name: b[name] for name in self.inputs}
        if "time" in given:
            (given["time"],) = b["time"]
        for name, shape in self.shapes().items():
            if name in given and len(shape) == 2:
                rows, n = shape
                given[name] = [given[name][n * i : n * i + n] for i in range(rows)]
        return given
