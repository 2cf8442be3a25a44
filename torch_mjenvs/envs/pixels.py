"""Pictures of an environment's worlds as its observations, drawn by rays right after each step and reset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import mujoco
import numpy as np
import torch
from gymnasium.spaces import Box

from ..checks import as_count, check_field, check_memory
from ..compiler import launch
from ..compiler.program import Buffer
from ..physics.model.data import Data
from ..physics.model.model import Model
from ..physics.world_params import param_buffers
from ..rendering.picture import SAMPLES, Picture, Shot, Worlds, bytes_a_picture
from ..rendering.scene import EFFECTS
from .engine import Engine
from .episode import is_known
from .frame_stack import FrameStack
from .model_view import drawn_by_rays
from .packing import by_name, size_of
from .tasks.base import Shown, Task

CHANNELS = {"rgb": 3, "depth": 1, "segmentation": 2}
SHARE, MANY = 16, 4  # worlds that begin an episode are drawn in groups of 1/16 of all worlds, up to 4 of these


@dataclass(frozen=True)
class PixelOptions:
    """The options of `pixels=dict(...)`.

    width, height: of a picture, in pixels.
    camera: a number or name of a camera of the model, -1 for the free one that looks at the whole model, a
        `mujoco.MjvCamera`, or None for the model's first camera, if it has one.
    outputs: "rgb", uint8; "depth", in metres; or "segmentation", int32, the number of what is seen and its type.
    stack: the number of pictures in an observation, one behind the other in the channels, the newest last. At the start
        of an episode all are its first picture.
    state: whether the observation also has the task's own.
    channels_first: (channels, height, width), as torch's networks expect.
    without: which of `shadow`, `reflection`, `skybox` to leave out.
    samples: 4 smooths edges, as MuJoCo does by default, and takes longer.
    action_repeat: the number of the task's steps that one step makes with the same action. Only the last is drawn.
        Rewards are summed; a world whose episode has ended is not stepped further.
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
    action_repeat: int = 1

    def __post_init__(self) -> None:
        for name in ("width", "height", "stack", "action_repeat"):
            as_count(f"pixels: {name}", getattr(self, name))
        for name in ("state", "channels_first"):
            check_field(f"pixels: {name}", "bool", getattr(self, name))
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
    """Return the options of `pixels=`; None for None. Raises TypeError for others, and for unknown ones."""
    if given is None:
        return None
    known = list(PixelOptions.__dataclass_fields__)
    if not isinstance(given, Mapping):
        raise TypeError(f"pixels must be a dict with some of {known}, not {given!r}")
    unknown = [name for name in given if name not in known]
    if unknown:
        raise TypeError(f"pixels has no {unknown}: choose from {known}")
    return PixelOptions(**given)


def as_repeats(action_repeat: int, pictures: PixelOptions | None) -> int:
    """Return how many steps of the task make one: `action_repeat`, an environment's argument or an option of pixels.

    Raises ValueError if both are given, or it is no whole number above 0.
    """
    repeats = as_count("action_repeat", action_repeat)
    drawn = 1 if pictures is None else pictures.action_repeat
    if repeats > 1 and drawn > 1:
        raise ValueError("give action_repeat once: as an argument, or in pixels")
    return max(repeats, drawn)


def translated(given: Mapping[str, Any] | None, wanted: bool, **options: Any) -> Mapping[str, Any] | None:
    """Return `pixels=` for the arguments of other libraries if they ask for pictures, else the given `pixels`.

    Raises TypeError if both are asked for.
    """
    if not wanted:
        return given
    if given is not None:
        raise TypeError("pixels= says all about pictures, and from_pixels what other libraries do: give one of them")
    return options


