"""Pictures of single worlds, for `render`: by OpenGL, or by rays where it is missing."""

from __future__ import annotations

import contextlib
import importlib
import operator
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import mujoco
import numpy as np
from gymnasium import logger

from ..checks import as_count
from ..rendering.camera import camera_of
from .engine import Engine
from .frames import OUTPUTS, Frames, UnsupportedModel
from .tasks.base import HELD

IMAGE_MODES = ("rgb_array", "depth_array", "rgbd_tuple")
DEFAULT_SIZE = 480  # width and height of a frame in pixels, as in gymnasium.envs.mujoco
failed: list[str] = []  # the error message of all later frames, once MuJoCo has found no OpenGL in this process
told: list[str] = []  # the warning that frames are drawn without OpenGL, once it was given


def before_opengl() -> None:
    """Import Triton, if it is installed, before OpenGL: once Mesa's LLVM is in the process, importing it would crash.

    Torch's CUDA builds include Triton and import it when they compile, as TorchRL does when it is imported.
    """
    with contextlib.suppress(ImportError):
        importlib.import_module("triton")


def no_opengl() -> tuple[type[Exception], ...]:
    """Return the exception types that OpenGL's backends raise when OpenGL is missing.

    They are those of MuJoCo, of PyOpenGL (whose functions are None without a library), of GLFW, and of the choice by
    MUJOCO_GL.
    """
    kinds: list[type[Exception]] = [mujoco.FatalError, ImportError, AttributeError, RuntimeError, OSError]
    for module, name in (("OpenGL.error", "Error"), ("glfw", "GLFWError")):
        if module in sys.modules:
            kinds.append(getattr(sys.modules[module], name))
    return tuple(kinds)


