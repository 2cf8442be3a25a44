"""Frames of single worlds drawn by rays when `render()` has no OpenGL, as Gymnasium's MujocoRenderer returns them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mujoco
import numpy as np
import torch

from ..checks import as_count
from ..physics.model.model import Model, UnsupportedModel
from ..rendering.camera import which
from ..rendering.parameters import load
from .engine import Engine
from .model_view import drawn_by_rays
from .pixels import picture_of

__all__ = ["OUTPUTS", "Frames", "UnsupportedModel", "drawing_of"]

OUTPUTS = {"rgb_array": ("rgb",), "depth_array": ("depth",), "rgbd_tuple": ("rgb", "depth")}


class Frames:
    """Draws single worlds of an engine, each with its own model, as `MujocoRenderer` in one of the modes of `OUTPUTS`.

    config: attributes of the free camera, by the names of `mujoco.MjvCamera`, in place of the defaults. The model is
    `engine.mjmodel` when the first frame is drawn. Raises `UnsupportedModel` for what rays do not draw.
    """

    def __init__(self, engine: Engine, size: tuple[int, int], config: dict[str, Any]):
        self._engine, self._size = engine, size
        self._model: Model = load(engine.mjmodel)
        self._free = _free_camera(engine, config)
        drawn_by_rays(engine.mjmodel)
        self._pictures: dict[Any, Any] = {}
        self._world = torch.zeros(1, dtype=torch.int64, device=engine.device)

    def frame(self, world: int, mode: str, camera: int) -> Any:
        """Return a world's frame: bytes (H, W, 3), depths (H, W) float32 as OpenGL keeps them, or a tuple of both.

        camera: a camera of the model, -1 the free one.
        """
        engine, outputs = self._engine, OUTPUTS[mode]
        seen = self._free if camera == -1 else camera
        key = (which(seen), outputs)
        if key not in self._pictures:
            samples = 4 if engine.mjmodel.vis.quality.offsamples > 0 else 1
            self._pictures[key] = picture_of(
                engine, self._model, seen, self._size, outputs, self._world, samples=samples
            )
        picture = self._pictures[key]
        self._world.fill_(world)
        engine._follow()
        picture.draw()
        found = {name: x[0].cpu().numpy().copy() for name, x in picture.tensors.items()}
        if "depth" in found:  # OpenGL's: 0 at the nearest, 1 at the farthest that is drawn
            near, far = picture.camera.near, picture.camera.far
            found["depth"] = ((1.0 - near / found["depth"]) * (far / (far - near))).astype(np.float32)
        frames = tuple(found[name] for name in outputs)
        return frames if len(frames) > 1 else frames[0]


def drawing_of(engine: Engine, size: tuple[int, int], camera: int, output: str) -> Callable[[], np.ndarray]:
    """Return a function that draws every world of an engine by rays: "rgb", "depth" in metres or "segmentation".

    size: width and height. The model is `engine.mjmodel` as it is now. Raises `UnsupportedModel` for what rays do not
    draw.
    """
    for name, x in zip(("width", "height"), size, strict=True):
        as_count(name, x)
    picture = picture_of(engine, load(engine.mjmodel), camera, size, (output,), None)
    drawn_by_rays(engine.mjmodel)

    def draw() -> np.ndarray:
        engine._follow()
        picture.draw()
        return picture.tensors[output].cpu().numpy().copy()

    return draw


def _free_camera(engine: Engine, config: dict[str, Any]) -> mujoco.MjvCamera:
    """Return the free camera, which looks at the model as its first world stands, or as `config` says."""
    model, data = engine.mjmodel, mujoco.MjData(engine.mjmodel)
    data.qpos[:] = engine.qpos[0].cpu().numpy()
    mujoco.mj_forward(model, data)
    camera = mujoco.MjvCamera()
    camera.lookat[:] = np.median(data.geom_xpos, 0)
    camera.distance = model.stat.extent
    for name, x in config.items():
        if isinstance(x, np.ndarray):
            getattr(camera, name)[:] = x
        else:
            setattr(camera, name, x)
    camera.type = mujoco.mjtCamera.mjCAMERA_FREE  # as in Gymnasium, whatever is tracked
    return camera
