"""The engine of an environment: buffers at fixed addresses, and the kernels that work on them."""

from __future__ import annotations

import copy
import itertools
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import mujoco
import numpy as np
import torch
from gymnasium.vector import AutoresetMode

from ..calls import Lock, exclusive, lasting
from ..checks import (
    as_bound,
    as_count,
    as_dtype,
    as_limit,
    as_mask,
    as_mode,
    as_names,
    as_tensor,
    check_memory,
    check_state,
)
from ..compiler import devices, launch
from ..compiler.build import Recipe, begin, prepare
from ..compiler.fork import draw_seed
from ..compiler.functions import bounded
from ..compiler.launch import copied, mark_static_address
from ..compiler.packed_outputs import PackedOutputs
from ..compiler.program import Program
from ..fixed_tensors import fixed
from ..physics.loading.history import history_to
from ..physics.loading.size import sized
from ..physics.model.model import Model
from ..physics.simulation_kernels import precision_of
from ..physics.world_params import Params, Varied
from ..rendering.parameters import load
from .ahead import Ahead, AheadOnCpu, AheadOnGpu
from .contract import Contract
from .entries import BAD_STATE
from .episode import Episode, is_known
from .goals import GoalFunction, functions_of_goals
from .layout import TABLE, table_buffers
from .model_view import model_view
from .randomization import as_draws
from .step_gradient import StepGradient
from .tasks.base import HELD, Task, copy_of

__all__ = ["COLUMNS", "Engine", "copied", "draw_seed", "mark_static_address", "named_columns"]

# Buffers with one number per world, which users see as (N,).
COLUMNS = frozenset((
    "reward", "terminated", "truncated", BAD_STATE, "done", "elapsed_steps", "episode", "next_episode", "reset_mask",
))  # fmt: skip

# Small outputs of a step, which are handed out in one copy, with room for an adapter's masks.
NUMBERS, FLAGS, MASKS = ("reward", "info"), ("terminated", "truncated", BAD_STATE), ("always", "alive", "restarted")

SEEDING_BYTES = 128  # bytes per world that `seed` needs while it works

# The module that makes torch's own CUDA graphs. Importing it takes seconds. Until something else imports it, there are
# no such graphs, and steps need no mark.
MARKED_STEPS = "torch._inductor.cudagraph_trees"


def _recipe(episode: Episode, what: str, dtype: torch.dtype, origin: str | None) -> Recipe:
    kind = launch.name_of(dtype)
    buffers = tuple(episode.buffers(what))

    def make() -> Program:
        return sized(episode.model, lambda: episode.program(what, kind))

    return Recipe(episode.name(what), buffers, kind, make, origin)


def episode_of(
    task: Task, model: Model, dtype: torch.dtype, mode: AutoresetMode, max_episode_steps: int | None, **varied: Any
) -> Episode:
    """Return the episode that is traced for a task; in float32 the solver stops where rounding ends its progress."""
    varied = {"arrays": Contract(task, model).tables()} | varied
    return Episode(task, model, mode, max_episode_steps, precision_of(dtype), **varied)


def _view(name: str, doc: str) -> Any:  # a property; type checkers are told that it is a tensor
    return property(lambda self: self.view(name), doc=doc)


def named_columns(values: torch.Tensor, widths: Collection[int]) -> Sequence[torch.Tensor]:
    """Split world-minor `values`, such as info's, into their entries: (N,) each, or (N, width) for a list."""
    if not any(widths):
        return values.unbind()
    parts = values.split([max(1, width) for width in widths])
    return [part.T if width else part[0] for width, part in zip(widths, parts, strict=True)]


