"""Gymnasium's single interface over the engine: one world, for NumPy users."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import gymnasium
import mujoco
import numpy as np
import torch
from gymnasium.envs.registration import EnvSpec
from gymnasium.error import ClosedEnvironmentError, ResetNeeded
from gymnasium.vector import AutoresetMode

from ..calls import exclusive, lasting
from ..checks import as_options, as_seed, as_tensor
from .built import refuse_idle, refuse_initial
from .camera import DEFAULT_SIZE, IMAGE_MODES, Camera
from .data_view import DataView
from .engine import Engine, named_columns
from .entries import BAD_STATE
from .observation import as_form
from .own_goals import OwnGoals
from .read_only import read_only
from .spaces import action_space, observation_space
from .spec import telling
from .tasks.base import Task, World
from .tasks.registry import make_task
from .vector_env import ARGUMENTS


def _refuse_copies(name: str) -> NoReturn:
    raise ValueError(f"env.params[{name!r}] is a copy: call env.set_params({{{name!r}: ...}})")


class TorchEnv(gymnasium.Env, OwnGoals):
    """One world of a task behind Gymnasium's single interface: NumPy observations, Python numbers and flags.

    It replaces a v5 environment, with the same arguments and float64 numbers; `gymnasium.make` adds the time limit.
    Arguments are those of the same names of `TorchVectorEnv`, except that `device=None` means the CPU. For speed use
    `TorchVectorEnv`.
    """

    _spec: EnvSpec | None = None
    metadata: dict[str, Any] = {"render_modes": ["human", *IMAGE_MODES]}  # noqa: RUF012 (as above)

    @lasting
    def __init__(
        self,
        task: Task | type[Task] | str,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | str = torch.float64,
        observation: str = "dict",
        randomize: Mapping[str, Any] | None = None,
        vary: Sequence[str] = (),
        render_mode: str | None = None,
        width: int = DEFAULT_SIZE,
        height: int = DEFAULT_SIZE,
        camera_id: int | None = None,
        camera_name: str | None = None,
        max_geom: int = 1000,
        visual_options: dict[int, bool] | None = None,
        default_camera_config: dict[str, Any] | None = None,
        **task_arguments: Any,
    ):
        if wrong := sorted(task_arguments.keys() & (ARGUMENTS - {"task"})):
            raise TypeError(f"{wrong} are arguments of gymnasium.make_vec, also for one world (num_envs=1)")
        made, form = make_task(task, task_arguments, ARGUMENTS), as_form(observation)
        self.engine = engine = Engine(
            made,
            1,
            device="cpu" if device is None else device,
            dtype=dtype,
            autoreset_mode=AutoresetMode.DISABLED,
            max_episode_steps=None,
            randomize=randomize,
            vary=vary,
        )
        self._lock = engine._lock
        self.model, self.device, self.dtype = engine.mjmodel, engine.device, engine.dtype
        self.dt = engine.task.dt(engine.model)
        self.metadata = self.metadata | {"render_fps": round(1 / self.dt)}
        self.render_mode = render_mode
        self._camera = Camera(
            engine, render_mode, self.metadata["render_modes"], width, height,
            camera_id=camera_id, camera_name=camera_name, max_geom=max_geom, visual_options=visual_options,
            default_camera_config=default_camera_config,
        )  # fmt: skip
        self._parts = engine.layout.observation.parts(form)
        self.observation_space, self.action_space = observation_space(engine, self._parts), action_space(engine)
        self._ready = self._closed = False
        self._data: DataView | None = None
        self._values = engine.buffers["info"][:, :1]

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for `copy.deepcopy` and pickle, without what `__setstate__` takes from the engine."""
        return {name: x for name, x in vars(self).items() if name not in ("model", "_values")} | {"_data": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        engine = state["engine"]
        vars(self).update(state, model=engine.mjmodel, _values=engine.buffers["info"][:, :1])

    def __repr__(self) -> str:
        name = self.spec.id if self.spec else type(self.engine.task).__name__
        return f"{type(self).__name__}({name}, device={self.device}, dtype={self.dtype})"

    @property
    def spec(self) -> EnvSpec | None:
        """The EnvSpec that `gymnasium.make` made this from; None without `make`."""
        return self._spec

    @spec.setter
    def spec(self, spec: EnvSpec | None) -> None:
        self._spec = telling(spec)

    def __setattr__(self, name: str, value: Any) -> None:
        refuse_idle(self, name)
        super().__setattr__(name, value)

    @property
    def frame_skip(self) -> int:
        """The number of steps of physics in a step."""
        return self.engine.task.frame_skip

    @property
    def init_qpos(self) -> np.ndarray:
        """The positions (nq,) of the model as loaded; read only."""
        return read_only(np.array(self.engine.model.qpos0), "init_qpos", refuse_initial)

    @property
    def init_qvel(self) -> np.ndarray:
        """Velocities (nv,) of 0; read only."""
        return read_only(np.zeros(self.engine.model.nv), "init_qvel", refuse_initial)

    @property
    def qpos(self) -> np.ndarray:
        """A copy of the positions, (nq,), in MuJoCo's order and units."""
        return self.engine.qpos[0].cpu().numpy().copy()

    @property
    def qvel(self) -> np.ndarray:
        """A copy of the velocities, (nv,), in MuJoCo's order and units."""
        return self.engine.qvel[0].cpu().numpy().copy()

    @property
    def act(self) -> np.ndarray:
        """A copy of the activations, (na,). Raises AttributeError if no actuator of the model has one."""
        return self.engine.act[0].cpu().numpy().copy()

    @property
    def data(self) -> mujoco.MjData:
        """A read-only MjData of the present state, with everything that mj_forward and mj_rnePostConstraint compute.

        In Gymnasium's own, `xpos` and other derived fields are still those from the beginning of the last substep.
        If parameters vary, they are computed with the world's own model; see `TorchVectorEnv.model_of` for what cannot
        be. Writing into it raises ValueError: use `set_state`.
        """
        if self._data is None:
            self._data = DataView(self.model)
        self._data.check()
        self._bring()
        return self._data

    def _bring(self) -> None:
        """Update `data` to the present state, if it has been asked for."""
        if self._data is not None:
            ctrl = self.engine.ctrl[0].cpu().numpy() if self._ready else np.zeros(self.engine.layout.nu)
            act = self.act if self.engine.layout.na else np.zeros(0)
            time = self.dt * int(self.engine.elapsed_steps)
            kept = self.engine.kept(0, time)
            model = self.engine.model_of(0) if self.engine.own_fields(0) else self.model
            self._data.bring(model, time, qpos=self.qpos, qvel=self.qvel, act=act, ctrl=ctrl, **kept)

    def state_vector(self) -> np.ndarray:
        """Return qpos and qvel as one array, (nq + nv,)."""
        return np.concatenate([self.qpos, self.qvel])

    def get_body_com(self, body_name: str) -> np.ndarray:
        """Return the position of the body's frame, (3,) m, in world axes, as Gymnasium's method of that name."""
        return np.array(self.data.body(body_name).xpos)

    @property
    def is_healthy(self) -> bool:
        """True if the task calls the present state healthy. Raises AttributeError for a task without a `healthy`."""
        world = World([float(x) for x in self.qpos], [float(x) for x in self.qvel], {}, None, None)  # type: ignore[arg-type]
        return bool(self.engine.task.healthy(world))  # type: ignore[attr-defined]

    @property
    def mujoco_renderer(self) -> Any:
        """Gymnasium's renderer, with the present state in its `data`."""
        return self._camera.at(0)

    @exclusive
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start a new episode, and return its observation, (D,) or by name, and info.

        Raises ClosedEnvironmentError after `close`.
        """
        self._check_open()
        as_options(options)
        seed = None if seed is None else as_seed(seed)
        super().reset(seed=seed)
        if seed is not None:
            self.engine.seed(seed)
        self.engine.action.zero_()  # as mj_resetData leaves ctrl
        self.engine.reset()
        self._ready = True
        self._bring()
        if self.render_mode == "human":
            self.render()
        return self._observation(), self._info(self.engine.layout.reset_info)

    @exclusive
    def step(self, action: torch.Tensor | np.ndarray | Sequence[Any]) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Step the world under an action (A,).

        Returns observation, (D,) or by name, reward, terminated, truncated (by the task alone: `gymnasium.make` adds
        the time limit), and info.

        Raises TypeError or ValueError for an action of another type or shape, ResetNeeded before the first reset,
        ClosedEnvironmentError after `close`.
        """
        self._check_open()
        if not self._ready:
            raise ResetNeeded("call reset() before the first step")
        engine = self.engine
        if self._data is not None:
            self._data.check()
        engine.action[0] = as_tensor("action", action, (engine.layout.action,), self.device)
        engine.step()
        self._bring()
        if self.render_mode == "human":
            self.render()
        info = self._info(engine.layout.step_info)
        info[BAD_STATE] = bool(engine.bad_state)
        return self._observation(), float(engine.reward), bool(engine.terminated), bool(engine.truncated), info

    def _observation(self) -> Any:
        return self._parts.split(self.engine.obs[0].cpu().numpy().copy())

    def _info(self, names: tuple[str, ...]) -> dict[str, Any]:
        layout = self.engine.layout
        columns = named_columns(self._values.cpu(), layout.info.values())
        values = {name: column[0] for name, column in zip(layout.info, columns, strict=True)}
        return {n: values[n].numpy().copy() if layout.info[n] else float(values[n]) for n in names}

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedEnvironmentError(f"this {type(self).__name__} is closed")

    @exclusive
    def set_state(self, qpos: np.ndarray, qvel: np.ndarray, act: np.ndarray | None = None) -> None:
        """Set qpos (nq,), qvel (nv,) and act (na,), which is 0 by default.

        Raises TypeError or ValueError for another type or shape, changing nothing.
        """
        self._check_open()
        layout = self.engine.layout
        given = {"qpos": (qpos, layout.nq), "qvel": (qvel, layout.nv)}
        if act is not None:
            given["act"] = (act, layout.na)
        self.engine.set_state(**{name: as_tensor(name, x, (n,), self.device)[None] for name, (x, n) in given.items()})
        self._bring()

    @property
    def params(self) -> dict[str, np.ndarray]:
        """Copies of the model's parameters that vary, by name; `set_params` sets them; writing into one is refused."""
        return {
            name: read_only(x[0].cpu().numpy().copy(), name, _refuse_copies) for name, x in self.engine.params.items()
        }

    @exclusive
    def set_params(self, values: Mapping[str, Any]) -> None:
        """Set parameters by name. Raises ValueError for impossible values, and for names that do not vary."""
        self._check_open()
        self.engine.set_params(values)

    def render(self) -> Any:
        """Return a frame of the kind that render_mode names; without a render_mode None, with a warning."""
        self._check_open()
        return self._camera.frame(0)

    def close(self) -> None:
        """Close the environment and its window."""
        self._camera.close()
        self._closed = True
