"""Compiled, batched stepping of any supported model: all of `torch_mjenvs.Simulation` but its pictures."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import mujoco
import numpy as np
import torch
from torch.autograd.graph import increment_version

from ..calls import Lock, exclusive, lasting
from ..checks import (
    as_bound,
    as_count,
    as_dtype,
    as_mask,
    as_names,
    as_rows,
    as_tensor,
    broadcast,
    check_memory,
    check_state,
    did_you_mean,
    is_rows,
)
from ..compiler import devices, launch, source
from ..compiler.functions import bounded
from . import derivatives
from .derivatives import Linearization
from .kernel_request import SENSOR, STATE, KernelRequest
from .loading.load import load, parse
from .model.enums import SensorType
from .model.model import Model
from .params import check_names, check_wind
from .simulation_kernels import OUTPUTS, Linearize, kernel_of
from .step_function import WARM, StepFunction
from .transition import Transition
from .world_params import Params, Varied

INPUTS = ("xfrc_applied", "qfrc_applied", "eq_active", "wind")
MOCAP = ("mocap_pos", "mocap_quat")  # inputs of every model that has mocap bodies
# what a model lacks that has no such tensor
LACKS = {
    "act": "no actuator of the model has an activation",
    "plastic": "no spring of the model yields",
    "history": "no actuator or sensor of the model has a delay or an interval",
    **dict.fromkeys(MOCAP, "the model has no mocap bodies"),
}
# the parameters to which reset sets them
RESET = {"qpos": "qpos0", "mocap_pos": "body_pos", "mocap_quat": "body_quat", "wind": "wind"}


def _names(what: str, given: Sequence[str] | str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(as_names(what, given)))


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


OWN = {"device", "dtype", "inputs", "model", "num_worlds", "outputs", "vary"}  # attributes, beside private ones


def _again(kind: type[Simulation], made: tuple[Any, ...], buffers: dict[str, np.ndarray]) -> Simulation:
    """Make a Simulation from its arguments, and copy these numbers into its buffers.

    A user's subclass may take other arguments, so its constructor is not called.
    """
    out = kind.__new__(kind)
    ours: Any = next(x for x in kind.__mro__ if source.is_own(x.__module__))
    ours.__init__(out, *made)
    for name, x in buffers.items():
        out._buffers[name].copy_(torch.from_numpy(x))
    return out


def _tensor(name: str, doc: str) -> Any:
    """Return a property that gives the tensor of a buffer."""
    return property(lambda self: self._view(name), doc=doc)


class Simulation(Varied):
    """The physics of `torch_mjenvs.Simulation`, which adds pictures and documents the arguments and tensors."""

    _load: Callable[[mujoco.MjModel], Model] = staticmethod(load)

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
        outputs = _names("outputs", outputs)
        self.inputs = _names("inputs", inputs)
        unknown = [name for name in self.inputs if name not in INPUTS]
        if unknown:
            raise ValueError(f"unknown inputs {unknown}: choose from {list(INPUTS)}")
        self.num_worlds, self._lock = num_worlds, Lock()
        self._mjmodel = copy.copy(parse(model))
        self.model = self._load(self._mjmodel)
        if "eq_active" in self.inputs and "eq_active" in self.model.switched_off:
            raise ValueError("eq_active has no use: a disable flag of the model switches off all equality constraints")
        self.outputs = _check_outputs(self.model, outputs)
        sensors = [name.removeprefix(SENSOR) for name in self.outputs if name.startswith(SENSOR)]
        self._name = launch.name_of(self.dtype)
        self.vary = check_names(self.model, as_names("vary", vary))
        if "wind" in self.inputs:
            check_wind(self.model, self.vary)
        read = self.model.sensor_names if "sensordata" in self.outputs else sensors
        kinds = zip(self.model.sensor_names, self.model.sensor_type, strict=True)
        timed = any(kind == SensorType.CLOCK and name in read for name, kind in kinds)
        self._inputs = self.inputs + (MOCAP if self.model.nmocap else ()) + (("time",) if timed else ())
        self._state = STATE + (("act",) if self.model.na else ()) + tuple(self.model.kept0)
        self._request = KernelRequest(self.model, self.outputs, self._inputs, self.vary)
        self._shapes = self._request.shapes()
        needed = launch.bytes_a_world(self._request.buffers(), self.dtype)
        check_memory("num_worlds", num_worlds, needed, self.device)
        kernel = kernel_of(self._request, self._name, True, self.device)
        self._buffers = {b.name: kernel.allocate(b, num_worlds) for b in kernel.buffers}
        self._views = {name: self._view_of(name) for name in self._buffers}
        self._scratch = launch.Scratch()
        self._step = kernel.bind(self._buffers, self._scratch)
        self._stepped = [self._buffers[name] for name in (*self._state, *self.outputs)]  # what a kernel writes into
        self._forward: launch.Launch | None = None
        self._linearized = replace(self._request, outputs=(), inputs=tuple(x for x in self._inputs if x != "time"))
        self._linearize: dict[tuple[tuple[str, ...], tuple[str, ...]], Linearize] = {}
        self._transition = StepFunction(self._linearized, self._name, self.device)
        mocap = self.model.mocap_bodies
        self._start = {
            name: launch.mark_static_address(torch.tensor(x, dtype=self.dtype, device=self.device))
            for name, x in self._initial().items()
        }
        self._mocap_bodies = launch.mark_static_address(torch.tensor(mocap, dtype=torch.int64, device=self.device))
        if self.vary:
            self._params = Params(self._request.columns, self._buffers, num_worlds)
        self._written: tuple[str, ...] = self._state + self._inputs  # what users write into
        self.reset()

    def _initial(self) -> dict[str, Sequence[Any]]:
        """Return what `reset` puts into the buffers that it does not zero, by name."""
        m = self.model
        return {"qpos": m.qpos0, **m.kept0} | {name: x for name, x in m.inputs0.items() if name in self._inputs}

    qpos: torch.Tensor = _tensor("qpos", "(N, nq)")
    qvel: torch.Tensor = _tensor("qvel", "(N, nv)")
    qacc_warmstart: torch.Tensor = _tensor("qacc_warmstart", "(N, nv)")
    ctrl: torch.Tensor = _tensor("ctrl", "(N, nu)")

    def __repr__(self) -> str:
        name = self._mjmodel.names.partition(b"\0")[0].decode()  # the model's own is the first
        return f"{type(self).__name__}({name!r}, {self.num_worlds}, device={self.device}, dtype={self.dtype})"

    def __dir__(self) -> list[str]:
        buffers = (*self._state, *self._inputs, *self.outputs)
        return [*super().__dir__(), *(name for name in buffers if not name.startswith(SENSOR))]

    def sensor(self, name: str) -> torch.Tensor:
        """Return the values of a sensor in every world, (N, dim), from the output `sensor:NAME` or from `sensordata`.

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
        if name in OUTPUTS or name in INPUTS:
            asked, why = ("outputs", "compute") if name in OUTPUTS else ("inputs", "give")
            hint = f"; pass {asked}=({name!r},) to {why} it"
        elif name in LACKS:
            hint = f"; {LACKS[name]}"
        else:
            hint = "" if name.startswith("_") else did_you_mean(name, {*dir(self), *OUTPUTS, *INPUTS})
        raise AttributeError(f"this Simulation has no attribute {name!r}{hint}")

    def __setattr__(self, name: str, value: Any) -> None:
        """Refuse attributes that no step would read. A user's subclass may have attributes of its own.

        A change in place, as by `sim.qvel += 1`, is already made: setting the same tensor again is no error.
        """
        theirs = not source.is_own(type(self).__module__)
        made = "_written" in self.__dict__
        if name.startswith("_") or not made or (theirs and name not in (*OUTPUTS, *INPUTS, *self._buffers)):
            super().__setattr__(name, value)
        elif getattr(self, name) is not value:
            raise AttributeError(f"{name!r} cannot be set: write into it, as in sim.{name}[:] = ...")

    @property
    def _count(self) -> int:
        return self.num_worlds

    @property
    def _loaded(self) -> mujoco.MjModel:
        return self._mjmodel

    @property
    def _wind(self) -> torch.Tensor | None:
        return self._view("wind") if "wind" in self.inputs else None

    def __reduce__(self) -> tuple[Any, ...]:
        """Return how `copy.deepcopy` and pickle make a new one: its code is built again, or found on disk.

        Attributes of a user's subclass are copied, too.
        """
        made = self._mjmodel, self.num_worlds, str(self.device), self.dtype, self.outputs, self.vary, self.inputs
        buffers = {name: x.cpu().numpy().copy() for name, x in self._buffers.items()}  # as tensors would be shared
        theirs = {name: x for name, x in vars(self).items() if not name.startswith("_") and name not in OWN}
        return _again, (type(self), made, buffers), theirs or None

    @exclusive
    def step(self, nstep: int = 1) -> None:
        """Advance every world by `nstep` steps under the present `ctrl`. mj_step."""
        nstep = as_count("nstep", nstep)
        self._follow()
        self._without_graphs()
        launch.materialize(*(self._buffers[name] for name in self._written))
        self._step(nstep)
        self._note_writes()

    @exclusive
    def forward(self) -> None:
        """Compute the outputs for the present state and `ctrl`, advancing nothing. mj_forward."""
        if not self.outputs:
            raise ValueError("forward() has nothing to compute: name some outputs when making the Simulation")
        if self._forward is None:  # most users only step
            kernel = kernel_of(self._request, self._name, False, self.device)
            self._forward = kernel.bind(self._buffers, self._scratch)
        self._follow()
        self._without_graphs()
        launch.materialize(*(self._buffers[name] for name in self._written))
        self._forward()
        self._note_writes()

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
        """Return the exact derivatives of `nstep` steps under constant ctrl, by the state that they start from and by
        ctrl.

        A (..., n, n) and B (..., n, nu) are derivatives of (positions, velocities, activations), n = 2 nv + na, in the
        meaning and order of mjd_transitionFD: changes of a quaternion are rotation vectors in the body's frame. P (...,
        n, np) is by the parameters named in `params`, including the effect of what mj_setConst derives from them. C
        (..., ny, n) and D (..., ny, nu) are derivatives of `outputs`, named like the simulation's own, as the last step
        leaves them. The numbers of several names are flat, one name after the other. Fields that are not asked for are
        empty.

        qpos (..., nq), qvel (..., nv), ctrl (..., nu) and act (..., na) are by default those of the worlds, (N, ...);
        leading dimensions are broadcast, for example to knots x worlds. Parameters, mocap bodies and inputs are always
        those of the worlds. The call changes nothing. The kernel is built on first use, which may take many times as
        long as for a step.

        Raises UnsupportedModel, which names the feature of the model that has no derivatives; ValueError for a wrong
        shape, an unknown output or a parameter that does not vary here.
        """
        nstep, key = as_count("nstep", nstep), (self._varying(_names("params", params)), _names("outputs", outputs))
        self._follow()
        if key not in self._linearize:
            request = replace(self._linearized, outputs=_check_outputs(self.model, key[1]))
            self._linearize[key] = Linearize(request, key[0], self._name, self.device)
        kernel = self._linearize[key]
        known = {k: x.to(self.dtype) for k, x in self._given(qpos=qpos, qvel=qvel, ctrl=ctrl, act=act).items()}
        rows, shape = self._begun(kernel.takes, known)
        if shape.numel() > kernel.most:
            kernel.most = shape.numel()
            check_memory("linearize()", kernel.most, kernel.run.bytes_a_world, self.device)
        found = []
        for left in range(nstep - 1, -1, -1):
            made = dict(zip(kernel.gives, kernel.run(list(rows.values())), strict=True))
            matrices = {
                k: made[k].view(*shape, *size) if k in made else rows["qpos"].new_zeros(*shape, *size)
                for k, size in kernel.shapes.items()
            }
            found.append(Linearization(**matrices))
            if left:
                rows |= {name: made[f"new_{name}"] for name in rows if f"new_{name}" in made}
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
        """Return the state after `nstep` steps under constant ctrl; torch's autograd can differentiate the call.

        qpos (..., nq), qvel (..., nv), ctrl (..., nu), act (..., na) and `params`, tensors (..., *shape) by names of
        varying parameters, are by default those of the worlds, (N, ...); leading dimensions are broadcast. All of them
        have gradients; those by parameters include the effect of what mj_setConst derives from them. Mocap bodies and
        inputs are always those of the worlds, and have no gradients. The call changes nothing.

        Gradients are exact, like the derivatives of `linearize`, and cannot be differentiated again. The gradient by a
        quaternion is meaningful along rotations only. Each step is a kernel; its backward pass and its tangents
        (`torch.func.jvp`) are kernels that are built on first use.

        clip_adjoint: the greatest length of the adjoint of a world's state after a step (positions, velocities and
        activations together) in the backward pass; a longer one is scaled down. None: gradients are exact.

        Raises UnsupportedModel in backward, which names the feature of the model that has no gradients; ValueError for
        a wrong shape, a parameter that does not vary here or a bound that is not positive.
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
            known["params"] = self._flat_params(given_params)
        rows, shape = self._begun(takes, known)
        for name, x in rows.items():  # what is the worlds' own is copied: the next step changes it unseen by autograd
            if name != WARM:
                own = name not in known or self._is_own(x)
                rows[name] = x.clone(memory_format=torch.contiguous_format) if own else x.contiguous()
        for last in range(nstep - 1, -1, -1):
            *state, ended = self._transition(list(rows.values()))
            if clip_adjoint is not None:
                state = list(bounded(state, clip_adjoint))
            rows |= dict(zip(self._transition.gives, state, strict=True))
            if last:
                rows[WARM] = ended[..., -m.nv :]
        act = rows["act"] if m.na else rows["qpos"].new_empty(*shape, 0)
        return Transition(rows["qpos"], rows["qvel"], act)

    def _is_own(self, x: torch.Tensor) -> bool:
        """Return whether a tensor is one of the worlds' buffers, or part of one."""
        base = x._base if x._is_view() else x
        return any(base is buffer for buffer in self._buffers.values())

    def _note_writes(self) -> None:
        """Tell autograd that a kernel has written: it then refuses gradients that need what was there before."""
        if not torch.compiler.is_compiling():
            increment_version(self._stepped)

    def _without_graphs(self) -> None:
        """Cut off the graphs of what users have written with gradients, which a step does not follow."""
        for name in () if torch.compiler.is_compiling() else self._written:
            if self._buffers[name].requires_grad:
                self._buffers[name].detach_()
                self._views[name] = self._view_of(name)

    def _flat_params(self, given: Mapping[str, Any]) -> torch.Tensor:
        """Return all parameters that vary in one tensor (..., columns): those given, and the worlds' for others.

        Raises ValueError for one of another shape.
        """
        shapes, flat = self._request.columns.shapes, []
        for name, present in self.params.items():
            x, n = given.get(name, present), len(shapes[name])
            read = as_tensor(name, x, tuple(np.shape(x)), self.device)  # which has no gradient
            x = (x if isinstance(x, torch.Tensor) else read).to(self.dtype)
            if x.shape[x.ndim - n :] != shapes[name]:
                raise ValueError(f"{name} must be of shape (..., {', '.join(map(str, shapes[name]))})")
            flat.append(x.reshape(*x.shape[: x.ndim - n], torch.Size(shapes[name]).numel()))
        lead = broadcast("the leading dimensions of params", [x.shape[:-1] for x in flat])
        return torch.cat([x.expand(*lead, x.shape[-1]) for x in flat], dim=-1)

    def _begun(
        self, takes: Mapping[str, int], known: dict[str, torch.Tensor]
    ) -> tuple[dict[str, torch.Tensor], torch.Size]:
        """Return what a step starts from, (..., size) by name, and the leading dimensions.

        What is not known is taken from the worlds. So is the warm start if the state is theirs; else it is 0, so that
        the same state gives the same bits, whatever the worlds have done since.
        """
        own = {name: self._buffers[name][:, : self.num_worlds].T for name in takes if name not in known}
        lead = [x.shape[:-1] for name, x in (known | own).items() if name != WARM]
        shape = broadcast("the leading dimensions of what is given and of the worlds", lead)
        if {"qpos", "qvel", "act"} & known.keys() or shape[-1:] != (self.num_worlds,):
            own[WARM] = own[WARM].new_zeros(takes[WARM], *shape).movedim(0, -1)
        rows = {}
        for name, size in takes.items():
            x = known[name] if name in known else own[name]
            rows[name] = x if x.shape[:-1] == shape else x.expand(*shape, size)
        return rows, shape

    def _varying(self, params: tuple[str, ...]) -> tuple[str, ...]:
        """Return these names of parameters. Raises ValueError for one that does not vary."""
        for name in params:
            if name not in self.vary:
                raise ValueError(f"{name!r} does not vary in this Simulation: pass vary=({name!r},) when making it")
        return params

    def _given(self, **given: Any) -> dict[str, torch.Tensor]:
        """Read those of qpos, qvel, ctrl and act that are not None, (..., n) each. ValueError for another shape."""
        m = self.model
        sizes = {"qpos": m.nq, "qvel": m.nv, "ctrl": m.nu, "act": m.na}
        found = {k: as_rows(k, x, sizes[k], self.device) for k, x in given.items() if x is not None}
        if "act" in found and not m.na:
            raise ValueError("act is given, but no actuator of the model has an activation")
        return found

    def _full_state(self) -> dict[str, torch.Tensor]:
        """Return the tensors that decide what a step computes, by name."""
        return {name: self._view(name) for name in self._written} | {f"params.{k}": x for k, x in self.params.items()}

    @exclusive
    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return copies of all that a step reads, by name, (N, ...) each: steps from there give the same bits again.

        They are positions, velocities, activations, controls, the warm start, `plastic` and `history`, inputs, mocap
        poses and `time`, as far as there are any, and "params.NAME" for each parameter that varies.
        """
        return {name: x.detach().clone() for name, x in self._full_state().items()}

    @exclusive
    def load_state_dict(self, state: Mapping[str, torch.Tensor]) -> None:
        """Go on from what `state_dict` of a Simulation of the same arguments gave, on whatever device.

        Outputs are as they were: `forward` computes them. Raises ValueError for names, shapes or dtypes that do not
        fit, TypeError for anything but dense tensors; nothing has changed then.
        """
        check_state(state, self._full_state(), "such a Simulation")
        self._without_graphs()
        for name, x in self._full_state().items():
            x.copy_(state[name].detach())

    @exclusive
    def reset(self, mask: torch.Tensor | None = None) -> None:
        """Set every world, or those of the (N,) bool mask, to the model's initial state. mj_resetData.

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
        return own.index_select(1, self._mocap_bodies) if name in MOCAP else own
