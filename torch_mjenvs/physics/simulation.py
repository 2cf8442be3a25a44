"""Compiled, batched stepping of any supported model: all of `torch_mjenvs.Simulation` but its pictures."""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import mujoco
import torch

from ..calls import Lock, exclusive, lasting
from ..checks import as_bound, as_count, as_dtype, as_mask, as_rows, broadcast, check_memory, is_rows
from ..compiler import devices, launch, source
from ..compiler.build import Recipe, build
from ..compiler.derivatives import NotDifferentiable
from ..compiler.functions import bounded
from ..compiler.program import Buffer, Program, record
from ..compiler.scalar import Scalar
from . import derivatives
from .algebra.spatial import zeros
from .asked import SENSOR, STATE, Asked
from .derivatives import Linearization
from .loading.load import load, parse
from .loading.size import sized
from .model.data import FIELDS, Data
from .model.enums import SensorType
from .model.model import Model
from .model.precision import PRECISIONS, Precision
from .model.state import State, usable
from .params import check_names, deciding, floats, leaves
from .step import left_by_step, step
from .step_function import WARM, StepFunction
from .transition import Transition
from .world_params import Params, Varied


def precision_of(dtype: torch.dtype) -> Precision:
    """Return the solver's precision for a dtype."""
    return PRECISIONS[str(dtype).removeprefix("torch.")]


def _output(m: Model, d: Data, name: str) -> Any:
    """Return an output of a world, as nested lists."""
    if name.startswith(SENSOR):
        return d.sensordata[m.sensor(name.removeprefix(SENSOR))]
    if name == "sensordata":
        return list(d.sensordata)
    return _mass_matrix(m, d) if name == "M" else getattr(d, name)


def _mass_matrix(m: Model, d: Data) -> list[list[Scalar]]:
    full = [zeros(m.nv) for _ in range(m.nv)]
    for i, row in enumerate(d.M):
        for j, x in row.items():
            full[i][j] = full[j][i] = x
    return full


OUTPUTS = {name: field.shape for name, field in FIELDS.items() if field.output}  # "nv" and so on as the model has them


INPUTS = ("xfrc_applied", "qfrc_applied", "eq_active")
MOCAP = ("mocap_pos", "mocap_quat")  # inputs of every model that has mocap bodies
RESET = {"qpos": "qpos0", "mocap_pos": "body_pos", "mocap_quat": "body_quat"}  # of which parameters reset makes them


def _names(given: Sequence[str] | str) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(dict.fromkeys(given))


