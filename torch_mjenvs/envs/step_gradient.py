"""`StepGradient`: an environment step as a function of tensors that torch's autograd can differentiate.

The step itself is the engine's kernel, with its reset. The backward pass repeats its substeps one by one, and goes back
through each by the adjoint of the physics (`physics.step_function`). The task's `control` before the substeps, and all
that judges the step after them, have a kernel each. No gradient crosses a reset.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from gymnasium.vector import AutoresetMode

from ..compiler import launch
from ..compiler.adjoints import Adjoints, Solved
from ..compiler.build import Recipe, build
from ..compiler.derivatives import NotDifferentiable
from ..compiler.functions import Differentiable, Pure
from ..compiler.program import Buffer, Program, record
from ..physics import transition
from ..physics.algebra.nested import floats
from ..physics.kernel_request import KernelRequest
from ..physics.model.model import UnsupportedModel
from ..physics.model.state import State
from ..physics.step_function import STATE, WARM, StepFunction, accelerations
from .entries import BAD_STATE
from .episode import AFTER, Buffers, Episode, random
from .layout import table_buffers
from .packing import by_name
from .tasks.base import World

Rows = dict[str, torch.Tensor]

GIVEN = (*STATE, "memory", "history", "episode_sums", "params", "action")  # the inputs that have gradients
JUDGED = ("memory", "history", "episode_sums", "obs", "reward", "info")  # what the task computes from a step
FINAL = ("final_obs", "final_info")  # the same before a reset in the same step
OTHERS = ("elapsed_steps", "episode", "key")  # what else a task's functions depend on
CONTROL, WAY_BACK, JUDGE = "control", "control-backward", "judge-backward"


class StepGradient(Differentiable):
    """A step of an engine: from rows of its buffers to rows of all of them, those with gradients (`made`) first.

    tables: the tensors of the buffers that are tables, by name. They are read where they are, and have no gradients.
    """

    def __init__(self, episode: Episode, step: launch.Kernel, dtype: str, tables: Mapping[str, torch.Tensor]):
        super().__init__()
        self._episode, self._step, self._dtype, self._tables = episode, step, dtype, tables
        self.takes = [b.name for b in step.buffers if not b.table]
        self._sizes = {b.name: b for b in step.buffers if b.size}
        same_step = episode.mode is AutoresetMode.SAME_STEP
        made = (*STATE, "ctrl", "params", *JUDGED, *(FINAL if same_step else ()))
        differentiable = [name for name in made if name in self._sizes]
        self.gives = [*differentiable, *(name for name in self.takes if name not in differentiable)]
        self.made = [self._sizes[name].size for name in differentiable]
        self._given = [name for name in GIVEN if name in self._sizes]
        self._state = [name for name in STATE if name in self._sizes]

    @functools.cached_property
    def _physics(self) -> StepFunction:
        columns = self._episode.params
        names, only = (columns.names, columns.only) if columns else ((), ())
        return StepFunction(KernelRequest(self._episode.model, vary=names, only=only), self._dtype, self._step.device)

    # the function and its gradient

    def run(self, given: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        after = dict(zip(self.takes, launch.run(self._step.handle, [*given, *self._tables.values()]), strict=True))
        return tuple(after[name] for name in self.gives)

    def push(self, given: Sequence[torch.Tensor], dots: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        raise NotImplementedError("an environment's step has gradients, and no tangents (torch.func.jvp) yet")

    def kept(self, given: Sequence[torch.Tensor], results: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        after = dict(zip(self.gives, results, strict=True))
        return [*given, after["elapsed_steps"], after[BAD_STATE]]

    def pull(self, kept: Sequence[torch.Tensor], bars: Sequence[torch.Tensor]) -> tuple[torch.Tensor | None, ...]:
        *given, elapsed, lost = kept  # lost: the worlds whose step has no gradient
        restarted = elapsed < 1
        if self._episode.mode is AutoresetMode.NEXT_STEP:
            lost = lost | restarted
        before = self._sound(dict(zip(self.takes, given, strict=True)), lost)
        bar = self._of_the_step(dict(zip(self.gives, bars, strict=False)), restarted, lost)
        found = self._back(before, bar)
        return tuple(found[name].masked_fill_(lost, 0.0) if name in found else None for name in self.takes)

    def _sound(self, before: Rows, lost: torch.Tensor) -> Rows:
        """Return what a step began with. Lost worlds begin at qpos0 and at rest, so that all numbers are finite."""
        floating = [*self._given, WARM]
        sound = {name: before[name].masked_fill(lost, 0.0) for name in floating if name != "params"}
        start = before["qpos"].new_tensor(self._episode.model.qpos0)
        return before | sound | {"qpos": torch.where(lost, start, before["qpos"])}

    def _of_the_step(self, bars: Rows, restarted: torch.Tensor, lost: torch.Tensor) -> Rows:
        """Return the adjoints of a step's results before any reset."""
        bar = {name: x.masked_fill(lost if name == "reward" else lost | restarted, 0.0) for name, x in bars.items()}
        for name in FINAL:
            if name in bars:
                plain = name.removeprefix("final_")
                bar[plain] = bar[plain] + bars[name].masked_fill(lost, 0.0)
        return bar

    def _back(self, before: Rows, bar: Rows) -> Rows:
        """Return the adjoints of what a step began with. Sums are in place: nobody else has the kernels' results."""
        physics, state = self._physics, self._state
        controls = self._episode.contract.controls
        begun = self._call(CONTROL, before) if controls else {"ctrl": before["action"], "qvel": before["qvel"]}
        rows = {name: before[name] for name in physics.takes if name != "ctrl"} | begun
        made: list[tuple[Rows, tuple[torch.Tensor, ...]]] = []
        for _ in range(self._episode.task.frame_skip):
            rows = {name: rows[name] for name in physics.takes}
            results = physics.run(list(rows.values()))
            made.append((rows, results))
            rows = rows | dict(zip(physics.gives, results, strict=False))
            rows[WARM] = results[-1][..., -self._episode.model.nv :]
        last, ended = made[-1]
        judged = {f"last_{name}": last[name] for name in state} | {f"new_{name}": rows[name] for name in state}
        judged |= {f"bar_{name}": bar[name] for name in JUDGED if name in bar}
        found = self._call(JUDGE, before | judged | {"qaccs": ended[-1]})
        of_state = {name: found[f"new_{name}"].add_(bar[name]) for name in state}
        of_ctrl: torch.Tensor | None = bar.get("ctrl")
        for k, (given, results) in reversed(list(enumerate(made))):
            adjoints = physics.pull(physics.kept([*given.values()], results), [*of_state.values()])
            by = {name: x for name, x in zip(physics.takes, adjoints, strict=True) if x is not None}
            of_state = {name: by[name] for name in state}
            if k == len(made) - 1:
                of_state = {name: x.add_(found[f"last_{name}"]) for name, x in of_state.items()}
            if "ctrl" in by:
                of_ctrl = by["ctrl"] if of_ctrl is None else of_ctrl.add_(by["ctrl"])
            if "params" in by:
                found["params"].add_(by["params"])
        if "params" in bar:
            found["params"].add_(bar["params"])
        if controls:
            of_ctrl = torch.zeros_like(begun["ctrl"]) if of_ctrl is None else of_ctrl
            of_control = {"bar_ctrl": of_ctrl, "bar_qvel": of_state["qvel"]}
            for name, x in self._call(WAY_BACK, before | of_control).items():
                found[name].add_(x)
            del of_state["qvel"]  # a kick may have changed it, so it went through `control`
        elif of_ctrl is not None:
            found["action"].add_(of_ctrl)
        for name, x in of_state.items():
            found[name].add_(x)
        return {name: found[name] for name in self._given}

    # its kernels

    def _call(self, kind: str, given: Mapping[str, torch.Tensor]) -> Rows:
        reads, writes = self._buffers(kind)
        found = self._pure(kind)([given[b.name] for b in reads])
        return {b.name.removeprefix("to_"): x for b, x in zip(writes, found, strict=True)}

    def _buffers(self, kind: str) -> tuple[list[Buffer], list[Buffer]]:
        """Return what a kernel reads, and what it writes."""

        def rows(names: Sequence[str], start: str = "") -> list[Buffer]:
            known = [self._sizes[name] for name in names if name in self._sizes]
            return [Buffer(start + b.name, b.size, b.type, rows=True) for b in known]

        m = self._episode.model
        reads, to = rows((*GIVEN, *OTHERS)), rows(GIVEN, "to_")
        kicked = [Buffer("ctrl", m.nu, rows=True)] * bool(m.nu) + [Buffer("qvel", m.nv, rows=True)]
        if kind == CONTROL:
            return reads, [Buffer(f"to_{b.name}", b.size, rows=True) for b in kicked]
        if kind == WAY_BACK:
            return [*reads, *(Buffer(f"bar_{b.name}", b.size, rows=True) for b in kicked)], to
        ended = accelerations(m)
        around = [*rows(STATE, "last_"), *rows(STATE, "new_"), ended, *rows(JUDGED, "bar_")]
        return [*reads, *around], [*to, *rows(STATE, "to_last_"), *rows(STATE, "to_new_")]

    def _build(self, kind: str) -> Pure:
        reads, writes = self._buffers(kind)
        name = self._episode.name(kind)
        buffers = (*reads, *writes, *table_buffers(self._episode.layout.tables))
        recipe = Recipe(name, buffers, self._dtype, lambda: self._record(kind, buffers), self._episode.origin())
        return Pure(build(recipe, self._step.device), len(reads), [*self._tables.values()])

    def _record(self, kind: str, buffers: Sequence[Buffer]) -> Program:
        name = self._episode.name(kind)
        try:
            return record(name, buffers, lambda b: self._body(kind, b), self._dtype, derivatives="reverse")
        except NotDifferentiable as error:
            raise UnsupportedModel(f"there are no gradients of {self._episode.name('step')}: {error}") from None

    def _body(self, kind: str, b: Buffers) -> dict[str, list[Any]]:
        episode = self._episode.with_tables(b).differentiable()
        if episode.params:
            episode = episode.of_world(b["params"], episode.params.derive(b["params"]))
        m, widths = episode.model, episode.layout.memory
        act, action = b.get("act", []), b["action"]
        before = episode.world_at(b["qpos"], b["qvel"], act, random(b, b["episode"][0] + -1, b["elapsed_steps"][0] + 1))
        before.memory = by_name(widths, b.get("memory", []))
        ctrl, pushes, *_ = episode.control(before, action)
        if episode.contract.has_substeps:
            raise NotDifferentiable("what the task's substep_control computes has no gradient yet")
        if episode.kept.inputs:
            raise NotDifferentiable(f"what the task keeps in {', '.join(episode.kept.inputs)} has no gradient yet")
        kick = pushes.pop("qvel", [0.0] * m.nv)
        if pushes:
            raise NotDifferentiable(f"what its control pushes with ({', '.join(pushes)}) has no gradient yet")
        qvel = [v + x for v, x in zip(b["qvel"], kick, strict=True)]
        if kind == CONTROL:
            return {"to_ctrl": floats(ctrl), "to_qvel": qvel} if m.nu else {"to_qvel": qvel}
        inputs = {name: b[name] for name in self._given}
        solutions: list[Solved] = []
        if kind == WAY_BACK:
            roots = [*zip(ctrl, b.get("bar_ctrl", []), strict=True), *zip(qvel, b["bar_qvel"], strict=True)]
        else:
            ends = {x: {name: b[f"{x}_{name}"] for name in self._state} for x in ("last", "new")}
            inputs |= {f"{x}_{name}": values for x, of_state in ends.items() for name, values in of_state.items()}
            last = State(ends["last"]["qpos"], ends["last"]["qvel"], [0.0] * m.nv, ends["last"].get("act", []))
            moved, solutions = transition.ended_at(m, last, ctrl, b["qaccs"], episode.precision)
            moved.qpos, moved.qvel, moved.act = ends["new"]["qpos"], ends["new"]["qvel"], ends["new"].get("act", [])
            data = AFTER[episode.task.data](m, moved, ctrl, episode.precision)
            after = World(moved.qpos, moved.qvel, {}, data, before.rng, moved.act, episode.tables, episode)
            memory = episode.remember(before, action, after, False)
            after.memory = by_name(widths, memory)
            result, obs, info, sums = episode.judge(b, before, action, after, False)
            history = episode.layout.observation.newest(obs)
            made = {
                "memory": memory, "history": history, "episode_sums": sums, "obs": obs, "reward": [result.reward],
                "info": info,
            }  # fmt: skip
            bars = {name: b[f"bar_{name}"] for name in JUDGED if f"bar_{name}" in b}
            roots = [pair for name, xs in bars.items() for pair in zip(made[name], xs, strict=True)]
        found = iter(Adjoints([x for xs in inputs.values() for x in xs], solutions).of(roots))
        return {f"to_{name}": floats([next(found) for _ in xs]) for name, xs in inputs.items()}