class Pixels:
    """Pictures of an engine's worlds, the last `stack` of each.

    Under SAME_STEP the kernel begins new episodes itself, so the engine keeps the states in which episodes ended
    (`Engine.shows_end`), and `draw_both` returns their last pictures. On CPUs the first pictures of new episodes are
    then drawn only for the worlds that begin one, in groups.

    Raises MemoryError, on a GPU torch.OutOfMemoryError, if the pictures do not fit, and `UnsupportedModel` for a model
    that is not drawn.
    """

    def __init__(self, engine: Engine, options: PixelOptions):
        self.engine, self.options = engine, options
        n, device, dtype = engine.num_envs, engine.device, engine.dtype
        size, outputs = (options.width, options.height), (options.outputs,)
        row = options.shape[0] * options.shape[1] * options.shape[2]
        held = bytes_a_picture(engine.mjmodel, size, outputs, dtype.itemsize)
        stacks = 5 if engine.shows_end else 3  # with those that users have and get next
        some = -(-n // SHARE) if engine.shows_end and device.type == "cpu" else 0
        held += held * some // n
        each = {"rgb": 1, "depth": dtype.itemsize, "segmentation": 4}[options.outputs]
        check_memory("num_envs", n, held + stacks * row * each, device)
        camera = options.camera if options.camera is not None else min(engine.mjmodel.ncam, 1) - 1
        how = options.effects, options.samples
        self._picture = picture_of(engine, engine.model, camera, size, outputs, None, *how)
        self._some = torch.zeros(some, dtype=torch.int64, device=device)  # the worlds of `_few`
        self._few = picture_of(engine, engine.model, camera, size, outputs, self._some, *how) if some else None
        drawn_by_rays(engine.mjmodel)
        newest = self._numbers(self._picture)
        self.stack = FrameStack(newest, options.height, options.width, options.stack, options.outputs == "rgb")
        self._copied: torch.Tensor | None = None  # the copy for the user, if it has been made already

    def draw(
        self, begun: torch.Tensor | None = None, others: bool = True, left_out: torch.Tensor | None = None
    ) -> None:
        """Take a picture of every world. The worlds of the (N,) bool mask begin an episode; with None, all do.

        others: whether worlds that begin no episode get the picture, too; False leaves their stacks as they were.
        left_out: a mask of further worlds whose stacks stay as they were.
        """
        if left_out is not None:
            old = self.stack.frames.clone()
            self.draw(begun, others)
            self.load(torch.where(left_out[:, None, None, None], old, self.stack.frames))
            return
        self._take()
        self._copied = None
        if begun is None:
            self.stack.frames.copy_(self.stack.filled(self.stack.newest))
            return
        if others:
            self._copied = self._moved()
        if begun.is_cuda or torch.compiler.is_compiling():
            filled = self.stack.filled(self.stack.newest)
            self.stack.frames.copy_(torch.where(begun[:, None, None, None], filled, self.stack.frames))
        elif begun.any():
            self._put(begun, self.stack.newest[begun])  # a choice for all worlds would take 20 times as long

    def draw_both(self, ended: torch.Tensor) -> torch.Tensor:
        """Take pictures after a step in which the worlds of the (N,) bool mask ended an episode and began the next.

        Return the observations that the step led to, before any reset, in the form of `seen`.
        """
        self._take("final_")
        moved = self._moved()
        final = self.stack.copied(self.options.channels_first) if moved is None else moved
        if self._few is None or ended.sum() > MANY * len(self._some):
            self.draw(ended, others=False)
            return final
        self._copied = None
        for part in ended.nonzero()[:, 0].split(len(self._some)):
            if len(part):
                self._some.copy_(part[:1].expand_as(self._some))
                self._some[: len(part)] = part
                self._take(picture=self._few)
                self._put(part, self.stack.pictures(self._numbers(self._few))[: len(part)])
        return final

    def _numbers(self, picture: Picture) -> torch.Tensor:
        """Return what a picture is drawn into, (worlds, pixels, numbers)."""
        return picture.numbers[self.options.outputs].movedim(0, -1)

    def _take(self, prefix: str = "", picture: Picture | None = None) -> None:
        self.engine._follow()
        launch.materialize(self.engine.buffers[f"{prefix}qpos"])
        (picture or self._picture).draw(prefix)

    def _moved(self) -> torch.Tensor | None:
        """Make the latest pictures the newest of their stacks; if that makes a copy on the way, return it."""
        if self.engine.device.type != "cpu" or self.options.channels_first or torch.compiler.is_compiling():
            self.stack.move()
            return None
        return self.stack.moved()

    def _put(self, worlds: torch.Tensor, pictures: torch.Tensor) -> None:
        """Fill the stacks of some worlds, given by a mask or by numbers, with their pictures."""
        for frames in (self.stack.frames, *([] if self._copied is None else [self._copied])):
            frames[worlds] = self.stack.filled(pictures)

    def seen(self) -> torch.Tensor:
        """Return a copy of the observations of all worlds, (N, ...) with the shape `PixelOptions.shape`."""
        found, self._copied = self._copied, None
        return self.stack.copied(self.options.channels_first) if found is None else found

    def load(self, frames: torch.Tensor) -> None:
        """Replace the stacks by these, (N, height, width, channels)."""
        self.stack.frames.copy_(frames.detach())
        self._copied = None

    @property
    def space(self) -> Box:
        """The space of one world's observation."""
        if self.options.outputs == "rgb":
            return Box(0, 255, self.options.shape, np.uint8)
        if self.options.outputs == "segmentation":
            return Box(-1, np.iinfo(np.int32).max, self.options.shape, np.int32)
        return Box(0.0, np.inf, self.options.shape, np.float32 if self.engine.dtype == torch.float32 else np.float64)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        """Make new pictures for `copy.deepcopy` and pickle, as kernels cannot be copied. Stacks are handed over as an
        array: a tensor would be shared with a process that "spawn" starts, and moved to where no kernel looks for it.
        """
        return _remade, (self.engine, self.options, self.stack.frames.cpu().numpy())


def picture_of(
    engine: Engine,
    model: Model,
    camera: int | str | mujoco.MjvCamera,
    size: tuple[int, int],
    outputs: Sequence[str],
    worlds: torch.Tensor | None,
    without: Sequence[str] = (),
    samples: int = 1,
) -> Picture:
    """Return a `Picture` of an engine's worlds, each with its own parameters and what its task shows of its memory.

    model: `engine.mjmodel` as it is now. Under SAME_STEP, `Picture.draw("final_")` draws the states before resets, if
    the engine keeps them.
    """
    params, task, widths = engine.layout.params, engine.task, engine.layout.memory
    columns = replace(params, model=model) if params else None
    shows = type(task).pictured is not Task.pictured or "pictured" in vars(task)
    buffers = [Buffer("qpos", engine.layout.nq), *(param_buffers(columns) if columns else [])]
    buffers += [Buffer("memory", size_of(widths))] if shows else []
    episode = engine._episode
    buffers += [Buffer("kept", size_of(engine.layout.kept))] if episode.kept.inputs else []

    def world(b: Mapping[str, Any]) -> tuple[Model, Data]:
        m = columns.world(b["params"], b["derived"]) if columns else model
        shown = task.pictured(engine.mjmodel, by_name(widths, b["memory"])) if shows else {}
        m = _showing(m, shown)
        return m, Data(m, qpos=b["qpos"], **episode.kept.inputs_of(b.get("kept", [])))

    states = {"": {b.name: engine.buffers[b.name] for b in buffers}}
    if engine.shows_end:
        ends = {b.name: f"final_{b.name}" for b in buffers}
        states["final_"] = {name: engine.buffers[end if end in engine.buffers else name] for name, end in ends.items()}
    what: str | None = f"{params.names if params else ()} {episode.kept.inputs}"
    if shows:
        what = f"{what} {type(task).__qualname__} {vars(task)}" if is_known(task) else None
    varied = params.names if params else ()
    seen = Worlds(engine.mjmodel, model, engine.num_envs, worlds, buffers, states, world, varied, what)
    return Picture(seen, Shot(camera, size, outputs, without, samples))


PLACES = (
    "body_pos", "body_quat", "geom_pos", "geom_quat", "geom_size", "site_pos", "site_quat", "site_size", "light_pos",
)  # fmt: skip


def _showing(m: Model, shown: Shown) -> Model:
    """Return a world's model with the numbers that its task shows instead of the model's.

    Raises ValueError for a field that a task cannot replace in pictures.
    """
    unknown = [name for name in shown if name not in PLACES]
    if unknown:
        raise ValueError(f"a task's pictured() may give {', '.join(PLACES)}, not {', '.join(unknown)}")
    fields: dict[str, Any] = {}
    for name, values in shown.items():
        rows = [list(row) for row in getattr(m, name)]
        for (row, column), x in values.items():
            rows[row][column] = x
        fields[name] = tuple(map(tuple, rows))
    only_shown = tuple(replace(x, values=fields.pop(x.name)) if x.name in fields else x for x in m.shown)
    return replace(m, nominal=m.nominal or m, shown=only_shown, **fields) if shown else m


def _remade(engine: Engine, options: PixelOptions, frames: np.ndarray) -> Pixels:
    made = Pixels(engine, options)
    made.load(torch.from_numpy(frames))
    return made
