"""The kernels of a Simulation: one step, one forward evaluation, or a step with its derivatives."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from ..compiler import launch, source
from ..compiler.build import Recipe, build
from ..compiler.derivatives import NotDifferentiable
from ..compiler.functions import Pure
from ..compiler.program import Buffer, Program, record
from ..compiler.scalar import Scalar
from . import derivatives
from .algebra.nested import floats, leaves
from .columns import deciding
from .dynamics.inertia import full_m
from .kernel_request import SENSOR, STATE, KernelRequest
from .loading.size import sized, sized_at_once
from .model.data import FIELDS, Data
from .model.model import Model
from .model.precision import PRECISIONS, Precision
from .model.state import State, usable
from .step import left_by_step, step, step_and_data
from .step_function import WARM

OUTPUTS = {name: field.shape for name, field in FIELDS.items() if field.output}  # "nv" and so on: the model's sizes


def precision_of(dtype: torch.dtype) -> Precision:
    """Return the solver's precision for a dtype."""
    return PRECISIONS[launch.name_of(dtype)]


def _output(m: Model, d: Data, name: str) -> Any:
    """Return an output of a world, as nested lists."""
    if name.startswith(SENSOR):
        return d.sensordata[m.sensor(name.removeprefix(SENSOR))]
    if name == "sensordata":
        return list(d.sensordata)
    return full_m(d) if name == "M" else getattr(d, name)


def kernel_of(request: KernelRequest, dtype: str, stepping: bool, device: torch.device) -> launch.Kernel:
    """Build the kernel of one step, or of one forward evaluation."""
    name = "step" if stepping else "forward"
    origin = source.origin(request.model.digest, f"{request.outputs} {request.inputs} {request.vary}")

    def make() -> Program:
        return sized(request.model, lambda: program(request, dtype, stepping))

    return build(Recipe(name, tuple(request.buffers()), dtype, make, origin), device)


def program(request: KernelRequest, dtype: str, stepping: bool = True) -> Program:
    """Record one step, or one forward evaluation, of the model."""
    precision = PRECISIONS[dtype]

    def body(b: dict[str, list[Scalar]]) -> dict[str, list[Scalar]]:
        m, pushes = request.world(b), request.pushes(b)

        def computed(d: Data) -> dict[str, list[Scalar]]:
            return {name: floats(leaves(_output(m, d, name))) for name in request.outputs}

        act, kept = b.get("act", []), {name: b[name] for name in m.kept0}
        warmstart = usable(b["qacc_warmstart"])
        if not stepping:
            state = {name: b[name] for name in STATE} | {"qacc_warmstart": warmstart, "act": act}
            return computed(Data(m, **state, precision=precision, **kept, **pushes))
        start = State(b["qpos"], b["qvel"], warmstart, act, kept=kept)
        s, d = step_and_data(m, start, b["ctrl"], precision, **pushes)
        out = computed(d)
        if "time" in pushes:
            out["time"] = [pushes["time"] + m.timestep]
        state = {"qpos": s.qpos, "qvel": s.qvel, "qacc_warmstart": s.qacc_warmstart}
        return state | ({"act": s.act} if m.na else {}) | s.kept | out

    return record("step" if stepping else "forward", request.buffers(), body, dtype)


def linearized(request: KernelRequest, dtype: str, params: tuple[str, ...] = ()) -> Program:
    """Record one step of the model, and the derivatives of it and of the outputs: see `derivatives.Linearization`.

    params: the parameters that vary by which to differentiate. Raises UnsupportedModel, which names the feature of the
    model that has no derivatives.
    """
    precision = PRECISIONS[dtype].differentiable
    derivatives.refuse(request.model)
    reads, writes = _buffers(request, params)

    def body(b: dict[str, list[Scalar]]) -> dict[str, list[Scalar]]:
        m, act, ctrl, pushes, by = request.model, b.get("act", []), b.get("ctrl", []), request.pushes(b), []
        if request.vary:
            columns, given, derived = request.columns, b.get("params", []), b.get("derived", [])
            if set(params) & set(deciding(m)):  # what follows from them has derivatives, too
                derived = columns.derive(given)
            m, places = columns.world(given, derived), columns.places()
            by = [x for name in params for x in given[places[name]]]
        start = State(b["qpos"], b["qvel"], usable(b["qacc_warmstart"]), act)
        s = step(m, start, ctrl, precision=precision, **pushes)
        outputs: list[Scalar] = []
        if request.outputs:
            d = left_by_step(m, s, ctrl, precision, **pushes, time=0.0)
            d.constraints = [c.recomputed() for c in d.constraints]
            outputs = [x for name in request.outputs for x in floats(leaves(_output(m, d, name)))]
        at = derivatives.seeds(m, b["qpos"], b["qvel"], act, ctrl, by)
        found = derivatives.jacobian(m, at, (s.qpos, s.qvel, s.act), outputs)
        made = {"new_qpos": s.qpos, "new_qvel": s.qvel, "new_qacc_warmstart": s.qacc_warmstart, "new_act": s.act}
        made |= {name: leaves(rows) for name, rows in found.items()}
        return {name: floats(xs) for name, xs in made.items() if xs}

    try:
        return record("linearize", [*reads, *writes], body, dtype, derivatives="forward")
    except NotDifferentiable as error:
        raise derivatives.refused(request.model, error) from None


def _buffers(request: KernelRequest, params: tuple[str, ...]) -> tuple[list[Buffer], list[Buffer]]:
    """Return the buffers that a step is read from, and those of the next state and of matrices that are not empty."""
    reads = [b for b in replace(request, outputs=()).buffers() if b.size]
    sizes = {name: rows * columns for name, (rows, columns) in _matrices(request, params).items()}
    made = [replace(b, name=f"new_{b.name}") for b in reads if b.name in ("qpos", "qvel", WARM, "act")]
    return reads, [*made, *(Buffer(name, size, rows=True) for name, size in sizes.items() if size)]


def _matrices(request: KernelRequest, params: tuple[str, ...]) -> dict[str, tuple[int, int]]:
    """Return the shapes of the matrices of `Linearization`."""
    m, places = request.model, request.columns.places()
    n, ny = 2 * m.nv + m.na, sum(torch.Size(request.shapes()[name]).numel() for name in request.outputs)
    np = sum(places[name].stop - places[name].start for name in params)
    return {"A": (n, n), "B": (n, m.nu), "P": (n, np), "C": (ny, n), "D": (ny, m.nu)}


class Linearize:
    """A kernel that linearizes a step, and what is known of it: what it takes and gives, and its matrices' shapes."""

    def __init__(self, request: KernelRequest, params: tuple[str, ...], dtype: str, device: torch.device):
        origin = source.origin(request.model.digest, f"{request.outputs} {request.inputs} {request.vary} {params}")
        reads, writes = _buffers(request, params)

        def make() -> Program:
            return sized_at_once(request.model, lambda: linearized(request, dtype, params))

        recipe = Recipe("linearize", (*reads, *writes), dtype, make, origin)
        self.run = Pure(build(recipe, device), len(reads))
        self.takes, self.gives = {b.name: b.size for b in reads}, [b.name for b in writes]
        self.shapes, self.most = _matrices(request, params), 0  # worlds for which there was memory