class Engine(Varied):
    """N worlds of a task, their buffers, and the kernels that work on them.

    Every attribute that is a tensor keeps its address for the engine's life, and `step` and `reset` write in place:
    `qpos (N, nq)`, `qvel (N, nv)`, `qacc_warmstart (N, nv)`, `act (N, na)`, where actuators have activations, `action
    (N, A)`, `obs (N, D)`, `final_obs (N, D)`, `reward (N,)`, `terminated`, `truncated`, `bad_state`, `done (N,)` bool,
    `elapsed_steps (N,)` int32, and `info`, `final_info`: dicts of (N,) or (N, k).

    Worlds are numbered from `first_world` on. Random numbers depend on a world's number, so several engines that divide
    the numbers of one large engine produce its trajectories. With `shows_end`, in SAME_STEP mode, the engine keeps the
    state after a step, before any reset: the buffers `final_qpos`, `final_memory` and, of models that vary,
    `final_params` and `final_derived`, and `final_kept` if the task sets inputs. `mjmodel` is the task's model, and
    `tables` are the task's tables, if they are loaded already.

    Raises ValueError or TypeError for bad arguments, such as a negative number of worlds, an unknown dtype or device;
    MemoryError, on a GPU torch.OutOfMemoryError, for more worlds than the machine can hold. Calls raise
    AlreadyPendingCallError while another Python thread is in one.
    """

    _called = "this environment"

    @lasting
    def __init__(
        self,
        task: Task,
        num_envs: int,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | str = torch.float32,
        autoreset_mode: AutoresetMode = AutoresetMode.NEXT_STEP,
        max_episode_steps: int | None = 1000,
        first_world: int = 0,
        randomize: Mapping[str, Any] | None = None,
        vary: Sequence[str] = (),
        shows_end: bool = False,
        mjmodel: mujoco.MjModel | None = None,
        tables: Mapping[str, np.ndarray] | None = None,
    ):
        num_envs = as_count("num_envs", num_envs)
        if isinstance(vary, Mapping):
            raise TypeError(f"vary must be names, as {[*vary]}, not a dict: what is to be drawn goes into randomize=")
        varied: dict[str, Any] = {"randomize": as_draws(randomize), "vary": as_names("vary", vary)}
        self._arguments = varied | {
            "autoreset_mode": autoreset_mode, "max_episode_steps": max_episode_steps, "first_world": first_world,
        }  # fmt: skip
        self.shows_end = shows_end and autoreset_mode is AutoresetMode.SAME_STEP
        self._arguments |= {"shows_end": self.shows_end}
        dtype, max_episode_steps = as_dtype(dtype), as_limit(max_episode_steps)
        self.device = devices.choose_device(device)
        first_world = as_count("first_world", first_world, 0)
        as_count("first_world + num_envs", first_world + num_envs)
        self.task, self.num_envs, self.dtype, self.first_world = task, num_envs, dtype, first_world
        self.mode, self.max_episode_steps = as_mode(autoreset_mode), max_episode_steps
        self._lock = Lock()
        loaded = task.load() if mjmodel is None else mjmodel
        if not isinstance(loaded, mujoco.MjModel):
            also = ": an MjSpec becomes one by its compile()" if isinstance(loaded, mujoco.MjSpec) else ""
            raise TypeError(f"{type(task).__name__}.load must give a mujoco.MjModel, not {type(loaded).__name__}{also}")
        self.model = load(loaded)
        # A copy, so that a copy of this engine runs the same task even if the user has changed theirs since.
        self._arguments["task"] = copy_of(task)
        # Kernels of our own tasks may be traced later, so they need a copy; a user's task is traced completely now.
        traced = copy_of(task) if is_known(task) else task
        if tables is not None:
            varied["arrays"] = tables
        episode = episode_of(
            traced, self.model, dtype, self.mode, max_episode_steps, shows_end=self.shows_end, **varied
        )
        self.layout = episode.layout
        self.mjmodel = model_view(loaded, self.layout.params.names if self.layout.params else ())
        bytes_each = launch.bytes_a_world(self.layout.buffers(), dtype) + SEEDING_BYTES
        check_memory("num_envs", num_envs, bytes_each, self.device)
        self._episode = episode
        origin = episode.origin()
        # All are begun before any is waited for: other processes compile some while this one traces the next.
        names = ("step", "reset", "ahead") if self.layout.ahead else ("step", "reset")
        begun = {what: self._begin(what, origin) for what in names}
        # A user's task is traced now: later its Python could have changed since `step` was traced.
        refresh = _recipe(episode, "refresh", dtype, None)
        self._refresh_kernel = prepare(refresh, self.device) if origin is None else None
        made = {what: end() for what, end in reversed(begun.items())}
        step = made["step"]
        self.outputs = self._allocate_outputs()
        given = self.outputs.buffers
        self.buffers = {b.name: given[b.name] if b.name in given else step.allocate(b, num_envs) for b in step.buffers}
        self._rows = frozenset(b.name for b in step.buffers if b.rows)
        self._of_tables = {b.name: self.buffers[b.name] for b in table_buffers(self.layout.tables)}
        for x, numbers in zip(self._of_tables.values(), episode.arrays.values(), strict=True):
            x.copy_(torch.as_tensor(numbers, device="cpu").flatten())
        self._scratch = launch.Scratch()
        self._step, self._reset = (made[what].bind(self.buffers, self._scratch) for what in ("step", "reset"))
        self._gradient = StepGradient(episode, self._step.kernel, launch.name_of(dtype), self._of_tables)
        self._refreshing: launch.Launch | None = None
        contract = Contract(traced, self.model, twice=True)
        self._of_goals = functions_of_goals(contract, self.layout, dtype, self.device)
        self._views = {name: self._view_of(name) for name in self.buffers if name not in self._of_tables}
        self._ahead: Ahead | None = None
        if self.layout.ahead:
            self._ahead = (
                AheadOnCpu(made["ahead"], self.buffers, num_envs)
                if self.device.type == "cpu"
                else AheadOnGpu(made["ahead"], self.buffers, num_envs, max_episode_steps)
            )
        if self.layout.params:
            self._params = Params(self.layout.params, self.buffers, num_envs)
        first = {"qpos": self.model.qpos0} | ({"kept": episode.kept.first} if self.layout.kept else {})
        for name, values in first.items():
            self.buffers[name].copy_(torch.tensor(values, dtype=dtype, device=self.device)[:, None])
        self.seed(draw_seed())

    def __repr__(self) -> str:
        name = type(self.task).__name__
        return f"Engine({name}, num_envs={self.num_envs}, device={self.device}, dtype={self.dtype})"

    def _allocate_outputs(self) -> PackedOutputs:
        numbers = (*NUMBERS, "final_info") if self.mode is AutoresetMode.SAME_STEP else NUMBERS
        sizes = {b.name: b.size for b in self.layout.buffers()}
        return PackedOutputs({k: sizes[k] for k in numbers}, (*FLAGS, *MASKS), self.num_envs, self.dtype, self.device)

    def _begin(self, what: str, origin: str | None) -> Callable[[], launch.Kernel]:
        """Begin to make a kernel, and return a function that ends that."""
        recipe = _recipe(self._episode, what, self.dtype, origin)
        # Where steps begin episodes themselves, resets are rare.
        seldom = what == "reset" and self.mode is not AutoresetMode.DISABLED
        return begin(recipe, devices.hurried(self.device) if seldom else self.device)

    def _view_of(self, name: str) -> torch.Tensor:
        """Return a buffer with a row for each world, (N, width); (N,) for those of one number a world."""
        return self.worlds_of(name, self.buffers[name])

    def worlds_of(self, name: str, x: torch.Tensor) -> torch.Tensor:
        """Return the worlds' rows of a tensor that is laid out as the buffer `name`, or of a stack of such tensors.

        They are (..., N, width), or (..., N) for one number per world.
        """
        view = (x if name in self._rows else x.mT)[..., : self.num_envs, :]
        return view[..., 0] if name in COLUMNS else view

    def view(self, name: str) -> torch.Tensor:
        """Return a buffer with a row for each world: the same tensor at every call.

        While torch compiles, the compiled code makes the view itself: if it got a view from outside beside the buffer,
        it would copy it at every call.
        """
        return self._view_of(name) if torch.compiler.is_compiling() else self._views[name]

    qpos: torch.Tensor = _view("qpos", "Positions, (N, nq), in MuJoCo's order and units.")
    qvel: torch.Tensor = _view("qvel", "Velocities, (N, nv), in MuJoCo's order and units.")
    qacc_warmstart: torch.Tensor = _view("qacc_warmstart", "Accelerations, (N, nv), from which the solver starts.")
    action: torch.Tensor = _view("action", "Actions of the next step, (N, A).")
    obs: torch.Tensor = _view("obs", "Observations of the last step or reset, (N, D).")
    final_obs: torch.Tensor = _view("final_obs", "Observations of the last step before any reset, (N, D).")
    reward: torch.Tensor = _view("reward", "Rewards of the last step, (N,).")
    terminated: torch.Tensor = _view("terminated", "Worlds whose episode the last step ended, (N,) bool.")
    truncated: torch.Tensor = _view("truncated", "Worlds whose episode the last step cut at the time limit, (N,) bool.")
    bad_state: torch.Tensor = _view(BAD_STATE, "Worlds whose state or action was bad in the last step, (N,) bool.")
    done: torch.Tensor = _view("done", "Worlds that have ended and wait for a reset, (N,) bool.")
    elapsed_steps: torch.Tensor = _view("elapsed_steps", "Steps since each world's last reset, (N,) int32.")
    episode: torch.Tensor = _view("episode", "Episodes that each world has begun, (N,) int32.")
    reset_mask: torch.Tensor = _view("reset_mask", "Worlds that the next reset or refresh concerns, (N,) bool.")
    key: torch.Tensor = _view("key", "Keys of the random numbers, (N, 3) int32.")

    def kept(self, world: int, time: float) -> dict[str, np.ndarray]:
        """Return what physics keeps of a world besides positions, velocities and activations, as mjData at this time.

        The wind is none of it: MuJoCo has it in the model, and `own_fields` tells it.
        """
        if not self.layout.kept:
            return {}
        parts = np.split(self.view("kept")[world].cpu().numpy(), np.cumsum(list(self.layout.kept.values()))[:-1])
        found = dict(zip(self.layout.kept, parts, strict=True))
        found.pop("wind", None)
        if "history" in found:
            found["history"] = history_to(self.model, self.mjmodel, found["history"], time)
        return {name: x.reshape(-1, HELD[name]) if HELD.get(name, 1) > 1 else x for name, x in found.items()}

    def of_goals(self, function: str) -> GoalFunction:
        """Return "compute_reward" or another function of goals. Raises AttributeError if the task has none of this
        name, or observes no goals.
        """
        if function not in self._of_goals:
            raise AttributeError(
                f"{type(self.task).__name__} has no {function}(self, achieved_goal, desired_goal, info) with an "
                "`observe` that names both goals"
            )
        return self._of_goals[function]

    @property
    def act(self) -> torch.Tensor:
        """Activations, (N, na). Raises AttributeError if no actuator of the model has one."""
        if not self.layout.na:
            raise AttributeError("there is no act: no actuator of the model has an activation")
        return self.view("act")

    @property
    def ctrl(self) -> torch.Tensor:
        """The ctrl of the last step, (N, nu): what the task's `control` made of the action, or the action itself."""
        return self.view("ctrl" if self.layout.controls else "action")

    @property
    def memory(self) -> dict[str, torch.Tensor]:
        """The memory of the worlds, by the task's names: (N,) or (N, k) each. Writing into it changes the worlds."""
        widths = self.layout.memory
        found = dict(zip(widths, named_columns(self.view("memory").T, widths.values()), strict=True))
        return fixed(found, "memory", "the task's memory() declares what a world remembers")

    @property
    def tables(self) -> dict[str, torch.Tensor]:
        """The task's tables, by name, which all worlds read: see `Task.tables`.

        What is written into them counts from the next step or reset on, without a rebuild. They have no gradients, and
        are no part of `state_dict`.
        """
        found = {name: self.buffers[TABLE + name].view(shape) for name, shape in self.layout.tables.items()}
        return fixed(found, "tables", "the task's tables() gives them")

    @property
    def info(self) -> dict[str, torch.Tensor]:
        """The info of the last step or reset, by name: (N,) or (N, k) each."""
        return self._named(self.info_values)

    @property
    def final_info(self) -> dict[str, torch.Tensor]:
        """The info at the end of each world's last episode, in SAME_STEP mode, by name: (N,) or (N, k) each."""
        return self._named(self.final_info_values)

    @property
    def info_values(self) -> torch.Tensor:
        """The entries of `info` in one tensor, world-minor, for `named_columns`."""
        return self.view("info").T

    @property
    def final_info_values(self) -> torch.Tensor:
        """The entries of `final_info` in one tensor, world-minor, for `named_columns`."""
        return self.view("final_info").T

    def info_places(self) -> dict[str, int]:
        """Return the first row of each entry of info in its buffer."""
        widths = [max(1, width) for width in self.layout.info.values()]
        return dict(zip(self.layout.info, itertools.accumulate([0, *widths]), strict=False))

    @property
    def _count(self) -> int:
        return self.num_envs

    @property
    def _loaded(self) -> mujoco.MjModel:
        return self.mjmodel

    @property
    def _wind(self) -> torch.Tensor | None:
        kept = self.layout.kept
        if "wind" not in kept:
            return None
        return dict(zip(kept, self.view("kept").split([*kept.values()], 1), strict=True))["wind"]

    @property
    def output_bytes(self) -> int:
        """The bytes of a copy of all outputs of a step."""
        same_step = ("final_obs",) if self.mode is AutoresetMode.SAME_STEP else ()
        return sum(x.nbytes for x in (*self.outputs.buffers.values(), *map(self.view, ("obs", *same_step))))

    def _named(self, values: torch.Tensor) -> dict[str, torch.Tensor]:
        return dict(zip(self.layout.info, named_columns(values, self.layout.info.values()), strict=True))

    @exclusive
    def seed(self, seed: int | Sequence[int | None], mask: torch.Tensor | None = None) -> None:
        """Key every world's random numbers by (seed, its number), or for a list of N seeds by (its own seed, 0).

        Worlds outside the (N,) bool mask, and worlds whose own seed is None, keep their keys. For the others, episodes
        are counted from 0 again. Seeds are taken modulo 2**64.
        """
        n = self.num_envs
        if isinstance(seed, int):
            seeds = torch.full((n,), wrap64(seed), device="cpu")
            index = torch.arange(self.first_world, self.first_world + n, device="cpu")
            chosen = torch.ones(n, dtype=torch.bool, device="cpu")
        else:
            seeds = torch.tensor([wrap64(s or 0) for s in seed], dtype=torch.int64, device="cpu")
            index = torch.zeros(n, dtype=torch.int64, device="cpu")
            chosen = torch.tensor([s is not None for s in seed], device="cpu")
        low, high = seeds & 0xFFFFFFFF, seeds >> 32
        low = torch.where(low >= 2**31, low - 2**32, low)
        key = torch.stack([low, index, high], 1).to(self.device, torch.int32)
        chosen = chosen.to(self.device) if mask is None else chosen.to(self.device) & mask
        self.key.copy_(torch.where(chosen[:, None], key, self.key))
        self.episode.masked_fill_(chosen, 0)
        if self.layout.ahead:
            self.view("next_episode").masked_fill_(chosen, 0)

    @exclusive
    def reset(self, mask: torch.Tensor | None = None) -> None:
        """Start new episodes in all worlds, or in those of the (N,) bool mask."""
        self._choose(mask)
        self._follow()
        self._reset()

    def _choose(self, mask: torch.Tensor | None) -> None:
        """Set the worlds that the next reset or refresh concerns."""
        self.reset_mask.copy_(mask) if mask is not None else self.reset_mask.fill_(True)

    @exclusive
    def step(self) -> None:
        """Make one environment step from `self.action`.

        It begins a new iteration for torch's own CUDA graphs: the next call of a compiled policy may then overwrite its
        earlier results.
        """
        if self.device.type == "cuda" and not torch.compiler.is_compiling() and MARKED_STEPS in sys.modules:
            torch.compiler.cudagraph_mark_step_begin()
        self._follow()
        launch.materialize(self.buffers["action"])
        self._step()
        self.stepped()

    def stepped(self, steps: int = 1) -> None:
        """Do what is due after so many steps. While a CUDA graph is captured, `end_graph` does it instead."""
        if self._ahead and not torch.compiler.is_compiling():
            self._ahead.after(steps)

    def end_graph(self, steps: int) -> None:
        """While a CUDA graph of so many steps is captured, add what each replay must do after them."""
        if self._ahead:
            self._ahead.at_the_end_of_a_graph(steps)

    @exclusive
    def step_some(self, chosen: torch.Tensor) -> None:
        """Step the worlds of the (N,) bool mask. The others stay as they are, but for their reward, which is 0."""
        old, others = self.state_dict(), ~chosen
        try:
            self.step()
            self._bring_back(old, others)
            self.reward.masked_fill_(others, 0)
        except BaseException:  # such as Ctrl-C: then no world has made the step
            self._bring_back(old, torch.ones_like(chosen))
            raise

    def _bring_back(self, old: Mapping[str, torch.Tensor], worlds: torch.Tensor) -> None:
        """Give the worlds of the (N,) bool mask the state that `state_dict` gave."""
        for name, x in old.items():
            new = self.view(name)
            new.copy_(torch.where(worlds.view(-1, *[1] * (new.ndim - 1)), x, new))
        if self._params:
            self._params.followed()

    @exclusive
    def repeat(self, times: int, left_out: torch.Tensor | None = None) -> None:
        """Make `times` more steps with the action of the last one, and sum the rewards.

        Worlds whose episode has ended are not stepped, nor are those of the (N,) bool mask `left_out`.
        """
        total, still = self.reward.clone(), self.terminated | self.truncated
        if left_out is not None:
            still |= left_out
        for _ in range(times):
            if still.is_cuda or still.any():
                self.step_some(~still)
            else:
                self.step()
            total += self.reward
            still |= self.terminated | self.truncated
        self.reward.copy_(total)

    def step_on(self, buffers: Mapping[str, torch.Tensor]) -> Callable[[], None]:
        """Return a function that makes a step of the worlds on these buffers, by name, in place of the engine's own.

        They must be buffers that a step only reads (`action`) or only writes (`obs`, `reward`, ...), of the same shapes
        as the engine's own. Raises ValueError for others.
        """
        launched = self.launch_on(buffers)

        def step() -> None:
            self._follow()
            launched()

        return step

    def launch_on(self, buffers: Mapping[str, torch.Tensor]) -> launch.Launch:
        """Return the launch of `step_on`, which does not check whether parameters have changed."""
        own = {name: self.buffers[name] for name in self.buffers.keys() - buffers.keys()}
        return self._step.kernel.bind(own | dict(buffers), self._scratch)

    def transition(
        self, state: Mapping[str, torch.Tensor], action: torch.Tensor, *, clip_adjoint: float | None = None
    ) -> dict[str, torch.Tensor]:
        """Return the state after one step from `state` under `action` (..., A). The engine's own worlds do not change.

        `state` and the result are like `state_dict`'s, with any leading dimensions; in the result, "obs", "reward",
        "terminated" and so on are the step's. The function is pure: `torch.vmap` maps it over worlds, and
        `torch.compile` can compile it.

        torch's autograd and `torch.func.grad` can differentiate it, once: the state after the step (memory and sums
        included), "obs", "reward" and "info" have gradients by the state before it, the action, and "params", through
        the numbers derived from them ("derived"), too. No gradient crosses a reset: the beginning of an episode has
        none, and in SAME_STEP mode "final_obs" and "final_info" have those of the step. Flags and the solver's warm
        start have none, nor has the step of a world whose state or action was bad. The backward pass consists of
        several kernels, built on first use, and is as exact as that of `Simulation.transition`. Code that torch
        compiles has no gradients.

        clip_adjoint: the greatest length of the adjoint of a world's positions, velocities and activations after the
        step in the backward pass, as in `Simulation.transition`.

        Raises KeyError if an entry of the state is missing, and ValueError for one of the wrong shape, dtype or device,
        or a bound that is not positive. The backward pass raises UnsupportedModel, naming what has no gradients.
        """
        clip_adjoint = as_bound("clip_adjoint", clip_adjoint)
        given = [action if name == "action" else state[name] for name in self._views]
        lead = given[0].shape[: given[0].ndim - 1]
        for (name, view), x in zip(self._views.items(), given, strict=True):
            shape = lead + view.shape[1:]
            if x.shape != shape or x.dtype != view.dtype or x.device != view.device:
                raise ValueError(f"{name} must be {view.dtype} of shape {tuple(shape)} on {view.device}")
        rows = [x[..., None] if name in COLUMNS else x for name, x in zip(self._views, given, strict=True)]
        if torch.compiler.is_compiling():
            rows += self._of_tables.values()
            out = dict(zip(self._views, launch.run(self._step.kernel.handle, rows), strict=True))
        else:
            out = dict(zip(self._gradient.gives, self._gradient(rows), strict=True))
            if clip_adjoint is not None:
                names = [name for name in ("qpos", "qvel", "act") if name in out]
                out |= dict(zip(names, bounded([out[name] for name in names], clip_adjoint), strict=True))
        return {name: out[name][..., 0] if name in COLUMNS else out[name] for name in self._views}

    def _refresh(self) -> None:
        self._follow()
        if self._refreshing is None:  # built late, since most users never set a state
            prepared, self._refresh_kernel = self._refresh_kernel, None
            if not prepared:
                recipe = _recipe(self._episode, "refresh", self.dtype, self._episode.origin())
                prepared = prepare(recipe, self.device)
            self._refreshing = prepared().bind(self.buffers, self._scratch)
        self._refreshing()

    @exclusive
    def set_state(
        self,
        qpos: torch.Tensor | np.ndarray | Sequence[Any],
        qvel: torch.Tensor | np.ndarray | Sequence[Any],
        mask: torch.Tensor | np.ndarray | Sequence[Any] | None = None,
        act: torch.Tensor | np.ndarray | Sequence[Any] | None = None,
    ) -> None:
        """Set the state of worlds, like Gymnasium's `MujocoEnv.set_state`: qpos (N, nq), qvel (N, nv) and act (N, na).

        act is 0 by default. With a mask, (N,) bool, only its worlds are set. Nothing is carried over from before: `obs`
        and `info` are then those of a reset into that state. Raises TypeError or ValueError for the wrong type, shape
        or device; nothing has changed then.
        """
        n = self.num_envs
        if act is not None:
            act = as_tensor("act", act, (n, self.layout.na), self.device).to(self.dtype)
        qpos = as_tensor("qpos", qpos, (n, self.layout.nq), self.device)
        qvel = as_tensor("qvel", qvel, (n, self.layout.nv), self.device)
        self._choose(None if mask is None else as_mask("mask", mask, n, self.device))
        chosen = self.reset_mask[:, None]
        self.qpos.copy_(torch.where(chosen, qpos.to(self.dtype), self.qpos))
        self.qvel.copy_(torch.where(chosen, qvel.to(self.dtype), self.qvel))
        self.qacc_warmstart.masked_fill_(chosen, 0.0)
        if self.layout.na:
            self.act.copy_(torch.where(chosen, 0.0 if act is None else act, self.act))
        self._refresh()

    @exclusive
    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return copies of all buffers by name, (N, width); `load_state_dict` continues exactly from there.

        The task's tables are no part of it: they are the task's, as the model is.
        """
        self._follow()
        return {name: view.clone() for name, view in self._views.items()}

    @exclusive
    def load_state_dict(self, state: Mapping[str, torch.Tensor]) -> None:
        """Continue from the `state_dict` of an engine of the same task, number of worlds and dtype, on any device.

        Without gradients. "params" and "derived", which follows from it, belong together: to change parameters, load
        the state and call `set_params`.

        Raises ValueError for names, shapes or dtypes that do not fit, and in SAME_STEP mode for worlds that wait for a
        reset, as in other modes; TypeError for anything but dense tensors. Nothing has changed then.
        """
        check_state(state, self._views, "such an environment")
        if self.mode is AutoresetMode.SAME_STEP and bool(state["done"].any()):
            world = int(state["done"].nonzero()[0, 0])
            raise ValueError(
                f"world {world} has ended and waits for its reset, which in SAME_STEP mode comes within the step: this "
                "is the state of an environment of another autoreset_mode"
            )
        for name, view in self._views.items():
            view.copy_(state[name].detach())
        if self._params:
            self._params.followed()

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        """Make a new engine from the same arguments, on the same device, in this state: for `copy.deepcopy` and pickle.

        Buffers stay at fixed addresses, and kernels belong to a process, so neither can be copied. The model and the
        task's tables are: their files may have changed. The state is of arrays, as tensors would be shared with a
        process that "spawn" starts, and freed before that has them.
        """
        arguments = self._arguments | {"num_envs": self.num_envs, "device": self.device, "dtype": self.dtype}
        arguments["mjmodel"] = copy.copy(self.mjmodel)  # which may be written into
        arguments["tables"] = {name: x.cpu().numpy().copy() for name, x in self.tables.items()}
        return _remade, (arguments, {name: x.cpu().numpy() for name, x in self.state_dict().items()}, self._lock)


def _remade(arguments: dict[str, Any], state: dict[str, np.ndarray], lock: Lock) -> Engine:
    with torch.random.fork_rng(devices=[]):  # a copy takes no seed from torch's generator
        engine = Engine(**arguments)
    engine._lock = lock
    engine.load_state_dict({name: torch.from_numpy(x) for name, x in state.items()})
    return engine


def wrap64(x: int) -> int:
    """Return any whole number as a signed 64-bit one, modulo 2**64."""
    return (x + 2**63) % 2**64 - 2**63
