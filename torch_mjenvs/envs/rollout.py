"""Many steps of policy and environment in one call: one CUDA graph on a GPU, a loop on the CPU."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import torch
from gymnasium.vector import AutoresetMode

from ..calls import exclusive, lasting
from ..checks import as_count, as_tensor, check_memory
from ..cuda_graphs import capturing
from .direct_steps import DirectSteps
from .engine import MARKED_STEPS, Engine
from .entries import BAD_STATE, chosen_info
from .episode_log import of_last_step
from .parts import Parts, leaves

Observations = Any  # a tensor (N, D); of a task that names them, a dict of tensors (N, ...), or of such dicts
# Observations (N, D), or by name, to actions (N, A); or to a tuple of these and further tensors (N, ...) by name.
Act = Callable[[Any], torch.Tensor | tuple[torch.Tensor, Mapping[str, torch.Tensor]]]
# Observations, rewards (N,), terminated and truncated (N,) bool, and info, as of Gymnasium's `step`.
Step = tuple[Observations, torch.Tensor, torch.Tensor, torch.Tensor, dict[str, Any]]
AllSteps = Callable[[Sequence[Callable[[int], None]], Mapping[str, torch.Tensor]], Callable[[], None]]
OBSERVATIONS = frozenset(("obs", "next_obs", "final_obs"))
WARM_UP = 3  # runs before a graph is captured, in which libraries allocate what they need


def torchs_graphs(device: torch.device) -> object:
    """Return a value that changes when torch.compile's own CUDA graphs run, or are made, on this GPU.

    Torch has no public way to detect them. If one were replayed within a capture, torch would raise an error or, if no
    random numbers are drawn, capture memory that it later gives to others.
    """
    trees = sys.modules.get(MARKED_STEPS)
    manager = trees and trees.get_manager(device.index, create_if_none_exists=False)
    return manager and (id(manager), getattr(manager, "current_gen", None))


class Around(Protocol):
    """The outermost wrapper of an environment: what a rollout needs of it."""

    @property
    def obs(self) -> Observations: ...
    def step(self, actions: torch.Tensor) -> Step: ...
    def _choices(self) -> list[Any]: ...
    def state_dict(self) -> dict[str, torch.Tensor]: ...
    def load_state_dict(self, state: Mapping[str, torch.Tensor]) -> None: ...


class Waiting:
    """The tensors that a policy returned under one name in the steps of a rollout, not copied yet."""

    def __init__(self) -> None:
        self.tensors: list[torch.Tensor] = []
        self._versions: list[int | None] = []

    def append(self, x: torch.Tensor) -> None:
        self.tensors.append(x)
        self._versions.append(version(x))

    def fit(self, rows: torch.Tensor) -> bool:
        """Whether the (N, ...) tensors of all steps still hold what was given, and can be stacked (T, N, ...).

        Each must have memory of its own, since a buffer that the policy fills in every step holds only the last step's
        numbers, and no operation of torch may have written to it since.
        """
        like = {(x.shape, x.dtype) for x in self.tensors} == {(rows.shape[1:], rows.dtype)}
        places = {x.untyped_storage().data_ptr() for x in self.tensors}
        same = all(v is not None and v == version(x) for x, v in zip(self.tensors, self._versions, strict=True))
        return like and same and len(places) == len(self.tensors) == len(rows)


def version(x: torch.Tensor) -> int | None:
    """How often torch has written into x's memory; None if torch does not count it."""
    return None if x.is_inference() else x._version


