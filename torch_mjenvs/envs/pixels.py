"""Pictures of an environment's worlds as its observations, drawn by rays right after each step and reset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import mujoco
import numpy as np
import torch
from gymnasium.spaces import Box, Dict

from ..checks import check_memory
from ..compiler import launch
from ..compiler.program import Buffer
from ..physics.model.data import Data
from ..physics.model.model import Model
from ..physics.world_params import param_buffers
from ..rendering.picture import Picture, Shot, Worlds, bytes_a_picture
from .engine import Engine
from .episode import is_known
from .frame_stack import FrameStack
from .model_view import drawn_by_rays
from .packing import by_name, size_of
from .pixel_options import PixelOptions, ViewOptions
from .tasks.base import Shown, Task

SHARE, MANY = 16, 4  # worlds that begin an episode are drawn in groups of 1/16 of all worlds, up to 4 of these


def pixels_of(engine: Engine, options: PixelOptions | ViewOptions | None) -> Pixels | Views | None:
    """Return the pictures that these options ask for; None for none.

    Raises MemoryError, on a GPU torch.OutOfMemoryError, if the pictures do not fit, and `UnsupportedModel` for a model
    that is not drawn.
    """
    if options is None:
        return None
    each = options.views.values() if isinstance(options, ViewOptions) else [options]
    check_memory("num_envs", engine.num_envs, sum(_bytes_a_world(engine, x) for x in each), engine.device)
    drawn_by_rays(engine.mjmodel)
    return Views(engine, options) if isinstance(options, ViewOptions) else Pixels(engine, options)


def _bytes_a_world(engine: Engine, options: PixelOptions) -> int:
    itemsize, n = engine.dtype.itemsize, engine.num_envs
    row = options.shape[0] * options.shape[1] * options.shape[2]
    held = bytes_a_picture(engine.mjmodel, (options.width, options.height), (options.outputs,), itemsize)
    held += held * _few_of(engine) // n
    stacks = 5 if engine.shows_end else 3  # with those that users have and get next
    return held + stacks * row * {"rgb": 1, "depth": itemsize, "segmentation": 4}[options.outputs]


def _few_of(engine: Engine) -> int:
    """Return how many worlds that begin an episode are drawn at once; 0 where all worlds are drawn again."""
    return -(-engine.num_envs // SHARE) if engine.shows_end and engine.device.type == "cpu" else 0


class Pixels:
    """Pictures of an engine's worlds, the last `stack` of each. `name` is theirs in `state`.

    Under SAME_STEP the kernel begins new episodes itself, so the engine keeps the states in which episodes ended
    (`Engine.shows_end`), and `draw_both` returns their last pictures. On CPUs the first pictures of new episodes are
    then drawn only for the worlds that begin one, in groups.
    """

    def __init__(self, engine: Engine, options: PixelOptions, name: str = "pixels"):
        self.engine, self.options, self.name = engine, options, name
        size, outputs, some = (options.width, options.height), (options.outputs,), _few_of(engine)
        camera = options.camera if options.camera is not None else min(engine.mjmodel.ncam, 1) - 1
        how = options.effects, options.samples
        self._picture = picture_of(engine, engine.model, camera, size, outputs, None, *how)
        self._some = torch.zeros(some, dtype=torch.int64, device=engine.device)  # the worlds of `_few`
        self._few = picture_of(engine, engine.model, camera, size, outputs, self._some, *how) if some else None
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
            self._fill(torch.where(left_out[:, None, None, None], old, self.stack.frames))
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

    @property
    def state(self) -> dict[str, torch.Tensor]:
        """The stacks (N, height, width, channels) by name, in memory of their own."""
        return {self.name: self.stack.frames}

    def load(self, state: Mapping[str, torch.Tensor]) -> None:
        """Replace the stacks by those of a `state`."""
        self._fill(state[self.name].detach())

    def _fill(self, frames: torch.Tensor) -> None:
        self.stack.frames.copy_(frames)
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
        return _remade, (self.engine, self.options, self.name, self.stack.frames.cpu().numpy())


class Views:
    """Several pictures of an engine's worlds, by name: what `Pixels` does, for each."""

    def __init__(self, engine: Engine, options: ViewOptions):
        self.options = options
        self.views = {name: Pixels(engine, x, f"pixels.{name}") for name, x in options.views.items()}

    def draw(
        self, begun: torch.Tensor | None = None, others: bool = True, left_out: torch.Tensor | None = None
    ) -> None:
        """Take the pictures: see `Pixels.draw`."""
        for pixels in self.views.values():
            pixels.draw(begun, others, left_out)

    def draw_both(self, ended: torch.Tensor) -> dict[str, torch.Tensor]:
        """Take the pictures after a step that also reset worlds: see `Pixels.draw_both`."""
        return {name: pixels.draw_both(ended) for name, pixels in self.views.items()}

    def seen(self) -> dict[str, torch.Tensor]:
        """Return copies of the observations of all worlds, by the views' names."""
        return {name: pixels.seen() for name, pixels in self.views.items()}

    @property
    def state(self) -> dict[str, torch.Tensor]:
        """The stacks of all views by name: see `Pixels.state`."""
        return {name: x for pixels in self.views.values() for name, x in pixels.state.items()}

    def load(self, state: Mapping[str, torch.Tensor]) -> None:
        """Replace the stacks by those of a `state`."""
        for pixels in self.views.values():
            pixels.load(state)

    @property
    def space(self) -> Dict:
        """The space of one world's observation."""
        return Dict({name: pixels.space for name, pixels in self.views.items()}, sort_keys=False)


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


def _remade(engine: Engine, options: PixelOptions, name: str, frames: np.ndarray) -> Pixels:
    made = Pixels(engine, options, name)
    made.load({name: torch.from_numpy(frames)})
    return made
