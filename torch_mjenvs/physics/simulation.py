"""Simulation: compiled, batched stepping of any supported model. The one file of physics that knows of torch and
kernels.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import mujoco
import torch

from ..calls import exclusive, lasting, turn
from ..checks import as_count, as_mask, check_memory
from ..compiler import devices, launch, source
from ..compiler.program import Buffer, Program, record
from ..compiler.scalar import absolute, select
from .data import FIELDS, Data
from .derived import Derived, derive
from .loading import load
from .model import Model
from .spatial import MAXVAL
from .step import State, step


def in_precision(m: Model, dtype: torch.dtype) -> Model:
    """The model with what rounding lets the solver do: where it stops, and how stiff a contact may be.

    As it is loaded, it is for float64.
    """
    return replace(m, tolerance=1e-6, stiff=1e3, stiffest=1e4) if dtype == torch.float32 else m


def _mass_matrix(m: Model, d: Data) -> list:
    full = [[0.0] * m.nv for _ in range(m.nv)]
    for i, row in enumerate(d.M):
        for j, x in row.items():
            full[i][j] = full[j][i] = x
    return full


OUTPUTS = {name: field.shape for name, field in FIELDS.items() if field.output}  # "nv" and so on as the model has them


def _flat(x: Any) -> list:
    return [y for part in x for y in _flat(part)] if isinstance(x, (list, tuple)) else [x]


def output_shapes(m: Model, outputs: tuple[str, ...]) -> dict[str, tuple[int, ...]]:
    """The shape of each output in one world: mjData's, for M the whole matrix."""
    return {name: tuple(n if isinstance(n, int) else getattr(m, n) for n in OUTPUTS[name]) for name in outputs}


STATE = ("qpos", "qvel", "qacc_warmstart", "ctrl")


def _buffers(m: Model, shapes: Mapping[str, tuple[int, ...]]) -> list[Buffer]:
    state = [Buffer(name, size) for name, size in zip(STATE, (m.nq, m.nv, m.nv, m.nu), strict=True)]
    return state + [Buffer(name, torch.Size(shape).numel()) for name, shape in shapes.items()]


def _floats(xs: list) -> list:
    return [float(x) if isinstance(x, int) else x for x in xs]


def _kernel(
    m: Model, dtype: str, shapes: Mapping[str, tuple[int, ...]], stepping: bool, device: torch.device
) -> launch.Kernel:
    name, outputs = "step" if stepping else "forward", tuple(shapes)
    origin = source.origin(m.key, f"{outputs}")

    def make() -> Program:
        return program(m, dtype, outputs, stepping)

    return devices.build_known(device, name, _buffers(m, shapes), dtype, origin, make)


def program(m: Model, dtype: str, outputs: tuple[str, ...] = (), stepping: bool = True) -> Program:
    """One step, or one forward evaluation, of the model, recorded."""

    def computed(d: Data) -> dict[str, list]:
        return {name: _floats(_flat(_mass_matrix(m, d) if name == "M" else getattr(d, name))) for name in outputs}

    def body(b: dict[str, list]) -> dict[str, list]:
        warmstart = [select(absolute(x) <= MAXVAL, x, 0.0) for x in b["qacc_warmstart"]]  # NaN would stay for ever
        if not stepping:
            return computed(Derived(m, **{name: b[name] for name in STATE} | {"qacc_warmstart": warmstart}))
        s = step(m, State(b["qpos"], b["qvel"], warmstart), b["ctrl"])
        out = computed(derive(m, s.last["qpos"], s.last["qvel"], s.last["qacc"], b["ctrl"]))
        if "qacc" in out:  # after a Runge-Kutta step MuJoCo leaves the mean over its stages there, in this field alone
            out["qacc"] = s.last["mean_qacc"]
        return {"qpos": s.qpos, "qvel": s.qvel, "qacc_warmstart": s.qacc_warmstart} | out

    return record("step" if stepping else "forward", _buffers(m, output_shapes(m, outputs)), body, dtype)


