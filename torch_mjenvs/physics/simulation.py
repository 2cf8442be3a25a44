"""Simulation: compiled, batched stepping of any supported model. The one file of physics that knows of torch and
kernels.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import mujoco
import torch

from ..calls import exclusive, lasting, lock
from ..checks import as_count, as_mask, as_tensor, check_memory
from ..compiler import devices, launch, source
from ..compiler.program import Buffer, Program, record
from ..compiler.scalar import absolute, select
from .data import FIELDS, Data
from .derived import Derived, derive
from .loading import load
from .model import Model
from .params import Columns, as_rows, check_names, sensible
from .precision import PRECISIONS, Precision
from .spatial import MAXVAL
from .step import State, step


def precision_of(dtype: torch.dtype) -> Precision:
    """What its rounding lets the solver do."""
    return PRECISIONS[str(dtype).removeprefix("torch.")]


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


def _buffers(m: Model, shapes: Mapping[str, tuple[int, ...]], vary: tuple[str, ...]) -> list[Buffer]:
    state = [Buffer(name, size) for name, size in zip(STATE, (m.nq, m.nv, m.nv, m.nu), strict=True)]
    outputs = [Buffer(name, torch.Size(shape).numel()) for name, shape in shapes.items()]
    return state + (param_buffers(Columns(m, vary)) if vary else []) + outputs


def param_buffers(columns: Columns) -> list[Buffer]:
    """What varies from world to world, and what is derived from it."""
    return [Buffer("params", columns.size), Buffer("derived", len(columns.derived))]


def _floats(xs: list) -> list:
    return [float(x) if isinstance(x, int) else x for x in xs]


def _kernel(
    m: Model,
    dtype: str,
    shapes: Mapping[str, tuple[int, ...]],
    stepping: bool,
    device: torch.device,
    vary: tuple[str, ...],
) -> launch.Kernel:
    name, outputs = "step" if stepping else "forward", tuple(shapes)
    origin = source.origin(m.key, f"{outputs} {vary}")

    def make() -> Program:
        return program(m, dtype, outputs, stepping, vary)

    return devices.build_known(device, name, _buffers(m, shapes, vary), dtype, origin, make)


def program(
    model: Model, dtype: str, outputs: tuple[str, ...] = (), stepping: bool = True, vary: tuple[str, ...] = ()
) -> Program:
    """One step, or one forward evaluation, of the model, recorded."""
    precision = PRECISIONS[dtype]

    def body(b: dict[str, list]) -> dict[str, list]:
        m = Columns(model, vary).world(b["params"], b["derived"]) if vary else model

        def computed(d: Data) -> dict[str, list]:
            return {name: _floats(_flat(_mass_matrix(m, d) if name == "M" else getattr(d, name))) for name in outputs}

        warmstart = [select(absolute(x) <= MAXVAL, x, 0.0) for x in b["qacc_warmstart"]]  # NaN would stay for ever
        if not stepping:
            given = {name: b[name] for name in STATE} | {"qacc_warmstart": warmstart, "precision": precision}
            return computed(Derived(m, **given))
        s = step(m, State(b["qpos"], b["qvel"], warmstart), b["ctrl"], precision=precision)
        last = s.last["qpos"], s.last["qvel"], s.last["qacc"]
        out = computed(derive(m, *last, b["ctrl"], precision))
        if "qacc" in out:  # after a Runge-Kutta step MuJoCo leaves the mean over its stages there, in this field alone
            out["qacc"] = s.last["mean_qacc"]
        return {"qpos": s.qpos, "qvel": s.qvel, "qacc_warmstart": s.qacc_warmstart} | out

    buffers = _buffers(model, output_shapes(model, outputs), vary)
    return record("step" if stepping else "forward", buffers, body, dtype)


def set_const_kernel(columns: Columns, dtype: str, device: torch.device) -> launch.Kernel:
    """What computes the columns that are derived from parameters."""
    name, buffers = "set_const", param_buffers(columns)

    def make() -> Program:
        return record(name, buffers, lambda b: {"derived": columns.derive(b["params"])}, dtype)

    origin = source.origin(columns.model.key, f"set_const {columns.names}")
    return devices.build_known(device, name, buffers, dtype, origin, make)


def refuse_unvaried(values: Mapping[str, Any], varied: Mapping[str, Any], owner: str) -> None:
    """Raises ValueError for a name that does not vary."""
    for name in values:
        if name not in varied:
            raise ValueError(f"{name!r} does not vary in {owner}: pass vary=({name!r},) when making it")


class Params:
    """The parameters that vary, and what is derived from them, in the buffers `params` and `derived`."""

    def __init__(self, columns: Columns, buffers: Mapping[str, torch.Tensor], num_worlds: int):
        self.columns, self._num_worlds = columns, num_worlds
        self._params, self._derived = buffers["params"], buffers["derived"]
        self._views = self._make_views()
        nominal = torch.tensor(columns.nominal(), dtype=self._params.dtype, device=self._params.device)
        self._params.copy_(nominal[:, None].expand_as(self._params))
        kernel = set_const_kernel(columns, str(self._params.dtype).removeprefix("torch."), self._params.device)
        self._set_const = kernel.bind({"params": self._params, "derived": self._derived})
        self._followed = -1  # the version of the parameters that the derived columns are of
        self.follow()

    @property
    def views(self) -> dict[str, torch.Tensor]:
        """(N, ...) by name; made anew in code that torch compiles."""
        return self._make_views() if torch.compiler.is_compiling() else self._views

    def _make_views(self) -> dict[str, torch.Tensor]:
        columns, shapes = self._params, self.columns.shapes
        return {
            name: columns[at].view(*shapes[name], columns.shape[1]).movedim(-1, 0)[: self._num_worlds]
            for name, at in self.columns.places().items()
        }

    def set(self, values: Mapping[str, Any], mask: torch.Tensor | None) -> None:
        """As `Simulation.set_params`."""
        n, device = self._num_worlds, self._params.device
        chosen = None if mask is None else as_mask("mask", mask, n, device)
        self.follow()
        new = {}
        for name, x in values.items():
            old = self.views[name]
            new[name] = as_tensor(name, x, old.shape, device, old.shape[1:]).to(old.dtype).expand(old.shape)
        for name, rule, holds in sensible(self.columns.model, as_rows(self.columns.model, new)):
            wrong = torch.as_tensor(holds, device=device).logical_not().expand(n)
            worlds = (wrong if chosen is None else wrong & chosen).nonzero().flatten().tolist()
            if worlds:
                raise ValueError(f"{name} of world {worlds[0]} makes no sense: {rule}")
        for name, x in new.items():
            old = self.views[name]
            keep = None if chosen is None else chosen.view(-1, *[1] * (old.dim() - 1))
            old.copy_(x if keep is None else torch.where(keep, x, old))
        if chosen is None or torch.compiler.is_compiling():
            return
        derived = self._derived[:, :n].clone()  # of the others, which stay as they are to the last bit
        self.follow()
        self._derived[:, :n].copy_(torch.where(chosen, self._derived[:, :n], derived))

    def set_const(self) -> None:
        """Compute what is derived, in every world."""
        launch.settle(self._params)
        self._set_const()

    def follow(self) -> None:
        """Have what is derived follow the parameters, if torch wrote into them."""
        if not torch.compiler.is_compiling() and self._params._version != self._followed:
            self._set_const()
            self.followed()

    def followed(self) -> None:
        """What is derived is that of the present parameters."""
        self._followed = self._params._version


class Simulation:
    """`num_worlds` copies of a MuJoCo model, stepped together by code compiled for that model.

    model: an `mujoco.MjModel`, an MJCF string, or a path. outputs: names of further `mjData` fields to compute.
    vary: names of the model's parameters that may differ from world to world, as `body_mass`: `params` has a tensor
    (N, ...) for each, which holds the model's values at first.

    `qpos (N, nq)`, `qvel (N, nv)`, `qacc_warmstart (N, nv)`, `ctrl (N, nu)` and a tensor for each output, (N, ...), are
    attributes, in MuJoCo's order and units. They keep their addresses for the simulation's life: write into them, and
    read them before the next call overwrites them. As in MuJoCo, outputs after `step` belong to the state *before* an
    Euler step, or to the last stage of a Runge-Kutta step; `forward` computes them for the present state.

    Raises `UnsupportedModel`, naming the element, if the model asks for a feature that is not there; ValueError for an
    unknown output, a parameter that cannot vary, an unknown dtype or device, or a number of worlds below 1; MemoryError
    for more worlds than the machine can hold; in calls AlreadyPendingCallError while another Python thread is in one.
    """

    @lasting
    def __init__(
        self,
        model: mujoco.MjModel | str | os.PathLike,
        num_worlds: int,
        device: torch.device | str | None = None,
        dtype: torch.dtype = torch.float32,
        outputs: Sequence[str] = (),
        vary: Sequence[str] = (),
    ):
        num_worlds = as_count("num_worlds", num_worlds)
        self.device, self.dtype = devices.choose_device(device), check_dtype(dtype)
        self.outputs = (outputs,) if isinstance(outputs, str) else tuple(dict.fromkeys(outputs))
        unknown = [name for name in self.outputs if name not in OUTPUTS]
        if unknown:
            raise ValueError(f"unknown outputs {unknown}: choose from {sorted(OUTPUTS)}")
        self.num_worlds, self._lock = num_worlds, lock()
        self.model = load(model)
        self._name = str(dtype).removeprefix("torch.")
        self._shapes = output_shapes(self.model, self.outputs)
        self.vary = check_names(self.model, vary)
        needed = launch.bytes_a_world(_buffers(self.model, self._shapes, self.vary), dtype)
        check_memory("num_worlds", num_worlds, needed, self.device)
        kernel = _kernel(self.model, self._name, self._shapes, True, self.device, self.vary)
        self._buffers = {b.name: kernel.allocate(b, num_worlds) for b in kernel.buffers}
        self._views = {name: self._view_of(name) for name in self._buffers}
        self._step = kernel.bind(self._buffers)
        self._forward: launch.Launch | None = None
        self._start = launch.keeps_its_place(torch.tensor(self.model.qpos0, dtype=dtype, device=self.device))
        self._written: tuple[str, ...] = STATE  # what users write into
        self._params: Params | None = None
        if self.vary:
            self._written += ("params",)
            self._params = Params(Columns(self.model, self.vary), self._buffers, num_worlds)
        self.reset()

    @property
    def params(self) -> dict[str, torch.Tensor]:
        """By name, the parameters that vary: (N, ...), at fixed addresses.

        What mj_setConst derives from them follows by itself, at the next call after they were written into; but not in
        code that torch compiles, nor in a CUDA graph: call `set_const` there.
        """
        return self._params.views if self._params else {}

    @exclusive
    def set_params(self, values: Mapping[str, Any], mask: torch.Tensor | None = None) -> None:
        """Set parameters that vary, in every world or in those of the (N,) bool mask, after a look at what they are.

        values: by name (N, ...), or for all worlds alike (...). Raises ValueError, naming the parameter, the world and
        the rule, for values that make no sense, and for names that do not vary here; then nothing has changed.
        """
        refuse_unvaried(values, self.params, "this Simulation")
        if self._params:
            self._params.set(values, mask)

    @exclusive
    def set_const(self) -> None:
        """Compute what follows from the parameters of every world, as MuJoCo's mj_setConst."""
        if self._params:
            self._params.set_const()

    def _follow(self) -> None:
        """Have what is derived follow the parameters, if they were written into."""
        if self._params:
            self._params.follow()

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
        self._follow()
        launch.settle(*(self._buffers[name] for name in self._written))
        self._step(nstep)

    @exclusive
    def forward(self) -> None:
        """Compute the outputs for the present state and `ctrl`, advancing nothing. mj_forward."""
        if not self.outputs:
            raise ValueError("forward() has nothing to compute: name some outputs when making the Simulation")
        if self._forward is None:  # most only step
            kernel = _kernel(self.model, self._name, self._shapes, False, self.device, self.vary)
            self._forward = kernel.bind(self._buffers)
        self._follow()
        launch.settle(*(self._buffers[name] for name in self._written))
        self._forward()

    @exclusive
    def reset(self, mask: torch.Tensor | None = None) -> None:
        """Put every world, or those of the (N,) bool mask, into the model's initial state. mj_resetData.

        Raises TypeError for a mask that is not bool, ValueError for one of another shape or device.
        """
        start = self.params.get("qpos0", self._start)
        if mask is None:  # the padding too
            self._buffers["qpos"].copy_(self._start[:, None].expand_as(self._buffers["qpos"]))
            self.qpos.copy_(start.expand_as(self.qpos))
            for name in ("qvel", "qacc_warmstart", "ctrl"):
                self._buffers[name].zero_()
            return
        chosen = as_mask("mask", mask, self.num_worlds, self.device)[:, None]
        self.qpos.copy_(torch.where(chosen, start, self.qpos))
        for x in (self.qvel, self.qacc_warmstart, self.ctrl):
            x.masked_fill_(chosen, 0.0)


def check_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype, if kernels can be made for it. Raises ValueError."""
    if dtype not in (torch.float32, torch.float64):
        raise ValueError(f"dtype must be torch.float32 or torch.float64, not {dtype!r}")
    return dtype