class Camera:
    """Draws single worlds with Gymnasium's MujocoRenderer. OpenGL is not used before the first frame is drawn.

    If OpenGL is missing, frames are drawn by rays, as by `Simulation.render`, and a warning says so once.

    Raises ValueError for an unknown mode or camera, a size that is none, or for both camera_id and camera_name.
    """

    def __init__(self, engine: Engine, mode: str | None, modes: Sequence[str], width: int, height: int, **options: Any):
        self._made = (engine, mode, tuple(modes), width, height), dict(options)
        if mode is not None and mode not in modes:
            raise ValueError(f"render_mode must be one of {list(modes)} or None, not {mode!r}")
        for name, size in (("width", width), ("height", height)):
            as_count(name, size)
        for camera in (options["camera_id"], options["camera_name"]):
            if camera is not None:  # Gymnasium takes an unknown name for the free camera
                camera_of(engine.mjmodel, camera)
        self.engine, self.mode = engine, mode
        self.renderer: Any = None
        self._drawn = False
        self._frames: Frames | None = None  # draws by rays if there is no OpenGL
        if options["default_camera_config"] is None:
            options["default_camera_config"] = engine.task.default_camera_config
        options["default_cam_config"] = _arrays(options.pop("default_camera_config"))
        self._options = {"width": width, "height": height} | options
        if mode is not None:
            self.prepare()

    def prepare(self) -> Any:
        """Return Gymnasium's renderer, which the first call makes."""
        if self.renderer is not None:
            return self.renderer
        before_opengl()
        from gymnasium.envs.mujoco.mujoco_rendering import MujocoRenderer

        model = self.engine.mjmodel
        model.vis.global_.offwidth = max(model.vis.global_.offwidth, self._options["width"])
        model.vis.global_.offheight = max(model.vis.global_.offheight, self._options["height"])
        self.renderer = MujocoRenderer(model, mujoco.MjData(model), **self._options)
        return self.renderer

    def at(self, world: int) -> Any:
        """Return Gymnasium's renderer with one world's state in its `data`."""
        with self.showing(world) as renderer:
            return renderer

    @contextlib.contextmanager
    def showing(self, world: int) -> Iterator[Any]:
        """Give Gymnasium's renderer one world's state and, within the block, the world's own model.

        That is the model with the world's own parameters and what the task shows of its memory.
        """
        renderer, engine = self.prepare(), self.engine
        model, data = renderer.model, renderer.data
        kept: dict[str, np.ndarray] = {}

        def put(name: str, at: Any, x: Any) -> None:
            array = mujoco.MjModel.__getattribute__(model, name)  # bypasses the view that keeps users from writing
            kept.setdefault(name, array.copy())
            array[at] = x

        try:
            for name, x in engine.own_fields(world).items():
                if hasattr(model, name):  # of mjOption's fields, as gravity, nothing is seen
                    put(name, ..., x)
            memory = {name: x[world].tolist() for name, x in engine.memory.items()}
            for name, values in engine.task.pictured(model, memory).items():
                for at, number in values.items():
                    put(name, at, number)
            if any(name.endswith(("pos", "quat")) for name in kept):
                for name in ("body_sameframe", "geom_sameframe", "site_sameframe"):
                    put(name, ..., 0)  # else MuJoCo takes frames that coincide in the model as equal
            if kept:
                _follow(model, data, put)
            data.qpos[:] = engine.qpos[world].cpu().numpy()
            data.qvel[:] = engine.qvel[world].cpu().numpy()
            if engine.layout.na:  # activations, by which tendons are coloured
                data.act[:] = engine.act[world].cpu().numpy()
            for body in (model.body_mocapid >= 0).nonzero()[0]:
                data.mocap_pos[model.body_mocapid[body]] = model.body_pos[body]
                data.mocap_quat[model.body_mocapid[body]] = model.body_quat[body]
            for name, x in engine.kept(world, 0.0).items():
                if name in HELD:
                    getattr(data, name)[:] = x
            mujoco.mj_forward(model, data)
            yield renderer
        finally:
            for name, x in dict(kept).items():
                put(name, ..., x)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        """Make a new camera for `copy.deepcopy` and pickle, as OpenGL's context cannot be copied."""
        arguments, options = self._made
        return partial(Camera, **options), arguments

    def frame(self, world: int, camera_id: int | None = None) -> Any:
        """Draw one world: a NumPy array, or what the render_mode gives; None and a warning without a render_mode.

        `camera_id` is a camera of the model, -1 for the free one, or None for the one chosen at construction. Raises
        RuntimeError, which says what to do, if there is no display for a window, or if OpenGL is missing and rays do
        not draw the model.
        """
        if self.mode is None:
            logger.warn("render() gives nothing without a render_mode: name one when making the environment")
            return None
        if self._frames is not None:
            return self._by_rays(world, camera_id)
        with self.showing(world) as renderer:
            if camera_id is not None:
                renderer.camera_id = camera_id
            frame, error = self._frame(renderer)
        return frame if error is None else self._without_opengl(world, error)

    def _frame(self, renderer: Any) -> tuple[Any, Exception | None]:
        """Return a frame, or the error that says that OpenGL is missing."""
        assert self.mode is not None
        if failed:
            return None, RuntimeError(failed[0])
        if renderer.viewer is not None:  # another environment may have drawn since, with textures of its own
            renderer.viewer.make_context_current()
        try:
            frame = renderer.render(self.mode)
        except no_opengl() as error:
            if self._drawn:
                raise
            _have_something_to_free(error)
            message = _no_opengl(self.mode, error)
            if isinstance(error, mujoco.FatalError):
                failed.append(f"{message} (this process has tried before, and MuJoCo would end it if it tried again)")
            told = RuntimeError(message)
            told.__cause__ = error
            return None, told
        self._drawn = True
        return frame, None

    def _without_opengl(self, world: int, error: Exception) -> Any:
        """Draw the first frame by rays, since OpenGL is missing; all later ones are drawn so, too."""
        options = self._options
        if self.mode not in OUTPUTS:
            raise error
        if options["visual_options"]:
            raise RuntimeError(f"{error}; without OpenGL there are no visual_options") from error.__cause__
        try:
            config = options["default_cam_config"] or {}
            self._frames = Frames(self.engine, (options["width"], options["height"]), config)
            frame = self._by_rays(world, self.renderer.camera_id)
        except UnsupportedModel as other:
            self._frames = None
            raise RuntimeError(f"{error}; nor can they be drawn without OpenGL: {other}") from error.__cause__
        if not told:
            told.append(f"{error}. Until then frames are drawn by rays, which takes no OpenGL: see docs/pixels.md")
            logger.warn(told[0])
        return frame

    def _by_rays(self, world: int, camera_id: int | None) -> Any:
        assert self._frames is not None and self.mode is not None
        if camera_id is not None:
            self.renderer.camera_id = camera_id
        return self._frames.frame(world, self.mode, self.renderer.camera_id)

    def close(self) -> None:
        """Close the window and free what drawing holds."""
        if self.renderer is not None:
            self.renderer.close()


