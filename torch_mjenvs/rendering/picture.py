"""`Picture`: the kernels that draw what a camera sees, and their tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import mujoco
import numpy as np
import torch

from ..compiler import launch, source
from ..compiler.arrays import Table
from ..compiler.build import Recipe, build
from ..compiler.control import repeat
from ..compiler.expr import Expr, node
from ..compiler.program import Buffer, Program, record
from ..compiler.scalar import Scalar, clip
from ..physics.algebra.spatial import Vec
from ..physics.model.data import Data
from ..physics.model.model import Model
from . import textures
from .camera import pose, pose_of
from .colours import colour, sky
from .pixel import Pixel
from .scene import Scene, scene_of
from .shapes import KINDS
from .views import Placed, View, look, placements, see

OUTPUTS = ("rgb", "depth", "segmentation")
# The places in a pixel where its colour is found, in pixels from the middle: one in each row and column of a grid.
SAMPLES = {1: [(0.0, 0.0)], 4: [(-0.125, -0.375), (0.375, -0.125), (-0.375, 0.125), (0.125, 0.375)]}
World = Callable[[dict[str, Any]], tuple[Model, Data]]  # from a world's buffers: its model and data


def bytes_a_picture(mjm: mujoco.MjModel, shape: tuple[int, int], outputs: Sequence[str], itemsize: int) -> int:
    """Return how many bytes a picture takes: twice its outputs where there are meshes, which are drawn by tiles."""
    sizes = {"rgb": 4, "depth": itemsize, "segmentation": 8}
    return (2 if mjm.nmesh else 1) * launch.padded(shape[0] * shape[1]) * sum(sizes[name] for name in outputs)


@dataclass(frozen=True)
class Worlds:
    """The worlds that pictures show.

    mjm, model: the model of all of them. count: their number; chosen: those that are drawn, None for all. state: the
    buffers from which `world` makes a world's model and data. states: tensors for these, by the names under which they
    can be drawn. vary: what differs from world to world. what: distinguishes `world` from others with this model; None
    if nothing does: then the code is not cached.
    """

    mjm: mujoco.MjModel
    model: Model
    count: int
    chosen: torch.Tensor | None
    state: Sequence[Buffer]
    states: Mapping[str, Mapping[str, torch.Tensor]]
    world: World
    vary: Sequence[str]
    what: str | None


@dataclass(frozen=True)
class Shot:
    """The picture to take: a camera, width and height, OUTPUTS, effects that are left out, and samples a pixel.

    moving: whether `Picture.look_from` may move the camera, a free or tracking one, between pictures.
    """

    camera: int | str | mujoco.MjvCamera
    shape: tuple[int, int]
    outputs: Sequence[str]
    without: Sequence[str] = ()
    samples: int = 1
    moving: bool = False


class Picture:
    """Pictures that a camera takes of worlds, in tensors that keep their addresses.

    The next picture shows what was written into the worlds' tensors. `tensors` are the outputs as users see them,
    `numbers` as kernels write them: (numbers, worlds, pixels), where `rgb` is one number, red + 256 green + 65536 blue.
    """

    def __init__(self, worlds: Worlds, shot: Shot):
        width, height = shot.shape
        one = next(iter(worlds.states.values()))[worlds.state[0].name]
        dtype, device = launch.name_of(one.dtype), one.device
        known, texels = textures.read(worlds.mjm) if "rgb" in shot.outputs else (None, None)
        scene, triangles = scene_of(worlds.mjm, shot.camera, known, shot.without, worlds.vary)
        scene = scene.without(_covered(scene, worlds, dtype))
        self.camera = scene.camera
        if shot.moving:  # then its pose is read from a buffer
            scene = replace(scene, camera=replace(scene.camera, place=(), axes=()))
        self._chosen, self.outputs = worlds.chosen, tuple(shot.outputs)
        pixels = launch.padded(width * height)
        drawn = worlds.count if worlds.chosen is None else len(worlds.chosen)

        more = [Buffer("camera", 12, table=True)] if shot.moving else []
        placing = [*worlds.state, *more, Buffer("scene", max(scene.size, 1), rows=True)]
        kernel = build(_placing(worlds, scene, placing, dtype), device)
        own = {b.name: kernel.allocate(b, worlds.count) for b in placing[len(worlds.state) :]}
        self._scene, self._pose = own["scene"], own.get("camera")
        self._place = {name: kernel.bind({**x, **own}) for name, x in worlds.states.items()}
        self._seen = self._scene[:drawn] if worlds.chosen is None else torch.zeros_like(self._scene[:drawn])

        drawing = [
            Buffer("scene", max(scene.size, 1), share=pixels),
            Buffer("rays", 2, period=pixels),
            *(_BUFFERS[name] for name in self.outputs),
        ]
        tables = {name: x for name, x in (("texels", texels), ("meshes", triangles)) if x is not None}
        drawing += [Buffer(name, len(x), x.dtype.kind, table=True) for name, x in tables.items()]
        axes = _still(scene, worlds, dtype) if scene.sky and shot.samples == 1 and not shot.moving else None
        if axes is not None:
            drawing.append(Buffer("sky", 3, period=pixels))
        kernel = build(_drawing(worlds.model, scene, drawing, shot, dtype), device)
        held = {b.name: kernel.allocate(b, drawn * pixels) for b in drawing[1:]}
        for name, x in tables.items():
            held[name].copy_(torch.from_numpy(x))
        rays = torch.tensor(scene.camera.rays(width, height), dtype=one.dtype, device=device)
        order = _by_tiles(width, height).to(device) if scene.has_meshes else None
        held["rays"][:, : width * height] = (rays if order is None else rays[order]).T
        if axes is not None:
            buffers = [replace(b, period=0) if b.name == "sky" else b for b in drawing if b.name in _OF_SKY]
            launched = {b.name: held[b.name] for b in buffers}
            build(_sky(worlds.model, scene, buffers, axes, shot.shape, dtype), device).bind(launched)()
        self._draw = kernel.bind({**held, "scene": self._seen})
        views = {name: held[name].view(-1, drawn, pixels)[:, :, : width * height] for name in self.outputs}
        self._sorted: list[tuple[torch.Tensor, torch.Tensor]] = []  # outputs drawn by tiles, and row by row
        self.numbers = views if order is None else self._in_rows(views, order)
        self.tensors = {name: _as_users_want(name, x.unflatten(2, (height, width))) for name, x in self.numbers.items()}

    def _in_rows(self, views: dict[str, torch.Tensor], order: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return tensors for outputs that are drawn in this order of pixels, into which `draw` puts them row by row."""
        self._back = order.argsort()
        out = {
            name: launch.mark_static_address(torch.zeros_like(x, memory_format=torch.contiguous_format))
            for name, x in views.items()
        }
        self._sorted = [(x, out[name]) for name, x in views.items()]
        return out

    def look_from(self, camera: mujoco.MjvCamera) -> None:
        """Move the camera, of a `Shot` that is `moving`, to where this one is."""
        assert self._pose is not None
        place, axes = pose_of(camera)
        self._pose.copy_(torch.tensor([*place, *axes], dtype=self._pose.dtype))

    def draw(self, state: str = "") -> None:
        """Draw the worlds as they stand in the state of this name."""
        self._place[state]()
        if self._chosen is not None:
            torch.index_select(self._scene, 0, self._chosen, out=self._seen)
        self._draw()
        for drawn, wanted in self._sorted:
            torch.index_select(drawn, 2, self._back, out=wanted)


