"""`Simulation`: worlds of any supported model, which step together, and pictures of them."""

from __future__ import annotations

import functools
import operator
import weakref
from collections.abc import Sequence
from typing import Any

import mujoco
import numpy as np
import torch

from ..calls import exclusive, lasting
from ..checks import as_count, as_names, check_memory
from ..compiler import launch
from ..physics import simulation
from ..physics.kernel_request import STATE, KernelRequest
from ..physics.model.data import Data
from ..physics.model.model import Model
from ..physics.model.precision import PRECISIONS
from ..physics.simulation import MOCAP
from .camera import is_free, which
from .parameters import load
from .picture import OUTPUTS as PICTURES
from .picture import SAMPLES, Picture, Shot, Worlds, bytes_a_picture
from .scene import EFFECTS

KEPT = 32  # as many pictures of different arguments keep their tensors


def _number(x: Any) -> int:
    """Read the number of a world. Raises TypeError for a fraction, and for a bool, as of a mask."""
    if isinstance(x, bool | np.bool_) or (isinstance(x, torch.Tensor) and x.dtype == torch.bool):
        raise TypeError("a mask is no list of numbers")
    return operator.index(x)


class Simulation(simulation.Simulation):
    """`num_worlds` copies of a MuJoCo model, stepped together by code compiled for that model.

    model: a `mujoco.MjModel`, an MJCF string, or a path.
    num_worlds: N.
    device: where the worlds live; None picks the GPU if there is one that can be used, else the CPU.
    dtype: torch.float32 or torch.float64.
    outputs: names of further `mjData` fields to compute, or "sensor:NAME" for one sensor.
    vary: names of model parameters that may differ from world to world, such as "body_mass". `params` has a tensor (N,
        ...) for each, with the model's values at first.
    inputs: further inputs that every step reads and none changes, like `ctrl`: any of "xfrc_applied" (N, nbody, 6),
        "qfrc_applied" (N, nv), "eq_active" (N, neq) and "wind" (N, 3). `eq_active` is 0 for equality constraints that
        do not act; `reset` sets it and the wind to the model's.

    The attributes `qpos (N, nq)`, `qvel (N, nv)`, `qacc_warmstart (N, nv)`, `ctrl (N, nu)` and one for each output, (N,
    ...), are tensors in MuJoCo's order and units. If actuators have activations there is `act (N, na)`; if the model
    has mocap bodies, `mocap_pos (N, nmocap, 3)` and `mocap_quat (N, nmocap, 4)`, which `reset` sets to the model's; and
    if `sensordata` has a clock, `time (N,)`. All keep their addresses: write into them, and read them before the next
    call overwrites them. As in MuJoCo, outputs after `step` belong to the state *before* an Euler step, or to the last
    stage of a Runge-Kutta step; `forward` computes them for the present state.

    Raises `UnsupportedModel`, naming the element, if the model uses a feature that is not supported; ValueError for an
    unknown output, a parameter that cannot vary, an unknown dtype or device, or a number of worlds below 1;
    MemoryError, on a GPU torch.OutOfMemoryError, for more worlds than the machine can hold. Calls raise
    AlreadyPendingCallError while another Python thread is in one.
    """

    _load = staticmethod(load)

    @functools.cached_property
    def _pictures(self) -> dict[tuple[Any, ...], tuple[Picture, weakref.ref[mujoco.MjvCamera] | None]]:
        """Pictures by the arguments of `render`, the last drawn at the end, and the MjvCamera that takes each."""
        return {}

    @exclusive
    def render(
        self,
        camera: int | str | mujoco.MjvCamera = -1,
        width: int = 84,
        height: int = 84,
        outputs: str | Sequence[str] = ("depth", "segmentation"),
        worlds: Sequence[int] | None = None,
        without: str | Sequence[str] = (),
        samples: int = 1,
        channels_first: bool = False,
    ) -> dict[str, torch.Tensor]:
        """Draw what a camera sees of every world, or of some, as they stand, and return its pictures by name.

        camera: the number or name of a camera of the model, -1 for the free one that looks at the whole model, or a
            `mujoco.MjvCamera`, which may move from call to call.
        width, height: of the pictures, in pixels.
        outputs: any of `rgb` (worlds, height, width, 3), uint8; `depth` (worlds, height, width), metres along the
            camera's axis, in the simulation's dtype; and `segmentation` (worlds, height, width, 2), the number of the
            object and its type (mjtObj) as int32, -1 and -1 where there is nothing.
        worlds: the numbers of the worlds to draw; None for all.
        without: which of `shadow`, `reflection` and `skybox` to leave out of the colours.
        samples: the number of places in a pixel where its colour is computed: 1, or 4, which smooths edges, as MuJoCo
            does by default, and takes up to four times as long.
        channels_first: `rgb` as (worlds, 3, height, width), `segmentation` as (worlds, 2, height, width): views of the
            same memory.

        Pictures are as from `mujoco.Renderer`: of tendons, slider-cranks, and the geoms and sites of groups 0 to 2
        whose colour is not wholly transparent. The background, which is all that a world of NaN shows, is at the depth
        where drawing ends (visual/map/zfar). No OpenGL is needed.

        The tensors keep their addresses: the next call with the same arguments, which include the same MjvCamera
        object, overwrites them. The first one compiles. That holds for the last 32 sets of arguments; others get new
        tensors at their next call.

        Raises ValueError for an unknown camera, output or world; MemoryError, on a GPU torch.OutOfMemoryError, if the
        pictures do not fit; and `UnsupportedModel`, naming the element, if the camera might see what is not drawn:
        skins; in colour, some kinds of textures (see docs/pixels.md).
        """
        asked = tuple(dict.fromkeys(as_names("outputs", outputs)))
        unknown = [name for name in asked if name not in PICTURES]
        if unknown or not asked:
            raise ValueError(f"unknown outputs {unknown}: choose from {list(PICTURES)}")
        size = as_count("width", width), as_count("height", height)
        try:
            chosen = None if worlds is None else tuple(_number(i) for i in worlds)
        except TypeError as error:
            raise TypeError(f"worlds must be the numbers of worlds, such as [0, 5], not {worlds!r}") from error
        if chosen is not None and not (chosen and all(0 <= i < self.num_worlds for i in chosen)):
            raise ValueError(f"worlds must be from 0 to {self.num_worlds - 1}, not {chosen}")
        left_out = tuple(dict.fromkeys(as_names("without", without)))
        unknown = [name for name in left_out if name not in EFFECTS]
        if unknown:
            raise ValueError(f"unknown effects {unknown} to do without: choose from {list(EFFECTS)}")
        if not isinstance(samples, int) or samples not in SAMPLES:
            raise ValueError(f"samples must be one of {list(SAMPLES)}, not {samples!r}")
        key = (which(camera), size, asked, chosen, left_out, samples)
        picture, of = self._pictures.pop(key, (None, None))
        if picture is None or (of is not None and of() is not camera):
            self._forget()
            picture = self._picture(Shot(camera, size, asked, left_out, samples, moving=is_free(camera)), chosen)
            of = weakref.ref(camera) if isinstance(camera, mujoco.MjvCamera) else None
        self._pictures[key] = picture, of
        if is_free(camera):
            picture.look_from(camera)
        self._follow()
        launch.materialize(*(self._buffers[name] for name in self._written))
        picture.draw()
        return {name: x.movedim(-1, 1) if channels_first and x.ndim == 4 else x for name, x in picture.tensors.items()}

    def _forget(self) -> None:
        """Drop the pictures of cameras that are gone, and those that were drawn longest ago beyond `KEPT` - 1."""
        for key in [k for k, (_, of) in self._pictures.items() if of is not None and of() is None]:
            del self._pictures[key]
        for key in list(self._pictures)[: max(0, len(self._pictures) - (KEPT - 1))]:
            del self._pictures[key]

    @lasting
    def _picture(self, shot: Shot, chosen: tuple[int, ...] | None) -> Picture:
        """Make the `Picture` of this shot of the chosen worlds; None for all."""
        mocap = tuple(name for name in self._inputs if name in MOCAP)
        request = KernelRequest(self.model, inputs=mocap, vary=self.vary)

        def world(b: dict[str, Any]) -> tuple[Model, Data]:
            m, state = request.world(b), {name: b[name] for name in STATE}
            return m, Data(m, **state, act=b.get("act", []), precision=PRECISIONS[self._name], **request.pushes(b))

        drawn, one = (self.num_worlds if chosen is None else len(chosen)), self.dtype.itemsize
        check_memory("worlds", drawn, bytes_a_picture(self._mjmodel, shot.shape, shot.outputs, one), self.device)
        rows = None if chosen is None else torch.tensor(chosen, dtype=torch.int64, device=self.device)
        worlds = Worlds(
            self._mjmodel, self.model, self.num_worlds, rows, request.buffers(), {"": self._buffers}, world,
            self.vary, f"{request.inputs} {request.vary}",
        )  # fmt: skip
        return Picture(worlds, shot)
