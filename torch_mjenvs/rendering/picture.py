"""`Picture`: the kernels of a camera and their tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import mujoco
import torch

from ..compiler import launch, source
from ..compiler.build import Recipe, build
from ..compiler.program import Buffer, Program, record
from ..physics.model.data import Data
from ..physics.model.model import Model
from .scene import Scene, look, scene_of, see

OUTPUTS = ("depth", "segmentation")
World = Callable[[dict[str, Any]], tuple[Model, Data]]  # of the buffers' columns


def bytes_a_picture(shape: tuple[int, int], outputs: Sequence[str], itemsize: int) -> int:
    """Return how many bytes the outputs of one picture take."""
    return launch.padded(shape[0] * shape[1]) * sum(8 if name == "segmentation" else itemsize for name in outputs)


class Picture:
    """Pictures that a camera takes of worlds, in tensors that keep their addresses.

    `model` is that of the worlds, `state` the buffers that `world` makes a world's model and data of, `tensors` are
    theirs, and `worlds` says which worlds are drawn, None: all.
    """

    def __init__(
        self,
        mjm: mujoco.MjModel,
        model: Model,
        camera: int | str | mujoco.MjvCamera,
        shape: tuple[int, int],
        outputs: Sequence[str],
        worlds: torch.Tensor | None,
        num_worlds: int,
        state: Sequence[Buffer],
        tensors: Mapping[str, torch.Tensor],
        world: World,
        what: str,
    ):
        width, height = shape
        one = tensors[state[0].name]
        dtype, device = str(one.dtype).removeprefix("torch."), one.device
        scene = scene_of(mjm, camera)
        self._worlds, self._num_worlds, self.outputs = worlds, num_worlds, tuple(outputs)
        pixels = launch.padded(width * height)
        drawn = num_worlds if worlds is None else len(worlds)

        placing = [*state, Buffer("scene", max(scene.size, 1), rows=True)]
        kernel = build(_placing(model, scene, placing, world, dtype, what), device)
        self._scene = kernel.allocate(placing[-1], num_worlds)
        self._place = kernel.bind({**tensors, "scene": self._scene})
        self._seen = self._scene[:drawn] if worlds is None else torch.zeros_like(self._scene[:drawn])

        drawing = [
            Buffer("scene", max(scene.size, 1), share=pixels),
            Buffer("rays", 2, period=pixels),
            *(Buffer(name, 2, "i") if name == "segmentation" else Buffer(name, 1) for name in self.outputs),
        ]
        kernel = build(_drawing(model, scene, drawing, self.outputs, dtype), device)
        held = {b.name: kernel.allocate(b, drawn * pixels) for b in drawing[1:]}
        rays = torch.tensor(scene.camera.rays(width, height), dtype=one.dtype, device=device)
        held["rays"][:, : width * height] = rays.T
        self._draw = kernel.bind({**held, "scene": self._seen})
        views = {name: held[name].view(-1, drawn, pixels)[:, :, : width * height] for name in self.outputs}
        self.tensors = {
            name: x.unflatten(2, (height, width)).movedim(0, -1) if name == "segmentation" else
            x[0].unflatten(1, (height, width)) for name, x in views.items()
        }  # fmt: skip

    def draw(self) -> None:
        """Draw the worlds as they stand."""
        self._place()
        if self._worlds is not None:
            torch.index_select(self._scene, 0, self._worlds, out=self._seen)
        self._draw()


def _placing(model: Model, scene: Scene, buffers: list[Buffer], world: World, dtype: str, what: str) -> Recipe:
    """Return the recipe of the kernel in which a lane is a world: it finds where everything is to the camera."""

    def body(b: dict[str, Any]) -> dict[str, Any]:
        return {"scene": see(*world(b), scene) or [0.0]}

    def make() -> Program:
        return record("scene", buffers, body, dtype)

    return Recipe("scene", tuple(buffers), dtype, make, source.origin(model.digest, f"{what} {scene}"))


def _drawing(model: Model, scene: Scene, buffers: list[Buffer], outputs: tuple[str, ...], dtype: str) -> Recipe:
    """Return the recipe of the kernel in which a lane is a pixel."""

    def body(b: dict[str, Any]) -> dict[str, Any]:
        depth, number, kind = look(model, scene, b["scene"], *b["rays"])
        out = {"depth": [depth], "segmentation": [number, kind]}
        return {name: out[name] for name in outputs}

    def make() -> Program:
        return record("picture", buffers, body, dtype)

    return Recipe("picture", tuple(buffers), dtype, make, source.origin(model.digest, f"{scene} {outputs}"))
