"""dm_control's suite behind DeepMind's interface: batched `dm_env` environments, of NumPy arrays."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

import dm_env
import mujoco
import numpy as np
import torch
from dm_env import specs

from ..checks import as_count, as_seeds, as_tensor, did_you_mean, is_number
from ..envs.camera import Camera
from ..envs.vector_env import TorchVectorEnv
from .registry import TASKS

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
        self._waiting = np.ones(env.num_envs, bool)  # worlds that begin an episode with the next step
        self._begun = False
        self._cameras: dict[tuple[int, int], Camera] = {}  # by height and width
        self._bad = np.zeros(env.num_envs, bool)

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
        obs, _ = self._env.reset(seed=None if self._begun else self._seed)
        self._begun, self._waiting = True, np.zeros(self._env.num_envs, bool)
        first = np.full(self._env.num_envs, dm_env.StepType.FIRST)
        return dm_env.TimeStep(self._kinds(first), None, None, self._named(obs))

    def step(self, action: Any) -> dm_env.TimeStep:
        """Take one control step with actions (N, A); worlds whose episode had ended begin a new one instead.

        Without an axis of worlds an action is (A,), or one number for all of it, as for dm_control. Raises ValueError
        for another shape, TypeError for anything but real numbers. A world whose state or action is not finite, or
        beyond 1e10, ends its episode, and is one of `bad_state`; without an axis of worlds this raises RuntimeError,
        as in dm_control.
        """
        if not self._begun or self._waiting.all():
            return self.reset()
        n, shape = self._env.num_envs, self._action_shape
        actions = as_tensor("action", np.asarray(action), shape, self._env.device, ()).expand(shape)
        obs, reward, terminated, truncated, info = self._env.step(actions if self._batched else actions[None])
        self._bad = info["bad_state"].cpu().numpy().copy()
        ended, cut = (terminated | truncated).cpu().numpy(), truncated.cpu().numpy()
        kinds = np.full(n, dm_env.StepType.MID)
        kinds[ended] = dm_env.StepType.LAST
        kinds[self._waiting] = dm_env.StepType.FIRST
        discount = np.where(ended & ~cut, 0.0, 1.0)
        self._waiting = ended
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

    def render(self, height: int = 240, width: int = 320, camera_id: int | str = -1) -> np.ndarray:
        """Draw every world as dm_control's `physics.render` does: (N, height, width, 3) bytes.

        Without `num_envs`, (height, width, 3). `camera_id` is the number or name of a camera of the model, or -1 for
        the free one. Raises ValueError for an unknown camera; RuntimeError, which says what to do, if there is no
        OpenGL and rays cannot draw the model.
        """
        model = self._env.model
        number = camera_id if isinstance(camera_id, int) else named_camera(model, camera_id)
        if not -1 <= number < model.ncam:
            raise ValueError(f"the model has no camera {number}: it has {model.ncam}, and -1 is the free one")
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
        shown: dict[str, Any] = {}
        if self._env._pixels is not None:  # it shows {"state": ..., "pixels": ...}, or pictures alone
            obs, shown = (obs["state"], obs) if self._env._pixels.options.state else ({}, {PIXELS: obs})
        parts = {FLAT: obs} if isinstance(obs, torch.Tensor) else dict(obs)
        parts |= {PIXELS: shown[PIXELS]} if shown else {}
        found = {name: x.cpu().numpy().copy() for name, x in parts.items()}
        return found if self._batched else {name: x[0] for name, x in found.items()}

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


def load(
    domain_name: str,
    task_name: str,
    num_envs: int | None = None,
    task_kwargs: Mapping[str, Any] | None = None,
    environment_kwargs: Mapping[str, Any] | None = None,
    visualize_reward: bool = False,
    *,
    from_pixels: bool = False,
    pixels_only: bool = True,
    render_kwargs: Mapping[str, Any] | None = None,
    device: torch.device | str | None = None,
    dtype: torch.dtype = torch.float64,
) -> SuiteEnvironment:
    """Load a task of dm_control's suite, as dm_control.suite.load does, with `num_envs` worlds that step together.

        env = torch_mjenvs.dmc.load("walker", "walk", num_envs=256, task_kwargs={"random": 0})

    task_kwargs: "random", a seed or a NumPy RandomState to draw one from; "time_limit", in seconds; and fields of the
        task, such as "num_poles" or "fully_observable".
    environment_kwargs: "control_timestep", in seconds, or "n_sub_steps"; "flat_observation"; and "legacy_step", which
        must be True, dm_control's default.
    visualize_reward: only False, which public agents pass: rewards are not shown in pictures.
    from_pixels: observe "pixels" (N, height, width, 3), as with dm_control's `pixels.Wrapper`, but drawn by rays, for
        all worlds at once.
    pixels_only: False adds the task's own observations.
    render_kwargs: "height", "width" and "camera_id" as for `render`, and further entries of `TorchVectorEnv`'s
        `pixels`: "stack", "action_repeat", ...

    Raises ValueError for an unknown domain or task, a control step that is not a whole number of substeps, both
    "control_timestep" and "n_sub_steps", or visualize_reward=True; TypeError for any other argument; ImportError if
    dm_control is not installed.
    """
    name = f"{domain_name}-{task_name}"
    if name not in TASKS:
        of_domain = [x for x in TASKS if x.startswith(f"{domain_name}-")]
        raise ValueError(f"there is no task {name!r}: choose from {of_domain or [*TASKS]}{did_you_mean(name, TASKS)}")
    if visualize_reward:
        raise ValueError("rewards colour no picture here: visualize_reward must be False")
    task, of_task, given = TASKS[name], dict(task_kwargs or {}), dict(environment_kwargs or {})
    seed, limit = of_task.pop("random", None), of_task.pop("time_limit", None)
    if isinstance(seed, np.random.RandomState):
        seed = int(seed.randint(2**31 - 1))
    if seed is not None:
        as_seeds(seed, num_envs or 1)  # `reset` would refuse it later
    if given.pop("legacy_step", True) is not True:
        raise ValueError("a step is dm_control's legacy_step here: legacy_step must be True")
    unknown = [x for x in of_task if x not in {field.name for field in fields(task)}]
    others = [x for x in given if x not in ("control_timestep", "n_sub_steps", "flat_observation")]
    if unknown or others:
        raise TypeError(f"{name} does not take {[*unknown, *others]}")
    timestep = task.load().opt.timestep
    if "control_timestep" in given:
        if "n_sub_steps" in given:
            raise ValueError("give control_timestep or n_sub_steps, not both")
        substeps = given["control_timestep"] / timestep
        if abs(substeps - round(substeps)) > 1e-8 or round(substeps) < 1:
            raise ValueError(f"control_timestep must be a whole number of timesteps of {timestep} s")
        of_task["frame_skip"] = round(substeps)
    elif "n_sub_steps" in given:
        of_task["frame_skip"] = as_count("n_sub_steps", given["n_sub_steps"])
    task = replace(task, **of_task)
    steps = task.max_episode_steps
    if limit is not None:
        if not (is_number(limit) and limit > 0):
            raise ValueError(f"time_limit must be a number of seconds above 0, not {limit!r}")
        steps = -1 if math.isinf(limit) else math.ceil(limit / (timestep * task.frame_skip))  # -1: never
    elif steps is not None and task.frame_skip != TASKS[name].frame_skip:
        steps = math.ceil(steps * TASKS[name].frame_skip / task.frame_skip)
    flat = bool(given.get("flat_observation", False))
    if render_kwargs is not None and not from_pixels:
        raise TypeError("render_kwargs are for from_pixels=True")
    view = {"height": 240, "width": 320, "camera_id": -1} | dict(render_kwargs or {})
    view["camera"] = view.pop("camera_id")
    pixels = view | {"state": not pixels_only} if from_pixels else None
    env = TorchVectorEnv(
        task, 1 if num_envs is None else num_envs, device=device, dtype=dtype, max_episode_steps=steps,
        observation="flat" if flat else "dict", pixels=pixels,
    )  # fmt: skip
    return SuiteEnvironment(env, seed, num_envs is not None)
