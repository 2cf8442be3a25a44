"""The tensors of parameters that vary from world to world, and the kernel that derives constants from them."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

import mujoco
import numpy as np
import torch

from ..calls import Lock, exclusive
from ..checks import as_mask, as_tensor
from ..compiler import launch, source
from ..compiler.build import Recipe, build
from ..compiler.devices import hurried
from ..compiler.program import Buffer, Program, record
from ..fixed_tensors import fixed
from .columns import Columns
from .edited import edited
from .params import DIRECTIONS, as_rows


def param_buffers(columns: Columns) -> list[Buffer]:
    """Return the buffers of the parameters that vary, and of what is derived from them."""
    return [Buffer("params", columns.size), Buffer("derived", len(columns.derived))]


def set_const_kernel(columns: Columns, dtype: str, device: torch.device) -> launch.Kernel:
    """Build the kernel that computes the derived columns from parameters. mj_setConst."""
    name, buffers = "set_const", param_buffers(columns)

    def make() -> Program:
        return record(name, buffers, lambda b: {"derived": columns.derive(b["params"])}, dtype)

    origin = source.origin(columns.model.digest, f"set_const {columns.names} {columns.only}")
    return build(Recipe(name, tuple(buffers), dtype, make, origin), hurried(device))


class Params:
    """The worlds' parameters, and what is derived from them, in the buffers `params` and `derived`."""

    def __init__(self, columns: Columns, buffers: Mapping[str, torch.Tensor], num_worlds: int):
        self.columns, self.num_worlds = columns, num_worlds
        self._params, self._derived = buffers["params"], buffers["derived"]
        self._views = self._make_views()
        nominal = torch.tensor(columns.nominal(), dtype=self._params.dtype, device=self._params.device)
        self._params.copy_(nominal[:, None].expand_as(self._params))
        kernel = set_const_kernel(columns, launch.name_of(self._params.dtype), self._params.device)
        self._set_const = kernel.bind({"params": self._params, "derived": self._derived})
        self._followed = -1  # the version of the parameters to which the derived columns belong
        self.follow()

    @property
    def views(self) -> dict[str, torch.Tensor]:
        """Return the parameters by name, (N, ...); in code that torch compiles the views are made anew."""
        return self._make_views() if torch.compiler.is_compiling() else self._views

    def _make_views(self) -> dict[str, torch.Tensor]:
        columns, shapes = self._params, self.columns.shapes
        return {
            name: columns[at].view(*shapes[name], columns.shape[1]).movedim(-1, 0)[: self.num_worlds]
            for name, at in self.columns.places().items()
        }

    def set(self, values: Mapping[str, Any], mask: torch.Tensor | None) -> None:
        """Check and set parameters by name, in all worlds or those of the mask. See `Simulation.set_params`."""
        n, device = self.num_worlds, self._params.device
        chosen = None if mask is None else as_mask("mask", mask, n, device)
        self.follow()
        new = {}
        for name, x in values.items():
            old = self.views[name]
            new[name] = as_tensor(name, x, old.shape, device, old.shape[1:]).to(old.dtype).expand(old.shape)
        for name, rule, holds in self.columns.sensible(as_rows(self.columns.model, new)):
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
        launch.materialize(self._params)
        self._set_const()

    def follow(self) -> None:
        """Compute what is derived if torch wrote into the parameters; code that torch compiles cannot see that."""
        if torch.compiler.is_compiling():
            launch.materialize(self._params)
        elif self._params._version != self._followed:
            self._set_const()
            self.followed()

    def followed(self) -> None:
        """Note that what is derived belongs to the present parameters."""
        self._followed = self._params._version


class Varied:
    """The methods for parameters that vary, common to `Simulation` and to the engine of environments."""

    _lock: Lock
    _params: Params | None = None
    _called = "this Simulation"  # in messages

    @property
    def _loaded(self) -> mujoco.MjModel:
        """The model as it was loaded."""
        raise NotImplementedError

    @property
    def _count(self) -> int:
        """The number of worlds."""
        raise NotImplementedError

    @property
    def _wind(self) -> torch.Tensor | None:
        """The wind of each world, (N, 3), if it is an input of every step: it then takes the place of the model's."""
        return None

    @property
    def params(self) -> dict[str, torch.Tensor]:
        """The parameters that vary, by name: (N, ...), at fixed addresses.

        After they were written into, the next call updates what mj_setConst derives from them; but not in code that
        torch compiles, nor in a CUDA graph: call `set_const` there.
        """
        hint = "name what is to vary in vary= when making it"
        return fixed(self._params.views if self._params else {}, "params", hint)

    @exclusive
    def set_params(self, values: Mapping[str, Any], mask: torch.Tensor | None = None) -> None:
        """Set parameters that vary, in every world or in those of the (N,) bool mask, after checking them.

        values: by name (N, ...), or (...) for all worlds alike.

        Raises ValueError for impossible values, naming the parameter, the world and the rule, and for names that do not
        vary here; then nothing has changed.
        """
        if not isinstance(values, Mapping):
            raise TypeError(f"parameters are a dict of values by name, such as {{'body_mass': ...}}, not {values!r}")
        varied = self.params
        for name in values:
            if name not in varied:
                raise ValueError(f"{name!r} does not vary in {self._called}: pass vary=({name!r},) when making it")
        if self._params:
            self._params.set(values, mask)

    @exclusive
    def set_const(self) -> None:
        """Compute what is derived from the parameters of every world. mj_setConst."""
        if self._params:
            self._params.set_const()

    def model_of(self, world: int = 0) -> mujoco.MjModel:
        """Return an MjModel with a world's own parameters, and with what mj_setConst derives from them: a copy.

        With it MuJoCo's C can do what a world does, or its viewer show it. Raises IndexError for a world that does not
        exist, and ValueError where a body that MuJoCo's compiler found to be simple has another `body_ipos`,
        `body_iquat`, `jnt_axis` or `jnt_pos`: the MJCF file must call it `simple="false"`.
        """
        return edited(self._loaded, self.own_fields(world))

    def own_fields(self, world: int) -> dict[str, np.ndarray]:
        """Return a world's own parameters by the names of MjModel's fields, or of mjOption's, in float64.

        Its wind is one of them if that is an input.
        Numbers that are still the model's own have all of its digits, not only those of float32. Directions may have
        any length here; in MuJoCo, and in what this returns, they have unit length.
        """
        if not 0 <= operator.index(world) < self._count:
            raise IndexError(f"there are worlds 0 to {self._count - 1}, not {world}")
        own, usual = {name: x[world] for name, x in self.params.items()}, {}
        if self._params:
            columns = self._params.columns
            numbers = torch.tensor(columns.nominal(), dtype=torch.float64, device="cpu")
            usual = {name: numbers[at] for name, at in columns.places().items()}
        if self._wind is not None:
            own["wind"], usual["wind"] = self._wind[world], torch.tensor(self._loaded.opt.wind, device="cpu")
        fields = {}
        for name in own:
            x, nominal = own[name].cpu(), usual[name].view(own[name].shape)
            unit = x.double() / x.double().norm(dim=-1, keepdim=True) if name in DIRECTIONS else x.double()
            fields[name] = torch.where(x == nominal.to(x.dtype), nominal, unit).numpy()
        return fields

    def _follow(self) -> None:
        """Compute what is derived if the parameters were written into."""
        if self._params:
            self._params.follow()
