"""The options of `pixels=dict(...)`: what the pictures are like that an environment's observations are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import mujoco

from ..checks import as_count, as_names, check_field
from ..rendering.picture import SAMPLES
from ..rendering.scene import EFFECTS

CHANNELS = {"rgb": 3, "depth": 1, "segmentation": 2}
OF_ALL = ("state", "action_repeat")  # options that are those of an environment, not of one of its views


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

    A further entry, `views`, asks for several pictures; see `as_options`.
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
        if not isinstance(self.outputs, str) or self.outputs not in CHANNELS:
            raise ValueError(f"pixels: outputs must be one of {list(CHANNELS)}, not {self.outputs!r}")
        if not isinstance(self.samples, int) or self.samples not in SAMPLES:
            raise ValueError(f"pixels: samples must be one of {list(SAMPLES)}, not {self.samples!r}")
        unknown = [x for x in self.effects if x not in EFFECTS]
        if unknown:
            raise ValueError(f"pixels: unknown effects {unknown} to do without: choose from {list(EFFECTS)}")

    @property
    def effects(self) -> tuple[str, ...]:
        return as_names("pixels: without", self.without)

    @property
    def shape(self) -> tuple[int, int, int]:
        """The shape of one world's observation."""
        channels = CHANNELS[self.outputs] * self.stack
        return (channels, self.height, self.width) if self.channels_first else (self.height, self.width, channels)


@dataclass(frozen=True)
class ViewOptions:
    """The options of several pictures of each world, by name; `state` and `action_repeat` as in `PixelOptions`."""

    views: dict[str, PixelOptions]
    state: bool = False
    action_repeat: int = 1


def as_options(given: Mapping[str, Any] | None) -> PixelOptions | ViewOptions | None:
    """Return the options of `pixels=`; None for None. Raises TypeError for others, and for unknown ones.

    With an entry `views`, a dict of options by name, there are several pictures: each has these options, and the others
    where it has none of its own. A list of names of cameras is short for one view of each, by the camera's name.
    """
    if given is None:
        return None
    known = list(PixelOptions.__dataclass_fields__)
    if not isinstance(given, Mapping):
        raise TypeError(f"pixels must be a dict with some of {[*known, 'views']}, not {given!r}")
    unknown = [name for name in given if name not in known and name != "views"]
    if unknown:
        raise TypeError(f"pixels has no {unknown}: choose from {[*known, 'views']}")
    options = PixelOptions(**{name: x for name, x in given.items() if name != "views"})
    if (views := given.get("views")) is None:
        return options
    of_each = _views(views, replace(options, state=False, action_repeat=1))
    return ViewOptions(of_each, options.state, options.action_repeat)


def _views(given: Any, common: PixelOptions) -> dict[str, PixelOptions]:
    """Return the options of each view, by name: those that all have in common, and its own."""
    if isinstance(given, list | tuple) and all(isinstance(name, str) for name in given):
        if len(given) > len(set(given)):
            raise ValueError(f"pixels: views has a camera twice: {list(given)}")
        given = {name: {"camera": name} for name in given}
    if not isinstance(given, Mapping) or not given or not all(name and isinstance(name, str) for name in given):
        raise TypeError(
            "pixels: views must be a dict of options by name, such as {'wrist': {'camera': 'wrist', 'stack': 1}}, or a "
            f"list of names of cameras, not {given!r}"
        )
    own = [name for name in PixelOptions.__dataclass_fields__ if name not in OF_ALL]
    for name, options in given.items():
        unknown = [x for x in options if x not in own] if isinstance(options, Mapping) else [options]
        if unknown:
            raise TypeError(f"pixels: the view {name!r} must be a dict with some of {own}, and has {unknown}")
    return {name: replace(common, **options) for name, options in given.items()}


def as_repeats(action_repeat: int, pictures: PixelOptions | ViewOptions | None) -> int:
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