_BUFFERS = {
    "rgb": Buffer("rgb", 1, "i"),  # red + 256 green + 65536 blue
    "depth": Buffer("depth", 1),
    "segmentation": Buffer("segmentation", 2, "i"),
}


_OF_SKY = ("rays", "texels", "sky")


TILE = 4


def _by_tiles(width: int, height: int) -> torch.Tensor:
    """Return the numbers of a picture's pixels, row by row, in an order in which a vector's pixels form a square.

    Rays go down the trees of meshes vector by vector: a square meets fewer boxes than a row does.
    """
    y, x = (k.ravel() for k in np.indices((height, width)))
    return torch.from_numpy(np.lexsort((x, y, x // TILE, y // TILE)))


def _covered(scene: Scene, worlds: Worlds, dtype: str) -> set[int]:
    """Return the things that are never visible, since a later one of the same shape is always exactly there, in all
    worlds.
    """
    alike: dict[Any, list[int]] = {}
    for k, x in enumerate(scene.drawn):
        if x.opaque and (x.shape in KINDS or x.tree) and x.bounded:
            alike.setdefault((x.shape, x.tree), []).append(k)
    if all(len(group) == 1 for group in alike.values()):
        return set()
    found: list[Placed] = []

    def body(b: dict[str, Any]) -> dict[str, Any]:
        m, d = worlds.world(b)
        found.extend(placements(m, d, scene))
        return {}

    record("places", worlds.state, body, dtype)
    out = set()
    for group in alike.values():
        last: dict[tuple[float, ...], int] = {}
        for k in group:
            place = tuple(id(x) if isinstance(x, Expr) else float(x) for part in found[k] for x in part)
            out |= {last[place]} if place in last else set()
            last[place] = k
    return out


def _still(scene: Scene, worlds: Worlds, dtype: str) -> Vec | None:
    """Return the camera's axes if they are the same in all worlds at all times, as those of tracking cameras are."""
    axes: list[Scalar] = []

    def body(b: dict[str, Any]) -> dict[str, Any]:
        m, d = worlds.world(b)
        axes.extend(pose(m, d, scene.camera)[1])
        return {}

    record("camera", worlds.state, body, dtype)
    return axes if all(isinstance(x, (float, int)) for x in axes) else None


def _as_users_want(name: str, x: torch.Tensor) -> torch.Tensor:
    """Return a view of an output, (numbers, worlds, height, width), as users see it."""
    if name == "segmentation":
        return x.movedim(0, -1)
    return x[0].unsqueeze(-1).view(torch.uint8)[..., :3] if name == "rgb" else x[0]


def _placing(worlds: Worlds, scene: Scene, buffers: list[Buffer], dtype: str) -> Recipe:
    """Return the recipe of the kernel in which a lane is a world: it finds where everything is from the camera."""

    def body(b: dict[str, Any]) -> dict[str, Any]:
        m, d = worlds.world(b)
        shown = scene
        if "camera" in b:
            numbers = [b["camera"][k] for k in range(12)]
            shown = replace(scene, camera=replace(scene.camera, place=numbers[:3], axes=numbers[3:]))
        return {"scene": see(m, d, shown) or [0.0]}

    def make() -> Program:
        return record("scene", buffers, body, dtype)

    m = worlds.model
    origin = None if worlds.what is None else source.origin(m.digest, f"{worlds.what} {scene} {m.shown}")
    return Recipe("scene", tuple(buffers), dtype, make, origin)


def _sky(model: Model, scene: Scene, buffers: list[Buffer], axes: Vec, shape: tuple[int, int], dtype: str) -> Recipe:
    """Return the recipe of the kernel that draws the sky once for all pictures of a camera that never turns."""
    step, texture = scene.camera.step(*shape), scene.sky
    assert texture is not None

    def body(b: dict[str, Any]) -> dict[str, Any]:
        return {"sky": sky(b["texels"], texture, axes, [*b["rays"], -1.0], step)}

    def make() -> Program:
        return record("sky", buffers, body, dtype)

    origin = source.origin(model.digest, f"{texture} {axes} {step}")
    return Recipe("sky", tuple(buffers), dtype, make, origin)


def _drawing(model: Model, scene: Scene, buffers: list[Buffer], shot: Shot, dtype: str) -> Recipe:
    """Return the recipe of the kernel in which a lane is a pixel."""
    outputs, samples = tuple(shot.outputs), shot.samples
    step = scene.camera.step(*shot.shape)

    def body(b: dict[str, Any]) -> dict[str, Any]:
        everything = range(len(scene.drawn))
        out: dict[str, Any] = {}
        if set(outputs) != {"rgb"}:
            view = View(scene, b["scene"], 0, b.get("meshes"))
            x, y = b["rays"]
            depth, _, number, kind, _ = look(model, scene, view, x, y, everything, scene.camera.near)
            out = {"depth": [depth], "segmentation": [number, kind]}
        if "rgb" in outputs:
            x, y = b["rays"]
            places = Table([[step[0] * u, step[1] * v] for u, v in SAMPLES[samples]])

            def sample(i: Any, c: list[Scalar]) -> list[Scalar]:
                there = x + places[i, 0], y + places[i, 1]
                more = colour(Pixel(model, scene, b["scene"], b["texels"], b.get("meshes"), *there, step, b.get("sky")))
                return [a + e * (1.0 / samples) for a, e in zip(c, more, strict=True)]

            shown = repeat(samples, sample, [0.0, 0.0, 0.0])
            red, green, blue = (node("f2i", clip(255.0 * x + 0.5, 0.0, 255.5)) for x in shown)
            out["rgb"] = [node("iadd", red, node("iadd", node("ishl", green, 8), node("ishl", blue, 16)))]
        return {name: out[name] for name in outputs}

    def make() -> Program:
        return record("picture", buffers, body, dtype)

    origin = source.origin(model.digest, f"{scene} {outputs} {step} {samples}")
    return Recipe("picture", tuple(buffers), dtype, make, origin)
