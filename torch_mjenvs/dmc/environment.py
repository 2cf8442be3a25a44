"""dm_control's suite behind DeepMind's interface: batched `dm_env` environments, of NumPy arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dm_env
import mujoco
import numpy as np
import torch
from dm_env import specs

from ..checks import as_tensor
from ..envs.camera import Camera
from ..envs.frames import drawing_of
from ..envs.vector_env import TorchVectorEnv

FLAT = "observations"  # the name of an observation in one row, as in dm_control
PIXELS = "pixels"  # the name of pictures


class SuiteEnvironment(dm_env.Environment):
    """N worlds of a task as a `dm_env.Environment`; without a number of worlds, one world without the axis of worlds.

    A time step has a step type, reward and discount for each world, (N,), and observations by name, (N, ...), all of
    them NumPy arrays. Reward and discount are None if every world begins an episode; where only some do, theirs are
    0 and 1. At the time limit the discount is 1, where a task ends it is 0. What follows LAST is FIRST.
    """

    def __init__(self, env: TorchVectorEnv, seed: int | None, batched: bool):
        self._env, self._seed, self._batched = env, seed, batched
        self._cameras: dict[tuple[int, int], Camera] = {}  # by height and width
        self._drawings: dict[tuple[tuple[int, int], int, str], Callable[[], np.ndarray]] = {}  # by size, camera, output
        self._bad = np.zeros(env.num_envs, bool)
        own, pictures = self._parts(env.obs)
        if both := sorted(own.keys() & pictures.keys()):
            raise ValueError(f"the task's observations have the names {both}, as have views of pixels: rename these")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._env!r})"

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for `copy.deepcopy` and pickle: pictures are drawn by kernels, which cannot be copied."""
        return vars(self) | {"_drawings": {}}

    @property
    def env(self) -> TorchVectorEnv:
        """The `TorchVectorEnv` beneath."""
        return self._env

    @property
    def bad_state(self) -> np.ndarray:
        """The worlds (N,) whose episode the last step ended as their state or action was not finite, or beyond 1e10."""
        return self._bad.copy()

    def reset(self) -> dm_env.TimeStep:
        """Begin a new episode in every world."""
        obs, _ = self._env.reset(seed=None if self._env.ready else self._seed)
        first = np.full(self._env.num_envs, dm_env.StepType.FIRST)
        return dm_env.TimeStep(self._kinds(first), None, None, self._named(obs))

    def step(self, action: Any) -> dm_env.TimeStep:
        """Take one control step with actions (N, A); worlds whose episode had ended begin a new one instead.

        Without an axis of worlds an action is (A,), or one number for all of it, as for dm_control. Raises ValueError
        for another shape, TypeError for anything but real numbers. A world whose state or action is not finite, or
        beyond 1e10, ends its episode, and is one of `bad_state`; without an axis of worlds this raises RuntimeError,
        as in dm_control.
        """
        waiting = self._env.engine.done.cpu().numpy().copy()  # worlds that begin an episode with this step
        if not self._env.ready or waiting.all():
            return self.reset()
        n, shape = self._env.num_envs, self._action_shape
        actions = as_tensor("action", np.asarray(action), shape, self._env.device, ()).expand(shape)
        obs, reward, terminated, truncated, info = self._env.step(actions if self._batched else actions[None])
        self._bad = info["bad_state"].cpu().numpy().copy()
        ended, cut = (terminated | truncated).cpu().numpy(), truncated.cpu().numpy()
        kinds = np.full(n, dm_env.StepType.MID)
        kinds[ended] = dm_env.StepType.LAST
        kinds[waiting] = dm_env.StepType.FIRST
        discount = np.where(ended & ~cut, 0.0, 1.0)
        if self._bad.any() and not self._batched:
            raise RuntimeError("Physics state is invalid: a state or action is not finite, or beyond 1e10")
        found = self._one(reward.cpu().numpy().astype(float)), self._one(discount)
        return dm_env.TimeStep(self._kinds(kinds), *found, self._named(obs))

    def action_spec(self) -> specs.BoundedArray:
        """Return the bounds of an action, which are dm_control's: (A,), or (N, A) if `num_envs` was given."""
        low, high = np.array(self._env.engine.layout.bounds, float).T
        shape = self._action_shape
        return specs.BoundedArray(shape, float, np.broadcast_to(low, shape), np.broadcast_to(high, shape))

    def observation_spec(self) -> dict[str, specs.Array]:
        """Return the shapes of an observation by name."""
        found = self._named(self._env.obs)
        return {name: specs.Array(x.shape, x.dtype, name) for name, x in found.items()}

    def reward_spec(self) -> specs.Array:
        """Return the shape of a reward: () or (N,)."""
        return specs.Array(self._shape, float, "reward")

    def discount_spec(self) -> specs.BoundedArray:
        """Return shape and bounds of a discount: () or (N,), from 0 to 1."""
        return specs.BoundedArray(self._shape, float, 0.0, 1.0, "discount")

    @property
    def physics(self) -> Physics:
        """An object with dm_control's `physics.render`, for agents that learn from pictures."""
        return Physics(self)

    def render(
        self,
        height: int = 240,
        width: int = 320,
        camera_id: int | str = -1,
        *,
        depth: bool = False,
        segmentation: bool = False,
    ) -> np.ndarray:
        """Draw every world as dm_control's `physics.render` does: (N, height, width, 3) bytes.

        With `depth`, (N, height, width) metres, at most where drawing ends (visual/map/zfar); with `segmentation`, (N,
        height, width, 2) int32, the number of what is seen and its type, -1 where there is nothing. Both are drawn by
        rays, without OpenGL. Without `num_envs` there is no axis of worlds.
        `camera_id` is the number or name of a camera of the model, or -1 for the free one.

        Raises ValueError for an unknown camera, or for both depth and segmentation; RuntimeError, which says what to
        do, if there is no OpenGL and rays cannot draw the model; `UnsupportedModel` if rays alone are to.
        """
        model = self._env.model
        if depth and segmentation:
            raise ValueError("draw depth and segmentation one after the other: give one of them")
        number = camera_id if isinstance(camera_id, int) else named_camera(model, camera_id)
        if not -1 <= number < model.ncam:
            raise ValueError(f"the model has no camera {number}: it has {model.ncam}, and -1 is the free one")
        if depth or segmentation:
            return self._by_rays((width, height), number, "depth" if depth else "segmentation")
        if (height, width) not in self._cameras:
            free = mujoco.MjvCamera()
            mujoco.mjv_defaultFreeCamera(model, free)
            view = {name: getattr(free, name) for name in ("lookat", "distance", "azimuth", "elevation")}
            self._cameras[height, width] = Camera(
                self._env.engine, "rgb_array", ["rgb_array"], width, height, camera_id=-1, camera_name=None,
                max_geom=1000, visual_options=None, default_camera_config=view,
            )  # fmt: skip
        frames = [self._cameras[height, width].frame(i, number) for i in range(self._env.num_envs)]
        return np.stack(frames) if self._batched else frames[0]

    def _by_rays(self, size: tuple[int, int], camera: int, output: str) -> np.ndarray:
        if (size, camera, output) not in self._drawings:
            self._drawings[size, camera, output] = drawing_of(self._env.engine, size, camera, output)
        return self._one(self._drawings[size, camera, output]())

    def control_timestep(self) -> float:
        """Return the seconds that a control step lasts."""
        return self._env.engine.task.dt(self._env.engine.model)

    def close(self) -> None:
        """Close the environment beneath, and what draws."""
        for camera in self._cameras.values():
            camera.close()
        self._env.close()

    @property
    def _action_shape(self) -> tuple[int, ...]:
        return (*self._shape, self._env.engine.layout.action)

    @property
    def _shape(self) -> tuple[int, ...]:
        return (self._env.num_envs,) if self._batched else ()

    def _named(self, obs: Any) -> dict[str, np.ndarray]:
        own, pictures = self._parts(obs)
        found = {name: x.cpu().numpy().copy() for name, x in (own | pictures).items()}
        return found if self._batched else {name: x[0] for name, x in found.items()}

    def _parts(self, obs: Any) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
        """Return the task's own observations, and pictures, by name."""
        pictures: Any = {}
        if self._env._pixels is not None:  # it shows {"state": ..., "pixels": ...}, or pictures alone
            obs, pictures = (obs["state"], obs["pixels"]) if self._env._pixels.options.state else ({}, obs)
        own = {FLAT: obs} if isinstance(obs, torch.Tensor) else dict(obs)
        return own, {PIXELS: pictures} if isinstance(pictures, torch.Tensor) else dict(pictures)

    def _kinds(self, kinds: np.ndarray) -> Any:
        return kinds if self._batched else dm_env.StepType(int(kinds[0]))

    def _one(self, x: np.ndarray) -> Any:
        """Remove the axis of worlds if the environment is one world without it."""
        return x if self._batched else x[0] if x.ndim > 1 else float(x[0])


class Physics:
    """An environment's pictures under the name by which agents ask dm_control for them: `env.physics.render(...)`."""

    def __init__(self, env: SuiteEnvironment):
        self.render = env.render


def named_camera(model: mujoco.MjModel, name: str) -> int:
    """Return the number of the model's camera of this name. Raises ValueError if there is none."""
    found: int = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_CAMERA, name)
    if found < 0:
        known = [model.camera(i).name for i in range(model.ncam)]
        raise ValueError(f"the model has no camera {name!r}; it has {known}")
    return found