def _check_outputs(m: Model, outputs: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of outputs. Raises ValueError for one that is not known."""
    unknown = [name for name in outputs if name not in OUTPUTS and not name.startswith(SENSOR)]
    if unknown:
        choice = f"choose from {sorted(OUTPUTS)}, and 'sensor:' with the name of a sensor"
        raise ValueError(f"unknown outputs {unknown}: {choice}")
    for name in (name.removeprefix(SENSOR) for name in outputs if name.startswith(SENSOR)):
        if name not in m.sensor_names:
            known = ", ".join(map(repr, m.sensor_names)) or "none"
            raise ValueError(f"unknown output 'sensor:{name}': the model has no sensor {name!r}; it has {known}")
    return outputs


def _kernel(asked: Asked, dtype: str, stepping: bool, device: torch.device) -> launch.Kernel:
    name = "step" if stepping else "forward"
    origin = source.origin(asked.model.digest, f"{asked.outputs} {asked.inputs} {asked.vary}")

    def make() -> Program:
        return sized(asked.model, lambda: program(asked, dtype, stepping))

    return build(Recipe(name, tuple(asked.buffers()), dtype, make, origin), device)


def program(asked: Asked, dtype: str, stepping: bool = True) -> Program:
    """Record one step, or one forward evaluation, of the model."""
    precision = PRECISIONS[dtype]

    def body(b: dict[str, list[Scalar]]) -> dict[str, list[Scalar]]:
        m, pushes = asked.world(b), asked.pushes(b)

        def computed(d: Data) -> dict[str, list[Scalar]]:
            return {name: floats(leaves(_output(m, d, name))) for name in asked.outputs}

        act, kept = b.get("act", []), {name: b[name] for name in m.kept0}
        warmstart = usable(b["qacc_warmstart"])
        if not stepping:
            state = {name: b[name] for name in STATE} | {"qacc_warmstart": warmstart, "act": act}
            return computed(Data(m, **state, precision=precision, **kept, **pushes))
        start = State(b["qpos"], b["qvel"], warmstart, act, kept=kept)
        s = step(m, start, b["ctrl"], precision=precision, **pushes)
        out = computed(left_by_step(m, s, b["ctrl"], precision, **pushes))
        if "time" in pushes:
            out["time"] = [pushes["time"] + m.timestep]
        state = {"qpos": s.qpos, "qvel": s.qvel, "qacc_warmstart": s.qacc_warmstart}
        return state | ({"act": s.act} if m.na else {}) | s.kept | out

    return record("step" if stepping else "forward", asked.buffers(), body, dtype)


def linearized(asked: Asked, dtype: str, params: tuple[str, ...] = ()) -> Program:
    """Record one step of the model, and the derivatives of it and of the outputs: see `derivatives.Linearization`.

    params: those that vary by which there are derivatives. Raises UnsupportedModel, naming what of the model has none.
    """
    precision = PRECISIONS[dtype].differentiable
    derivatives.refuse(asked.model)

    def body(b: dict[str, list[Scalar]]) -> dict[str, list[Scalar]]:
        m, act, pushes, by = asked.model, b.get("act", []), asked.pushes(b), []
        if asked.vary:
            columns, derived = asked.columns, b["derived"]
            if set(params) & set(deciding(m)):  # what follows from them has derivatives, too
                derived = columns.derive(b["params"])
            m, places = columns.world(b["params"], derived), columns.places()
            by = [x for name in params for x in b["params"][places[name]]]
        start = State(b["qpos"], b["qvel"], usable(b["qacc_warmstart"]), act)
        s = step(m, start, b["ctrl"], precision=precision, **pushes)
        outputs: list[Scalar] = []
        if asked.outputs:
            d = left_by_step(m, s, b["ctrl"], precision, **pushes, time=0.0)
            d.constraints = [c.recomputed() for c in d.constraints]
            outputs = [x for name in asked.outputs for x in floats(leaves(_output(m, d, name)))]
        at = derivatives.seeds(m, b["qpos"], b["qvel"], act, b["ctrl"], by)
        found = derivatives.jacobian(m, at, (s.qpos, s.qvel, s.act), outputs)
        state = {"qpos": s.qpos, "qvel": s.qvel, "qacc_warmstart": s.qacc_warmstart}
        matrices = {name: floats(leaves(rows)) for name, rows in found.items() if leaves(rows)}
        return state | ({"act": s.act} if m.na else {}) | matrices

    try:
        return record("linearize", _linearize_buffers(asked, params), body, dtype, derivatives="forward")
    except NotDifferentiable as error:
        raise derivatives.refused(asked.model, error) from None


def _linearize_buffers(asked: Asked, params: tuple[str, ...]) -> list[Buffer]:
    """Return the buffers of a state and of the matrices of its derivatives that are not empty."""
    m, ny = asked.model, sum(torch.Size(asked.shapes()[name]).numel() for name in asked.outputs)
    n, places = 2 * m.nv + m.na, asked.columns.places()
    np = sum(places[name].stop - places[name].start for name in params)
    sizes = {"A": n * n, "B": n * m.nu, "P": n * np, "C": ny * n, "D": ny * m.nu}
    matrices = [Buffer(name, size, rows=True) for name, size in sizes.items() if size]
    return [*replace(asked, outputs=()).buffers(), *matrices]


def _linearize_kernel(asked: Asked, params: tuple[str, ...], dtype: str, device: torch.device) -> launch.Kernel:
    origin = source.origin(asked.model.digest, f"{asked.outputs} {asked.inputs} {asked.vary} {params}")
    buffers = tuple(_linearize_buffers(asked, params))
    return build(Recipe("linearize", buffers, dtype, lambda: linearized(asked, dtype, params), origin), device)


class Simulation(Varied):
    """The physics of `torch_mjenvs.Simulation`, which adds pictures, and says what its arguments and tensors are."""

    @lasting
    def __init__(
        self,
        model: mujoco.MjModel | str | os.PathLike[str],
        num_worlds: int,
        device: torch.device | str | None = None,
        dtype: torch.dtype | str = torch.float32,
        outputs: Sequence[str] = (),
        vary: Sequence[str] = (),
        inputs: Sequence[str] = (),
    ):
        num_worlds = as_count("num_worlds", num_worlds)
        self.device, self.dtype = devices.choose_device(device), as_dtype(dtype)
        outputs = _names(outputs)
        self.inputs = _names(inputs)
        unknown = [name for name in self.inputs if name not in INPUTS]
        if unknown:
            raise ValueError(f"unknown inputs {unknown}: choose from {list(INPUTS)}")
        self.num_worlds, self._lock = num_worlds, Lock()
        self._mjmodel = copy.copy(parse(model))
        self.model = load(self._mjmodel)
        if "eq_active" in self.inputs and "eq_active" in self.model.switched_off:
            raise ValueError("eq_active has no use: a disable flag of the model switches off all equality constraints")
        self.outputs = _check_outputs(self.model, outputs)
        sensors = [name.removeprefix(SENSOR) for name in self.outputs if name.startswith(SENSOR)]
        self._name = str(self.dtype).removeprefix("torch.")
        self.vary = check_names(self.model, vary)
        read = self.model.sensor_names if "sensordata" in self.outputs else sensors
        kinds = zip(self.model.sensor_names, self.model.sensor_type, strict=True)
        timed = any(kind == SensorType.CLOCK and name in read for name, kind in kinds)
        self._inputs = self.inputs + (MOCAP if self.model.nmocap else ()) + (("time",) if timed else ())
        self._state = STATE + (("act",) if self.model.na else ()) + tuple(self.model.kept0)
        self._asked = Asked(self.model, self.outputs, self._inputs, self.vary)
        self._shapes = self._asked.shapes()
        needed = launch.bytes_a_world(self._asked.buffers(), self.dtype)
        check_memory("num_worlds", num_worlds, needed, self.device)
        kernel = _kernel(self._asked, self._name, True, self.device)
        self._buffers = {b.name: kernel.allocate(b, num_worlds) for b in kernel.buffers}
        self._views = {name: self._view_of(name) for name in self._buffers}
        self._step = kernel.bind(self._buffers)
        self._forward: launch.Launch | None = None
        self._linearized = replace(self._asked, outputs=(), inputs=tuple(x for x in self._inputs if x != "time"))
        self._linearize: dict[tuple[tuple[str, ...], tuple[str, ...]], launch.Kernel] = {}
        self._transition = StepFunction(self._linearized, self._name, self.device)
        self._held: tuple[launch.Kernel, int, dict[str, torch.Tensor]] | None = None
        m, ids = self.model, [i for i, k in enumerate(self.model.body_mocapid) if k >= 0]
        start: dict[str, Sequence[Any]] = {"qpos": m.qpos0, **m.kept0}
        if "eq_active" in self.inputs:
            start["eq_active"] = [float(x) for x in m.eq_active0]
        if m.nmocap:
            start |= {"mocap_pos": [m.body_pos[i] for i in ids], "mocap_quat": [m.body_quat[i] for i in ids]}
        self._start = {
            name: launch.mark_static_address(torch.tensor(x, dtype=self.dtype, device=self.device))
            for name, x in start.items()
        }
        self._mocap_bodies = launch.mark_static_address(torch.tensor(ids, dtype=torch.int64, device=self.device))
        self._written: tuple[str, ...] = self._state + self._inputs  # what users write into
        if self.vary:
            self._params = Params(self._asked.columns, self._buffers, num_worlds)
        self.reset()

    qpos = property(lambda self: self._view("qpos"), doc="(N, nq)")
    qvel = property(lambda self: self._view("qvel"), doc="(N, nv)")
    qacc_warmstart = property(lambda self: self._view("qacc_warmstart"), doc="(N, nv)")
    ctrl = property(lambda self: self._view("ctrl"), doc="(N, nu)")

    def sensor(self, name: str) -> torch.Tensor:
        """Return what a sensor gave in every world, (N, dim): of the output `sensor:NAME`, or of `sensordata`.

        Raises KeyError for a sensor that the model does not have, ValueError for one that is not computed.
        """
        at = self.model.sensor(name)
        if f"{SENSOR}{name}" in self.outputs:
            return self._view(f"{SENSOR}{name}")
        if "sensordata" in self.outputs:
            return self._view("sensordata")[:, at]
        raise ValueError(f"sensor {name!r} is not computed; pass outputs=('{SENSOR}{name}',) to compute it")

    def _view_of(self, name: str) -> torch.Tensor:
        columns, worlds = self._buffers[name].shape
        shape = self._shapes.get(name, (columns,))
        return self._buffers[name].view(*shape, worlds).movedim(-1, 0)[: self.num_worlds]

    def _view(self, name: str) -> torch.Tensor:
        """Return the tensor of a buffer, (N, ...), made anew in code that torch compiles. See `Engine.view`."""
        return self._view_of(name) if torch.compiler.is_compiling() else self._views[name]

    def __getattr__(self, name: str) -> torch.Tensor:
        own = self.__dict__
        if name in own.get("outputs", ()) or name in own.get("_inputs", ()) or name in own.get("_state", ()):
            return self._view(name)
        hint = f"; pass outputs=({name!r},) to compute it" if name in OUTPUTS else ""
        hint = f"; pass inputs=({name!r},) to give it" if name in INPUTS else hint
        hint = "; no actuator of the model has an activation" if name == "act" else hint
        hint = "; no spring of the model yields" if name == "plastic" else hint
        hint = "; no actuator or sensor of the model has a delay or an interval" if name == "history" else hint
        raise AttributeError(f"this Simulation has no attribute {name!r}{hint}")

    @exclusive
    def step(self, nstep: int = 1) -> None:
        """Advance every world by `nstep` steps under the present `ctrl`. mj_step."""
        nstep = as_count("nstep", nstep)
        self._follow()
        launch.materialize(*(self._buffers[name] for name in self._written))
        self._step(nstep)

    @exclusive
    def forward(self) -> None:
        """Compute the outputs for the present state and `ctrl`, advancing nothing. mj_forward."""
        if not self.outputs:
            raise ValueError("forward() has nothing to compute: name some outputs when making the Simulation")
        if self._forward is None:  # most only step
            self._forward = _kernel(self._asked, self._name, False, self.device).bind(self._buffers)
        self._follow()
        launch.materialize(*(self._buffers[name] for name in self._written))
        self._forward()

    @exclusive
    def linearize(
        self,
        qpos: Any = None,
        qvel: Any = None,
        ctrl: Any = None,
        act: Any = None,
        *,
        nstep: int = 1,
        params: Sequence[str] = (),
        outputs: Sequence[str] = (),
    ) -> Linearization:
        """Return the derivatives of `nstep` steps under constant ctrl, by where they start and by ctrl: exact ones.

        A (..., n, n) and B (..., n, nu) are of (positions, velocities, activations), n = 2 nv + na, in the meaning and
        order of mjd_transitionFD: changes of a quaternion are rotation vectors in the body's frame. P (..., n, np) is
        by parameters that vary, `params` by name, and by what mj_setConst derives from them. C (..., ny, n) and D
        (..., ny, nu) are of `outputs`, named as the simulation's own, as the last step leaves them. What has several
        numbers is flat, one name after the other; what is not asked for is empty.

        qpos (..., nq), qvel (..., nv), ctrl (..., nu) and act (..., na) are those of the worlds, (N, ...), where not
        given; leading dimensions are broadcast, say to knots x worlds. Parameters, mocap bodies and inputs are always
        the worlds'. Nothing is changed. The kernel is built on first use, which may take many times as long as that of
        a step.

        Raises UnsupportedModel, naming what of the model has no derivatives; ValueError for another shape, an unknown
        output or a parameter that does not vary here.
        """
        nstep, params = as_count("nstep", nstep), self._varying(_names(params))
        asked = replace(self._linearized, outputs=_check_outputs(self.model, _names(outputs)))
        self._follow()
        if (params, asked.outputs) not in self._linearize:
            self._linearize[params, asked.outputs] = _linearize_kernel(asked, params, self._name, self.device)
        m, kernel = self.model, self._linearize[params, asked.outputs]
        known = {k: x.to(self.dtype) for k, x in self._given(qpos=qpos, qvel=qvel, ctrl=ctrl, act=act).items()}
        names = [b.name for b in self._linearized.buffers()]
        own = [name for name in names if name not in known and name != "qacc_warmstart"]
        lead = [x.shape[:-1] for x in known.values()] + [torch.Size([self.num_worlds])] * any(
            self._buffers[name].shape[0] for name in own
        )
        shape = broadcast("the leading dimensions of qpos, qvel, ctrl, act and of the worlds", lead)
        worlds = shape.numel()
        if self._held is None or self._held[:2] != (kernel, worlds):
            self._held = None
            check_memory("linearize()", worlds, launch.bytes_a_world(kernel.buffers, self.dtype), self.device)
            self._held = kernel, worlds, {b.name: kernel.allocate(b, worlds) for b in kernel.buffers if not b.rows}
        buffers, across = self._held[-1], launch.padded(worlds)
        for name in [*own, *known, "qacc_warmstart"]:
            values = known[name] if name in known else self._buffers[name][:, : self.num_worlds].T
            if name == "qacc_warmstart" and shape[-1:] != (self.num_worlds,):
                buffers[name].zero_()  # the solver ends where it ends, wherever it starts
                continue
            columns = values.expand(*shape, values.shape[-1]).reshape(worlds, -1)
            buffers[name][:, :worlds].copy_(columns.T)
        n = 2 * m.nv + m.na
        np = sum(x.shape[1:].numel() for name, x in self.params.items() if name in params)
        ny = sum(torch.Size(asked.shapes()[name]).numel() for name in asked.outputs)
        shapes = {"A": (n, n), "B": (n, m.nu), "P": (n, np), "C": (ny, n), "D": (ny, m.nu)}
        empty, found = torch.zeros(worlds, 0, dtype=self.dtype, device=self.device), []
        for _ in range(nstep):
            made = {b.name: empty.new_empty(across, b.size) for b in kernel.buffers if b.rows}  # the caller's
            kernel.bind(buffers | made)()
            matrices = {k: made.get(k, empty)[:worlds].view(*shape, *size) for k, size in shapes.items()}
            found.append(Linearization(**matrices))
        return derivatives.chained(found)

    @exclusive
    def transition(
        self,
        qpos: Any = None,
        qvel: Any = None,
        ctrl: Any = None,
        act: Any = None,
        *,
        nstep: int = 1,
        params: Mapping[str, Any] | None = None,
        clip_adjoint: float | None = None,
    ) -> Transition:
        """Return the state after `nstep` steps under constant ctrl, as a function that torch's autograd goes through.

        qpos (..., nq), qvel (..., nv), ctrl (..., nu), act (..., na) and `params`, tensors (..., *shape) by name of
        those that vary, are those of the worlds, (N, ...), where not given; leading dimensions are broadcast. There are
        gradients by all of them, by parameters with what mj_setConst derives from them. Mocap bodies and inputs are
        always the worlds', and have none. Nothing is changed.

        Gradients are exact, as those of `linearize`. Of a quaternion's only that by rotations has a meaning. They have
        no gradients themselves. Each step is a kernel, and so are its way back and its tangents (`torch.func.jvp`),
        built on first use.

        clip_adjoint: the greatest length that the adjoint of a world's state after a step (positions, velocities and
        activations together) has on its way back; a longer one is scaled down. None: they are exact.

        Raises UnsupportedModel in backward, naming what of the model has no gradients; ValueError for another shape,
        a parameter that does not vary here or a bound that is not positive.
        """
        nstep, m, given_params = as_count("nstep", nstep), self.model, dict(params or {})
        clip_adjoint = as_bound("clip_adjoint", clip_adjoint)
        self._varying(tuple(given_params))
        self._follow()
        known = {"qpos": qpos, "qvel": qvel, "ctrl": ctrl, "act": act}
        known = {name: x for name, x in known.items() if x is not None}
        takes = self._transition.takes
        other = {name: x for name, x in known.items() if not is_rows(x, takes.get(name, 0), self.dtype, self.device)}
        for name, x in self._given(**other).items() if other else ():
            known[name] = (other[name] if isinstance(other[name], torch.Tensor) else x).to(self.dtype)
        if self.vary and given_params:
            shapes, flat = self._asked.columns.shapes, []
            for name, present in self.params.items():
                x, n = given_params.get(name, present), torch.Size(shapes[name]).numel()
                x = torch.as_tensor(x, device=self.device).to(self.dtype)
                if x.shape[x.ndim - len(shapes[name]) :] != shapes[name]:
                    raise ValueError(f"{name} must be of shape (..., {', '.join(map(str, shapes[name]))})")
                flat.append(x.reshape(*x.shape[: x.ndim - len(shapes[name])], n))
            lead = broadcast("the leading dimensions of params", [x.shape[:-1] for x in flat])
            known["params"] = torch.cat([x.expand(*lead, x.shape[-1]) for x in flat], dim=-1)
        rows = {name: self._buffers[name][:, : self.num_worlds].T for name in takes if name not in known}
        warmstart = rows.pop(WARM)  # which has no gradient
        for name, x in rows.items():  # these are copied: the next step changes them unseen by autograd
            known[name] = x.clone(memory_format=torch.contiguous_format)
        shape = broadcast(
            "the leading dimensions of what is given and of the worlds", [x.shape[:-1] for x in known.values()]
        )
        if shape[-1:] != (self.num_worlds,):  # the solver ends where it ends, wherever it starts
            warmstart = warmstart.new_zeros(m.nv, *shape).movedim(0, -1)
        known[WARM] = warmstart
        rows = {}
        for name, size in takes.items():
            x = known[name] if known[name].shape[:-1] == shape else known[name].expand(*shape, size)
            rows[name] = x if name == WARM else x.contiguous()
        for last in range(nstep - 1, -1, -1):
            *state, ended = self._transition(list(rows.values()))
            if clip_adjoint is not None:
                state = list(bounded(state, clip_adjoint))
            rows |= dict(zip(self._transition.gives, state, strict=True))
            if last:
                rows[WARM] = ended[..., -m.nv :]
        act = rows["act"] if m.na else rows["qpos"].new_empty(*shape, 0)
        return Transition(rows["qpos"], rows["qvel"], act)

    def _varying(self, params: tuple[str, ...]) -> tuple[str, ...]:
        """Return these names of parameters. Raises ValueError for one that does not vary."""
        for name in params:
            if name not in self.vary:
                raise ValueError(f"{name!r} does not vary in this Simulation: pass vary=({name!r},) when making it")
        return params

    def _given(self, **given: Any) -> dict[str, torch.Tensor]:
        """Read those of qpos, qvel, ctrl and act that are not None, (..., n) each. Raises ValueError for another shape.
        """
        m = self.model
        sizes = {"qpos": m.nq, "qvel": m.nv, "ctrl": m.nu, "act": m.na}
        found = {k: as_rows(k, x, sizes[k], self.device) for k, x in given.items() if x is not None}
        if "act" in found and not m.na:
            raise ValueError("act is given, but no actuator of the model has an activation")
        return found

    @exclusive
    def reset(self, mask: torch.Tensor | None = None) -> None:
        """Put every world, or those of the (N,) bool mask, into the model's initial state. mj_resetData.

        Raises TypeError for a mask that is not bool, ValueError for one of another shape or device.
        """
        zeroed = [name for name in self._state + self._inputs if name not in self._start]
        if mask is None:  # the padding too
            for name, start in self._start.items():
                self._buffers[name].copy_(start.reshape(-1, 1).expand_as(self._buffers[name]))
                self._view(name).copy_(self._reset_to(name).expand_as(self._view(name)))
            for name in zeroed:
                self._buffers[name].zero_()
            return
        chosen = as_mask("mask", mask, self.num_worlds, self.device)
        for name in (*self._start, *zeroed):
            x = self._view(name)
            where = chosen.view(-1, *[1] * (x.dim() - 1))
            if name in zeroed:
                x.masked_fill_(where, 0.0)
            else:
                x.copy_(torch.where(where, self._reset_to(name), x))

    def _reset_to(self, name: str) -> torch.Tensor:
        """Return what `reset` puts into a buffer: a row for each world, or one for all alike."""
        own = self.params.get(RESET.get(name, ""))
        if own is None:
            return self._start[name]
        return own if name == "qpos" else own.index_select(1, self._mocap_bodies)