class Simulation:
    """`num_worlds` copies of a MuJoCo model, stepped together by code compiled for that model.

    model: an `mujoco.MjModel`, an MJCF string, or a path. outputs: names of further `mjData` fields to compute.

    `qpos (N, nq)`, `qvel (N, nv)`, `qacc_warmstart (N, nv)`, `ctrl (N, nu)` and a tensor for each output, (N, ...), are
    attributes, in MuJoCo's order and units. They keep their addresses for the simulation's life: write into them, and
    read them before the next call overwrites them. As in MuJoCo, outputs after `step` belong to the state *before* an
    Euler step, or to the last stage of a Runge-Kutta step; `forward` computes them for the present state.

    Raises `UnsupportedModel`, naming the element, if the model asks for a feature that is not there; ValueError for an
    unknown output, dtype or device, or a number of worlds below 1; MemoryError for more worlds than the machine can
    hold; in calls AlreadyPendingCallError while another Python thread is in one.
    """

    @lasting
    def __init__(
        self,
        model: mujoco.MjModel | str | os.PathLike,
        num_worlds: int,
        device: torch.device | str | None = None,
        dtype: torch.dtype = torch.float32,
        outputs: Sequence[str] = (),
    ):
        num_worlds = as_count("num_worlds", num_worlds)
        self.device, self.dtype = devices.choose_device(device), check_dtype(dtype)
        self.outputs = (outputs,) if isinstance(outputs, str) else tuple(dict.fromkeys(outputs))
        unknown = [name for name in self.outputs if name not in OUTPUTS]
        if unknown:
            raise ValueError(f"unknown outputs {unknown}: choose from {sorted(OUTPUTS)}")
        self.num_worlds, self._turn = num_worlds, turn()
        self.model = in_precision(load(model), dtype)
        self._name = str(dtype).removeprefix("torch.")
        self._shapes = output_shapes(self.model, self.outputs)
        needed = launch.bytes_a_world(_buffers(self.model, self._shapes), dtype)
        check_memory("num_worlds", num_worlds, needed, self.device)
        kernel = _kernel(self.model, self._name, self._shapes, True, self.device)
        self._buffers = {b.name: kernel.allocate(b, num_worlds) for b in kernel.buffers}
        self._views = {name: self._view_of(name) for name in self._buffers}
        self._step = kernel.bind(self._buffers)
        self._forward: launch.Launch | None = None
        self._start = launch.keeps_its_place(torch.tensor(self.model.qpos0, dtype=dtype, device=self.device))
        self.reset()

    qpos = property(lambda self: self._view("qpos"), doc="(N, nq)")
    qvel = property(lambda self: self._view("qvel"), doc="(N, nv)")
    qacc_warmstart = property(lambda self: self._view("qacc_warmstart"), doc="(N, nv)")
    ctrl = property(lambda self: self._view("ctrl"), doc="(N, nu)")

    def _view_of(self, name: str) -> torch.Tensor:
        columns, worlds = self._buffers[name].shape
        shape = self._shapes.get(name, (columns,))
        return self._buffers[name].view(*shape, worlds).movedim(-1, 0)[: self.num_worlds]

    def _view(self, name: str) -> torch.Tensor:
        """As `Engine.view`: made anew in code that torch compiles."""
        return self._view_of(name) if torch.compiler.is_compiling() else self._views[name]

    def __getattr__(self, name: str) -> torch.Tensor:
        if name in self.__dict__.get("outputs", ()):
            return self._view(name)
        hint = f"; pass outputs=({name!r},) to compute it" if name in OUTPUTS else ""
        raise AttributeError(f"this Simulation has no attribute {name!r}{hint}")

    @exclusive
    def step(self, nstep: int = 1) -> None:
        """Advance every world by `nstep` steps under the present `ctrl`. mj_step."""
        nstep = as_count("nstep", nstep)
        launch.settle(*(self._buffers[name] for name in STATE))
        self._step(nstep)

    @exclusive
    def forward(self) -> None:
        """Compute the outputs for the present state and `ctrl`, advancing nothing. mj_forward."""
        if not self.outputs:
            raise ValueError("forward() has nothing to compute: name some outputs when making the Simulation")
        if self._forward is None:  # most only step
            self._forward = _kernel(self.model, self._name, self._shapes, False, self.device).bind(self._buffers)
        launch.settle(*(self._buffers[name] for name in STATE))
        self._forward()

    @exclusive
    def reset(self, mask: torch.Tensor | None = None) -> None:
        """Put every world, or those of the (N,) bool mask, into the model's initial state. mj_resetData.

        Raises TypeError for a mask that is not bool, ValueError for one of another shape or device.
        """
        if mask is None:  # the padding too
            self._buffers["qpos"].copy_(self._start[:, None].expand_as(self._buffers["qpos"]))
            for name in ("qvel", "qacc_warmstart", "ctrl"):
                self._buffers[name].zero_()
            return
        chosen = as_mask("mask", mask, self.num_worlds, self.device)[:, None]
        self.qpos.copy_(torch.where(chosen, self._start, self.qpos))
        for x in (self.qvel, self.qacc_warmstart, self.ctrl):
            x.masked_fill_(chosen, 0.0)


def check_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype, if kernels can be made for it. Raises ValueError."""
    if dtype not in (torch.float32, torch.float64):
        raise ValueError(f"dtype must be torch.float32 or torch.float64, not {dtype!r}")
    return dtype