class Rollout:
    """A loop of policy and environment, made by `TorchVectorEnv.capture`: each call makes the next `steps` steps.

    Every call overwrites the same tensors, and returns them by name, (T, N, ...) each:

    - "obs" (T, N, D), what the policy saw; "action" (T, N, A), and whatever else it gave by name
    - "reward" (T, N), "terminated", "truncated", "bad_state" (T, N) bool
    - in SAME_STEP mode "final_obs" (T, N, D): what each step led to, before any reset
    - "next_obs" (N, D): what the policy would see next
    - if the task names terms of its reward, metrics or reasons for ending, these entries of info, as they were before
      any reset: "episode_reward/NAME", "episode_mean/NAME", "episode_length", "episode_end/NAME" (T, N)
    - the entries of info that `info_keys` names, likewise: (T, N), or (T, N, k) for a list

    Observations by name are dicts of such tensors, as the policy sees them.

    On a GPU the call replays one CUDA graph, without Python. So the policy must consist of operations that a graph can
    capture, on tensors that keep their addresses: change parameters in place, as optimisers do. It may be compiled by
    torch, but not into CUDA graphs of its own (mode="reduce-overhead"): that raises ValueError. The policy's outputs
    stay in the graph's memory until the last step, and are then written into the rollout's tensors.
    """

    @lasting
    def __init__(
        self,
        engine: Engine,
        check: Callable[[], None],
        policy: Act,
        steps: int,
        parts: Parts | None = None,
        around: Around | None = None,
        info_keys: Sequence[str] = (),
    ):
        """Make the tensors, and on a GPU the CUDA graph.

        `check` raises an exception if the engine must not be stepped now; `parts` are those of an observation, None for
        rows without names; `around` is the outermost wrapper, if any; `info_keys` names entries of info to record.
        """
        steps = as_count("steps", steps)
        if engine.mode is AutoresetMode.DISABLED:
            raise ValueError("a rollout needs an environment that resets itself: autoreset_mode NEXT_STEP or SAME_STEP")
        self._engine, self._check, self._lock = engine, check, engine._lock
        self._around, self._parts = around, parts or Parts(())
        self._policy, self._steps, self._device = policy, steps, engine.device
        self._outputs = ["reward", "terminated", "truncated", BAD_STATE]
        if engine.mode is AutoresetMode.SAME_STEP:
            self._outputs.append("final_obs")
        self._told = self._entries_to_tell(info_keys)
        self._given = {*self._outputs, *self._told}
        self._graph: torch.cuda.CUDAGraph | None = None
        self._choices: list[Any] = []  # of the wrappers, when the graph was captured
        self._direct: DirectSteps | None = None
        self._all_steps: Callable[[], None] | None = None
        self._waiting: frozenset[str] = frozenset()
        kinds = {x.dtype for x in leaves(around.obs)} if around else set()
        if len(kinds) > 1:  # a row has one dtype
            raise ValueError(f"a rollout has observations of one dtype, not of {sorted(map(str, kinds))}: pixels alone")
        with self._unseen():
            self._rows = self._allocate()
            self.tensors = {name: self._parts.split(x) if name in OBSERVATIONS else x for name, x in self._rows.items()}
            if engine.device.type == "cuda":
                self._capture()

    def _entries_to_tell(self, info_keys: str | Sequence[str]) -> tuple[str, ...]:
        """Return the entries of info to record: what the task logs, and `info_keys`. Raises ValueError for others."""
        layout = self._engine.layout
        chosen = chosen_info(info_keys, {*layout.step_info, BAD_STATE})
        told = dict.fromkeys((*layout.logged, *(name for name in chosen if name != BAD_STATE)))
        if taken := sorted(told.keys() & {"obs", "action", "next_obs", *self._outputs}):
            raise ValueError(f"info_keys names {taken}, which are the rollout's own: rename them in the task's info")
        return tuple(told)

    @contextlib.contextmanager
    def _unseen(self) -> Iterator[None]:
        """Have torch's random numbers go on afterwards as if the policy had not run in this block."""
        device = self._engine.device
        with torch.no_grad(), torch.random.fork_rng([device] if device.type == "cuda" else []):
            yield

    @property
    def _obs(self) -> torch.Tensor:
        """The present observations, one row per world."""
        return self._engine.obs if self._around is None else self._parts.join(self._around.obs)

    @property
    def _whole(self) -> Any:
        return self._around or self._engine

    def _allocate(self) -> dict[str, torch.Tensor]:
        shape, obs = (self._steps, self._engine.num_envs), self._obs
        action, extras = self._act(obs)
        first = {"obs": obs, "action": action} | dict(extras) | self._first_outputs(action)
        for name, x in first.items():
            if not isinstance(x, torch.Tensor):
                raise TypeError(f"the policy's {name!r} must be a tensor, not {type(x)}")
            if x.ndim == 0 or len(x) != shape[1]:
                raise ValueError(f"the policy's {name!r} must have {shape[1]} rows, one a world, not {tuple(x.shape)}")
        self._policys = frozenset(("action", *extras))
        twice = [first[name] for name in self._policys] if self._device.type == "cuda" else []  # see `_capture`
        check_memory("steps", self._steps, sum(x.nbytes for x in (*first.values(), *twice)), self._device)
        shared: dict[str, torch.Tensor] = {}
        if self._around is None:  # wrappers make steps of their own
            self._direct = DirectSteps(self._engine, self._steps, self._outputs, action.dtype, self._told)
            shared = self._direct.shared
        tensors = {
            k: shared[k] if k in shared else torch.zeros(*shape, *x.shape[1:], dtype=x.dtype, device=x.device)
            for k, x in first.items()
        }
        return tensors | {"next_obs": torch.zeros_like(obs)}

    def _first_outputs(self, action: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return tensors like those that a step gives; the worlds are left unchanged."""
        if self._around is None:
            return {name: self._engine.view(name) for name in self._outputs} | of_last_step(self._engine, self._told)
        self._check()
        state = self._around.state_dict()
        try:
            return self._step(action)[1]
        finally:
            self._around.load_state_dict(state)

    def _step(self, action: torch.Tensor) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """Make a step of the outermost wrapper, and return its observation and its other outputs."""
        assert self._around is not None
        obs, reward, terminated, truncated, info = self._around.step(action)
        # Last, since a task's info may have these names, too.
        given = info | {"reward": reward, "terminated": terminated, "truncated": truncated}
        if "final_obs" in self._outputs:
            given["final_obs"] = self._parts.join(given["final_obs"])
        outputs = {name: given[name] for name in self._outputs} | of_last_step(self._engine, self._told)
        return self._parts.join(obs), outputs

    def _act(self, obs: torch.Tensor) -> tuple[torch.Tensor, Mapping[str, torch.Tensor]]:
        given = self._policy(self._parts.split(obs))
        action, extras = given if isinstance(given, tuple) and len(given) == 2 else (given, {})
        engine = self._engine
        if not isinstance(action, torch.Tensor) or not isinstance(extras, Mapping):
            raise TypeError("the policy must give a tensor of actions, or a tuple of one and a dict of further tensors")
        action = as_tensor("the policy's actions", action, engine.action.shape, engine.device)
        taken = {"obs", "action", "next_obs", *self._given} & set(extras)
        if taken:
            raise ValueError(f"the policy may not name what it gives {sorted(taken)}: these are the rollout's own")
        return action, extras

    def _run(self) -> set[str]:
        """Make the steps. Return the names of outputs in `_waiting` that could not wait until the last step; these are
        not stored.

        The other outputs in `_waiting` are stored after the last step, for all steps at once.
        """
        if self._direct is None:
            self._run_around()
            return set()
        direct, rows = self._direct, self._direct.rows
        waiting = {name: Waiting() for name in self._waiting}
        try:
            direct.begin()
            if self._all_steps:
                self._run_whole(direct, self._all_steps)
            else:
                for t in range(self._steps):
                    action = self._chosen(t, rows["obs"][t], waiting)
                    direct.step(t, action, in_place="action" in waiting and direct.reads(action))
        except BaseException:  # of the policy, or an interrupt
            direct.cut_off()
            raise
        direct.finish(self._rows)
        unfit = {name for name, given in waiting.items() if not given.fit(self._rows[name])}
        for name in waiting.keys() - unfit:
            torch.stack(waiting[name].tensors, out=self._rows[name])
        self._rows["next_obs"].copy_(self._engine.obs)
        return unfit

    def run_by(self, make: AllSteps) -> bool:
        """On the CPU, call from now on what `make` returns in place of the loop. Return whether that is possible.

        `make` is given the `run` of each step's launch, and the tensors to fill, by name, (T, N, ...). What it returns
        must do what the policy does: in every step, fill "action" and the policy's other outputs from "obs", and then
        make the step.
        """
        direct, rows = self._direct, self._rows
        if direct is None or not direct.takes_actions or direct.apart or self._device.type != "cpu":
            return False
        self._all_steps = make(direct.launches(), rows)
        return True

    def _run_whole(self, direct: DirectSteps, all_steps: Callable[[], None]) -> None:
        self._engine._follow()
        all_steps()
        direct.end()

    def _run_around(self) -> None:
        obs, out = self._obs, self._rows
        for t in range(self._steps):
            out["obs"][t] = obs
            action = self._chosen(t, out["obs"][t], {})
            obs, outputs = self._step(action)
            for name, x in outputs.items():
                out[name][t] = x
        out["next_obs"].copy_(obs)

    def _chosen(self, t: int, obs: torch.Tensor, waiting: Mapping[str, Waiting]) -> torch.Tensor:
        """Return the policy's actions, and store its outputs, except those that wait.

        Actions are not stored here either if the step puts them into the rollout itself.
        """
        action, extras = self._act(obs)
        for name, x in ({"action": action} | dict(extras)).items():
            if name in waiting:
                waiting[name].append(x)
            elif name != "action" or self._direct is None or not self._direct.takes_actions:
                self._rows[name][t] = x
        return action

    def _capture(self) -> None:
        """Capture the CUDA graph; the worlds are left unchanged."""
        device, state = self._device, self._whole.state_dict()
        # torch's own stream for captures is on whichever GPU was first used for one
        side = torch.cuda.Stream(device)
        side.wait_stream(torch.cuda.current_stream(device))
        try:
            with torch.cuda.device(device):
                before = torchs_graphs(device)
                with torch.cuda.stream(side):
                    for _ in range(WARM_UP):
                        self._run()
                torch.cuda.current_stream(device).wait_stream(side)
                if torchs_graphs(device) != before:
                    raise ValueError(
                        "the policy is compiled into CUDA graphs of its own, by torch.compile with mode "
                        "'reduce-overhead' or 'max-autotune', and a CUDA graph cannot hold those: compile it without "
                        "a mode, or with 'max-autotune-no-cudagraphs'"
                    )
                # In a graph each tensor stays at its address, so steps can read actions there, and the policy's outputs
                # need not be copied in every step. A single step does not show whether the policy uses new memory in
                # each.
                several = self._direct is not None and self._steps > 1
                self._waiting = self._policys if several else frozenset()
                while True:
                    graph = torch.cuda.CUDAGraph()
                    with capturing(graph, side):
                        unfit = self._run()
                        self._engine.end_graph(self._steps)
                    if not unfit:
                        break
                    self._waiting -= unfit
        finally:
            torch.cuda.current_stream(device).wait_stream(side)  # also if the policy has failed there
            self._whole.load_state_dict(state)
        self._graph, self._choices = graph, self._chosen_around()

    def _chosen_around(self) -> list[Any]:
        return [] if self._around is None else self._around._choices()

    @exclusive
    def __call__(self) -> dict[str, Any]:
        """Make the next `steps` steps, and return their tensors by name.

        Raises ResetNeeded before the environment's first reset, ClosedEnvironmentError after its `close`.
        """
        self._check()
        if self._graph is not None:
            self._engine._follow()  # no Python runs in a graph
            if self._choices != self._chosen_around():
                with self._unseen():
                    self._capture()
            self._graph.replay()
        else:
            with torch.no_grad():
                self._run()
        return self.tensors
