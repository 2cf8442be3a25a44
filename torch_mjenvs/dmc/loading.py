"""`load`, dm_control's `suite.load` for many worlds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ..checks import MissingExtra, as_count, as_seeds, did_you_mean, install, is_number
from .registry import TASKS

if TYPE_CHECKING:
    from .environment import SuiteEnvironment


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
        `pixels`: "stack", "action_repeat", ... Each of its "views" is an observation of its own.

    Raises ValueError for an unknown domain or task, a control step that is not a whole number of substeps, both
    "control_timestep" and "n_sub_steps", visualize_reward=True, or a view that is named like one of the task's
    observations beside it; TypeError for any other argument; MissingExtra if dm_control, and dm_env with it, is not
    installed.
    """
    try:
        from .environment import SuiteEnvironment
    except ModuleNotFoundError as error:
        if error.name != "dm_env":
            raise
        raise MissingExtra(f"load needs dm_env: {install('dmc')}", name=error.name) from error
    from ..envs.vector_env import TorchVectorEnv  # which imports this package

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