def as_worlds(render_worlds: Sequence[int] | None, num_envs: int) -> tuple[int, ...]:
    """Return the worlds to be drawn: those given, else all.

    Raises ValueError for one that does not exist, TypeError for what is no list of numbers.
    """
    try:
        worlds = tuple(map(operator.index, range(num_envs) if render_worlds is None else render_worlds))
    except TypeError:
        raise TypeError(f"render_worlds must be numbers of worlds, such as [0, 5], not {render_worlds!r}") from None
    if not all(0 <= i < num_envs for i in worlds):
        raise ValueError(f"render_worlds must be from 0 to {num_envs - 1}, not {worlds}")
    return worlds


def endless_floors(model: mujoco.MjModel) -> None:
    """Draw planes without end, as they are for contacts: a fast robot would leave the drawn ones within seconds."""
    sizes = mujoco.MjModel.__getattribute__(model, "geom_size")  # bypasses the view that keeps users from writing
    for plane in (model.geom_type == mujoco.mjtGeom.mjGEOM_PLANE).nonzero()[0]:
        material, size = model.geom_matid[plane], sizes[plane, :2]
        if material >= 0 and not model.mat_texuniform[material] and (size > 0).all():
            model.mat_texrepeat[material] /= 2 * size  # it counts repetitions per plane, or per metre of an endless one
        sizes[plane, :2] = 0


def _follow(model: mujoco.MjModel, data: mujoco.MjData, put: Callable[[str, Any, Any], None]) -> None:
    """Derive where cameras and lights that track a body are relative to it. mj_setConst."""
    modes = model.cam_mode.copy(), model.light_mode.copy()
    for name in ("cam_mode", "light_mode"):
        put(name, ..., int(mujoco.mjtCamLight.mjCAMLIGHT_FIXED))
    data.qpos[:] = model.qpos0
    mujoco.mj_forward(model, data)
    for kind, bodies in (("cam", model.cam_bodyid), ("light", model.light_bodyid)):
        place = getattr(data, f"{kind}_xpos")
        put(f"{kind}_pos0", ..., place - data.xpos[bodies])
        put(f"{kind}_poscom0", ..., place - data.subtree_com[bodies])
    put("cam_mat0", ..., data.cam_xmat)
    put("light_dir0", ..., data.light_xdir)
    for name, mode in zip(("cam_mode", "light_mode"), modes, strict=True):
        put(name, ..., mode)


def _have_something_to_free(error: Exception) -> None:
    """Give a Gymnasium viewer whose constructor raised an error the context that its `__del__` frees."""
    trace = error.__traceback__
    while trace is not None:
        viewer: Any = trace.tb_frame.f_locals.get("self")
        if type(viewer).__name__ == "OffScreenViewer" and not hasattr(viewer, "opengl_context"):
            viewer.opengl_context = SimpleNamespace(free=lambda: None)
        trace = trace.tb_next


def _no_opengl(mode: str, error: Exception) -> str:
    """Return an error message that says what to do if the first frame could not be drawn."""
    if mode == "human":
        return f"there is no window to draw in ({error}): render_mode 'human' needs a display; 'rgb_array' needs none"
    chosen = os.environ.get("MUJOCO_GL")
    return (
        f"there is no OpenGL to draw with ({error}); MUJOCO_GL is {'not set' if chosen is None else repr(chosen)}. "
        "Without a display, set MUJOCO_GL=egl (Debian and Ubuntu: apt install libegl1) or MUJOCO_GL=osmesa "
        "(apt install libosmesa6) in the environment that Python starts in"
    )


def _arrays(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the camera's options as MujocoRenderer takes them: it copies arrays and assigns the rest."""
    return {k: np.array(v) if isinstance(v, (list, tuple)) else v for k, v in config.items()}
