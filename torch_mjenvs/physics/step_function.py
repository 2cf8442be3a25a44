"""`StepFunction`: a physics step as a function of tensors that torch's autograd can differentiate, and its three
kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from ..compiler import source
from ..compiler.build import Recipe, build
from ..compiler.derivatives import NotDifferentiable
from ..compiler.functions import Differentiable, Pure
from ..compiler.program import Buffer, Program, record
from ..compiler.scalar import Scalar
from . import derivatives, transition
from .algebra.nested import floats
from .kernel_request import KernelRequest
from .model.model import Model
from .model.precision import PRECISIONS
from .model.state import State, usable

STATE = ("qpos", "qvel", "act")
GIVEN = (*STATE, "ctrl", "params")  # what there are derivatives by
WARM = "qacc_warmstart"
STEP, BACKWARD, TANGENT = ("transition", "backward", "tangent")
MODES = {STEP: "", BACKWARD: "reverse", TANGENT: "forward"}


def _called(start: str, buffers: Sequence[Buffer]) -> list[Buffer]:
    return [replace(b, name=f"{start}_{b.name}") for b in buffers]


def taken(request: KernelRequest) -> list[Buffer]:
    """Return the buffers from which a step is computed. Users' tensors have a row for each world; the warm start is our
    own, in the form that a step has it.
    """
    return [replace(b, rows=b.name != WARM) for b in request.buffers() if b.name != "derived" and b.size]


def accelerations(m: Model) -> Buffer:
    """Return the buffer of the accelerations where the solver ended, in each evaluation of a step."""
    return Buffer("qaccs", transition.evaluations(m) * m.nv)


def _buffers(request: KernelRequest, kind: str) -> tuple[list[Buffer], list[Buffer]]:
    """Return what a kernel reads, and what it writes."""
    reads = taken(request)
    state = [b for b in reads if b.name in STATE]
    given = [b for b in reads if b.name in GIVEN]
    ended = accelerations(request.model)
    if kind == STEP:
        return reads, [*_called("new", state), ended]
    if kind == BACKWARD:  # which does not run the solver
        return [b for b in (*reads, ended, *_called("bar", state)) if b.name != WARM], _called("to", given)
    return [*reads, *_called("dot", given)], _called("new", state)


def program(request: KernelRequest, dtype: str, kind: str) -> Program:
    """Record one step that leaves what its adjoint starts from, or that adjoint, or the step's tangents, by kind.

    Raises UnsupportedModel, which names the feature of the model that has no derivatives.
    """
    m, precision = request.model, PRECISIONS[dtype]
    if kind != STEP:
        precision = precision.differentiable
    derivatives.refuse(m)

    def model(params: list[Scalar], derived: list[Scalar]) -> Model:
        return request.columns.world(params, derived) if request.vary else m

    def body(b: dict[str, list[Scalar]]) -> dict[str, list[Scalar]]:
        pushes, params, ctrl = request.pushes(b), b.get("params", []), b.get("ctrl", [])
        derived = request.columns.derive(params) if request.vary else []
        start = State(b["qpos"], b["qvel"], usable(b[WARM]) if WARM in b else [0.0] * m.nv, b.get("act", []))
        if kind == BACKWARD:
            bars = [b.get(f"bar_{name}", []) for name in STATE]
            step = transition.Taken(model, start, ctrl, params, derived, b["qaccs"], precision, pushes)
            found = transition.adjoint(step, bars)
            return {f"to_{name}": floats(xs) for name, xs in found.items() if xs}
        after, ended = transition.transition(model(params, derived), start, ctrl, precision, **pushes)
        if kind == TANGENT:
            given = {name: b[name] for name in GIVEN if name in b}
            after = derivatives.along(given, {name: b[f"dot_{name}"] for name in given}, after)
        new = {f"new_{name}": floats(xs) for name, xs in zip(STATE, after, strict=True) if xs}
        return new | ({} if kind == TANGENT else {"qaccs": ended})

    reads, writes = _buffers(request, kind)
    try:
        return record(kind, [*reads, *writes], body, dtype, MODES[kind])
    except NotDifferentiable as error:
        raise derivatives.refused(m, error) from None


class StepFunction(Differentiable):
    """A step of a model: from rows of `takes` to the state after it and the accelerations where the solver ended.

    Its kernels are built on first use.
    """

    def __init__(self, request: KernelRequest, dtype: str, device: torch.device):
        super().__init__()
        self._request, self._dtype, self._device = request, dtype, device
        self.takes = {b.name: b.size for b in taken(request)}
        self.gives = [name for name in STATE if name in self.takes]
        self.made = [self.takes[name] for name in self.gives]
        self._given = [name for name in self.takes if name in GIVEN]

    def _build(self, kind: str) -> Pure:
        request, dtype = self._request, self._dtype
        reads, writes = _buffers(request, kind)
        origin = source.origin(request.model.digest, f"{request.inputs} {request.vary} {request.only}")
        recipe = Recipe(kind, (*reads, *writes), dtype, lambda: program(request, dtype, kind), origin)
        return Pure(build(recipe, self._device), len(reads))

    def run(self, given: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        return self._pure(STEP)(given)

    def kept(self, given: Sequence[torch.Tensor], results: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        return [*(x for name, x in zip(self.takes, given, strict=True) if name != WARM), results[-1]]

    def pull(self, kept: Sequence[torch.Tensor], bars: Sequence[torch.Tensor]) -> tuple[torch.Tensor | None, ...]:
        found = dict(zip(self._given, self._pure(BACKWARD)([*kept, *bars]), strict=True))
        return tuple(map(found.get, self.takes))

    def push(self, given: Sequence[torch.Tensor], dots: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        by_name = dict(zip(self.takes, dots, strict=True))
        return self._pure(TANGENT)([*given, *(by_name[name] for name in self._given)])
