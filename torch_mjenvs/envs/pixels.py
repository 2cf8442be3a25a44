"""Pictures of an environment's worlds as its observations, drawn by rays right after each step and reset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import mujoco
import numpy as np
import torch
from gymnasium.spaces import Box
from gymnasium.vector import AutoresetMode

from ..checks import as_count, check_memory
from ..compiler import launch
from ..compiler.program import Buffer
from ..physics.model.data import Data
from ..physics.model.model import Model
from ..physics.world_params import param_buffers
from ..rendering.picture import SAMPLES, Picture, bytes_a_picture
from ..rendering.scene import EFFECTS
from .engine import Engine
from .tasks.base import Task

CHANNELS = {"rgb": 3, "depth": 1}


@dataclass(frozen=True)
class PixelOptions:
    """The options of `pixels=dict(...)`.

    width, height: of a picture. camera: a number or name of the model's, -1 the free one that looks at the whole model,
    an `mujoco.MjvCamera`, or None: the model's first, where it has one. outputs: "rgb", uint8, or "depth", metres.
    stack: so many pictures, the newest last, one behind the other in the channels; an episode begins with its first
    picture so many times. state: whether the task's own observation is there beside them. channels_first: (channels,
    height, width), as networks of torch have it. without: which of `shadow`, `reflection`, `skybox` to do without.
    samples: 4 smooths edges, as MuJoCo does by default, and takes longer.
    """

    width: int = 84
    height: int = 84
    camera: int | str | mujoco.MjvCamera | None = None
    outputs: str = "rgb"
    stack: int = 1
    state: bool = False
    channels_first: bool = False
    without: str | Sequence[str] = ()
    samples: int = 1

    def __post_init__(self) -> None:
        for name in ("width", "height", "stack"):
            as_count(f"pixels: {name}", getattr(self, name))
        if self.outputs not in CHANNELS:
            raise ValueError(f"pixels: outputs must be one of {list(CHANNELS)}, not {self.outputs!r}")
        if self.samples not in SAMPLES:
            raise ValueError(f"pixels: samples must be one of {list(SAMPLES)}, not {self.samples!r}")
        unknown = [x for x in self.effects if x not in EFFECTS]
        if unknown:
            raise ValueError(f"pixels: unknown effects {unknown} to do without: choose from {list(EFFECTS)}")

    @property
    def effects(self) -> tuple[str, ...]:
        return (self.without,) if isinstance(self.without, str) else tuple(self.without)

    @property
    def shape(self) -> tuple[int, int, int]:
        """The shape of one world's observation."""
        channels = CHANNELS[self.outputs] * self.stack
        return (channels, self.height, self.width) if self.channels_first else (self.height, self.width, channels)


def as_options(given: Mapping[str, Any] | None) -> PixelOptions | None:
    """Return the options of `pixels=`; None for None. Raises TypeError for what is not a mapping, or not known."""
    if given is None:
        return None
    known = list(PixelOptions.__dataclass_fields__)
    if not isinstance(given, Mapping):
        raise TypeError(f"pixels must be a dict with some of {known}, not {given!r}")
    unknown = [name for name in given if name not in known]
    if unknown:
        raise TypeError(f"pixels has no {unknown}: choose from {known}")
    return PixelOptions(**given)


class Pixels:
    """Pictures of an engine's worlds, the last `stack` of each.

    Raises ValueError where they could not be right: under SAME_STEP, whose final observation is of a state that is gone
    when the step is done, and for a task that shows what it remembers (`Task.pictured`); MemoryError for more than
    fits; `UnsupportedModel` for what is not drawn.
    """

    def __init__(self, engine: Engine, options: PixelOptions):
        if engine.mode is AutoresetMode.SAME_STEP:
            raise ValueError("pixels need autoreset NEXT_STEP or DISABLED: SAME_STEP has no state of the last picture")
        if type(engine.task).pictured is not Task.pictured:
            raise ValueError(
                f"pixels do not show what {type(engine.task).__name__} remembers, such as a target: draw it with "
                "render() (OpenGL), or have its target in the model"
            )
        self.engine, self.options = engine, options
        n, device, dtype = engine.num_envs, engine.device, engine.dtype
        size, outputs = (options.width, options.height), (options.outputs,)
        row = options.shape[0] * options.shape[1] * options.shape[2]
        held = bytes_a_picture(size, outputs, dtype.itemsize)
        check_memory("num_envs", n, held + 2 * row * (1 if options.outputs == "rgb" else dtype.itemsize), device)
        params = engine.layout.params
        buffers = [Buffer("qpos", engine.layout.nq), *(param_buffers(params) if params else [])]

        def world(b: Mapping[str, Any]) -> tuple[Model, Data]:
            m = params.world(b["params"], b["derived"]) if params else engine.model
            return m, Data(m, qpos=b["qpos"])

        camera = options.camera if options.camera is not None else min(engine.mjmodel.ncam, 1) - 1
        self._picture = Picture(
            engine.mjmodel, engine.model, camera, size, outputs, None, n, buffers,
            {b.name: engine.buffers[b.name] for b in buffers}, world, f"{params.names if params else ()}",
            options.effects, options.samples,
        )  # fmt: skip
        latest = self._picture.tensors[options.outputs]
        self._latest = latest if options.outputs == "rgb" else latest[..., None]
        self.frames = torch.zeros((n, *size[::-1], CHANNELS[options.outputs] * options.stack), device=device)
        self.frames = launch.mark_static_address(self.frames.to(latest.dtype))

    def draw(self, begun: torch.Tensor | None = None, others: bool = True) -> None:
        """Take a picture of every world. Those of the (N,) bool mask begin an episode; None: all do.

        others: whether the picture counts for worlds that begin none; False leaves theirs as they were.
        """
        self.engine._follow()
        launch.materialize(self.engine.buffers["qpos"])
        self._picture.draw()
        stack, channels = self.options.stack, self._latest.shape[-1]
        filled = self._latest if stack == 1 else self._latest.repeat(1, 1, 1, stack)
        if begun is None:
            self.frames.copy_(filled)
            return
        moved = torch.cat((self.frames[..., channels:], self._latest), -1) if others else self.frames
        self.frames.copy_(torch.where(begun[:, None, None, None], filled, moved))

    def seen(self) -> torch.Tensor:
        """Return a copy of the observations of all worlds, (N, ...) as `PixelOptions.shape` has it."""
        frames = self.frames.movedim(-1, 1) if self.options.channels_first else self.frames
        return frames.clone(memory_format=torch.contiguous_format)

    @property
    def space(self) -> Box:
        """The space of one world's observation."""
        if self.options.outputs == "rgb":
            return Box(0, 255, self.options.shape, np.uint8)
        return Box(0.0, np.inf, self.options.shape, np.float32 if self.engine.dtype == torch.float32 else np.float64)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        """Make new pictures for `copy.deepcopy` and pickle, as kernels cannot be copied."""
        return _remade, (self.engine, self.options, self.frames)


def _remade(engine: Engine, options: PixelOptions, frames: torch.Tensor) -> Pixels:
    made = Pixels(engine, options)
    made.frames.copy_(frames)
    return made
