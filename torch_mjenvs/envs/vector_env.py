"""Gymnasium's vector interface to the engine: many worlds, tensors in and out.

N worlds, A numbers in an action, D numbers in an observation.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, NoReturn, cast

import gymnasium
import numpy as np
import torch
from gymnasium.envs.registration import EnvSpec
from gymnasium.error import ClosedEnvironmentError, ResetNeeded
from gymnasium.spaces import Dict
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from torch.autograd.graph import increment_version

from ..calls import exclusive, lasting
from ..checks import as_mask, as_mode, as_options, as_seeds, as_tensor, check_field, check_memory, check_state
from .built import refuse_idle
from .camera import DEFAULT_SIZE, IMAGE_MODES, Camera, as_worlds
from .engine import MASKS, Engine, copied, named_columns
from .entries import BAD_STATE
from .observation import as_form
from .own_goals import OwnGoals
from .own_parameters import OwnParameters
from .pixel_options import as_options as as_pixels
from .pixel_options import as_repeats
from .pixels import pixels_of
from .rollout import Act, Around, Observations, Rollout, Step
from .spaces import action_space, observation_space, parts_of
from .spec import telling
from .tasks.base import Task
from .tasks.registry import make_task
from .to_numpy import refuse_wrappers_in_numpy


class TorchVectorEnv(VectorEnv, OwnParameters, OwnGoals):
    """`num_envs` worlds of a task behind Gymnasium's vector interface, with torch tensors in and out.

        env = TorchVectorEnv("Hopper", num_envs=4096)  # or gymnasium.make_vec("TorchHopper-v0", num_envs=4096)
        obs, info = env.reset(seed=0)  # (4096, 11)
        obs, reward, terminated, truncated, info = env.step(actions)  # actions (4096, 3)

    Arguments:
        task: a `Task` of your own, a class of tasks, or the name of one of ours: "HalfCheetah", "Hopper", ...
        num_envs: N.
        device: where the worlds live; None picks the GPU if there is one that can be used, else the CPU.
        dtype: torch.float32 or torch.float64, of state, observation and reward.
        autoreset_mode: as Gymnasium's SyncVectorEnv. NEXT_STEP: the step after an end starts a new episode (the action
            is ignored, the reward is 0). SAME_STEP: the step that ends an episode also starts the next one. DISABLED:
            you reset, with `options={"reset_mask": mask}`; stepping an ended world raises (on a GPU and in compiled
            code it goes on instead, since checking would have to wait for the device).
        max_episode_steps: number of steps after which an episode is truncated; None for the task's own number, -1 for
            never.
        action_repeat: the number of the task's steps that one step makes with the same action, like Gymnasium's
            RepeatAction. Rewards are summed, info is that of the last of them; a world whose episode has ended is not
            stepped further. `max_episode_steps` and `elapsed_steps` count the task's steps.
        copy: False returns the engine's own buffers, which the next `step` or `reset` overwrites.
        observation: for a task that names its observations. "dict" returns a dict by name, (N, ...) each, in the task's
            order; with groups, a dict of such dicts. "flat" returns one (N, D), or a dict with one (N, D) for each
            group. All are views of one tensor.
        first_world: the number of this environment's first world in the random streams. With one seed, environments in
            several processes that divide the worlds of one large environment produce its trajectories.
        randomize: parameters of the model to be drawn anew for every episode, by MuJoCo's names. (low, high) multiplies
            each number by its own factor; `Scale`, `Shift` and `Uniform` have more options. `params` has their values.
        vary: names of further parameters that differ from world to world and are set by `set_params`, not drawn.
        pixels: observe pictures, drawn without OpenGL, in place of the task's own observations: dict(width=84,
            height=84, camera=0, outputs="rgb", stack=3) gives (N, 84, 84, 9) uint8, the newest picture last. After a
            reset all pictures of a stack are the first one. `state=True` gives a dict of both, "state" and "pixels",
            like Gymnasium's AddRenderObservation. `views=["top", "wrist"]` gives a dict of what several cameras see.
            docs/pixels.md explains `channels_first`, `without`, `samples` and `action_repeat`.
        render_mode: with "rgb_array", "depth_array" or "rgbd_tuple", `render()` returns a frame for each of
            `render_worlds`. "human" shows one world in a window at every step.
        render_worlds: the worlds that are drawn; None for every world, as in Gymnasium. With thousands, name a few.
        width, height, camera_id, camera_name, max_geom, visual_options, default_camera_config: as Gymnasium's MujocoEnv
            takes them.
        task_arguments: the task's own; of Gymnasium's tasks, the arguments that they have in v5.

    info is a dict of tensors (N,) or (N, width). Each has a bool mask under "_name" of the worlds that have the entry:
    a world that was reset has only the entries of a reset. An entry that no world has is present, with a mask of False;
    SyncVectorEnv omits it, but checking would have to wait for the device. In addition to Gymnasium's entries, `step`
    returns

    - "bad_state" (N,) bool: that world's action or state was not finite, or beyond 1e10. Its episode was ended, with
      reward 0 and the last good observation.
    - in SAME_STEP mode, in every step: "final_obs" (N, D) and the dict "final_info", the results of the step in every
      world before any reset. Their masks mark the worlds that ended.

    Random numbers depend only on seed, world, and the numbers of the episode and the step. `reset(seed=int)` gives
    world i the stream (seed, first_world + i). A list gives each world the stream of a single world with that seed;
    None leaves a world's stream as it is. Before any seed is given, streams come from torch's generator, and
    differ in forked workers.

    Raises TypeError for an unknown argument, ValueError for a bad value, OSError for a missing xml_file,
    `UnsupportedModel` for a model with a feature that is not supported.
    """

    _spec: EnvSpec | None = None
    metadata: dict[str, Any] = {  # noqa: RUF012 (Gymnasium declares it so)
        "render_modes": ["human", *IMAGE_MODES],
        "autoreset_mode": AutoresetMode.NEXT_STEP,
    }

    @lasting
    def __init__(
        self,
        task: Task | type[Task] | str,
        num_envs: int = 1,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | str = torch.float32,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        max_episode_steps: int | None = None,
        action_repeat: int = 1,
        copy: bool = True,
        observation: str = "dict",
        first_world: int = 0,
        randomize: Mapping[str, Any] | None = None,
        vary: Sequence[str] = (),
        pixels: Mapping[str, Any] | None = None,
        render_mode: str | None = None,
        render_worlds: Sequence[int] | None = None,
        width: int = DEFAULT_SIZE,
        height: int = DEFAULT_SIZE,
        camera_id: int | None = None,
        camera_name: str | None = None,
        max_geom: int = 1000,
        visual_options: dict[int, bool] | None = None,
        default_camera_config: dict[str, Any] | None = None,
        **task_arguments: Any,
    ):
        made, form, pictures = make_task(task, task_arguments, ARGUMENTS), as_form(observation), as_pixels(pixels)
        self._repeats = as_repeats(action_repeat, pictures)
        self.engine = engine = Engine(
            made,
            num_envs,
            device=device,
            dtype=dtype,
            autoreset_mode=as_mode(autoreset_mode),
            max_episode_steps=made.max_episode_steps if max_episode_steps is None else max_episode_steps,
            first_world=first_world,
            randomize=randomize,
            vary=vary,
            shows_end=pictures is not None,
        )
        self.num_envs, self.device, self.dtype, self.copy = engine.num_envs, engine.device, engine.dtype, copy
        if copy:  # a loop still holds a step's outputs when the next step allocates its own
            check_memory("num_envs", self.num_envs, 2 * engine.output_bytes // self.num_envs, self.device)
        self._lock = engine._lock
        self.model, self.autoreset_mode = engine.mjmodel, engine.mode
        self.dt = engine.task.dt(engine.model)
        self.metadata = self.metadata | {
            "render_fps": max(1, round(1 / (self.dt * self._repeats))), "autoreset_mode": engine.mode,
        }  # fmt: skip
        self.render_mode = render_mode
        self.render_worlds = as_worlds(render_worlds, self.num_envs)
        if render_mode == "human" and len(self.render_worlds) != 1:
            raise ValueError(f"a window shows one world: name it by render_worlds=[0], not {len(self.render_worlds)}")
        self._camera = Camera(
            engine, render_mode, self.metadata["render_modes"], width, height,
            camera_id=camera_id, camera_name=camera_name, max_geom=max_geom, visual_options=visual_options,
            default_camera_config=default_camera_config,
        )  # fmt: skip
        self._parts = engine.layout.observation.parts(form)
        self._pixels = pixels_of(engine, pictures)
        self.single_observation_space = self._observation_space()
        self.single_action_space = action_space(engine)
        self._prepare()

    def __repr__(self) -> str:
        name = self.spec.id if self.spec else type(self.engine.task).__name__
        return f"{type(self).__name__}({name}, num_envs={self.num_envs}, device={self.device}, dtype={self.dtype})"

    def __setattr__(self, name: str, value: Any) -> None:
        refuse_idle(self, name)
        if name == "copy":
            check_field(name, "bool", value)
        elif name == "render_worlds":
            value = as_worlds(value, self.num_envs)
        super().__setattr__(name, value)

    def _observation_space(self) -> gymnasium.Space[Any]:
        state = observation_space(self.engine, self._parts)
        if self._pixels is None:
            return state
        pixels = self._pixels.space
        return Dict({"state": state, "pixels": pixels}, sort_keys=False) if self._pixels.options.state else pixels

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for `copy.deepcopy` and pickle, without what `__setstate__` takes from the engine."""
        return {name: x for name, x in vars(self).items() if name not in ("model", "_mask_views", "_no_world")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, model=state["engine"].mjmodel)
        self._prepare()
        self._ready = state["_ready"]

    def _prepare(self) -> None:
        """Build all that a step would otherwise look up or build anew."""
        engine, n = self.engine, self.num_envs
        self._ready = False
        self._no_world = torch.zeros(n, dtype=torch.bool, device=self.device)
        # Whether to check that no ended world is stepped: on a GPU that would wait for it at every step.
        self._watched = engine.mode is AutoresetMode.DISABLED and self.device.type == "cpu"
        self._action_shape = (n, engine.layout.action)
        for name in ("always", "alive"):
            engine.outputs.buffers[name].fill_(True)
        self._mask_views = self._view_masks()
        layout, endings = engine.layout, 2 if engine.mode is AutoresetMode.SAME_STEP else 1
        self._widths = [0, *endings * list(layout.info.values())]  # of the reward, and of the entries of info
        self._by_reset = [name in layout.reset_info for name in layout.info]
        self._by_step = [name in layout.step_info for name in layout.info]
        # Which of MASKS an entry has: 0 every world, 1 the worlds that made a step, 2 those that were reset.
        kinds = [0 if s and r else 1 if s else 2 for s, r in zip(self._by_step, self._by_reset, strict=True)]
        self._entries = [(name, f"_{name}", kind) for name, kind in zip(layout.info, kinds, strict=True)]

    @property
    def spec(self) -> EnvSpec | None:
        """The EnvSpec that `gymnasium.make_vec` made this from, with its true max_episode_steps; None without
        `make_vec`.
        """
        return self._spec

    @spec.setter
    def spec(self, spec: EnvSpec | None) -> None:
        self._spec = telling(spec, max_episode_steps=self.engine.max_episode_steps)

    # The batched spaces take time and memory at many worlds, and a training loop does not need them.
    @cached_property
    def observation_space(self) -> gymnasium.Space[Any]:  # type: ignore[override]
        return batch_space(self.single_observation_space, self.num_envs)

    @cached_property
    def action_space(self) -> gymnasium.Space[Any]:  # type: ignore[override]
        return batch_space(self.single_action_space, self.num_envs)

    @property
    def obs(self) -> Observations:
        """The observations that `reset` or `step` returned last, (N, D) or by name, the engine's own memory."""
        return self._with_pixels(self._parts.split(self.engine.obs))

    def _seen(self, name: str, pixels: Observations | None = None) -> Observations:
        """Return "obs" or "final_obs" as users get it: by name, and a copy unless they want none.

        pixels: pictures of final observations.
        """
        rows = self.engine.view(name)
        return self._with_pixels(self._parts.split(copied(rows) if self.copy else rows), pixels)

    def _with_pixels(self, state: Observations, pixels: Observations | None = None) -> Observations:
        if self._pixels is None:
            return state
        pixels = self._pixels.seen() if pixels is None else pixels
        return {"state": state, "pixels": pixels} if self._pixels.options.state else pixels

    @property
    def qpos(self) -> torch.Tensor:
        """Positions, (N, nq), in MuJoCo's order and units, the engine's own memory.

        Write into it at your own risk; `set_state` is the clean way.
        """
        return self.engine.qpos

    @property
    def qvel(self) -> torch.Tensor:
        """Velocities, (N, nv), in MuJoCo's order and units, the engine's own memory."""
        return self.engine.qvel

    @property
    def act(self) -> torch.Tensor:
        """Activations, (N, na), the engine's own memory. AttributeError where no actuator of the model has one."""
        return self.engine.act

    @property
    def elapsed_steps(self) -> torch.Tensor:
        """Steps since each world's last reset, (N,) int32, the engine's own memory: writing into it moves the
        truncation.
        """
        return self.engine.elapsed_steps

    @exclusive
    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observations, dict[str, Any]]:
        """Start new episodes in all worlds, or in those of options["reset_mask"], (N,) bool.

        The mask is a tensor, a NumPy array or a list. Returns the observation (N, D) of all worlds, and info. Only
        worlds that are reset are seeded.

        Raises ValueError for a list of seeds of another length, a mask without any True or other options, TypeError for
        a mask that is not bool, and within a wrapper of Gymnasium's that computes in NumPy, ResetNeeded if the very
        first reset leaves worlds out; nothing has changed then. A mask on a GPU without any True is accepted, and
        resets no world, since checking would wait for the device.
        """
        self._check_open()
        if not torch.compiler.is_compiling():
            refuse_wrappers_in_numpy()
        engine = self.engine
        chosen = as_options(options)
        for name in chosen:
            if name != "reset_mask":
                raise ValueError(
                    f"options has no {name!r}: the only one is 'reset_mask', the worlds to be reset. What worlds "
                    "remember, such as a goal, is in env.unwrapped.engine.memory: write into that"
                )
        mask = self._reset_mask(chosen["reset_mask"]) if "reset_mask" in chosen else None
        if mask is not None and not self._ready and not bool(mask.all()):
            raise ResetNeeded("the first reset must be of every world")
        self._seed(seed, mask)
        engine.reset(mask)
        if self._pixels:
            self._pixels.draw(mask, others=False)
        self._ready = True
        if self.render_mode == "human":
            self.render()
        given = copied(self._masks()[0] if mask is None else mask)
        info: dict[str, Any] = {}
        values = named_columns(torch.where(given, engine.info_values, 0.0), self._widths[1 : 1 + len(self._entries)])
        for (name, mask_name, _), value, by_reset in zip(self._entries, values, self._by_reset, strict=True):
            if by_reset:
                info[name], info[mask_name] = value, given
        return self._seen("obs"), info

    def _reset_mask(self, given: Any) -> torch.Tensor:
        mask = as_mask("options['reset_mask']", given, self.num_envs, self.device)
        seen = mask if isinstance(given, torch.Tensor) else np.asarray(given)
        if not (isinstance(seen, torch.Tensor) and seen.is_cuda) and not bool(seen.any()):
            raise ValueError("options['reset_mask'] must contain at least one True")
        return mask

    def _seed(self, seed: int | Sequence[int | None] | None, mask: torch.Tensor | None) -> None:
        if seed is None:
            return
        seed = as_seeds(seed, self.num_envs)
        if isinstance(seed, int):
            super().reset(seed=seed)
        self.engine.seed(seed, mask)

    @exclusive
    def step(self, actions: torch.Tensor | np.ndarray | Sequence[Any]) -> Step:
        """Step every world under actions (N, A): a tensor on `device`, or a NumPy array or lists.

        Returns observation (N, D), reward (N,), terminated and truncated (N,) bool, and info.

        Raises TypeError or ValueError for actions of the wrong type, shape or device, ResetNeeded before the first
        reset or, with autoreset disabled, when a world has ended, ClosedEnvironmentError after `close`; nothing has
        changed then.
        """
        if not self._ready or self.closed:
            self._refuse()
        engine = self.engine
        actions = as_tensor("actions", actions, self._action_shape, self.device)
        if self._watched and not torch.compiler.is_compiling() and engine.done.any():
            self._refuse_ended()
        engine.action.copy_(actions)
        _, alive, restarted = self._masks()
        if self.autoreset_mode is AutoresetMode.NEXT_STEP:
            restarted.copy_(engine.done)
            torch.logical_not(restarted, out=alive)
        engine.step()
        if self._repeats > 1:
            engine.repeat(self._repeats - 1, restarted if self.autoreset_mode is AutoresetMode.NEXT_STEP else None)
        if self.render_mode == "human":
            self.render()
        if self.autoreset_mode is AutoresetMode.SAME_STEP:
            torch.logical_or(engine.terminated, engine.truncated, out=restarted)
            torch.logical_not(restarted, out=alive)
        final: Observations | None = None
        if self._pixels and self.autoreset_mode is AutoresetMode.SAME_STEP:
            final = self._pixels.draw_both(restarted)
        elif self._pixels:  # with NEXT_STEP, worlds that had ended have begun anew
            self._pixels.draw(restarted if self.autoreset_mode is AutoresetMode.NEXT_STEP else self._no_world)
        (reward, *columns), (terminated, truncated, bad_state, *masks) = self._outputs()
        info: dict[str, Any] = {}
        for (name, mask_name, kind), value in zip(self._entries, columns, strict=False):
            info[name], info[mask_name] = value, masks[kind]
        info[BAD_STATE], info[f"_{BAD_STATE}"] = bad_state, masks[0]
        if self.autoreset_mode is AutoresetMode.SAME_STEP:
            self._add_final(info, columns[len(self._entries) :], masks[2], final)
        if not self.copy and not torch.compiler.is_compiling():
            increment_version([engine.view("obs")])  # so that autograd refuses gradients that need the old numbers
        return self._seen("obs"), reward, terminated, truncated, info

    def _masks(self) -> list[torch.Tensor]:
        """Return the masks named in MASKS; made anew, as by `Engine.view`, in code that torch compiles."""
        return self._view_masks() if torch.compiler.is_compiling() else self._mask_views

    def _view_masks(self) -> list[torch.Tensor]:
        return [self.engine.outputs.buffers[name][0, : self.num_envs] for name in MASKS]

    def _outputs(self) -> tuple[Sequence[torch.Tensor], Sequence[torch.Tensor]]:
        """Return reward, info and final_info; then the flags terminated, truncated and bad_state, and the masks."""
        engine = self.engine
        if self.copy and not torch.compiler.is_compiling():
            numbers, flags = engine.outputs.copied()
            return named_columns(numbers, self._widths), flags.unbind()
        give = copied if self.copy else lambda x: x
        columns = [give(engine.reward), *named_columns(give(engine.info_values), engine.layout.info.values())]
        if self.autoreset_mode is AutoresetMode.SAME_STEP:
            columns += named_columns(give(engine.final_info_values), engine.layout.info.values())
        return columns, [give(x) for x in (engine.terminated, engine.truncated, engine.bad_state, *self._masks())]

    def _add_final(
        self, info: dict[str, Any], columns: Sequence[torch.Tensor], ended: torch.Tensor, pixels: Observations | None
    ) -> None:
        final: dict[str, Any] = {}
        for (name, mask_name, _), value, by_step in zip(self._entries, columns, self._by_step, strict=True):
            if by_step:
                final[name], final[mask_name] = value, ended
        final[BAD_STATE], final[f"_{BAD_STATE}"] = info[BAD_STATE], ended
        seen = self._seen("final_obs", pixels)
        info |= {"final_obs": seen, "_final_obs": ended, "final_info": final, "_final_info": ended}

    def _check_ready(self) -> None:
        if not self.ready:
            self._refuse()

    def _check_open(self) -> None:
        if self.closed:
            raise ClosedEnvironmentError(f"this {type(self).__name__} is closed")

    def _refuse(self) -> NoReturn:
        self._check_open()
        raise ResetNeeded("call reset() before the first step")

    def _refuse_ended(self) -> NoReturn:
        worlds = self.engine.done.nonzero()[:, 0].tolist()
        shown = ", ".join(map(str, worlds[:8])) + (", ..." if len(worlds) > 8 else "")
        raise ResetNeeded(
            f"worlds {shown} have ended, and autoreset is disabled: reset them with options={{'reset_mask': mask}}"
        )

    @exclusive
    def set_state(
        self,
        qpos: torch.Tensor | np.ndarray | Sequence[Any],
        qvel: torch.Tensor | np.ndarray | Sequence[Any],
        mask: torch.Tensor | np.ndarray | Sequence[Any] | None = None,
        act: torch.Tensor | np.ndarray | Sequence[Any] | None = None,
    ) -> None:
        """Set the state of all worlds, or of those in the (N,) bool mask: qpos (N, nq), qvel (N, nv).

        If actuators have activations, act (N, na) sets them; without it they are 0, as after a reset. The count of
        steps and whether the episode has ended do not change, as with Gymnasium's `MujocoEnv.set_state`. Raises
        TypeError or ValueError for the wrong type, shape or device; nothing has changed then.
        """
        self._check_open()
        self.engine.set_state(qpos, qvel, mask, act)
        if self._pixels:
            self._pixels.draw(None if mask is None else self.engine.reset_mask, others=False)

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Call a method once for all worlds, or read an attribute. Returns one result per world, as SyncVectorEnv does.

        A tuple is returned as it is: `call("render")` is `render()`. A tensor with one row per world is returned row by
        row. Anything else is shared by all worlds and returned N times.
        """
        found = getattr(self, name)
        result = found(*args, **kwargs) if callable(found) else found
        if isinstance(result, tuple):
            return result
        if isinstance(result, torch.Tensor) and result.ndim and len(result) == self.num_envs:
            return result.unbind()
        return (result,) * self.num_envs

    def get_attr(self, name: str) -> tuple[Any, ...]:
        """Return an attribute of every world, as `call` does: `get_attr("dt")`, `get_attr("qpos")`."""
        return self.call(name)

    def set_attr(self, name: str, values: Any) -> None:
        """Set "copy", "metadata", "render_worlds" or "spec" to one value, or to a list of N equal ones.

        Raises AttributeError for any other name, since it would have no effect: a task's arguments, for example, are
        compiled into the kernel. Raises ValueError for N values that differ, since all worlds share the attribute.
        """
        if name not in SETTABLE:
            raise AttributeError(f"{name!r} cannot be set on a built environment, only {sorted(SETTABLE)} can")
        if isinstance(values, (list, tuple)) and name != "render_worlds":
            if len(values) != self.num_envs:
                raise ValueError(f"values must be one value or a list of {self.num_envs}, not of {len(values)}")
            if any(x != values[0] for x in values):
                raise ValueError(f"{name!r} is shared by all worlds, and cannot differ between them")
            values = values[0]
        setattr(self, name, values)

    @property
    def ready(self) -> bool:
        """True after a reset, until `close`."""
        return self._ready and not self.closed

    def _choices(self) -> list[Any]:
        """Return what may be changed here and decides what steps do: nothing. See `TorchVectorWrapper`."""
        return []

    def capture(self, policy: Act, steps: int, info_keys: Sequence[str] = ()) -> Rollout:
        """Capture `steps` steps of `policy` and this environment as one call: on a GPU, each call replays one CUDA
        graph.

            rollout = env.capture(policy, 32)
            data = rollout()  # data["obs"] (32, N, D), data["reward"] (32, N), ...

        `policy` takes observations, (N, D) or by name as `step` returns them, and returns actions (N, A), or a tuple of
        these and a dict of further tensors (N, ...) to record. It runs without gradients. Episodes continue from call
        to call, and you may call `step` in between. `info_keys` names entries of the task's info to record, too, such
        as costs: they are those of the step, before any reset.

        Raises ValueError for steps below 1, autoreset DISABLED, results of the policy of a wrong shape, names that are
        not in a step's info, and on a GPU for a policy that torch has compiled into CUDA graphs of its own
        (mode="reduce-overhead"), and for pixels beside the task's own observation.
        """
        self._check_open()
        if self._pixels or self._repeats > 1:  # `step` draws, and repeats
            parts, around = parts_of(self.single_observation_space), cast(Around, self)
            return Rollout(self.engine, self._check_ready, policy, steps, parts, around, info_keys)
        return Rollout(self.engine, self._check_ready, policy, steps, self._parts, info_keys=info_keys)

    @exclusive
    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return copies of the worlds' full state: an environment that loads them continues from here, bit for bit.

        Each has a row for each world, (N, ...), so states may be chosen, repeated and joined by worlds.
        """
        pixels = self._pixels.state if self._pixels else {}
        return self.engine.state_dict() | {name: x.clone() for name, x in pixels.items()}

    @exclusive
    def load_state_dict(self, state: Mapping[str, torch.Tensor]) -> None:
        """Continue from the `state_dict` of an environment with the same arguments, on any device.

        Raises ValueError for the state of another task, number of worlds or dtype, TypeError for anything but a state;
        nothing has changed then.
        """
        self._check_open()
        pixels = self._pixels.state if self._pixels else {}
        check_state(state, self.engine._views | pixels, "such an environment")
        self.engine.load_state_dict({name: x for name, x in state.items() if name not in pixels})
        if self._pixels:
            self._pixels.load(state)
        self._ready = bool((self.engine.episode > 0).all())

    def render(self) -> tuple[Any, ...] | None:
        """Return a frame for each of `render_worlds`; None in a window, and, with a warning, without a render_mode."""
        self._check_open()
        frames = tuple(self._camera.frame(world) for world in self.render_worlds)
        return None if self.render_mode in (None, "human") else frames

    def close_extras(self, **kwargs: Any) -> None:
        """Close the window and free the resources of drawing."""
        self._camera.close()


SETTABLE = frozenset(("copy", "metadata", "render_worlds", "spec"))
ARGUMENTS = frozenset(inspect.signature(TorchVectorEnv).parameters)
